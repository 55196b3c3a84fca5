package kernel

import (
	"reflect"
	"testing"

	"ck/asm/dot"
	"ck/internal/isa"
)

func attnOf(t isa.Tier) AttnTable {
	r := routinesOf(t, 0)
	return AttnTable{r.attn, r.elem}
}

func elemOf(t isa.Tier) ElemTable { return ElemTable{routinesOf(t, 0).elem} }

// Every tier that is not reserved has a family whose features it needs and no tier below all of whose routines are the same; every family is
// reached by a tier.
func TestEveryTierHasItsFamily(t *testing.T) {
	if err := isa.Check(isa.AVX2, ^isa.Features(0)); err != nil {
		t.Skip(err)
	}
	if families[len(families)-1].needs != 0 {
		t.Fatal("no family of tier go at the end: nothing to fall back on")
	}
	first := map[*dot.Set]bool{}
	for _, tier := range isa.Tiers() {
		if tier.Reserved() {
			continue
		}
		for _, f := range []isa.Features{0, ^isa.Features(0)} {
			use := tier.Use(f)
			for i := range families {
				if use.Has(families[i].needs) {
					if f == 0 && first[families[i].dot] {
						t.Errorf("tier %v has no family of its own", tier)
					}
					first[families[i].dot] = true
					break
				}
			}
			if r := routinesOf(tier, f); r.dot[dot.Q8_0].Gemv == nil || r.fold == nil {
				t.Errorf("tier %v lacks routines", tier)
			}
		}
	}
	for _, f := range families {
		if !first[f.dot] {
			t.Errorf("the family that needs %v is of no tier", f.needs)
		}
	}
}

// A tier mixes no routines that its CPU may lack: a family below the first needs features that the tier needs too.
func TestFamiliesOfTier(t *testing.T) {
	if err := isa.Check(isa.AVX2, ^isa.Features(0)); err != nil {
		t.Skip(err)
	}
	want := map[isa.Tier][]*dot.Set{
		isa.Go:      {&dot.Go},
		isa.AVX2:    {&dot.AVX2, &dot.Go},
		isa.AVXVNNI: {&dot.AVXVNNI, &dot.AVX2, &dot.Go},
		isa.AVX512:  {&dot.AVX512, &dot.AVX2, &dot.Go},
		isa.VNNI:    {&dot.VNNI, &dot.AVX512, &dot.AVX2, &dot.Go},
	}
	for tier, sets := range want {
		var got []*dot.Set
		for i := range families {
			if tier.Use(0).Has(families[i].needs) {
				got = append(got, families[i].dot)
			}
		}
		if len(got) != len(sets) {
			t.Errorf("tier %v: %d families, want %d", tier, len(got), len(sets))
		}
		for i := range min(len(got), len(sets)) {
			if got[i] != sets[i] {
				t.Errorf("tier %v: family %d is another", tier, i)
			}
		}
	}
	at := func(s *dot.Kernels) uintptr { return reflect.ValueOf(s.Gemv).Pointer() }
	for tier, f := range map[isa.Tier]isa.Features{isa.VNNI: isa.FeatAVX512BF16, isa.AVX512: 0} {
		r := routinesOf(tier, isa.FeatAVX512BF16)
		if with := at(&r.dot[dot.BF16]) == at(&dot.AVX512BF16.Of[dot.BF16]); with != (f != 0) {
			t.Errorf("tier %v on a CPU with AVX-512 BF16 takes the products of dot.AVX512BF16: %v", tier, with)
		}
	}
}
