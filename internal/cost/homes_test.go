package cost

import (
	"fmt"
	"strings"
	"testing"

	"ck/internal/isa"
	"ck/internal/quant"
	"ck/internal/synth"
)

// onHomes is the time of a token on one socket of a machine, and on all of its homes together.
func onHomes(t *testing.T, model, typ, machine string, homes, context int, meeting float64) (one, all float64) {
	t.Helper()
	s, err := synth.Find(model)
	if err != nil {
		t.Fatal(err)
	}
	m, err := OfShape(model, s, typ)
	if err != nil {
		t.Fatal(err)
	}
	x, ok := FindMachine(machine)
	if !ok {
		t.Fatal(machine)
	}
	r := Run{Prompt: 512, Context: context, Rows: 1, UBatch: 512, KV: quant.F16}
	socket := x.OneSocket()
	a, err := m.Decode(r, socket.Limits(isa.VNNI, socket.Cores))
	if err != nil {
		t.Fatal(err)
	}
	l := x.Limits(isa.VNNI, x.Cores)
	l.Homes, l.Meeting = homes, meeting
	b, err := m.Decode(r, l)
	if err != nil {
		t.Fatal(err)
	}
	return a.Total(), b.Total()
}

// Two sockets of which each has a part of every weight are nearly twice as fast as one; the smaller the model, the less. The figures are those of
// docs/scaling.md.
func TestTwoSockets(t *testing.T) {
	var table strings.Builder
	for _, c := range []struct {
		model, typ string
		lo, hi     float64
	}{
		{"llama-3.1-8b", "Q4_K", 1.85, 2}, {"llama-3.1-8b", "Q8_0", 1.85, 2}, {"llama-3.1-8b", "BF16", 1.85, 2},
		{"llama-3.2-1b", "Q4_K", 1.55, 1.85}, {"qwen3-0.6b", "Q4_K", 1.25, 1.65},
	} {
		for _, context := range []int{128, 4096} {
			one, two := onHomes(t, c.model, c.typ, "xeon-8480-2s", 2, context, 2e-6)
			_, slow := onHomes(t, c.model, c.typ, "xeon-8480-2s", 2, context, 5e-6)
			_, flat := onHomes(t, c.model, c.typ, "xeon-8480-2s", 1, context, 0)
			fmt.Fprintf(&table, "%s %s @%d: one socket %.1f ms, cut by rows %.1f ms (%.2fx), two homes %.1f ms (%.2fx), 5 us a meeting %.2fx\n", c.model, c.typ, context, 1e3*one,
				1e3*flat, one/flat, 1e3*two, one/two, one/slow)
			if x := one / two; context == 4096 && (x < c.lo || x > c.hi) {
				t.Errorf("%s %s at %d positions: %.2fx, expected %.2f to %.2f", c.model, c.typ, context, x, c.lo, c.hi)
			}
		}
	}
	t.Log("\n" + table.String())
}
