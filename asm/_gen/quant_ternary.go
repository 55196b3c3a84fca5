package main

import (
	"fmt"
	"math"
)

// Registers of the searches for splits: the best one so far, the sums of one at hand, and two more.
const (
	pBest = iota
	pScale
	pCode
	pSums         // eight
	pXQ   = 3 + 8 // of W*X*Q
	pQQ   = pXQ + 1
	pT    = pXQ + 2
	pU    = pXQ + 3 // that of mask 2 in 256-bit code
)

// Rows of constants: those of IQ1 in internal/quant, by shift.
const (
	pValues = 0         // what the three levels stand for
	pDiffs  = 2 * 3     // the differences of their squares
	pNone   = 2*3 + 2*2 // the score of no split
)

// ternaries adds the searches for the splits of IQ1.
func (v *lanes) ternaries() {
	v.rows64("ternc", words([]float32{-0.875, 0.125, 1.125, -1.125, -0.125, 0.875, // pValues
		0.75, -1.25, 1.25, -0.75, -math.MaxFloat32})...)
	v.search("Ternary32", "finds the best split of 32 sorted elements, of two shifts.", func(f string) {
		v.splits(f, 32, v.firstAlike, func() { v.splitAlike(f) })
	})
	v.search("Ternary16", "finds the best split of 16 sorted elements, of two shifts for each half.", func(f string) {
		v.halfConstants()
		v.splits(f, 16, v.firstHalves, func() { v.splitHalves(f) })
	})
}

// splits goes over all splits of n elements, SI at the sums of the lowest ones and DI at those of the lowest two
// parts. R10 is the code of the split: the elements in both, one byte each.
func (v *lanes) splits(f string, n int, first, split func()) {
	v.load(row("ternc", pNone), pBest)
	v.zero(pScale)
	v.load(row("gridc", gOnes), pCode)
	v.p("LEAQ %d(R8), SI", v.args.at("Sums"))
	v.p("XORL DX, DX")
	v.lab(f + "_low")
	first()
	v.p("MOVQ SI, DI")
	v.p("MOVL DX, R10")
	v.lab(f + "_high")
	split()
	v.p("ADDQ $64, DI")
	v.p("ADDL $0x100, R10")
	v.p("CMPL R10, $%d", (n+1)<<8)
	v.p("JCS %s_high", f)
	v.p("ADDQ $64, SI")
	v.p("ADDL $0x101, DX")
	v.p("CMPL DX, $%d", (n+1)<<8)
	v.p("JCS %s_low", f)
	v.store(pScale, v.at("Scale", 0))
	v.store(pCode, v.at("Code", 0))
}

// consider takes the split if it is better than the best one.
func (v *lanes) consider(f string, shift int) {
	next := fmt.Sprintf("%s_shift%d", f, shift)
	v.compare(pQQ, isGreater, row("lanec", cZero), 1)
	v.mul(pXQ, pXQ, pT)
	v.mul(pQQ, pBest, pU)
	v.compare(pT, isGreater, pU, 2)
	v.both(1, 2, 1)
	v.jumpIfNone(1, next)
	v.div(pXQ, pQQ, pT)
	v.where(1, pT, pScale)
	v.mul(pXQ, pT, pT)
	v.where(1, pT, pBest)
	v.p("LEAL %d(R10), R9", shift<<16)
	v.p("VMOVD R9, X%d", pU)
	v.o("VPBROADCASTD", fmt.Sprintf("X%d", pU), pU)
	v.where(1, pU, pCode)
	v.lab(next)
}

// sums is a row of sums: of X or W over the first elements, their number at SI, DI or, for all, R8.
func (v *lanes) sums(base string, rows int) mem {
	off := 64 * rows
	if base == "R8" {
		off += v.args.at("Sums")
	}
	return mem{off, "(" + base + ")", 1}
}

// sumsW is the number of rows between sums of X and those of W, sumsHalf that between those of the halves.
const (
	sumsW     = 34
	sumsHalf  = 34
	sumsHalfW = 17
)

// firstAlike makes what the lowest elements add to the sums, for each shift.
func (v *lanes) firstAlike() {
	for shift := range 2 {
		value := row("ternc", pValues+3*shift)
		v.load(value, pT)
		v.mul(v.sums("SI", 0), pT, pSums+shift)
		v.mul(v.sums("SI", sumsW), pT, pSums+2+shift)
		v.mul(pT, pSums+2+shift, pSums+2+shift)
	}
}

// splitAlike is the body of searchSplitIQ1S: both shifts of a split.
func (v *lanes) splitAlike(f string) {
	const end, mid = pSums + 4, pSums + 6 // of X, then of W
	for i, rows := range []int{0, sumsW} {
		v.load(v.sums("DI", rows), pT)
		v.load(v.sums("R8", rows+32), pU)
		v.sub(pU, pT, end+i)
		v.sub(pT, v.sums("SI", rows), mid+i)
	}
	for shift := range 2 {
		middle, last := row("ternc", pValues+3*shift+1), row("ternc", pValues+3*shift+2)
		v.mul(middle, mid, pXQ)
		v.add(pXQ, pSums+shift, pXQ)
		v.mul(last, end, pT)
		v.add(pT, pXQ, pXQ)
		v.mul(middle, mid+1, pQQ)
		v.mul(middle, pQQ, pQQ)
		v.add(pQQ, pSums+2+shift, pQQ)
		v.mul(last, end+1, pT)
		v.mul(last, pT, pT)
		v.add(pT, pQQ, pQQ)
		v.consider(f, shift)
	}
}

// halfRow is a row of Q for a half and a shift: what they add if all elements have the highest level, of X, then of
// W, and of W with the lowest elements.
func (v *lanes) halfRow(k, half, shift int) mem { return v.at("Q", 4*k+2*half+shift) }

// halfConstants makes the first two rows of each.
func (v *lanes) halfConstants() {
	for half := range 2 {
		for shift := range 2 {
			top := row("ternc", pValues+3*shift+2)
			v.load(top, pT)
			v.mul(v.sums("R8", half*sumsHalf+16), pT, pU)
			v.store(pU, v.halfRow(0, half, shift))
			v.mul(v.sums("R8", half*sumsHalf+sumsHalfW+16), pT, pU)
			v.mul(pT, pU, pU)
			v.store(pU, v.halfRow(1, half, shift))
		}
	}
}

// firstHalves makes the third rows.
func (v *lanes) firstHalves() {
	for half := range 2 {
		for shift := range 2 {
			v.load(v.sums("SI", half*sumsHalf+sumsHalfW), pT)
			v.mul(row("ternc", pDiffs+2*shift), pT, pT)
			v.add(v.halfRow(1, half, shift), pT, pT)
			v.store(pT, v.halfRow(2, half, shift))
		}
	}
}

// splitHalves is the body of searchSplitIQ1M: all shifts of a split.
func (v *lanes) splitHalves(f string) {
	for half := range 2 {
		v.load(v.sums("SI", half*sumsHalf), pT)
		v.add(v.sums("DI", half*sumsHalf), pT, pT)
		v.load(v.sums("DI", half*sumsHalf+sumsHalfW), pU)
		for shift := range 2 {
			xq, qq := pSums+2*half+shift, pSums+4+2*half+shift
			v.load(v.halfRow(0, half, shift), xq)
			v.sub(xq, pT, xq)
			v.mul(row("ternc", pDiffs+2*shift+1), pU, qq)
			v.add(v.halfRow(2, half, shift), qq, qq)
		}
	}
	for shift := range 4 {
		first, second := pSums+shift>>1, pSums+2+shift&1
		v.add(first, second, pXQ)
		v.add(first+4, second+4, pQQ)
		v.consider(f, shift)
	}
}
