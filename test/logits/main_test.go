package main

import (
	"strings"
	"testing"

	"ck/internal/isa"
	"ck/internal/testkit"
)

// The lines of a model: one for each form, tier and type of activations, the same for any number of threads and rows of a walk. Other
// activations give another sum.
func TestLines(t *testing.T) {
	*data, *only = testkit.Data(t, "models"), "qwen2"
	var one, two strings.Builder
	*threads, *ubatch = 1, 7
	if err := all(&one); err != nil {
		t.Fatal(err)
	}
	*threads, *ubatch = 2, 512
	if err := all(&two); err != nil {
		t.Fatal(err)
	}
	if one.String() != two.String() {
		t.Errorf("one thread\n%stwo threads\n%s", one.String(), two.String())
	}
	lines := strings.Split(strings.TrimSpace(one.String()), "\n")
	if want := 2 * 2 * len(isa.Available(isa.Detect())); len(lines) != want {
		t.Errorf("%d lines, expected %d:\n%s", len(lines), want, one.String())
	}
	if auto, f32 := strings.Fields(lines[0])[0], strings.Fields(lines[1])[0]; auto == f32 || len(auto) != 64 {
		t.Errorf("sums %s and %s of float32 activations and others", auto, f32)
	}
	if *data = t.TempDir(); all(&one) == nil {
		t.Error("an empty folder is no error")
	}
}
