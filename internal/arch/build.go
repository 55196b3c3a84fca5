package arch

import (
	"fmt"
	"math"

	"ck/internal/graph"
	"ck/internal/step"
)

// builder adds the steps of a model to its graph: what every architecture composes. It knows no architecture. After an error it goes on with
// sound values, as hparams does, but adds no layers.
type builder struct {
	*hparams
	g *graph.Graph

	hidden, layers      int
	ffns, kvs           []int // of each layer: width of its feed-forward, KV heads
	heads, headK, headV int   // query heads, elements of a key and of a value
	eps                 float32

	// ownSizes, if it is set, changes what sizes a layer has.
	ownSizes func(*layer)
}

// value is a quantity of the graph, of shape [rows, width].
type value = graph.ValueID

// newBuilder reads the sizes that all architectures have.
func newBuilder(h *hparams) *builder {
	b := &builder{
		hparams: h,
		g:       &graph.Graph{},
		hidden:  h.size("embedding_length"),
		layers:  h.size("block_count"),
		heads:   h.size("attention.head_count"),
		headK:   h.size("attention.key_length"),
		headV:   h.size("attention.value_length"),
		eps:     float32(h.float("attention.layer_norm_rms_epsilon")),
	}
	b.ffns, b.kvs = h.sizes("feed_forward_length", b.layers), h.sizes("attention.head_count_kv", b.layers)
	for _, kv := range b.kvs {
		if b.heads%kv != 0 {
			h.fail(fmt.Errorf("%s.attention.head_count: %d heads cannot share %d KV heads evenly; %s", h.arch, b.heads, kv, Remedy))
		}
	}
	if n := h.size("nextn_predict_layers"); n > 0 { // they stand behind the others
		if n >= b.layers {
			h.fail(fmt.Errorf("%s.nextn_predict_layers: is %d of %d layers; %s", h.arch, n, b.layers, Remedy))
			n = 0
		}
		b.layers -= n
		h.notes = append(h.notes, fmt.Sprintf("%s.nextn_predict_layers: the last %d layers predict tokens further on; they are left out", h.arch, n))
	}
	for _, name := range []string{"attn_norm", "attn_output"} { // some have no norm there
		if beyond := fmt.Sprintf("blk.%d.%s.weight", h.size("block_count"), name); h.has(beyond) {
			h.fail(fmt.Errorf("%s.block_count: is %d, but there is a tensor %s; %s", h.arch, b.layers, beyond, Remedy))
		}
	}
	if b.eps == 0 {
		h.fail(fmt.Errorf("%s.attention.layer_norm_rms_epsilon: is too small for float32; %s", h.arch, Remedy))
	}
	return b
}

// weight adds the tensor to the graph with the shape that the file gives it; the shape rules judge it.
func (b *builder) weight(tensor string) graph.WeightID { return b.weightPart(tensor, part{}, 0) }

// part is which of a tensor's outputs are used: of so many those from from on; the zero part is all of them. See graph.Weight.
type part struct{ from, of int }

// weightPart is so many outputs of a matrix, or of its bias.
func (b *builder) weightPart(tensor string, p part, outputs int) graph.WeightID {
	rows, cols, ok := b.src.Shape(tensor)
	if !ok {
		b.fail(fmt.Errorf("tensor %s: is missing", tensor))
	}
	w := graph.Weight{Name: tensor, Rows: rows, Cols: cols}
	if p.of > 0 {
		has := &w.Rows
		if rows == 1 {
			has = &w.Cols
		}
		if *has != p.of {
			b.fail(fmt.Errorf("tensor %s: has %d outputs, expected %d; %s", tensor, *has, p.of, Remedy))
		}
		*has, w.From, w.Of = outputs, p.from, p.of
	}
	return b.g.Use(w)
}

// withBias is the weight NAME.weight and, where the file has it, NAME.bias.
func (b *builder) withBias(name string) []graph.WeightID {
	w := []graph.WeightID{b.weight(name + ".weight")}
	if b.has(name + ".bias") {
		w = append(w, b.weight(name+".bias"))
	}
	return w
}

// step adds a step with one result, called like the step.
func (b *builder) step(op graph.Op, name string, width int, in []value, w ...graph.WeightID) value {
	v := b.g.NewValue(name, width)
	b.g.Add(op, name, in, []value{v}, w...)
	return v
}

// embed is the residual stream at its beginning: the rows' tokens looked up, times scale; 0: as they are.
func (b *builder) embed(scale float32) value {
	w := b.weight("token_embd.weight")
	b.g.Vocab = b.g.Weights[w].Rows
	if n, ok := b.given("vocab_size"); ok && int(n) != b.g.Vocab {
		b.fail(fmt.Errorf("%s.vocab_size: is %.0f, but token_embd.weight has %d rows; %s", b.arch, n, b.g.Vocab, Remedy))
	}
	x := b.g.NewValue("x", b.hidden)
	b.g.Add(step.Embed{Scale: scale}, "token_embd", nil, []value{x}, w)
	return x
}

// blocks yields the builders of the layers, first to last.
func (b *builder) blocks(yield func(*layer) bool) {
	for n := range b.layers {
		l := &layer{builder: b, n: n, prefix: fmt.Sprintf("blk.%d.", n), ffn: b.ffns[n], kv: b.kvs[n], headK: b.headK, headV: b.headV}
		if b.ownSizes != nil {
			b.ownSizes(l)
		}
		if b.err != nil || !yield(l) {
			return
		}
	}
}

// logits ends the graph: a norm of the residual stream, and the output matrix, which is the embedding's where the file has none.
func (b *builder) logits(x value) {
	n := b.step(step.Norm{Eps: b.eps}, "output_norm", b.hidden, []value{x}, b.weight("output_norm.weight"))
	if b.has("output.weight") {
		b.g.Logits = b.multiply(step.Matmul{Slices: 1}, "output", b.g.Vocab, n)
	} else {
		b.g.Logits = b.step(step.Matmul{Slices: 1}, "output", b.g.Vocab, []value{n}, b.weight("token_embd.weight"))
	}
}

// capLogits keeps the logits within c (step.Softcap); 0: as they are.
func (b *builder) capLogits(c float32) {
	if c != 0 {
		b.g.Logits = b.step(step.Softcap{Cap: c}, "output_cap", b.g.Vocab, []value{b.g.Logits})
	}
}

// layer is the builder within layer n: steps and tensors that are called NAME there are called blk.N.NAME in the graph.
type layer struct {
	*builder
	n      int
	prefix string

	ffn, kv, headK, headV int // as of the builder; heads may be others here
}

// norm is RMSNorm of whole rows with the weight NAME.weight.
func (l *layer) norm(name string, x value) value { return l.groupNorm(name, 0, x) }

// groupNorm is RMSNorm of groups of elements, each with the weight NAME.weight.
func (l *layer) groupNorm(name string, group int, x value) value {
	return l.step(step.Norm{Eps: l.eps, Group: group}, l.prefix+name, l.g.Width(x), []value{x}, l.weight(l.prefix+name+".weight"))
}

// linear is a projection to width elements: NAME.weight and, where the file has them, NAME.scale and NAME.bias.
func (l *layer) linear(name string, width int, x value) value {
	return l.multiply(step.Matmul{Slices: 1}, l.prefix+name, width, x)
}

// linearPart is linear of a part of a matrix that has the outputs of several projections: of those of NAME.weight so many from from on. It is called
// as if it had a matrix of its own.
func (l *layer) linearPart(name string, from, of int, as string, width int, x value) value {
	return l.multiplyBy(step.Matmul{Slices: 1}, l.prefix+as, l.prefix+name, width, part{from, of}, x)
}

// multiply is a matmul of NAME.weight; the product is multiplied by NAME.scale, one number, and NAME.bias is added, where the file has them.
func (b *builder) multiply(op step.Matmul, name string, width int, x value) value {
	return b.multiplyBy(op, name, name, width, part{}, x)
}

// multiplyBy is multiply with a part of tensors that are called otherwise than the step.
func (b *builder) multiplyBy(op step.Matmul, name, tensors string, width int, p part, x value) value {
	w := []graph.WeightID{b.weightPart(tensors+".weight", p, width)}
	var bias, scale []graph.WeightID
	if b.has(tensors + ".bias") {
		bias = append(bias, b.weightPart(tensors+".bias", p, width))
	}
	if b.has(tensors + ".scale") {
		scale = append(scale, b.weight(tensors+".scale"))
	}
	if scale == nil {
		return b.step(op, name, width, []value{x}, append(w, bias...)...)
	}
	y := b.step(op, name, width, []value{x}, w...)
	return b.step(step.Scale{By: 1}, name+"_scaled", width, []value{y}, append(scale, bias...)...)
}

// back is the projection from a block back to the residual stream, whose K may belong to NUMA nodes: it is summed in slices (step.SlicesFor).
func (l *layer) back(name string, groups int, x value) value {
	op := step.Matmul{Slices: step.SlicesFor(l.g.Width(x), groups)}
	return l.multiply(op, l.prefix+name, l.hidden, x)
}

// add is x + y: a residual connection.
func (l *layer) add(name string, x, y value) value {
	return l.step(step.Add{}, l.prefix+name, l.g.Width(x), []value{x, y})
}

// gated is a feed-forward block with a gate: ffn_down(act(ffn_gate(x), ffn_up(x))).
func (l *layer) gated(act step.Activation, x value) value { return l.gatedBy("", l.ffn, act, x) }

// gatedBy is gated with tensors of that suffix, width elements in between.
func (l *layer) gatedBy(suffix string, width int, act step.Activation, x value) value {
	gate, up := l.linear("ffn_gate"+suffix, width, x), l.linear("ffn_up"+suffix, width, x)
	return l.back("ffn_down"+suffix, 0, l.step(step.GLU{Act: act}, l.prefix+"ffn_act"+suffix, width, []value{gate, up}))
}

// attention is what decides over the attention of a model beside its projections.
type attention struct {
	windows []int   // by layer: how many positions a row sees, its own included; 0 for all
	scale   float64 // of the scores
	cap     float64 // of the scores, see step.Softcap; 0 for none
	sinks   bool    // each head has a score without a key (step.Attend)
	chunked bool    // windows are stretches that begin at multiples of them
	turns   []turn  // what becomes of queries and keys before they meet, in this order
	values  turn    // what becomes of values; nil: nothing

	// from is by layer the one whose keys and values it reads, itself or an earlier one; nil: each its own.
	from []int
	kept map[int]keysValues // of layers that others read
}

// keysValues is what a layer attends to.
type keysValues struct {
	k, v  value
	cache int
}

// A turn makes queries, keys or values of all heads of a layer, which stand in x, into others; of is "q", "k" or "v".
type turn func(l *layer, of string, x value) value

// attention is that with the usual scale, one over the root of the head size.
func (b *builder) attention(windows []int, turns ...turn) attention {
	return attention{windows: windows, scale: 1 / math.Sqrt(float64(b.headK)), turns: turns}
}

// normHeads is the turn that normalises each head by itself.
func normHeads(l *layer, of string, x value) value {
	return l.groupNorm("attn_"+of+"_norm", l.headK, x)
}

// normWhole is the turn that normalises all heads of a row together.
func normWhole(l *layer, of string, x value) value { return l.norm("attn_"+of+"_norm", x) }

// project is the queries, keys and values of x: of matrices of their own, or of one. A layer without a matrix of values has its keys for them.
func (l *layer) project(a attention, x value) (q, k, v value) {
	nq, nk, nv := l.heads*l.headK, l.kv*l.headK, l.kv*l.headV
	if !l.has(l.prefix + "attn_qkv.weight") {
		q, k = l.linear("attn_q", nq, x), l.linear("attn_k", nk, x)
		if a.values != nil && nk == nv && !l.has(l.prefix+"attn_v.weight") {
			return q, k, k
		}
		return q, k, l.linear("attn_v", nv, x)
	}
	all := nq + nk + nv
	q, k = l.linearPart("attn_qkv", 0, all, "attn_q", nq, x), l.linearPart("attn_qkv", nq, all, "attn_k", nk, x)
	return q, k, l.linearPart("attn_qkv", nq+nk, all, "attn_v", nv, x)
}

// attend is an attention block: projections, turns, attention over keys and values of the layer's own or of an earlier one, and the way back.
func (l *layer) attend(a attention, x value) value {
	q, own := l.meet(a, x)
	op := step.Attend{Cache: own.cache, Heads: l.heads, Scale: a.scale, Cap: a.cap}
	var sinks []graph.WeightID
	if a.sinks {
		sinks = append(sinks, l.weight(l.prefix+"attn_sinks.weight"))
	}
	return l.back("attn_output", l.kv, l.step(op, l.prefix+"attn", l.heads*l.headV, []value{q, own.k, own.v}, sinks...))
}

// meet is the queries of x, and the keys and values that they meet.
func (l *layer) meet(a attention, x value) (value, keysValues) {
	if a.from != nil && a.from[l.n] != l.n {
		q := l.linear("attn_q", l.heads*l.headK, x)
		for _, t := range a.turns {
			q = t(l, "q", q)
		}
		for _, name := range []string{"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"} {
			l.has(l.prefix + name) // files have them, though nobody reads them
		}
		return q, a.kept[a.from[l.n]]
	}
	q, k, v := l.project(a, x)
	for _, t := range a.turns {
		q, k = t(l, "q", q), t(l, "k", k)
	}
	if a.values != nil {
		v = a.values(l, "v", v)
	}
	l.g.Caches = append(l.g.Caches, graph.Cache{KVHeads: l.kv, D: l.headK, Dv: l.headV, Window: a.windows[l.n], Chunked: a.chunked})
	own := keysValues{k, v, len(l.g.Caches) - 1}
	if a.kept != nil {
		a.kept[l.n] = own
	}
	return q, own
}

// preNorm is a whole model of the kind that llama began: RMSNorm before attention and before a feed-forward with SiLU gate.
func (b *builder) preNorm(a attention) {
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.attend(a, l.norm("attn_norm", x)))
		x = l.add("ffn_residual", x, l.gated(step.SiLU, l.norm("ffn_norm", x)))
	}
	b.logits(x)
}
