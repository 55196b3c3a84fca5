package testkit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// sumsFile lists the packed files with their SHA-256, as sha256sum writes it. Its own hash names the cache: other data, other folder.
const sumsFile = "SHA256SUMS"

// A store is a packed set and the folder that it is unpacked to.
type store struct {
	packed string // folder of the archives and sumsFile
	cache  string // below it: the data, each file under its name, and .unpacked, a list of files for each archive
	sums   []sum
}

type sum struct{ hash, name string }

var unpacking sync.Mutex // of this process; processes do not wait for one another

// unpackFor unpacks what testdata has of name and of what lies below it, and returns the folder of the unpacked set.
func unpackFor(t testing.TB, name string) (dir string, err error) {
	r, err := root()
	if err != nil {
		return "", err
	}
	unpacking.Lock()
	defer unpacking.Unlock()
	s, err := openStore(filepath.Join(r, "testdata"))
	if err != nil {
		return "", err
	}
	if s.cache, err = s.cacheDir(); err != nil {
		s.cache = t.TempDir() // nobody shares it, so that each test unpacks what it needs
	}
	for _, a := range archives {
		if !a.has(name) {
			continue
		}
		if err := s.unpack(a.name); err != nil {
			return "", err
		}
	}
	return s.cache, nil
}

// openStore reads the list of the packed files.
func openStore(dir string) (*store, error) {
	b, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return nil, err
	}
	s := &store{packed: dir}
	for line := range strings.Lines(string(b)) {
		hash, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || len(hash) != 2*sha256.Size {
			return nil, fmt.Errorf("%s: line %q: expected hash and name; run make testdata", filepath.Join(dir, sumsFile), line)
		}
		s.sums = append(s.sums, sum{hash, name})
	}
	return s, nil
}

// cacheDir makes the user's folder for this very content.
func (s *store) cacheDir() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, x := range s.sums {
		fmt.Fprintln(h, x.hash, x.name)
	}
	dir := filepath.Join(user, "ck-testdata", fmt.Sprintf("%x", h.Sum(nil)[:12]))
	return dir, os.MkdirAll(dir, 0o777)
}

// unpack brings the files of an archive into the cache, unless they are there. Several processes may do so at once: each file appears
// whole, by renaming, and it is the same file whoever was last. What a cleaner of caches took is unpacked again.
func (s *store) unpack(name string) error {
	mark := filepath.Join(s.cache, ".unpacked", strings.ReplaceAll(name, "/", "-"))
	if s.complete(mark) {
		return nil
	}
	files, err := s.read(name)
	if err != nil {
		return err
	}
	list := ""
	for _, f := range files {
		if err := s.put(filepath.Join(s.cache, filepath.FromSlash(f.name)), f.data); err != nil {
			return err
		}
		list += fmt.Sprintf("%d %s\n", len(f.data), f.name)
	}
	return s.put(mark, []byte(list))
}

// complete reports whether the list of files is there, and every file with its size.
func (s *store) complete(mark string) bool {
	list, err := os.ReadFile(mark)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(list)) {
		var size int64
		var name string
		if _, err := fmt.Sscanf(line, "%d %s\n", &size, &name); err != nil {
			return false
		}
		if info, err := os.Stat(filepath.Join(s.cache, filepath.FromSlash(name))); err != nil || info.Size() != size {
			return false
		}
	}
	return true
}

// put writes a file that appears whole, below the cache.
func (s *store) put(to string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	aside := filepath.Join(s.cache, ".aside")
	if err := os.MkdirAll(aside, 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(aside, "*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o444), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// A file is one of an archive, named as in the data set.
type file struct {
	name string
	data []byte
}

// read returns the files of an archive, whose parts must be what sumsFile says.
func (s *store) read(name string) (files []file, err error) {
	var packed bytes.Buffer
	for _, x := range s.sums {
		if x.name != name+".tar.gz" && !strings.HasPrefix(x.name, name+".tar.gz.") {
			continue
		}
		path := filepath.Join(s.packed, filepath.FromSlash(x.name))
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if fmt.Sprintf("%x", sha256.Sum256(b)) != x.hash {
			return nil, fmt.Errorf("%s is not the file that %s lists; check it out again", path, sumsFile)
		}
		packed.Write(b)
	}
	where := filepath.Join(s.packed, name+".tar.gz")
	if packed.Len() == 0 {
		return nil, fmt.Errorf("%s: not in %s; run make testdata", where, sumsFile)
	}
	z, err := gzip.NewReader(&packed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if !fs.ValidPath(h.Name) || h.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%s: %q is no file below the data set", where, h.Name)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", where, h.Name, err)
		}
		files = append(files, file{h.Name, b})
	}
}
