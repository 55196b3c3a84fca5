package main

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/dataset"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/humanize"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/team"
	"ck/internal/topo"
	"ck/internal/train"
)

// dataOptions are the flags of commands that read data.
type dataOptions struct {
	files    []string
	tokens   int
	noPack   bool
	refuse   bool
	val      string
	seed     int
	skip     int
	template string
	date     string
	noCache  bool
}

func (o *dataOptions) flags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Data")
	g.Texts(&o.files, "data", "d", "FILE", "a file to train with, once or more: text (*.txt, *.md) or JSON lines (*.jsonl)")
	o.tokensFlag(c)
	g.Bool(&o.noPack, "one-sequence", "", "a slot has one sequence; else several share it, and none sees another")
	g.Bool(&o.refuse, "refuse-long", "", "an example that is longer than a slot is left out; else a document is split, a conversation cut")
	g.Text(&o.val, "val", "", "2%", "SHARE", "share of the examples that is held out and judged by")
	g.Int(&o.skip, "skip-bad-lines", "", 0, 0, 1<<30, "N", "lines that cannot be used and are no error")
	g.Text(&o.template, "template", "", "", "NAME", "chat template of messages: a name or a file; default: the model's")
	g.Text(&o.date, "date", "", "", "YYYY-MM-DD", "the day that templates write which write one; without it such conversations are refused: tokens would change overnight")
	g.Bool(&o.noCache, "no-cache", "", "do not keep tokens in a file NAME.*.cktokens beside the first file")
}

func (o *dataOptions) tokensFlag(c *cobra.Command) {
	cli.NewGroup(c.Flags(), "Data").Int(&o.tokens, "tokens", "", 256, 32, 1<<20, "N", "tokens of a slot, a multiple of 32")
}

// netOptions are the flags of commands that walk.
type netOptions struct {
	dtype    string
	batch    int
	walk     int
	replicas string
	aux      float64
	dropout  float64

	recompute string
	again     int // layers whose activations are made again, as chosen (chooseAgain)
	layers    int // that the model has
}

func (o *netOptions) auxFlag(c *cobra.Command) {
	cli.NewGroup(c.Flags(), "Training").Float(&o.aux, "aux-loss", "", 0, 0, 1e3, "X",
		"of mixtures: each layer adds X * experts * sum over them of share of rows * mean probability, so that the load evens out; 0.001 to 0.01 is usual")
}

func (o *netOptions) dropoutFlag(c *cobra.Command) {
	cli.NewGroup(c.Flags(), "Training").Float(&o.dropout, "dropout", "", 0, 0, 1, "P",
		"share of elements that a step drops, below 1: with --rank of what adapters read, else of the embedding and of what attention and feed-forward add; judging drops none")
}

func (o *netOptions) flags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Computing")
	g.Enum(&o.dtype, "dtype", "", "bf16", "TYPE", []string{"bf16", "f32"}, "type of products; sums, weights and gradients are float32")
	g.Int(&o.batch, "batch", "", 8, 1, 1<<20, "N", "slots of a step, a power of two")
	g.Int(&o.walk, "walk", "", 0, 0, 1<<16, "N", "slots that are computed at once, a power of two; more take more memory and change no bit; default: as many as have 1024 tokens")
	g.Text(&o.replicas, "replicas", "", "1", "WHERE", "replicas, each with workers, panels and buffers of its own, that share a step's slots: socket or node, one at each, or their number; they take more memory and change no bit")
	g.Text(&o.recompute, "recompute", "", "auto", "LAYERS", "layers whose activations are not kept for the backward but made again: auto, none, all or how many; less memory, more work, and no bit changes; auto: as few as make it fit")
}

// loraOptions are the flags of adapters.
type loraOptions struct {
	rank    int
	alpha   float64
	root    bool
	targets string
}

func (o *loraOptions) flags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Adapters")
	g.Int(&o.rank, "rank", "", 0, 0, 1<<16, "N", "train adapters of this rank beside frozen weights (LoRA); 0: train all weights")
	g.Float(&o.alpha, "alpha", "", 0, 0, 1e9, "X", "an adapter counts alpha / rank times; default: twice the rank")
	g.Bool(&o.root, "rslora", "", "it counts alpha / sqrt(rank) times")
	g.Text(&o.targets, "targets", "", "attn_(q|k|v|output)|ffn_(gate|up|down)", "REGEX", "matrices that get adapters")
}

// lora is what the flags say; nil: all weights are trained.
func (p *program) adapters() (*train.LoRA, error) {
	o := &p.lora
	if o.rank == 0 {
		for _, name := range []string{"alpha", "rslora", "targets"} {
			if p.app.Given(name) {
				return nil, cli.Usage("--%s: is about adapters; give their rank with --rank", name)
			}
		}
		return nil, nil
	}
	re, err := regexp.Compile(o.targets)
	if err != nil {
		return nil, cli.Usage("--targets: %v", err)
	}
	alpha := o.alpha
	if alpha == 0 {
		alpha = 2 * float64(o.rank)
	}
	return &train.LoRA{Rank: o.rank, Alpha: alpha, RankRoot: o.root, Targets: re, Seed: uint64(p.data.seed)}, nil
}

// leaves is how many slots a walk has.
func (p *program) leaves() int {
	if p.net.walk > 0 {
		return p.net.walk
	}
	n := 1
	for 2*n <= p.net.batch/len(p.places) && 2*n*p.data.tokens <= 1024 {
		n *= 2
	}
	return n
}

func (p *program) typ() quant.Type {
	if p.net.dtype == "f32" {
		return quant.F32
	}
	return quant.BF16
}

// model opens the model with its tokenizer.
func (p *program) model() (*gguf.Model, *generate.Model, error) {
	path := p.app.Common.Model
	if path == "" {
		return nil, nil, cli.Usage("no model: name one with -m")
	}
	if p.data.tokens%32 != 0 {
		return nil, nil, cli.Usage("--tokens: %d is no multiple of 32", p.data.tokens)
	}
	m, err := convert.Open(path, true)
	if err != nil {
		return nil, nil, err
	}
	g, err := generate.Open(path)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	if err := train.Trainable(m); err != nil && p.lora.rank == 0 {
		err = cli.Usage("%s: %v; or train adapters beside it, with --rank", path, err)
		m.Close()
		g.Close()
		return nil, nil, err
	}
	if n := g.Context; n > 0 && p.data.tokens > n {
		p.app.Warn("--tokens %d is more than the model's context of %d", p.data.tokens, n)
	}
	return m, g, nil
}

// dataset reads the data.
func (p *program) dataset(ctx context.Context, m *generate.Model) (*dataset.Set, error) {
	if len(p.data.files) == 0 {
		return nil, cli.Usage("no data: name files with -d")
	}
	val, err := share(p.data.val)
	if err != nil {
		return nil, err
	}
	opt := dataset.Options{Tokens: p.data.tokens, Pack: !p.data.noPack, TooLong: dataset.Cut, Val: val, Seed: uint64(p.data.seed), SkipBadLines: p.data.skip, NoCache: p.data.noCache}
	if p.data.refuse {
		opt.TooLong = dataset.Refuse
	}
	if p.data.date != "" {
		if opt.Now, err = time.Parse(time.DateOnly, p.data.date); err != nil {
			return nil, cli.Usage("--date: %q is no day such as 2026-01-31", p.data.date)
		}
	}
	if opt.Template, err = m.FindTemplate(p.data.template); err != nil && (p.data.template != "" || !errors.Is(err, generate.ErrNoTemplate)) {
		if errors.Is(err, generate.ErrTemplateName) {
			return nil, cli.Usage("--template: %v", err)
		}
		return nil, err
	}
	s, err := dataset.Open(ctx, m, p.data.files, opt)
	if err != nil {
		return nil, err
	}
	part, held := s.Train(), s.Val()
	p.app.Info("data: %d examples in %d slots, %d tokens of which %d count; held out: %d examples", part.Examples, part.Slots, part.Tokens, part.Targets, held.Examples)
	p.warnOf(s)
	if lost := m.LostText(); lost != "" {
		p.app.Warn("%s", lost)
	}
	return s, nil
}

// warnOf says what became of data that is not in the set as it was.
func (p *program) warnOf(s *dataset.Set) {
	st := &s.Stats
	for _, w := range []struct {
		n    int
		what string
	}{
		{st.Cut, "longer than a slot, cut at its end; see --tokens and --refuse-long"},
		{st.Refused, "longer than a slot, left out; see --tokens"},
		{st.NoTarget, "left out: no token of them counts"},
	} {
		if w.n > 0 {
			p.app.Warn("%d of %d examples: %s", w.n, st.Examples, w.what)
		}
	}
	if st.Skipped > 0 {
		p.app.Warn("%d lines could not be used and were skipped", st.Skipped)
	}
	for _, b := range st.Bad {
		p.app.Info("left out: %v", b)
	}
	if st.NoEnd > 0 {
		p.app.Warn("%d answers have no end in the template: the model does not learn to end them", st.NoEnd)
	}
	if s.CacheErr != nil {
		p.app.Warn("tokens are not kept: %v; --no-cache does not try", s.CacheErr)
	}
}

// share reads "2%" or 0.02.
func share(s string) (float64, error) {
	var x float64
	var err error
	if n := len(s); n > 0 && s[n-1] == '%' {
		if x, err = number(s[:n-1]); err == nil {
			x /= 100
		}
	} else {
		x, err = number(s)
	}
	if err != nil || !(x >= 0 && x < 1) {
		return 0, cli.Usage("--val: %q is no share such as 2%% or 0.02", s)
	}
	return x, nil
}

// alone deals nothing: there is one replica, and a step is one slot.
func (p *program) alone() error {
	p.net.batch, p.net.walk, p.net.replicas = 1, 1, "1"
	return p.deal()
}

// deal says where replicas work and with which kernels, and whether a step's slots can be dealt to them.
func (p *program) deal() error {
	var err error
	if p.net.dropout > step.MaxDropout {
		return cli.Usage("--dropout: %v drops everything; expected at least 0 and less than 1", p.net.dropout)
	}
	if p.machine, err = topo.Nodes(); err != nil {
		return err
	}
	s := &p.machine
	var notes []string
	if p.places, notes, err = train.Places(s, p.net.replicas, p.app.Common.Threads); err != nil {
		return cli.Usage("--replicas: %v", err)
	}
	for _, line := range notes {
		p.app.Info("%s", line)
	}
	if p.table, err = p.kernels(); err != nil {
		return err
	}
	if err := train.CheckBatch(p.net.batch, p.leaves(), len(p.places)); err != nil {
		return cli.Usage("--batch %d, --walk %d, --replicas %s: %v", p.net.batch, p.leaves(), p.net.replicas, err)
	}
	_, why := s.Workers()
	for i, x := range p.places {
		if len(p.places) > 1 {
			p.app.Info("replica %d: %s on CPUs %s%s", i, humanize.Plural(len(x.CPUs), "worker"), humanize.ShortList(x.CPUs, 60), map[bool]string{true: ", which others share"}[x.Shared])
		} else {
			p.app.Info("%s; the machine grants %s", humanize.Plural(len(x.CPUs), "worker"), why)
		}
	}
	return nil
}

// kernels are those of the tier.
func (p *program) kernels() (*kernel.Table, error) {
	f := isa.Detect()
	tier := isa.Best(f)
	if name := p.app.Common.CPU; name != "" {
		var err error
		if tier, err = isa.Parse(name); err == nil {
			err = isa.Check(tier, f)
		}
		if errors.Is(err, isa.ErrMissing) {
			return nil, err
		}
		if err != nil {
			return nil, cli.Usage("--cpu: %v", err)
		}
	}
	p.app.Info("tier %s", tier)
	return kernel.For(tier, f), nil
}

// workers is how many a replica has, at most.
func (p *program) workers() (most int) {
	for _, x := range p.places {
		most = max(most, len(x.CPUs))
	}
	return most
}

// crew starts workers on all CPUs of replicas, one on each.
func (p *program) crew() (*team.Team, error) {
	var cpus []int
	for _, x := range p.places {
		cpus = append(cpus, x.CPUs...)
	}
	slices.Sort(cpus)
	cpus = slices.Compact(cpus)
	t, err := team.New(cpus, team.Options{Pin: true})
	if err != nil {
		t, err = team.New(cpus, team.Options{})
	}
	return t, err
}

// nets are the replicas of a model's net.
func (p *program) nets(m *gguf.Model) (*train.Replicas, error) {
	opt, err := p.netOptions()
	if err != nil {
		return nil, err
	}
	x, err := train.NewReplicas(p.places, opt, func(opt train.NetOptions) (*train.Net, error) { return train.Open(m, opt) })
	if err != nil {
		return nil, err
	}
	for _, line := range x.Notes {
		p.app.Warn("%s", line)
	}
	return x, nil
}

// leaf is a slot as it is trained with.
func leaf(s dataset.Slot) train.Leaf {
	return train.Leaf{IDs: s.IDs, Pos: s.Pos, Seq: s.Seq, Loss: s.Loss}
}

// in is a file of the output folder.
func (o *runOptions) in(name string) string { return filepath.Join(o.out, name) }
