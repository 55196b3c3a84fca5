package quality

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// bigram is a model whose logits depend on the last token alone: table [vocabulary][vocabulary].
type bigram struct {
	table [][]float32
	seqs  map[int][]int32
	next  int
}

func newBigram(vocab int, seed uint64) *bigram {
	m := &bigram{seqs: map[int][]int32{}}
	rng := rand.New(rand.NewPCG(seed, 4))
	for range vocab {
		m.table = append(m.table, randomLogits(rng, vocab))
	}
	return m
}

func (m *bigram) Vocab() int           { return len(m.table) }
func (m *bigram) NewSeq() int          { m.next++; m.seqs[m.next] = nil; return m.next }
func (m *bigram) Expect(int, int) bool { return true }
func (m *bigram) Truncate(seq, n int)  { m.seqs[seq] = m.seqs[seq][:n] }
func (m *bigram) Drop(seq int)         { delete(m.seqs, seq) }

func (m *bigram) Forward(_ context.Context, seq int, ids []int32, each func(int, []float32) error) error {
	for i, id := range ids {
		m.seqs[seq] = append(m.seqs[seq], id)
		if each == nil {
			continue
		}
		if err := each(i, m.table[id]); err != nil {
			return err
		}
	}
	return nil
}

func (m *bigram) Walk(_ context.Context, rows *Rows, each func(int, []float32) error) error {
	for i, id := range rows.IDs {
		if len(m.seqs[rows.Seq[i]]) != int(rows.Pos[i]) {
			return errors.New("a row does not continue its sequence")
		}
		m.seqs[rows.Seq[i]] = append(m.seqs[rows.Seq[i]], id)
	}
	for _, row := range rows.Pick {
		if err := each(int(row), m.table[rows.IDs[row]]); err != nil {
			return err
		}
	}
	return nil
}

// text is ids of a vocabulary.
func text(n, vocab int) []int32 {
	rng := rand.New(rand.NewPCG(6, 7))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(int32(vocab))
	}
	return ids
}

// Whole blocks count, with the given token in front of each, and of a block the positions of its second half that
// have a next token.
func TestCut(t *testing.T) {
	ids := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	for _, c := range []struct {
		block, most      int
		first            bool
		want             []int32
		blocks, position int
	}{{4, 0, true, []int32{0, 2, 3, 4, 0, 6, 7, 8, 0, 10, 11, 12}, 3, 3},
		{4, 2, false, []int32{1, 2, 3, 4, 5, 6, 7, 8}, 2, 2}, {5, 9, false, ids[:10], 2, 4},
		{15, 0, true, []int32{}, 0, 0}} {
		x := Cut(slices.Clone(ids), c.block, c.most, 0, c.first)
		if !slices.Equal(x.IDs, c.want) || x.Blocks() != c.blocks || x.Positions() != c.position {
			t.Errorf("blocks of %d: %v, %d blocks, %d positions", c.block, x.IDs, x.Blocks(), x.Positions())
		}
	}
	a, b := Cut(ids, 4, 0, 0, false), Cut(ids, 7, 0, 0, false)
	if a.Hash() == b.Hash() || a.Hash() != Cut(ids, 6, 0, 0, false).Hash() {
		t.Error("the hash is that of the ids")
	}
	if a.Head("m", "h", 50).SameText(b.Head("m", "h", 50)) || !a.Head("m", "h", 50).SameText(a.Head("n", "i", 50)) ||
		a.Head("m", "h", 50).SameText(a.Head("m", "h", 51)) {
		t.Error("bases are of one text where ids, blocks and vocabulary are")
	}
}

// The perplexity is that of its definition, and a base by the same model has no distance to it.
func TestEvaluate(t *testing.T) {
	m := newBigram(40, 1)
	x := Cut(text(50, 40), 16, 0, 3, true)
	var saved bytes.Buffer
	var told []int64
	q, err := Evaluate(t.Context(), m, x, Options{Save: &saved, Head: x.Head("m", "h", 40),
		At: func(n int64) { told = append(told, n) }})
	if err != nil || !slices.Equal(told, []int64{16, 32, 48}) || len(m.seqs) != 0 {
		t.Fatalf("told of %v, %d sequences are left, %v", told, len(m.seqs), err)
	}
	nll, n := 0.0, 0
	for b := range 3 {
		for i := b*16 + 8; i < b*16+15; i++ {
			nll += logNorm(m.table[x.IDs[i]]) - float64(m.table[x.IDs[i]][x.IDs[i+1]])
			n++
		}
	}
	r := q.Report("m", "none", x)
	if want := math.Exp(nll / float64(n)); !near(r.Perplexity.Value, want, 1e-12) || r.Tokens != n || r.Blocks != 3 ||
		r.KLD != nil || r.Base != "" {
		t.Errorf("%+v, want %g of %d tokens", r, want, n)
	}
	for seed, same := range map[uint64]bool{1: true, 2: false} {
		base, err := NewBaseReader(bytes.NewReader(saved.Bytes()))
		if err != nil || !base.Head.SameText(x.Head("", "", 40)) {
			t.Fatal(base, err)
		}
		q, err := Evaluate(t.Context(), newBigram(40, seed), x, Options{Base: base, At: func(int64) {}})
		if err != nil {
			t.Fatal(err)
		}
		if r := q.Report("m", base.Head.Model, x); r.Base != "m" || (r.KLD.Value < 1e-6) != same ||
			(r.Agreement.Value == 1) != same {
			t.Errorf("model %d: %+v", seed, r)
		}
	}
	short, err := NewBaseReader(bytes.NewReader(saved.Bytes()[:saved.Len()-1]))
	if err != nil {
		t.Fatal(err)
	}
	var bad *BaseError
	if _, err := Evaluate(t.Context(), m, x, Options{Base: short, At: func(int64) {}}); !errors.As(err, &bad) ||
		err.Error() != "ends at position 20 of 21" || len(m.seqs) != 0 {
		t.Errorf("a base that was cut: %v", err)
	}
}
