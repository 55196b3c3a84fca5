package test

import (
	"bytes"
	"encoding/binary"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// spoil writes v as an element of an F32 tensor of a file.
func spoil(t *testing.T, path, tensor string, at int, v float32) {
	t.Helper()
	m, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	x := m.Tensor(tensor)
	offset := x.Offset + 4*int64(at)
	m.Close()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)), offset); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Weights that are not finite, and arithmetic that overflows, end every program with one line that names the cause, code 3 or 5, and
// without a word of text, a table, or a base.
func TestCommandsNotFinite(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("ba be bi bo bu. ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, tensor string
		at           int
		v            float32
		code         int
		want         string
	}{
		{"a matrix", "blk.1.ffn_up.weight", 64*3 + 5, float32(math.NaN()), 3, "tensor blk.1.ffn_up.weight: row 3, element 5 is NaN"},
		{"a norm", "blk.0.attn_norm.weight", 7, float32(math.Inf(-1)), 3, "tensor blk.0.attn_norm.weight: element 7 is an infinity"},
		{"overflow", "blk.0.attn_norm.weight", 7, 3e38, 5, "position "},
	} {
		path := smallModel(t, quant.F32, 2, 64, 64, 600)
		spoil(t, path, c.tensor, c.at, c.v)
		for _, args := range [][]string{
			{"ckrun", "-m", path, "--raw", "-n", "5", "ba be"},
			{"ckrun", "-m", path, "--raw", "-n", "0", "--logits", filepath.Join(t.TempDir(), "logits"), "ba be"},
			{"ckrun", "-m", path, "--raw", "-n", "5", "--temp", "0", "--ignore-eos", "ba be"},
			{"ckbench", "quality", "-m", path, "-f", text, "-c", "16", "--save", filepath.Join(t.TempDir(), "base")},
		} {
			cmd := exec.Command(program(t, args[0]), args[1:]...)
			var out, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &stderr
			err := cmd.Run()
			line := stderr.String()
			if cmd.ProcessState.ExitCode() != c.code || out.Len() > 0 || strings.Count(line, "\n") != 1 || !strings.Contains(line, c.want) || !strings.Contains(line, path) {
				t.Errorf("%s, %s: %v, stdout %q, stderr %q; expected code %d and %q", c.name, strings.Join(args, " "), err, out.String(), line, c.code, c.want)
			}
			for i, a := range args {
				if a == "--save" || a == "--logits" {
					if _, err := os.Stat(args[i+1]); err == nil {
						t.Errorf("%s: %s was left behind", c.name, args[i+1])
					}
				}
			}
		}
	}
}

// A getter of metadata says what is wrong by its third result: no caller drops it.
func TestNobodyDropsTypeErrors(t *testing.T) {
	getters := []string{"String", "Bool", "Int", "Float", "Ints", "Float32s", "Bools", "Strings"}
	root, seen := testkit.Root(t), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || len(a.Lhs) != 3 || len(a.Rhs) != 1 {
				return true
			}
			call, ok := a.Rhs[0].(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(getters, sel.Sel.Name) {
				return true
			}
			seen++
			if id, ok := a.Lhs[2].(*ast.Ident); ok && id.Name == "_" {
				t.Errorf("%s: the error of %s is dropped", set.Position(a.Pos()), sel.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 20 {
		t.Errorf("%d getters seen (%v)", seen, err)
	}
}
