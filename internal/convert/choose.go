package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/humanize"
	"ck/internal/quant"
)

// Choice says which type each tensor gets.
type Choice struct {
	Recipe quant.Recipe
	Pure   bool // every matrix in the recipe's base type

	Embed, Output *quant.Type // of token_embd and of the output matrix; nil: as the recipe says
	Rules         []Rule      // the first that matches counts, before all of the above
	Importance    bool        // an importance matrix is at hand
	Requantize    bool        // matrices that are quantized already may be quantized again
}

// Rule gives tensors whose name matches a type.
type Rule struct {
	Name *regexp.Regexp
	Type quant.Type
}

// RuleError says that no tensor's name matches a rule.
type RuleError struct {
	Rule    Rule
	Nearest []string // parts of tensors' names that come close
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("%s=%v: matches no tensor that is quantized; near it are %s", e.Rule.Name, e.Rule.Type,
		strings.Join(e.Nearest, ", "))
}

// RequantizeError says that a matrix is quantized already.
type RequantizeError struct {
	Tensor   string
	From, To quant.Type
}

func (e *RequantizeError) Error() string {
	return fmt.Sprintf("tensor %s: is %v already, and %v from it is worse than from the original; take that one, or "+
		"--allow-requantize", e.Tensor, e.From, e.To)
}

// aliases are names of llama-quantize for recipes.
var aliases = map[string]string{"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

// FindRecipe finds a recipe by a name of llama-quantize, or a block type for all matrices, in either case. An error
// has the nearest names.
func FindRecipe(name string) (r quant.Recipe, pure bool, err error) {
	upper := strings.ToUpper(name)
	if to, ok := aliases[upper]; ok {
		upper = to
	}
	if r, ok := quant.FindRecipe(upper); ok {
		return r, false, nil
	}
	if t, ok := quant.Parse(upper); ok && weights(t) {
		return quant.Recipe{Name: t.String(), Base: t, FileType: fileType(t)}, true, nil
	}
	names := append(quant.RecipeNames(), typeNames()...)
	return r, false, fmt.Errorf("%.60q is neither a recipe nor a type; near it are %s", name,
		strings.Join(humanize.Nearest(upper, names, 4), ", "))
}

// FindType finds a type of matrices by its name, in either case; else near has names that may have been meant.
func FindType(name string) (t quant.Type, near []string) {
	if t, ok := quant.Parse(name); ok && weights(t) {
		return t, nil
	}
	return 0, humanize.Nearest(strings.ToUpper(name), typeNames(), 4)
}

// typeNames are the types that matrices may have.
func typeNames() (names []string) {
	for t := range quant.Types {
		if weights(quant.Type(t)) {
			names = append(names, quant.Type(t).String())
		}
	}
	return names
}

// weights reports whether matrices of models may have the type.
func weights(t quant.Type) bool {
	switch t {
	case quant.Q8_1, quant.Q8_K, quant.F64:
		return false
	}
	return t.Known() && t.Quantizable()
}

// Number of general.file_type (llama.h, enum llama_ftype) for types that are no recipe's name, -1 where there is
// none.
func fileType(t quant.Type) int {
	switch t {
	case quant.F32:
		return 0
	case quant.NVFP4:
		return 39
	}
	return -1
}

// ModelOf is what recipes ask about a model.
func ModelOf(m *gguf.Model) (quant.RecipeModel, error) {
	var r quant.RecipeModel
	var err error
	if r.Arch, _, err = m.KV.String("general.architecture"); err != nil {
		return r, err
	}
	for key, to := range map[string]*int{"block_count": &r.Layers, "attention.head_count": &r.Heads,
		"attention.head_count_kv": &r.KVHeads, "expert_count": &r.Experts} {
		key = r.Arch + "." + key
		v, ok, err := m.KV.Int(key)
		if err != nil { // some models have a list, a number for each layer
			list, _, listErr := m.KV.Ints(key)
			if listErr != nil || len(list) == 0 {
				return r, err
			}
			v, ok = slices.Max(list), true
		}
		if ok {
			*to = int(v)
		}
	}
	if r.KVHeads == 0 {
		r.KVHeads = r.Heads
	}
	return r, nil
}

// Types chooses the type of every tensor of m. Notes say where a row does not fit the type that was meant.
func (c *Choice) Types(m *gguf.Model) (types []quant.Type, notes []string, err error) {
	about, err := ModelOf(m)
	if err != nil {
		return nil, nil, err
	}
	about.Imatrix = c.Importance
	ask := make([]quant.RecipeTensor, len(m.Tensors))
	for i, t := range m.Tensors {
		ask[i] = quant.RecipeTensor{Name: t.Name, Shape: t.Shape, Type: kept(t.Type)}
	}
	if c.Pure {
		types = pureTypes(c.Recipe.Base, ask)
	} else {
		types = c.Recipe.Types(about, ask)
	}
	tied := m.Tensor("output.weight") == nil
	used := make([]bool, len(c.Rules))
	for i, t := range m.Tensors {
		if !ask[i].Quantizable() {
			continue
		}
		meant := types[i]
		switch {
		case t.Name == "token_embd.weight" && c.Embed != nil:
			meant = *c.Embed
		case (t.Name == "output.weight" || tied && t.Name == "token_embd.weight") && c.Output != nil:
			meant = *c.Output
		}
		for j, rule := range c.Rules {
			if rule.Name.MatchString(t.Name) {
				used[j], meant = true, rule.Type
				break
			}
		}
		types[i] = quant.Fit(meant, t.Cols())
		if types[i] != meant || t.Cols()%c.Recipe.Base.BlockElems() != 0 {
			notes = append(notes, fmt.Sprintf("tensor %s: rows of %d elements: %v", t.Name, t.Cols(), types[i]))
		}
		if types[i] != t.Type && t.Type.BlockElems() > 1 && types[i].BlockElems() > 1 && !c.Requantize {
			return nil, nil, &RequantizeError{t.Name, t.Type, types[i]}
		}
	}
	for j, ok := range used {
		if !ok {
			return nil, nil, &RuleError{c.Rules[j], quantizedNames(ask, c.Rules[j].Name.String())}
		}
	}
	return types, notes, nil
}

// kept is the type of a tensor that recipes leave alone: its own, but no file needs F64.
func kept(t quant.Type) quant.Type {
	if t == quant.F64 {
		return quant.F32
	}
	return t
}

// OwnTypes keeps every tensor's type, but no file needs F64.
func OwnTypes(m *gguf.Model) []quant.Type {
	types := make([]quant.Type, len(m.Tensors))
	for i, t := range m.Tensors {
		types[i] = kept(t.Type)
	}
	return types
}

// pureTypes gives all matrices one type.
func pureTypes(base quant.Type, tensors []quant.RecipeTensor) []quant.Type {
	types := make([]quant.Type, len(tensors))
	for i, t := range tensors {
		types[i] = t.Type
		if t.Quantizable() {
			types[i] = quant.Fit(base, t.Shape[0])
		}
	}
	return types
}

// quantizedNames are names of tensors without their layer, the nearest to a word first.
func quantizedNames(tensors []quant.RecipeTensor, word string) []string {
	var names []string
	for _, t := range tensors {
		name := strings.TrimSuffix(t.Name, ".weight")
		name = name[strings.LastIndexByte(name, '.')+1:]
		if t.Quantizable() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return humanize.Nearest(word, names, 3)
}

// Metadata is that of the output: the source's, with what a quantized file says of itself.
func (c *Choice) Metadata(kv *gguf.Metadata) *gguf.Metadata {
	kv = kv.Clone()
	kv.Set("general.quantization_version", uint32(2))
	if c.Recipe.FileType >= 0 {
		kv.Set("general.file_type", uint32(c.Recipe.FileType))
	} else {
		kv.Remove("general.file_type")
	}
	return kv
}
