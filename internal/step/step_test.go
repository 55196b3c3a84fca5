package step

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ck/internal/plan"
)

// Every kind of step and every realisation that the files of this package define has its row: one that was forgotten would be refused when a
// model that needs it opens, and is found here first.
func TestTableIsWhole(t *testing.T) {
	ops, kinds := map[string]bool{}, map[string]bool{}
	for _, r := range Table {
		ops[reflect.TypeOf(r.Op).Name()] = true
		for _, d := range r.Does {
			if d.Run == nil || d.Kind == nil || d.Kind.Name == "" {
				t.Errorf("%s: a realisation without a name or a routine", r.Op.Kind())
				continue
			}
			if kinds[d.Kind.Name] {
				t.Errorf("two realisations are called %s", d.Kind.Name)
			}
			kinds[d.Kind.Name] = true
			if d.Kind.Group == plan.Elementwise && d.Kind.Ops == 0 && d.Kind.Elements == nil {
				t.Errorf("%s: nobody says what it costs", d.Kind)
			}
			if d.Kind.Group != plan.Elementwise && d.Kind.Work == nil {
				t.Errorf("%s: nobody says what work it is", d.Kind)
			}
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.FuncDecl:
				if x.Name.Name == "Realise" {
					if name := x.Recv.List[0].Type.(*ast.Ident).Name; !ops[name] {
						t.Errorf("%s: %s has no row in Table", file, name)
					}
				}
			case *ast.CompositeLit:
				if s, ok := x.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Kind" {
					for _, e := range x.Elts {
						if kv, ok := e.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "Name" {
							if name := strings.Trim(kv.Value.(*ast.BasicLit).Value, `"`); !kinds[name] {
								t.Errorf("%s: %s has no row in Table", file, name)
							}
						}
					}
				}
			}
			return true
		})
	}
}
