package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ck/internal/advice"
	"ck/internal/advice/view"
	"ck/internal/cli"
	"ck/internal/cost"
	"ck/internal/humanize"
	"ck/internal/page"
	"ck/internal/synth"
	"ck/internal/topo"
)

// planOptions are the flags of cktopo plan.
type planOptions struct {
	app    *cli.App
	survey func() (topo.Survey, error)

	machines, types, kv, peak, params                   string
	context, prompt, rows, ubatch, ranks, rank          int
	layers, hidden, ffn, heads, kvHeads, headDim, vocab int
	bandwidth, claimDecode                              float64
	claimPrefill                                        time.Duration
	measure, short                                      bool
}

const planLong = `Says what a model takes and does on a machine before it is there: memory for weights, KV cache, activations and training; expected tokens per second, with the least that must hold and the most that physics permits; what to type.

MODEL is a GGUF file. SHAPE is the shape of a known model, or a number of parameters such as 250B, which becomes a dense model in the proportions of the llama-3 family; the flags under Shape change it. Of some well-known models (gpt-oss, gemma 3) it knows no shape: without a file it says memory and bounds only, and says so.

The machine is this one (or that of --root), a built-in one, or a described one. Speed needs the read bandwidth and the arithmetic peak of the threads: --measure takes them here in a few seconds; --bandwidth and --peak give them (ckbench bandwidth, ckbench roofline); described machines derive them.

  cktopo plan llama-3.2-1b --type Q8_0 --measure
  cktopo plan model.gguf --machine server.toml
  cktopo plan 250B --machine 2s-72c-12ch,2s-144c-24ch --type BF16,Q8_0,Q4_K --prompt 4096 --claim-prefill 400ms --claim-decode 8

A described machine is a JSON or TOML file with the keys name, sockets, nodes (memory nodes), cores (physical), ghz (all cores, vector units busy), isa (avx2, avxvnni, avx512, vnni, amx), channels, mts (6400 for DDR5-6400), memory_gib; all in all, not for each socket. Measured values go before derived ones: bandwidth_gbs, core_bandwidth_gbs, peak_gops and ops_per_cycle with int8, bf16, f32; network_gbps.

Expected rates come from the plan that the engine would walk: each matmul takes as long as its bytes or its operations need, at the share of the roofs that was measured for its weight type, plus attention, elementwise steps and barriers. Low is one socket's memory alone, High every socket's own, both with the error of the model (15 % for one thread, 25 % for more), and where the bandwidth is stated, not measured, with what is published for it (75 to 90 % of theory). Bound is the theory of the memory channels and of the best instructions of all cores: no program is faster. --cpu plans for the kernels of a lower tier. ck has no kernels for AMX yet: such a machine runs on tier vnni, and its bound is AMX's.`

// newPlan adds the command plan. survey reads the machine that is planned for if no other one is named.
func newPlan(app *cli.App, survey func() (topo.Survey, error)) *cobra.Command {
	o := &planOptions{app: app, survey: survey}
	c := app.NewCommand("plan [flags] MODEL|SHAPE", "what a model takes and does on a machine",
		planLong+"\n\nShapes: "+strings.Join(synth.Names(), ", ")+".\nMachines: "+strings.Join(cost.MachineNames(), ", ")+".", o.run)
	cli.CompleteWords(c, true, synth.Names())
	g := cli.NewGroup(c.Flags(), "Showing")
	g.Bool(&o.short, "short", "", "the answer alone: what it takes as a comment (not with -q), and the line to type")
	g = cli.NewGroup(c.Flags(), "Use")
	g.Int(&o.context, "context", "c", 0, 1, 1<<30, "N", "positions of a sequence; default: 4096, or what the model was made for, or the prompt and 512 tokens more")
	g.Int(&o.prompt, "prompt", "", 512, 1, 1<<22, "N", "tokens of the prompt")
	g.Int(&o.rows, "rows", "", 1, 1, 1024, "N", "sequences that generate in one walk")
	g.Int(&o.ubatch, "ubatch", "", 512, 16, 1<<20, "N", "rows of a prompt's walk")
	g.Text(&o.types, "type", "", "", "LIST", "recipes or block types of the weights; default: those of the file, Q8_0 of a shape")
	g.Enum(&o.kv, "kv", "", "f16", "TYPE", []string{"f32", "f16", "bf16", "q8_0", "q4_0"}, "type of the KV cache")
	g.Int(&o.ranks, "ranks", "", 2, 2, 1<<16, "N", "machines that add up over a network")
	g.Int(&o.rank, "lora-rank", "", 16, 1, 1<<14, "N", "rank of adapters for fine-tuning")
	g = cli.NewGroup(c.Flags(), "Planned machine")
	g.Text(&o.machines, "machine", "", "", "LIST", "built-in machines or files that describe some; default: this one")
	g.Float(&o.bandwidth, "bandwidth", "", 0, 0, 1e7, "GB/S", "read bandwidth of the threads")
	g.Text(&o.peak, "peak", "", "", "GOP/S", "arithmetic peak of the threads: of int8, or int8=N,bf16=N,f32=N")
	g.Bool(&o.measure, "measure", "", "measure both on this machine")
	g.Duration(&o.claimPrefill, "claim-prefill", "", 0, "TIME", "judge whether the prompt can take so short")
	g.Float(&o.claimDecode, "claim-decode", "", 0, 0, 1e9, "N", "judge whether one sequence can get so many tokens a second")
	g = cli.NewGroup(c.Flags(), "Shape")
	g.Text(&o.params, "params", "", "", "N", "parameters, such as 250B: as the word")
	dim := func(dst *int, name, usage string) { g.Int(dst, name, "", 0, 1, 1<<24, "N", usage) }
	dim(&o.layers, "layers", "layers")
	dim(&o.hidden, "hidden", "width of the residual stream")
	dim(&o.ffn, "ffn", "width of the feed-forward network")
	dim(&o.heads, "heads", "query heads")
	dim(&o.kvHeads, "kv-heads", "KV heads")
	dim(&o.headDim, "head-dim", "elements of a head")
	dim(&o.vocab, "vocab", "tokens of the vocabulary")
	return c
}

// run is cktopo plan.
func (o *planOptions) run(_ *cobra.Command, args []string) error {
	if c := o.app.Common; o.short && (c.JSON || c.JSONL || c.Plain) {
		return cli.Usage("plan: --short is another form of the answer than --plain, --json and --jsonl; name one")
	}
	models, path, err := o.models(args)
	if err != nil {
		return err
	}
	machines, err := o.planned()
	if err != nil {
		return err
	}
	doc := advice.Document{Schema: advice.Schema}
	for _, x := range machines {
		for _, m := range models {
			r, err := o.ask().Plan(m, x, path)
			if err != nil {
				return cli.Usage("plan: %v", err)
			}
			doc.Plans = append(doc.Plans, *r)
		}
	}
	return o.print(doc)
}

// print prints the plans in the form that the flags ask for.
func (o *planOptions) print(doc advice.Document) error {
	switch c := &o.app.Common; {
	case c.JSONL:
		return cli.PrintLines(o.app, "ck.topo.plan.machine/1", doc.Plans)
	case c.JSON:
		return o.app.PrintJSON(doc)
	case o.short:
		if err := view.WriteShort(o.app.Text(), &doc, c.Quiet); err != nil {
			return cli.OutError(err)
		}
		for i := range doc.Plans {
			if p := &doc.Plans[i]; p.FitsNowhere() {
				return cli.Check("%s, %s: needs %s, %s has %s for a model; take a smaller type (--type) or a shorter context (-c)", p.Model.Name, p.Model.Type,
					humanize.Bytes(p.Memory.NeedFile), p.Machine.Name, humanize.Bytes(p.Machine.MemoryCap))
			}
		}
		return nil
	}
	return cli.OutError(view.Write(o.app.Text(), &doc, o.app.Common.Plain, o.columns()))
}

// columns is how wide the output may be.
func (o *planOptions) columns() int { return columns(o.app, 0, page.Width) }

// ask is what the flags ask for.
func (o *planOptions) ask() *advice.Ask {
	return &advice.Ask{Prompt: o.prompt, Context: o.context, Rows: o.rows, UBatch: o.ubatch, KV: o.kv, Threads: o.app.Common.Threads, CPU: o.app.Common.CPU, Ranks: o.ranks,
		Rank: o.rank, ClaimPrefill: o.claimPrefill, ClaimDecode: o.claimDecode}
}
