package arch

import (
	"fmt"
	"slices"
)

// windows is the sliding window of each layer, 0 for none: of all layers where the file has no pattern.
func (b *builder) windows() []int {
	window := b.size("attention.sliding_window")
	pattern, ok := b.bools("attention.sliding_window_pattern")
	out := make([]int, b.layers)
	switch {
	case ok && len(pattern) != b.layers:
		b.fail(fmt.Errorf("%s.attention.sliding_window_pattern: has %d entries for %d layers; %s", b.arch, len(pattern), b.layers, Remedy))
		return out
	case slices.Contains(pattern, true) && window == 0:
		b.fail(fmt.Errorf("%s.attention.sliding_window_pattern: names layers with a window, but sliding_window has no length; %s", b.arch, Remedy))
	case window > 0 && !ok:
		b.relied("attention.sliding_window_pattern")
	}
	for l := range out {
		if !ok || pattern[l] {
			out[l] = window
		}
	}
	return out
}
