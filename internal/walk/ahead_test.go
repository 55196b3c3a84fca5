package walk_test

import (
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"ck/internal/isa"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	. "ck/internal/walk"
)

// fill packs all panels.
func (r *runner) fill() {
	var slots []*Slot
	for _, parts := range r.w.Slots {
		slots = append(slots, parts...)
	}
	for f := NewFiller(slots, 0, 1); f.Next() > 0; {
	}
}

// A worker fetches ahead what it reads next: of its part of an item panels up to the part's end, then the first panels of its part of the next item,
// unless experts are chosen there. Where workers take over each other's panels a part may begin anywhere, so what they do then is looked at apart.
func TestNextPanels(t *testing.T) {
	known, ends, farther := 0, 0, 0
	for seed := range uint64(40) {
		vocab, shared := 90, seed%8 == 0
		if shared {
			vocab = 5000 // logits in several claims
		}
		m := randomModelOf(rand.New(rand.NewPCG(seed, 5)), []quant.Type{quant.Q8_0, quant.Q4_0, quant.F32}, vocab)
		for workers := 1; workers <= 3; workers++ {
			s := setup{tier: isa.Best(isa.Detect()), workers: workers, kv: quant.F16}
			r := newRunner(t, m, s)
			r.fill()
			p := r.plan(t, 1)
			for i := range p.Items {
				p.Items[i].Cut.Shared = p.Items[i].Cut.Shared && shared
			}
			var mu sync.Mutex
			next, at := map[*Worker]*byte{}, map[*Worker]*plan.Item{} // nil: not known; the item that a worker is at
			routines := maps.Clone(step.Routines)
			for kind, f := range step.Routines {
				if !kind.Shared {
					continue
				}
				routines[kind] = func(w *Worker, it *plan.Item, part plan.Rect) {
					mu.Lock()
					defer mu.Unlock()
					if !shared && it.Space.Used > 0 && at[w] != it && next[w] != nil {
						t.Errorf("seed %d, %d workers: an expert of %s was known before", seed, workers, it.Name)
					}
					if it.Space.Used == 0 && !w.Slot(it.W[0]).Format.Direct {
						end := part.C1
						if it.Cut.Shared {
							for n := range workers {
								for _, r := range p.Part(nil, it, it.Out[0], n, w.Crew()) {
									if part.C0 >= r.C0 && part.C1 <= r.C1 {
										end = r.C1
									}
								}
							}
						}
						w.Panels(it.W[0], 0, part.C0, part.C1, false, func(s *Slot, c0, c1 int, panels []byte) {
							size := s.Format.PanelBytes(s.Cols)
							if !shared && at[w] != it && next[w] != nil {
								if known++; next[w] != &panels[0] {
									t.Errorf("seed %d, %d workers: the part of %s begins elsewhere", seed, workers, it.Name)
								}
							}
							at[w] = it
							reach := cap(panels) / size * s.Format.PanelRows
							if it.Cut.Shared && reach == (part.C1-c0+s.Format.PanelRows-1)/s.Format.PanelRows*s.Format.PanelRows {
								return // of another worker's part, or the last of the own
							}
							if it.Cut.Shared {
								farther += reach - (part.C1 - c0)
							}
							if reach != (end-c0+s.Format.PanelRows-1)/s.Format.PanelRows*s.Format.PanelRows {
								t.Errorf("seed %d, %d workers: %s from column %d reaches over %d bytes, and the part ends at column %d", seed, workers, it.Name, c0, cap(panels), end)
							}
						})
					}
					next[w], at[w] = nil, it
					ends++
					if n := w.Next(); n != nil {
						next[w] = &n[0]
					}
					f(w, it, part)
				}
			}
			x, err := New(p, routines, r.tbl, r.w, r.cache, aligned(p.Arena+64), aligned(p.Common+64))
			if err != nil {
				t.Fatal(err)
			}
			seq := r.cache.NewSeq()
			if err := r.cache.Reserve(seq, 1); err != nil {
				t.Fatal(err)
			}
			if err := x.Run(r.team, &Batch{IDs: []int32{1}, Pos: []int32{0}, Seq: []int{seq}, Pick: []int32{0}}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if known < 100 || ends < 500 || farther < 10000 {
		t.Errorf("%d beginnings, %d parts, %d columns behind a claim seen", known, ends, farther)
	}
}
