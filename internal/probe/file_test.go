package probe

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func writeRandom(t *testing.T, dir string, n int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, n)
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	for i := range content {
		content[i] = byte(rng.Uint32())
	}
	path = filepath.Join(dir, "file")
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path, content
}

// Every way reads the bytes of the file, the tail that is no multiple of 4096 bytes included.
func TestFileWays(t *testing.T) {
	for _, size := range []int{1, 4096, 5<<20 + 4095} {
		path, content := writeRandom(t, t.TempDir(), size)
		r, err := openFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		read := 0
		for _, w := range r.possible(fileWays()) {
			if w.read == nil {
				t.Logf("%s: %s", w.Name(), w.Note)
				continue
			}
			got := make([]byte, size)
			n, err := w.read(r, int64(size), func(off int64, b []byte) bool {
				copy(got[off:], b)
				return true
			})
			if err != nil || n != int64(size) || sha256.Sum256(got) != sha256.Sum256(content) {
				t.Errorf("%s, %d bytes: %d, %v", w.Name(), size, n, err)
			}
			if n, err := w.read(r, int64(size)+1, func(int64, []byte) bool { return true }); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, beyond the end of %d bytes: %d, %v", w.Name(), size, n, err)
			}
			read++
		}
		if read < 4 {
			t.Errorf("%d ways", read)
		}
	}
}

// A way that the system refuses is one row with the reason; the others are measured.
func TestFileRefused(t *testing.T) {
	path, _ := writeRandom(t, t.TempDir(), 100000)
	r, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if r.ring != nil {
		r.ring.Close()
	}
	r.ring, r.ringErr = nil, errors.New("refused by a sandbox")
	rows := r.possible(fileWays())
	if err := r.rounds(context.Background(), rows, 2, func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	rings := 0
	for _, w := range rows {
		if w.Way == "io_uring" {
			rings++
			if w.Name() != "io_uring" || w.Note != "refused by a sandbox" || len(w.rates) > 0 {
				t.Errorf("%+v", w)
			}
		} else if len(w.rates) != 2 && !(w.Cache == "past" && strings.Contains(w.Note, "O_DIRECT")) {
			t.Errorf("%s: %d samples, %s", w.Name(), len(w.rates), w.Note)
		}
	}
	if rings != 1 {
		t.Errorf("%d rows of io_uring", rings)
	}
	r.direct.Close()
	r.direct = nil
	for _, w := range r.possible(fileWays()) {
		if w.Cache == "past" && (w.read != nil || w.Note == "") {
			t.Errorf("without O_DIRECT: %+v", w)
		}
	}
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if err := r.rounds(stopped, rows, 2, func(int64, int64) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// Pages that somebody has mapped stay in the cache, and files of tmpfs have no other place: both are said.
func TestFileNotes(t *testing.T) {
	path, content := writeRandom(t, t.TempDir(), 1<<20)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	if !bytes.Equal(mapped, content) { // reads all pages
		t.Fatal("not the file")
	}
	r, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	w := fileWays()[0]
	if err := r.sample(w, r.size); err != nil || !r.memory && w.Note != "100 % of it stays in the page cache" {
		t.Errorf("%q, %v", w.Note, err)
	}
	r.memory = true
	if err := r.sample(w, r.size); err != nil || !strings.Contains(w.Note, "is memory") {
		t.Errorf("%q, %v", w.Note, err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	for _, w := range r.possible(fileWays()) {
		if w.read == nil {
			continue
		}
		if err := r.sample(w, r.size); err == nil || !strings.Contains(err.Error(), "became shorter while it was read") {
			t.Errorf("%s: %v", w.Name(), err)
		}
	}
}
