package main

import "fmt"

// 256-bit kernels of package dot, for tiers avx2 (VPMADDUBSW) and avxvnni (VEX VPDPBUSD). They use Y0..Y15 and VEX encodings
// only. Lane by lane the integers are exact and the float instructions are those of the 512-bit kernels, in their order, so
// both give the same bits.
//
// An integer kernel is one text (int256) for three values: a layout (layout.go), a way to load its weights as bytes (load256) and a
// way to sum products (dots256). It serves 1 to 3 activation rows of one panel, a panel being two registers wide: with 2 integer and
// 2 float accumulators per row, three rows fill the register file; where the integers need more, the floats lie in Acc. Weights of 4, 5
// and 6 bits are taken apart in registers, low and high nibbles in turns, or read from panels that were unpacked before. Q8_0 without
// VNNI has a kernel of its own, signed256. Code4's weights are looked up in a table that stays in a register: with VNNI they are biased
// by 128, as Q8_0's, and so are the unpacked ones; without it they are biased by 32 and treated like Q6_K's if all values allow it, else
// signed (bias256). Q2_K's sum over a superblock is less than 2^24: it is added up in integers, which float32 holds as exactly as the
// chain that the package prescribes, and unpacking multiplies the weights by their scales (at most 45).

// tier256 is a tier of 256-bit kernels.
type tier256 struct {
	name, set, doc string
	vnni           bool
}

var (
	avx2    = tier256{"avx2", "AVX2", "is the set of kernels that need AVX2, FMA and F16C.", false}
	avxvnni = tier256{"avxvnni", "AVXVNNI", "is the set of kernels that need the VEX form of VNNI as well; floats are AVX2's.", true}
)

// Panels of the most rows that are multiplied straight from the packed form: six rows of Q5_K and Q6_K are 1.2 to 1.4 times as fast with
// VNNI, twelve equal; without VNNI four rows are 1.3 times as fast, six about equal (Q4_0, Q4_K: 1.6 and 1.4 times).
const few256 = 6

// weights256 is a layout as kernels of a tier read it.
type weights256 struct {
	layout
	most   int  // the largest weight, or its absolute value
	signed bool // else weights are at least 0
	bias   int  // what is added to the values of codes
	folded bool // weights are multiplied by their scales, so that one sum runs through a group
	load   load256
}

// newWeights256 is a layout as the tier reads its packed form.
func newWeights256(l layout, vnni bool) *weights256 {
	c := codings256[l.coding]
	w := &weights256{layout: l, most: c.most, signed: l.coding == codes, load: c.load}
	if l.coding == codes && (vnni || l.codeBias() < 128) {
		return w.biased(l.codeBias())
	}
	return w
}

// codings256 is the largest weight of a coding and how its weights become bytes.
var codings256 = map[coding]struct {
	most int
	load load256
}{
	whole:   {255, loadWhole},
	nibbles: {15, loadNibbles},
	fives:   {31, loadFives},
	sixes:   {63, loadSixes},
	twos:    {3, loadTwos},
	codes:   {127, loadCodes},
}

// biased is codes with a bias that makes their values unsigned: 32 for those of -32..31, or 128.
func (b *weights256) biased(bias int) *weights256 {
	c := *b
	c.bias, c.most, c.signed = bias, 2*bias-1, false
	return &c
}

// unpacked is how kernels read what unpack256 writes.
func (b *weights256) unpacked() *weights256 {
	u := *b
	u.layout, u.load = b.layout.unpacked(), loadWhole
	if u.scaling == perSubNibbles {
		u.folded, u.most = true, 3*15
	}
	return &u
}

// dot256 writes the kernels of a tier.
func dot256(t tier256) *gen {
	e := newGen("dot", "dot_"+t.name, "Args")
	consts256(e)
	var set []kernelSet
	for _, l := range layouts {
		set = append(set, t.kernels(e, newWeights256(l, t.vnni)))
	}
	if !t.vnni {
		for _, l := range floats256 {
			for rows := 1; rows <= 3; rows++ {
				for _, loop := range []bool{true, false} {
					newFloat256(e, l, rows, loop).emit()
				}
			}
			set = append(set, kernelSet{layout: l.name, gemv: t.name + "Gemv" + l.name, small: names(t.name+"Small%d"+l.name, 2, 3),
				gemm: names(t.name+"Gemm%d"+l.name, 1, 3), tile: 1, streams: l.streams})
		}
	}
	e.set(t.set, t.doc, set)
	return e
}

// kernels writes the kernels of a layout. Unpacked panels of 4 bits are 10 % faster without VNNI, with it 3 % less what the unpacking
// takes: not worth it. Q5_0 unpacked is like Q8_0 for VNNI.
func (t tier256) kernels(e *gen, b *weights256) kernelSet {
	set := kernelSet{layout: b.name, gemv: t.name + "Gemv" + b.name, small: names(t.name+"Small%d"+b.name, 2, 3), tile: 1, streams: !t.vnni}
	signed := b.coding == whole && !t.vnni
	for rows := 1; rows <= 3; rows++ {
		if signed {
			newSigned256(e, b, rows, true).emit(t.name)
		} else {
			newInt256(e, b, t.vnni, rows, true).emit(t.name)
		}
	}
	g := b
	if b.packed() && !(t.vnni && b.coding == nibbles) {
		g, set.few = b.unpacked(), few256
		set.unpack, set.unpackedBytes = avx2.name+"Unpack"+b.name, g.bytes()
	}
	most := 3
	if signed || t.vnni && g.folded {
		most = 6 // these need no registers for float accumulators
	}
	set.gemm = names(t.name+"Gemm%d"+b.name, 1, most)
	switch {
	case t.vnni && b.name == "Q5_0":
		set.gemm = names(t.name+"Gemm%dQ8_0", 1, most)
	case signed:
		for rows := 1; rows <= most; rows++ {
			newSigned256(e, g, rows, false).emit(t.name)
		}
	default:
		for rows := 1; rows <= most; rows++ {
			newInt256(e, g, t.vnni, rows, false).emit(t.name)
		}
	}
	if b.packed() && !t.vnni || b.coding == codes { // with VNNI the bytes of codes have another bias
		set.unpack = t.name + "Unpack" + b.name
		unpack256(e, b, set.unpack)
	}
	return set
}

// consts256 writes the constants: 32 bytes each, named by their repeated hexadecimal pattern.
func consts256(e *gen) {
	e.line("")
	for _, c := range []struct {
		name string
		v    uint64
	}{
		{"c03", 0x0303030303030303}, {"c0f", 0x0f0f0f0f0f0f0f0f}, {"c10", 0x1010101010101010}, {"c20", 0x2020202020202020},
		{"c30", 0x3030303030303030}, {"c80", 0x8080808080808080}, {"cc0", 0xc0c0c0c0c0c0c0c0},
		{miniBias, 0x3000000030000000}, {"c0001", 0x0001000100010001}, {"cffff0000", 0xffff0000ffff0000},
		{"c3d000000", 0x3d0000003d000000}, // 1/32
	} {
		for i := range 4 {
			e.datum(c.name, 8*i, 8, fmt.Sprintf("%#x", c.v))
		}
		e.global(c.name, 32)
	}
	// Shuffles that take bytes 8h..8h+7 of 16 to the low byte of 32-bit words, or of both their halves.
	for h := range 2 {
		for n, name := range []string{"once", "twice"} {
			name = fmt.Sprint(name, h)
			for i := range 8 {
				b := 8*h + i
				e.datum(name, 4*i, 4, fmt.Sprintf("%#x", []int{0x80808000 | b, 0x80008000 | b<<16 | b}[n]))
			}
			e.global(name, 32)
		}
	}
}
