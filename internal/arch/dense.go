package arch

import (
	"fmt"
	"math"
	"slices"

	"ck/internal/graph"
	"ck/internal/step"
)

// dense is the family of llama: RMSNorm before attention and before a gated feed-forward, rotary positions, grouped queries.
// Biases are wherever the file has them.
type dense struct {
	neox   bool // rotary pairs (i, i+n/2) instead of (2i, 2i+1)
	qkNorm bool // RMSNorm of each query and key head
}

// windows is the sliding window of each layer, 0 for none: of all layers where the file has no pattern.
func (h *hparams) windows(layers int) []int {
	window := h.size("attention.sliding_window")
	pattern, ok := h.bools("attention.sliding_window_pattern")
	out := make([]int, layers)
	switch {
	case ok && len(pattern) != layers:
		h.fail(fmt.Errorf("%s.attention.sliding_window_pattern: has %d entries for %d layers; %s", h.arch, len(pattern), layers, Remedy))
		return out
	case slices.Contains(pattern, true) && window == 0:
		h.fail(fmt.Errorf("%s.attention.sliding_window_pattern: names layers with a window, but sliding_window has no length; %s", h.arch, Remedy))
	case window > 0 && !ok:
		h.relied("attention.sliding_window_pattern")
	}
	for l := range out {
		if !ok || pattern[l] {
			out[l] = window
		}
	}
	return out
}

func (d dense) build(h *hparams) (*graph.Graph, error) {
	var (
		hidden = h.size("embedding_length")
		layers = h.size("block_count")
		ffn    = h.size("feed_forward_length")
		heads  = h.size("attention.head_count")
		kv     = h.size("attention.head_count_kv")
		headK  = h.size("attention.key_length")
		headV  = h.size("attention.value_length")
		eps    = float32(h.float("attention.layer_norm_rms_epsilon"))
		window = h.windows(layers)
		rope   = h.rope()
		g      = &graph.Graph{Context: h.size("context_length"), Ropes: []graph.Rope{rope}}
	)
	if heads%kv != 0 {
		h.fail(fmt.Errorf("%s.attention.head_count: %d heads cannot share %d KV heads evenly; %s", h.arch, heads, kv, Remedy))
	}
	if dims := 2 * len(rope.InvFreq); dims > headK {
		h.fail(fmt.Errorf("%s.rope.dimension_count: is %d, but keys have %d elements; %s", h.arch, dims, headK, Remedy))
	}
	if beyond := fmt.Sprintf("blk.%d.attn_norm.weight", layers); h.has(beyond) {
		h.fail(fmt.Errorf("%s.block_count: is %d, but there is a tensor %s; %s", h.arch, layers, beyond, Remedy))
	}
	if eps == 0 {
		h.fail(fmt.Errorf("%s.attention.layer_norm_rms_epsilon: is too small for float32; %s", h.arch, Remedy))
	}
	if h.err != nil {
		return nil, h.err
	}

	embed := h.weight(g, "token_embd.weight")
	if h.err != nil {
		return nil, h.err
	}
	g.Vocab = g.Weights[embed].Rows
	if n, ok := h.given("vocab_size"); ok && int(n) != g.Vocab {
		h.fail(fmt.Errorf("%s.vocab_size: is %.0f, but token_embd.weight has %d rows; %s", h.arch, n, g.Vocab, Remedy))
	}
	x := g.NewValue("x", hidden)
	g.Add(step.Embed{}, "token_embd", nil, []graph.ValueID{x}, embed)

	one := func(op graph.Op, name string, width int, in []graph.ValueID, w ...graph.WeightID) graph.ValueID {
		v := g.NewValue(name, width)
		g.Values[v].Picked = g.Values[in[0]].Picked
		g.Add(op, name, in, []graph.ValueID{v}, w...)
		return v
	}
	// pick keeps the rows whose logits are wanted.
	pick := func(name string, in graph.ValueID) graph.ValueID {
		v := g.NewValue(name, g.Width(in))
		g.Values[v].Picked = true
		g.Add(step.Pick{}, name, []graph.ValueID{in}, []graph.ValueID{v})
		return v
	}
	linear := func(name string, width, slices int, in graph.ValueID) graph.ValueID {
		return one(step.Matmul{Slices: slices}, name, width, []graph.ValueID{in}, h.withBias(g, name)...)
	}
	for l := range layers {
		b := fmt.Sprintf("blk.%d.", l)
		norm := func(name string, group int, in graph.ValueID) graph.ValueID {
			return one(step.Norm{Eps: eps, Group: group}, b+name, g.Width(in), []graph.ValueID{in}, h.weight(g, b+name+".weight"))
		}
		a := norm("attn_norm", 0, x)
		q := linear(b+"attn_q", heads*headK, 1, a)
		k := linear(b+"attn_k", kv*headK, 1, a)
		v := linear(b+"attn_v", kv*headV, 1, a)
		if d.qkNorm {
			q, k = norm("attn_q_norm", headK, q), norm("attn_k_norm", headK, k)
		}
		turn := step.Rotate{D: headK, Neox: d.neox}
		q = one(turn, b+"rope_q", g.Width(q), []graph.ValueID{q})
		k = one(turn, b+"rope_k", g.Width(k), []graph.ValueID{k})
		g.Caches = append(g.Caches, graph.Cache{KVHeads: kv, D: headK, Dv: headV, Window: window[l]})
		o := one(step.Attend{Cache: l, Heads: heads, Scale: 1 / math.Sqrt(float64(headK))}, b+"attn", heads*headV,
			[]graph.ValueID{q, k, v})
		if l == layers-1 { // later rows need the keys and values of all rows, but nothing behind the last attention
			x, o = pick("pick_x", x), pick("pick_attn", o)
		}
		o = linear(b+"attn_output", hidden, step.SlicesFor(heads*headV, kv), o)
		x = one(step.Add{}, b+"attn_residual", hidden, []graph.ValueID{x, o})

		f := norm("ffn_norm", 0, x)
		gate, up := linear(b+"ffn_gate", ffn, 1, f), linear(b+"ffn_up", ffn, 1, f)
		f = one(step.SwiGLU{}, b+"ffn_act", ffn, []graph.ValueID{gate, up})
		f = linear(b+"ffn_down", hidden, step.SlicesFor(ffn, 0), f)
		x = one(step.Add{}, b+"ffn_residual", hidden, []graph.ValueID{x, f})
		if h.err != nil {
			return nil, h.err
		}
	}
	n := one(step.Norm{Eps: eps}, "output_norm", hidden, []graph.ValueID{x}, h.weight(g, "output_norm.weight"))
	out := []graph.WeightID{embed}
	if h.has("output.weight") {
		out = h.withBias(g, "output")
	}
	g.Logits = one(step.Matmul{Slices: 1}, "output", g.Vocab, []graph.ValueID{n}, out...)
	return g, nil
}
