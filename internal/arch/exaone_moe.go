package arch

import "ck/internal/step"

// exaoneMoE is K-EXAONE (LG AI Research 2026, "K-EXAONE Technical Report"): every fourth layer sees all positions and rotates nothing, the others have
// a window; the first layers have no experts.
func exaoneMoE(b *builder) {
	windows, _ := b.windowsOf(b.window(128, "that of exaone-moe"), func(layer int) bool { return layer%4 != 3 })
	b.sparse(b.attention(windows, normHeads, onlyWindowed(windows, b.rotate(halves))), b.mixture(step.Sigmoid, false))
}

// onlyWindowed is a turn in layers with a window, and nothing elsewhere.
func onlyWindowed(windows []int, t turn) turn {
	return func(l *layer, of string, x value) value {
		if windows[l.n] == 0 {
			return x
		}
		return t(l, of, x)
	}
}
