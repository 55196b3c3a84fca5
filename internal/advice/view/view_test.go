package view

import (
	"testing"

	"ck/internal/advice"
)

func TestTexts(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct{ got, want string }{

		{limit(&advice.PhaseFacts{Seconds: 10, Matmul: 8, Attention: 1, Reading: 8.5}), "memory, 85 %"},
		{limit(&advice.PhaseFacts{Seconds: 10, Matmul: 8, Attention: 1, Reading: 1}), "arithmetic, 80 %"},
		{limit(&advice.PhaseFacts{Seconds: 10, Matmul: 2, Elementwise: 3, Meetings: 5}), "barriers, small steps, 80 %"},
		{fits(&advice.MemoryFacts{}), "not told"}, {fits(&advice.MemoryFacts{Fits: &no, FileFits: &yes}), "--no-pack"}, {fits(&advice.MemoryFacts{Fits: &no, FileFits: &no}), "no"},
		{fits(&advice.MemoryFacts{Fits: &yes}), "yes"},
		{claim{advice.ClaimFacts{Times: 25.7, Expected: "205 s expected"}}.verdict(), "breaks physics: 25.7 times what there is; 205 s expected"},
		{claim{advice.ClaimFacts{Times: 0.92, Possible: true, Expected: "x"}}.verdict(), "not impossible: 92 % of what there is; x"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
