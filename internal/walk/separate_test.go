package walk_test

import (
	"math/rand/v2"
	"testing"

	"ck/internal/isa"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
)

// In a separate plan every step of the graph has items of its own, with barriers between all of them; the usual plan of the same graph
// has fewer of both.
func TestSeparatePlan(t *testing.T) {
	for seed := range uint64(5) {
		for _, rows := range []int{1, 16, 200} {
			m := randomModel(rand.New(rand.NewPCG(seed, 31)), []quant.Type{quant.Q8_0, quant.F32})
			s := setup{tier: isa.Best(isa.Detect()), workers: 2, kv: quant.F16}
			usual := newRunner(t, m, s).plan(t, rows)
			s.alone = true
			p := newRunner(t, m, s).plan(t, rows)
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
			adds := 0
			for i := range m.g.Steps {
				if _, ok := m.g.Steps[i].Op.(step.Add); ok {
					adds++
				}
			}
			for i := range p.Items {
				if it := &p.Items[i]; it.Do.Name == "add" {
					adds--
				} else if len(it.Steps) > 1 || it.Add {
					t.Errorf("seed %d, %d rows: item %d %s realises several steps", seed, rows, i, it.Name)
				}
				if (p.Items[i].Do == plan.Barrier) != (i%2 == 1) {
					t.Errorf("seed %d, %d rows: item %d of %d is %s", seed, rows, i, len(p.Items), p.Items[i].Do)
				}
			}
			if adds != 0 {
				t.Errorf("seed %d, %d rows: %d additions have no item", seed, rows, adds)
			}
			if len(usual.Items) >= len(p.Items) {
				t.Errorf("seed %d, %d rows: %d items as usual, %d separate", seed, rows, len(usual.Items), len(p.Items))
			}
		}
	}
}
