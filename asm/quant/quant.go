// Package quant holds the parts of quantizers that take time: searches for the scales of blocks, and the codes.
//
// A search takes sixteen blocks side by side, one per lane of the vectors: element i of block l is X[16*i+l]. Each lane
// does the operations of a plain loop over its block, in its order and without fusing, so that the bits are those of
// the plain code of package internal/quant, which is the definition. Where a lane leaves the range in which a step
// rounds as the plain code does, Bad tells so, and the caller has to do that block again with the plain code.
package quant

import "unsafe"

// Width selects a family of instructions; W256 (AVX2) and W512 (AVX-512 F, BW, DQ, VL) only where Built is true and
// the CPU has them.
type Width uint8

const (
	None Width = iota
	W256
	W512
)

// Op is a routine over the lanes of a Block.
type Op uint8

const (
	WeighPlain     Op = iota // W = Average times the root of the mean of X*X, plus |X|
	WeighSquare              // W = X*X
	Weigh                    // W = W times the root of Variance + X*X; sets Sum
	Affine                   // searchAffine, of squared errors; sets Scale, Low, R, RLow, Bad
	AffineAbsolute           // searchAffine, of magnitudes of errors
	Symmetric                // searchSymmetric; sets Scale, R
	Descent                  // searchSymmetricDescent; sets Scale, Q, Bad, and R to 0 where all codes are
	Positive                 // searchPositive; sets Scale, Q, Bad, and R to 0 where all codes are
	MeanSquares              // Variance = Average times the sum of X*X
	IQ4                      // searchIQ4; sets Scale
	// Grid4 and Grid8 take points of 4 elements with levels 0..7, or 8 with 0..2, to a grid, by the step 1/R and Scale.
	// A level l stands for 2*l+1. They set Code, Moved, SumX to the sum of W*X*(2*l+1), SumW to that of W*(2*l+1)^2.
	Grid4
	Grid8
	// Ternary32 and Ternary16 are searchSplitIQ1S and searchSplitIQ1M. They set Scale and the first row of Code to the
	// first level's elements, those of the first two in the second byte, the shift in the third; all bits: no split.
	Ternary32
	Ternary16
	Extremes // sets Low and High to the extent, Scale to the first element of the largest magnitude
)

// Coder is a routine over Codes.
type Coder uint8

const (
	Stored    Coder = iota // (x + low)/scale
	Searched               // (x - low)*scale
	CodesIQ4               // of the levels nearest to x*scale, also where scale is 0
	Truncated              // (x - low)*scale + Bias, truncated, also where scale is 0; no lowest code
	CodesFP4               // of the 4-bit floats times scale, doubled, that are nearest to x, also where scale is 0
	Away                   // x*scale, ties away from zero, also where scale is 0; no lowest or highest code
)

// Lanes is the number of blocks of a search.
const Lanes = 16

// NearPad is the number of words behind a list that may be read, which must be codes of candidates in it.
const NearPad = Lanes - 1

// MaxTries is the largest number of steps that a search compares.
const MaxTries = 40

// Row has a value for each lane.
type Row [Lanes]float32

// Block is the operands, results and working memory of searches over sixteen blocks of N elements.
type Block struct {
	X, W [32]Row // elements and their weights, or importances for Weigh
	Q    [32]Row // overwritten

	Variance Row // for Weigh
	Sum      Row // of the weights, of Weigh

	// Results. The codes are those of step 1/R from RLow; all are zero where R is 0.
	Scale, Low, R, RLow Row
	Bad                 [Lanes]uint32 // not zero: do this block again

	Steps [MaxTries]float32 // what the extent or the extreme of a block is divided into, one for each try

	High                     Row // of Extremes; overwritten by others
	Lowest, SumW, SumX, Best Row // overwritten

	// For grids. The code of a point has the levels of its elements, element 0 lowest, 3 or 2 bits each. Index has an
	// int32 for each code: not negative for a point of the grid, else the complement of the place in Near of a list:
	// its length, then as many codes and at least NearPad more words.
	Index, Near unsafe.Pointer
	Root        [32]Row          // of W
	Code        [8][Lanes]uint32 // of each point in the grid
	Moved       [8][Lanes]uint32 // for each point: not zero if it was not of the grid

	// For Ternary: sums over the first 0, 1.. elements by value. Ternary32 has 33 of X, and of W from row 34 on;
	// Ternary16 has 17 of X and then of W, over those of the first half alone, and from row 34 on the second half.
	Sums [68]Row

	Src unsafe.Pointer // for Transpose: N elements of each block, one block after another
	Dst unsafe.Pointer // and where they go: X or W

	N        int     // elements of a block: a multiple of 8, at most 32
	Tries    int     // used elements of Steps
	Highest  float32 // code
	Minimum  float32 // code, of symmetric searches
	Average  float32 // for WeighPlain and MeanSquares
	Elements float32 // N
}

// Codes are the operands of routines that make codes of elements in their order. Each 16 elements have a Scale and a
// Low. Stored and Searched leave the codes as they are where Scale is 0.
type Codes struct {
	Src, Dst        unsafe.Pointer // float32; a byte for each
	Scale, Low      unsafe.Pointer // float32 for each block
	Blocks          int            // of 16 elements each
	Minimum, Offset int32          // the lowest code and what is added to codes
	Highest         int32
	Bias            float32
}

// Scan is the operands of a scan of N elements, a multiple of 32.
type Scan struct {
	Src       unsafe.Pointer
	N         int
	Magnitude uint32 // the largest of the bits of magnitudes
	Any       uint32 // the bits that any element has
}
