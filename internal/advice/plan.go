package advice

import (
	"fmt"
	"math"
	"strings"

	"ck/internal/cost"
	"ck/internal/humanize"
	"ck/internal/measure"
	"ck/internal/plaintext"
	"ck/internal/quant"
)

// newTokens is the room that a context of no given size leaves behind the prompt: ckrun's default of -n.
const newTokens = 512

// Plan is one model on one machine. path is the name of the file in commands.
func (o *Ask) Plan(m *cost.Model, x Machine, path string) (*Plan, error) {
	use := o.useOf(m.Graph.Context)
	if err := roomToGenerate(use); err != nil {
		return nil, err
	}
	threads := o.Threads
	if threads == 0 {
		threads = x.Cores
	}
	mem, err := m.Memory(use, threads)
	if err != nil {
		return nil, err
	}
	heads, kvHeads := m.Heads()
	r := &Plan{
		Model: ModelFacts{Name: m.Name, Type: m.Type, Params: m.Params(), Layers: m.Layers(), Hidden: m.Hidden(), Heads: heads, KVHeads: kvHeads,
			Vocab: m.Graph.Vocab, Context: m.Graph.Context},
		Machine: factsOf(x),
		Use:     UseFacts{use.Prompt, use.Context, use.Rows, use.UBatch, o.KV, threads},
	}
	r.Memory = memoryOf(m, mem, x.Limit)
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
func (o *Ask) speed(m *cost.Model, use cost.Run, x Machine, threads int, r *Plan) error {
	if err := x.Complete(); err != nil {
		r.NoSpeed = err.Error() + "; give --bandwidth and --peak, or --measure"
		if o.ClaimDecode > 0 || o.ClaimPrefill > 0 {
			return fmt.Errorf("nothing can be judged: %s", r.NoSpeed)
		}
		return nil
	}
	tier := x.Kernels()
	phase := func(tokens float64, f, least func(cost.Run, cost.Limits) (cost.Time, error)) (*PhaseFacts, error) {
		e, t, err := m.Expect(x.Machine, tier, threads, tokens, func(l cost.Limits) (cost.Time, error) { return f(use, l) },
			func(l cost.Limits) (cost.Time, error) { return least(use, l) })
		if err != nil {
			return nil, err
		}
		return &PhaseFacts{Low: e.Low, Expected: e.Mid, High: e.High, Bound: e.Bound, Seconds: t.Total(), Matmul: t.Matmul, Attention: t.Attention,
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
	r.FirstUse = &FirstFacts{first, stay}
	return o.judge(m, use, x, r)
}

// judge compares the claims with what the machine has.
func (o *Ask) judge(m *cost.Model, use cost.Run, x Machine, r *Plan) error {
	if o.ClaimPrefill > 0 {
		kind, err := m.Kind()
		if err != nil {
			return err
		}
		s := o.ClaimPrefill.Seconds()
		v := m.JudgePrefill(x.Machine, kind, use.Prompt, s)
		r.Claims = append(r.Claims, ClaimFacts{Claim: fmt.Sprintf("a prompt of %d tokens in %s", use.Prompt, o.ClaimPrefill), Need: v.Need, Has: v.Has,
			Unit: opsUnit(kind), Kind: kind, Times: v.Times, Possible: v.Possible, Expected: fmt.Sprintf("%s expected", humanize.Seconds(r.Prefill.Seconds))})
	}
	if o.ClaimDecode > 0 {
		v, err := m.JudgeDecode(x.Machine, use, o.ClaimDecode)
		if err != nil {
			return err
		}
		r.Claims = append(r.Claims, ClaimFacts{Claim: fmt.Sprintf("%g tokens/s of one sequence", o.ClaimDecode), Need: v.Need, Has: v.Has, Unit: "B/s", Kind: "memory",
			Times: v.Times, Possible: v.Possible, Expected: fmt.Sprintf("%.3g tokens/s expected", r.Decode.Expected/float64(use.Rows))})
	}
	return nil
}

// training is what fine-tuning takes.
func (o *Ask) training(m *cost.Model, use cost.Run, x Machine, r *Plan) {
	t := m.Training(use.Context, o.Rank)
	r.Training = TrainingFacts{Full: t.Full, LoRA: t.LoRA, LoRARank: t.Rank, LoRAParams: t.LoRAParams, Activations: t.Activations, Tokens: use.Context,
		Ranks: o.Ranks, Sharded: t.Sharded(o.Ranks), FullOps: t.FullOps, LoRAOps: t.LoRAOps}
	if x.Limit > 0 {
		full, lora := t.Full+t.Activations <= x.Limit, t.LoRA+t.Activations <= x.Limit
		r.Training.FullFits, r.Training.LoRAFits, r.Training.Machines = &full, &lora, t.Machines(x.Limit)
	}
	if x.Complete() == nil {
		peak, bound := x.Peak(x.Kernels(), measure.BF16, x.Cores), x.Bound().Peak[measure.BF16]
		r.Training.FullRate, r.Training.LoRARate = peak/t.FullOps, peak/t.LoRAOps
		r.Training.FullBound, r.Training.LoRABound = bound/t.FullOps, bound/t.LoRAOps
	}
}

// networks is what adding up over machines takes.
func (o *Ask) networks(m *cost.Model, use cost.Run, x Machine, r *Plan) {
	list := cost.Networks()
	if x.NetworkGbps > 0 {
		list = []cost.Network{cost.NetworkOf(x.NetworkGbps)}
	}
	for _, w := range list {
		r.Networks = append(r.Networks, NetworkFacts{Network: w.Name, Ranks: o.Ranks, Decode: m.Exchange(w, use.Rows, o.Ranks),
			Prompt: m.Exchange(w, use.Prompt, o.Ranks), Gradients: m.GradientSum(w, o.Ranks)})
	}
}

// commands are lines to paste. Memory limits are those with which ckrun does what the table of memory says.
func (o *Ask) commands(mem cost.Memory, use cost.Run, x Machine, threads int, path string, fits *bool) []CommandFacts {
	packed := fits == nil || *fits
	line := fmt.Sprintf("ckrun -m %s -c %d -ub %d --kv %s", shellWord(path), use.Context, use.UBatch, o.KV)
	if !packed {
		line += " --no-pack"
	}
	if c := o.CPU; c != "" {
		line += " --cpu " + c
	}
	all := fmt.Sprintf("%s -t %d", line, threads)
	budget := mem.Budget(packed)
	gi := int64(math.Ceil(float64(budget)/(1<<30))) + 1 // a GiB for what the program has taken before: metadata, the tokenizer
	out := []CommandFacts{{"ckrun", all, true}}
	if x.Nodes > 1 {
		if one := threads / x.Nodes; one > 0 && x.Limit > 0 && budget < x.Limit/int64(x.Nodes)*9/10 {
			out = append(out, CommandFacts{"numactl, one node", fmt.Sprintf("numactl --cpunodebind=0 --membind=0 %s -t %d", line, one), false})
		}
		out = append(out, CommandFacts{"numactl, all nodes", "numactl --interleave=all " + all, true})
	}
	return append(out,
		CommandFacts{"srun", fmt.Sprintf("srun -N 1 -n 1 -c %d --hint=nomultithread --cpu-bind=cores --mem=%dG %s", threads, gi, all), false},
		CommandFacts{"Kubernetes", fmt.Sprintf(`resources: {requests: {cpu: "%d", memory: %dGi}, limits: {cpu: "%d", memory: %dGi}}`, threads, gi, threads, gi), false})
}

// shellWord quotes a word for the shell where it needs it.
func shellWord(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-+=@%:,") == "" && s != "" {
		return s
	}
	if plaintext.Escape(s) == s {
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

// useOf is how a model made for so many positions is used, with defaults filled in.
func (o *Ask) useOf(context int) cost.Run {
	kv, _ := quant.Parse(strings.ToUpper(o.KV))
	r := cost.Run{Prompt: o.Prompt, Context: o.Context, Rows: o.Rows, UBatch: o.UBatch, KV: kv}
	if r.Context == 0 {
		r.Context = min(max(r.Prompt+newTokens, 4096), context)
		if r.Context <= r.Prompt {
			r.Context = r.Prompt + newTokens
		}
	}
	return r
}

// roomToGenerate says if the prompt leaves none.
func roomToGenerate(use cost.Run) error {
	if use.Prompt >= use.Context {
		return fmt.Errorf("a prompt of %d tokens leaves no room for a new one in the context of %d; make --context larger or --prompt smaller", use.Prompt, use.Context)
	}
	return nil
}
