package main

import (
	"slices"
	"strings"
	"testing"

	"ck/internal/bench"
)

func TestParseList(t *testing.T) {
	for s, want := range map[string][]int{"5": {5}, "1,2,4": {1, 2, 4}, "1-4": {1, 2, 3, 4}, "1-8*2": {1, 2, 4, 8}, "1-7+3": {1, 4, 7}, "0": {0}, "3, 1-2": {3, 1, 2}} {
		if got, err := parseList("-x", s, 0, 10); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "a", "1,", "2-1", "1-", "-1", "11", "1-8*1", "0-8*2", "1-8+0", "1-8+-1", "1-4*-2", "99999999999999999999"} {
		if got, err := parseList("-x", s, 0, 10); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
	if _, err := parseList("-x", "1-100000", 0, 1<<20); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v", err)
	}
	if p, err := parsePairs("--pg", []string{"512,128"}, 1000); err != nil || p[0] != [2]int{512, 128} {
		t.Errorf("%v, %v", p, err)
	}
	for _, s := range []string{"", "1", "1,2,3", "0,1", "1,5000", "a,b"} {
		if _, err := parsePairs("--pg", []string{s}, 1000); err == nil {
			t.Errorf("pair %q", s)
		}
	}
}

func TestParseShare(t *testing.T) {
	for s, want := range map[string]float64{"5%": 0.05, "0.05": 0.05, " 12.5 %": 0.125, "0": 0} {
		if got, err := parseShare("--fail-on", s); err != nil || got != want {
			t.Errorf("%q: %g, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "x", "-1%", "100%", "NaN", "1"} {
		if got, err := parseShare("--fail-on", s); err == nil {
			t.Errorf("%q: %g", s, got)
		}
	}
}

// A test that needs more positions than the model has is refused, with both numbers.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		t    bench.Test
		want string
	}{{bench.Test{Prompt: 512}, ""}, {bench.Test{Prompt: 513}, "-p/--prompt: pp513 takes 513 positions, the model's context has 512; name fewer"},
		{bench.Test{Gen: 600, Rows: 2}, "-n/--gen: tg600x2 takes 600 positions, the model's context has 512; name fewer"},
		{bench.Test{Prompt: 16, Depth: 500}, "-d/--depth: pp16 @ d500 takes 516 positions, the model's context has 512; name fewer"},
		{bench.Test{Prompt: 500, Gen: 20, Rows: 1}, "-p/--prompt: pp500+tg20 takes 520 positions, the model's context has 512; name fewer"}} {
		got := ""
		if err := fits([]bench.Test{c.t}, 512); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.t, got, c.want)
		}
		if err := fits([]bench.Test{c.t}, 0); err != nil {
			t.Errorf("%s in a context that is not known: %v", c.t, err)
		}
	}
}

// What --ablate names is left out once each; what contradicts other flags is refused.
func TestAblations(t *testing.T) {
	o := runOptions{ablate: "prefetch, fuse,huge,pack,all,fuse"}
	if off, err := o.ablations(); err != nil || len(off) != 5 {
		t.Error(off, err)
	}
	for _, bad := range []runOptions{{ablate: "speed"}, {ablate: "fuse,"}, {ablate: "pack", engineFlags: engineFlags{noPack: true}}, {ablate: "fuse", noWarmup: true}} {
		if off, err := bad.ablations(); err == nil {
			t.Errorf("%q: %v", bad.ablate, off)
		}
	}
}
