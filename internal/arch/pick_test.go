package arch

import (
	"fmt"
	"slices"
	"testing"

	"ck/internal/graph"
	"ck/internal/step"
)

// Behind the last attention there are picked rows alone, and each value that is needed there is picked once, in the order in which they were
// made; a graph without attention picks behind the embedding.
func TestPickRows(t *testing.T) {
	g, _ := build(t, small(4, 24, 32))
	check := func(g *graph.Graph, want ...string) {
		t.Helper()
		var got []string
		behind := false
		for i := range g.Steps {
			s := &g.Steps[i]
			if _, ok := s.Op.(step.Pick); ok {
				got, behind = append(got, fmt.Sprintf("%d %s of %s", i, s.Name, g.Values[s.In[0]].Name)), true
			}
			if g.Values[s.Out[0]].Space.Picked != behind {
				t.Errorf("step %d %s: picked is %v", i, s.Name, !behind)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("picks %q, expected %q", got, want)
		}
		if err := g.Check(); err != nil {
			t.Error(err)
		}
	}
	check(g, "23 pick_x of blk.0.ffn_residual", "24 pick_attn of blk.1.attn")

	b := &builder{hparams: &hparams{}, g: &graph.Graph{Vocab: 7}, hidden: 5}
	x := b.g.NewValue("x", 5)
	b.g.Add(step.Embed{}, "token_embd", nil, []value{x}, b.g.NewWeight("token_embd.weight", 7, 5))
	b.g.Logits = b.step(step.Matmul{Slices: 1}, "output", 7, []value{x}, 0)
	pickRows(b.g)
	check(b.g, "1 pick_x of x")
}
