package main

import (
	"fmt"
	"io"
	"strings"

	"ck/internal/cli"
	"ck/internal/cost"
	"ck/internal/humanize"
	"ck/internal/measure"
)

// planDoc is what plan says; the tags are the names in JSON. Times are seconds, sizes bytes, rates per second.
type planDoc struct {
	Schema string       `json:"schema"`
	Plans  []planResult `json:"plans"` // machines, and within each the types

	Outlines []outlineResult `json:"outlines,omitempty"` // instead: of a model that ckrun cannot run yet
}

type planResult struct {
	Model     modelFacts       `json:"model"`
	Machine   machineFacts     `json:"machine"`
	Use       useFacts         `json:"use"`
	Memory    memoryFacts      `json:"memory"`
	Placement []placementFacts `json:"placement"`
	Prefill   *phaseFacts      `json:"prefill"` // null: the roofs are not known
	Decode    *phaseFacts      `json:"decode"`
	NoSpeed   string           `json:"no_speed,omitempty"`
	FirstUse  *firstFacts      `json:"first_use"`
	Claims    []claimFacts     `json:"claims"`
	Networks  []networkFacts   `json:"networks"`
	Training  trainingFacts    `json:"training"`
	Commands  []commandFacts   `json:"commands"`
}

type modelFacts struct {
	Name    string  `json:"name"`
	Type    string  `json:"type"`
	Params  float64 `json:"params"`
	Layers  int     `json:"layers"`
	Hidden  int     `json:"hidden"`
	Heads   int     `json:"heads"`
	KVHeads int     `json:"kv_heads"`
	Vocab   int     `json:"vocab"`
	Context int     `json:"context"`
}

type machineFacts struct {
	Name      string             `json:"name"`
	Sockets   int                `json:"sockets"`
	Nodes     int                `json:"nodes"`
	Cores     int                `json:"cores"`
	ISA       string             `json:"isa"`
	Tier      string             `json:"tier"`       // of the kernels
	Read      float64            `json:"read_bytes"` // 0: not known
	Why       string             `json:"read_from"`
	Theory    float64            `json:"theory_bytes"`
	PeakOps   map[string]float64 `json:"peak_ops"`  // of the kernels' tier, all cores
	BoundOps  map[string]float64 `json:"bound_ops"` // of the best tier
	MemoryCap int64              `json:"memory"`    // for a model; 0: not told
}

type useFacts struct {
	Prompt  int    `json:"prompt"`
	Context int    `json:"context"`
	Rows    int    `json:"rows"`
	UBatch  int    `json:"ubatch"`
	KV      string `json:"kv"`
	Threads int    `json:"threads"`
}

type partFacts struct {
	Class  string  `json:"class"`
	Params float64 `json:"params"`
	Bytes  int64   `json:"bytes"`
	Panels int64   `json:"panels"`
}

type layoutFacts struct {
	Layout   string           `json:"layout"`
	KVHeads  int              `json:"kv_heads"`
	Position map[string]int64 `json:"bytes_per_position"` // by cache type
}

type memoryFacts struct {
	Parts       []partFacts   `json:"weights"`
	File        int64         `json:"file"`
	Panels      int64         `json:"panels"`
	KVPosition  int64         `json:"kv_per_position"`
	KV          int64         `json:"kv"`
	Layouts     []layoutFacts `json:"kv_layouts"`
	Activations int64         `json:"activations"`
	Need        int64         `json:"need"`      // panels, cache, activations
	NeedFile    int64         `json:"need_file"` // without panels: file, cache, activations
	Budget      int64         `json:"budget"`    // least free memory with which ckrun makes all panels
	BudgetFile  int64         `json:"budget_file"`
	Fits        *bool         `json:"fits"` // panels; null: the machine's memory is not told
	FileFits    *bool         `json:"file_fits"`
}

type placementFacts struct {
	Node    int   `json:"node"`
	Cores   int   `json:"cores"`
	Weights int64 `json:"weights"`
	KVHeads int   `json:"kv_heads"` // 0: fewer heads than nodes, split by position
	KV      int64 `json:"kv"`
	Memory  int64 `json:"memory"` // 0: not told
}

type phaseFacts struct {
	Low         float64 `json:"low"` // tokens a second
	Expected    float64 `json:"expected"`
	High        float64 `json:"high"`
	Bound       float64 `json:"bound"`
	Seconds     float64 `json:"seconds"` // of the prompt, of one walk of decode
	Matmul      float64 `json:"matmul"`
	Attention   float64 `json:"attention"`
	Elementwise float64 `json:"elementwise"`
	Meetings    float64 `json:"barriers"`
	Barriers    int     `json:"barrier_count"`
	Reading     float64 `json:"waiting_for_memory"` // seconds, of those of matmuls and attention
	Bytes       float64 `json:"bytes"`
	Ops         float64 `json:"ops"`
}

type firstFacts struct {
	First float64 `json:"first_walk"` // longer
	Stay  float64 `json:"packing"`    // over the next walks
}

type claimFacts struct {
	Claim    string  `json:"claim"`
	Need     float64 `json:"need"`
	Has      float64 `json:"has"`
	Unit     string  `json:"unit"`
	Kind     string  `json:"kind"`
	Times    float64 `json:"times"` // need / has
	Possible bool    `json:"possible"`
	Expected string  `json:"expected"`
}

type networkFacts struct {
	Network   string  `json:"network"`
	Ranks     int     `json:"ranks"`
	Decode    float64 `json:"decode"` // a walk
	Prompt    float64 `json:"prompt"`
	Gradients float64 `json:"gradients"` // a step of training
}

type trainingFacts struct {
	Tokens      int     `json:"tokens"` // of a sequence
	Full        int64   `json:"full"`
	LoRA        int64   `json:"lora"`
	LoRARank    int     `json:"lora_rank"`
	LoRAParams  float64 `json:"lora_params"`
	Activations int64   `json:"activations"`
	Ranks       int     `json:"ranks"`
	Sharded     int64   `json:"sharded"`
	FullOps     float64 `json:"full_ops_per_token"`
	LoRAOps     float64 `json:"lora_ops_per_token"`
	FullRate    float64 `json:"full_tokens_per_s_at_peak"` // of the kernels' tier; 0: the peak is not known
	LoRARate    float64 `json:"lora_tokens_per_s_at_peak"`
	FullBound   float64 `json:"full_tokens_per_s_bound"` // at the peak of the best tier
	LoRABound   float64 `json:"lora_tokens_per_s_bound"`
	FullFits    *bool   `json:"full_fits"`
	LoRAFits    *bool   `json:"lora_fits"`
	Machines    int     `json:"machines"` // of this memory for full training; 0: no number, or not told
}

type commandFacts struct {
	For  string `json:"for"`
	Line string `json:"line"`
	all  bool   // for a shell, with all threads
}

// factsOf describes the machine.
func factsOf(x planMachine) machineFacts {
	bw, why := x.ReadBandwidth()
	if x.why != "" {
		why = x.why
	}
	f := machineFacts{Name: x.Name, Sockets: x.Sockets, Nodes: x.Nodes, Cores: x.Cores, ISA: x.ISA, Tier: x.kernels().String(), Read: bw, Why: why,
		Theory: x.TheoryBandwidth(), PeakOps: map[string]float64{}, BoundOps: map[string]float64{}, MemoryCap: x.memory}
	bound := x.Bound()
	for _, k := range []string{measure.Int8, measure.BF16, measure.F32} {
		f.PeakOps[k], f.BoundOps[k] = x.Peak(x.kernels(), k, x.Cores), bound.Peak[k]
	}
	return f
}

// memoryOf says what is needed and whether it fits into so many bytes.
func memoryOf(m *cost.Model, mem cost.Memory, limit int64) memoryFacts {
	f := memoryFacts{File: mem.File, Panels: mem.Panels, KVPosition: mem.KVPosition, KV: mem.KV, Activations: mem.Activations,
		Need: mem.Need(true), NeedFile: mem.Need(false), Budget: mem.Budget(true), BudgetFile: mem.Budget(false)}
	for _, p := range mem.Parts {
		f.Parts = append(f.Parts, partFacts(p))
	}
	for _, l := range m.CacheLayouts() {
		f.Layouts = append(f.Layouts, layoutFacts{l.Layout, l.Heads, l.Bytes})
	}
	if limit > 0 {
		packed, file := f.Budget <= limit, f.BudgetFile <= limit
		f.Fits, f.FileFits = &packed, &file
	}
	return f
}

// placementOf cuts weights and heads over the memory nodes.
func placementOf(m *cost.Model, mem cost.Memory, x planMachine) []placementFacts {
	_, heads := m.Heads()
	var out []placementFacts
	share := func(n, i int) int { return n*(i+1)/x.Nodes - n*i/x.Nodes }
	for i := range x.Nodes {
		p := placementFacts{Node: i, Cores: share(x.Cores, i), Weights: mem.Panels / int64(x.Nodes), KV: mem.KV / int64(x.Nodes), Memory: x.memory / int64(x.Nodes)}
		if heads >= x.Nodes {
			p.KVHeads = share(heads, i)
			p.KV = mem.KV / int64(heads) * int64(p.KVHeads)
		}
		out = append(out, p)
	}
	return out
}

// opsUnit is the unit of a kind's operations, of which a multiplication and an addition are two: floating-point ones, or integer ones.
func opsUnit(kind string) string {
	if kind == measure.Int8 {
		return "OP/s"
	}
	return "FLOP/s"
}

func fitsText(b *bool, yes, no string) string {
	switch {
	case b == nil:
		return "memory not told"
	case *b:
		return yes
	}
	return no
}

// planTable is a table with its title.
type planTable struct {
	title string
	cli.Table
}

// write prints the plans: what they say in short where there are several, then each in full. Tables that say what the same table said for
// the plan before are left out. plain prints all facts, one a line, after the name of the plan.
func (d *planDoc) write(w io.Writer, plain bool, columns int) error {
	if len(d.Plans) > 1 && !plain {
		if err := d.compare(w, columns); err != nil {
			return err
		}
	}
	said := map[string]string{}
	for i := range d.Plans {
		p := &d.Plans[i]
		var again []string
		if !plain {
			if len(d.Plans) > 1 {
				fmt.Fprintln(w)
			}
			for _, line := range []string{p.modelLine(), p.machineLine()} {
				if _, err := fmt.Fprintln(w, strings.Join(cli.Wrap(cli.Escape(line), columns), "\n")); err != nil {
					return err
				}
			}
		}
		for _, s := range p.sections(plain || len(d.Plans) == 1) {
			if plain && len(d.Plans) > 1 {
				for j := range s.Rows {
					s.Rows[j][0] = fmt.Sprintf("%s, %s: %s", p.Machine.Name, p.Model.Type, s.Rows[j][0])
				}
			}
			if !plain {
				text := fmt.Sprint(s.Rows)
				if said[s.title] == text {
					again = append(again, s.title)
					continue
				}
				said[s.title] = text
				fmt.Fprintf(w, "\n%s\n", strings.Join(cli.Wrap(s.title, columns), "\n"))
			}
			if s.title != toType { // lines to paste stay whole
				s.Columns = columns
			}
			if err := s.Write(w, plain); err != nil {
				return err
			}
		}
		for j, title := range again {
			if j == 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "As above: %s\n", title)
		}
	}
	return nil
}

// toType is the title of the lines to paste.
const toType = "To type"

// writeShort prints what each plan takes in a comment, and the line to type. Both can be pasted into a shell. A
// model that fits nowhere has no line, and is a check that says no.
func (d *planDoc) writeShort(w io.Writer, quiet bool) error {
	var tooLarge []*planResult
	for i := range d.Plans {
		p := &d.Plans[i]
		m := p.Memory
		nowhere := m.FileFits != nil && !*m.FileFits
		if !quiet {
			takes := humanize.Bytes(m.Need) + ", " + fitsText(m.Fits, "fits", "does not fit") + capText(p.Machine.MemoryCap)
			if m.Fits != nil && !*m.Fits {
				takes += fmt.Sprintf("; without panels %s, %s", humanize.Bytes(m.NeedFile), fitsText(m.FileFits, "fits", "does not fit"))
			}
			text := fmt.Sprintf("# %s, %s on %s: %s", p.Model.Name, p.Model.Type, p.Machine.Name, takes)
			if p.Decode != nil && !nowhere {
				text += fmt.Sprintf("; %s tokens/s (%s to %s), a prompt of %d tokens in %s", humanize.TokenRate(p.Decode.Expected), humanize.TokenRate(p.Decode.Low), humanize.TokenRate(p.Decode.High),
					p.Use.Prompt, humanize.Seconds(p.Prefill.Seconds))
			}
			if _, err := fmt.Fprintln(w, cli.Escape(text)); err != nil {
				return err
			}
		}
		if nowhere {
			tooLarge = append(tooLarge, p)
			continue
		}
		if _, err := fmt.Fprintln(w, p.best()); err != nil {
			return err
		}
	}
	if len(tooLarge) > 0 {
		p := tooLarge[0]
		return cli.Check("%s, %s: needs %s, %s has %s for a model; take a smaller type (--type) or a shorter context (-c)", p.Model.Name, p.Model.Type,
			humanize.Bytes(p.Memory.NeedFile), p.Machine.Name, humanize.Bytes(p.Machine.MemoryCap))
	}
	return nil
}

// best is the line for all threads: over all memory nodes, if there are several.
func (p *planResult) best() string {
	line := ""
	for _, c := range p.Commands {
		if c.all {
			line = c.Line
		}
	}
	return line
}

// compare is the table of all plans, and that of all claims.
func (d *planDoc) compare(w io.Writer, columns int) error {
	use := d.Plans[0].Use
	t := cli.Table{Head: []string{"machine", "type", "memory", "fits", "prompt", "no program below", "decode tokens/s", "low", "high", "no program above"},
		Right: []bool{false, false, true, false, true, true, true, true, true, true}}
	c := cli.Table{Head: []string{"claim", "needs", "machine", "type", "there is", "verdict"}, Right: []bool{false, true, false, false, true}}
	for _, p := range d.Plans {
		row := []string{p.Machine.Name, p.Model.Type, humanize.Bytes(p.Memory.Need), p.Memory.fits(), "-", "-", "-", "-", "-", "-"}
		if p.Prefill != nil {
			copy(row[4:], []string{humanize.Seconds(p.Prefill.Seconds), humanize.Seconds(float64(p.Use.Prompt) / p.Prefill.Bound),
				humanize.TokenRate(p.Decode.Expected), humanize.TokenRate(p.Decode.Low), humanize.TokenRate(p.Decode.High), humanize.TokenRate(p.Decode.Bound)})
		}
		t.Rows = append(t.Rows, row)
	}
	for i := range d.Plans[0].Claims { // all plans are asked the same
		for _, p := range d.Plans {
			x := p.Claims[i]
			c.Rows = append(c.Rows, []string{x.Claim, x.needText(), p.Machine.Name, p.Model.Type, x.hasText(), x.verdict()})
		}
	}
	fmt.Fprintf(w, "All together: a prompt of %d tokens, decode after %d positions\n", use.Prompt, use.Context)
	t.Columns, c.Columns = columns, columns
	if err := t.Write(w, false); err != nil || c.Rows == nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", claimsTitle)
	return c.Write(w, false)
}

func (p *planResult) modelLine() string {
	m := p.Model
	return fmt.Sprintf("%s, %s: %s parameters, %d layers, hidden size %d, %d heads, %d KV heads, vocabulary %d", m.Name, m.Type,
		humanize.Count(m.Params), m.Layers, m.Hidden, m.Heads, m.KVHeads, m.Vocab)
}

func (p *planResult) machineLine() string {
	m := p.Machine
	s := fmt.Sprintf("on %s: %s, %s, %s, %s", m.Name, humanize.Plural(m.Sockets, "socket"), humanize.Plural(m.Nodes, "memory node"), humanize.Plural(m.Cores, "core"), m.ISA)
	if m.Tier != m.ISA {
		s += fmt.Sprintf(" (kernels: %s)", m.Tier)
	}
	if m.Read > 0 {
		s += fmt.Sprintf(", reads %s (%s)", humanize.Scaled(m.Read, "B/s"), m.Why)
	}
	if m.Theory > 0 {
		s += fmt.Sprintf(", theory %s", humanize.Scaled(m.Theory, "B/s"))
	}
	return s
}

// sections are the tables of a plan, with its claims or without.
func (p *planResult) sections(claims bool) []planTable {
	out := []planTable{p.speed()}
	if claims && len(p.Claims) > 0 {
		out = append(out, p.claims())
	}
	if p.Prefill != nil {
		out = append(out, p.times())
	}
	out = append(out, p.memory(), p.weights(), p.layouts())
	if len(p.Placement) > 1 {
		out = append(out, p.placement())
	}
	out = append(out, p.training(), p.networks())
	t := cli.Table{Head: []string{"for", "line"}}
	for _, c := range p.Commands {
		t.Rows = append(t.Rows, []string{c.For, c.Line})
	}
	return append(out, planTable{toType, t})
}

func (p *planResult) weights() planTable {
	t := cli.Table{Head: []string{"weights", "parameters", "file", "panels"}, Right: []bool{false, true, true, true}}
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

func (p *planResult) memory() planTable {
	m := p.Memory
	t := cli.Table{Head: []string{"memory", "bytes", "of"}, Right: []bool{false, true, false}}
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
func (m *memoryFacts) fits() string {
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

func (p *planResult) layouts() planTable {
	t := cli.Table{Head: []string{"KV heads", "number"}, Right: []bool{false, true}}
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

func (p *planResult) placement() planTable {
	t := cli.Table{Head: []string{"node", "cores", "weights", "KV heads", "KV cache", "memory"}, Right: []bool{false, true, true, true, true, true}}
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

func (p *planResult) speed() planTable {
	if p.Prefill == nil {
		return planTable{"Speed", cli.Table{Head: []string{"speed", "why"}, Rows: [][]string{{"not known", p.NoSpeed}}}}
	}
	t := cli.Table{Head: []string{"phase", "tokens/s", "low", "high", "bound", "time", "limit"}, Right: []bool{false, true, true, true, true, true}}
	for _, x := range p.phases() {
		f := x.f
		t.Rows = append(t.Rows, []string{x.name, humanize.TokenRate(f.Expected), humanize.TokenRate(f.Low), humanize.TokenRate(f.High), humanize.TokenRate(f.Bound), humanize.Seconds(f.Seconds), f.limit()})
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
	f    *phaseFacts
}

func (p *planResult) phases() []phase {
	return []phase{{fmt.Sprintf("prefill %d", p.Use.Prompt), p.Prefill}, {"decode, " + humanize.Plural(p.Use.Rows, "row"), p.Decode}}
}

// times is where the time goes.
func (p *planResult) times() planTable {
	t := cli.Table{Head: []string{"phase", "matmuls", "attention", "other steps", "barriers", "reads", "computes"}, Right: []bool{false, true, true, true, true, true, true}}
	for _, x := range p.phases() {
		f := x.f
		t.Rows = append(t.Rows, []string{x.name, humanize.Seconds(f.Matmul), humanize.Seconds(f.Attention), humanize.Seconds(f.Elementwise), humanize.Seconds(f.Meetings),
			humanize.Bytes(int64(f.Bytes)), humanize.Scaled(f.Ops, "OP")})
	}
	return planTable{fmt.Sprintf("Where the time goes; the first walk of a file in the page cache takes %s longer, packing %s more later",
		humanize.Seconds(p.FirstUse.First), humanize.Seconds(p.FirstUse.Stay)), t}
}

// limit names what most of the time goes to.
func (f *phaseFacts) limit() string {
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

func (c claimFacts) needText() string { return humanize.Scaled(c.Need, c.Unit) }
func (c claimFacts) hasText() string  { return humanize.Scaled(c.Has, c.Unit) + " (" + c.Kind + ")" }

func (c claimFacts) verdict() string {
	if c.Possible {
		return fmt.Sprintf("not impossible: %.0f %% of what there is; %s", c.Times*100, c.Expected)
	}
	return fmt.Sprintf("breaks physics: %.3g times what there is; %s", c.Times, c.Expected)
}

const claimsTitle = "Claims, beside what all cores and channels do at most; a token takes 2 operations for each parameter"

func (p *planResult) claims() planTable {
	t := cli.Table{Head: []string{"claim", "needs", "there is", "verdict"}, Right: []bool{false, true, true}}
	for _, c := range p.Claims {
		t.Rows = append(t.Rows, []string{c.Claim, c.needText(), c.hasText(), c.verdict()})
	}
	return planTable{claimsTitle, t}
}

func (p *planResult) networks() planTable {
	t := cli.Table{Head: []string{"network", "decode, a walk", "prompt", "gradients, a step"}, Right: []bool{false, true, true, true}}
	for _, n := range p.Networks {
		t.Rows = append(t.Rows, []string{n.Network, humanize.Seconds(n.Decode), humanize.Seconds(n.Prompt), humanize.Seconds(n.Gradients)})
	}
	return planTable{fmt.Sprintf("All-reduce over %d machines (ring): tensor parallel, two sums a layer; data parallel, gradients of all weights", p.Training.Ranks), t}
}

func (p *planResult) training() planTable {
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
	t := cli.Table{Head: []string{"fine-tuning", "memory", "verdict", "machines of this memory", "tokens/s at the peak of " + p.Machine.Tier, "no program above"},
		Right: []bool{false, true, false, true, true, true}}
	t.Rows = [][]string{
		{"full, Adam", humanize.Bytes(x.Full + x.Activations), fitsText(x.FullFits, "fits", "does not fit") + capText(p.Machine.MemoryCap), machines, at(x.FullRate), at(x.FullBound)},
		{fmt.Sprintf("full, sharded over %d", x.Ranks), humanize.Bytes(x.Sharded), "each machine", fmt.Sprint(x.Ranks), at(x.FullRate * float64(x.Ranks)), at(x.FullBound * float64(x.Ranks))},
		{fmt.Sprintf("LoRA, rank %d", x.LoRARank), humanize.Bytes(x.LoRA + x.Activations), fitsText(x.LoRAFits, "fits", "does not fit") + capText(p.Machine.MemoryCap), one, at(x.LoRARate), at(x.LoRABound)}}
	return planTable{fmt.Sprintf("Fine-tuning on sequences of %s, BF16 weights, recomputed activations and logits (%s each sequence)", humanize.Plural(x.Tokens, "token"), humanize.Bytes(x.Activations)), t}
}
