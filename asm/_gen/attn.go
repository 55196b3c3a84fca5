package main

import (
	"math"
	"strings"
)

// Kernels of package attn: one step of online softmax over a block of 64 keys. Scores and PV (attn_scores.go, attn_pv.go) are made for
// each type of elements and each number of queries of a tile.

// kvElem is an element type of K and V; bytes is 0 for the nibbles of Q4, which are only decoded.
type kvElem struct {
	name  string
	bytes int
}

var (
	kvElems = []kvElem{{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"Q8", 1}}
	kvQ8    = kvElems[3]
	kvQ4    = kvElem{"Q4", 0}
)

// load widens sixteen elements at m to float32; those of Q8 still want their scales.
func (t kvElem) load(v vec, m mem, r reg) {
	m.half = 8 * t.bytes
	switch t.name {
	case "F32":
		v.o("VMOVUPS", m, r)
	case "F16":
		v.o("VCVTPH2PS", m, r)
	case "BF16":
		v.o("VPMOVZXWD", m, r)
		v.o("VPSLLD", "$16", r, r)
	case "Q8":
		v.o("VPMOVSXBD", m, r)
		v.o("VCVTDQ2PS", r, r)
	}
}

// prefetch fetches the line at BX from vector i of a run at AX, if a line starts there.
func (t kvElem) prefetch(v vec, i, first int) {
	if off := 16 * t.bytes * i; (first+off)%64 == 0 {
		v.p("PREFETCHT0 %d(AX)(BX*1)", off)
	}
}

// Offsets of a state, in bytes.
var (
	stMax   = 4 * constOf("attn", "StateMax")
	stAlpha = 4 * constOf("attn", "StateAlpha")
	stSum   = 4 * constOf("attn", "StateSum")
	stOut   = 4 * constOf("attn", "StateOut")
)

// attn writes the kernels of a width.
func attn(wide bool) *gen {
	v := newVec("attn", "attn_", "Args", wide)
	v.rows64("exp2c", words(exp2c)...)
	v.rows64("nibble", 15, 8)
	v.rows64("capc", math.Float32bits(1), 0x80000000)
	tiles := 6 // of queries; more would not leave registers
	if wide {
		tiles = 8
	}
	softmax(v)
	capScores(v)
	if !wide {
		storeKeys(v)
	}
	for _, t := range kvElems {
		for m := 1; m <= tiles; m++ {
			newScores(v, t, m).emit()
			newPV(v, t, m).emit()
		}
	}
	for _, t := range []kvElem{kvQ8, kvQ4} {
		decodeK(v, t)
		decodeV(v, t)
	}
	attnTable(v, tiles)
	return v.gen
}

// attnTable writes the kernels of all types as a table.
func attnTable(v vec, tiles int) {
	v.code("\n// kernels%s are the kernels of a width.\nvar kernels%s = [numTypes]Kernels{", v.suffix(), v.suffix())
	for _, t := range append(kvElems[:len(kvElems):len(kvElems)], kvQ4) {
		v.code("%s: {\nSoftmax: softmax%s,\nCap: cap%s,", t.name, v.suffix(), v.suffix())
		if t.bytes < 2 {
			v.code("DecodeK: decodeK%s%s,\nDecodeV: decodeV%s%s,", t.name, v.suffix(), t.name, v.suffix())
		}
		if t.bytes > 0 {
			for _, k := range [][2]string{{"Scores", "scores"}, {"PV", "pv"}} {
				v.code("%s: [MaxTile + 1]func(*Args){nil, %s},", k[0], strings.Join(names(k[1]+t.name+"x%d"+v.suffix(), 1, tiles), ", "))
			}
		}
		v.code("},")
	}
	v.code("}")
}

// registers is how many single registers there are, and how many a vector takes.
func (v vec) registers() (all, vector int) {
	if v.wide {
		return 32, 1
	}
	return 16, 2
}
