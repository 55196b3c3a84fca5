package attention

import (
	"context"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/quality"
	"ck/internal/quant"
)

// Look says how a model is looked at.
type Look struct {
	Engine engine.Options // the cache is in float32, whatever they say
	Options
	Shares []float64         // of the weights, to leave out in runs of their own, for the perplexity without them
	Note   func(line string) // is told what engines note; nil: nobody is
}

// Passes is how often Of runs the text.
func (l *Look) Passes() int {
	if len(l.Shares) == 0 {
		return 1
	}
	return 2 + len(l.Shares)
}

// Of gathers the report of a model on a text, and the perplexities without the smallest weights. Tokens that At is told
// of are those of all passes.
func (l *Look) Of(ctx context.Context, m *gguf.Model, text quality.Text) (*Report, []Dropped, error) {
	done := int64(0)
	at := func(n int64) {
		if l.At != nil {
			l.At(done + n)
		}
	}
	var exits Exits
	e, err := l.open(m, text, exits.Add)
	if err != nil {
		return nil, nil, err
	}
	opt := l.Options
	opt.At = at
	r, err := exits.Gather(ctx, e, text, opt)
	e.Close()
	if err != nil || len(l.Shares) == 0 {
		return r, nil, err
	}
	perplexity := func(change func(*graph.Graph) error) (float64, error) {
		done += int64(len(text.IDs))
		e, err := l.open(m, text, change)
		if err != nil {
			return 0, err
		}
		defer e.Close()
		q, err := quality.Evaluate(ctx, quality.OfEngine(e), text, quality.Options{At: at})
		if err != nil {
			return 0, err
		}
		return q.Perplexity().Value, nil
	}
	base, err := perplexity(nil)
	if err != nil {
		return nil, nil, err
	}
	var list []Dropped
	for _, s := range l.Shares {
		x, err := perplexity(Drop(s))
		if err != nil {
			return nil, nil, err
		}
		list = append(list, Dropped{Share: s, Perplexity: x, Base: base})
	}
	return r, list, nil
}

// open opens an engine on a graph with the caller's change and one more.
func (l *Look) open(m *gguf.Model, text quality.Text, change func(*graph.Graph) error) (*engine.Engine, error) {
	opt := l.Engine
	opt.KV, opt.KVSet, opt.Context = quant.F32, true, text.Block
	opt.Change = func(g *graph.Graph) error {
		for _, f := range []func(*graph.Graph) error{l.Engine.Change, change} {
			if f == nil {
				continue
			}
			if err := f(g); err != nil {
				return err
			}
		}
		return nil
	}
	e, err := engine.Open(m, opt)
	if err != nil {
		return nil, err
	}
	for _, n := range e.Notes {
		if l.Note != nil {
			l.Note(n)
		}
	}
	return e, nil
}
