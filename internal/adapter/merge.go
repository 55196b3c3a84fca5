package adapter

import (
	"fmt"
	"sync"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// Merge is the model m with the adapter in its matrices. Rows are computed each time that they are read, by any number of goroutines, so that
// nothing but the adapter is in memory. The merged model has m's files but does not own them: it needs no Close, and m stays open while it is
// used. What writes models reads its rows as any others.
//
// as chooses the type of each merged matrix, by the model's; nil keeps float types, and makes F32 of others. Matrices without a change stay as
// they are. The type's quantizer must need no importance of columns.
//
// Row r is w + scale * sum(B[r,k] * A[k]) over k ascending, in float32 without fused operations, where w is the decoded row; then it is rounded
// to the type. Its error before that is at most (rank+3) * 2^-24 * (|w| + |scale| * sum(|B[r,k]| * |A[k]|)), for ranks below 2^12. What F16 does
// not hold becomes infinite, which writers of models refuse; block types end the read with a *gguf.DamageError.
//
// Cost: 2 * rank operations per weight and read.
func (a *Adapter) Merge(m *gguf.Model, as func(*gguf.Tensor) quant.Type) (*gguf.Model, error) {
	if err := a.Check(m); err != nil {
		return nil, err
	}
	if as == nil {
		as = Floats
	}
	merged := map[string]*gguf.Tensor{}
	for i := range a.Targets {
		t := &a.Targets[i]
		w := m.Tensor(t.Name)
		typ := as(w)
		switch {
		case !typ.Known() || !typ.Quantizable() || typ.NeedsImatrix():
			return nil, fmt.Errorf("tensor %s: %v cannot be made of a merged matrix; choose F32, F16, BF16 or Q8_0", t.Name, typ)
		case w.Cols()%typ.BlockElems() != 0:
			return nil, fmt.Errorf("tensor %s: rows of %d elements are no multiple of the %d of a block of %v", t.Name, w.Cols(), typ.BlockElems(), typ)
		}
		merged[t.Name] = mergedTensor(w, t, typ, float32(a.Scale(t)))
	}
	return m.With(merged), nil
}

// Floats keeps float types, and makes F32 of others.
func Floats(t *gguf.Tensor) quant.Type {
	switch t.Type {
	case quant.F16, quant.BF16:
		return t.Type
	}
	return quant.F32
}

// rowBuffers are those of one reading goroutine.
type rowBuffers struct {
	base *gguf.Reader
	w    []float32 // the decoded row
	sum  []float32 // of B * A
}

func mergedTensor(w *gguf.Tensor, t *Target, typ quant.Type, scale float32) *gguf.Tensor {
	pool := sync.Pool{New: func() any {
		return &rowBuffers{w.Reader(), make([]float32, t.In), make([]float32, t.In)}
	}}
	row := func(dst []byte, r int) {
		x := pool.Get().(*rowBuffers)
		defer pool.Put(x)
		quant.Decode(w.Type, x.w, x.base.Row(r))
		t.add(x.w, x.sum, r, scale)
		if err := quant.Quantize(typ, dst, x.w, nil); err != nil {
			panic(&gguf.DamageError{Tensor: t.Name, Row: r, Rows: 1, Why: fmt.Errorf("the merged row: %w", err)})
		}
	}
	return &gguf.Tensor{Name: w.Name, Type: typ, Shape: []int{t.In, t.Out}, File: -1, Make: row}
}

// add adds row r of scale * B * A to w; sum is scratch.
func (t *Target) add(w, sum []float32, r int, scale float32) {
	clear(sum)
	for k, b := range t.B[r*t.Rank : (r+1)*t.Rank] {
		for j, a := range t.A[k*t.In : (k+1)*t.In] {
			sum[j] += float32(b * a)
		}
	}
	for j := range w {
		w[j] += float32(scale * sum[j])
	}
}
