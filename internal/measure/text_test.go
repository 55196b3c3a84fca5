package measure

import "testing"

func TestText(t *testing.T) {
	for v, want := range map[float64]string{1234.56: "1234.6", 99.999: "100.00", 1: "1.00", 0.01234: "0.0123", 0: "0"} {
		if got := Digits(v); got != want {
			t.Errorf("%g: %s, want %s", v, got, want)
		}
	}
	for n, want := range map[int]string{1 << 14: "16 KiB", 3 << 19: "1.5 MiB", 2 << 30: "2 GiB", 3 << 29: "1536 MiB"} {
		if got := SizeText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if ThreadsText(1) != "1 thread" || ThreadsText(2) != "2 threads" {
		t.Errorf("%s, %s", ThreadsText(1), ThreadsText(2))
	}
}
