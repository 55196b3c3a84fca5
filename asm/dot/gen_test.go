//go:build amd64 && !noasm

package dot

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
)

// The generator's table of offsets: eight bytes per field, in this order.
func TestArgsOffsets(t *testing.T) {
	names := []string{"W", "WStep", "WFar", "X", "XStride", "D", "SD", "B", "Mp", "Y", "YStride", "YFar", "Groups", "Panels", "Cont",
		"Pf", "Acc", "Src", "Dst", "Slices", "Bias", "Add", "Values"}
	typ := reflect.TypeFor[Args]()
	if typ.NumField() != len(names) {
		t.Fatalf("Args has %d fields, the generator knows %d", typ.NumField(), len(names))
	}
	for i, n := range names {
		if f := typ.Field(i); f.Name != n || f.Offset != uintptr(8*i) {
			t.Errorf("field %d is %s at %d, the generator has %s at %d", i, f.Name, f.Offset, n, 8*i)
		}
	}
}

// The committed assembly is what the generator writes.
func TestGenerated(t *testing.T) {
	tmp := t.TempDir()
	if err := os.CopyFS(filepath.Join(tmp, "_gen"), os.DirFS("../_gen")); err != nil {
		t.Fatal(err)
	}
	for _, family := range []string{"dot", "roof"} {
		if err := os.Mkdir(filepath.Join(tmp, family), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "run", ".", "dot", "roof")
	cmd.Dir = filepath.Join(tmp, "_gen")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, family := range []string{"dot", "roof"} {
		files, err := filepath.Glob(filepath.Join(tmp, family, "*"))
		if err != nil || len(files) < 2 {
			t.Fatalf("%d files of family %s: %v", len(files), family, err)
		}
		for _, f := range files {
			want, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if len(want) > 1<<20 {
				t.Errorf("%s has %d bytes, more than 1 MiB", f, len(want))
			}
			name := filepath.Join("..", family, filepath.Base(f))
			if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not what asm/_gen writes (%v); run go run . in asm/_gen", name, err)
			}
		}
	}
}
