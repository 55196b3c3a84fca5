package quant

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// Every number of a type in type.go has its row, named as the constant is, with a decoder; without one the type would
// be unknown.
func TestEveryTypeHasItsRow(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "type.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		if typ, ok := v.Type.(*ast.Ident); !ok || typ.Name != "Type" {
			return true
		}
		found++
		name := v.Names[0].Name
		number, err := strconv.Atoi(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		if r := Type(number).row(); r.name != name || r.elems < 1 || r.bytes < 1 || r.decode == nil {
			t.Errorf("table has no whole row for %s, number %d", name, number)
		}
		return true
	})
	if found != rows() {
		t.Errorf("type.go has %d numbers, the table %d rows", found, rows())
	}
}

// rows is the number of types in the table.
func rows() int {
	n := 0
	for _, r := range table {
		if r.elems != 0 {
			n++
		}
	}
	return n
}
