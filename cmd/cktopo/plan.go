package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/cost"
	"ck/internal/gguf"
	"ck/internal/humanize"
	"ck/internal/measure"
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

MODEL is a GGUF file. SHAPE is the shape of a known model, or a number of parameters such as 250B, which becomes a dense model in the proportions of the llama-3 family; the flags under Shape change it. Of well-known models that ckrun cannot run yet, mixtures among them, it says memory and bounds only, and says so.

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
		planLong+"\n\nShapes: "+strings.Join(synth.Names(), ", ")+".\nShapes that ckrun cannot run yet, of which plan says memory and bounds: "+strings.Join(cost.OutlineNames(), ", ")+".\nMachines: "+strings.Join(cost.MachineNames(), ", ")+".", o.run)
	cli.CompleteWords(c, true, slices.Concat(synth.Names(), cost.OutlineNames()))
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
	if name := o.word(args); len(args) < 2 {
		if x, ok := cost.FindOutline(name); ok {
			doc, err := o.outlines(strings.ToLower(name), x)
			if err != nil {
				return err
			}
			return o.print(doc)
		}
	}
	models, path, err := o.models(args)
	if err != nil {
		return err
	}
	machines, err := o.planned()
	if err != nil {
		return err
	}
	doc := planDoc{Schema: planSchema}
	for _, x := range machines {
		for _, m := range models {
			r, err := o.plan(m, x, path)
			if err != nil {
				return cli.Usage("plan: %v", err)
			}
			doc.Plans = append(doc.Plans, *r)
		}
	}
	return o.print(doc)
}

// print prints the plans in the form that the flags ask for.
func (o *planOptions) print(doc planDoc) error {
	switch c := &o.app.Common; {
	case c.JSONL && doc.Outlines != nil:
		return cli.PrintLines(o.app, "ck.topo.plan.outline/1", doc.Outlines)
	case c.JSONL:
		return cli.PrintLines(o.app, "ck.topo.plan.machine/1", doc.Plans)
	case c.JSON:
		return o.app.PrintJSON(doc)
	case doc.Outlines != nil:
		return o.writeOutlines(&doc)
	case o.short:
		return cli.OutError(doc.writeShort(o.app.Text(), o.app.Common.Quiet))
	}
	return cli.OutError(doc.write(o.app.Text(), o.app.Common.Plain, o.columns()))
}

// planSchema is that of plan --json.
const planSchema = "ck.topo.plan/1"

// word is what names the model: the word, --params or -m.
func (o *planOptions) word(args []string) string {
	switch {
	case len(args) > 0:
		return args[0]
	case o.params != "":
		return o.params
	}
	return o.app.Common.Model
}

// columns is how wide the output may be.
func (o *planOptions) columns() int { return columns(o.app, 0, page.Width) }

// models reads the word, or -m: one model for each type. path is the file's name for commands.
func (o *planOptions) models(args []string) (models []*cost.Model, path string, err error) {
	word := o.word(args)
	switch {
	case len(args) > 1:
		return nil, "", cli.Usage("plan: takes one MODEL or SHAPE; see cktopo plan --help")
	case len(args) == 1 && o.params != "":
		return nil, "", cli.Usage("plan: --params and %q name two models; give one", args[0])
	case word == "":
		return nil, "", cli.Usage("plan: needs a model's file, a shape such as %s or a size such as 250B; see cktopo plan --help", synth.Names()[0])
	}
	s, isShape, err := o.shape(word)
	if err != nil {
		return nil, "", err
	}
	if !isShape {
		return o.file(word)
	}
	types := o.types
	if types == "" {
		types = "Q8_0"
	}
	for typ := range strings.SplitSeq(types, ",") {
		m, err := cost.OfShape(word, s, strings.TrimSpace(typ))
		if err != nil {
			return nil, "", cli.Usage("plan: %v", err)
		}
		models = append(models, m)
	}
	return models, "MODEL.gguf", nil
}

// shape reads the word as a shape or a size, and the flags that change it.
func (o *planOptions) shape(word string) (synth.Shape, bool, error) {
	s, err := synth.Find(word)
	if err != nil {
		if _, err := os.Stat(word); err == nil || strings.HasSuffix(word, ".gguf") || strings.ContainsRune(word, '/') {
			return s, false, nil
		}
		n, perr := cost.ParseParams(word)
		if perr != nil {
			return s, false, cli.Usage("plan: %q is no file, no shape that ck knows and no number of parameters such as 250B; see cktopo plan --help", word)
		}
		s = cost.ShapeOfSize(n)
	}
	for _, e := range []struct{ value, dst *int }{{&o.layers, &s.Layers}, {&o.hidden, &s.Hidden}, {&o.ffn, &s.FFN}, {&o.heads, &s.Heads},
		{&o.kvHeads, &s.KVHeads}, {&o.headDim, &s.HeadDim}, {&o.vocab, &s.Vocab}} {
		if *e.value != 0 {
			*e.dst = *e.value
		}
	}
	if err := s.Check(); err != nil {
		return s, true, cli.Usage("plan: %v", err)
	}
	return s, true, nil
}

// file opens a model's file; only its metadata and small vectors are read.
func (o *planOptions) file(path string) ([]*cost.Model, string, error) {
	switch {
	case o.types != "":
		return nil, "", cli.Usage("--type: a file has types of its own; name a shape")
	case o.layers+o.hidden+o.ffn+o.heads+o.kvHeads+o.headDim+o.vocab > 0:
		return nil, "", cli.Usage("plan: a file has a shape of its own; leave out the flags of the shape")
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil, "", cli.Input("%s: is a folder; plan reads GGUF files", path)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, "", cli.Input("%w", err)
	}
	defer f.Close()
	m, err := cost.OfFile(path, f)
	if err != nil {
		return nil, "", cli.Input("%s: %w", path, err)
	}
	return []*cost.Model{m}, path, nil
}

// newTokens is the room that a context of no given size leaves behind the prompt: ckrun's default of -n.
const newTokens = 512

// plan is one model on one machine.
func (o *planOptions) plan(m *cost.Model, x planMachine, path string) (*planResult, error) {
	use := o.useOf(m.Graph.Context)
	if err := roomToGenerate(use); err != nil {
		return nil, err
	}
	threads := o.app.Common.Threads
	if threads == 0 {
		threads = x.Cores
	}
	mem, err := m.Memory(use, threads)
	if err != nil {
		return nil, err
	}
	heads, kvHeads := m.Heads()
	r := &planResult{
		Model: modelFacts{Name: m.Name, Type: m.Type, Params: m.Params(), Layers: m.Layers(), Hidden: m.Hidden(), Heads: heads, KVHeads: kvHeads,
			Vocab: m.Graph.Vocab, Context: m.Graph.Context},
		Machine: factsOf(x),
		Use:     useFacts{use.Prompt, use.Context, use.Rows, use.UBatch, o.kv, threads},
	}
	r.Memory = memoryOf(m, mem, x.memory)
	r.Placement = placementOf(m, mem, x)
	o.training(m, use, x, r)
	o.networks(m, use, x, r)
	if err := o.speed(m, use, x, threads, r); err != nil {
		return nil, err
	}
	r.Commands = o.commands(mem, use, x, threads, path, r.Memory.Fits)
	return r, nil
}

// speed predicts both phases, if the roofs are known, and judges the claims, which need the theory alone.
func (o *planOptions) speed(m *cost.Model, use cost.Run, x planMachine, threads int, r *planResult) error {
	if err := x.Complete(); err != nil {
		r.NoSpeed = err.Error() + "; give --bandwidth and --peak, or --measure"
		if o.claimDecode > 0 || o.claimPrefill > 0 {
			return fmt.Errorf("nothing can be judged: %s", r.NoSpeed)
		}
		return nil
	}
	tier := x.kernels()
	phase := func(tokens float64, f, least func(cost.Run, cost.Limits) (cost.Time, error)) (*phaseFacts, error) {
		e, t, err := m.Expect(x.Machine, tier, threads, tokens, func(l cost.Limits) (cost.Time, error) { return f(use, l) },
			func(l cost.Limits) (cost.Time, error) { return least(use, l) })
		if err != nil {
			return nil, err
		}
		return &phaseFacts{Low: e.Low, Expected: e.Mid, High: e.High, Bound: e.Bound, Seconds: t.Total(), Matmul: t.Matmul, Attention: t.Attention,
			Elementwise: t.Elementwise, Meetings: t.Meetings, Barriers: t.Barriers, Reading: t.Reading, Bytes: t.Bytes, Ops: t.Ops}, nil
	}
	var err error
	if r.Prefill, err = phase(float64(use.Prompt), m.Prefill, m.LeastPrefill); err != nil {
		return err
	}
	if r.Decode, err = phase(float64(use.Rows), m.Decode, m.LeastDecode); err != nil {
		return err
	}
	first, stay := m.FirstUse(x.Limits(tier, threads))
	r.FirstUse = &firstFacts{first, stay}
	return o.judge(m, use, x, r)
}

// judge compares the claims with what the machine has.
func (o *planOptions) judge(m *cost.Model, use cost.Run, x planMachine, r *planResult) error {
	if o.claimPrefill > 0 {
		kind, err := m.Kind()
		if err != nil {
			return err
		}
		s := o.claimPrefill.Seconds()
		v := m.JudgePrefill(x.Machine, kind, use.Prompt, s)
		r.Claims = append(r.Claims, claimFacts{Claim: fmt.Sprintf("a prompt of %d tokens in %s", use.Prompt, o.claimPrefill), Need: v.Need, Has: v.Has,
			Unit: opsUnit(kind), Kind: kind, Times: v.Times, Possible: v.Possible, Expected: fmt.Sprintf("%s expected", humanize.Seconds(r.Prefill.Seconds))})
	}
	if o.claimDecode > 0 {
		v, err := m.JudgeDecode(x.Machine, use, o.claimDecode)
		if err != nil {
			return err
		}
		r.Claims = append(r.Claims, claimFacts{Claim: fmt.Sprintf("%g tokens/s of one sequence", o.claimDecode), Need: v.Need, Has: v.Has, Unit: "B/s", Kind: "memory",
			Times: v.Times, Possible: v.Possible, Expected: fmt.Sprintf("%.3g tokens/s expected", r.Decode.Expected/float64(use.Rows))})
	}
	return nil
}

// training is what fine-tuning takes.
func (o *planOptions) training(m *cost.Model, use cost.Run, x planMachine, r *planResult) {
	t := m.Training(use.Context, o.rank)
	r.Training = trainingFacts{Full: t.Full, LoRA: t.LoRA, LoRARank: t.Rank, LoRAParams: t.LoRAParams, Activations: t.Activations, Tokens: use.Context,
		Ranks: o.ranks, Sharded: t.Sharded(o.ranks), FullOps: t.FullOps, LoRAOps: t.LoRAOps}
	if x.memory > 0 {
		full, lora := t.Full+t.Activations <= x.memory, t.LoRA+t.Activations <= x.memory
		r.Training.FullFits, r.Training.LoRAFits, r.Training.Machines = &full, &lora, t.Machines(x.memory)
	}
	if x.Complete() == nil {
		peak, bound := x.Peak(x.kernels(), measure.BF16, x.Cores), x.Bound().Peak[measure.BF16]
		r.Training.FullRate, r.Training.LoRARate = peak/t.FullOps, peak/t.LoRAOps
		r.Training.FullBound, r.Training.LoRABound = bound/t.FullOps, bound/t.LoRAOps
	}
}

// networks is what adding up over machines takes.
func (o *planOptions) networks(m *cost.Model, use cost.Run, x planMachine, r *planResult) {
	list := cost.Networks()
	if x.NetworkGbps > 0 {
		list = []cost.Network{cost.NetworkOf(x.NetworkGbps)}
	}
	for _, w := range list {
		r.Networks = append(r.Networks, networkFacts{Network: w.Name, Ranks: o.ranks, Decode: m.Exchange(w, use.Rows, o.ranks),
			Prompt: m.Exchange(w, use.Prompt, o.ranks), Gradients: m.GradientSum(w, o.ranks)})
	}
}

// commands are lines to paste. Memory limits are those with which ckrun does what the table of memory says.
func (o *planOptions) commands(mem cost.Memory, use cost.Run, x planMachine, threads int, path string, fits *bool) []commandFacts {
	packed := fits == nil || *fits
	line := fmt.Sprintf("ckrun -m %s -c %d -ub %d --kv %s", shellWord(path), use.Context, use.UBatch, o.kv)
	if !packed {
		line += " --no-pack"
	}
	if c := o.app.Common.CPU; c != "" {
		line += " --cpu " + c
	}
	all := fmt.Sprintf("%s -t %d", line, threads)
	budget := mem.Budget(packed)
	gi := int64(math.Ceil(float64(budget)/(1<<30))) + 1 // a GiB for what the program has taken before: metadata, the tokenizer
	out := []commandFacts{{"ckrun", all, true}}
	if x.Nodes > 1 {
		if one := threads / x.Nodes; one > 0 && x.memory > 0 && budget < x.memory/int64(x.Nodes)*9/10 {
			out = append(out, commandFacts{"numactl, one node", fmt.Sprintf("numactl --cpunodebind=0 --membind=0 %s -t %d", line, one), false})
		}
		out = append(out, commandFacts{"numactl, all nodes", "numactl --interleave=all " + all, true})
	}
	return append(out,
		commandFacts{"srun", fmt.Sprintf("srun -N 1 -n 1 -c %d --hint=nomultithread --cpu-bind=cores --mem=%dG %s", threads, gi, all), false},
		commandFacts{"Kubernetes", fmt.Sprintf(`resources: {requests: {cpu: "%d", memory: %dGi}, limits: {cpu: "%d", memory: %dGi}}`, threads, gi, threads, gi), false})
}

// shellWord quotes a word for the shell where it needs it.
func shellWord(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-+=@%:,") == "" && s != "" {
		return s
	}
	if cli.Escape(s) == s {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder // what a terminal would obey goes by number, so that the line can be pasted
	b.WriteString("$'")
	for _, c := range []byte(s) {
		switch {
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			fallthrough
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "'"
}
