// Command gen writes the generated assembly of ck: for each family (dot, attn, elem, quant, mat, roof) .s files with their Go stubs and tables.
//
// Run it in this folder: go run . [-o dir] [family...]. It is a module of its own, so that nothing it needs reaches users. All kernels
// take one argument, the address of a struct; where its fields lie is read from the package that the kernels are for.
//
// How to read it: a family has a file that says which kernels there are (dot256.go, dot512.go, pack.go, attn.go, elem.go, mat.go, roof.go);
// files behind it by name hold the parts of a kernel. layout.go says where the bytes of integer layouts lie, emit.go writes files,
// vec.go writes code that both vector widths share.
package main

import (
	"flag"
	"slices"
)

// families names the files of each family, in the order in which they are written.
var families = []struct {
	name  string
	files []func() *gen
}{
	{"dot", []func() *gen{
		func() *gen { return dot256(avx2) },
		func() *gen { return dot256(avxvnni) },
		panels512, tiles512, dotFloat512,
		func() *gen { return packs(false) },
		func() *gen { return packs(true) },
	}},
	{"attn", []func() *gen{
		func() *gen { return attn(false) },
		func() *gen { return attn(true) },
	}},
	{"elem", []func() *gen{
		func() *gen { return elem(false) },
		func() *gen { return elem(true) },
	}},
	{"quant", []func() *gen{
		func() *gen { return quantizers(false) },
		func() *gen { return quantizers(true) },
	}},
	{"mat", []func() *gen{
		func() *gen { return mats(false) },
		func() *gen { return mats(true) },
	}},
	{"roof", []func() *gen{roofs}},
}

func main() {
	root := flag.String("o", "..", "the folder that holds the families' folders")
	flag.Parse()
	for _, f := range families {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), f.name) {
			continue
		}
		for _, file := range f.files {
			file().write(*root)
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
