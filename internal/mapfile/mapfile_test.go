package mapfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, []byte("bytes"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil || string(f.Data) != "bytes" {
		t.Fatalf("Open: %v, %v", f, err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if f, err := Open(path); err != nil || len(f.Data) != 0 || f.Close() != nil {
		t.Errorf("empty file: %v, %v", f, err)
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), "none") != 1 {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("directory: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(pipe); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("named pipe: %v", err)
	}
	if os.Geteuid() != 0 { // root reads everything
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("unreadable file: %v", err)
		}
	}
}

func TestGuardTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := 0
	read := func() error {
		for _, b := range f.Data {
			sum += int(b)
		}
		return fs.ErrInvalid
	}
	if err := f.Guard(read); err != fs.ErrInvalid {
		t.Errorf("whole file: %v, expected the function's own error", err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Guard(read); err == nil || !strings.Contains(err.Error(), "offset 0x1000") {
		t.Errorf("truncated file: %v, expected an error at offset 0x1000", err)
	}
}

func TestGuardPassesOtherPanics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, make([]byte, 10), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, fn := range []func() error{
		func() error { panic("ours") },
		func() error { var p *[100]int; _ = p[len(f.Data)]; p[3] = 1; return nil },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Guard swallowed a panic that is no fault of the mapping")
				}
			}()
			f.Guard(fn)
		}()
	}
}
