package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"ck/internal/isa"
	"ck/internal/quant"
)

// packedSamples are the layout, its version and the beginning of the SHA-256 of two panels of each type with
// panels: one that has all its rows, and one that lacks some, with a tail along K where blocks allow one.
var packedSamples = map[quant.Type]string{
	quant.F32:     "F32 1 cd6cda7dc0f51545",
	quant.F16:     "F16 1 0d0811bd6764cf30",
	quant.BF16:    "BF16 1 57597c0c5868333d",
	quant.Q8_0:    "Q8_0 1 8ab008ab38c42d54",
	quant.Q4_0:    "Q4_0 1 fd35542d70e5da73",
	quant.Q4_1:    "Q4_1 1 e0b390497794ff73",
	quant.Q5_0:    "Q5_0 1 c4c6848dcaf6e089",
	quant.Q5_1:    "Q5_1 1 aade8773bdd5439e",
	quant.Q4_K:    "Q4_K 1 12f686403277b7a8",
	quant.Q5_K:    "Q5_K 1 b363d38a82173ce0",
	quant.Q6_K:    "Q6_K 1 784f80210eb05218",
	quant.Q2_K:    "Q2_K 1 5c574a8b68cab34f",
	quant.MXFP4:   "MXFP4 1 b6181a3353b1fe33",
	quant.NVFP4:   "NVFP4 1 57245020604021b7",
	quant.IQ4_NL:  "Q8_0 1 bb6f9b452540e11e",
	quant.Q1_0:    "Q8_0 1 c2607dd2e0fd88d8",
	quant.Q2_0:    "Q8_0 1 c7645c1dfaa9e3bb",
	quant.Q3_K:    "Code4 1 b226921250df15c5",
	quant.IQ1_S:   "Code4 1 53384d4a56ca56f2",
	quant.IQ1_M:   "Code4 1 cf8e1c8d511cdd46",
	quant.IQ2_XXS: "Code4 1 2d4ec969a72b433c",
	quant.IQ2_XS:  "Code4 1 20c7b3c455491413",
	quant.IQ2_S:   "Code4 1 dd7c09ebaaaf5dee",
	quant.IQ3_XXS: "Code4 1 6a989a46ac46346b",
	quant.IQ3_S:   "Code4 1 dd023d95666bcea1",
	quant.IQ4_XS:  "Code4 1 4dd80418d7485769",
	quant.TQ1_0:   "Code4 1 42f2d1322913f8a0",
	quant.TQ2_0:   "Code4 1 aa815ce6e9e8e4a2",
}

// packedSample packs the sample of a type with one tier.
func packedSample(f *Format) string {
	const k = 256 * 9
	cols := k
	switch f.Type.BlockElems() {
	case 32:
		cols -= 32
	case 1:
		cols -= 5
	}
	if f.Type == quant.NVFP4 { // whose blocks are smaller than those of its layout
		cols -= 64
	}
	size := f.Type.RowBytes(cols)
	rng := rand.New(rand.NewPCG(20261123, uint64(f.Type)))
	raw := make([]byte, f.PanelRows*size)
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	dst, sum := make([]byte, f.PanelBytes(cols)), sha256.New()
	for _, rows := range []int{f.PanelRows, f.PanelRows - 3} {
		f.Pack(dst, cols, rows, func(r int) []byte { return raw[r*size : (r+1)*size] })
		sum.Write(dst)
	}
	name, version := f.Layout()
	return fmt.Sprintf("%s %d %s", name, version, hex.EncodeToString(sum.Sum(nil)[:8]))
}

// Files of panels stay good as long as the bytes of a layout do. Whoever changes them raises the version in
// layouts, then writes the new line here.
func TestPanelsKeepTheirBytes(t *testing.T) {
	for typ := range layouts {
		want, ok := packedSamples[typ]
		for _, tier := range isa.Available(isa.Detect()) {
			f := For(tier, isa.Detect()).Format(typ, false)
			if got := packedSample(f); got != want || !ok {
				t.Errorf("%v on tier %v: panels are now\n%q, and were\n%q\nraise the version in layouts if its bytes changed", typ, tier, got, want)
			}
		}
	}
	if len(packedSamples) != len(layouts) {
		t.Errorf("%d samples of %d types with panels", len(packedSamples), len(layouts))
	}
}
