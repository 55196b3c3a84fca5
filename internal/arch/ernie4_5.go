package arch

// ernie45 is ERNIE 4.5 without experts (Baidu 2025, "ERNIE 4.5 Technical Report"): llama.
func ernie45(b *builder) { b.preNorm(b.attention(b.windows(), b.rotate(neighbours))) }
