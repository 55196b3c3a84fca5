// Package gather saves what a survey of a machine reads, as a tree that shows the same survey elsewhere, with nothing in it that tells whose
// machine it is.
//
// A Recorder keeps the files that topo.Inspect opened, and no others; Archive lays them out and redacts them; Write packs them.
package gather

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"

	"ck/internal/topo"
)

// A Recorder is a file system that keeps what is read through it: the one list of the files that a survey needs. What was read once does
// not change any more.
type Recorder struct {
	fsys  fs.FS
	files map[string]*kept
	dirs  map[string][]fs.DirEntry // that were listed
	links map[string]string        // that were read
	seen  map[string]fs.FileMode   // that were asked whether they are there
}

// kept is a file's content or the error of reading it.
type kept struct {
	data []byte
	err  error
}

// NewRecorder keeps what is read from fsys.
func NewRecorder(fsys fs.FS) *Recorder {
	return &Recorder{fsys, map[string]*kept{}, map[string][]fs.DirEntry{}, map[string]string{}, map[string]fs.FileMode{}}
}

// Record surveys the machine through the Recorder; a live one twice, since a saved tree answers from files what the kernel tells a process
// about itself.
func (r *Recorder) Record(live bool) error {
	if live {
		if _, err := topo.Inspect(r, true); err != nil {
			return err
		}
	}
	_, err := topo.Inspect(r, false)
	return err
}

// Open gives a kept file, or a folder.
func (r *Recorder) Open(name string) (fs.File, error) {
	if k := r.files[name]; k != nil {
		return k.open(name)
	}
	f, err := r.fsys.Open(name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.files[name] = &kept{err: err}
		}
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		return &recordedDir{f, r, name}, nil
	}
	defer f.Close()
	k := &kept{err: err}
	if err == nil {
		var data []byte
		data, k.err = io.ReadAll(io.LimitReader(f, maxFile+1))
		k.data = bytes.Clone(data) // most files are a few bytes, and there may be 100,000 of them
	}
	r.files[name] = k
	return k.open(name)
}

// open is an open file of what was kept. An error of reading comes at the first read, as it did before.
func (k *kept) open(name string) (fs.File, error) {
	var pe *fs.PathError
	if errors.As(k.err, &pe) && pe.Op != "read" {
		return nil, k.err
	}
	return &keptFile{*bytes.NewReader(k.data), name, k}, nil
}

type keptFile struct {
	bytes.Reader
	name string
	k    *kept
}

func (f *keptFile) Close() error { return nil }
func (f *keptFile) Read(b []byte) (int, error) {
	if f.k.err != nil {
		return 0, f.k.err
	}
	return f.Reader.Read(b)
}
func (f *keptFile) Stat() (fs.FileInfo, error) { return keptInfo{f}, nil }

type keptInfo struct{ f *keptFile }

func (i keptInfo) Name() string       { return path.Base(i.f.name) }
func (i keptInfo) Size() int64        { return int64(len(i.f.k.data)) }
func (i keptInfo) Mode() fs.FileMode  { return 0o444 }
func (i keptInfo) ModTime() time.Time { return time.Time{} }
func (i keptInfo) IsDir() bool        { return false }
func (i keptInfo) Sys() any           { return nil }

// recordedDir is an open folder that notices being listed.
type recordedDir struct {
	fs.File
	r    *Recorder
	name string
}

func (d *recordedDir) ReadDir(n int) ([]fs.DirEntry, error) {
	l, ok := d.File.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: errors.ErrUnsupported}
	}
	es, err := l.ReadDir(n)
	d.r.dirs[d.name] = append(d.r.dirs[d.name], es...)
	return es, err
}

func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	es, err := fs.ReadDir(r.fsys, name)
	if err == nil {
		r.dirs[name] = es
	}
	return es, err
}

func (r *Recorder) ReadLink(name string) (string, error) {
	to, err := fs.ReadLink(r.fsys, name)
	if err == nil {
		r.links[name] = to
	}
	return to, err
}

func (r *Recorder) Stat(name string) (fs.FileInfo, error) {
	st, err := fs.Stat(r.fsys, name)
	if err == nil {
		r.seen[name] = st.Mode().Type()
	}
	return st, err
}

func (r *Recorder) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(r.fsys, name) }
