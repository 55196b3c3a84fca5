package arch

import (
	"fmt"
	"slices"
)

// windows is the sliding window of each layer, 0 for none: of all layers where the file has no pattern.
func (b *builder) windows() []int {
	out, ok := b.windowsOf(b.size("attention.sliding_window"), func(int) bool { return true })
	if !ok && slices.Max(out) > 0 {
		b.relied("attention.sliding_window_pattern")
	}
	return out
}

// window is the length of the sliding windows of a family that has them in all its models: files that do not say it have length.
func (b *builder) window(length int, why string) int {
	const name = "attention.sliding_window"
	w, ok := b.given(name)
	switch {
	case !ok:
		b.note(name, fmt.Sprint(length), why)
		return length
	case w == 0:
		b.fail(fmt.Errorf("%s.%s: is 0, but %s has layers with a window; %s", b.arch, name, b.arch, Remedy))
	}
	return int(w)
}

// windowsOf is the sliding window of each layer, of those for which has is true where the file has no pattern; given reports whether it has.
func (b *builder) windowsOf(window int, has func(layer int) bool) (of []int, given bool) {
	pattern, ok := b.bools("attention.sliding_window_pattern")
	out := make([]int, b.layers)
	switch {
	case ok && len(pattern) != b.layers:
		b.fail(fmt.Errorf("%s.attention.sliding_window_pattern: has %d entries for %d layers; %s", b.arch, len(pattern), b.layers, Remedy))
		return out, ok
	case slices.Contains(pattern, true) && window == 0:
		b.fail(fmt.Errorf("%s.attention.sliding_window_pattern: names layers with a window, but sliding_window has no length; %s", b.arch, Remedy))
	}
	for l := range out {
		if ok && pattern[l] || !ok && has(l) {
			out[l] = window
		}
	}
	return out, ok
}
