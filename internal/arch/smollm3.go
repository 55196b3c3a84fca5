package arch

// smollm3 is SmolLM3 (Hugging Face 2025): llama, but every fourth layer rotates nothing.
func smollm3(b *builder) {
	rotate := b.rotate(neighbours)
	b.preNorm(b.attention(b.windows(), func(l *layer, of string, x value) value {
		if l.n%4 == 3 {
			return x
		}
		return rotate(l, of, x)
	}))
}
