package arch

import "ck/internal/step"

// hunyuanMoE is Hunyuan A13B (Tencent 2025, "Hunyuan-A13B Technical Report"): queries and keys are normalised behind their rotation, and a shared
// expert sees every row.
func hunyuanMoE(b *builder) {
	b.sparse(b.attention(b.windows(), b.rotate(halves), normHeads), b.mixture(step.Softmax, true))
}
