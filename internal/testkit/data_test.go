package testkit

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// packedStore is a small packed set in a folder of its own: an archive a, in parts, and an archive b/c.
func packedStore(t *testing.T) (s *store, files []file) {
	t.Helper()
	dir := t.TempDir()
	noise := make([]byte, 2*partBytes+1)
	x := uint32(1)
	for i := range noise {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	files = []file{{"a/empty", nil}, {"a/noise", noise}, {"b/c/text", []byte("text\n")}}
	sums := append(writePacked(t, dir, "a", pack(t, files[:2])), writePacked(t, dir, "b/c", pack(t, files[2:]))...)
	writeSums(t, dir, sums)
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.sums) != 4 {
		t.Fatalf("%v: expected three parts of a and one of b/c", s.sums)
	}
	s.cache = t.TempDir()
	return s, files
}

func checkUnpacked(t *testing.T, s *store, files []file) {
	t.Helper()
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(s.cache, f.name))
		if err != nil || !bytes.Equal(b, f.data) {
			t.Errorf("%s: %d bytes, %v; packed were %d", f.name, len(b), err, len(f.data))
		}
	}
}

// What is unpacked is what was packed, archive by archive, however many processes do it at once; it is unpacked once.
func TestUnpack(t *testing.T) {
	s, files := packedStore(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			one := *s // as another process has it
			if err := one.unpack("a"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	checkUnpacked(t, s, files[:2])
	if _, err := os.Stat(filepath.Join(s.cache, "b")); err == nil {
		t.Error("b/c was unpacked, which nobody asked for")
	}
	if left, err := os.ReadDir(filepath.Join(s.cache, ".aside")); err != nil || len(left) > 0 {
		t.Errorf("%d files are left aside, %v", len(left), err)
	}
	if err := os.Remove(filepath.Join(s.packed, "a.tar.gz.1")); err != nil {
		t.Fatal(err)
	}
	if err := s.unpack("a"); err != nil {
		t.Errorf("what is there is unpacked again: %v", err)
	}
	if err := s.unpack("b/c"); err != nil {
		t.Error(err)
	}
	checkUnpacked(t, s, files)
}

// What somebody took from the cache, or cut there, is unpacked again.
func TestUnpackAgain(t *testing.T) {
	s, files := packedStore(t)
	for _, hurt := range []func(path string) error{
		os.Remove,
		func(path string) error { return os.Truncate(path, 5) },
		func(string) error { return os.Remove(filepath.Join(s.cache, ".unpacked", "a")) },
	} {
		if err := s.unpack("a"); err != nil {
			t.Fatal(err)
		}
		if err := hurt(filepath.Join(s.cache, "a/noise")); err != nil {
			t.Fatal(err)
		}
		if err := s.unpack("a"); err != nil {
			t.Fatal(err)
		}
		checkUnpacked(t, s, files[:2])
	}
}

// Damaged parts and lists are refused, with the file named, and leave nothing that looks unpacked.
func TestUnpackDamaged(t *testing.T) {
	for want, hurt := range map[string]func(s *store) error{
		"a.tar.gz.1 is not the file": func(s *store) error { return os.Truncate(filepath.Join(s.packed, "a.tar.gz.1"), 100) },
		"no such file":               func(s *store) error { return os.Remove(filepath.Join(s.packed, "a.tar.gz.0")) },
		"not in SHA256SUMS":          func(s *store) error { s.sums = s.sums[3:]; return nil },
		"unexpected EOF":             func(s *store) error { s.sums = s.sums[:2]; return nil },
	} {
		s, _ := packedStore(t)
		if err := hurt(s); err != nil {
			t.Fatal(err)
		}
		if err := s.unpack("a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q in it", err, want)
		}
		if _, err := os.Stat(filepath.Join(s.cache, "a")); err == nil {
			t.Errorf("%s: a is there", want)
		}
	}
	s, _ := packedStore(t)
	outside := pack(t, []file{{"../outside", []byte("x")}})
	s.sums = writePacked(t, s.packed, "a", outside)
	if err := s.unpack("a"); err == nil || !strings.Contains(err.Error(), "no file below the data set") {
		t.Errorf("a name outside of the set: %v", err)
	}
	if err := os.WriteFile(filepath.Join(s.packed, sumsFile), []byte("short  a\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(s.packed); err == nil || !strings.Contains(err.Error(), sumsFile) {
		t.Errorf("a list without hashes: %v", err)
	}
}

// Packing the same files gives the same bytes; other content has another cache.
func TestPackIsReproducible(t *testing.T) {
	a, files := packedStore(t)
	b, _ := packedStore(t)
	if !slices.Equal(a.sums, b.sums) {
		t.Errorf("%v and %v of the same files", a.sums, b.sums)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	one, err1 := a.cacheDir()
	two, err2 := b.cacheDir()
	files[2].data = []byte("other\n")
	b.sums = append(b.sums[:3:3], writePacked(t, b.packed, "b/c", pack(t, files[2:]))...)
	three, err3 := b.cacheDir()
	if err1 != nil || err2 != nil || err3 != nil || one != two || one == three {
		t.Errorf("caches %s, %s, other content %s; %v %v %v", one, two, three, err1, err2, err3)
	}
}

// Where the larger set is absent, a name comes from testdata: what travels is found, what stays is not; a folder has what travels of it.
// Without a folder for caches it is the same.
func TestWithoutTheLargerSet(t *testing.T) {
	t.Setenv("CK_TEST_DATA", "none")
	for _, cache := range []string{t.TempDir(), ""} {
		t.Setenv("XDG_CACHE_HOME", cache)
		if cache == "" {
			t.Setenv("HOME", "")
		}
		p, ok := Lookup(t, "models/qwen2/hf")
		if _, err := os.Stat(filepath.Join(p, "config.json")); !ok || err != nil {
			t.Errorf("models/qwen2/hf: %q, %v, %v", p, ok, err)
		}
		if p, ok := Lookup(t, "models/gemma3/hf"); ok {
			t.Errorf("models/gemma3/hf, which stays in the larger set: %s", p)
		}
		names, err := filepath.Glob(filepath.Join(Data(t, "topology/trees"), "*.tar.gz"))
		if err != nil || len(names) != 10 {
			t.Errorf("%d saved machines, %v; 10 travel", len(names), err)
		}
	}
	if n := Least(t, 49, 10); n != 10 {
		t.Errorf("at least %d files", n)
	}
	if s, err := LeftOut(); err != nil || !strings.Contains(s, "39 saved machines") || strings.Contains(s, "\n") {
		t.Errorf("left out: %q, %v", s, err)
	}
	passed := t.Run("absent", func(t *testing.T) {
		t.Cleanup(func() {
			if !t.Skipped() {
				t.Errorf("a test whose data is absent was not skipped")
			}
		})
		t.Setenv("CK_TEST_REQUIRE", "")
		Data(t, "models/gemma3/hf")
	})
	if !passed {
		t.Error("a test whose data is absent failed")
	}
}

// The larger set is taken whole: testdata adds nothing to it.
func TestLargerSet(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CK_TEST_DATA", dir)
	if err := os.MkdirAll(filepath.Join(dir, "models", "qwen2"), 0o777); err != nil {
		t.Fatal(err)
	}
	if p, ok := Lookup(t, "models/qwen2"); !ok || p != filepath.Join(dir, "models", "qwen2") {
		t.Errorf("%q, %v", p, ok)
	}
	if p, ok := Lookup(t, "models/qwen3"); ok {
		t.Errorf("%q is not from the larger set", p)
	}
	if s, err := LeftOut(); s != "" || err != nil || Least(t, 49, 10) != 49 {
		t.Errorf("left out %q, %v", s, err)
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"models/qwen2/hf/*", "models", true}, {"models/qwen2/*", "models/qwen2/hf", true}, {"models/qwen2/*", "models/qwen2/hf/config.json", true},
		{"models/qwen2/*", "models/qwen3", false}, {"topology/trees/dev-cxl.*", "topology/trees/dev-cxl.json", true},
		{"topology/trees/dev-cxl.*", "topology/trees/dev-dsa.json", false}, {"models/qwen2/*", "model", false},
	} {
		if got := covers(c.pattern, c.name); got != c.want {
			t.Errorf("covers(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
	if known("nonsense") || !known("text") || !known("models/no-such-model/hf") {
		t.Error("known: nonsense, or not text or models")
	}
}
