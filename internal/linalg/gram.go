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

const (
	// gramRows is the rows of X that are added at once: two panels of them are a tenth of a second cache of 1 MiB.
	gramRows = 256
	// groupPanels is the panels that a worker goes through with each other panel: they stay in its second cache.
	groupPanels = 8
)

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
	for r := 0; r < rows; r += gramRows {
		if err := g.add(each, s, x[r*stride:], min(gramRows, rows-r), stride); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gram) add(each Each, s *Scratch, x []float32, rows, stride int) error {
	panels, size := (g.N+mat.Columns-1)/mat.Columns, rows*mat.Columns
	if cap(s.panels) < panels*size {
		s.panels = make([]float64, panels*size)
	}
	panel := func(p int) []float64 { return s.panels[p*size : (p+1)*size] }
	if err := each(panels, func(p int) { g.pack(panel(p), x, p*mat.Columns, stride) }); err != nil {
		return err
	}
	groups := (panels + groupPanels - 1) / groupPanels
	return each(groups, func(i int) { // the first has the most to do
		first, end := i*groupPanels, min((i+1)*groupPanels, panels)
		var edge [mat.Columns * mat.Columns]float64
		for q := first; q < panels; q++ {
			for p := first; p <= min(q, end-1); p++ {
				g.tile(&edge, p*mat.Columns, q*mat.Columns, panel(p), panel(q))
			}
		}
	})
}

// pack copies columns from c on to a panel; where there is none it has zeros.
func (g *Gram) pack(panel []float64, x []float32, c, stride int) {
	n := min(mat.Columns, g.N-c)
	for r := 0; r*mat.Columns < len(panel); r++ {
		to := panel[r*mat.Columns:][:mat.Columns]
		for j, v := range x[r*stride+c:][:n] {
			to[j] = float64(v)
		}
		clear(to[n:])
	}
}

// tile adds the products of two panels to the sums from (i, j) on. At an edge of the matrix it goes through a tile of its own.
func (g *Gram) tile(edge *[mat.Columns * mat.Columns]float64, i, j int, a, b []float64) {
	rows, cols := min(mat.Columns, g.N-i), min(mat.Columns, g.N-j)
	if rows == mat.Columns && cols == mat.Columns {
		mat.Add(g.Width, g.Sums[i*g.N+j:], g.N, a, b)
		return
	}
	for r := range rows {
		copy(edge[r*mat.Columns:][:cols], g.Sums[(i+r)*g.N+j:])
	}
	mat.Add(g.Width, edge[:], mat.Columns, a, b)
	for r := range rows {
		copy(g.Sums[(i+r)*g.N+j:][:cols], edge[r*mat.Columns:])
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
			inline := func(n int, f func(int)) error {
				for i := range n {
					f(i)
				}
				return nil
			}
			var s Scratch
			for range 8 {
				g.Add(inline, &s, x, rows, n)
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
