// Package mat holds products of float64 panels and of rows: what covariances, Gram matrices and their factorizations are
// made of.
//
// A panel is Columns columns of a matrix, row after row: [rows][Columns]. The product of two panels adds to each of
// Columns x Columns sums the products of one column of each, by fused multiply-add, in one chain down the rows. So every
// width gives the same bits.
package mat

import (
	"math"
	"unsafe"
)

// Columns is the width of a panel: three vectors of 512 bits, six of 256.
const Columns = 24

// Width selects a family of instructions; W256 and W512 only where Built is true and the CPU has them: AVX2 and FMA,
// AVX-512 F.
type Width uint8

const (
	Go Width = iota
	W256
	W512
)

// args are the operands of the assembly.
type args struct {
	A, B   unsafe.Pointer // panels; A begins at the first column of the tile
	C      unsafe.Pointer // the tile's first sum
	Stride int            // bytes between rows of sums
	Rows   int            // of the panels
}

// Add adds to the sums c[i*stride+j] the products of column i of panel a and column j of panel b, row by row. Both
// panels have as many rows.
func Add(w Width, c []float64, stride int, a, b []float64) {
	rows := len(a) / Columns
	if len(a) != rows*Columns || len(b) != len(a) || len(c) < (Columns-1)*stride+Columns {
		panic("mat: Add: panels of different lengths, or too few sums")
	}
	if rows == 0 {
		return
	}
	if w == Go {
		addGo(c, stride, a, b)
		return
	}
	k := args{Stride: 8 * stride, Rows: rows}
	high, wide := tile(w)
	for i := 0; i < Columns; i += high {
		for j := 0; j < Columns; j += wide {
			k.A, k.B, k.C = unsafe.Pointer(&a[i]), unsafe.Pointer(&b[j]), unsafe.Pointer(&c[i*stride+j])
			add(w, &k)
		}
	}
}

// tile is how many sums, down and across, the assembly of a width holds in registers.
func tile(w Width) (high, wide int) {
	if w == W512 {
		return 8, Columns
	}
	return 4, Columns / 2
}

// addGo is the definition.
func addGo(c []float64, stride int, a, b []float64) {
	for i := range Columns {
		sums := c[i*stride:][:Columns]
		for r := 0; r < len(a); r += Columns {
			x := a[r+i]
			for j, y := range b[r:][:Columns] {
				sums[j] = math.FMA(x, y, sums[j])
			}
		}
	}
}

// Lanes is the number of sums that a product of two rows is added up in: element j belongs to lane j % Lanes.
const Lanes = 8

// rowArgs are the operands of Rows' assembly.
type rowArgs struct {
	A     [4]unsafe.Pointer
	X, Y  unsafe.Pointer
	C     unsafe.Pointer // [4]float64
	Sums  unsafe.Pointer // [4][Lanes]float64
	Turns int            // of Lanes elements
}

// Rows goes through four rows once: it adds c[0]*a[0], then c[1]*a[1] and so on to y, by fused multiply-add, and returns
// the products of the rows with x. All rows, x and y have one length. Each product is added up in Lanes chains, which
// are added in pairs.
func Rows(w Width, y, x []float64, a *[4][]float64, c *[4]float64) (sums [4]float64) {
	n := len(y)
	if len(x) != n || len(a[0]) != n || len(a[1]) != n || len(a[2]) != n || len(a[3]) != n {
		panic("mat: Rows: rows of different lengths")
	}
	var lanes [4][Lanes]float64
	turns := n / Lanes
	if w == Go {
		turns = 0
	} else if turns > 0 {
		k := rowArgs{X: unsafe.Pointer(&x[0]), Y: unsafe.Pointer(&y[0]), C: unsafe.Pointer(c), Sums: unsafe.Pointer(&lanes), Turns: turns}
		for r := range a {
			k.A[r] = unsafe.Pointer(&a[r][0])
		}
		rows(w, &k)
	}
	for j := turns * Lanes; j < n; j++ {
		for r := range a {
			y[j] = math.FMA(a[r][j], c[r], y[j])
			lanes[r][j%Lanes] = math.FMA(a[r][j], x[j], lanes[r][j%Lanes])
		}
	}
	for r, l := range lanes {
		sums[r] = ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]))
	}
	return sums
}
