package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"ck/internal/bench"
	"ck/internal/cli"
	"ck/internal/cost"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/quant"
)

// engineFlags are the flags of commands that open an engine.
type engineFlags struct {
	threads string // list
	ubatch  int
	asNodes string
	link    string
	kv, act string
	panels  string
	noPack  bool
}

func (o *engineFlags) flags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Engine")
	g.Text(&o.threads, "threads", "t", "", "LIST", "numbers of workers: 2 or 1,2,4 or 1-8; default: what the machine and its limits grant")
	g.Int(&o.ubatch, "ubatch", "", engine.UBatchDefault, 1, 1<<16, "N", "rows of the prompt that are evaluated together (also -ub)")
	g.Text(&o.asNodes, "as-nodes", "", "", "LIST", "CPU lists that count as memory nodes, 0-3/4-7: to try --numa tp on a machine that has one")
	g.Text(&o.link, "link", "", "", "LATENCY,RATE", "with --as-nodes: workers wait as over a link between the nodes, 2us,20GB/s: so long at each meeting, and for what they read far away")
	g.Enum(&o.kv, "kv", "", "f16", "TYPE", []string{"f16", "bf16", "f32", "q8_0", "q4_0"}, "type of the KV cache")
	g.Enum(&o.act, "act", "", "auto", "TYPE", []string{"auto", "f32"}, "activations of matmuls: float32, or what suits the weights' type")
	g.Text(&o.panels, "panels", "", "", "FILE",
		"map the weights' panels that ckquant pack wrote; none: do not; default: MODEL.panels, if it is there")
	g.Bool(&o.noPack, "no-pack", "", "leave weights in the file's form: slower, less memory")
}

// threadList is the list of -t; one zero means the engine's choice.
func (o *engineFlags) threadList() ([]int, error) {
	if o.threads == "" {
		return []int{0}, nil
	}
	return parseList("-t/--threads", o.threads, 1, 4096)
}

// engineOptions is what an engine is opened with for m, but for its threads.
func (p *program) engineOptions(o *engineFlags, m *generate.Model) engine.Options {
	c := &p.app.Common
	kv, _ := quant.Parse(o.kv) // one of the flag's words
	return engine.Options{Tier: c.CPU, NUMA: c.NUMA, Judge: cost.Judge, AsNodes: o.asNodes, Link: o.link, Prove: c.Verbose, UBatch: o.ubatch, F32Act: o.act == "f32", KV: kv,
		KVSet: true, NoPack: o.noPack, Panels: engine.FindPanels(o.panels, m.Path),
		MemLimit: c.MemLimit}
}

// settings are those of a measurement.
func (p *program) settings(o *engineFlags, reps int) bench.Settings {
	return bench.Settings{Reps: reps, UBatch: o.ubatch, KV: o.kv, Act: o.act, Commit: commit()}
}

// events tells of a measurement on stderr.
func (p *program) events(bar *cli.Progress) bench.Events {
	done := int64(0)
	aside := func(say func(format string, args ...any), text string) {
		bar.Aside(func() error { say("%s", text); return nil })
	}
	return bench.Events{
		Info:       func(text string) { aside(p.app.Info, text) },
		Warn:       func(text string) { aside(p.app.Warn, text) },
		Repetition: func() { done++; bar.At(done) },
	}
}

// explain says on stderr what disturbed a test.
func (p *program) explain(r *bench.Result) {
	for _, s := range r.Warnings {
		p.app.Warn("%s, %d threads: %s", r.Name(), r.Threads, s)
	}
	for _, s := range r.NewNotes() {
		p.app.Info("%s, %d threads: %s", r.Name(), r.Threads, s)
	}
	if n := r.Counts; n != nil {
		p.app.Info("%s, %d threads: a token takes %.4g instructions, %.4g cycles, %.4g cache misses", r.Name(), r.Threads, n.Instructions, n.Cycles,
			n.CacheMisses)
	}
}

// commit is the one that the program was built from, as far as known.
func commit() string {
	if cli.Commit != "" {
		return cli.Commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "unknown"
}
