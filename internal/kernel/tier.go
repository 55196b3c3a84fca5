package kernel

import (
	"ck/asm/attn"
	"ck/asm/dot"
	"ck/asm/elem"
	"ck/internal/isa"
)

// family is the routines that some features of the CPU allow. What a family lacks comes from the next one that a tier may use.
type family struct {
	needs isa.Features // that the tier must use, beside those of the families below
	dot   *dot.Set
	rest  *rest       // nil: of a family below
	ahead prefetching // nil: usual for all layouts
}

// rest is what there is beside the dot products, for each width of vectors.
type rest struct {
	pack dot.Packer
	fold func(*dot.Args)
	elem elem.Width
	attn attn.Width
}

// families is the table of all routines, best first. A new family is a row here; a new tier a row of internal/isa.
var families = [...]family{
	{needs: isa.FeatAVX512BF16, dot: &dot.AVX512BF16},
	{needs: isa.FeatAVX512VNNI, dot: &dot.VNNI},
	{needs: isa.FeatAVX512F, dot: &dot.AVX512, rest: &rest{dot.PackAVX512, dot.Fold, elem.W512, attn.W512}},
	{needs: isa.FeatAVXVNNI, dot: &dot.AVXVNNI},
	{needs: isa.FeatAVX2, dot: &dot.AVX2, rest: &rest{dot.PackAVX2, dot.Fold, elem.W256, attn.W256}, ahead: nearest},
	{dot: &dot.Go, rest: &rest{dot.PackGo, dot.GoFold, elem.Go, attn.Go}},
}

// routines are those of a tier on a machine: for each layout of panels the best kernels.
type routines struct {
	dot   [dot.Layouts]dot.Kernels
	ahead [dot.Layouts]int // bytes that they prefetch ahead
	rest
}

// routinesOf picks the routines of tier t on a machine with features f.
func routinesOf(t isa.Tier, f isa.Features) routines {
	var r routines
	var width *rest
	use := t.Use(f)
	for i := range families {
		fam := &families[i]
		if !use.Has(fam.needs) {
			continue
		}
		for l, k := range fam.dot.Of {
			if r.dot[l].Gemv == nil {
				r.dot[l], r.ahead[l] = k, fam.ahead.of(dot.Layout(l))
			}
		}
		if width == nil {
			width = fam.rest
		}
	}
	r.rest = *width
	return r
}
