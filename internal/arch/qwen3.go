package arch

// qwen3 is qwen2 with a norm of each head of queries and keys before they are rotated (Qwen team 2025, arXiv:2505.09388).
func qwen3(b *builder) { b.preNorm(b.attention(b.windows(), normHeads, b.rotate(halves))) }
