package topo

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Limits of what is read from a stranger's archive. The largest saved tree at hand, of 1,792 CPUs, has 86,000 entries and 9 MB of files;
// an archive at the limits takes some 80 MB while it is read.
const (
	maxEntries  = 150_000
	maxTree     = 32 << 20  // bytes of files, names, and entryBytes for each entry
	maxUnpacked = 256 << 20 // bytes of the unpacked archive, with what is not kept
	maxFile     = 4 << 20   // bytes of a file that is kept; /proc/cpuinfo has 1,500 for each CPU
	maxDepth    = 48        // folders within folders
	maxName     = 4096      // bytes of a path
	maxLinks    = 40        // symbolic links followed for one path, as Linux does
	entryBytes  = 100       // what an entry costs beside its name and content
)

var errLinks = errors.New("too many symbolic links, or they go round in circles")

// Open opens a saved tree, a folder or a .tgz file, or the live system ("/"). What holds proc and sys may be the tree itself or the one
// folder in it. Symbolic links are followed within the tree, absolute ones from its root, never out of it. Archives are read into memory,
// at most about 80 MB.
func Open(name string) (fs.FS, error) {
	if name == "/" {
		return os.DirFS(name), nil
	}
	st, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("topology: %w", err)
	case st.IsDir():
		return openDir(name)
	case st.Mode().IsRegular() && (strings.HasSuffix(name, ".tgz") || strings.HasSuffix(name, ".tar.gz")):
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("topology: %w", err)
		}
		defer f.Close()
		t, err := readTar(f)
		if err != nil {
			return nil, fmt.Errorf("topology: %s: %w", name, err)
		}
		return linked{t}, nil
	}
	return nil, fmt.Errorf("topology: %s is neither a folder that holds proc and sys nor a .tgz file of one", name)
}

// A store is files and links by their path from its root, without a link in the path.
type store interface {
	lookup(name string) (mode fs.FileMode, link string, err error) // mode's type bits; link: of a symbolic link, where it points to
	open(name string) (fs.File, error)
	list(name string) ([]fs.DirEntry, error)
}

// linked is a store as a file system which follows symbolic links within the store.
type linked struct{ store }

// resolve finds what a path means once all links in it are followed, except for a link at its end if last is not set.
func (l linked) resolve(op, name string, last bool) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	// Most paths have no link in them: what is found there, or not found in a folder that is there, needs no walk.
	if mode, _, err := l.lookup(name); err == nil && mode&fs.ModeSymlink == 0 {
		return name, nil
	} else if errors.Is(err, fs.ErrNotExist) {
		if above, _, err2 := l.lookup(path.Dir(name)); err2 == nil && above.IsDir() {
			return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	at, todo, links := ".", strings.Split(name, "/"), 0
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at) // of "." it is "."
			continue
		}
		next := path.Join(at, part)
		mode, link, err := l.lookup(next)
		if err != nil {
			return "", &fs.PathError{Op: op, Path: name, Err: err}
		}
		if mode&fs.ModeSymlink == 0 || len(todo) == 0 && !last {
			at = next
			continue
		}
		if links++; links > maxLinks || len(link) > maxName {
			return "", &fs.PathError{Op: op, Path: name, Err: errLinks}
		}
		if strings.HasPrefix(link, "/") {
			at = "."
		}
		todo = append(strings.Split(link, "/"), todo...)
		if len(todo) > maxName {
			return "", &fs.PathError{Op: op, Path: name, Err: errLinks}
		}
	}
	return at, nil
}

func (l linked) Open(name string) (fs.File, error) {
	at, err := l.resolve("open", name, true)
	if err != nil {
		return nil, err
	}
	return l.open(at)
}

func (l linked) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := l.resolve("readdir", name, true)
	if err != nil {
		return nil, err
	}
	return l.list(at)
}

func (l linked) ReadLink(name string) (string, error) {
	at, err := l.resolve("readlink", name, false)
	if err != nil {
		return "", err
	}
	mode, link, err := l.lookup(at)
	if err == nil && mode&fs.ModeSymlink == 0 {
		err = fs.ErrInvalid
	}
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return link, nil
}

func (l linked) Lstat(name string) (fs.FileInfo, error) { return l.info("lstat", name, false) }
func (l linked) Stat(name string) (fs.FileInfo, error)  { return l.info("stat", name, true) }

// info opens files and folders only.
func (l linked) info(op, name string, last bool) (fs.FileInfo, error) {
	at, err := l.resolve(op, name, last)
	if err != nil {
		return nil, err
	}
	mode, link, err := l.lookup(at)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	if !mode.IsRegular() && !mode.IsDir() {
		return &memInfo{path.Base(at), entry{mode.Type(), link}}, nil
	}
	f, err := l.open(at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// rooted tells whether names are those of a root folder of Linux, as saved trees have them.
func rooted(names []string) bool {
	return slices.Contains(names, "sys") || slices.Contains(names, "proc")
}

// dirStore is a folder on disk.
type dirStore struct{ root *os.Root }

func openDir(name string) (fs.FS, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	d := dirStore{root}
	es, err := d.list(".")
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	if len(es) == 1 && es[0].IsDir() && !rooted([]string{es[0].Name()}) {
		if below, err := root.OpenRoot(es[0].Name()); err == nil {
			root.Close()
			d.root = below
		}
	}
	return linked{d}, nil
}

func (d dirStore) lookup(name string) (fs.FileMode, string, error) {
	st, err := d.root.Lstat(name)
	if errors.Is(err, syscall.ENOTDIR) { // a file stands where a folder of the path should be
		err = fs.ErrNotExist
	}
	if err != nil {
		return 0, "", err
	}
	if st.Mode()&fs.ModeSymlink == 0 {
		return st.Mode(), "", nil
	}
	link, err := d.root.Readlink(name)
	return st.Mode(), link, err
}

var (
	errNoFile  = errors.New("neither a file nor a folder")
	errTooMany = fmt.Errorf("more than %d entries, which no saved tree has", maxEntries)
)

// open opens files and folders. A stranger's tree may hold devices and named pipes: what they are is asked before they are opened, because
// opening some devices does something, and opening a pipe waits for a writer (which it also does not, should one take a file's place meanwhile).
func (d dirStore) open(name string) (fs.File, error) {
	mode, _, err := d.lookup(name)
	if err == nil && !mode.IsRegular() && !mode.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: errNoFile}
	}
	if err != nil {
		return nil, err
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() && !st.IsDir() {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: errNoFile}
	}
	return f, nil
}

// list reads a folder, unless it has more entries than a whole tree may have.
func (d dirStore) list(name string) ([]fs.DirEntry, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	es, err := f.ReadDir(maxEntries + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(es) > maxEntries {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errTooMany}
	}
	slices.SortFunc(es, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return es, nil
}

// An entry of a tree in memory. There are many, so it is small.
type entry struct {
	mode fs.FileMode // type bits; ModeIrregular: what cannot be read
	data string      // content, where a link points to, or why it cannot be read
}

// memStore is a tree in memory by full paths, seen from the folder below.
type memStore struct {
	entries map[string]entry
	names   map[string][]string // of each folder, sorted once finished
	below   string              // "" or the one folder at the top, with a slash
	bytes   int
}

func newMemStore() *memStore {
	return &memStore{entries: map[string]entry{".": {mode: fs.ModeDir}}, names: map[string][]string{}}
}

// add puts an entry in its place, with the folders above it. What came before under that name is replaced, except for folders.
func (m *memStore) add(name string, e entry) error {
	if old, ok := m.entries[name]; ok {
		if !old.mode.IsDir() && !e.mode.IsDir() {
			m.bytes += len(e.data) - len(old.data)
			m.entries[name] = e
		}
		return m.check()
	}
	dir := path.Dir(name)
	above, ok := m.entries[dir]
	if !ok {
		above.mode = fs.ModeDir
		if err := m.add(dir, above); err != nil {
			return err
		}
	}
	if !above.mode.IsDir() {
		return fmt.Errorf("%.100q: what should be the folder above is none", name)
	}
	m.entries[name] = e
	m.names[dir] = append(m.names[dir], path.Base(name))
	m.bytes += len(e.data) + len(name) + entryBytes
	return m.check()
}

func (m *memStore) check() error {
	if len(m.entries) > maxEntries {
		return errTooMany
	}
	if m.bytes > maxTree {
		return fmt.Errorf("more than %d MiB of files, which no saved tree has", maxTree>>20)
	}
	return nil
}

// finish sorts the folders and finds the one that holds proc and sys.
func (m *memStore) finish() {
	for _, names := range m.names {
		slices.Sort(names)
	}
	if top := m.names["."]; len(top) == 1 && !rooted(top) && m.entries[top[0]].mode.IsDir() {
		m.below = top[0] + "/"
	}
}

// full is a path from the archive's own root.
func (m *memStore) full(name string) string {
	switch {
	case m.below == "":
		return name
	case name == ".":
		return m.below[:len(m.below)-1]
	}
	return m.below + name
}

func (m *memStore) lookup(name string) (fs.FileMode, string, error) {
	e, ok := m.entries[m.full(name)]
	if !ok {
		return 0, "", fs.ErrNotExist
	}
	return e.mode, e.data, nil
}

func (m *memStore) open(name string) (fs.File, error) {
	e, ok := m.entries[m.full(name)]
	var err error
	switch {
	case !ok:
		err = fs.ErrNotExist
	case e.mode&fs.ModeIrregular != 0:
		err = errors.New(e.data)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &memFile{memInfo: memInfo{path.Base(name), e}, m: m, path: name}, nil
}

func (m *memStore) list(name string) ([]fs.DirEntry, error) {
	full := m.full(name)
	e, ok := m.entries[full]
	switch {
	case !ok:
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	case !e.mode.IsDir():
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: syscall.ENOTDIR}
	}
	names := m.names[full]
	es := make([]fs.DirEntry, len(names))
	for i, n := range names {
		es[i] = fs.FileInfoToDirEntry(&memInfo{n, m.entries[path.Join(full, n)]})
	}
	return es, nil
}

// memInfo describes an entry.
type memInfo struct {
	name string
	e    entry
}

func (i *memInfo) Name() string       { return i.name }
func (i *memInfo) Size() int64        { return int64(len(i.e.data)) }
func (i *memInfo) ModTime() time.Time { return time.Time{} }
func (i *memInfo) IsDir() bool        { return i.e.mode.IsDir() }
func (i *memInfo) Sys() any           { return nil }
func (i *memInfo) Mode() fs.FileMode {
	if i.e.mode.IsDir() {
		return i.e.mode | 0o555
	}
	return i.e.mode | 0o444
}

// memFile is an open entry.
type memFile struct {
	memInfo
	m    *memStore
	path string
	at   int // bytes or names that were given
}

func (f *memFile) Stat() (fs.FileInfo, error) { return &f.memInfo, nil }
func (f *memFile) Close() error               { return nil }

func (f *memFile) Read(b []byte) (int, error) {
	if f.e.mode.IsDir() {
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: errors.New("is a folder")}
	}
	n := copy(b, f.e.data[f.at:])
	f.at += n
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (f *memFile) ReadDir(n int) ([]fs.DirEntry, error) {
	es, err := f.m.list(f.path)
	if err != nil {
		return nil, err
	}
	es = es[min(f.at, len(es)):]
	if n > 0 {
		if len(es) == 0 {
			return nil, io.EOF
		}
		es = es[:min(n, len(es))]
	}
	f.at += len(es)
	return es, nil
}

// readTar reads a gzipped tar archive into memory.
func readTar(r io.Reader) (*memStore, error) {
	z, err := gzip.NewReader(bufio.NewReaderSize(r, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("not a gzip file: %w", err)
	}
	return readEntries(z)
}

// readEntries reads a tar archive into memory. One that is cut off or damaged is an error and no page: packages and nodes counted from half
// of the files would be wrong without looking so.
func readEntries(r io.Reader) (*memStore, error) {
	left := &io.LimitedReader{R: r, N: maxUnpacked + 1}
	m, buffer := newMemStore(), make([]byte, 32<<10)
	errLarge := fmt.Errorf("more than %d MiB unpacked, which no saved tree has", maxUnpacked>>20)
	damaged := func(err error) error {
		if left.N <= 0 {
			return errLarge
		}
		return fmt.Errorf("the archive is cut off or damaged after %d entries (%w); fetch or make it again", len(m.entries)-1, err)
	}
	const collectEntries = 1 << 14
	n, unpacked := 0, int64(0) // entries; bytes of files that are kept: one with holes is larger here than in the archive
	for t := tar.NewReader(left); ; {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, damaged(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader { // says something of the archive and is no entry of it
			continue
		}
		name, err := cleanName(h.Name)
		if err != nil {
			return nil, err
		}
		if name == "." {
			continue
		}
		e := entry{}
		switch h.Typeflag {
		case tar.TypeReg:
			if h.Size > maxFile {
				e = entry{fs.ModeIrregular, fmt.Sprintf("larger than %d MiB, which no file is that tells of a machine", maxFile>>20)}
				break
			}
			if unpacked += h.Size; unpacked > maxUnpacked {
				return nil, errLarge
			}
			var b strings.Builder
			b.Grow(int(h.Size))
			if _, err := io.CopyBuffer(&b, t, buffer); err != nil {
				return nil, damaged(err)
			}
			e.data = b.String()
		case tar.TypeDir:
			e.mode = fs.ModeDir
		case tar.TypeSymlink:
			e = entry{fs.ModeSymlink, strings.Clone(h.Linkname)}
		case tar.TypeLink: // a name more for a file that came before
			e = entry{fs.ModeIrregular, "a hard link to what is no file of the archive"}
			if to, err := cleanName(h.Linkname); err == nil {
				if old, ok := m.entries[to]; ok && old.mode.IsRegular() {
					e = old
				}
			}
		default: // devices and pipes
			e = entry{fs.ModeIrregular, errNoFile.Error()}
		}
		if err := m.add(strings.Clone(name), e); err != nil {
			return nil, err
		}
		if n++; n%collectEntries == 0 {
			runtime.GC() // what the archive's reader leaves; Go would let it grow to as much as is kept
		}
	}
	// The checksum comes behind the end of the archive. What gzip ignores, bytes that are no gzip behind it, is no damage.
	if _, err := io.CopyBuffer(io.Discard, left, buffer); err != nil && !errors.Is(err, gzip.ErrHeader) || left.N <= 0 {
		return nil, damaged(err)
	}
	m.finish()
	return m, nil
}

// cleanName is the path of an archive's entry from the tree's root. One that leads out of it is an error: nothing would be written
// there, but whoever made it means harm.
func cleanName(name string) (string, error) {
	parts := strings.Split(name, "/")
	switch {
	case strings.HasPrefix(name, "/") || slices.Contains(parts, ".."):
		return "", fmt.Errorf("the archive has an entry %.100q, which leads out of it", name)
	case len(name) > maxName || len(parts) > maxDepth:
		return "", fmt.Errorf("the archive has an entry %.100q…, which is too long or too deep", name)
	}
	return path.Clean(name), nil
}
