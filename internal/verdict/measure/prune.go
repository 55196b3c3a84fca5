package measure

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/imatrix"
	"ck/internal/inspect"
	"ck/internal/isa"
	"ck/internal/quality"
	"ck/internal/quant"
	"ck/internal/verdict"
)

// Prune says how a model is run without half of its weights.
type Prune struct {
	Engine  engine.Options
	Memory  int64 // bytes that a changed copy may take; 0: any
	Workers int
	At      func(tokens int64) // is told how many tokens of Tokens are done; nil: nobody is
}

// Tokens is how many tokens of a text all runs together read.
func (p *Prune) Tokens(text quality.Text) int64 {
	first, rest := halves(text)
	return int64(len(first.IDs) + 2*len(rest.IDs))
}

// halves cuts a text: activations come from its first blocks, divergences from the others.
func halves(t quality.Text) (first, rest quality.Text) {
	n := t.Blocks() / 2 * t.Block
	return quality.Text{IDs: t.IDs[:n], Block: t.Block}, quality.Text{IDs: t.IDs[n:], Block: t.Block}
}

// Of measures what the model loses by both ways. why says what is missing where the figures cannot be taken.
func (p *Prune) Of(ctx context.Context, m *gguf.Model, text quality.Text) (r *verdict.Pruned, why string, err error) {
	if n := text.Blocks(); n < 2 {
		return nil, fmt.Sprintf("the text has one block of %d tokens; activations and divergences take one each", text.Block), nil
	}
	if need := p.need(m); p.Memory > 0 && need > p.Memory {
		return nil, fmt.Sprintf("a copy of the model takes %d MiB of memory, %d MiB can be had", need>>20, p.Memory>>20), nil
	}
	first, rest := halves(text)
	done := int64(0)
	at := func(n int64) {
		if p.At != nil {
			p.At(done + n)
		}
	}
	opt := p.Engine
	opt.Context = text.Block
	base, err := engine.Open(m, opt)
	if err != nil {
		return nil, "", err
	}
	defer base.Close()
	im, err := imatrix.CollectBlocks(ctx, base, first, imatrix.Options{Block: text.Block, At: at})
	if err != nil {
		return nil, "", err
	}
	done += int64(len(first.IDs))
	r = new(verdict.Pruned)
	for _, by := range []struct {
		product bool
		into    *float64
	}{{false, &r.BySize}, {true, &r.ByProduct}} {
		if *by.into, err = p.divergence(ctx, base, m, im, by.product, rest, at); err != nil {
			return nil, "", err
		}
		done += int64(len(rest.IDs))
	}
	return r, "", nil
}

// divergence is the mean KL divergence of the pruned model from the base.
func (p *Prune) divergence(ctx context.Context, base *engine.Engine, m *gguf.Model, im *imatrix.Matrix, product bool, text quality.Text, at func(int64)) (float64, error) {
	changed, err := p.pruned(ctx, m, im, product)
	if err != nil {
		return 0, err
	}
	opt := p.Engine
	opt.Context = text.Block
	e, err := engine.Open(changed, opt)
	if err != nil {
		return 0, err
	}
	defer e.Close()
	defer base.Hold()()
	_, tally, err := quality.EvaluatePair(ctx, quality.OfEngine(base), quality.OfEngine(e), text, at)
	if err != nil {
		return 0, err
	}
	kld, _ := tally.KLD()
	return kld.Value, nil
}

// copyType is the type that a pruned matrix has: its own where a zero is exact there beside any weight.
func copyType(t quant.Type) quant.Type {
	switch t {
	case quant.F32, quant.F16:
		return t
	}
	return quant.BF16
}

// need is the bytes of a pruned copy.
func (p *Prune) need(m *gguf.Model) (n int64) {
	for _, t := range m.Tensors {
		if isPruned(t) {
			n += int64(t.Rows()) * int64(copyType(t.Type).RowBytes(t.Cols()))
		}
	}
	return n
}

// isPruned tells whether a tensor is a matrix of a layer.
func isPruned(t *gguf.Tensor) bool {
	return len(t.Shape) > 1 && strings.HasPrefix(t.Name, "blk.") && strings.HasSuffix(t.Name, ".weight") && t.Cols() > 1
}

// pruned is m without half of the weights of each row of the matrices that im has.
func (p *Prune) pruned(ctx context.Context, m *gguf.Model, im *imatrix.Matrix, product bool) (*gguf.Model, error) {
	changed := map[string]*gguf.Tensor{}
	for _, t := range m.Tensors {
		e := im.Find(t.Name)
		if e == nil || !isPruned(t) || len(e.Sums)%t.Cols() != 0 {
			continue
		}
		x, err := p.prune(ctx, m, t, e, product)
		if err != nil {
			return nil, err
		}
		changed[t.Name] = x
	}
	return m.With(changed), nil
}

// prune is a tensor without half of the weights of each row.
func (p *Prune) prune(ctx context.Context, m *gguf.Model, t *gguf.Tensor, e *imatrix.Entry, product bool) (*gguf.Tensor, error) {
	rows, cols, typ := t.Rows(), t.Cols(), copyType(t.Type)
	size := typ.RowBytes(cols)
	x := &gguf.Tensor{Name: t.Name, Type: typ, Shape: t.Shape, Data: make([]byte, rows*size), File: -1}
	each := (rows*cols + len(e.Sums) - 1) / len(e.Sums) // rows that share sums: experts have some of their own
	const part = 64                                     // rows of a task
	err := (&inspect.Model{Model: m}).Each(ctx, (rows+part-1)/part, p.Workers, func(k int) error {
		row, score, order := make([]float32, cols), make([]float32, cols), make([]float32, cols)
		encoder := quant.NewEncoder(typ, isa.Detect())
		reader := t.Reader()
		for i := k * part; i < min((k+1)*part, rows); i++ {
			quant.Decode(t.Type, row, reader.Rows(i, 1))
			sums := e.Sums[i/each*cols:][:cols]
			for j, w := range row {
				score[j] = float32(math.Abs(float64(w)))
				if product {
					score[j] *= float32(math.Sqrt(sums[j]))
				}
			}
			keepHalf(row, score, order)
			if err := encoder.Encode(x.Data[i*size:][:size], row, nil); err != nil {
				return fmt.Errorf("tensor %s, row %d: %w", t.Name, i, err)
			}
		}
		return nil
	})
	return x, err
}

// keepHalf makes the half of row zero that has the smallest scores; of equal ones the first stay. order is room.
func keepHalf(row, score, order []float32) {
	copy(order, score)
	slices.Sort(order)
	keep := len(row) - len(row)/2
	least := order[len(row)-keep] // the smallest score that may stay
	above := 0
	for _, s := range score {
		if s > least {
			above++
		}
	}
	for j, s := range score {
		switch {
		case s > least:
		case s == least && above < keep:
			above++
		default:
			row[j] = 0
		}
	}
}
