package allocate

import (
	"context"
	"math"
	"strings"
	"sync"

	"ck/internal/entropy"
	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/quant"
)

// sampleElems is about how many elements of a tensor are quantized to measure its error: rows spread evenly. With
// 2^18 elements the error of a tensor is known to a few parts in a thousand, which is less than types differ.
const sampleElems = 1 << 18

// Importance gives the importances of a tensor's columns, of each of its matrices in turn; nil where there are none.
type Importance func(t *gguf.Tensor) []float32

// Reads is how many bytes the engine reads for each token of a matrix in a type.
type Reads func(t *gguf.Tensor, typ quant.Type) int64

// Measure finds the error of each tensor of m that quantizable names, in each type that fits its rows and that its
// importances allow. at is told how many tensors are done.
func Measure(ctx context.Context, m *gguf.Model, quantizable func(*gguf.Tensor) bool, types []quant.Type,
	importance Importance,
	read Reads, f isa.Features, workers int, at func(done int64)) ([]Tensor, error) {
	var list []*gguf.Tensor
	for _, t := range m.Tensors {
		if quantizable(t) {
			list = append(list, t)
		}
	}
	out := make([]Tensor, len(list))
	var mu sync.Mutex
	var failed error
	next, done := 0, int64(0)
	var wg sync.WaitGroup
	for range max(1, workers) {
		wg.Go(func() {
			encoders := make([]*quant.Encoder, len(types))
			for i, t := range types {
				encoders[i] = quant.NewEncoder(t, f)
			}
			for {
				mu.Lock()
				i := next
				next++
				stop := failed != nil || i >= len(list)
				mu.Unlock()
				if stop {
					return
				}
				err := context.Cause(ctx)
				if err == nil {
					err = m.Guard(func() (err error) {
						out[i], err = measure(list[i], types, encoders, importance(list[i]), read)
						return err
					})
				}
				mu.Lock()
				done++
				at(done)
				if failed == nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return out, failed
}

// measure quantizes a sample of a tensor's rows to each type.
func measure(t *gguf.Tensor, types []quant.Type, encoders []*quant.Encoder, importance []float32, read Reads) (Tensor,
	error) {
	rows, cols := t.Rows(), t.Cols()
	out := Tensor{Name: t.Name, Class: Class(t.Name), Weights: int64(rows) * int64(cols)}
	n := min(rows, max(1, sampleElems/cols))
	x, y, b := make([]float32, cols), make([]float32, cols), make([]byte, 8*cols)
	errs, square := make([]float64, len(types)), 0.0
	usable := make([]bool, len(types))
	for i, typ := range types {
		usable[i] = cols%typ.BlockElems() == 0 && (importance != nil || !typ.NeedsImatrix())
	}
	var codes [256]int64
	rowsOf := t.Reader()
	for k := range n {
		row := int(int64(k) * int64(rows) / int64(n))
		quant.Decode(t.Type, x, rowsOf.Row(row))
		w := importance
		if w != nil && len(t.Shape) > 2 {
			w = w[row/t.Shape[1]*cols:][:cols]
		}
		square += weighted(x, nil, w)
		histogram(&codes, x)
		for i, typ := range types {
			if !usable[i] {
				continue
			}
			if err := encoders[i].Encode(b, x, w); err != nil {
				usable[i] = false // too large for its scales, for example: no option
				continue
			}
			quant.Decode(typ, y, b)
			errs[i] += weighted(x, y, w)
		}
	}
	out.Entropy = entropy.Bits(codes[:])
	for i, typ := range types {
		if usable[i] {
			out.Options = append(out.Options, Option{Type: typ, Name: typ.String(), Error: errs[i] / max(square,
				math.SmallestNonzeroFloat64),
				Bytes: int64(rows) * int64(typ.RowBytes(cols)), Read: read(t, typ)})
		}
	}
	return out, nil
}

// weighted is the sum of w*(x-y)^2; y nil is 0, w nil is 1.
func weighted(x, y, w []float32) (sum float64) {
	for i, v := range x {
		d := float64(v)
		if y != nil {
			d -= float64(y[i])
		}
		if w != nil {
			d *= d * float64(w[i])
		} else {
			d *= d
		}
		sum += d
	}
	return sum
}

// histogram counts the row's values as codes of 8 bits of its own largest magnitude.
func histogram(codes *[256]int64, x []float32) {
	var top float32
	for _, v := range x {
		top = max(top, v, -v)
	}
	if top == 0 {
		codes[128] += int64(len(x))
		return
	}
	for _, v := range x {
		codes[128+int(math.Round(float64(v/top)*127))]++
	}
}

// Class is the part of a tensor's name that tensors of all layers share: "ffn_down", "token_embd".
func Class(name string) string {
	name = strings.TrimSuffix(name, ".weight")
	return name[strings.LastIndexByte(name, '.')+1:]
}
