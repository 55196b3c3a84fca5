package main

// coding is how the weights of a layout are stored.
type coding int

const (
	whole   coding = iota // one byte each
	nibbles               // four bits
	fives                 // nibbles, and the fifth bits apart
	sixes                 // nibbles, and two high bits in a vector behind those of the sub-block
	twos                  // two bits
	codes                 // nibbles that are indices of a table of int8
)

// scaling is what the integer sums of a group are multiplied by. The first three are groups of two blocks of 32 K, the others of 256 K
// in sub-blocks that have a sum each.
type scaling int

const (
	perBlock      scaling = iota // d, float16
	perBlockMin                  // and a minimum m, float16
	perBlockBrain                // d, bfloat16
	perSubMin                    // sub-blocks of 32: scales uint8, minima in pairs of words; d and dmin float16
	perSub                       // sub-blocks of 16: scales int8; d float16
	perSubFloat                  // sub-blocks of 16: scales int8; d float32
	perSubMini                   // sub-blocks of 16: scales of 5 bits of exponent, 3 of mantissa; d float32
	perSubNibbles                // sub-blocks of 16: scales and minima are the nibbles of a byte; d and dmin float16
	scalings                     // their number
)

// super: groups are superblocks of 256 K.
func (s scaling) super() bool { return s >= perSubMin }

// sub is the K of an integer sum.
func (s scaling) sub() int {
	if s > perSubMin {
		return 16
	}
	return 32
}

// subs is the number of integer sums of a group.
func (s scaling) subs() int {
	if s.super() {
		return 256 / s.sub()
	}
	return 2
}

// vecs is the number of vectors (4 K each) of an integer sum.
func (s scaling) vecs() int { return s.sub() / 4 }

// bytes is the size of a group's scales.
func (s scaling) bytes() int {
	switch s {
	case perBlock, perBlockBrain:
		return 64
	case perBlockMin:
		return 128
	}
	return 320
}

// layout is an integer layout, packed or unpacked; package dot's comment draws them. In a group the weights come first, sum by sum,
// then the fifth bits, then the scales.
type layout struct {
	name string
	coding
	scaling
	opened bool // the form that unpacking makes of it: coding is whole
}

var layouts = []layout{
	{name: "Q8_0", coding: whole, scaling: perBlock},
	{name: "Q4_0", coding: nibbles, scaling: perBlock},
	{name: "Q4_1", coding: nibbles, scaling: perBlockMin},
	{name: "Q5_0", coding: fives, scaling: perBlock},
	{name: "Q5_1", coding: fives, scaling: perBlockMin},
	{name: "Q4_K", coding: nibbles, scaling: perSubMin},
	{name: "Q5_K", coding: fives, scaling: perSubMin},
	{name: "Q6_K", coding: sixes, scaling: perSub},
	{name: "Q2_K", coding: twos, scaling: perSubNibbles},
	{name: "Code4", coding: codes, scaling: perSubFloat},
	{name: "MXFP4", coding: codes, scaling: perBlockBrain},
	{name: "NVFP4", coding: codes, scaling: perSubMini},
}

// packed: the weights must be taken apart.
func (l *layout) packed() bool { return l.coding != whole }

// unpacked is the layout after unpacking: one byte per weight, the scales as they were.
func (l *layout) unpacked() layout { return layout{l.name, whole, l.scaling, true} }

// bytes is the size of a group.
func (l *layout) bytes() int { return l.scales() + l.scaling.bytes() }

// sumBytes is the size of the weights of one integer sum, but for fifth bits.
func (l *layout) sumBytes() int {
	bits := map[coding]int{whole: 8, nibbles: 4, fives: 4, sixes: 6, twos: 2, codes: 4}[l.coding]
	return 16 * l.sub() * bits / 8
}

// high is the place of the fifth bits: 64 bytes for each integer sum.
func (l *layout) high() int { return l.subs() * l.sumBytes() }

// scales is the place of the scales: d of both blocks, or the scales of sub-blocks.
func (l *layout) scales() int {
	if l.coding == fives {
		return l.high() + 64*l.subs()
	}
	return l.high()
}

// minima is the place of m of both blocks.
func (l *layout) minima() int { return l.scales() + 64 }

// hasOffset: the sums start at minus the weights' offset times the sum of activations, which the operands hold; where there are minima
// they do that.
func (l *layout) hasOffset() bool {
	return l.scaling != perBlockMin && l.scaling != perSubMin && l.scaling != perSubNibbles
}

// codeBias is what kernels add to the values of codes, where they are never signed: those of 4-bit floats are within -16..15. It is the
// offset that the operands hold, or four times it.
func (l *layout) codeBias() int {
	switch l.scaling {
	case perBlockBrain:
		return 16
	case perSubMini:
		return 32
	}
	return 128
}

// miniBias names the constant that makes the bits 20..27 of perSubMini's scales floats: exponents get 96 more, so that their bias is 31.
const miniBias = "c30000000"
