package arch

// hunyuanDense is Hunyuan without experts (Tencent 2025): queries and keys are normalised behind their rotation.
func hunyuanDense(b *builder) { b.preNorm(b.attention(b.windows(), b.rotate(halves), normHeads)) }
