package arch

import (
	"strings"

	"ck/internal/graph"
	"ck/internal/step"
)

// pickRows keeps, behind the last step that reads other rows than its own, the rows alone whose logits are wanted: later rows need the keys
// and values of all rows, and nothing behind the last attention. Families compose graphs of all rows and know nothing of it.
func pickRows(g *graph.Graph) {
	last, stream := 0, make([]bool, len(g.Values))
	for i := range g.Steps {
		s := &g.Steps[i]
		for j := range s.In {
			if s.Op.Needs(j) == graph.AllRows {
				last = i
			}
		}
		switch s.Op.(type) {
		case step.Embed, step.Add:
			stream[s.Out[0]] = true
		}
	}
	before := make([]bool, len(g.Values)) // written up to the last such step
	for i := range g.Steps[:last+1] {
		for _, v := range g.Steps[i].Out {
			before[v] = true
		}
	}
	needed := make([]bool, len(g.Values)) // and read behind it
	behind := g.Steps[last+1:]
	for i := range behind {
		for _, v := range behind[i].In {
			needed[v] = needed[v] || before[v]
		}
		for _, v := range behind[i].Out {
			g.Values[v].Space.Picked = true
		}
	}
	steps := append([]graph.Step(nil), g.Steps[:last+1]...)
	picked := make([]value, len(needed))
	for v := range needed {
		if !needed[v] {
			continue
		}
		name := "pick_x"
		if !stream[v] {
			name = "pick_" + inLayer(g.Values[v].Name)
		}
		p := g.NewValue(name, g.Values[v].Width)
		g.Values[p].Space.Picked = true
		steps = append(steps, graph.Step{Op: step.Pick{}, Name: name, In: []value{value(v)}, Out: []value{p}})
		picked[v] = p
	}
	for i := range behind {
		for j, v := range behind[i].In {
			if needed[v] {
				behind[i].In[j] = picked[v]
			}
		}
	}
	g.Steps = append(steps, behind...)
}

// inLayer is a name without "blk.N.".
func inLayer(name string) string {
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		_, name, _ = strings.Cut(rest, ".")
	}
	return name
}
