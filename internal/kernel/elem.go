package kernel

import (
	"math"

	"ck/asm/elem"
)

// ElemTable holds the elementwise operations of a tier; its methods are documented, with error bounds, in asm/elem.
type ElemTable struct{ w elem.Width }

// NormScale is 1/sqrt(mean of squares of x + eps), the factor of RMSNorm; it is 1/sqrt(eps) for an empty x.
func (t *ElemTable) NormScale(x []float32, eps float32) float32 {
	return ScaleOfSquares(elem.SumSquares(t.w, x), len(x), eps)
}

// SumSquares is the sum of squares of x in a fixed order.
func (t *ElemTable) SumSquares(x []float32) float32 { return elem.SumSquares(t.w, x) }

// ScaleOfSquares is NormScale for n elements whose squares add up to sum. It is NaN where the sum is beyond float32: a scale of zero would
// hide that.
func ScaleOfSquares(sum float32, n int, eps float32) float32 {
	if sum > math.MaxFloat32 {
		return float32(math.NaN())
	}
	return float32(1 / math.Sqrt(float64(sum)/float64(max(n, 1))+float64(eps)))
}

// RMSNorm is dst[i] = (x[i] * NormScale(x, eps)) * w[i]; w may be nil (ones), dst may be x.
func (t *ElemTable) RMSNorm(dst, x, w []float32, eps float32) {
	t.MulScale(dst, x, w, t.NormScale(x, eps))
}

// MulScale is dst[i] = (x[i] * s) * w[i]; w may be nil (ones).
func (t *ElemTable) MulScale(dst, x, w []float32, s float32) {
	if w == nil {
		elem.Scale(t.w, dst, x, s)
	} else {
		elem.MulScale(t.w, dst, x, w, s)
	}
}

// Add is dst[i] = a[i] + b[i].
func (t *ElemTable) Add(dst, a, b []float32) { elem.Add(t.w, dst, a, b) }

// AddBias is dst[i] += b[i].
func (t *ElemTable) AddBias(dst, b []float32) { elem.Add(t.w, dst, dst, b) }

// AddScaled is dst[i] = fma(x[i], s, dst[i]).
func (t *ElemTable) AddScaled(dst, x []float32, s float32) { elem.AddScaled(t.w, dst, dst, x, s) }

// Mul is dst[i] = a[i] * b[i].
func (t *ElemTable) Mul(dst, a, b []float32) { elem.Mul(t.w, dst, a, b) }

// Scale is dst[i] = x[i] * s.
func (t *ElemTable) Scale(dst, x []float32, s float32) { elem.Scale(t.w, dst, x, s) }

// SiLUMul is dst[i] = silu(g[i]) * u[i]; u may be nil (ones), here and below.
func (t *ElemTable) SiLUMul(dst, g, u []float32) { elem.SiLUMul(t.w, dst, g, u) }

// GELUMul is dst[i] = gelu(g[i]) * u[i], gelu in its tanh form.
func (t *ElemTable) GELUMul(dst, g, u []float32) { elem.GELUMul(t.w, dst, g, u) }

// GELUErfMul is dst[i] = gelu(g[i]) * u[i], gelu in its exact form.
func (t *ElemTable) GELUErfMul(dst, g, u []float32) { elem.GELUErfMul(dst, g, u) }

// Rope rotates the first 2*len(cos) elements of one head's row x in place; neox pairs i with i+len(cos), otherwise 2i with 2i+1.
func (t *ElemTable) Rope(x, cos, sin []float32, neox bool) { elem.Rope(t.w, x, cos, sin, neox) }

// F32ToF16 rounds src to IEEE halves, nearest even.
func (t *ElemTable) F32ToF16(dst []uint16, src []float32) { elem.F32ToF16(t.w, dst, src) }

// F16ToF32 widens src, exactly.
func (t *ElemTable) F16ToF32(dst []float32, src []uint16) { elem.F16ToF32(t.w, dst, src) }

// F32ToBF16 rounds src to bfloat16, nearest even.
func (t *ElemTable) F32ToBF16(dst []uint16, src []float32) { elem.F32ToBF16(t.w, dst, src) }

// BF16ToF32 widens src, exactly.
func (t *ElemTable) BF16ToF32(dst []float32, src []uint16) { elem.BF16ToF32(t.w, dst, src) }

// PairBF16 is dst[i] = a[i] and b[i] rounded to bfloat16, a in the lower half.
func (t *ElemTable) PairBF16(dst []uint32, a, b []float32) { elem.PairBF16(t.w, dst, a, b) }

// AdamW changes values x and moments m, v by gradients g.
func (t *ElemTable) AdamW(k *elem.AdamW, x, m, v, g []float32) { k.Step(t.w, x, m, v, g) }

// Max is the greatest of x; any of them where one is NaN.
func (t *ElemTable) Max(x []float32) float32 { return elem.Max(t.w, x) }

// Exp is dst[i] = e^(a[i] - top), where a[i] is at most top + 0.1.
func (t *ElemTable) Exp(dst, a []float32, top float32) { elem.Exp(t.w, dst, a, top) }

// Sum64 is the sum of x in float64, SumSquares64 that of the squares.
func (t *ElemTable) Sum64(x []float32) float64        { return elem.Sum64(t.w, x) }
func (t *ElemTable) SumSquares64(x []float32) float64 { return elem.SumSquares64(t.w, x) }

// RopeAngles fills cos[i] and sin[i] with mscale times cosine and sine of pos*invFreq[i], taken in float64 and rounded once: the
// angle of position pos for pair i of a head (Su et al. 2021; mscale is 1, or YaRN's attention factor).
func RopeAngles(cos, sin []float32, pos int, invFreq []float64, mscale float64) {
	for i, f := range invFreq {
		s, c := math.Sincos(float64(pos) * f)
		cos[i], sin[i] = float32(c*mscale), float32(s*mscale)
	}
}
