package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The committed assembly and its Go are what asm/_gen writes, which takes the offsets of operands from the packages' structs; no file is
// too big for the repository.
func TestAssemblyIsGenerated(t *testing.T) {
	out := t.TempDir()
	committed := map[string]bool{}
	for _, family := range []string{"attn", "dot", "elem", "quant", "mat", "roof"} {
		if err := os.Mkdir(filepath.Join(out, family), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []string{"*_amd64.s", "*_stubs_amd64.go"} {
			files, err := filepath.Glob(filepath.Join("../asm", family, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("family %s has no %s: %v", family, pattern, err)
			}
			for _, f := range files {
				committed[filepath.Join(family, filepath.Base(f))] = true
			}
		}
	}
	cmd := exec.Command("go", "run", ".", "-o", out)
	cmd.Dir = "../asm/_gen"
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	written, err := filepath.Glob(filepath.Join(out, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range written {
		name, _ := filepath.Rel(out, f)
		want, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if len(want) > 1<<20 {
			t.Errorf("asm/%s has %d bytes, more than 1 MiB", name, len(want))
		}
		if got, err := os.ReadFile(filepath.Join("../asm", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("asm/%s is not what asm/_gen writes (%v); run go run . in asm/_gen", name, err)
		}
		delete(committed, name)
	}
	for name := range committed {
		t.Errorf("asm/%s is not written by asm/_gen", name)
	}
}
