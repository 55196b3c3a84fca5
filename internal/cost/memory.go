package cost

import (
	"slices"
	"strings"

	"ck/internal/engine"
	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/walk"
)

// Part is the weights of a class.
type Part struct {
	Class  string
	Params float64
	Bytes  int64 // in the file
	Panels int64 // packed; 0 for what is read from the file
}

// Classes of weights, in the order of Parts.
const (
	Embedding = "embedding"
	Attention = "attention"
	FFN       = "feed-forward"
	Output    = "output"
	Other     = "norms, biases, other"
)

// classOf tells a tensor's class by its GGUF name. Vectors are Other.
func classOf(name string, dims int) string {
	switch {
	case dims < 2:
		return Other
	case name == "token_embd.weight":
		return Embedding
	case name == "output.weight":
		return Output
	case strings.Contains(name, ".attn_"):
		return Attention
	case strings.Contains(name, ".ffn_"):
		return FFN
	}
	return Other
}

// Parts lists the weights by class. A tied embedding is also packed, as the output.
func (m *Model) Parts() []Part {
	out := []Part{{Class: Embedding}, {Class: Attention}, {Class: FFN}, {Class: Output}, {Class: Other}}
	at := func(class string) *Part {
		return &out[slices.IndexFunc(out, func(p Part) bool { return p.Class == class })]
	}
	matrix := map[string]int64{}
	for i, w := range m.Graph.Weights {
		if id := graph.WeightID(i); m.Graph.Roles(id)[graph.Matrix] {
			matrix[w.Name] += int64(walk.PanelsRoom(w, m.format(id)))
		}
	}
	for _, t := range m.Tensors {
		p := at(classOf(t.Name, len(t.Shape)))
		rows := int64(rowsOf(t.Shape))
		p.Params += float64(rows) * float64(t.Shape[0])
		p.Bytes += rows * int64(t.Type.RowBytes(t.Shape[0]))
		p.Panels += matrix[t.Name]
	}
	return out
}

// FileBytes is the size of all tensors.
func (m *Model) FileBytes() int64 {
	n := int64(0)
	for _, p := range m.Parts() {
		n += p.Bytes
	}
	return n
}

// PanelBytes is the size of all panels, and of the file form beside them.
func (m *Model) PanelBytes() (file, panels int64) {
	for _, p := range m.Parts() {
		file, panels = file+p.Bytes, panels+p.Panels
	}
	return file, panels
}

// Memory is what a run takes, in bytes.
type Memory struct {
	Parts       []Part
	File        int64 // mapped: page cache, shared with other processes, given back under pressure
	Panels      int64
	KVPosition  int64 // of one position of one sequence
	KV          int64 // of all sequences at full context, in pages of kernel.BlockKeys positions; layers with a sliding window keep all, too
	Activations int64 // the largest plan's buffers
	Logits      int64 // of one row
}

// Need is what must be there without the file: panels, cache and activations, or the file where it is read as it is.
func (x Memory) Need(packed bool) int64 {
	if packed {
		return x.Panels + x.KV + x.Activations
	}
	return x.File + x.KV + x.Activations
}

// Budget is the least free memory with which the engine takes what Need says.
func (x Memory) Budget(packed bool) int64 { return engine.FreeFor(x.Need(packed)) }

// Memory is the account of a run.
func (m *Model) Memory(r Run, workers int) (Memory, error) {
	x := Memory{Parts: m.Parts(), Logits: 4 * int64(m.Graph.Vocab)}
	x.File, x.Panels = m.PanelBytes()
	var err error
	if x.KVPosition, err = m.CacheBytes(r.KV, 0); err != nil {
		return x, err
	}
	x.KV = x.KVPosition * int64(blocks(r.Context, kernel.BlockKeys)*kernel.BlockKeys) * int64(r.Rows)
	p, err := m.planOf(max(r.UBatch, 17), Limits{Workers: workers}, r.UBatch)
	if err != nil {
		return x, err
	}
	x.Activations = int64(p.Arena)
	one, err := m.Plan(plan.One, workers, 1)
	x.Activations = max(x.Activations, int64(one.Arena))
	return x, err
}

// CacheLayouts is what one position takes by head layout and cache type: as the model has it, a KV head for each head, one for all.
type CacheLayout struct {
	Layout string
	Heads  int
	Bytes  map[string]int64 // by cache type
}

// CacheTypes are the types that a KV cache may have.
var CacheTypes = []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0}

// CacheLayouts compares head layouts. A type that the heads' size does not fit is left out.
func (m *Model) CacheLayouts() []CacheLayout {
	q, k := m.Heads()
	out := []CacheLayout{{"as the model", k, nil}}
	if k != q {
		out = append(out, CacheLayout{"one for each head (MHA)", q, nil})
	}
	if k != 1 {
		out = append(out, CacheLayout{"one for all heads (MQA)", 1, nil})
	}
	for i := range out {
		out[i].Bytes = map[string]int64{}
		for _, t := range CacheTypes {
			if n, err := m.CacheBytes(t, out[i].Heads); err == nil {
				out[i].Bytes[t.String()] = n
			}
		}
	}
	return out
}

// Training is the memory of fine-tuning, in bytes, and its arithmetic.
type Training struct {
	Full        int64   // weights, gradients, optimizer
	LoRA        int64   // BF16 weights, and everything of the adapters
	LoRAParams  float64 // of the adapters
	Rank        int
	Activations int64 // of one sequence with recomputation, and its logits
	FullOps     float64
	LoRAOps     float64 // operations per token
}

// Sharded is the memory of each of n machines that share all states of full training.
func (t Training) Sharded(n int) int64 { return t.Full/int64(n) + t.Activations }

// Machines is the least number of machines of so much memory that hold full training together, 0 if no number does.
func (t Training) Machines(memory int64) int {
	if memory <= t.Activations {
		return 0
	}
	return int((t.Full + memory - t.Activations - 1) / (memory - t.Activations))
}

// Training accounts for fine-tuning on sequences of so many tokens, with adapters of a rank beside all matrices of the layers.
func (m *Model) Training(tokens, rank int) Training {
	params := m.Params()
	t := Training{Full: int64(adamBytes * params), Rank: rank, FullOps: opsFull * params, LoRAOps: opsLoRA * params}
	wide := 0
	for _, x := range m.Tensors {
		if len(x.Shape) == 2 && strings.HasPrefix(x.Name, "blk.") {
			t.LoRAParams += float64(rank) * float64(x.Shape[0]+x.Shape[1])
			wide = max(wide, x.Shape[0], x.Shape[1])
		}
	}
	t.LoRA = int64(2*params + adamBytes*t.LoRAParams)
	// The input of every layer; the values of the layer that is being recomputed: some ten of the hidden size, three of the widest; logits in
	// float32, whose gradient takes their place.
	hidden := int64(m.Hidden())
	t.Activations = int64(tokens) * (checkpointBytes*hidden*int64(m.Layers()) + 2*(10*hidden+3*int64(wide)) + 4*int64(m.Graph.Vocab))
	return t
}
