package graph

import (
	"fmt"
	"runtime"
	"sync"
)

// Matmul is out[row][n] = sum over k of W[n][k] * x[row][k] (+ bias[n], the second weight).
//
// Slices is a property of the model's shape, not of a machine: the sum over K is taken as Slices equal parts, each one chain in
// ascending K, added as a fixed tree ((s0+s1)+(s2+s3))+…; so the K of attention output and FFN down can belong to nodes without
// changing a bit (Slices rule: SlicesFor).
type Matmul struct{ Slices int }

func (Matmul) Kind() string   { return "matmul" }
func (Matmul) Needs(int) Need { return SameRow }

func (m Matmul) Check(g *Graph, s *Step) error {
	if err := arity(s, 1, 1, 1, 2); err != nil {
		return err
	}
	w := g.Weights[s.W[0]]
	if w.Cols != g.Width(s.In[0]) || w.Rows != g.Width(s.Out[0]) {
		return fmt.Errorf("%s is [%d, %d], input %d wide, output %d", w.Name, w.Rows, w.Cols, g.Width(s.In[0]), g.Width(s.Out[0]))
	}
	if len(s.W) == 2 {
		if b := g.Weights[s.W[1]]; b.Rows != 1 || b.Cols != w.Rows {
			return fmt.Errorf("bias %s is [%d, %d], %d outputs", b.Name, b.Rows, b.Cols, w.Rows)
		}
	}
	if m.Slices < 1 || w.Cols%m.Slices != 0 {
		return fmt.Errorf("%d slices of %d elements", m.Slices, w.Cols)
	}
	return nil
}

func (Matmul) Ref(r *Ref, s *Step) {
	w := r.G.Weights[s.W[0]]
	var bias []float64
	if len(s.W) == 2 {
		bias = r.vector(s.W[1])
	}
	// Weight rows are dealt to the CPUs, for the sake of tests with large shapes; every output is computed by one of them.
	var wg sync.WaitGroup
	workers := min(runtime.NumCPU(), max(1, w.Rows*w.Cols>>16))
	for i := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			wr := make([]float64, w.Cols)
			for n := w.Rows * i / workers; n < w.Rows*(i+1)/workers; n++ {
				r.Weight(s.W[0], n, wr)
				r.each(s, 0, func(row int, out []float64) {
					out[n] = dot64(wr, r.in(s, 0, row))
					if bias != nil {
						out[n] += bias[n]
					}
				})
			}
		}()
	}
	wg.Wait()
}

// dot64 is the sum of a[i]*b[i], in four chains for the sake of test time.
func dot64(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + s2 + s3
}

// SlicesFor is the number of K slices of a projection whose K belongs to nodes: the largest power of two ≤ 8 for which slices
// are equal, whole blocks of 256, and, where groups > 0, whole groups (heads that share a KV head); else 1.
func SlicesFor(k, groups int) int {
	for s := 8; s > 1; s /= 2 {
		if k%(256*s) == 0 && groups%s == 0 {
			return s
		}
	}
	return 1
}

// SliceCount is the number of slices of K.
func (m Matmul) SliceCount() int { return m.Slices }
