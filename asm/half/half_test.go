package half

import (
	"math"
	"testing"
)

// Every half is what IEEE 754 says it is; its bits come back.
func TestF16ToF32(t *testing.T) {
	for h := range 1 << 16 {
		exp, frac := h>>10&31, float64(h&1023)
		want := math.Ldexp(1+frac/1024, exp-15)
		switch {
		case exp == 0:
			want = math.Ldexp(frac, -24)
		case exp == 31 && frac == 0:
			want = math.Inf(1)
		case exp == 31:
			want = math.NaN()
		}
		if h>>15 == 1 {
			want = -want
		}
		got := float64(F16ToF32(uint16(h)))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != (h>>15 == 1) {
			t.Fatalf("0x%04x is %v, expected %v", h, got, want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for h := range 1 << 16 {
		nan := h&0x7c00 == 0x7c00 && h&0x3ff != 0
		if got := F32ToF16(F16ToF32(uint16(h))); int(got) != h && !(nan && int(got) == h|0x200) {
			t.Fatalf("half 0x%04x comes back as 0x%04x", h, got)
		}
		nan = h&0x7f80 == 0x7f80 && h&0x7f != 0
		if got := F32ToBF16(BF16ToF32(uint16(h))); int(got) != h && !(nan && int(got) == h|0x40) {
			t.Fatalf("bfloat16 0x%04x comes back as 0x%04x", h, got)
		}
	}
}
