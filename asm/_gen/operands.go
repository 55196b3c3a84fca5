package main

import (
	"errors"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// operands is the struct that kernels take the address of: its name and where its fields lie.
type operands struct {
	name    string
	offsets map[string]int
}

// at is the offset of a field.
func (o operands) at(field string) int {
	off, ok := o.offsets[field]
	if !ok {
		panic("no field " + field + " in " + o.name)
	}
	return off
}

// operandsOf reads struct typ of package family.
func operandsOf(family, typ string) operands {
	obj := scope(family).Lookup(typ)
	if obj == nil {
		panic("no type " + typ + " in asm/" + family)
	}
	s := obj.Type().Underlying().(*types.Struct)
	var fields []*types.Var
	for i := range s.NumFields() {
		fields = append(fields, s.Field(i))
	}
	o := operands{typ, map[string]int{}}
	for i, off := range types.SizesFor("gc", "amd64").Offsetsof(fields) {
		o.offsets[fields[i].Name()] = int(off)
	}
	return o
}

// constOf is the value of integer constant name of package family.
func constOf(family, name string) int {
	c, ok := scope(family).Lookup(name).(*types.Const)
	if !ok {
		panic("no constant " + name + " in asm/" + family)
	}
	v, _ := constant.Int64Val(c.Val())
	return int(v)
}

// scope is what the handwritten files of package family declare, as far as it can be told without other packages.
func scope(family string) *types.Scope {
	paths, err := filepath.Glob(filepath.Join("..", family, "*.go"))
	check(err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") || strings.Contains(p, "_stubs_") || strings.HasSuffix(p, "_noasm.go") {
			continue
		}
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		check(err)
		files = append(files, f)
	}
	conf := types.Config{IgnoreFuncBodies: true, Error: func(error) {}, Importer: none{}} // errors: names of generated files
	pkg, _ := conf.Check(family, fset, files, nil)
	return pkg.Scope()
}

// none is an importer that knows unsafe alone: no field of operands needs another package.
type none struct{}

func (none) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	return nil, errors.New(path + " is not read")
}
