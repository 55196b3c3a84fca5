package engine

import (
	"context"
	"sync/atomic"
	"testing"

	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/testkit"
)

// Rows 2 to 16 through experts read each row of the matrices that they chose together once, and no row of another: what the account of bytes says.
func TestRowsReadTheExpertsTheyChose(t *testing.T) {
	m, err := gguf.Open(testkit.LoadCase(t, "qwen3moe").Dir + "/model.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for rows := 1; rows <= 16; rows++ {
		e, err := Open(m, Options{Threads: 2, NoPack: true})
		if err != nil {
			t.Fatal(err)
		}
		read := make([][]atomic.Int32, len(e.Graph.Weights))
		for i, w := range e.Graph.Weights {
			if w.Experts > 0 {
				s := e.weights.Slots[i][0]
				read[i] = make([]atomic.Int32, w.Rows)
				row := s.Row
				s.Row = func(r int) []byte {
					read[i][r].Add(1)
					return row(r)
				}
			}
		}
		ids := make([]int32, rows)
		for i := range ids {
			ids[i] = int32(7*i + rows)
		}
		walk := func() {
			if err := e.Forward(context.Background(), e.NewSeq(), ids, All, func(int, []float32) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		walk() // which looks at pages of rows beforehand
		before := map[string][]uint64{}
		for _, c := range e.Choices() {
			before[c.Name] = c.Counts
		}
		for i := range read {
			for r := range read[i] {
				read[i][r].Store(0)
			}
		}
		walk()
		union, now := map[graph.WeightID][]bool{}, map[string][]uint64{}
		for _, c := range e.Choices() {
			now[c.Name] = c.Counts
		}
		for i := range e.Graph.Steps {
			s := &e.Graph.Steps[i]
			if route := e.Graph.Values[s.Out[0]].Space.Route; route > 0 && len(s.W) > 0 && e.Graph.Weights[s.W[0]].Experts > 0 {
				name := e.routeName(route)
				for x := range now[name] {
					union[s.W[0]] = append(union[s.W[0]], now[name][x] > before[name][x])
				}
			}
		}
		chosen := 0
		for id, experts := range union {
			each := e.Graph.Weights[id].Each()
			for x, was := range experts {
				want := int32(0)
				if was {
					want, chosen = 1, chosen+1
				}
				for r := x * each; r < (x+1)*each; r++ {
					if got := read[id][r].Load(); got != want {
						t.Fatalf("%d rows: row %d of %s, expert %d, was read %d times, want %d", rows, r, e.Graph.Weights[id].Name, x, got, want)
					}
				}
			}
		}
		total := 0.0
		for i, n := range e.ExpertsRead(rows) {
			total += 3 * n // gate, up and down
			if n < 1 {
				t.Errorf("%d rows, choice %d: %g experts", rows, i, n)
			}
		}
		if len(union) == 0 || float64(chosen) != total {
			t.Errorf("%d rows chose %d matrices of experts, the account says %g", rows, chosen, total)
		}
		e.Close()
	}
}

// routeName is the name of the step that makes a choice of experts.
func (e *Engine) routeName(route int) string {
	n := 0
	for i := range e.Graph.Steps {
		if s := &e.Graph.Steps[i]; isRoute(s) {
			if n++; n == route {
				return s.Name
			}
		}
	}
	return ""
}
