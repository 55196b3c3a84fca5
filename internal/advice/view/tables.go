package view

import (
	"fmt"

	"ck/internal/advice"
	"ck/internal/cost"
	"ck/internal/humanize"
	"ck/internal/plaintext"
)

func (p plan) weights() planTable {
	t := plaintext.Table{Head: []string{"weights", "parameters", "file", "panels"}, Right: []bool{false, true, true, true}}
	for _, x := range p.Memory.Parts {
		if x.Params > 0 {
			panels := "-" // read from the file
			if x.Panels > 0 {
				panels = humanize.Bytes(x.Panels)
			}
			t.Rows = append(t.Rows, []string{x.Class, humanize.Count(x.Params), humanize.Bytes(x.Bytes), panels})
		}
	}
	t.Rows = append(t.Rows, []string{"all", humanize.Count(p.Model.Params), humanize.Bytes(p.Memory.File), humanize.Bytes(p.Memory.Panels)})
	return planTable{"Weights", t}
}

func (p plan) memory() planTable {
	m := p.Memory
	t := plaintext.Table{Head: []string{"memory", "bytes", "of"}, Right: []bool{false, true, false}}
	t.Rows = [][]string{
		{"panels", humanize.Bytes(m.Panels), "weights, as they are multiplied"},
		{"KV cache", humanize.Bytes(m.KV), fmt.Sprintf("%s of %s in %s, %s each position", humanize.Plural(p.Use.Rows, "sequence"), humanize.Plural(p.Use.Context, "position"), p.Use.KV, humanize.Bytes(m.KVPosition))},
		{"activations", humanize.Bytes(m.Activations), fmt.Sprintf("a walk of %d rows, the logits of all", p.Use.UBatch)},
		{"needed", humanize.Bytes(m.Need), fitsText(m.Fits, "fits", "does not fit") + capText(p.Machine.MemoryCap)},
		{"needed without panels", humanize.Bytes(m.NeedFile), fitsText(m.FileFits, "fits", "does not fit") + capText(p.Machine.MemoryCap) + " (--no-pack: slower)"},
		{"to be free for ckrun", humanize.Bytes(m.Budget), "itself and page tables included; the file is page cache beside it"}}
	return planTable{"Memory", t}
}

// fits says in a word what fits.
func fits(m *advice.MemoryFacts) string {
	switch {
	case m.Fits == nil:
		return "not told"
	case *m.Fits:
		return "yes"
	case *m.FileFits:
		return "--no-pack"
	}
	return "no"
}

func capText(n int64) string {
	if n == 0 {
		return ""
	}
	return " into " + humanize.Bytes(n)
}

func (p plan) layouts() planTable {
	t := plaintext.Table{Head: []string{"KV heads", "number"}, Right: []bool{false, true}}
	for _, k := range cost.CacheTypes {
		t.Head, t.Right = append(t.Head, k.String()), append(t.Right, true)
	}
	for _, l := range p.Memory.Layouts {
		row := []string{l.Layout, fmt.Sprint(l.KVHeads)}
		for _, k := range cost.CacheTypes {
			n, ok := l.Position[k.String()]
			if !ok {
				row = append(row, "-")
				continue
			}
			row = append(row, humanize.Bytes(n*int64(p.Use.Context)))
		}
		t.Rows = append(t.Rows, row)
	}
	return planTable{fmt.Sprintf("KV cache of %d positions, by type", p.Use.Context), t}
}

func (p plan) placement() planTable {
	t := plaintext.Table{Head: []string{"node", "cores", "weights", "KV heads", "KV cache", "memory"}, Right: []bool{false, true, true, true, true, true}}
	for _, x := range p.Placement {
		heads, mem := fmt.Sprint(x.KVHeads), "-"
		if x.KVHeads == 0 {
			heads = "by position"
		}
		if x.Memory > 0 {
			mem = humanize.Bytes(x.Memory)
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(x.Node), fmt.Sprint(x.Cores), humanize.Bytes(x.Weights), heads, humanize.Bytes(x.KV), mem})
	}
	return planTable{"Placement, if every memory node holds what its cores multiply", t}
}

func (p plan) speed() planTable {
	if p.Prefill == nil {
		return planTable{"Speed", plaintext.Table{Head: []string{"speed", "why"}, Rows: [][]string{{"not known", p.NoSpeed}}}}
	}
	t := plaintext.Table{Head: []string{"phase", "tokens/s", "low", "high", "bound", "time", "limit"}, Right: []bool{false, true, true, true, true, true}}
	for _, x := range p.phases() {
		f := x.f
		t.Rows = append(t.Rows, []string{x.name, humanize.TokenRate(f.Expected), humanize.TokenRate(f.Low), humanize.TokenRate(f.High), humanize.TokenRate(f.Bound), humanize.Seconds(f.Seconds), limit(f)})
	}
	title := fmt.Sprintf("Speed with %s, decode after %s", humanize.Plural(p.Use.Threads, "thread"), humanize.Plural(p.Use.Context, "position"))
	if p.Memory.Fits != nil && !*p.Memory.Fits {
		title += ", if panels fitted"
	}
	return planTable{title, t}
}

// phase is a phase with its name.
type phase struct {
	name string
	f    *advice.PhaseFacts
}

func (p plan) phases() []phase {
	return []phase{{fmt.Sprintf("prefill %d", p.Use.Prompt), p.Prefill}, {"decode, " + humanize.Plural(p.Use.Rows, "row"), p.Decode}}
}

// times is where the time goes.
func (p plan) times() planTable {
	t := plaintext.Table{Head: []string{"phase", "matmuls", "attention", "other steps", "barriers", "reads", "computes"}, Right: []bool{false, true, true, true, true, true, true}}
	for _, x := range p.phases() {
		f := x.f
		t.Rows = append(t.Rows, []string{x.name, humanize.Seconds(f.Matmul), humanize.Seconds(f.Attention), humanize.Seconds(f.Elementwise), humanize.Seconds(f.Meetings),
			humanize.Bytes(int64(f.Bytes)), humanize.Scaled(f.Ops, "OP")})
	}
	return planTable{fmt.Sprintf("Where the time goes; the first walk of a file in the page cache takes %s longer, packing %s more later",
		humanize.Seconds(p.FirstUse.First), humanize.Seconds(p.FirstUse.Stay)), t}
}

// limit names what most of the time goes to.
func limit(f *advice.PhaseFacts) string {
	computing := f.Matmul + f.Attention - f.Reading
	name, x := "memory", f.Reading
	switch rest := f.Elementwise + f.Meetings; {
	case rest > max(computing, f.Reading):
		name, x = "barriers, small steps", rest
	case computing > f.Reading:
		name, x = "arithmetic", computing
	}
	return fmt.Sprintf("%s, %.0f %%", name, 100*x/f.Seconds)
}

func (c claim) needText() string { return humanize.Scaled(c.Need, c.Unit) }
func (c claim) hasText() string  { return humanize.Scaled(c.Has, c.Unit) + " (" + c.Kind + ")" }

func (c claim) verdict() string {
	if c.Possible {
		return fmt.Sprintf("not impossible: %.0f %% of what there is; %s", c.Times*100, c.Expected)
	}
	return fmt.Sprintf("breaks physics: %.3g times what there is; %s", c.Times, c.Expected)
}

const claimsTitle = "Claims, beside what all cores and channels do at most; a token takes 2 operations for each parameter"

func (p plan) claims() planTable {
	t := plaintext.Table{Head: []string{"claim", "needs", "there is", "verdict"}, Right: []bool{false, true, true}}
	for _, c := range p.Claims {
		c := claim{c}
		t.Rows = append(t.Rows, []string{c.Claim, c.needText(), c.hasText(), c.verdict()})
	}
	return planTable{claimsTitle, t}
}

func (p plan) networks() planTable {
	t := plaintext.Table{Head: []string{"network", "decode, a walk", "prompt", "gradients, a step"}, Right: []bool{false, true, true, true}}
	for _, n := range p.Networks {
		t.Rows = append(t.Rows, []string{n.Network, humanize.Seconds(n.Decode), humanize.Seconds(n.Prompt), humanize.Seconds(n.Gradients)})
	}
	return planTable{fmt.Sprintf("All-reduce over %d machines (ring): tensor parallel, two sums a layer; data parallel, gradients of all weights", p.Training.Ranks), t}
}

func (p plan) training() planTable {
	x := p.Training
	at := func(r float64) string {
		if r == 0 {
			return "-"
		}
		return humanize.TokenRate(r)
	}
	machines := "-"
	if x.Machines > 0 {
		machines = fmt.Sprint(x.Machines)
	}
	one := "1"
	if x.LoRAFits != nil && !*x.LoRAFits {
		one = "-"
	}
	t := plaintext.Table{Head: []string{"fine-tuning", "memory", "verdict", "machines of this memory", "tokens/s at the peak of " + p.Machine.Tier, "no program above"},
		Right: []bool{false, true, false, true, true, true}}
	t.Rows = [][]string{
		{"full, Adam", humanize.Bytes(x.Full + x.Activations), fitsText(x.FullFits, "fits", "does not fit") + capText(p.Machine.MemoryCap), machines, at(x.FullRate), at(x.FullBound)},
		{fmt.Sprintf("full, sharded over %d", x.Ranks), humanize.Bytes(x.Sharded), "each machine", fmt.Sprint(x.Ranks), at(x.FullRate * float64(x.Ranks)), at(x.FullBound * float64(x.Ranks))},
		{fmt.Sprintf("LoRA, rank %d", x.LoRARank), humanize.Bytes(x.LoRA + x.Activations), fitsText(x.LoRAFits, "fits", "does not fit") + capText(p.Machine.MemoryCap), one, at(x.LoRARate), at(x.LoRABound)}}
	return planTable{fmt.Sprintf("Fine-tuning on sequences of %s, BF16 weights, recomputed activations and logits (%s each sequence)", humanize.Plural(x.Tokens, "token"), humanize.Bytes(x.Activations)), t}
}
