package arch

import (
	"fmt"
	"math"
	"slices"

	"ck/internal/graph"
	"ck/internal/step"
)

// pairing says which elements of a head are turned together.
type pairing bool

const (
	neighbours pairing = false // 2i and 2i+1
	halves     pairing = true  // i and i + half of what is rotated
)

// rotate is the turn by rotary positions, with the frequencies that the file asks for.
func (b *builder) rotate(p pairing) turn { return b.rotateBy(p, b.rope()) }

// rotateByWindow is rotate for models whose layers with a window have a base of their own, and no scaling.
func (b *builder) rotateByWindow(p pairing, windows []int) turn {
	full := b.rotate(p)
	if !slices.ContainsFunc(windows, func(w int) bool { return w > 0 }) {
		return full
	}
	near := b.rotateBy(p, b.plainRope(b.float("rope.freq_base_swa"), b.size("rope.dimension_count")))
	return func(l *layer, of string, x value) value {
		if windows[l.n] > 0 {
			return near(l, of, x)
		}
		return full(l, of, x)
	}
}

// rotateBy is the turn by the frequencies of r.
func (b *builder) rotateBy(p pairing, r graph.Rope) turn {
	b.g.Ropes = append(b.g.Ropes, r)
	table := len(b.g.Ropes) - 1
	return func(l *layer, of string, x value) value {
		if dims := 2 * len(r.InvFreq); dims > l.headK {
			l.fail(fmt.Errorf("%s.rope.dimension_count: is %d, but keys of layer %d have %d elements; %s", l.arch, dims, l.n, l.headK, Remedy))
		}
		op := step.Rotate{Table: table, D: l.headK, Neox: p == halves}
		return l.step(op, l.prefix+"rope_"+of, l.g.Width(x), []value{x})
	}
}

// plainRope is rotary frequencies without scaling.
func (h *hparams) plainRope(base float64, dims int) graph.Rope {
	if dims%2 != 0 {
		h.fail(fmt.Errorf("%s.rope.dimension_count: is %d, and only pairs can be rotated; %s", h.arch, dims, Remedy))
	}
	r := graph.Rope{InvFreq: make([]float64, dims/2), Scale: 1}
	for i := range r.InvFreq {
		r.InvFreq[i] = math.Pow(base, -2*float64(i)/float64(dims))
	}
	return r
}

// rope is the model's table of rotary frequencies, with the scaling that the file asks for: none, linear, yarn (Peng et al. 2023,
// arXiv:2309.00071), or llama3 (factors in the tensor rope_freqs.weight).
func (h *hparams) rope() graph.Rope {
	dims, base := h.size("rope.dimension_count"), h.float("rope.freq_base")
	r := h.plainRope(base, dims)
	factor := h.float("rope.scaling.factor")
	switch kind := h.str("rope.scaling.type"); kind {
	case "none":
	case "":
		if factor != 1 {
			h.relied("rope.scaling.type")
			ropeDivide(r.InvFreq, factor)
		}
	case "linear":
		ropeDivide(r.InvFreq, factor)
	case "longrope": // factors in tensors
	case "yarn":
		h.yarn(&r, dims, base, factor)
	default:
		h.fail(fmt.Errorf("%s.rope.scaling.type: %.100q is not supported; ck knows none, linear, yarn, longrope and llama3 (rope_freqs)", h.arch, kind))
	}
	h.longRope(&r)
	h.ropeFactors(&r, "rope_freqs.weight", r.InvFreq)
	return r
}

// longRope is LongRoPE (Ding et al. 2024, arXiv:2402.13753), where the file has its tensors: factors of sequences that stay within the original
// context, and of others.
func (h *hparams) longRope(r *graph.Rope) {
	const long, short = "rope_factors_long.weight", "rope_factors_short.weight"
	switch {
	case !h.has(long) && !h.has(short):
		if h.str("rope.scaling.type") == "longrope" {
			h.fail(fmt.Errorf("tensor %s: is missing", long))
		}
		return
	case !h.has(long) || !h.has(short):
		h.fail(fmt.Errorf("tensors %s and %s: only one is there; %s", long, short, Remedy))
		return
	}
	r.Long, r.Original = slices.Clone(r.InvFreq), h.size("rope.scaling.original_context_length")
	r.Scale = h.float("rope.scaling.attn_factor")
	h.ropeFactors(r, long, r.Long)
	h.ropeFactors(r, short, r.InvFreq)
}

// ropeFactors divides frequencies by a tensor, where the file has it.
func (h *hparams) ropeFactors(r *graph.Rope, name string, freq []float64) {
	rows, cols, ok := h.src.Shape(name)
	if !ok {
		return
	}
	if rows != 1 || cols != len(r.InvFreq) {
		h.fail(fmt.Errorf("tensor %s: has %d x %d factors, wants %d; %s", name, rows, cols, len(r.InvFreq), Remedy))
		return
	}
	f, err := h.src.Vector(name)
	if err != nil {
		h.fail(err)
		return
	}
	for i := range r.InvFreq {
		if !(f[i] > 0 && f[i] <= math.MaxFloat32) {
			h.fail(fmt.Errorf("tensor %s: factor %d is %g, expected a finite number above 0; %s", name, i, f[i], Remedy))
			return
		}
		freq[i] /= float64(f[i])
	}
}

// ropeDivide slows every frequency down.
func ropeDivide(inv []float64, by float64) {
	for i := range inv {
		inv[i] /= by
	}
}

// yarn blends frequencies as they are (turning often within the original context) with interpolated ones (turning rarely), by a
// ramp between beta_fast and beta_slow turns, and scales attention by 0.1 ln(factor) + 1.
func (h *hparams) yarn(r *graph.Rope, dims int, base, factor float64) {
	var (
		orig = float64(h.size("rope.scaling.original_context_length"))
		fast = h.float("rope.scaling.yarn_beta_fast")
		slow = h.float("rope.scaling.yarn_beta_slow")
		attn = h.float("rope.scaling.yarn_attn_factor")
		_    = h.float("rope.scaling.yarn_ext_factor") // the whole ramp
	)
	if base == 1 || fast < slow {
		h.fail(fmt.Errorf("%s.rope.scaling: yarn needs yarn_beta_fast (%g) not below yarn_beta_slow (%g) and a freq_base (%g) above 1; %s",
			h.arch, fast, slow, base, Remedy))
		return
	}
	// turns n times in the original context: at which pair index?
	index := func(n float64) float64 {
		return float64(dims) * math.Log(orig/(n*2*math.Pi)) / (2 * math.Log(base))
	}
	low, high := index(fast), index(slow)
	if whole, ok := h.flag("rope.scaling.yarn_truncate"); whole || !ok {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dims-1))
	if low == high {
		high += 0.001
	}
	for i, f := range r.InvFreq {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		r.InvFreq[i] = f/factor*ramp + f*(1-ramp)
	}
	r.Scale = 1
	if factor > 1 {
		r.Scale = (0.1*math.Log(factor) + 1) * attn
		if m, ok := h.given("rope.scaling.yarn_log_multiplier"); ok {
			r.Scale /= 0.1*m*math.Log(factor) + 1
		}
	}
}
