package testkit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "pack testdata anew from the larger set (make testdata)")

const (
	mostBytes = 20 << 20 // of testdata in all
	partBytes = 1 << 20  // of one file
)

// collect reads the files of an archive from the larger set, by name.
func collect(t *testing.T, from string, a archive) (files []file) {
	t.Helper()
	seen := map[string]bool{}
	for _, pattern := range a.files {
		names, err := fs.Glob(os.DirFS(from), pattern)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, name := range names {
			info, err := os.Stat(filepath.Join(from, name))
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() || seen[name] {
				continue
			}
			b, err := os.ReadFile(filepath.Join(from, name))
			if err != nil {
				t.Fatal(err)
			}
			found, seen[name] = true, true
			files = append(files, file{name, b})
		}
		if !found && !strings.HasPrefix(pattern, "tokenizers/upstream/") { // not every vocabulary has tests upstream
			t.Errorf("archive %s: no file matches %s", a.name, pattern)
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files
}

// pack writes the files as an archive whose bytes depend on names and contents alone, given the Go release.
func pack(t *testing.T, files []file) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o444, Size: int64(len(f.data)), Format: tar.FormatUSTAR}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// writePacked writes an archive in parts and returns their names and sums.
func writePacked(t *testing.T, dir, name string, b []byte) (sums []sum) {
	t.Helper()
	for i := 0; i == 0 || len(b) > 0; i++ {
		n := min(len(b), partBytes)
		to := name + ".tar.gz"
		if i > 0 || n < len(b) {
			to += fmt.Sprintf(".%d", i)
		}
		at := filepath.Join(dir, filepath.FromSlash(to))
		if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, b[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sum{fmt.Sprintf("%x", sha256.Sum256(b[:n])), to})
		b = b[n:]
	}
	return sums
}

// writeSums writes the list, by name.
func writeSums(t *testing.T, dir string, sums []sum) {
	t.Helper()
	slices.SortFunc(sums, func(a, b sum) int { return strings.Compare(a.name, b.name) })
	list := ""
	for _, x := range sums {
		list += x.hash + "  " + x.name + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, sumsFile), []byte(list), 0o666); err != nil {
		t.Fatal(err)
	}
}

// packedFiles are the files of testdata but for its README and its list, with the bytes of all files together.
func packedFiles(t *testing.T, dir string) (names []string, bytes int64) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if bytes += info.Size(); info.Size() > partBytes {
			t.Errorf("testdata/%s has %d bytes, one file may have %d", name, info.Size(), partBytes)
		}
		if name != "README.md" && name != sumsFile {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names, bytes
}

// packAll makes testdata anew, but for its README.
func packAll(t *testing.T, from, dir string) {
	t.Helper()
	old, _ := packedFiles(t, dir)
	for _, name := range old {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var sums []sum
	for _, a := range archives {
		sums = append(sums, writePacked(t, dir, a.name, pack(t, collect(t, from, a)))...)
	}
	writeSums(t, dir, sums)
}

// testdata holds, file by file, what the table takes from the larger set; what the table says to stay there is counted right.
// With -update it is packed first.
func TestTestdataAgreesWithTheLargerSet(t *testing.T) {
	from, err := larger()
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case from == "" && Required("data"):
		t.Fatal("the larger set is absent, and CK_TEST_REQUIRE asks for it")
	case from == "":
		t.Skip("the larger set is absent: nothing to compare testdata with")
	}
	dir := filepath.Join(Root(t), "testdata")
	if *update {
		packAll(t, from, dir)
	}
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	travels := map[string]bool{}
	for _, a := range archives {
		got, err := s.read(a.name)
		if err != nil {
			t.Error(err)
			continue
		}
		want := collect(t, from, a)
		for _, f := range want {
			travels[f.name] = true
		}
		if !slices.EqualFunc(got, want, func(a, b file) bool { return a.name == b.name && bytes.Equal(a.data, b.data) }) {
			t.Errorf("testdata/%s.tar.gz differs from the larger set; run make testdata", a.name)
		}
	}
	for _, r := range stays {
		names, err := fs.Glob(os.DirFS(from), path.Join(r.folder, r.each))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(slices.DeleteFunc(names, func(n string) bool { return travels[n] })); n != r.count {
			t.Errorf("%d %s stay in the larger set, the table says %d", n, r.what, r.count)
		}
	}
}

// testdata holds the archives of the table and no other file, each whole, none above its limit; they have each file once.
func TestTestdata(t *testing.T) {
	dir := filepath.Join(Root(t), "testdata")
	names, size := packedFiles(t, dir)
	if size > mostBytes {
		t.Errorf("testdata has %d bytes, the limit is %d", size, mostBytes)
	}
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, x := range s.sums {
		listed = append(listed, x.name)
		if !slices.ContainsFunc(archives, func(a archive) bool {
			return x.name == a.name+".tar.gz" || strings.HasPrefix(x.name, a.name+".tar.gz.")
		}) {
			t.Errorf("testdata/%s belongs to no row of the table; run make testdata", x.name)
		}
	}
	slices.Sort(names)
	slices.Sort(listed)
	if !slices.Equal(names, listed) {
		t.Errorf("testdata has the files\n%v\n%s lists\n%v\nrun make testdata", names, sumsFile, listed)
	}
	owner := map[string]string{}
	for _, a := range archives {
		files, err := s.read(a.name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, f := range files {
			if owner[f.name] != "" {
				t.Errorf("%s is in the archives %s and %s", f.name, owner[f.name], a.name)
			}
			if owner[f.name] = a.name; !a.has(f.name) {
				t.Errorf("archive %s holds %s, which matches none of its patterns", a.name, f.name)
			}
		}
	}
}
