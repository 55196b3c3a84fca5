package gather

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ck/internal/humanize"
)

// Limits of what is gathered: those of topo.Open, which reads it back.
const (
	maxFile    = 4 << 20  // bytes of one file
	maxBytes   = 30 << 20 // of all files
	maxEntries = 150_000
	folder     = "machine" // in the archive
)

// TooLargeError is why a machine is not gathered: topo.Open would refuse the tree.
type TooLargeError struct {
	Bytes   int64 // of all files
	Entries int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the files that tell of this machine are %s in %d entries; at most %s in %d are gathered",
		humanize.IBytes(e.Bytes), e.Entries, humanize.IBytes(maxBytes), maxEntries)
}

// A Tree is the archive in memory, by paths without links in them.
type Tree struct {
	r          *Recorder
	host       string
	entries    map[string]tarEntry
	plain      map[string]bool // paths that are no links
	Bytes      int64           // of the files, unpacked
	Files      int             // that were read
	Redacted   []string        // of these, of which something was left out
	Unreadable []string        // with the reason
}

// tarEntry is a file, a folder (data and link absent) or a link.
type tarEntry struct {
	kind byte // of archive/tar
	data []byte
	link string
}

// Archive lays out what was recorded, without what tells whose machine it is: host is its name, "" if that need not be looked for. The only
// error is a TooLargeError.
func (r *Recorder) Archive(host string) (*Tree, error) {
	t := &Tree{r: r, host: host, entries: map[string]tarEntry{}, plain: map[string]bool{}, Redacted: []string{}, Unreadable: []string{}}
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		k := r.files[name]
		data := k.data
		switch {
		case k.err != nil:
			t.Unreadable = append(t.Unreadable, name+": "+reason(k.err))
			data = nil
		case len(data) > maxFile:
			t.Unreadable = append(t.Unreadable, fmt.Sprintf("%s: longer than %s, cut", name, humanize.IBytes(maxFile)))
			data = data[:maxFile]
		}
		clean := redact(name, data, host)
		if !bytes.Equal(clean, data) {
			t.Redacted = append(t.Redacted, name)
		}
		if at, ok := t.place(name); ok {
			t.entries[at] = tarEntry{kind: tar.TypeReg, data: clean}
			t.Bytes += int64(len(clean))
			t.Files++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.links)) {
		t.link(name, r.links[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.dirs)) {
		for _, e := range r.dirs[name] {
			t.listed(path.Join(name, e.Name()), e.Type())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.seen)) {
		t.listed(name, r.seen[name])
	}
	if t.Bytes > maxBytes || len(t.entries) > maxEntries {
		return nil, &TooLargeError{t.Bytes, len(t.entries)}
	}
	if len(t.Unreadable) > 0 {
		t.entries["errors.txt"] = tarEntry{kind: tar.TypeReg, data: []byte(strings.Join(t.Unreadable, "\n") + "\n")}
	}
	return t, nil
}

// reason is an error without the path.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return err.Error()
}

// listed makes sure that something that was seen in a folder is there: numbers of CPUs are read from names of folders.
func (t *Tree) listed(name string, kind fs.FileMode) {
	if strings.HasPrefix(name, "proc/") {
		return
	}
	if kind&fs.ModeSymlink != 0 {
		if to, err := fs.ReadLink(t.r.fsys, name); err == nil {
			t.link(name, to)
			if st, err := fs.Stat(t.r.fsys, name); err == nil && st.IsDir() {
				t.folder(name)
			}
		}
		return
	}
	if kind.IsDir() {
		t.folder(name)
		return
	}
	if at, ok := t.place(name); ok {
		if _, there := t.entries[at]; !there {
			t.entries[at] = tarEntry{kind: tar.TypeReg}
		}
	}
}

func (t *Tree) folder(name string) {
	if at, ok := t.place(name); ok {
		if _, there := t.entries[at]; !there {
			t.entries[at] = tarEntry{kind: tar.TypeDir}
		}
	}
}

// link puts a symbolic link into the archive, relative and not out of the tree.
func (t *Tree) link(name, to string) {
	at, ok := t.place(path.Dir(name))
	if !ok {
		return
	}
	at = path.Join(at, path.Base(name))
	if to, ok = relativeLink(at, to); ok {
		t.entries[at] = tarEntry{kind: tar.TypeSymlink, link: to}
	}
}

// relativeLink is a link's target as seen from the link's folder. Not ok: it leads out of the tree.
func relativeLink(at, to string) (string, bool) {
	if strings.HasPrefix(to, "/") {
		rel, err := filepath.Rel(path.Dir("/"+at), path.Clean(to))
		if err != nil {
			return "", false
		}
		to = rel
	}
	whole := path.Join(path.Dir(at), to)
	return to, whole != ".." && !strings.HasPrefix(whole, "../")
}

// place is where a file belongs once the links on its path are followed; the links go into the archive. In /proc links name processes,
// so that there a file stands where it was asked for.
func (t *Tree) place(name string) (string, bool) {
	if strings.HasPrefix(name, "proc/") || name == "proc" {
		return name, true
	}
	at, todo := ".", strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		e, ok := t.entries[next]
		if !ok && !t.plain[next] {
			if to, err := fs.ReadLink(t.r.fsys, next); err == nil {
				if to, ok = relativeLink(next, to); !ok {
					return "", false
				}
				e = tarEntry{kind: tar.TypeSymlink, link: to}
				t.entries[next] = e
			} else {
				t.plain[next] = true
			}
		}
		if e.kind != tar.TypeSymlink {
			at = next
			continue
		}
		if links++; links > 40 {
			return "", false
		}
		todo = append(strings.Split(e.link, "/"), todo...)
	}
	return at, true
}

// Write packs the tree as a tar file with gzip. The same tree gives the same bytes.
func (t *Tree) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	a := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		h := &tar.Header{Typeflag: e.kind, Name: path.Join(folder, t.hide(name)), Linkname: e.link, Mode: 0o444, Size: int64(len(e.data))}
		switch e.kind {
		case tar.TypeDir:
			h.Name, h.Mode = h.Name+"/", 0o755
		case tar.TypeReg:
			h.Mode = 0o644
		}
		if err := a.WriteHeader(h); err != nil {
			return err
		}
		if _, err := a.Write(e.data); err != nil {
			return err
		}
	}
	if err := a.Close(); err != nil {
		return err
	}
	return z.Close()
}

// hide takes the host's name out of the names of cgroups, which are the only ones that people choose.
func (t *Tree) hide(name string) string {
	if strings.HasPrefix(name, "sys/devices/") || strings.HasPrefix(name, "sys/class/") || strings.HasPrefix(name, "sys/bus/") || strings.HasPrefix(name, "proc/") {
		return name
	}
	return hideHost(name, t.host)
}
