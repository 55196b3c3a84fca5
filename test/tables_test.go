package test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// tables are those to which what is new is added as a row. tests are the tests of the packages pkg that say which row is missing, where the compiler does
// not.
var tables = []struct{ file, table, pkg, tests string }{
	{"internal/isa/isa.go", "tiers", "./internal/isa", "^TestEveryTierHasItsRow$"},
	{"internal/kernel/tier.go", "families", "./internal/kernel", "^Test(EveryTierHasItsFamily|FamiliesOfTier)$"},
	{"internal/kernel/table.go", "layouts", "./internal/kernel", "^TestEveryLayoutHasItsRow$"},
	{"internal/kernel/table.go", "sums", "./internal/kernel", "^TestEveryLayoutHasItsRow$"},
	{"internal/quant/table.go", "table", "./internal/quant", "^TestEveryTypeHasItsRow$"},
	{"internal/step/step.go", "Table", "./internal/step", "^TestTableIsWhole$"},
	{"internal/arch/arch.go", "architectures", "./test", "^TestReference"},
	{"internal/arch/keys.go", "keys", "./internal/arch ./internal/hf", "Default|Gemma2Keys|RopeScaling"},
	{"internal/arch/keys.go", "words", "./internal/arch", "."},
	{"internal/hf/class.go", "classes", "./internal/hf", "."},
	{"internal/cost/constants.go", "cycles", "./internal/cost", "^TestEveryTierHasItsCycle$"},
}

// TestRowsOfTables removes each row of each table and wants the build or a test to say so, with the row's name.
func TestRowsOfTables(t *testing.T) {
	if os.Getenv("CK_TEST_LARGE") == "" {
		t.Skip("builds packages; CK_TEST_LARGE=1 runs it")
	}
	root := testkit.Root(t)
	for _, x := range tables {
		src, err := os.ReadFile(filepath.Join(root, x.file))
		if err != nil {
			t.Fatal(err)
		}
		rows := rowsOf(t, x.file, src, x.table)
		if len(rows) == 0 {
			t.Errorf("%s has no table %s", x.file, x.table)
		}
		for _, r := range rows {
			t.Run(x.table+"/"+r.name, func(t *testing.T) {
				without := string(src[:r.from]) + string(src[r.to:])
				out, err := overlaid(t, root, x.file, without, append([]string{"test", "-short", "-count=1", "-run", x.tests}, strings.Fields(x.pkg)...)...)
				switch {
				case err == nil:
					t.Errorf("nobody missed it:\n%s", out)
				case !strings.Contains(strings.ToLower(out), strings.ToLower(r.name)):
					t.Errorf("nobody names %s:\n%.2000s", r.name, out)
				}
			})
		}
	}
}

// row is a row of a table: its bytes in the file with the comma, and a word that a message about it must hold.
type row struct {
	name     string
	from, to int
}

// rowsOf finds the rows of the composite literal that a variable of a file is.
func rowsOf(t *testing.T, file string, src []byte, table string) (rows []row) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || v.Names[0].Name != table || len(v.Values) != 1 {
			return true
		}
		for _, e := range v.Values[0].(*ast.CompositeLit).Elts {
			to := at(e.End())
			if src[to] == ',' {
				to++
			}
			rows = append(rows, row{nameOf(e), at(e.Pos()), to})
		}
		return false
	})
	return rows
}

// nameOf is the first string or the last part of the first identifier with a name of its own in a row: its key, or the value of its first field.
func nameOf(n ast.Node) (name string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if name != "" {
			return false
		}
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if field, ok := n.Key.(*ast.Ident); ok && slices.Contains([]string{"Name", "Config", "dot"}, field.Name) {
				name = nameOf(n.Value)
				return false
			} else if ok && field.Name == "needs" {
				return false
			}
		case *ast.SelectorExpr:
			name = n.Sel.Name
		case *ast.BasicLit:
			name = strings.Trim(n.Value, `"`)
		case *ast.Ident:
			name = n.Name
		}
		return name == ""
	})
	return name
}

// overlaid runs the go command in the tree with one file replaced.
func overlaid(t *testing.T, root, file, text string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	mutant, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	j, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, file): mutant}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{mutant: []byte(text), overlay: j} {
		if err := os.WriteFile(name, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", append([]string{args[0], "-overlay", overlay}, args[1:]...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}
