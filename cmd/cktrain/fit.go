package main

import (
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/humanize"
	"ck/internal/topo"
	"ck/internal/train"
)

// explain prints the plan of a walk, of the replica with the most workers.
func (p *program) explain(m *gguf.Model) error {
	opt, err := p.netOptions()
	if err != nil {
		return err
	}
	g, _, err := engine.GraphOf(m)
	if err != nil {
		return err
	}
	pl, err := train.PlanOf(g, opt, p.workers())
	if err != nil {
		return &engine.ModelError{Path: m.Path, Err: err}
	}
	if err := pl.Explain(p.app.Text()); err != nil {
		return cli.OutError(err)
	}
	if n := len(p.places); n > 1 {
		_, err = fmt.Fprintf(p.app.Text(), "\n%d replicas walk so side by side, %s a step each; this is the plan of the one with the most workers\n",
			n, humanize.Plural(p.net.batch/n/opt.Leaves, "walk"))
	}
	return cli.OutError(err)
}

// netOptions are those of each replica's net, without its workers.
func (p *program) netOptions() (train.NetOptions, error) {
	lora, err := p.adapters()
	return train.NetOptions{Leaf: p.data.tokens, Leaves: p.leaves(), Type: p.typ(), Table: p.table, LoRA: lora, Balance: p.net.aux,
		Dropout: p.net.dropout, Seed: uint64(p.data.seed), Recompute: p.net.again}, err
}

// chooseAgain decides how many layers' activations are made again: as --recompute says, or with auto as few as fit, and all where nothing does.
func (p *program) chooseAgain(m *gguf.Model) error {
	g, _, err := engine.GraphOf(m)
	if err != nil {
		return err
	}
	o := &p.net
	o.layers, o.again = len(g.Layers(len(g.Steps))), 0
	switch o.recompute {
	case "none":
		return nil
	case "all":
		o.again = o.layers
	case "auto":
		err = p.fewestAgain(m)
	default:
		if o.again, err = strconv.Atoi(o.recompute); err != nil || o.again < 0 || o.again > o.layers {
			return cli.Usage("--recompute: %q: expected auto, none, all or a number of layers, of which the model has %d", o.recompute, o.layers)
		}
	}
	if o.again > 0 {
		p.app.Info("activations of %d of %d layers are made again before their backward", o.again, o.layers)
	}
	return err
}

// fewestAgain finds how many layers must be made again at least, so that everything fits; all where that does not make it fit.
func (p *program) fewestAgain(m *gguf.Model) (err error) {
	left, _, known := p.memoryLeft()
	fits := func(layers int) bool {
		each, _, failed := p.estimate(m, len(p.places), func(o *train.NetOptions) { o.Recompute = layers })
		if failed != nil {
			err = failed
			return true // there is nothing to look for
		}
		return (!known || each.Times(len(p.places)).Total() <= left) && len(train.Lacks(p.places, each)) == 0
	}
	if !fits(0) {
		p.net.again = min(p.net.layers, 1+sort.Search(p.net.layers-1, func(n int) bool { return fits(n + 1) }))
	}
	return err
}

// estimate is what each of so many replicas takes, and the operations of all in a step, with some options changed.
func (p *program) estimate(m *gguf.Model, replicas int, change func(*train.NetOptions)) (each train.Memory, ops float64, err error) {
	opt, err := p.netOptions()
	if err != nil {
		return each, 0, err
	}
	if change != nil {
		change(&opt)
	}
	g, _, err := engine.GraphOf(m)
	if err != nil {
		return each, 0, err
	}
	workers := p.workers()
	if replicas < len(p.places) {
		workers *= len(p.places) / replicas
	}
	each, ops, err = train.Estimate(g, opt, workers, max(p.net.batch/replicas, opt.Leaves), p.run.optimizer.Name)
	if err != nil {
		return each, 0, &engine.ModelError{Path: m.Path, Err: err}
	}
	return each, ops * float64(replicas), nil
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
	n := len(p.places)
	each, _, err := p.estimate(m, n, nil)
	if err != nil {
		return 0, err
	}
	mem, of := each.Times(n), ""
	if n > 1 {
		of = fmt.Sprintf(" in %d replicas", n)
	}
	left, why, known := p.memoryLeft()
	p.app.Info("memory%s: %s; %s", of, memoryWords(mem), why)
	if known && mem.Total() > left {
		return 0, cli.Resource("%s: takes %s%s (%s), there are %s (%s); %s", m.Path, humanize.Bytes(mem.Total()), of, memoryWords(mem), humanize.Bytes(left), why, p.remedy(m, left, known))
	}
	if lacks := train.Lacks(p.places, each); len(lacks) > 0 {
		return 0, cli.Resource("%s: %s; %s", m.Path, lacks[0], p.remedy(m, left, known))
	}
	return mem.Total(), nil
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

// remedy says what would fit, the mildest first: making activations again, walks of one slot and one replica change no bit, adapters and shorter slots do.
func (p *program) remedy(m *gguf.Model, left int64, known bool) string {
	n, again := len(p.places), p.net.again
	fits := func(change func(*train.NetOptions)) bool {
		each, _, err := p.estimate(m, n, func(o *train.NetOptions) {
			if o.Recompute = again; change != nil {
				change(o)
			}
		})
		return err == nil && (!known || each.Times(n).Total() <= left) && (n != len(p.places) || len(train.Lacks(p.places, each)) == 0)
	}
	say := ""
	if p.net.recompute != "auto" && p.net.again < p.net.layers {
		again, say = p.net.layers, "--recompute auto "
		if fits(nil) {
			return say + "fits and changes no bit"
		}
	}
	one := func(o *train.NetOptions) { o.Leaves = 1 }
	if p.leaves() > 1 && fits(one) {
		return say + "--walk 1 fits and changes no bit"
	}
	if n > 1 {
		n, say = 1, say+"--replicas 1 "
		if fits(nil) {
			return say + "fits and changes no bit"
		}
		if p.leaves() > 1 && fits(one) {
			return say + "--walk 1 fits and changes no bit"
		}
	}
	const rank = 16
	lora := func(o *train.NetOptions) {
		one(o)
		o.LoRA = &train.LoRA{Rank: rank, Alpha: 2 * rank, Targets: regexp.MustCompile(p.lora.targets)}
	}
	if p.lora.rank == 0 && fits(lora) {
		return say + fmt.Sprintf("--walk 1 --rank %d fits: adapters beside frozen weights", rank)
	}
	for leaf := p.data.tokens / 2 / 32 * 32; leaf >= 32; leaf = leaf / 2 / 32 * 32 {
		shorter := func(o *train.NetOptions) { one(o); o.Leaf = leaf }
		if fits(shorter) {
			return say + fmt.Sprintf("--walk 1 --tokens %d fits", leaf)
		}
		if p.lora.rank == 0 && fits(func(o *train.NetOptions) { lora(o); o.Leaf = leaf }) {
			return say + fmt.Sprintf("--walk 1 --rank %d --tokens %d fits", rank, leaf)
		}
	}
	return "nothing that can be left out makes it fit; take a smaller model or a machine with more memory"
}
