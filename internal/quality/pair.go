package quality

import (
	"context"
	"math"
	"runtime"
	"sync"
)

// piece is the positions whose logits are kept, of both models, until they are compared.
const piece = 32

// EvaluatePair runs two models with one vocabulary over the blocks of a text and compares them position by position,
// over the whole vocabulary. The tallies are those of the base alone, and of the other model beside it. at is told
// how many tokens are done.
func EvaluatePair(
	ctx context.Context, base, other Model, t Text, at func(token int64),
) (alone, beside *Tally, err error) {
	p := pair{models: [2]Model{base, other}, tallies: [2]*Tally{{}, {}}}
	for i := range p.logits {
		p.logits[i] = make([]float32, piece*base.Vocab())
	}
	for b := range t.Blocks() {
		if err := p.block(ctx, t.IDs[b*t.Block:(b+1)*t.Block], t.half()); err != nil {
			return nil, nil, err
		}
		at(int64((b + 1) * t.Block))
	}
	return p.tallies[0], p.tallies[1], nil
}

// pair is a base and another model at work, in this order.
type pair struct {
	models  [2]Model
	tallies [2]*Tally
	logits  [2][]float32 // of a piece
}

// block evaluates a block, whose first half gives context.
func (p *pair) block(ctx context.Context, ids []int32, half int) error {
	var seqs [2]int
	for i, m := range p.models {
		p.tallies[i].Block()
		seqs[i] = m.NewSeq()
		defer m.Drop(seqs[i])
		m.Expect(seqs[i], len(ids))
		if err := m.Forward(ctx, seqs[i], ids[:half], nil); err != nil {
			return err
		}
	}
	vocab := p.models[0].Vocab()
	for from := half; from < len(ids)-1; from += piece {
		to := min(from+piece, len(ids)-1)
		for i, m := range p.models {
			err := m.Forward(ctx, seqs[i], ids[from:to], func(row int, logits []float32) error {
				copy(p.logits[i][row*vocab:], logits)
				return nil
			})
			if err != nil {
				return err
			}
		}
		found := make([]difference, to-from)
		parallel(len(found), func(row int) {
			found[row] = differ(p.logits[0][row*vocab:][:vocab], p.logits[1][row*vocab:][:vocab], ids[from+row+1])
		})
		alone, beside := p.tallies[0], p.tallies[1]
		for _, d := range found {
			alone.count(d.base)
			beside.count(d.other)
			beside.hasBase = true
			beside.compared(d.kld, d.other, d.base, d.same)
		}
	}
	return nil
}

// parallel calls f for 0 to n-1 on all CPUs.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	workers := min(n, runtime.GOMAXPROCS(0))
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}

// difference is what two models make of a position.
type difference struct {
	base, other float64 // log probabilities of the text's token
	kld         float64
	same        bool // the most probable token
}

// differ compares logits over the whole vocabulary. The divergence, the mean of log p - log q by p, is the mean of
// the differences of the logits less the difference of the norms: that takes one exponential for each logit.
func differ(base, other []float32, token int32) difference {
	top, otherTop := largest(base), largest(other)
	m, n := float64(base[top]), float64(other[otherTop])
	sum, otherSum, gap := 0.0, 0.0, 0.0
	for i, x := range base {
		y := float64(other[i])
		e := math.Exp(float64(x) - m)
		sum += e
		otherSum += math.Exp(y - n)
		gap += e * (float64(x) - y)
	}
	norm, otherNorm := m+math.Log(sum), n+math.Log(otherSum)
	return difference{base: float64(base[token]) - norm, other: float64(other[token]) - otherNorm,
		kld: max(gap/sum-norm+otherNorm, 0), same: top == otherTop}
}

// Divergence is the KL divergence of the second logits from the first, in nats, over the whole vocabulary, and whether
// both have the same most probable token.
func Divergence(base, other []float32) (kld float64, same bool) {
	d := differ(base, other, 0)
	return d.kld, d.same
}
