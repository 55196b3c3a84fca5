package quant

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// shapesFile is a file of data/gguf-shapes.
type shapesFile struct {
	Model, Architecture string
	Tensors             [][3]json.RawMessage
	Types               []string
	Recipes             map[string]struct {
		Types []int
		MiB   float64
		Error string
	}
}

// heads are the hyperparameters that the files do not say.
var heads = map[string]struct{ heads, kv, experts int }{
	"gemma-3-1b": {4, 1, 0}, "gpt-oss-20b": {64, 8, 32}, "llama-2-70b": {64, 8, 0}, "llama-3.1-8b": {32, 8, 0},
	"llama-3.2-1b": {32, 8, 0},
	"mixtral-8x7b": {32, 8, 8}, "mixtral-small": {8, 2, 8}, "phi-3-mini": {32, 32, 0}, "qwen2.5-0.5b": {14, 2, 0},
	"qwen2.5-7b": {28, 4, 0},
	"qwen3-0.6b": {16, 8, 0}, "qwen3-30b-a3b": {32, 4, 128}, "qwen3moe-6layers": {32, 4, 128},
}

func readShapes(t *testing.T, path string) (RecipeModel, []RecipeTensor, shapesFile) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var f shapesFile
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	h, ok := heads[f.Model]
	if !ok {
		t.Fatalf("%s: heads of the model are not listed in this test", f.Model)
	}
	m := RecipeModel{Arch: f.Architecture, Heads: h.heads, KVHeads: h.kv, Experts: h.experts}
	var tensors []RecipeTensor
	for _, e := range f.Tensors {
		var x RecipeTensor
		var typ string
		for i, p := range []any{&x.Name, &x.Shape, &typ} {
			if err := json.Unmarshal(e[i], p); err != nil {
				t.Fatal(err)
			}
		}
		x.Type, ok = Parse(typ)
		if !ok {
			t.Fatalf("%s: type %q", x.Name, typ)
		}
		m.Layers = max(m.Layers, layerOf(x.Name)+1)
		tensors = append(tensors, x)
	}
	return m, tensors, f
}

// Every recipe gives every tensor of every model the type that llama-quantize gives it.
func TestRecipes(t *testing.T) {
	files, err := filepath.Glob(testkit.Data(t, "gguf-shapes") + "/*.json")
	if err != nil || len(files) < 13 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	tried := map[string]bool{}
	for _, path := range files {
		m, tensors, f := readShapes(t, path)
		for name, want := range f.Recipes {
			base, _ := strings.CutSuffix(name, "+imatrix")
			tried[base] = true
			r, ok := FindRecipe(base)
			if !ok {
				t.Errorf("recipe %s is unknown", base)
				continue
			}
			modes := []bool{base != name}
			if _, differs := f.Recipes[name+"+imatrix"]; !differs {
				modes = []bool{base != name, true}
			}
			for _, imatrix := range modes {
				m.Imatrix = imatrix
				got := r.Types(m, tensors)
				if want.Error != "" { // llama-quantize refuses rows that fit no type
					if !slices.Contains(got, F16) {
						t.Errorf("%s %s: no F16 among %v, want it in place of %q", f.Model, name, got, want.Error)
					}
					continue
				}
				wrong, size := 0, 0.0
				for i := range got {
					n := 1
					for _, d := range tensors[i].Shape[1:] {
						n *= d
					}
					size += float64(n) * float64(got[i].RowBytes(tensors[i].Shape[0])) / (1 << 20)
					if w := f.Types[want.Types[i]]; !strings.EqualFold(got[i].String(), w) {
						if wrong++; wrong <= 3 {
							t.Errorf("%s %s imatrix=%v: %s %v is %s, want %s", f.Model, name, imatrix,
								tensors[i].Name, tensors[i].Shape, got[i], w)
						}
					}
				}
				if size < want.MiB-0.01 || size > want.MiB+0.01 {
					t.Errorf("%s %s: %.2f MiB, want %.2f", f.Model, name, size, want.MiB)
				}
			}
		}
	}
	for _, n := range RecipeNames() {
		if !tried[n] {
			t.Errorf("recipe %s is not in the reference data", n)
		}
	}
}

// The order in which tensors are given does not matter.
func TestRecipeOrder(t *testing.T) {
	m, tensors, _ := readShapes(t, testkit.Data(t, "gguf-shapes/llama-3.2-1b.json"))
	r, _ := FindRecipe("q4_k_m")
	a := r.Types(m, tensors)
	n := len(tensors)
	turned := make([]RecipeTensor, n)
	for i := range tensors {
		turned[n-1-i] = tensors[i]
	}
	b := r.Types(m, turned)
	for i := range a {
		if a[i] != b[n-1-i] {
			t.Fatalf("%s is %s, in the other order %s", tensors[i].Name, a[i], b[n-1-i])
		}
	}
}
