package step_test

import (
	"testing"

	"ck/internal/graph"
	"ck/internal/step"
)

// noBackward are the kinds that cannot be trained yet: those of mixtures.
var noBackward = map[string]bool{"weigh": true, "route": true, "send": true, "experts": true, "combine": true}

// gradients are the kinds that backwards are made of.
var gradients = map[string]bool{"cross-entropy": true, "turn": true, "outer": true, "sum-rows": true, "embed-grad": true, "pick-grad": true, "rmsnorm-grad": true,
	"rmsnorm-weight": true, "attend-grad": true, "silu-mul-grad": true, "softcap-grad": true, "relu2-grad": true, "columns-grad": true}

// Every kind has a backward, is one, or is known to have none.
func TestEveryKindHasABackward(t *testing.T) {
	for _, r := range step.Table {
		_, ok := r.Op.(graph.Differentiable)
		kind := r.Op.Kind()
		if ok == (noBackward[kind] || gradients[kind]) {
			t.Errorf("%s: has a backward: %v; none is expected: %v", kind, ok, noBackward[kind] || gradients[kind])
		}
	}
}
