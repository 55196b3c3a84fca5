package step_test

import (
	"testing"

	"ck/internal/graph"
	"ck/internal/step"
)

// gradients are the kinds that backwards are made of.
var gradients = map[string]bool{"cross-entropy": true, "turn": true, "outer": true, "sum-rows": true, "embed-grad": true, "pick-grad": true, "rmsnorm-grad": true,
	"rmsnorm-weight": true, "attend-grad": true, "silu-mul-grad": true, "softcap-grad": true, "relu2-grad": true, "columns-grad": true, "row-dot": true, "weigh-grad": true,
	"route-grad": true, "balance": true, "sent-dots": true, "expert-outer": true, "expert-sum": true, "part-rows": true, "place-rows": true}

// Every kind has a backward or is one.
func TestEveryKindHasABackward(t *testing.T) {
	for _, r := range step.Table {
		_, ok := r.Op.(graph.Differentiable)
		kind := r.Op.Kind()
		if ok == gradients[kind] {
			t.Errorf("%s: has a backward: %v; none is expected: %v", kind, ok, gradients[kind])
		}
	}
}
