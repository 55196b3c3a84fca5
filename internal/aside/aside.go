// Package aside gives finished files their names: an output is written under another name, or none, and appears whole
// or not at all.
package aside

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Rename gives the file tmp the name path, in the same folder. Without force it never replaces a file: then the error
// is fs.ErrExist.
func Rename(tmp, path string, force bool) error {
	if !force {
		err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
			return named(path, err)
		}
		// The file system cannot do that in one step.
		if _, err := os.Lstat(path); err == nil {
			return named(path, unix.EEXIST)
		}
	}
	return named(path, unix.Rename(tmp, path))
}

func named(path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: "rename", Path: path, Err: err}
}

// SyncFolder brings the names in the folder of path to the disk, as far as the file system can.
func SyncFolder(path string) {
	if d, err := os.Open(filepath.Dir(path)); err == nil {
		d.Sync()
		d.Close()
	}
}

// Lock marks an open file as in use until it is closed. It is false while another process has it. Some file systems
// have no locks: there it is true.
func Lock(f *os.File) bool {
	return !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}
