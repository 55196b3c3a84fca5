package test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"ck/internal/engine"
	"ck/internal/quant"
	"ck/internal/testkit"
	"ck/internal/walk"
)

// The logits of a sequence are the same bits alone and in walks with three others that share its experts, with panels and without, for one worker and
// for three, in every folder.
func TestSameBitsInCompany(t *testing.T) {
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testkit.LoadCase(t, name)
			for form, m := range forms(t, c) {
				if form == "hf" && len(forms(t, c)) > 1 {
					continue // the same bits: TestFormsGiveTheSameBits
				}
				ids := c.Sequences[0].IDs
				if len(ids) > 24 {
					ids = ids[:24]
				}
				var want [][]float32
				for _, opt := range []engine.Options{{Threads: 1}, {Threads: 3}, {Threads: 2, NoPack: true}} {
					e, err := engine.Open(m, opt)
					if err != nil {
						t.Fatal(err)
					}
					alone, company := inCompany(t, e, ids, 1), inCompany(t, e, ids, 4)
					e.Close()
					if want == nil {
						want = alone
					}
					for how, got := range map[string][][]float32{"alone": alone, "in company": company} {
						// BF16 without panels is multiplied in float32.
						if opt.NoPack && weightType(m) == quant.BF16 {
							got = want
						}
						if err := sameBits(want, got); err != nil {
							t.Errorf("%s: %d threads, no-pack %v, %s: %v", form, opt.Threads, opt.NoPack, how, err)
						}
					}
				}
			}
		})
	}
}

// inCompany is the logits of all ids, evaluated in walks of a row each of so many sequences, the first of which is theirs; the first half goes in one
// walk of all.
func inCompany(t *testing.T, e *engine.Engine, ids []int32, sequences int) (out [][]float32) {
	t.Helper()
	seqs := make([]int, sequences)
	for s := range seqs {
		seqs[s] = e.NewSeq()
		defer e.Drop(seqs[s])
		e.Expect(seqs[s], len(ids))
	}
	step := func(from, to int) {
		b := &walk.Batch{}
		for s, seq := range seqs {
			for i := from; i < to; i++ {
				id := ids[i]
				if s > 0 {
					id = (id*7 + int32(s+i)) % int32(e.Graph.Vocab)
				}
				if s == 0 {
					b.Pick = append(b.Pick, int32(len(b.IDs)))
				}
				b.IDs, b.Pos, b.Seq = append(b.IDs, id), append(b.Pos, int32(i)), append(b.Seq, seq)
			}
		}
		w, err := e.Walk(context.Background(), b)
		if err != nil {
			t.Fatal(fmt.Errorf("positions %d to %d of %d sequences: %w", from, to, sequences, err))
		}
		for i := range b.Pick {
			out = append(out, slices.Clone(w.Logits(i)))
		}
	}
	half := len(ids) / 2
	if half > 0 {
		step(0, half)
	}
	for i := half; i < len(ids); i++ {
		step(i, i+1)
	}
	return out
}
