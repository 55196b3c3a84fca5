package arch

// qwen2 is llama with biases of queries, keys and values, and rotary pairs that lie half a head apart (Qwen team 2024, arXiv:2407.10671).
func qwen2(b *builder) { b.preNorm(b.attention(b.windows(), b.rotate(halves))) }
