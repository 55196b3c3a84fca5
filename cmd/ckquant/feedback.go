package main

import (
	"context"
	"time"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/engine"
	"ck/internal/feedback"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/imatrix"
)

// calibration is what covariances are gathered with.
type calibration struct {
	model  *generate.Model
	engine *engine.Engine
	from   *imatrix.Covariances
}

func (c *calibration) close() {
	if c != nil {
		c.engine.Close()
		c.model.Close()
	}
}

// prepareFeedback gives the tensors that can be quantized with error feedback their coders. Covariances come from the
// matrix of --imatrix if it has them, else from the text of -f.
func (p *program) prepareFeedback(
	ctx context.Context, m *gguf.Model, tensors []convert.Tensor, x *importances,
) (*calibration, error) {
	o := &p.planned
	var names []string
	kept := map[string]bool{}
	columns := map[string]int{}
	for i := range tensors {
		t := &tensors[i]
		f := t.From
		if t.Type == f.Type || !quantizable(f) || f.Name == "token_embd.weight" {
			continue
		}
		if t.Type.Levels() == nil || len(f.Shape) > 2 {
			if t.Type.BlockElems() > 1 {
				p.app.Info("tensor %s: %v has no error feedback here; its scales are searched", f.Name, t.Type)
			}
			continue
		}
		if x != nil {
			if e := x.Find(f.Name); e != nil && e.Covariance != nil {
				kept[f.Name] = true
			}
		}
		if !kept[f.Name] {
			names = append(names, f.Name)
		}
		columns[f.Name] = f.Cols()
	}
	var cal *calibration
	if len(names) > 0 {
		if o.file == "" {
			return nil, cli.Usage("--method feedback: needs a text (-f), or an --imatrix that was gathered with " +
				"--covariance")
		}
		var err error
		if cal, err = p.calibrate(ctx, m, names, columns); err != nil {
			return nil, err
		}
	}
	for i := range tensors {
		t := &tensors[i]
		name := t.From.Name
		if columns[name] == 0 {
			continue
		}
		t.Prepare = func(ctx context.Context) (convert.Coder, error) {
			var h []float64
			var err error
			if kept[name] {
				h = append(h, x.Find(name).Covariance...)
			} else if h, err = cal.from.Of(ctx, name); err != nil {
				return nil, err
			}
			e, err := feedback.New(t.Type, h, t.From.Cols())
			if err != nil {
				return nil, cli.Input("tensor %s: %w", name, err)
			}
			return feedback.NewCoder(e), nil
		}
	}
	return cal, nil
}

// calibrate opens the model for the text.
func (p *program) calibrate(
	ctx context.Context, m *gguf.Model, names []string, columns map[string]int,
) (*calibration, error) {
	o := &p.planned
	text, err := p.app.ReadText(o.file)
	if err != nil {
		return nil, err
	}
	g, e, err := p.openEngine(m.Path)
	if err != nil {
		return nil, err
	}
	c := &calibration{model: g, engine: e}
	block := o.block
	if g.Context > 0 {
		block = min(block, g.Context)
	}
	c.from = &imatrix.Covariances{Engine: e, Tok: g.Tok, Text: text, Names: names, Room: p.memoryLeft() / 3,
		Opt:   imatrix.Options{Block: block, Most: p.quantize.calibration},
		Bytes: func(name string) int64 { return covarianceBytes(columns[name]) },
		Told: func(group, of int) {
			p.app.Info("pass %d of %d over the text, for the covariances of some matrices", group, of)
		}}
	if err := p.sayTime(ctx, c.from); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// sayTime says how long covariances take, where a user would wonder.
func (p *program) sayTime(ctx context.Context, c *imatrix.Covariances) error {
	const wonder = 10 * time.Second
	t, err := c.Estimate(ctx)
	if err != nil || t < wonder {
		return err
	}
	p.app.Note("covariances of %d matrices take about %v beside the walks; --calibration-blocks takes less of the text",
		len(c.Names), t.Round(time.Second))
	return nil
}
