package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/humanize"
	"ck/internal/plaintext"
	"ck/internal/train"
)

const estimateLong = `Says what training a model takes, before anything is taken: memory by part, and the arithmetic of a step.`

func (p *program) estimateCommand() {
	c := p.app.NewCommand("estimate [flags]", "what training takes", estimateLong, p.runEstimate)
	p.data.tokensFlag(c)
	p.net.flags(c)
	p.lora.flags(c)
	cli.NewGroup(c.Flags(), "Training").Enum(&p.run.optimizer.Name, "optimizer", "", "adamw", "NAME", []string{"adamw", "sgd"}, "how gradients change weights")
}

func (p *program) runEstimate(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Usage("estimate: %s: takes no words; the model is named with -m", args[0])
	}
	m, g, err := p.model()
	if err != nil {
		return err
	}
	defer m.Close()
	defer g.Close()
	cpus, tbl, err := p.workers()
	if err != nil {
		return err
	}
	graph, _, err := engine.GraphOf(m)
	if err != nil {
		return err
	}
	if b, l := p.net.batch, p.leaves(); b&(b-1) != 0 || l&(l-1) != 0 || b%l != 0 {
		return cli.Usage("--batch %d, --walk %d: %v", b, l, train.ErrBatch)
	}
	lora, err := p.adapters()
	if err != nil {
		return err
	}
	mem, ops, err := train.Estimate(graph, train.NetOptions{Leaf: p.data.tokens, Leaves: p.leaves(), Type: p.typ(), Table: tbl, LoRA: lora}, len(cpus), p.net.batch, p.run.optimizer.Name)
	if err != nil {
		return &engine.ModelError{Path: m.Path, Err: err}
	}
	if p.app.Common.JSON {
		return p.app.PrintJSON(struct {
			Schema  string  `json:"schema"`
			Values  int64   `json:"values_bytes"`
			Moments int64   `json:"moments_bytes"`
			Panels  int64   `json:"panels_bytes"`
			Walk    int64   `json:"buffers_bytes"`
			Sums    int64   `json:"sums_bytes"`
			Cache   int64   `json:"cache_bytes"`
			All     int64   `json:"bytes"`
			Tokens  int     `json:"tokens_of_a_step"`
			Ops     float64 `json:"operations_of_a_step"`
		}{"ck.train.estimate/1", mem.Values, mem.Moments, mem.Panels, mem.Walk, mem.Sums, mem.Cache, mem.Total(), p.net.batch * p.data.tokens, ops})
	}
	t := plaintext.Table{Head: []string{"memory", "bytes", "of"}, Right: []bool{false, true, false}}
	for _, r := range []struct {
		name string
		n    int64
		of   string
	}{{"values", mem.Values, "weights in float32"}, {"moments", mem.Moments, "of the optimizer"}, {"panels", mem.Panels, "matrices and their transposes, as they are multiplied"},
		{"buffers", mem.Walk, fmt.Sprintf("a walk of %d slots of %d tokens: activations, gradients", p.leaves(), p.data.tokens)}, {"sums", mem.Sums, "gradients of walks that wait for others"},
		{"keys and values", mem.Cache, "of a walk"}, {"all", mem.Total(), ""}} {
		t.Rows = append(t.Rows, []string{r.name, humanize.Bytes(r.n), r.of})
	}
	t.Rows = append(t.Rows, []string{"a step", humanize.Scaled(ops, "OP"), fmt.Sprintf("%d tokens", p.net.batch*p.data.tokens)})
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}

const checkLong = `Compares the gradient of every weight of a model with differences of the loss, in a random direction and over random tokens, in float32. Exit code 1: one differs.`

func (p *program) checkCommand() {
	c := p.app.NewCommand("checkgrad [flags]", "compare gradients with differences", checkLong, p.runCheck)
	p.data.tokensFlag(c)
	cli.NewGroup(c.Flags(), "Training").Int(&p.data.seed, "seed", "", 1, 0, 1<<30, "N", "tokens and directions")
}

func (p *program) runCheck(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Usage("checkgrad: %s: takes no words; the model is named with -m", args[0])
	}
	p.net.dtype = "f32"
	m, g, err := p.model()
	if err != nil {
		return err
	}
	defer m.Close()
	defer g.Close()
	n, crew, err := p.netOf(m, 1)
	if err != nil {
		return err
	}
	defer crew.Close()
	rng := rand.New(rand.NewPCG(uint64(p.data.seed), 3))
	var l train.Leaf
	for i := range p.data.tokens {
		l.IDs, l.Pos, l.Seq, l.Loss = append(l.IDs, int32(rng.IntN(n.G.Vocab))), append(l.Pos, int32(i)), append(l.Seq, 0), append(l.Loss, i > 0)
	}
	t := plaintext.Table{Head: []string{"weight", "gradient", "difference", "error", "rounding"}, Right: []bool{false, true, true, true, true}}
	bar := p.app.NewProgress("comparing", "weights", int64(len(n.Params)))
	defer bar.Done()
	bad := 0
	err = n.CheckGradients([]train.Leaf{l}, uint64(p.data.seed), func(x train.GradientCheck) error {
		if x.Bad() {
			bad++
		}
		t.Rows = append(t.Rows, []string{x.Name, fmt.Sprintf("%.4g", x.Gradient), fmt.Sprintf("%.4g", x.Difference), fmt.Sprintf("%.2g", x.Error), fmt.Sprintf("%.2g", x.Noise)})
		bar.At(int64(len(t.Rows)))
		return c.Context().Err()
	})
	bar.Done()
	if err != nil {
		return err
	}
	if err := t.Write(p.app.Out, p.app.Common.Plain); err != nil {
		return cli.OutError(err)
	}
	if bad > 0 {
		return cli.Check("%d of %d gradients are not those of differences", bad, len(t.Rows))
	}
	return nil
}
