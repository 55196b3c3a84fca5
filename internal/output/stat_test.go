package output

import (
	"testing"

	"ck/internal/engine"
)

func TestExperts(t *testing.T) {
	for want, c := range map[string][]engine.Choice{
		"2 of 4 a token, 3 of a layer chosen in all; the busiest, in layer 0, by 100.0 % of the tokens, where 50.0 % would be even": {{Name: "blk.0.ffn_route", Used: 2, Counts: []uint64{5, 3, 2, 0}}},
		"1 of 2 a token, 2 of a layer chosen in all; the busiest, in layer 12, by 75.0 % of the tokens, where 50.0 % would be even": {
			{Name: "blk.11.ffn_route", Used: 1, Counts: []uint64{2, 2}}, {Name: "blk.12.ffn_route", Used: 1, Counts: []uint64{1, 3}}, {Name: "blk.13.ffn_route", Used: 1, Counts: []uint64{0, 0}}},
		"none was chosen": {{Name: "blk.0.ffn_route", Used: 1, Counts: []uint64{0}}},
	} {
		if got := Experts(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
