package linalg

import "ck/asm/mat"

const (
	// depth is the rows of panels that are multiplied at once: two of them are a tenth of a second cache of 1 MiB.
	depth = 256
	// groupPanels is the panels that a worker goes through with each other panel: they stay in its second cache.
	groupPanels = 8
)

// panels is some rows of a matrix of n columns, as mat.Add reads them; behind the last column stand zeros.
type panels struct {
	n, rows int
	data    []float64
}

func (x *panels) count() int { return (x.n + mat.Columns - 1) / mat.Columns }

// panel is the rows [from, from+rows) of panel p.
func (x *panels) panel(p, from, rows int) []float64 {
	return x.data[(p*x.rows+from)*mat.Columns:][:rows*mat.Columns]
}

// fill makes all panels anew, in the memory that x has if it is enough.
func (x *panels) fill(each Each, f func(p int, panel []float64)) error {
	if size := x.count() * x.rows * mat.Columns; cap(x.data) < size {
		x.data = make([]float64, size)
	} else {
		x.data = x.data[:size]
	}
	return each(x.count(), func(p int) { f(p, x.panel(p, 0, x.rows)) })
}

// sums is a matrix in rows that begin stride elements apart.
type sums struct {
	data   []float64
	stride int
	width  mat.Width
}

// tile adds the products of two panels to the sums from (i, j) on, of a matrix of n rows and m columns. At its edges it
// goes through a tile of its own.
func (s *sums) tile(i, j, n, m int, a, b []float64) {
	rows, cols := min(mat.Columns, n-i), min(mat.Columns, m-j)
	if rows == mat.Columns && cols == mat.Columns {
		mat.Add(s.width, s.data[i*s.stride+j:], s.stride, a, b)
		return
	}
	var edge [mat.Columns * mat.Columns]float64
	for r := range rows {
		copy(edge[r*mat.Columns:][:cols], s.data[(i+r)*s.stride+j:])
	}
	mat.Add(s.width, edge[:], mat.Columns, a, b)
	for r := range rows {
		copy(s.data[(i+r)*s.stride+j:][:cols], edge[r*mat.Columns:])
	}
}

// triangle adds aᵀb, which is symmetric, to the sums on and above the diagonal, from that panel on.
func triangle(each Each, s sums, a, b panels, first int) error {
	count := a.count() - first
	return each((count+groupPanels-1)/groupPanels, func(g int) { // the first has the most to do
		begin := first + g*groupPanels
		end := min(begin+groupPanels, a.count())
		for k := 0; k < a.rows; k += depth {
			rows := min(depth, a.rows-k)
			for q := begin; q < a.count(); q++ {
				for p := begin; p <= min(q, end-1); p++ {
					s.tile(p*mat.Columns, q*mat.Columns, a.n, a.n, a.panel(p, k, rows), b.panel(q, k, rows))
				}
			}
		}
	})
}

// product adds aᵀb to the sums.
func product(each Each, s sums, a, b panels) error {
	return each((a.count()+groupPanels-1)/groupPanels, func(g int) {
		end := min((g+1)*groupPanels, a.count())
		for k := 0; k < a.rows; k += depth {
			rows := min(depth, a.rows-k)
			for q := range b.count() {
				for p := g * groupPanels; p < end; p++ {
					s.tile(p*mat.Columns, q*mat.Columns, a.n, b.n, a.panel(p, k, rows), b.panel(q, k, rows))
				}
			}
		}
	})
}
