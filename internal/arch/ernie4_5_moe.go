package arch

import "ck/internal/step"

// ernie45moe is ERNIE 4.5 with experts: the first layers have none, a bias helps to choose, a shared expert sees every row (Baidu 2025,
// "ERNIE 4.5 Technical Report").
func ernie45moe(b *builder) {
	b.sparse(b.attention(b.windows(), b.rotate(neighbours)), b.mixture(step.Softmax, true))
}
