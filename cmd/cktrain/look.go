package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/gguf"
	"ck/internal/humanize"
	"ck/internal/measure"
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
	p.net.auxFlag(c)
	p.net.dropoutFlag(c)
}

func (p *program) runEstimate(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Usage("estimate: %s: takes no words; the model is named with -m", args[0])
	}
	if err := p.deal(); err != nil {
		return err
	}
	m, g, err := p.model()
	if err != nil {
		return err
	}
	defer m.Close()
	defer g.Close()
	if err := p.chooseAgain(m); err != nil {
		return err
	}
	each, ops, err := p.estimate(m, len(p.places), nil)
	if err != nil {
		return err
	}
	peak, err := p.peak()
	if err != nil {
		return err
	}
	left, why, known := p.memoryLeft()
	file, n := fileBytes(m), len(p.places)
	mem, lacks := each.Times(n), train.Lacks(p.places, each)
	if p.app.Common.JSON {
		return p.app.PrintJSON(struct {
			Schema  string  `json:"schema"`
			Values  int64   `json:"values_bytes"`
			Moments int64   `json:"moments_bytes"`
			Panels  int64   `json:"panels_bytes"`
			Walk    int64   `json:"buffers_bytes"`
			Sums    int64   `json:"sums_bytes"`
			Cache   int64   `json:"cache_bytes"`
			Decode  int64   `json:"decoding_bytes"`
			Rest    int64   `json:"rest_bytes"`
			All     int64   `json:"bytes"`
			File    int64   `json:"file_bytes"`
			Left    int64   `json:"bytes_left,omitempty"`
			Fits    *bool   `json:"fits,omitempty"`
			Copies  int     `json:"replicas"`
			Layers  int     `json:"layers"`
			Again   int     `json:"recomputed_layers"`
			Tokens  int     `json:"tokens_of_a_step"`
			Ops     float64 `json:"operations_of_a_step"`
			Peak    float64 `json:"peak_ops_per_s"`
			Least   float64 `json:"least_seconds_of_a_step"`
		}{"ck.train.estimate/1", mem.Values, mem.Moments, mem.Panels, mem.Walk, mem.Sums, mem.Cache, mem.Decode, mem.Rest, mem.Total(), file, left,
			fits(known, mem.Total(), left, lacks), n, p.net.layers, p.net.again, p.net.batch * p.data.tokens, ops, peak, ops / peak})
	}
	of := ""
	if n > 1 {
		of = fmt.Sprintf("%d replicas, which share values and moments", n)
	}
	t := plaintext.Table{Head: []string{"part", "amount", "of"}, Right: []bool{false, true, false}}
	row := func(cells ...string) { t.Rows = append(t.Rows, cells) }
	for _, r := range mem.Parts() {
		if r.Bytes > 0 {
			row(r.Name, humanize.Bytes(r.Bytes), r.Of)
		}
	}
	row("all", humanize.Bytes(mem.Total()), of)
	row("the file", humanize.Bytes(file), "mapped: read once, and the system may take it back")
	switch {
	case known && mem.Total() > left:
		row("left", humanize.Bytes(left), why+"; does not fit: "+p.remedy(m, left, known))
	case known:
		row("left", humanize.Bytes(left), why)
	}
	for _, line := range lacks {
		row("does not fit", "", line+"; "+p.remedy(m, left, known))
	}
	row("a step", humanize.Scaled(ops, "OP"), fmt.Sprintf("%d tokens in walks of %d slots of %d", p.net.batch*p.data.tokens, p.leaves(), p.data.tokens))
	row("made again", fmt.Sprint(p.net.again), fmt.Sprintf("of %d layers: their activations are not kept for the backward", p.net.layers))
	row("at least", humanize.Seconds(ops/peak), fmt.Sprintf("a step, at the peak of now, %s/s; run says which share it reaches", humanize.Scaled(peak, "OP")))
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}

// fits is whether memory suffices, of all and of nodes; nil: nobody knows.
func fits(known bool, need, left int64, lacks []string) *bool {
	if !known && len(lacks) == 0 {
		return nil
	}
	ok := (!known || need <= left) && len(lacks) == 0
	return &ok
}

// fileBytes are those of a model's tensors.
func fileBytes(m *gguf.Model) (n int64) {
	for _, t := range m.Tensors {
		n += int64(len(t.Data))
	}
	return n
}

// peak is what the workers can do now, in operations a second.
func (p *program) peak() (float64, error) {
	crew, err := p.crew()
	if err != nil {
		return 0, err
	}
	defer crew.Close()
	return measure.SamplePeak(crew, peakKind(p.typ()), peakWithin)
}

const checkLong = `Compares the gradient of every weight of a model with differences of the loss, in a random direction and over random tokens, in float32. Exit code 1: one differs.`

func (p *program) checkCommand() {
	c := p.app.NewCommand("checkgrad [flags]", "compare gradients with differences", checkLong, p.runCheck)
	p.data.tokensFlag(c)
	cli.NewGroup(c.Flags(), "Training").Int(&p.data.seed, "seed", "", 1, 0, 1<<30, "N", "tokens and directions")
	p.net.auxFlag(c)
}

func (p *program) runCheck(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Usage("checkgrad: %s: takes no words; the model is named with -m", args[0])
	}
	p.net.dtype = "f32"
	if err := p.alone(); err != nil {
		return err
	}
	m, g, err := p.model()
	if err != nil {
		return err
	}
	defer m.Close()
	defer g.Close()
	x, err := p.nets(m)
	if err != nil {
		return err
	}
	defer x.Close()
	n := x.Nets[0]
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
