package advice

import (
	"strings"

	"ck/internal/cost"
	"ck/internal/measure"
)

// OutlinePlan is what can be said of a model that has no shape: memory, and what no program can pass. Rates are tokens a second.
type OutlinePlan struct {
	Model        ModelFacts   `json:"model"`
	ActiveParams float64      `json:"active_params"`
	Runs         bool         `json:"runs"` // false
	Lacks        string       `json:"lacks"`
	Machine      MachineFacts `json:"machine"`
	Use          UseFacts     `json:"use"`
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

// Outline is a model that has no shape, in one type on one machine.
func (o *Ask) Outline(name, typ string, x cost.Outline, m Machine) (*OutlinePlan, error) {
	tensors, err := x.Tensors(typ)
	if err != nil {
		return nil, err
	}
	use := o.useOf(x.Context)
	if err := roomToGenerate(use); err != nil {
		return nil, err
	}
	w, kv := x.Weigh(tensors, use.Rows), x.CacheBytes(use.KV, use.Context)
	r := &OutlinePlan{
		Model: ModelFacts{Name: name, Type: strings.ToUpper(typ), Params: w.Params, Layers: x.Layers, Hidden: x.Hidden, Heads: x.Heads, KVHeads: x.KVHeads, Vocab: x.Vocab,
			Context: x.Context},
		ActiveParams: w.ActiveParams, Lacks: x.Lacks, Machine: factsOf(m), Use: UseFacts{use.Prompt, use.Context, use.Rows, use.UBatch, o.KV, m.Cores},
		File: w.File, KV: kv * int64(use.Rows), Read: w.Read + float64(kv*int64(use.Rows)), Ops: w.PromptOps(use.Prompt),
	}
	r.Need = r.File + r.KV
	if m.Limit > 0 {
		fits := r.Need <= m.Limit
		r.Fits = &fits
	}
	r.AtRate = r.Machine.Read * float64(use.Rows) / r.Read
	r.DecodeBound = max(r.Machine.Theory, r.Machine.Read) * float64(use.Rows) / r.Read
	for _, kind := range []string{measure.Int8, measure.BF16, measure.F32} {
		r.PromptBound = max(r.PromptBound, r.Machine.BoundOps[kind]*float64(use.Prompt)/r.Ops)
	}
	return r, nil
}
