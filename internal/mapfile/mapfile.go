// Package mapfile maps files into memory, read-only and shared with every other process that maps them.
//
// The bytes are never copied into the Go heap. A file that is truncated while it is mapped faults (SIGBUS) where its pages are
// touched; Guard turns such a fault into an error.
package mapfile

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"syscall"
	"unsafe"
)

// File is a mapped file. Data is nil for a file of no bytes and after Close.
type File struct {
	Path string
	Data []byte
}

// Open maps the regular file at path. A missing file and missing permission keep their fs errors (errors.Is).
func Open(path string) (*File, error) {
	// Looked at before it is opened: opening a named pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, plain(err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s: is a directory, not a file", path)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is not a regular file, and only such can be mapped", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, plain(err)
	}
	size := info.Size()
	if size == 0 {
		return &File{Path: path}, nil
	}
	if size > math.MaxInt {
		return nil, fmt.Errorf("%s: %d bytes are more than this machine can address", path, size)
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: map of %d bytes: %w", path, size, err)
	}
	return &File{Path: path, Data: data}, nil
}

// plain words an error of os as "path: reason".
func plain(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return fmt.Errorf("%s: %w", e.Path, e.Err)
	}
	return err
}

// Close unmaps the file. Slices of Data must not be touched afterwards.
func (f *File) Close() error {
	if f.Data == nil {
		return nil
	}
	err := syscall.Munmap(f.Data)
	f.Data = nil
	return err
}

// Contains reports whether addr lies in the mapping.
func (f *File) Contains(addr uintptr) bool {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(f.Data)))
	return f.Data != nil && addr >= p && addr-p < uintptr(len(f.Data))
}

// Guard runs fn, which reads Data on the calling goroutine, and returns its error. A page of the mapping that cannot be read,
// since the file became shorter or its medium failed, ends fn and is returned as an error too.
func (f *File) Guard(fn func() error) (err error) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(was)
		switch r := recover().(type) {
		case nil:
		case interface {
			error
			Addr() uintptr
		}:
			if !f.Contains(r.Addr()) {
				panic(r)
			}
			at := r.Addr() - uintptr(unsafe.Pointer(unsafe.SliceData(f.Data)))
			err = fmt.Errorf("%s: offset 0x%x: cannot be read although the file had %d bytes when it was opened; was it truncated?", f.Path, at, len(f.Data))
		default:
			panic(r)
		}
	}()
	return fn()
}
