package quality

import "context"

// piece is the positions whose logits of the base are kept while the other model makes its own.
const piece = 64

// EvaluatePair runs two models with one vocabulary over the blocks of a text and compares them position by position, over the whole
// vocabulary. The tallies are those of the base alone, and of the other model beside it. at is told how many tokens are done.
func EvaluatePair(ctx context.Context, base, other Model, t Text, at func(token int64)) (alone, beside *Tally, err error) {
	alone, beside = &Tally{}, &Tally{}
	kept := make([]float32, piece*base.Vocab())
	for b := range t.Blocks() {
		if err := pairBlock(ctx, base, other, t.IDs[b*t.Block:(b+1)*t.Block], t.half(), kept, alone, beside); err != nil {
			return nil, nil, err
		}
		at(int64((b + 1) * t.Block))
	}
	return alone, beside, nil
}

// pairBlock evaluates a block, whose first half gives context.
func pairBlock(ctx context.Context, base, other Model, ids []int32, half int, kept []float32, alone, beside *Tally) error {
	a, b := base.NewSeq(), other.NewSeq()
	defer base.Drop(a)
	defer other.Drop(b)
	alone.Block()
	beside.Block()
	for _, m := range []struct {
		Model
		seq int
	}{{base, a}, {other, b}} {
		if err := m.Forward(ctx, m.seq, ids[:half], nil); err != nil {
			return err
		}
	}
	v := base.Vocab()
	for from := half; from < len(ids)-1; from += piece {
		to := min(from+piece, len(ids)-1)
		err := base.Forward(ctx, a, ids[from:to], func(i int, logits []float32) error {
			copy(kept[i*v:], logits)
			alone.Add(logits, ids[from+i+1], nil)
			return nil
		})
		if err != nil {
			return err
		}
		err = other.Forward(ctx, b, ids[from:to], func(i int, logits []float32) error {
			beside.AddPair(kept[i*v:(i+1)*v], logits, ids[from+i+1])
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
