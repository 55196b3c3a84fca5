package arch

import "ck/internal/step"

// mistral3 is Mistral Small 3.1 and Ministral 3 (Mistral AI 2025): llama, with queries that grow with the position where the file says so.
func mistral3(b *builder) {
	turns := []turn{b.rotate(neighbours)}
	if beta, ok := b.given("attention.temperature_scale"); ok && beta != 0 {
		length := b.size("rope.scaling.original_context_length")
		turns = append(turns, func(l *layer, of string, x value) value {
			if of != "q" {
				return x
			}
			return l.step(step.Temper{Beta: beta, Length: length}, l.prefix+"attn_temper", l.g.Width(x), []value{x})
		})
	}
	b.sparse(b.attention(b.windows(), turns...), b.mixture(step.Softmax, true))
}
