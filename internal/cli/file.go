package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is an output that appears under its name when it is complete, or not at all. "-" is stdout. Devices and pipes are written as they are.
type File struct {
	*bufio.Writer
	f     *os.File
	path  string // final name; "" where there is nothing to rename
	force bool
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
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%08x.tmp", filepath.Base(path), rand.Uint32()))
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			pe.Path = path // the temporary name would only confuse
		}
		return nil, Resource("%w", err)
	}
	out := newFile(f, path, force)
	a.OnExit(out.Abort)
	return out, nil
}

func exists(path string) error { return Usage("%s: exists; --force overwrites it", path) }

func newFile(f *os.File, path string, force bool) *File {
	return &File{Writer: bufio.NewWriterSize(f, 1<<18), f: f, path: path, force: force}
}

// Commit brings the content to the disk and gives the file its name.
func (o *File) Commit() error {
	if o.f == nil {
		return nil
	}
	if err := o.commit(); err != nil {
		o.Abort()
		return err
	}
	o.f = nil
	return nil
}

func (o *File) commit() error {
	if err := o.Flush(); err != nil {
		return OutError(o.named(err))
	}
	if o.path == "" {
		if o.f == os.Stdout {
			return nil
		}
		return o.f.Close()
	}
	tmp := o.f.Name()
	if err := o.f.Sync(); err != nil {
		return o.named(err)
	}
	if err := o.f.Close(); err != nil {
		return o.named(err)
	}
	if err := o.rename(tmp); err != nil {
		return err
	}
	if d, err := os.Open(filepath.Dir(o.path)); err == nil {
		d.Sync() // best effort: some file systems cannot sync folders
		d.Close()
	}
	return nil
}

// rename moves the finished file to its name; without force never over a file that appeared meanwhile.
func (o *File) rename(tmp string) error {
	if !o.force {
		err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, o.path, unix.RENAME_NOREPLACE)
		switch {
		case errors.Is(err, unix.EEXIST):
			return exists(o.path)
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS):
			return &fs.PathError{Op: "rename", Path: o.path, Err: err}
		}
		// The file system cannot do that in one step.
	}
	return os.Rename(tmp, o.path)
}

// named puts the final name into an error of the temporary file.
func (o *File) named(err error) error {
	var pe *fs.PathError
	if o.path != "" && errors.As(err, &pe) {
		pe.Path = o.path
		return Resource("%w", err)
	}
	return err
}

// Abort removes an output that was not committed.
func (o *File) Abort() {
	if o.f == nil {
		return
	}
	if o.path != "" {
		o.f.Close()
		os.Remove(o.f.Name())
	}
	o.f = nil
}
