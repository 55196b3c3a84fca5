package quality

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// Two models at once: perplexities and divergences are those of their definitions, over all tokens; a kept base shows
// no more of them; a model has no distance to itself.
func TestEvaluatePair(t *testing.T) {
	const vocab = 90
	base, m := newBigram(vocab, 2), newBigram(vocab, 1)
	x := Cut(text(4*150+7, vocab), 150, 0, 3, true)
	var told []int64
	alone, beside, err := EvaluatePair(t.Context(), base, m, x, func(n int64) { told = append(told, n) })
	if err != nil || !slices.Equal(told, []int64{150, 300, 450, 600}) || len(m.seqs)+len(base.seqs) != 0 {
		t.Fatalf("told of %v, %d and %d sequences are left, %v", told, len(m.seqs), len(base.seqs), err)
	}
	var klds []float64
	sum, same := 0.0, 0
	var keptBase, kept Tally
	for b := range 4 {
		keptBase.Block()
		kept.Block()
		for i := b*150 + 75; i < b*150+149; i++ {
			p, c, next := base.table[x.IDs[i]], m.table[x.IDs[i]], x.IDs[i+1]
			klds = append(klds, fullKLD(p, c))
			sum += klds[len(klds)-1]
			if largest(p) == largest(c) {
				same++
			}
			short := At(p, next, BaseTop)
			keptBase.Add(p, next, nil)
			kept.Add(c, next, &short)
		}
	}
	n := float64(len(klds))
	r, less := beside.Report("m", "base", x), kept.Report("m", "base", x)
	if want := keptBase.Perplexity(); !nearMean(alone.Perplexity(), want) || alone.Tokens != len(klds) ||
		alone.hasBase {
		t.Errorf("base: %+v of %d tokens, want %+v", alone.Perplexity(), alone.Tokens, want)
	}
	if !nearMean(r.Perplexity, less.Perplexity) || !near(r.KLD.Value, sum/n, 1e-9) || r.KLD.Lo >= r.KLD.Value ||
		r.LowerBound || !near(r.Agreement.Value, float64(same)/n, 1e-12) || r.Tokens != len(klds) {
		t.Errorf("%+v, want %g and %g", r, sum/n, float64(same)/n)
	}
	slices.Sort(klds)
	if s := r.KLDSpread; !near(s.Max, klds[len(klds)-1], 1e-9) || !near(s.Median, klds[(len(klds)-1)/2], 1e-9) {
		t.Errorf("%+v, largest %g", *s, klds[len(klds)-1])
	}
	if !less.LowerBound || less.KLDSpread.Max > r.KLDSpread.Max || less.KLD.Value >= r.KLD.Value ||
		!near(less.RMSProb.Value, r.RMSProb.Value, 1e-5) || less.Agreement.Value != r.Agreement.Value {
		t.Errorf("from a kept base: %+v", less)
	}
	if _, beside, err = EvaluatePair(t.Context(), base, newBigram(vocab, 2), x, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	if s, _ := beside.Spread(); s.Max > 1e-12 {
		t.Errorf("to itself: %+v", s)
	}
	for i := range 2 {
		models := [2]Model{base, m}
		models[i] = failing{models[i].(*bigram)}
		_, _, err := EvaluatePair(t.Context(), models[0], models[1], x, func(int64) {})
		if !errors.Is(err, errFailing) || len(m.seqs)+len(base.seqs) != 0 {
			t.Errorf("model %d fails: %v", i, err)
		}
	}
}

func nearMean(a, b Mean) bool {
	return near(a.Value, b.Value, 1e-9) && near(a.Lo, b.Lo, 1e-9) && near(a.Hi, b.Hi, 1e-9)
}

var errFailing = errors.New("failing")

// failing is a model whose logits cannot be had.
type failing struct{ *bigram }

func (f failing) Forward(ctx context.Context, seq int, ids []int32, each func(int, []float32) error) error {
	if each != nil {
		return errFailing
	}
	return f.bigram.Forward(ctx, seq, ids, each)
}

// Two engines in one process, of which one has a coarser cache: a base that was kept shows a lower bound of it.
func TestEvaluatePairOfEngines(t *testing.T) {
	w, err := gguf.Open(testkit.Data(t, "models/stories260K/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var models [2]Model
	for i, typ := range []quant.Type{quant.F32, quant.Q4_0} {
		e, err := engine.Open(w, engine.Options{Threads: 2, KV: typ, KVSet: true})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		models[i] = OfEngine(e)
	}
	x := Cut(text(200, 500), 90, 0, 1, true)
	var saved bytes.Buffer
	head := x.Head("", "", models[0].Vocab())
	alone, err := Evaluate(t.Context(), models[0], x, Options{Save: &saved, Head: head, At: func(int64) {}})
	if err != nil {
		t.Fatal(err)
	}
	base, err := NewBaseReader(&saved)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := Evaluate(t.Context(), models[1], x, Options{Base: base, At: func(int64) {}})
	if err != nil {
		t.Fatal(err)
	}
	was, both, err := EvaluatePair(t.Context(), models[0], models[1], x, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	least, whole := kept.Report("", "", x), both.Report("", "", x)
	if k := whole.KLD.Value; !(k > 1e-6 && least.KLD.Value <= k && least.KLD.Value > 0.5*k) ||
		!nearMean(least.Perplexity, whole.Perplexity) || !nearMean(alone.Perplexity(), was.Perplexity()) {
		t.Errorf("kept %+v, both %+v", least, whole)
	}
}

// Quantiles are those of the list, by nearest rank.
func TestSpread(t *testing.T) {
	q := &Tally{}
	q.Block()
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(1000) {
		q.compared(float64(i+1)/1000, 0, 0, false)
	}
	if s, ok := q.Spread(); !ok || s != (Spread{0.5, 0.99, 0.999, 1}) {
		t.Errorf("%+v", s)
	}
	if _, ok := (&Tally{}).Spread(); ok {
		t.Error("a spread of nothing")
	}
	if d := differ([]float32{1, 3, 3}, []float32{2, 5, 4}, 0); !d.same ||
		math.Abs(d.base-(1-math.Log(math.E+2*math.Exp(3)))) > 1e-12 {
		t.Errorf("%+v", d)
	}
}
