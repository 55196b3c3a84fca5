package arch

import (
	"fmt"
	"math"

	"ck/internal/step"
)

// apertus is Apertus (Swiss AI 2025, arXiv:2509.14233): llama with norms of heads, and a feed-forward without a gate whose activation has numbers of
// each layer's own.
func apertus(b *builder) {
	a := b.attention(b.windows(), normHeads, b.rotate(halves))
	alphaP, alphaN, beta, eps := b.xielu("alpha_p"), b.xielu("alpha_n"), b.xielu("beta"), b.xielu("eps")
	softplus := func(x float32) float64 { return math.Log1p(math.Exp(float64(x))) }
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.attend(a, l.norm("attn_norm", x)))
		// The file has the numbers before the functions that keep them in their ranges (Huang and Schlag 2024, arXiv:2411.13010, section 3).
		act := step.XIELU{AlphaP: float32(softplus(alphaP[l.n])), AlphaN: float32(float64(beta[l.n]) + softplus(alphaN[l.n])), Beta: beta[l.n], Eps: eps[l.n]}
		up := l.linear("ffn_up", l.ffn, l.norm("ffn_norm", x))
		x = l.add("ffn_residual", x, l.back("ffn_down", 0, l.step(step.Activate{XIELU: &act}, l.prefix+"ffn_act", l.ffn, []value{up})))
	}
	b.logits(x)
}

// xielu is the numbers of a key of the activation, one a layer. Its keys begin with no architecture.
func (b *builder) xielu(name string) []float32 {
	key := "xielu." + name
	list, ok, err := b.src.Float32s(key)
	if err != nil || !ok { // or one for all layers
		v, there, e := b.src.Float(key)
		switch {
		case e != nil:
			b.fail(e)
		case !there:
			b.fail(fmt.Errorf("%s: the key is missing; %s", key, Remedy))
		}
		list = make([]float32, b.layers)
		for l := range list {
			list[l] = float32(v)
		}
	}
	if len(list) < b.layers {
		b.fail(fmt.Errorf("%s: has %d entries for %d layers; %s", key, len(list), b.layers, Remedy))
		list = make([]float32, b.layers)
	}
	for l, v := range list[:b.layers] {
		if !(math.Abs(float64(v)) <= 80) || name == "eps" && v > 0 {
			b.fail(fmt.Errorf("%s: of layer %d is %g, expected a number from -80 to 80, and no eps above 0; %s", key, l, v, Remedy))
		}
	}
	return list
}
