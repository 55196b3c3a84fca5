package imatrix

import (
	"context"
	"slices"
	"time"
	"unsafe"

	"ck/asm/mat"
	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/linalg"
	"ck/internal/plan"
	"ck/internal/quality"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/tokenizer"
	"ck/internal/walk"
)

// Layers goes through a model layer by layer, with the hidden states that the changed layers before have made.
// Of all rows of a text one hidden state is kept, and the covariances of one layer at a time.
type Layers struct {
	Model  *gguf.Model
	Open   func(m *gguf.Model, g *graph.Graph) (*engine.Engine, error)
	Wanted func(tensor string) bool // its covariance is asked for

	// Change is what a tensor is to be for the layers behind. covariance is nil where it is not wanted, else
	// Change's own.
	Change func(ctx context.Context, t *gguf.Tensor, covariance []float64) (*gguf.Tensor, error)

	graph  *graph.Graph
	stages []graph.Stage
	text   quality.Text
	next   int
	hidden []float32 // of all rows, before the next stage
	rows   []int32   // 0, 1, …: what walks behind the first stage have for tokens
}

// hiddenName is what the hidden states are called among the weights of a stage.
const hiddenName = "hidden"

// BlocksOf is a text as Collect evaluates it: blocks with BOS in place of their first token where the vocabulary
// asks for it.
func BlocksOf(tok *tokenizer.Tokenizer, text string, opt Options) (quality.Text, error) {
	if opt.Block == 0 {
		opt.Block = DefaultBlock
	}
	ids := tok.Encode(nil, text, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: opt.Special})
	bos, ok := tok.BOS()
	whole := quality.Cut(ids, opt.Block, 0, bos, ok && tok.AddBOS())
	if opt.Skip >= whole.Blocks() {
		return quality.Text{}, &TextError{len(ids), (opt.Skip + 1) * opt.Block}
	}
	t := quality.Text{IDs: whole.IDs[opt.Skip*opt.Block:], Block: opt.Block}
	if opt.Most > 0 && t.Blocks() > opt.Most {
		t.IDs = t.IDs[:opt.Most*opt.Block]
	}
	return t, nil
}

// Begin takes the model's graph and a text.
func (l *Layers) Begin(g *graph.Graph, text quality.Text) (err error) {
	l.graph, l.text = g, text
	if l.stages, err = g.Stages(); err != nil {
		return err
	}
	l.rows = make([]int32, len(text.IDs))
	for i := range l.rows {
		l.rows[i] = int32(i)
	}
	return nil
}

// Estimate is how long the products of the covariances take on the workers of an engine of the model, at a rate that
// it measures: the walks come on top.
func (l *Layers) Estimate(ctx context.Context, e *engine.Engine) (time.Duration, error) {
	inputs, err := inputsOf(l.graph, &Options{Output: true, Covariance: l.Wanted})
	if err != nil {
		return 0, err
	}
	products := 0.0
	for _, s := range inputs {
		if len(s.wanted) > 0 {
			products += float64(s.width) * float64(s.width+mat.Columns) / 2
		}
	}
	workers := e.Threads(plan.Many)
	a := adder{}
	if a.team, err = e.Team(workers); err != nil {
		return 0, err
	}
	each := func(n int, f func(int)) error { return a.each(ctx, n, f) }
	rate, err := linalg.Rate(each, workers, linalg.WidthOf(e.Tier))
	if err != nil {
		return 0, err
	}
	return time.Duration(products * float64(len(l.text.IDs)) / rate * float64(time.Second)), nil
}

// Stages is how many stages there are: the embedding, the layers, what stands behind them.
func (l *Layers) Stages() int { return len(l.stages) }

// StageOf is the stage that has the tensor; that of a tensor of none is 0. An embedding that is the output as
// well is of the first.
func (l *Layers) StageOf(tensor string) int {
	for i, st := range l.stages {
		for _, s := range l.graph.Steps[st.First:st.End] {
			if slices.ContainsFunc(s.W, func(w graph.WeightID) bool { return l.graph.Weights[w].Name == tensor }) {
				return i
			}
		}
	}
	return 0
}

// Next is the stage that Step does.
func (l *Layers) Next() int { return l.next }

// Step does the next stage: covariances of its inputs, its changed tensors, and the hidden states that they make.
func (l *Layers) Step(ctx context.Context) error {
	g, err := l.graph.Cut(l.stages[l.next], step.Embed{}, hiddenName, len(l.rows))
	if err != nil {
		return err
	}
	covariances, err := l.gather(ctx, g)
	if err != nil {
		return err
	}
	changed := map[string]*gguf.Tensor{}
	last := l.next == len(l.stages)-1
	for _, w := range g.Weights {
		if w.Name == hiddenName || w.From > 0 || last && !l.Wanted(w.Name) {
			continue
		}
		h := covariances[w.Name]
		delete(covariances, w.Name)
		if changed[w.Name], err = l.Change(ctx, l.Model.Tensor(w.Name), h); err != nil {
			return err
		}
	}
	if l.next++; last {
		return nil
	}
	return l.forward(ctx, g, l.Model.With(changed))
}

// gather is the covariances of the inputs of a stage's tensors.
func (l *Layers) gather(ctx context.Context, g *graph.Graph) (map[string][]float64, error) {
	have := map[string][]float64{}
	if !slices.ContainsFunc(g.Weights, func(w graph.Weight) bool { return l.Wanted(w.Name) }) {
		return have, nil
	}
	e, text, err := l.open(g, l.Model.With(nil))
	if err != nil {
		return nil, err
	}
	defer e.Close()
	c, err := newCollector(e, text, Options{Output: true, Covariance: l.Wanted})
	if err != nil {
		return nil, err
	}
	defer e.Hold()()
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	m := c.matrix()
	m.unshare()
	for i := range m.Entries {
		if x := &m.Entries[i]; x.Covariance != nil {
			have[x.Name] = x.Covariance
		}
	}
	return have, nil
}

// forward makes the hidden states behind a stage. A walk has read its rows before they are overwritten.
func (l *Layers) forward(ctx context.Context, g *graph.Graph, m *gguf.Model) error {
	e, text, err := l.open(g, m)
	if err != nil {
		return err
	}
	defer e.Close()
	if l.hidden == nil { // the first stage begins with tokens
		l.hidden = make([]float32, len(l.rows)*g.Width(g.Logits))
	}
	done := 0
	see := func(_ *walk.Batch, view func(graph.ValueID) walk.View) error {
		done += copy(l.hidden[done:], view(g.Logits).Data)
		return nil
	}
	e.SetTap(&engine.Tap{Values: []graph.ValueID{g.Logits}, Stop: true, See: see})
	p, err := e.Plan(plan.Many)
	if err != nil {
		return err
	}
	defer e.Hold()()
	c := &collector{e: e, text: text, rows: min(p.MaxRows, p.MaxPicks)}
	return c.run(ctx)
}

// open opens a stage's graph, with what walks have for tokens.
func (l *Layers) open(g *graph.Graph, m *gguf.Model) (*engine.Engine, quality.Text, error) {
	text := l.text
	if l.hidden != nil {
		text.IDs = l.rows
		data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(l.hidden))), 4*len(l.hidden))
		t := &gguf.Tensor{Name: hiddenName, Type: quant.F32, Shape: []int{len(l.hidden) / len(l.rows), len(l.rows)},
			Data: data, File: -1}
		if err := m.Add(t); err != nil {
			return nil, text, err
		}
	}
	e, err := l.Open(m, g)
	return e, text, err
}
