package arch

import (
	"fmt"

	"ck/internal/graph"
	"ck/internal/step"
)

// mixture is what decides over the experts of a model. The rest is in the tensors: a shared expert, biases, a bias of the choice.
type mixture struct {
	gate  step.Gate
	norm  bool // the weights of a row's experts are made to add up to 1
	act   step.Activation
	first bool // the weights multiply what goes into the experts, not what comes out
	// factors: what each expert makes has a factor, ffn_down_exps.scale.
	factors bool
}

// gates are the values of expert_gating_func.
var gates = map[int]step.Gate{1: step.Softmax, 2: step.Sigmoid, 3: step.SoftmaxChosen}

// mixture is that of a family, and what the file says otherwise.
func (b *builder) mixture(gate step.Gate, norm bool) mixture {
	m := mixture{gate: gate, norm: norm}
	if b.size("expert_count") == 0 {
		return m
	}
	if f, ok := b.given("expert_gating_func"); ok && f != 0 {
		if m.gate, ok = gates[int(f)]; !ok {
			b.fail(fmt.Errorf("%s.expert_gating_func: is %.0f; ck knows 1 (softmax), 2 (sigmoid) and 3 (softmax of the chosen)", b.arch, f))
		}
	}
	if norm, ok := b.flag("expert_weights_norm"); ok {
		m.norm = norm
	}
	return m
}

// expertCount is the number of experts, and of those that a row uses.
func (b *builder) expertCount() (all, used int) {
	all, used = b.size("expert_count"), b.size("expert_used_count")
	switch {
	case all < 1:
		b.fail(fmt.Errorf("%s.expert_count: is %d, but there are tensors of experts; %s", b.arch, all, Remedy))
	case used < 1 || used > all:
		b.fail(fmt.Errorf("%s.expert_used_count: is %d of %d experts; %s", b.arch, used, all, Remedy))
	}
	return max(all, 1), min(max(used, 1), max(all, 1))
}

// expertGroups is the number of groups of experts, and of those that are open to a row; 0 where there are none.
func (b *builder) expertGroups(all, used int) (groups, open int) {
	groups, open = b.size("expert_group_count"), b.size("expert_group_used_count")
	switch {
	case groups <= 1:
		return 0, 0
	case all%groups != 0:
		b.fail(fmt.Errorf("%s.expert_group_count: %d groups do not divide %d experts; %s", b.arch, groups, all, Remedy))
	case open < 1 || open > groups || open*(all/groups) < used:
		b.fail(fmt.Errorf("%s.expert_group_used_count: is %d of %d groups of %d experts, of which %d are used; %s", b.arch, open, groups, all/groups, used, Remedy))
	default:
		return groups, open
	}
	return 0, 0
}

// mixed is a feed-forward block of experts, and what the shared expert adds where there is one.
func (l *layer) mixed(m mixture, x value) value {
	y := l.routed(m, x)
	if !l.has(l.prefix + "ffn_up_shexp.weight") {
		return y
	}
	rows, _, _ := l.src.Shape(l.prefix + "ffn_up_shexp.weight")
	shared := l.gatedBy("_shexp", rows, m.act, x)
	if l.has(l.prefix + "ffn_gate_inp_shexp.weight") {
		w := l.weight(l.prefix + "ffn_gate_inp_shexp.weight")
		gate := l.step(step.Matmul{Slices: 1}, l.prefix+"ffn_gate_inp_shexp", 1, []value{x}, w)
		shared = l.step(step.Weigh{}, l.prefix+"ffn_shexp", l.hidden, []value{shared, gate})
	}
	return l.add("ffn_experts", y, shared)
}

// routed is the experts of a layer.
func (l *layer) routed(m mixture, x value) value { return l.routedBy(m, x, x) }

// routedBy is routed with a router that reads another value than the experts do.
func (l *layer) routedBy(m mixture, router, x value) value {
	all, used := l.expertCount()
	logits := l.step(step.Matmul{Slices: 1}, l.prefix+"ffn_gate_inp", all, []value{router}, l.withBias(l.prefix+"ffn_gate_inp")...)
	op := step.Route{Used: used, Gate: m.gate, Norm: m.norm, Factors: m.factors}
	if s, ok := l.given("expert_weights_scale"); ok && s != 1 {
		op.Scale = float32(s)
	}
	op.Groups, op.GroupsUsed = l.expertGroups(all, used)
	var bias []graph.WeightID
	if name := l.prefix + "exp_probs_b.bias"; l.has(name) {
		bias = append(bias, l.weight(name))
	}
	if m.factors {
		bias = append(bias, l.weight(l.prefix+"ffn_down_exps.scale"))
	}
	ids, weights := l.g.NewValue(l.prefix+"ffn_experts_ids", used), l.g.NewValue(l.prefix+"ffn_experts_weights", used)
	l.g.Add(op, l.prefix+"ffn_route", []value{logits}, []value{ids, weights}, bias...)
	l.g.Routes++
	space := graph.Space{Route: l.g.Routes, Used: used}
	send, combine := []value{x, ids}, []value{0, ids, weights}
	if m.first {
		send, combine = append(send, weights), combine[:2]
	}
	in := func(op graph.Op, name string, width int, in []value, w ...graph.WeightID) value {
		v := l.step(op, l.prefix+name, width, in, w...)
		l.g.Values[v].Space = space
		return v
	}
	rows := in(step.Send{}, "ffn_send", l.hidden, send)
	project := func(name string, slices int, x value) value {
		w := l.expertWeights(name, all, part{})
		op := step.Experts{Slices: slices}
		if scale := l.prefix + name + ".scale"; l.has(scale) && !(m.factors && name == "ffn_down_exps") {
			op.Factors, w = true, append(w, l.weight(scale))
		}
		return in(op, name, l.g.Weights[w[0]].Each(), []value{x, ids}, w...)
	}
	half := func(name string, n int) value { // of the rows of each expert
		total, _, _ := l.src.Shape(l.prefix + "ffn_gate_up_exps.weight")
		each := total / all
		w := l.expertWeights("ffn_gate_up_exps", all, part{n * (each / 2), each})
		return in(step.Experts{Slices: 1}, name, l.g.Weights[w[0]].Each(), []value{rows, ids}, w...)
	}
	var gate, up value
	if l.has(l.prefix + "ffn_gate_up_exps.weight") {
		gate, up = half("ffn_gate_exps", 0), half("ffn_up_exps", 1)
	} else {
		gate, up = project("ffn_gate_exps", 1, rows), project("ffn_up_exps", 1, rows)
	}
	if n, ok := l.given("expert_feed_forward_length"); ok && int(n) != l.g.Width(up) {
		l.fail(fmt.Errorf("%s.expert_feed_forward_length: is %.0f, but %sffn_up_exps.weight has %d rows for each expert; %s", l.arch, n, l.prefix,
			l.g.Width(up), Remedy))
	}
	h := in(step.GLU{Act: m.act}, "ffn_experts_act", l.g.Width(up), []value{gate, up})
	combine[0] = project("ffn_down_exps", step.SlicesFor(l.g.Width(h), 0), h)
	return l.step(step.Combine{}, l.prefix+"ffn_combine", l.hidden, combine)
}

// expertWeights is the weight NAME.weight of so many experts and, where the file has it, NAME.bias; or a half of each expert's outputs, without a bias.
func (l *layer) expertWeights(name string, all int, p part) []graph.WeightID {
	tensor := l.prefix + name + ".weight"
	rows, cols, ok := l.src.Shape(tensor)
	switch n := l.src.Experts(tensor); {
	case !ok:
		l.fail(fmt.Errorf("tensor %s: is missing", tensor))
	case n != all:
		l.fail(fmt.Errorf("tensor %s: has %d matrices for %d experts; %s", tensor, n, all, Remedy))
	}
	if p.of > 0 {
		if p.of%2 != 0 {
			l.fail(fmt.Errorf("tensor %s: has %d outputs of each expert, which are no two halves; %s", tensor, p.of, Remedy))
		}
		return []graph.WeightID{l.g.Use(graph.Weight{Name: tensor, Rows: all * (p.of / 2), Cols: cols, Experts: all, From: p.from, Of: p.of})}
	}
	w := []graph.WeightID{l.g.NewExperts(tensor, all, rows, cols)}
	if l.has(l.prefix + name + ".bias") {
		w = append(w, l.weight(l.prefix+name+".bias"))
	}
	return w
}

// sparse is preNorm with experts from some layer on; those before have a feed-forward of their own.
func (b *builder) sparse(a attention, m mixture) {
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.attend(a, l.norm("attn_norm", x)))
		x = l.add("ffn_residual", x, l.mixedOrGated(m, l.norm("ffn_norm", x)))
	}
	b.logits(x)
}

// mixedOrGated is the experts of a layer that has some, and a feed-forward block elsewhere.
func (l *layer) mixedOrGated(m mixture, x value) value {
	if l.has(l.prefix + "ffn_gate_inp.weight") {
		return l.mixed(m, x)
	}
	return l.gated(m.act, x)
}
