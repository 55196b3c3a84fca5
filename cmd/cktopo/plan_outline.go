package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"ck/internal/cli"
	"ck/internal/cost"
	"ck/internal/humanize"
	"ck/internal/measure"
	"ck/internal/quant"
)

// outlineResult is what can be said of a model that ckrun cannot run yet: memory, and what no program can pass. Rates are tokens a second.
type outlineResult struct {
	Model        modelFacts   `json:"model"`
	ActiveParams float64      `json:"active_params"`
	Runs         bool         `json:"runs"` // false
	Lacks        string       `json:"lacks"`
	Machine      machineFacts `json:"machine"`
	Use          useFacts     `json:"use"`
	File         int64        `json:"file"`
	KV           int64        `json:"kv"`
	Need         int64        `json:"need"`          // both; buffers come on top
	Fits         *bool        `json:"fits"`          // null: the machine's memory is not told
	Read         float64      `json:"bytes"`         // of a walk of decode
	Ops          float64      `json:"ops"`           // of the prompt
	AtRate       float64      `json:"at_read_rate"`  // decode at the machine's read bandwidth; 0: not told
	DecodeBound  float64      `json:"decode_bound"`  // at the theory of the memory channels; 0: not told
	PromptBound  float64      `json:"prefill_bound"` // at the arithmetic peak of the best instructions; 0: not told
}

// outlines are the plans of a model that ckrun cannot run yet, on each machine and in each type.
func (o *planOptions) outlines(name string, x cost.Outline) (doc planDoc, err error) {
	doc.Schema, doc.Plans = planSchema, []planResult{}
	switch {
	case o.layers+o.hidden+o.ffn+o.heads+o.kvHeads+o.headDim+o.vocab > 0:
		return doc, cli.Usage("plan: the flags of the shape change models that ckrun can run, and %s is none yet; leave them out", name)
	case o.claimDecode > 0 || o.claimPrefill > 0:
		return doc, cli.Usage("plan: claims are judged by the plan of the engine, which cannot run %s yet; leave them out", x.Lacks)
	}
	machines, err := o.planned()
	if err != nil {
		return doc, err
	}
	types := o.types
	if types == "" {
		if types = x.Default; types == "" {
			types = "Q8_0"
		}
	}
	for _, m := range machines {
		for typ := range strings.SplitSeq(types, ",") {
			r, err := o.outline(name, strings.TrimSpace(typ), x, m)
			if err != nil {
				return doc, cli.Usage("plan: %v", err)
			}
			doc.Outlines = append(doc.Outlines, *r)
		}
	}
	return doc, nil
}

// outline is one type on one machine.
func (o *planOptions) outline(name, typ string, x cost.Outline, m planMachine) (*outlineResult, error) {
	tensors, err := x.Tensors(typ)
	if err != nil {
		return nil, err
	}
	use := o.useOf(x.Context)
	if err := roomToGenerate(use); err != nil {
		return nil, err
	}
	w, kv := x.Weigh(tensors, use.Rows), x.CacheBytes(use.KV, use.Context)
	r := &outlineResult{
		Model: modelFacts{Name: name, Type: strings.ToUpper(typ), Params: w.Params, Layers: x.Layers, Hidden: x.Hidden, Heads: x.Heads, KVHeads: x.KVHeads, Vocab: x.Vocab,
			Context: x.Context},
		ActiveParams: w.ActiveParams, Lacks: x.Lacks, Machine: factsOf(m), Use: useFacts{use.Prompt, use.Context, use.Rows, use.UBatch, o.kv, m.Cores},
		File: w.File, KV: kv * int64(use.Rows), Read: w.Read + float64(kv*int64(use.Rows)), Ops: w.PromptOps(use.Prompt),
	}
	r.Need = r.File + r.KV
	if m.memory > 0 {
		fits := r.Need <= m.memory
		r.Fits = &fits
	}
	r.AtRate = r.Machine.Read * float64(use.Rows) / r.Read
	r.DecodeBound = max(r.Machine.Theory, r.Machine.Read) * float64(use.Rows) / r.Read
	for _, kind := range []string{measure.Int8, measure.BF16, measure.F32} {
		r.PromptBound = max(r.PromptBound, r.Machine.BoundOps[kind]*float64(use.Prompt)/r.Ops)
	}
	return r, nil
}

// notYet says plainly what the plan is not.
func (r *outlineResult) notYet() string {
	return fmt.Sprintf("ckrun cannot run it yet (%s): what follows is its memory and what no program can pass, not what ck would do", r.Lacks)
}

func (r *outlineResult) modelLine() string {
	p := planResult{Model: r.Model}
	line := p.modelLine()
	if r.ActiveParams < 0.75*r.Model.Params {
		line += fmt.Sprintf("; a token uses %s parameters", humanize.Count(r.ActiveParams))
	}
	return line
}

// write prints the outline for people, or as one fact a line.
func (r *outlineResult) write(w io.Writer, plain bool, columns int) error {
	if !plain {
		p := planResult{Machine: r.Machine}
		for _, line := range []string{r.modelLine(), p.machineLine(), r.notYet()} {
			if _, err := fmt.Fprintln(w, strings.Join(cli.Wrap(cli.Escape(line), columns), "\n")); err != nil {
				return err
			}
		}
	}
	for _, t := range r.tables(plain) {
		if !plain {
			if _, err := fmt.Fprintf(w, "\n%s\n", t.title); err != nil {
				return err
			}
		}
		t.Columns = columns
		if err := t.Write(w, plain); err != nil {
			return err
		}
	}
	return nil
}

func (r *outlineResult) tables(plain bool) []planTable {
	atRate := func(x float64) string {
		if x == 0 || math.IsNaN(x) {
			return "not told"
		}
		return humanize.TokenRate(x)
	}
	memory := cli.Table{Head: []string{"memory", "bytes", "of"}, Right: []bool{false, true, false}, Rows: [][]string{
		{"weights", humanize.Bytes(r.File), humanize.Count(r.Model.Params) + " parameters as " + r.Model.Type},
		{"KV cache", humanize.Bytes(r.KV), fmt.Sprintf("%s of %s in %s, windows counted as such", humanize.Plural(r.Use.Rows, "sequence"), humanize.Plural(r.Use.Context, "position"), r.Use.KV)},
		{"needed", humanize.Bytes(r.Need), fitsText(r.Fits, "fits", "does not fit") + capText(r.Machine.MemoryCap) + "; buffers come on top"}}}
	speed := cli.Table{Head: []string{"phase", "at the read rate", "no program above", "rests on"}, Right: []bool{false, true, true, false}, Rows: [][]string{
		{"decode, " + humanize.Plural(r.Use.Rows, "row"), atRate(r.AtRate), atRate(r.DecodeBound), fmt.Sprintf("each walk reads %s", humanize.Bytes(int64(r.Read)))},
		{fmt.Sprintf("prefill %d", r.Use.Prompt), "-", atRate(r.PromptBound), fmt.Sprintf("%.3g operations, attention and logits left out", r.Ops)}}}
	out := []planTable{{"Memory", memory}, {"Tokens/s at most", speed}}
	if plain {
		out = append([]planTable{{"", cli.Table{Head: []string{"model", "runs", "lacks"}, Rows: [][]string{{r.Model.Name + ", " + r.Model.Type, "no", r.Lacks}}}}}, out...)
	}
	return out
}

// writeOutlines prints all outlines; --short has one comment for each and no line to type, which is an input that cannot be used.
func (o *planOptions) writeOutlines(doc *planDoc) error {
	w := o.app.Text()
	for i := range doc.Outlines {
		r := &doc.Outlines[i]
		var err error
		switch {
		case o.short && o.app.Common.Quiet:
		case o.short:
			text := fmt.Sprintf("# %s, %s on %s: %s, %s", r.Model.Name, r.Model.Type, r.Machine.Name, humanize.Bytes(r.Need), fitsText(r.Fits, "fits", "does not fit")+capText(r.Machine.MemoryCap))
			_, err = fmt.Fprintln(w, cli.Escape(text))
		default:
			if i > 0 && !o.app.Common.Plain {
				_, err = fmt.Fprintln(w)
			}
			if err == nil {
				err = r.write(w, o.app.Common.Plain, o.columns())
			}
		}
		if err != nil {
			return cli.OutError(err)
		}
	}
	if r := doc.Outlines[0]; o.short {
		return cli.Input("%s: ckrun cannot run it yet (%s), so there is no line to type; plan without --short says what it would take", r.Model.Name, r.Lacks)
	}
	return nil
}

// useOf is how a model made for so many positions is used, with defaults filled in.
func (o *planOptions) useOf(context int) cost.Run {
	kv, _ := quant.Parse(strings.ToUpper(o.kv))
	r := cost.Run{Prompt: o.prompt, Context: o.context, Rows: o.rows, UBatch: o.ubatch, KV: kv}
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
