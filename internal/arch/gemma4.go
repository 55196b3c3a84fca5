package arch

import (
	"fmt"
	"math"

	"ck/internal/step"
)

// gemma4 is Gemma 4 (Google 2026): gemma 3 with heads of other sizes in layers without a window, values that are normalised, layers that read the
// keys and values of an earlier one, an embedding of each layer's own, and experts beside the feed-forward.
func gemma4(b *builder) {
	windows, _ := b.windowsOf(b.window(1024, "that of gemma 4"), func(layer int) bool { return layer%6 != 5 })
	near := b.rotateBy(halves, b.plainRope(b.float("rope.freq_base_swa"), b.size("rope.dimension_count_swa")))
	far := b.rotate(halves)
	a := attention{windows: windows, scale: 1, kept: map[int]keysValues{}, from: b.sharedKeys(windows)}
	a.turns = []turn{normHeads, func(l *layer, of string, x value) value {
		if windows[l.n] > 0 {
			return near(l, of, x)
		}
		return far(l, of, x)
	}}
	a.values = func(l *layer, _ string, x value) value {
		return l.step(step.Norm{Eps: l.eps, Group: l.headV}, l.prefix+"attn_v_norm", l.g.Width(x), []value{x})
	}
	headK, headV := b.size("attention.key_length_swa"), b.size("attention.value_length_swa")
	b.ownSizes = func(l *layer) {
		if windows[l.n] > 0 {
			l.headK, l.headV = headK, headV
		}
	}
	x := b.embed(float32(math.Sqrt(float64(b.hidden))))
	own := b.layerEmbeddings(x)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.norm("post_attention_norm", l.attend(a, l.norm("attn_norm", x))))
		x = l.add("ffn_residual", x, l.norm("post_ffw_norm", l.beside(x)))
		if own != nil {
			x = l.add("embd_residual", x, own(l, x))
		}
		if name := l.prefix + "layer_output_scale.weight"; l.has(name) {
			x = l.step(step.Scale{By: 1}, l.prefix+"layer_output_scale", l.hidden, []value{x}, l.weight(name))
		}
	}
	b.logits(x)
	if c, ok := b.given("final_logit_softcapping"); ok {
		b.capLogits(float32(c))
	}
}

// sharedKeys is by layer the one whose keys and values it reads: the last ones read those of the last layer before them that has a window, or has
// none, as they do.
func (b *builder) sharedKeys(windows []int) []int {
	from, first := make([]int, b.layers), b.layers-b.size("attention.shared_kv_layers")
	for l := range from {
		from[l] = l
		if l < first {
			if key := fmt.Sprintf("blk.%d.attn_k.weight", l); !b.has(key) {
				b.fail(b.bad("attention.shared_kv_layers", "is %d of %d layers, but tensor %s is missing", b.layers-first, b.layers, key))
			}
			continue
		}
		for from[l] = first - 1; from[l] >= 0 && (windows[from[l]] > 0) != (windows[l] > 0); {
			from[l]--
		}
		if from[l] < 0 {
			b.fail(b.bad("attention.shared_kv_layers", "is %d of %d layers, which leaves layer %d none to share with", b.layers-first, b.layers, l))
			from[l] = l
		}
	}
	return from
}

// beside is the feed-forward of a layer, and the experts beside it where the layer has some: they and their router read x, each in a way of its own.
func (l *layer) beside(x value) value {
	y := l.gated(step.GELU, l.norm("ffn_norm", x))
	if !l.has(l.prefix + "ffn_gate_inp.weight") {
		return y
	}
	y = l.norm("post_ffw_norm_1", y)
	router := l.step(step.Norm{Eps: l.eps}, l.prefix+"ffn_router_norm", l.hidden, []value{x}, l.weight(l.prefix+"ffn_gate_inp.scale"))
	router = l.step(step.Scale{By: float32(1 / math.Sqrt(float64(l.hidden)))}, l.prefix+"ffn_router_scale", l.hidden, []value{router})
	m := l.mixture(step.Softmax, true)
	m.act, m.factors = step.GELU, true
	return l.add("ffn_experts", y, l.norm("post_ffw_norm_2", l.routedBy(m, router, l.norm("pre_ffw_norm_2", x))))
}

// layerEmbeddings makes, where the model has them, the embeddings of all layers, and returns what a layer adds for its own; nil: nothing.
func (b *builder) layerEmbeddings(x value) func(l *layer, x value) value {
	width := b.size("embedding_length_per_layer_input")
	if width == 0 {
		if b.has("per_layer_token_embd.weight") {
			b.fail(b.bad("embedding_length_per_layer_input", "is 0, but there is a tensor per_layer_token_embd.weight"))
		}
		return nil
	}
	all := width * b.layers
	looked := b.step(step.Embed{Scale: float32(math.Sqrt(float64(width)))}, "per_layer_token_embd", all, nil, b.weight("per_layer_token_embd.weight"))
	made := b.step(step.Matmul{Slices: 1}, "per_layer_model_proj", all, []value{x}, b.weight("per_layer_model_proj.weight"))
	made = b.step(step.Scale{By: float32(1 / math.Sqrt(float64(b.hidden)))}, "per_layer_model_scale", all, []value{made})
	made = b.step(step.Norm{Eps: b.eps, Group: width}, "per_layer_proj_norm", all, []value{made}, b.weight("per_layer_proj_norm.weight"))
	both := b.step(step.Add{}, "per_layer_sum", all, []value{made, looked})
	both = b.step(step.Scale{By: float32(math.Sqrt(0.5))}, "per_layer_embd", all, []value{both})
	return func(l *layer, x value) value {
		gate := l.linear("inp_gate", width, x)
		y := l.step(step.GLU{Act: step.GELU}, l.prefix+"inp_act", width, []value{gate, l.columns("inp_embd", width*l.n, width, both)})
		return l.norm("post_norm", l.linear("proj", l.hidden, y))
	}
}

// columns is a part of x.
func (l *layer) columns(name string, from, width int, x value) value {
	return l.step(step.Columns{From: from}, l.prefix+name, width, []value{x})
}
