package inspect

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"ck/internal/gguf"
	"ck/internal/humanize"
	"ck/internal/linalg"
	"ck/internal/quant"
)

// Matrix is a tensor of two dimensions, or one of those that a tensor of more dimensions is made of.
type Matrix struct {
	Name       string // the tensor's; of one among several with its number: blk.0.ffn_up_exps.weight[3]
	Class      string // its name without the layer and without ".weight": attn_q
	Layer      int    // -1: of no layer
	Slice      int    // among the tensor's matrices: the expert; 0 where there is one
	Rows, Cols int
	Tensor     *gguf.Tensor
}

// Size is the number of elements.
func (x *Matrix) Size() int64 { return int64(x.Rows) * int64(x.Cols) }

// ClassOf splits a tensor's name in its class and its layer: blk.3.attn_q.weight is attn_q of layer 3, as is
// model.layers.3.self_attn.q_proj.weight self_attn.q_proj. A name without a number is of layer -1.
func ClassOf(name string) (class string, layer int) {
	name = strings.TrimSuffix(name, ".weight")
	parts := strings.Split(name, ".")
	for i, s := range parts {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || s != strconv.Itoa(n) || i == 0 || i+1 == len(parts) {
			continue
		}
		return strings.Join(parts[i+1:], "."), n
	}
	return name, -1
}

// NoMatchError says that no tensor is meant by an expression.
type NoMatchError struct {
	Expr string
	Near []string // names that may be meant
}

func (e *NoMatchError) Error() string {
	return fmt.Sprintf("%.100q: matches no tensor; near are %s", e.Expr, strings.Join(e.Near, ", "))
}

// Chosen lists the tensors whose names match; nil takes all.
func (m *Model) Chosen(match *regexp.Regexp) ([]*gguf.Tensor, error) {
	if match == nil {
		return m.Tensors, nil
	}
	var list []*gguf.Tensor
	names := make([]string, 0, len(m.Tensors))
	for _, t := range m.Tensors {
		names = append(names, t.Name)
		if match.MatchString(t.Name) {
			list = append(list, t)
		}
	}
	if len(list) == 0 {
		return nil, &NoMatchError{match.String(), humanize.Nearest(match.String(), names, 3)}
	}
	return list, nil
}

// Matrices lists the matrices among the tensors that match, and those tensors that are none.
func (m *Model) Matrices(match *regexp.Regexp) ([]Matrix, []Left, error) {
	chosen, err := m.Chosen(match)
	if err != nil {
		return nil, nil, err
	}
	var list []Matrix
	var left []Left
	for _, l := range m.Left {
		if match == nil || match.MatchString(l.Name) {
			left = append(left, l)
		}
	}
	for _, t := range chosen {
		if len(t.Shape) < 2 || t.Rows() == 1 && len(t.Shape) < 3 && m.Form != Numpy {
			left = append(left, Left{t.Name, "is a vector"})
			continue
		}
		x := Matrix{Name: t.Name, Rows: t.Shape[1], Cols: t.Cols(), Tensor: t}
		x.Class, x.Layer = ClassOf(t.Name)
		n := t.Rows() / x.Rows
		for i := range n {
			y := x
			if n > 1 {
				y.Name, y.Slice = fmt.Sprintf("%s[%d]", t.Name, i), i
			}
			list = append(list, y)
		}
	}
	return list, left, nil
}

// Reader reads a matrix for one goroutine, within Guard of its model.
type Reader struct {
	m   *Matrix
	r   *gguf.Reader
	row []float32
}

// Reader makes a reader.
func (x *Matrix) Reader() *Reader { return &Reader{m: x, r: x.Tensor.Reader()} }

// Row writes row i into dst. Elements of F64 are rounded.
func (r *Reader) Row(i int, dst []float32) {
	quant.Decode(r.m.Tensor.Type, dst[:r.m.Cols], r.r.Row(r.m.Slice*r.m.Rows+i))
}

// Row64 writes row i into dst without rounding.
func (r *Reader) Row64(i int, dst []float64) { r.Part(i, 0, dst[:r.m.Cols]) }

// Part writes the elements of row i from column from on into dst, without rounding. Both ends are at blocks of the type.
func (r *Reader) Part(i, from int, dst []float64) {
	typ, b := r.m.Tensor.Type, r.r.Row(r.m.Slice*r.m.Rows+i)
	b = b[from/typ.BlockElems()*typ.BlockBytes():]
	if typ == quant.F64 {
		for j := range dst {
			dst[j] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*j:]))
		}
		return
	}
	r.row = slices.Grow(r.row[:0], len(dst))[:len(dst)]
	quant.Decode(typ, r.row, b)
	for j, v := range r.row {
		dst[j] = float64(v)
	}
}

// Floats is the matrix as linear algebra reads it, within Guard of its model.
func (x *Matrix) Floats() linalg.Matrix {
	return linalg.Matrix{Rows: x.Rows, Cols: x.Cols, Reader: func() func(i, from int, dst []float64) { return x.Reader().Part }}
}

// NotFinite finds the first value of row i that is NaN or infinite; -1: there is none.
func NotFinite[F float32 | float64](row []F) int {
	return slices.IndexFunc(row, func(v F) bool { return v-v != 0 })
}

// WhereNotFinite says where the first value is that is NaN or infinite; "" where there is none.
func WhereNotFinite(x *Matrix) string {
	rows, row := x.Reader(), make([]float64, x.Cols)
	for i := range x.Rows {
		rows.Row64(i, row)
		if j := NotFinite(row); j >= 0 {
			return fmt.Sprintf("row %d, column %d (from 0) is %v", i, j, row[j])
		}
	}
	return ""
}

// Workers is Each for linear algebra.
func (m *Model) Workers(ctx context.Context, workers int) linalg.Each {
	return func(n int, f func(i int)) error {
		return m.Each(ctx, n, workers, func(i int) error {
			f(i)
			return nil
		})
	}
}

// Each calls f for 0 to n-1 on so many workers, within Guard of m. The first error ends it, as ctx does.
func (m *Model) Each(ctx context.Context, n, workers int, f func(i int) error) error {
	var next atomic.Int64
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for range max(1, min(workers, n)) {
		wg.Go(func() {
			err := m.Guard(func() error {
				for {
					i := int(next.Add(1)) - 1
					if i >= n {
						return nil
					}
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					if err := f(i); err != nil {
						return err
					}
				}
			})
			if err != nil {
				next.Store(int64(n)) // nobody begins another
				mu.Lock()
				if failed == nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}
