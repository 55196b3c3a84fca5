package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/engine"
	"ck/internal/feedback"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/imatrix"
	"ck/internal/isa"
	"ck/internal/quant"
)

// calibration makes the coders of tensors with error feedback, layer by layer: the covariances of a layer are
// those of the inputs that the quantized layers before it make.
type calibration struct {
	p        *program
	model    *generate.Model
	layers   *imatrix.Layers
	workers  int
	features isa.Features

	mu      sync.Mutex // tensors are asked for by several workers
	tensors map[string]*coded
}

// coded is a tensor of the output.
type coded struct {
	*convert.Tensor
	feedback bool
	given    []float64   // the covariance that --imatrix has
	kept     io.ReaderAt // what an earlier run made
	coder    convert.Coder
}

func (c *calibration) close() {
	if c.model != nil {
		c.model.Close()
	}
}

// prepareFeedback gives the tensors that can be quantized with error feedback their coders. Covariances come
// from the matrix of --imatrix if it has them, else from the text of -f.
func (p *program) prepareFeedback(
	ctx context.Context, m *gguf.Model, tensors []convert.Tensor, x *importances,
) (*calibration, error) {
	c := &calibration{p: p, tensors: map[string]*coded{}}
	text := false
	for i := range tensors {
		t := &tensors[i]
		d := &coded{Tensor: t, feedback: p.takesFeedback(t)}
		c.tensors[t.From.Name] = d
		if !d.feedback {
			continue
		}
		if x != nil {
			if e := x.Find(t.From.Name); e != nil {
				d.given = e.Covariance
			}
		}
		text = text || d.given == nil
		t.Prepare = func(ctx context.Context) (convert.Coder, error) { return c.coderOf(ctx, d) }
		t.Kept = func(data io.ReaderAt) { d.kept = data }
	}
	if !text {
		return c, nil
	}
	if p.planned.file == "" {
		return nil, cli.Usage("--method feedback: needs a text (-f), or an --imatrix that was gathered with --covariance")
	}
	if err := c.open(ctx, m.Path); err != nil {
		c.close()
		return nil, err
	}
	for i := range tensors {
		tensors[i].Turn = c.layers.StageOf(tensors[i].From.Name)
	}
	return c, nil
}

// takesFeedback reports whether a tensor can be quantized with error feedback.
func (p *program) takesFeedback(t *convert.Tensor) bool {
	f := t.From
	if t.Type == f.Type || !quantizable(f) || f.Name == "token_embd.weight" {
		return false
	}
	if t.Type.Levels() != nil && len(f.Shape) <= 2 {
		return true
	}
	if t.Type.BlockElems() > 1 {
		p.app.Info("tensor %s: %v has no error feedback here; its scales are searched", f.Name, t.Type)
	}
	return false
}

// open opens the model for the text.
func (c *calibration) open(ctx context.Context, path string) error {
	p := c.p
	text, err := p.app.ReadText(p.planned.file)
	if err != nil {
		return err
	}
	var whole *engine.Engine
	if c.model, whole, err = p.openEngine(path); err != nil {
		return err
	}
	defer whole.Close()
	if c.workers, err = p.workers(); err != nil {
		return err
	}
	if c.features, err = p.features(); err != nil {
		return err
	}
	block := p.planned.block
	if c.model.Context > 0 {
		block = min(block, c.model.Context)
	}
	blocks, err := imatrix.BlocksOf(c.model.Tok, text, imatrix.Options{Block: block, Most: p.quantize.calibration})
	if err != nil {
		return err
	}
	c.layers = &imatrix.Layers{Model: c.model.Weights, Change: c.change,
		Open: func(m *gguf.Model, g *graph.Graph) (*engine.Engine, error) {
			return engine.OpenGraph(m, g, p.engineOptions(1))
		},
		Wanted: func(name string) bool {
			d := c.tensors[name]
			return d != nil && d.feedback && d.given == nil && d.kept == nil
		}}
	if err := c.layers.Begin(whole.Graph, blocks); err != nil {
		return err
	}
	return c.sayTime(ctx, whole)
}

// sayTime says how long covariances take, where a user would wonder.
func (c *calibration) sayTime(ctx context.Context, whole *engine.Engine) error {
	const wonder = 10 * time.Second
	t, err := c.layers.Estimate(ctx, whole)
	if err == nil && t >= wonder {
		c.p.app.Note("covariances of all layers take about %v beside the walks; --calibration-blocks takes less of the text",
			t.Round(time.Second))
	}
	return err
}

// coderOf is the coder of a tensor. It goes through the layers until it is there.
func (c *calibration) coderOf(ctx context.Context, d *coded) (convert.Coder, error) {
	if c.layers == nil {
		return d.newCoder(slices.Clone(d.given))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for d.coder == nil {
		if c.layers.Next() == c.layers.Stages() {
			return nil, cli.Input("tensor %s: no step of the model multiplies it", d.From.Name)
		}
		c.p.app.Info("stage %d of %d over the text", c.layers.Next()+1, c.layers.Stages())
		if err := c.layers.Step(ctx); err != nil {
			return nil, err
		}
	}
	coder := d.coder
	d.coder = nil // who asked has it; nobody asks twice
	return coder, nil
}

// newCoder is the coder of the tensor for the covariance of its inputs, which it overwrites.
func (d *coded) newCoder(h []float64) (convert.Coder, error) {
	e, err := feedback.New(d.Type, h, d.From.Cols())
	if err != nil {
		return nil, cli.Input("tensor %s: %w", d.From.Name, err)
	}
	return feedback.NewCoder(e), nil
}

// change is a tensor of the model as the output has it.
func (c *calibration) change(ctx context.Context, t *gguf.Tensor, h []float64) (*gguf.Tensor, error) {
	d := c.tensors[t.Name]
	if d == nil || d.Type == t.Type {
		return t, nil
	}
	size := d.Type.RowBytes(t.Cols())
	q := &gguf.Tensor{Name: t.Name, Type: d.Type, Shape: t.Shape, Data: make([]byte, t.Rows()*size), File: -1}
	if d.kept != nil {
		_, err := d.kept.ReadAt(q.Data, 0)
		return q, err
	}
	if d.feedback {
		if h == nil {
			h = slices.Clone(d.given)
		}
		var err error
		if d.coder, err = d.newCoder(h); err != nil {
			return nil, err
		}
	}
	return q, c.encode(ctx, q, t, d)
}

// encodedRows is how many rows are encoded at once.
const encodedRows = 64

// encode quantizes all rows of a tensor. A row's codes are its own, whatever the cut.
func (c *calibration) encode(ctx context.Context, q, t *gguf.Tensor, d *coded) error {
	var next atomic.Int64
	errs := make([]error, c.workers)
	var group sync.WaitGroup
	for w := range errs {
		group.Go(func() {
			for ctx.Err() == nil && errs[w] == nil {
				from := int(next.Add(encodedRows)) - encodedRows
				if from >= t.Rows() {
					return
				}
				errs[w] = c.model.Weights.Guard(func() error { return c.encodeRows(q, t, d, from) })
			}
		})
	}
	group.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// encodeRows quantizes the rows of a tensor from one on.
func (c *calibration) encodeRows(q, t *gguf.Tensor, d *coded, from int) error {
	to := min(from+encodedRows, t.Rows())
	size, cols := d.Type.RowBytes(t.Cols()), t.Cols()
	x, rows := make([]float32, (to-from)*cols), t.Reader()
	for r := from; r < to; r++ {
		quant.Decode(t.Type, x[(r-from)*cols:][:cols], rows.Row(r))
	}
	dst := q.Data[from*size : to*size]
	var err error
	if d.feedback {
		err = d.coder.Encode(dst, x)
	} else {
		err = quant.NewEncoder(d.Type, c.features).Encode(dst, x, d.Importance)
	}
	if err != nil {
		return fmt.Errorf("tensor %s: rows from %d on: %w", t.Name, from, err)
	}
	return nil
}
