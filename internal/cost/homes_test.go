package cost

import (
	"fmt"
	"strings"
	"testing"

	"ck/internal/isa"
	"ck/internal/plan"
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

// Rows of a prompt are dealt to sockets where their arithmetic hides that weights are read over the link: from few rows on for INT8 without tiles, from more
// on over a slower link, and not at all over one that is too slow.
func TestDealtRows(t *testing.T) {
	s, err := synth.Find("llama-3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	m, err := OfShape("llama-3.1-8b", s, "Q4_K")
	if err != nil {
		t.Fatal(err)
	}
	x, _ := FindMachine("xeon-8480-2s")
	dealtFrom := func(link float64) int {
		l := x.Limits(isa.VNNI, x.Cores)
		l.Homes, l.Link = 2, link
		cache, err := m.cache(quant.F16, 0)
		if err != nil {
			t.Fatal(err)
		}
		for n := 32; n <= 1024; n *= 2 {
			load := plan.Load{Rows: n, Picks: 1, Keys: float64(n) / 2, CacheReads: 1, CacheBytes: cache.LayerBytes()}
			parts, err := m.planOn(2, false, plan.Many, l.Workers, 512)
			if err != nil {
				t.Fatal(err)
			}
			dealt, err := m.planOn(2, true, plan.Many, l.Workers, 512)
			if err != nil {
				t.Fatal(err)
			}
			if WalkTime(dealt, load, l).Total() < WalkTime(parts, load, l).Total() {
				return n
			}
		}
		return 0
	}
	fast, slow, none := dealtFrom(100e9), dealtFrom(30e9), dealtFrom(1e9)
	t.Logf("dealt from %d rows at 100 GB/s, %d at 30", fast, slow)
	if fast == 0 || fast > 128 || slow <= fast || none != 0 {
		t.Errorf("rows are dealt from %d on at 100 GB/s, %d at 30, %d at 1", fast, slow, none)
	}
}
