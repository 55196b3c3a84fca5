package attention

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/step"
)

// Dropped is the perplexity of a text without the smallest attention weights of each row and head.
type Dropped struct {
	Share      float64 `json:"share"` // of the weights, that is left out
	Perplexity float64 `json:"perplexity"`
	Base       float64 `json:"base_perplexity"` // with all of them
}

// Drop leaves out a share of the attention weights of each row and head, the smallest ones: a change of engine.Options.
func Drop(share float64) func(*graph.Graph) error {
	return func(g *graph.Graph) error {
		found := false
		for i := range g.Steps {
			if op, ok := g.Steps[i].Op.(step.Attend); ok {
				op.Keep = 1 - share
				g.Steps[i].Op, found = op, true
			}
		}
		if !found {
			return fmt.Errorf("the model has no attention")
		}
		return nil
	}
}
