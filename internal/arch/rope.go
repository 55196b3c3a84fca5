package arch

import (
	"fmt"
	"math"

	"ck/internal/graph"
)

// rope is the model's table of rotary frequencies over dims elements of a head, with the scaling that the file asks for:
// none, linear, yarn (Peng et al. 2023, arXiv:2309.00071), or llama3 (factors in the tensor rope_freqs.weight).
func (h *hparams) rope(dims int) (graph.Rope, error) {
	base := h.float("rope.freq_base", 10000)
	if dims < 2 || dims%2 != 0 || dims > 1<<14 || !(base > 0) || math.IsInf(base, 0) {
		return graph.Rope{}, fmt.Errorf("%s.rope: %d dimensions with base %g", h.arch, dims, base)
	}
	r := graph.Rope{InvFreq: make([]float64, dims/2), Scale: 1}
	for i := range r.InvFreq {
		r.InvFreq[i] = math.Pow(base, -2*float64(i)/float64(dims))
	}
	factor := h.float("rope.scaling.factor", h.float("rope.scale_linear", 1))
	switch kind := h.str("rope.scaling.type"); kind {
	case "", "none":
		if factor != 1 && kind == "" && factor > 0 { // old files name only the factor
			ropeDivide(r.InvFreq, factor)
		}
	case "linear":
		if !(factor > 0) {
			return r, fmt.Errorf("%s.rope.scaling.factor: %g must be positive", h.arch, factor)
		}
		ropeDivide(r.InvFreq, factor)
	case "yarn":
		orig := h.size("rope.scaling.original_context_length", h.size("context_length", 0))
		if !(factor > 0) || orig < 1 {
			return r, fmt.Errorf("%s.rope.scaling: yarn by factor %g over a context of %d", h.arch, factor, orig)
		}
		h.yarn(&r, dims, base, factor, orig)
	default:
		return r, fmt.Errorf("%s.rope.scaling.type: %q is not supported; ck knows none, linear, yarn and llama3 (rope_freqs)", h.arch, kind)
	}
	if rows, cols, ok := h.src.Shape("rope_freqs.weight"); ok {
		f, err := h.src.Vector("rope_freqs.weight")
		if err != nil {
			return r, err
		}
		if rows != 1 || cols != len(r.InvFreq) || len(f) != cols {
			return r, fmt.Errorf("tensor rope_freqs.weight: has %d x %d factors, wants %d", rows, cols, len(r.InvFreq))
		}
		for i := range r.InvFreq {
			if !(f[i] > 0) {
				return r, fmt.Errorf("tensor rope_freqs.weight: factor %d is %g", i, f[i])
			}
			r.InvFreq[i] /= float64(f[i])
		}
	}
	return r, nil
}

// ropeDivide slows every frequency down.
func ropeDivide(inv []float64, by float64) {
	for i := range inv {
		inv[i] /= by
	}
}

// yarn blends frequencies as they are (turning often within the original context) with interpolated ones (turning rarely), by a
// ramp between beta_fast and beta_slow turns, and scales attention by 0.1 ln(factor) + 1.
func (h *hparams) yarn(r *graph.Rope, dims int, base, factor float64, orig int) {
	// turns n times in the original context: at which pair index?
	index := func(n float64) float64 {
		return float64(dims) * math.Log(float64(orig)/(n*2*math.Pi)) / (2 * math.Log(base))
	}
	low := max(math.Floor(index(h.float("rope.scaling.yarn_beta_fast", 32))), 0)
	high := min(math.Ceil(index(h.float("rope.scaling.yarn_beta_slow", 1))), float64(dims-1))
	if low == high {
		high += 0.001
	}
	for i, f := range r.InvFreq {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		r.InvFreq[i] = f/factor*ramp + f*(1-ramp)
	}
	r.Scale = 1
	if factor > 1 {
		r.Scale = (0.1*math.Log(factor) + 1) * h.float("rope.scaling.yarn_attn_factor", h.float("rope.scaling.attn_factor", 1))
	}
}
