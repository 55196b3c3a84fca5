package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// within runs f, which must return soon.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: still waits", what)
	}
}

// openPty is both ends of a new terminal.
func openPty(t *testing.T) (pty, tty *os.File) {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { pty.Close() })
	if err := unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.IoctlRetInt(int(pty.Fd()), unix.TIOCGPTPEER)
	if err != nil {
		t.Skipf("no peer of the pseudo-terminal: %v", err)
	}
	tty = os.NewFile(uintptr(fd), "tty")
	t.Cleanup(func() { tty.Close() })
	return pty, tty
}

// A Read that waits returns when the context ends, whatever it reads; the next Reader of the file finds all that came.
func TestReaderEndsWithContext(t *testing.T) {
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	defer pw.Close()
	_, tty := openPty(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]*os.File{"pipe": pr, "terminal": tty} {
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(20*time.Millisecond, func() { cancel(ErrInterrupt) })
		within(t, what, func() {
			if n, err := Reader(ctx, f).Read(make([]byte, 8)); n != 0 || !errors.Is(err, ErrInterrupt) {
				t.Errorf("%s: %d bytes, %v; want ErrInterrupt", what, n, err)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(20*time.Millisecond, func() { cancel(ErrInterrupt) })
	within(t, "FIFO without a writer", func() {
		f, err := OpenReader(ctx, fifo)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if n, err := f.Read(make([]byte, 8)); n != 0 || !errors.Is(err, ErrInterrupt) {
			t.Errorf("FIFO: %d bytes, %v; want ErrInterrupt", n, err)
		}
	})
	if _, err := pw.WriteString("later"); err != nil {
		t.Fatal(err)
	}
	pw.Close()
	if b, err := io.ReadAll(Reader(context.Background(), pr)); string(b) != "later" || err != nil {
		t.Errorf("after the interrupt: %q, %v", b, err)
	}
	if n, err := Reader(ctx, pr).Read(make([]byte, 8)); n != 0 || !errors.Is(err, ErrInterrupt) {
		t.Errorf("a context that has ended: %d bytes, %v", n, err)
	}
}

// A FIFO is read to its end whenever its writer comes; a regular file at once.
func TestOpenReader(t *testing.T) {
	dir := t.TempDir()
	fifo, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "file")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.WriteFile(file, []byte("one two"), 0o600)); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(30 * time.Millisecond)
		w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteString("one ")
		time.Sleep(30 * time.Millisecond)
		w.WriteString("two")
		w.Close()
	}()
	for _, path := range []string{fifo, file} {
		within(t, path, func() {
			f, err := OpenReader(context.Background(), path)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if b, err := io.ReadAll(f); string(b) != "one two" || err != nil {
				t.Errorf("%s: %q, %v", path, b, err)
			}
		})
	}
	if _, err := OpenReader(context.Background(), filepath.Join(dir, "no")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if f, err := OpenReader(context.Background(), dir); err == nil {
		if _, err := f.Read(make([]byte, 1)); !errors.Is(err, unix.EISDIR) {
			t.Errorf("a folder: %v", err)
		}
		f.Close()
	}
}

// A time limit is a context's.
func TestReaderTimeLimit(t *testing.T) {
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	defer pw.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := Reader(ctx, pr).Read(make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the time limit", err)
	}
}
