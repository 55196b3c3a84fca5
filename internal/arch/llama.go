package arch

// llama is the family of that name (Touvron et al. 2023, arXiv:2302.13971) and mistral, whose files say llama. Converters reorder the rows of
// queries and keys so that rotary pairs are neighbours. Biases are wherever the file has them.
func llama(b *builder) { b.preNorm(b.attention(b.windows(), b.rotate(neighbours))) }
