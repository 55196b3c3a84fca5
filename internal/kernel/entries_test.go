package kernel

import (
	"testing"

	"ck/asm/dot"
	"ck/internal/quant"
)

// Every layout is what some type's panels have, every type that can be rewritten has a layout, and every layout of integers says which sums
// its kernels read. Without its row a type would be decoded to float32: right, and slow in silence.
func TestEveryLayoutHasItsRow(t *testing.T) {
	names := map[string]quant.Type{}
	for n := range quant.Types {
		if typ := quant.Type(n); typ.Known() {
			names[typ.String()] = typ
		}
	}
	for l := range dot.Layouts {
		typ, own := names[l.String()]
		if row, ok := layouts[typ]; own && (!ok || row.layout != l) {
			t.Errorf("layouts has no row for %v, though asm/dot has panels of it", typ)
		}
		if float := l == dot.F32 || l == dot.F16 || l == dot.BF16; float == (sums[l] != 0) {
			t.Errorf("layout %v: sums %v", l, sums[l])
		}
		if dot.Go.Of[l].Gemv == nil {
			t.Errorf("layout %v has no definition in dot.Go", l)
		}
	}
	for name, typ := range names {
		if _, ok := layouts[typ]; !ok && (quant.CodeValues(typ) != nil || becomesQ8(typ)) {
			t.Errorf("layouts has no row for %s, whose blocks quant rewrites", name)
		}
	}
}

// becomesQ8 reports whether quant rewrites blocks of a type as Q8_0.
func becomesQ8(typ quant.Type) (yes bool) {
	defer func() { yes = recover() == nil }()
	quant.ToQ8_0(typ, nil, nil)
	return
}
