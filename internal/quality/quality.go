// Package quality judges models by their logits: the perplexity of a text, the distance to a base that was kept,
// multiple-choice questions. It knows neither files of models nor command lines, and prints nothing.
package quality

import (
	"context"

	"ck/internal/engine"
	"ck/internal/walk"
)

// Rows is one walk: row i is token IDs[i] at position Pos[i] of sequence Seq[i]. Pick names the rows whose logits are
// wanted.
type Rows struct {
	IDs, Pos []int32
	Seq      []int
	Pick     []int32
}

// Model turns rows of tokens into logits. Logits belong to the model, until the function that gets them returns.
type Model interface {
	// Vocab is the number of logits of a row.
	Vocab() int
	// NewSeq begins a sequence, Truncate forgets its positions from n on, Drop ends it.
	NewSeq() int
	// Expect says how long a sequence may become, before its first position.
	Expect(seq, n int) bool
	Truncate(seq, n int)
	Drop(seq int)
	// Forward appends ids to a sequence. each, unless nil, gets the index and the logits [vocabulary] of every id, in
	// order.
	Forward(ctx context.Context, seq int, ids []int32, each func(i int, logits []float32) error) error
	// Walk evaluates rows of any sequences together. each gets the row and the logits of those that Pick names, in
	// order.
	Walk(ctx context.Context, rows *Rows, each func(row int, logits []float32) error) error
}

// OfEngine is an engine as a Model. The caller holds the engine (engine.Hold) where it wants the calling goroutine to
// be worker 0.
func OfEngine(e *engine.Engine) Model { return engineModel{e} }

type engineModel struct{ *engine.Engine }

func (m engineModel) Vocab() int { return m.Graph.Vocab }

func (m engineModel) Forward(ctx context.Context, seq int, ids []int32,
	each func(i int, logits []float32) error) error {
	if each == nil {
		return m.Engine.Forward(ctx, seq, ids, engine.None, nil)
	}
	return m.Engine.Forward(ctx, seq, ids, engine.All, each)
}

func (m engineModel) Walk(ctx context.Context, rows *Rows, each func(row int, logits []float32) error) error {
	w, err := m.Engine.Walk(ctx, &walk.Batch{IDs: rows.IDs, Pos: rows.Pos, Seq: rows.Seq, Pick: rows.Pick})
	if err != nil {
		return err
	}
	for i, row := range rows.Pick {
		if err := each(int(row), w.Logits(i)); err != nil {
			return err
		}
	}
	return nil
}

// InputError says that a question or a model cannot be used.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }
