package cost

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"ck/internal/quant"
	"ck/internal/testkit"
)

// Outlines have the parameters that their makers count: the data of whole files where it is there, else model cards and reports.
func TestOutlineParams(t *testing.T) {
	want := map[string]float64{ // parameters; of gemma the technical report's sums, table 1, without the vision encoder
		"gemma-3-1b": 999885952, "gemma-3-4b": 3.88e9, "gemma-3-12b": 11.77e9, "gemma-3-27b": 27.01e9, "gpt-oss-20b": 20914757184, "gpt-oss-120b": 116.83e9}
	active := map[string]float64{"gpt-oss-20b": 3.61e9, "gpt-oss-120b": 5.13e9}
	for _, name := range OutlineNames() {
		o, _ := FindOutline(name)
		w := o.Weigh(o.shapes(), 1)
		if math.Abs(w.Params/want[name]-1) > 0.001 {
			t.Errorf("%s: %.0f parameters, want %.0f", name, w.Params, want[name])
		}
		if a := active[name]; a > 0 && math.Abs(w.ActiveParams/a-1) > 0.02 {
			t.Errorf("%s: %.4g parameters are active, want %.4g", name, w.ActiveParams, a)
		}
		if ends := w.ActiveParams - w.PromptParams; math.Abs(ends/float64(o.Hidden*o.Vocab)-1) > 0.001 || w.PromptOps(3) != 6*w.PromptParams {
			t.Errorf("%s: %.4g parameters at the ends, want %d", name, ends, o.Hidden*o.Vocab)
		}
		all := o.Weigh(o.shapes(), 1<<20)
		if all.Read < 0.9*float64(all.File) || all.Read > float64(all.File) || w.Read > all.Read {
			t.Errorf("%s: one row reads %.4g bytes, many read %.4g of %d", name, w.Read, all.Read, all.File)
		}
	}
}

// Tensors, and sizes in all recipes, are those that llama-quantize prints.
func TestOutlinesAsLlamaQuantize(t *testing.T) {
	for _, name := range []string{"gemma-3-1b", "gpt-oss-20b"} {
		b, err := os.ReadFile(testkit.Data(t, "gguf-shapes/"+name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			Tensors [][3]any
			Recipes map[string]struct {
				MiB   float64
				Error string
			}
		}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		o, _ := FindOutline(name)
		if got := o.shapes(); len(got) != len(want.Tensors) {
			t.Errorf("%s: %d tensors, want %d", name, len(got), len(want.Tensors))
		}
		n := 0
		for recipe, w := range want.Recipes {
			if _, ok := quant.FindRecipe(recipe); !ok || strings.Contains(recipe, "+") || w.Error != "" || w.MiB == 0 {
				continue
			}
			n++
			tensors, err := o.Tensors(recipe)
			if err != nil {
				t.Fatal(err)
			}
			if got := float64(o.Weigh(tensors, 1).File) / (1 << 20); math.Abs(got-w.MiB) > 0.011 {
				t.Errorf("%s %s: %.3f MiB, llama-quantize says %.2f", name, recipe, got, w.MiB)
			}
		}
		if n < 20 {
			t.Errorf("%s: %d recipes were compared", name, n)
		}
	}
}

// gemma-3-1b: 26 layers of one KV head of 256, each sixth keeps all positions, the others 512.
func TestOutlineCache(t *testing.T) {
	o, ok := FindOutline("Gemma-3-1B")
	if !ok || !slices.Contains(OutlineNames(), "gemma-3-1b") {
		t.Fatal("not found")
	}
	if got, want := o.CacheBytes(quant.F16, 4096), int64(2*256*2*(4*4096+22*512)); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	if got, want := o.CacheBytes(quant.F16, 100), int64(2*256*2*26*100); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}
