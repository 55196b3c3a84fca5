// Package linalg is dense symmetric linear algebra in float64, with the same bits for any number of workers and any
// tier of CPUs.
package linalg

import (
	"time"

	"ck/asm/mat"
	"ck/internal/isa"
)

// Each calls f for 0 to n-1, each once, on workers of the caller's. Its error ends what was begun: results are of no
// use then.
type Each func(n int, f func(i int)) error

// Inline is an Each on the caller's goroutine.
func Inline(n int, f func(i int)) error {
	for i := range n {
		f(i)
	}
	return nil
}

// WidthOf is the widest vectors of a tier.
func WidthOf(t isa.Tier) mat.Width {
	switch {
	case !mat.Built || t < isa.AVX2:
		return mat.Go
	case t < isa.AVX512:
		return mat.W256
	}
	return mat.W512
}

// Gram adds up XᵀX of rows of N columns, in float64: every sum is one chain down all rows that are added.
type Gram struct {
	N     int
	Width mat.Width
	Sums  []float64 // [N][N]: the upper triangle; what lies below it is not defined until Mirror
}

// Scratch is memory that Add needs, and that one Gram after the other may use. The zero value is ready.
type Scratch struct{ panels []float64 }

// Add adds rows of x that begin stride elements apart. Products of two float32 are exact in float64.
func (g *Gram) Add(each Each, s *Scratch, x []float32, rows, stride int) error {
	for r := 0; r < rows; r += depth {
		at := panels{n: g.N, rows: min(depth, rows-r), data: s.panels}
		err := at.fill(each, func(p int, panel []float64) { pack(panel, x[r*stride:], p*mat.Columns, g.N, stride) })
		s.panels = at.data
		if err != nil {
			return err
		}
		if err := triangle(each, sums{g.Sums, g.N, g.Width}, at, at, 0); err != nil {
			return err
		}
	}
	return nil
}

// pack copies columns from c on, of n, to a panel; where there is none it has zeros.
func pack[F float32 | float64](panel []float64, x []F, c, n, stride int) {
	n = min(mat.Columns, n-c)
	for r := 0; r*mat.Columns < len(panel); r++ {
		to := panel[r*mat.Columns:][:mat.Columns]
		for j, v := range x[r*stride+c:][:n] {
			to[j] = float64(v)
		}
		clear(to[n:])
	}
}

// Rate is how many products a second so many workers add up: it tries for about a tenth of a second.
func Rate(each Each, workers int, width mat.Width) (float64, error) {
	const n, rows, least = 240, 256, 100 * time.Millisecond
	x := make([]float32, n*rows)
	start, rounds := time.Now(), 0
	for time.Since(start) < least {
		err := each(workers, func(int) {
			g := &Gram{N: n, Width: width, Sums: make([]float64, n*n)}
			var s Scratch
			for range 8 {
				g.Add(Inline, &s, x, rows, n)
			}
		})
		if err != nil {
			return 0, err
		}
		rounds++
	}
	const panels = n / mat.Columns
	products := float64(rounds) * float64(workers) * 8 * rows * panels * (panels + 1) / 2 * mat.Columns * mat.Columns
	return products / time.Since(start).Seconds(), nil
}

// Mirror fills what lies below the diagonal.
func (g *Gram) Mirror() {
	for i := range g.N {
		for j := range i {
			g.Sums[i*g.N+j] = g.Sums[j*g.N+i]
		}
	}
}
