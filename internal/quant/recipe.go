package quant

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// A Recipe is a mixture of types with a name, such as Q4_K_M: tensors that suffer more from coarse weights get finer
// ones. The choices are those of llama.cpp (src/llama-quant.cpp, commit 0c1e57098), for all architectures but Falcon,
// which has exceptions of its own.
type Recipe struct {
	Name     string
	Base     Type // of what no rule names
	FileType int  // general.file_type of GGUF files

	embed, output           Type // token_embd, output; a zero output is Q6_K, a zero embed is Base
	v, k, q, o, down, upper rule // attention and FFN; upper: gate and up
	o8                      rule // o of models with 8 experts, in place of o
	low                     bool // one of the recipes of about 2 bits and less, where v, k and down have less room
}

// RecipeModel is what recipes ask about a model.
type RecipeModel struct {
	Arch           string // general.architecture
	Layers         int
	Heads, KVHeads int
	Experts        int
	Imatrix        bool // an importance matrix is at hand
}

// RecipeTensor is what recipes ask about a tensor.
type RecipeTensor struct {
	Name  string
	Shape []int // row length first
	Type  Type  // of the source, kept where recipes leave a tensor alone
}

// site is where a rule is asked: tensor i of n of its role, counted over the layers.
type site struct {
	m    *RecipeModel
	base Type
	i, n int
}

// rule gives the type of a tensor of one role.
type rule func(s site) Type

func always(t Type) rule { return func(site) Type { return t } }

// when gives t where the condition holds, else the base type.
func when(cond func(s site) bool, t Type) rule {
	return func(s site) Type {
		if cond(s) {
			return t
		}
		return s.base
	}
}

// or is the first rule where the condition holds, else the second.
func or(cond func(s site) bool, yes, no rule) rule {
	return func(s site) Type {
		if cond(s) {
			return yes(s)
		}
		return no(s)
	}
}

// grouped: four or more query heads share a KV head, so that attn_v is small and finer types cost little.
func grouped(s site) bool         { return s.m.KVHeads > 0 && s.m.Heads >= 4*s.m.KVHeads }
func groupedOrMoE(s site) bool    { return grouped(s) || s.m.Experts >= 4 }
func eighth(s site) bool          { return s.i < s.n/8 }
func below(k int) func(site) bool { return func(s site) bool { return s.i < k } }
func plainEighth(s site) bool     { return eighth(s) && !s.m.Imatrix }
func guardedEighth(s site) bool   { return eighth(s) && s.m.Imatrix }
func imatrix(s site) bool         { return s.m.Imatrix }

// spread: the first and last eighth of the layers, and every third between.
func spread(s site) bool {
	return eighth(s) || s.i >= 7*s.n/8 || (s.i-s.n/8)%3 == 2
}

// recipes has a row for each name of llama-quantize that is a choice of its own; adding one is adding a row.
var recipes = []Recipe{
	{Name: "F16", Base: F16, FileType: 1},
	{Name: "BF16", Base: BF16, FileType: 32},
	{Name: "Q4_0", Base: Q4_0, FileType: 2, down: when(guardedEighth, Q4_1)},
	{Name: "Q4_1", Base: Q4_1, FileType: 3},
	{Name: "Q5_0", Base: Q5_0, FileType: 8, down: when(guardedEighth, Q5_1)},
	{Name: "Q5_1", Base: Q5_1, FileType: 9},
	{Name: "Q8_0", Base: Q8_0, FileType: 7, output: Q8_0},
	{Name: "Q2_K", Base: Q2_K, FileType: 10, v: or(grouped, always(Q4_K), always(Q3_K)), down: always(Q3_K),
		o: always(Q3_K), o8: always(Q5_K)},
	{Name: "Q2_K_S", Base: Q2_K, FileType: 21, v: when(grouped, Q4_K), down: when(eighth, Q4_K)},
	{Name: "Q3_K_S", Base: Q3_K, FileType: 11, o8: always(Q5_K)},
	{Name: "Q3_K_M", Base: Q3_K, FileType: 12, v: or(below(2), always(Q5_K), always(Q4_K)),
		down: or(func(s site) bool { return s.i < s.n/16 }, always(Q5_K), always(Q4_K)), o: always(Q4_K),
		o8: always(Q5_K)},
	{Name: "Q3_K_L", Base: Q3_K, FileType: 13, v: always(Q5_K), down: always(Q5_K), o: always(Q5_K)},
	{Name: "Q4_K_S", Base: Q4_K, FileType: 14, v: when(below(4), Q5_K), down: when(eighth, Q5_K), o8: always(Q5_K)},
	{Name: "Q4_K_M", Base: Q4_K, FileType: 15, v: when(spread, Q6_K), down: when(spread, Q6_K), o8: always(Q5_K)},
	{Name: "Q5_K_S", Base: Q5_K, FileType: 16},
	{Name: "Q5_K_M", Base: Q5_K, FileType: 17, v: when(spread, Q6_K), down: when(spread, Q6_K)},
	{Name: "Q6_K", Base: Q6_K, FileType: 18},
	{Name: "IQ4_NL", Base: IQ4_NL, FileType: 25, v: when(grouped, Q5_K), down: when(plainEighth, Q5_K),
		o8: always(Q5_K)},
	{Name: "IQ4_XS", Base: IQ4_XS, FileType: 30, v: when(grouped, Q5_K), down: when(plainEighth, Q5_K),
		o8: always(Q5_K)},
	{Name: "IQ3_XXS", Base: IQ3_XXS, FileType: 23, embed: IQ3_S, output: Q5_K,
		v: or(grouped, always(Q4_K), or(imatrix, always(IQ3_XXS), always(IQ3_S))), k: always(IQ2_S), q: always(IQ2_S),
		down: or(imatrix, always(IQ3_XXS), or(eighth, always(Q4_K), always(Q3_K))), o: always(IQ3_S),
		o8: always(Q5_K)},
	{Name: "IQ3_XS", Base: IQ3_S, FileType: 22, v: when(grouped, Q4_K), k: always(IQ3_XXS), q: always(IQ3_XXS),
		upper: when(func(s site) bool { return s.i >= s.n/8 && s.i < 7*s.n/8 }, IQ3_XXS), o8: always(Q5_K)},
	{Name: "IQ3_S", Base: IQ3_S, FileType: 26, v: when(grouped, Q4_K), o8: always(Q5_K)},
	{Name: "IQ3_M", Base: IQ3_S, FileType: 27, v: always(Q4_K),
		down: when(func(s site) bool { return eighth(s) || s.m.Experts == 8 && spread(s) }, Q4_K), o: always(Q4_K),
		o8: always(Q5_K)},
	{Name: "IQ2_XXS", Base: IQ2_XXS, FileType: 19, low: true, embed: Q2_K, output: Q5_K,
		v:    or(groupedOrMoE, always(Q4_K), always(Q2_K)),
		down: when(eighth, Q2_K), o8: always(Q5_K)},
	{Name: "IQ2_XS", Base: IQ2_XS, FileType: 20, low: true, embed: Q2_K, output: Q5_K,
		v:    or(groupedOrMoE, always(Q4_K), always(Q2_K)),
		down: when(eighth, Q2_K), o8: always(Q5_K)},
	{Name: "IQ2_S", Base: IQ2_XS, FileType: 28, low: true, embed: IQ3_S, output: Q5_K,
		v:    or(groupedOrMoE, always(Q4_K), always(IQ3_S)),
		down: when(eighth, IQ3_S), o: always(IQ3_S), o8: always(Q5_K)},
	{Name: "IQ2_M", Base: IQ2_S, FileType: 29, low: true, embed: IQ3_S, output: Q5_K,
		v:    or(groupedOrMoE, always(Q4_K), always(IQ3_S)),
		down: when(eighth, IQ3_S), o: always(IQ3_S), o8: always(Q5_K)},
	{Name: "IQ1_S", Base: IQ1_S, FileType: 24, low: true, embed: Q2_K, output: Q5_K, v: or(groupedOrMoE, always(Q4_K),
		always(Q2_K)),
		down: when(eighth, Q2_K), o: always(IQ2_XXS), o8: always(Q5_K)},
	{Name: "IQ1_M", Base: IQ1_M, FileType: 31, low: true, embed: Q2_K, output: Q5_K, v: or(groupedOrMoE, always(Q4_K),
		always(Q2_K)),
		down: when(eighth, Q2_K), o: always(IQ2_XXS), o8: always(Q5_K)},
	{Name: "TQ1_0", Base: TQ1_0, FileType: 36, embed: Q4_K},
	{Name: "TQ2_0", Base: TQ2_0, FileType: 37, embed: Q4_K},
	{Name: "MXFP4_MOE", Base: MXFP4, FileType: 38},
	{Name: "Q1_0", Base: Q1_0, FileType: 40},
	{Name: "Q2_0", Base: Q2_0, FileType: 41, embed: Q4_K},
}

// RecipeNames lists all recipes.
func RecipeNames() []string {
	var names []string
	for _, r := range recipes {
		names = append(names, r.Name)
	}
	return names
}

// FindRecipe finds a recipe by its name, in either case.
func FindRecipe(name string) (Recipe, bool) {
	for _, r := range recipes {
		if strings.EqualFold(r.Name, name) {
			return r, true
		}
	}
	return Recipe{}, false
}

// fallbacks is what a type becomes where a row is no multiple of its block; F16 if that does not fit either.
var fallbacks = map[Type]Type{
	IQ1_S: IQ4_NL, IQ1_M: IQ4_NL, IQ2_XXS: IQ4_NL, IQ2_XS: IQ4_NL, IQ2_S: IQ4_NL, IQ3_XXS: IQ4_NL, IQ3_S: IQ4_NL,
	IQ4_XS: IQ4_NL,
	Q2_0:   Q4_0, Q2_K: Q4_0, Q3_K: Q4_0, TQ1_0: Q4_0, TQ2_0: Q4_0,
	Q4_K: Q5_0, Q5_K: Q5_1, Q6_K: Q8_0,
}

// Fit is t, or the type that replaces it for rows of cols elements. Where llama-quantize refuses, for want of a type,
// it is F16 too.
func Fit(t Type, cols int) Type {
	if cols%t.BlockElems() == 0 {
		return t
	}
	if f, ok := fallbacks[t]; ok && cols%f.BlockElems() == 0 {
		return f
	}
	return F16
}

// role is the part that a tensor plays in a model, as far as recipes care.
type role uint8

const (
	roleOther role = iota
	roleEmbed
	roleOutput
	roleV
	roleK
	roleQ
	roleO
	roleDown
	roleGate
	roleUp
)

// roleOf tells roles by the names of GGUF; fused q, k and v count as v.
func roleOf(name string) role {
	for _, e := range []struct {
		part string
		role role
	}{{"attn_qkv.weight", roleV}, {"attn_kv_b.weight", roleV}, {"attn_v.weight", roleV}, {"attn_k.weight", roleK},
		{"attn_q.weight", roleQ},
		{"attn_output.weight", roleO}, {"ffn_up", roleUp}, {"ffn_gate", roleGate}, {"ffn_down", roleDown}} {
		if strings.Contains(name, e.part) {
			return e.role
		}
	}
	switch name {
	case "token_embd.weight", "per_layer_token_embd.weight":
		return roleEmbed
	case "output.weight":
		return roleOutput
	}
	return roleOther
}

// keeps lists parts of names whose tensors stay as they are: small, and needed exactly.
var keeps = []string{"_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel",
	"per_layer_model_proj", "ssm_conv1d",
	"shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight", "attn_rel_b.weight"}

// Quantizable reports whether recipes touch the tensor.
func (t RecipeTensor) Quantizable() bool {
	if len(t.Shape) < 2 || !strings.HasSuffix(t.Name, "weight") {
		return false
	}
	return !slices.ContainsFunc(keeps, func(k string) bool { return strings.Contains(t.Name, k) })
}

// layerOf is the layer number in a tensor's name, -1 without one.
func layerOf(name string) int {
	var l int
	if _, err := fmt.Sscanf(name, "blk.%d.", &l); err != nil {
		return -1
	}
	return l
}

// Types gives every tensor of a model its type. The order of tensors does not matter: they are counted by layer, then
// by name.
func (r Recipe) Types(m RecipeModel, tensors []RecipeTensor) []Type {
	order := make([]int, len(tensors))
	tied, values := true, 0
	for i, t := range tensors {
		order[i] = i
		role := roleOf(t.Name)
		tied = tied && role != roleOutput
		if role == roleV {
			values++
		}
	}
	sort.SliceStable(order, func(a, b int) bool {
		x, y := tensors[order[a]].Name, tensors[order[b]].Name
		if lx, ly := layerOf(x), layerOf(y); lx != ly {
			return lx < ly
		}
		return x < y
	})
	out := make([]Type, len(tensors))
	seen := map[role]int{}
	for _, i := range order {
		t := &tensors[i]
		if !t.Quantizable() {
			out[i] = t.Type
			continue
		}
		role := roleOf(t.Name)
		if role == roleEmbed && tied {
			role = roleOutput
		}
		s := site{m: &m, base: r.Base, i: seen[role], n: m.Layers}
		seen[role]++
		switch {
		case role == roleV:
			s.n = values
		case m.Experts > 1 && !r.low && (role == roleDown || role == roleGate || role == roleUp):
			s.i = layerOf(t.Name) // a layer may have several: experts, shared experts
		}
		out[i] = Fit(r.choose(role, t, s), t.Shape[0])
	}
	return out
}

// choose is the type of a tensor before its rows are looked at.
func (r *Recipe) choose(role role, t *RecipeTensor, s site) Type {
	eight := s.m.Experts == 8
	pick := func(f rule) Type {
		if f == nil {
			return r.Base
		}
		return f(s)
	}
	switch {
	case r.Base.BlockElems() == 1:
		return r.Base
	case r.Base == MXFP4: // only experts are coarse
		if role != roleOutput && len(t.Shape) > 2 && t.Shape[2] > 1 {
			return MXFP4
		}
		return Q8_0
	}
	switch role {
	case roleOutput:
		if t.Shape[0]%r.Base.BlockElems() != 0 {
			return Q8_0
		}
		return orType(r.output, Q6_K)
	case roleEmbed:
		return orType(r.embed, r.Base)
	case roleV:
		typ := pick(r.v)
		switch {
		case r.low:
		case eight:
			typ = Q8_0
		case s.m.seventy() && (typ == Q3_K || typ == Q4_K):
			typ = Q5_K
		}
		return typ
	case roleK:
		switch {
		case eight && r.low:
			return Q4_K
		case eight:
			return Q8_0
		}
		return pick(r.k)
	case roleQ:
		return pick(r.q)
	case roleO:
		if eight {
			return pick(r.o8)
		}
		return pick(r.o)
	case roleDown:
		return pick(r.down)
	case roleGate, roleUp:
		return pick(r.upper)
	}
	return r.Base
}

func orType(t, def Type) Type {
	if t == 0 {
		return def
	}
	return t
}

// seventy reports what llama.cpp calls a 70B model.
func (m *RecipeModel) seventy() bool {
	return m.Layers == 80 && (m.Arch == "llama" && m.Heads != m.KVHeads || m.Arch == "qwen2")
}

// RecipeOfFile finds the recipe of a general.file_type.
func RecipeOfFile(fileType int) (Recipe, bool) {
	for _, r := range recipes {
		if r.FileType == fileType {
			return r, true
		}
	}
	return Recipe{}, false
}
