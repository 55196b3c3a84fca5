package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ck/internal/aside"
)

// WriteFolder makes a folder that appears under the name dir, whole and on the disk, when fill has returned without an error, or not at
// all. fill writes files into the folder that it is given. Until then that has a hidden name beside dir, .NAME.xxxxxxxx.tmp, and a lock:
// what a killed process left is removed when NAME is written again.
//
// Without force a dir that exists is an error, fs.ErrExist. With force it is replaced in one step if it is a folder of the same kind:
// one that has the file marker and no folder within; then all that is in it goes.
func WriteFolder(dir, marker string, force bool, fill func(tmp string) error) error {
	if p, err := filepath.EvalSymlinks(dir); err == nil {
		dir = p // the folder behind a link is replaced, not the link
	}
	dir = filepath.Clean(dir)
	replace, err := replaceable(dir, marker, force)
	if err != nil {
		return err
	}
	removeFolders(dir)
	tmp, lock, err := hiddenFolder(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	defer os.RemoveAll(tmp) // or what was there before
	if err := fill(tmp); err != nil {
		return err
	}
	if err := syncAll(tmp); err != nil {
		return err
	}
	if replace {
		if err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE); err != nil {
			return fmt.Errorf("%w; the file system cannot exchange folders: remove the old one first", &fs.PathError{Op: "rename", Path: dir, Err: err})
		}
	} else if err := aside.Rename(tmp, dir, false); err != nil {
		return err
	}
	aside.SyncFolder(dir)
	return nil
}

// replaceable reports whether dir is there and may be replaced.
func replaceable(dir, marker string, force bool) (bool, error) {
	st, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !force:
		return false, fmt.Errorf("%s: %w; --force overwrites it", dir, fs.ErrExist)
	case !st.IsDir():
		return false, fmt.Errorf("%s: is no folder; name another one", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	same := len(entries) == 0
	for _, e := range entries {
		if e.IsDir() {
			return false, fmt.Errorf("%s: has a folder %.100q in it, which would go with it: remove it first, or name another one", dir, e.Name())
		}
		same = same || e.Name() == marker
	}
	if !same {
		return false, fmt.Errorf("%s: has no %s, so it is another kind of folder: remove it first, or name another one", dir, marker)
	}
	return true, nil
}

// hiddenFolder makes a new folder beside dir, with its lock.
func hiddenFolder(dir string) (tmp string, lock *os.File, err error) {
	for {
		tmp = fmt.Sprintf("%s.%08x.tmp", hiddenPrefix(dir), rand.Uint32())
		if err := os.Mkdir(tmp, 0o777); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return "", nil, err
		}
		lock, err := os.Open(tmp)
		if err != nil {
			return "", nil, err
		}
		var st unix.Stat_t
		if aside.Lock(lock) && (unix.Fstat(int(lock.Fd()), &st) != nil || st.Nlink > 0) {
			return tmp, lock, nil
		}
		lock.Close() // another process took it for a leftover before it was locked
	}
}

// discard removes a hidden folder that is not finished. First it takes the name that it would be renamed from: it cannot appear with parts missing.
func discard(tmp string) {
	end := len(tmp) - len("00000000.tmp")
	for range 3 { // until a name is free
		other := fmt.Sprintf("%s%08x.tmp", tmp[:end], rand.Uint32())
		if err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, other, unix.RENAME_NOREPLACE); errors.Is(err, unix.EEXIST) {
			continue
		} else if err == nil {
			os.RemoveAll(other)
		}
		return // else it is not there, or stays as what a killed process leaves
	}
}

func hiddenPrefix(dir string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir))
}

// removeFolders removes what killed processes left of dir.
func removeFolders(dir string) {
	const random = "[0-9a-f]"
	prefix := filepath.Base(hiddenPrefix(dir))
	entries, _ := os.ReadDir(filepath.Dir(dir))
	for _, e := range entries {
		name, ok := e.Name(), e.IsDir()
		if len(name) != len(prefix)+len(".00000000.tmp") || name[:len(prefix)] != prefix || !ok {
			continue
		}
		if ok, _ := filepath.Match("."+random+random+random+random+random+random+random+random+".tmp", name[len(prefix):]); !ok {
			continue
		}
		path := filepath.Join(filepath.Dir(dir), name)
		if f, err := os.Open(path); err == nil {
			if aside.Lock(f) {
				os.RemoveAll(path)
			}
			f.Close()
		}
	}
}

// syncAll brings the files of a folder to the disk, and their names.
func syncAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		err = f.Sync()
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	aside.SyncFolder(filepath.Join(dir, "x"))
	return nil
}
