package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"ck/internal/aside"
)

// File is an output that appears under its name when it is complete, or not at all. "-" is stdout. Devices and pipes are written as they are.
//
// Until then the content has no name (O_TMPFILE), so that nothing stays of it when the process is killed. Where the file system cannot do
// that it has a hidden one, .NAME.xxxxxxxx.tmp, and a lock: what a killed process left is removed when NAME is written again.
//
// Errors of writing name the file and mean ExitResource.
type File struct {
	*bufio.Writer
	f     *os.File // bears the final name, whatever the one on the disk is
	path  string   // final name; "" where there is nothing to rename
	force bool

	mu   sync.Mutex // the signals' goroutine removes what has a hidden name
	tmp  string     // hidden name that the content has
	gone bool       // the process ends: no name is given any more
}

// Create starts the output file at path. Without force a file that exists is an error of usage. Commit or Abort must follow.
func (a *App) Create(path string, force bool) (*File, error) {
	if path == "-" {
		return newFile(a.Out, "", force), nil
	}
	if p, err := filepath.EvalSymlinks(path); err == nil {
		path = p // the file behind a link is replaced, not the link
	}
	switch st, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case st.IsDir():
		return nil, Usage("%s: is a directory; name a file in it", path)
	case !st.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return newFile(f, "", force), nil
	case !force:
		return nil, exists(path)
	}
	removeLeftovers(path)
	o := newFile(nil, path, force)
	a.OnExit(o.forget)
	if err := o.open(); err != nil {
		return nil, Resource("%w", &fs.PathError{Op: "create", Path: path, Err: err})
	}
	o.Reset(fileWriter{o.f})
	return o, nil
}

func exists(path string) error { return Usage("%s: exists; --force overwrites it", path) }

func newFile(f *os.File, path string, force bool) *File {
	return &File{Writer: bufio.NewWriterSize(fileWriter{f}, 1<<18), f: f, path: path, force: force}
}

// fileWriter makes every failed write an error of a resource that names the file.
type fileWriter struct{ f *os.File }

func (w fileWriter) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	return n, writeError(err)
}

func writeError(err error) error {
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return err
	}
	if out := OutError(err); out != err {
		return out
	}
	return Resource("%w", err)
}

// unnamed is the flag that opens a file without a name; tests stand for file systems that have none.
var unnamed = unix.O_TMPFILE

// open makes the file, without a name where the file system can do that.
func (o *File) open() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return syscall.EINTR
	}
	if fd, err := unix.Open(filepath.Dir(o.path), unnamed|unix.O_WRONLY|unix.O_CLOEXEC, 0o666); err == nil {
		o.f = os.NewFile(uintptr(fd), o.path)
		if _, err := os.Stat(fdPath(o.f)); err == nil && lock(fd) == nil {
			return nil
		}
		o.f.Close() // without /proc it could not get its name
	}
	for {
		tmp := hiddenName(o.path)
		fd, err := unix.Open(tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o666)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := lock(fd); errors.Is(err, unix.EWOULDBLOCK) || unix.Fstat(fd, &st) == nil && st.Nlink == 0 {
			unix.Close(fd) // another process took it for a leftover before it was locked
			continue
		}
		o.f, o.tmp = os.NewFile(uintptr(fd), o.path), tmp
		return nil
	}
}

// lock marks a file as in use, until it is closed. Some file systems have no locks: their leftovers stay.
func lock(fd int) error {
	err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	return nil
}

func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// hiddenName is a new hidden name beside path.
func hiddenName(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%08x.tmp", filepath.Base(path), rand.Uint32()))
}

var hiddenEnd = regexp.MustCompile(`^\.[0-9a-f]{8}\.tmp$`)

// removeLeftovers removes the hidden files of path that no process holds.
func removeLeftovers(path string) {
	dir, base := filepath.Dir(path), "."+filepath.Base(path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return // what is wrong with the folder is said when the file is made
	}
	for _, e := range list {
		if n := e.Name(); !e.Type().IsRegular() || len(n) < len(base) || n[:len(base)] != base || !hiddenEnd.MatchString(n[len(base):]) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(name)
		}
		unix.Close(fd)
	}
}

// Commit brings the content to the disk and gives the file its name.
func (o *File) Commit() error {
	if o.f == nil {
		return nil
	}
	err := o.commit()
	if err != nil || o.f != os.Stdout {
		o.Abort()
	}
	o.f = nil
	return err
}

func (o *File) commit() error {
	if err := o.Flush(); err != nil {
		return err
	}
	if o.path == "" {
		if o.f == os.Stdout {
			return nil
		}
		err := o.f.Close()
		o.f = nil
		return writeError(err)
	}
	if err := o.f.Sync(); err != nil {
		return writeError(err)
	}
	if err := o.name(); err != nil {
		return err
	}
	aside.SyncFolder(o.path)
	return nil
}

// name gives the finished content its name; without force never over a file that appeared meanwhile.
func (o *File) name() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return Interrupted()
	}
	if o.tmp == "" {
		err := unix.Linkat(unix.AT_FDCWD, fdPath(o.f), unix.AT_FDCWD, o.path, unix.AT_SYMLINK_FOLLOW)
		if err == nil || !errors.Is(err, unix.EEXIST) || !o.force {
			return o.named(err)
		}
		// A name can be replaced by another one only.
		tmp := hiddenName(o.path)
		if err := unix.Linkat(unix.AT_FDCWD, fdPath(o.f), unix.AT_FDCWD, tmp, unix.AT_SYMLINK_FOLLOW); err != nil {
			return o.named(err)
		}
		o.tmp = tmp
	}
	err := o.named(aside.Rename(o.tmp, o.path, o.force))
	if err == nil {
		o.tmp = ""
	}
	return err
}

// named is the error of giving the file its name.
func (o *File) named(err error) error {
	var pe *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EEXIST) && !o.force:
		return exists(o.path)
	case !errors.As(err, &pe):
		err = &fs.PathError{Op: "rename", Path: o.path, Err: err}
	}
	return writeError(err)
}

// Abort removes an output that was not committed.
func (o *File) Abort() {
	if o.f == nil {
		return
	}
	if o.path != "" {
		o.forget()
		o.f.Close()
	}
	o.f = nil
}

// forget removes the hidden name, and no other is given any more. The process may end after that while content is still written.
func (o *File) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = true
	if o.tmp != "" {
		os.Remove(o.tmp)
		o.tmp = ""
	}
}
