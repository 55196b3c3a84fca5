package main

import (
	"slices"
	"strings"

	"ck/internal/bench"
	"ck/internal/cli"
	"ck/internal/engine"
)

// tests lists what the flags ask for.
func (o *runOptions) tests() ([]bench.Test, error) {
	lists := [4][]int{}
	for i, e := range []struct {
		flag, text string
		lo, hi     int
	}{{"-p/--prompt", o.prompt, 0, maxTokens}, {"-n/--gen", o.gen, 0, maxTokens}, {"-d/--depth", o.depth, 0, maxTokens}, {"--rows", o.rows, 1, o.ubatch}} {
		var err error
		if lists[i], err = parseList(e.flag, e.text, e.lo, e.hi); err != nil {
			return nil, err
		}
	}
	pairs, err := parsePairs("--pg", o.pg, maxTokens)
	if err != nil {
		return nil, err
	}
	var out []bench.Test
	for _, d := range lists[2] {
		for _, n := range lists[0] {
			out = append(out, bench.Test{Prompt: n, Depth: d, Rows: 1})
		}
		for _, n := range lists[1] {
			for _, r := range lists[3] {
				out = append(out, bench.Test{Gen: n, Depth: d, Rows: r})
			}
		}
		for _, e := range pairs {
			out = append(out, bench.Test{Prompt: e[0], Gen: e[1], Depth: d, Rows: 1})
		}
	}
	out = slices.DeleteFunc(out, func(t bench.Test) bool { return t.Tokens() == 0 })
	if len(out) == 0 {
		return nil, cli.Usage("-p 0 -n 0: nothing to measure; ask for at least one test")
	}
	return out, nil
}

// fits refuses tests that take more positions than the model's context has. A context of 0 is not known.
func fits(tests []bench.Test, context int) error {
	for _, t := range tests {
		n := t.Depth + t.Prompt + t.Gen
		if context == 0 || n <= context {
			continue
		}
		flag := "-p/--prompt"
		switch {
		case t.Depth >= max(t.Prompt, t.Gen):
			flag = "-d/--depth"
		case t.Gen > t.Prompt:
			flag = "-n/--gen"
		}
		return cli.Usage("%s: %s takes %d positions, the model's context has %d; name fewer", flag, t, n, context)
	}
	return nil
}

// ablations lists what --ablate leaves out, one after the other.
func (o *runOptions) ablations() ([]engine.Ablation, error) {
	if o.ablate == "" {
		return nil, nil
	}
	var out []engine.Ablation
	for word := range strings.SplitSeq(o.ablate, ",") {
		a, ok := engine.ParseAblation(strings.TrimSpace(word))
		switch {
		case !ok:
			return nil, cli.Usage("--ablate: %q is not one of %s", word, strings.Join(engine.AblationNames, ", "))
		case a == engine.Pack && o.noPack:
			return nil, cli.Usage("--ablate pack: --no-pack leaves it out already; drop one of them")
		case !slices.Contains(out, a):
			out = append(out, a)
		}
	}
	if o.noWarmup {
		return nil, cli.Usage("--ablate: compares what is warm; drop --no-warmup")
	}
	return out, nil
}
