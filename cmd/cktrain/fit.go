package main

import (
	"fmt"
	"regexp"
	"strings"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/humanize"
	"ck/internal/topo"
	"ck/internal/train"
)

// explain prints the plan of a walk.
func (p *program) explain(m *gguf.Model) error {
	cpus, opt, err := p.netOptions()
	if err != nil {
		return err
	}
	g, _, err := engine.GraphOf(m)
	if err != nil {
		return err
	}
	pl, err := train.PlanOf(g, opt, len(cpus))
	if err != nil {
		return &engine.ModelError{Path: m.Path, Err: err}
	}
	return cli.OutError(pl.Explain(p.app.Text()))
}

// netOptions are the net's without its workers, which would have these CPUs.
func (p *program) netOptions() (cpus []int, opt train.NetOptions, err error) {
	if b, l := p.net.batch, p.leaves(); b&(b-1) != 0 || l&(l-1) != 0 || b%l != 0 {
		return nil, opt, cli.Usage("--batch %d, --walk %d: %v", b, l, train.ErrBatch)
	}
	opt = train.NetOptions{Leaf: p.data.tokens, Leaves: p.leaves(), Type: p.typ(), Balance: p.net.aux}
	if cpus, opt.Table, err = p.workers(); err == nil {
		opt.LoRA, err = p.adapters()
	}
	return cpus, opt, err
}

// estimate is what training takes, with some options changed.
func (p *program) estimate(m *gguf.Model, change func(*train.NetOptions)) (train.Memory, float64, error) {
	cpus, opt, err := p.netOptions()
	if err != nil {
		return train.Memory{}, 0, err
	}
	if change != nil {
		change(&opt)
	}
	g, _, err := engine.GraphOf(m)
	if err != nil {
		return train.Memory{}, 0, err
	}
	mem, ops, err := train.Estimate(g, opt, len(cpus), max(p.net.batch, opt.Leaves), p.run.optimizer.Name)
	if err != nil {
		return mem, 0, &engine.ModelError{Path: m.Path, Err: err}
	}
	return mem, ops, nil
}

// memoryLeft is the bytes that may be taken, and who says so: --mem-limit, else what the machine has left. Not ok: nobody does.
func (p *program) memoryLeft() (bytes int64, why string, ok bool) {
	if n := p.app.Common.MemLimit; n > 0 {
		return n, "--mem-limit", true
	}
	m, err := topo.Live()
	if err != nil {
		return 0, "", false
	}
	return m.Budget()
}

// checkMemory says how much will be taken, and refuses what does not fit before anything is.
func (p *program) checkMemory(m *gguf.Model) (int64, error) {
	mem, _, err := p.estimate(m, nil)
	if err != nil {
		return 0, err
	}
	left, why, ok := p.memoryLeft()
	p.app.Info("memory: %s; %s", memoryWords(mem), why)
	if !ok || mem.Total() <= left {
		return mem.Total(), nil
	}
	return 0, cli.Resource("%s: takes %s (%s), there are %s (%s); %s", m.Path, humanize.Bytes(mem.Total()), memoryWords(mem), humanize.Bytes(left), why, p.remedy(m, left))
}

// memoryWords names the parts.
func memoryWords(m train.Memory) string {
	var words []string
	for _, x := range m.Parts() {
		if x.Bytes > 0 {
			words = append(words, x.Name+" "+humanize.Bytes(x.Bytes))
		}
	}
	return strings.Join(words, ", ")
}

// remedy says what would fit, the mildest first: walks of one slot change no bit, adapters and shorter slots do.
func (p *program) remedy(m *gguf.Model, left int64) string {
	fits := func(change func(*train.NetOptions)) bool {
		mem, _, err := p.estimate(m, change)
		return err == nil && mem.Total() <= left
	}
	one := func(o *train.NetOptions) { o.Leaves = 1 }
	if p.leaves() > 1 && fits(one) {
		return "--walk 1 fits and changes no bit"
	}
	const rank = 16
	lora := func(o *train.NetOptions) {
		one(o)
		o.LoRA = &train.LoRA{Rank: rank, Alpha: 2 * rank, Targets: regexp.MustCompile(p.lora.targets)}
	}
	if p.lora.rank == 0 && fits(lora) {
		return fmt.Sprintf("--walk 1 --rank %d fits: adapters beside frozen weights", rank)
	}
	for n := p.data.tokens / 2 / 32 * 32; n >= 32; n = n / 2 / 32 * 32 {
		shorter := func(o *train.NetOptions) { one(o); o.Leaf = n }
		if fits(shorter) {
			return fmt.Sprintf("--walk 1 --tokens %d fits", n)
		}
		if p.lora.rank == 0 && fits(func(o *train.NetOptions) { lora(o); o.Leaf = n }) {
			return fmt.Sprintf("--walk 1 --rank %d --tokens %d fits", rank, n)
		}
	}
	return "nothing that can be left out makes it fit; take a smaller model or a machine with more memory"
}
