package quality

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
)

// Text is a text as ids, in whole blocks that are evaluated by themselves. The second half of each block counts, as
// in llama-perplexity.
type Text struct {
	IDs   []int32 // [blocks * Block]
	Block int     // tokens of a block
}

// Cut makes a Text of the whole blocks of ids, at most so many of them (0: all). first takes the place of each
// block's first token if ok, as BOS does in llama-perplexity; ids are overwritten then.
func Cut(ids []int32, block, most int, first int32, ok bool) Text {
	n := len(ids) / block
	if most > 0 {
		n = min(n, most)
	}
	t := Text{ids[:n*block], block}
	if ok {
		for at := 0; at < len(t.IDs); at += block {
			t.IDs[at] = first
		}
	}
	return t
}

// Blocks is the number of blocks.
func (t Text) Blocks() int { return len(t.IDs) / t.Block }

// half is how many positions of a block only give context.
func (t Text) half() int { return t.Block / 2 }

// Positions is the number of positions that count: those of second halves that have a next token.
func (t Text) Positions() int { return t.Blocks() * (t.Block - t.half() - 1) }

// Hash tells texts apart: the SHA-256 of their ids as little-endian 32-bit numbers.
func (t Text) Hash() string {
	h := sha256.New()
	for _, id := range t.IDs {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Head is the head of a base of this text by a model.
func (t Text) Head(model, modelHash string, vocab int) BaseHead {
	return BaseHead{Model: model, ModelHash: modelHash, Text: t.Hash(), Block: t.Block, Vocab: vocab,
		Top: min(BaseTop, vocab), Positions: t.Positions()}
}

// SameText reports whether two bases hold the same positions, so that they can be compared.
func (h BaseHead) SameText(o BaseHead) bool {
	return h.Text == o.Text && h.Block == o.Block && h.Vocab == o.Vocab && h.Positions == o.Positions
}

// BaseError says that the base cannot be read.
type BaseError struct{ Err error }

func (e *BaseError) Error() string { return e.Err.Error() }
func (e *BaseError) Unwrap() error { return e.Err }

// Options are what Evaluate may have beside model and text.
type Options struct {
	Base *BaseReader       // compare with this one, of the same text; nil: none
	Save io.Writer         // gets a base of this model; nil: none
	Head BaseHead          // of Save
	At   func(token int64) // is told how many tokens are done
}

// Evaluate runs a model over the blocks of a text, each in a sequence of its own. An error of Options.Base is a
// *BaseError.
func Evaluate(ctx context.Context, m Model, t Text, opt Options) (*Tally, error) {
	if opt.Save != nil {
		if err := WriteBaseHead(opt.Save, opt.Head); err != nil {
			return nil, err
		}
	}
	q := &Tally{}
	for b := range t.Blocks() {
		if err := q.block(ctx, m, t.IDs[b*t.Block:(b+1)*t.Block], t.half(), opt); err != nil {
			return nil, err
		}
		opt.At(int64((b + 1) * t.Block))
	}
	return q, nil
}

// block evaluates a block, whose first half gives context.
func (q *Tally) block(ctx context.Context, m Model, ids []int32, half int, opt Options) error {
	seq := m.NewSeq()
	defer m.Drop(seq)
	m.Expect(seq, len(ids))
	q.Block()
	if err := m.Forward(ctx, seq, ids[:half], nil); err != nil {
		return err
	}
	return m.Forward(ctx, seq, ids[half:len(ids)-1], func(i int, logits []float32) error {
		return q.position(logits, ids[half+i+1], opt)
	})
}

// position takes the logits of a position whose next token is token.
func (q *Tally) position(logits []float32, token int32, opt Options) error {
	var base *Position
	if opt.Base != nil {
		var err error
		if base, err = opt.Base.Next(); err != nil {
			return &BaseError{err}
		}
	}
	q.Add(logits, token, base)
	if opt.Save != nil {
		return WritePosition(opt.Save, At(logits, token, min(BaseTop, len(logits))))
	}
	return nil
}

// Report is a tally as a document, schema ck.bench.quality/1.
type Report struct {
	Schema     string  `json:"schema"`
	Model      string  `json:"model"`
	Base       string  `json:"base,omitempty"`
	Blocks     int     `json:"blocks"`
	BlockSize  int     `json:"block_tokens"`
	Tokens     int     `json:"tokens"` // counted
	Perplexity Mean    `json:"perplexity"`
	BasePPL    *Mean   `json:"base_perplexity,omitempty"` // where the base is a model, not a kept file
	KLD        *Mean   `json:"kl_divergence,omitempty"`
	LowerBound bool    `json:"kl_divergence_is_lower_bound,omitempty"` // the base keeps the most probable tokens only
	KLDSpread  *Spread `json:"kl_divergence_spread,omitempty"`
	Agreement  *Mean   `json:"top1_agreement,omitempty"`
	RMSProb    *Mean   `json:"rms_probability_difference,omitempty"`
}

// Report sums up what a model gave a text; base names the model of the base, if there was one.
func (q *Tally) Report(model, base string, t Text) Report {
	r := Report{Schema: "ck.bench.quality/1", Model: model, Blocks: t.Blocks(), BlockSize: t.Block, Tokens: q.Tokens,
		Perplexity: q.Perplexity()}
	if kld, ok := q.KLD(); ok {
		top, _ := q.Agreement()
		rms, _ := q.RMSProb()
		spread, _ := q.Spread()
		r.Base, r.KLD, r.Agreement, r.RMSProb, r.KLDSpread, r.LowerBound = base, &kld, &top, &rms, &spread, q.cut
	}
	return r
}
