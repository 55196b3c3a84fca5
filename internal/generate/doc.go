// Package generate turns prompts into text: it opens a model with its tokenizer and chat template, renders conversations, samples,
// stops, and keeps the state of a conversation between turns.
package generate

import (
	"context"

	"ck/internal/engine"
)

// Engine is what the package needs of internal/engine: a model that moves sequences forward.
type Engine interface {
	// Forward appends ids to a sequence and calls each with the logits [vocabulary] of the rows that want asks for.
	Forward(ctx context.Context, seq int, ids []int32, want engine.Want, each func(i int, logits []float32) error) error
	NewSeq() int
	Len(seq int) int
	// Expect says how long a sequence may become; false: what it holds was made for another length, and has to go.
	Expect(seq, n int) bool
	Truncate(seq, n int)
	Drop(seq int)
}

// watcher is an engine that tells how many rows of the present Forward are done.
type watcher interface {
	Watch(func(rows float64))
}

// holder is an engine that can keep the calling goroutine on one thread between walks.
type holder interface {
	Hold() (release func())
}
