// Package test holds what needs several packages: oracles over whole models, command lines, rules of the tree.
package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/arch"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/hf"
	"ck/internal/quant"
	"ck/internal/testkit"
	"ck/test/oracle"
)

// models lists the reference models of the architectures that ck knows, without the quantized sets.
var models = []string{"apertus", "arcee", "ernie4_5", "ernie4_5-moe", "exaone-moe", "exaone4", "gemma", "gemma2", "gemma3", "gemma4", "gemma4-kv", "gemma4-moe", "glm4", "glm4moe", "gpt-oss", "granite",
	"granitemoe", "hunyuan-dense", "hunyuan-moe", "llama-bias", "llama-gqa", "llama-rope-linear", "llama-rope-llama3", "llama-rope-yarn",
	"llama-spm-tied", "llama4", "minimax-m2", "mistral", "mistral-window-hf", "mistral3", "mixtral", "olmo2", "olmo3", "olmoe", "phi3", "phi3-longrope", "qwen2", "qwen2moe", "qwen3",
	"qwen3moe", "seed-oss", "smollm3", "stories260K", "trained-qwen3"}

// forms opens the forms of a reference model: "gguf" and "hf", where they are, or package oracle can make the second of the first.
func forms(t *testing.T, c *testkit.Case) map[string]*gguf.Model {
	t.Helper()
	out := map[string]*gguf.Model{}
	for form, path := range map[string]string{"gguf": "model.gguf", "hf": "hf"} {
		path = filepath.Join(c.Dir, path)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		open := gguf.Open
		if form == "hf" {
			open = hf.Open
		}
		m, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		out[form] = m
	}
	if g := out["gguf"]; g != nil && out["hf"] == nil && oracle.Knows(g) {
		dir := t.TempDir()
		if err := oracle.Folder(g, dir); err != nil {
			t.Fatal(err)
		}
		m, err := hf.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		out["hf"] = m
	}
	if len(out) == 0 {
		t.Fatalf("%s: no form of the model", c.Dir)
	}
	return out
}

// source shows a model to arch, as the engine does.
type source struct {
	*gguf.Metadata
	m *gguf.Model
}

func (s source) Shape(name string) (int, int, bool) {
	t := s.m.Tensor(name)
	if t == nil {
		return 0, 0, false
	}
	return t.Rows(), t.Cols(), true
}

func (s source) Experts(name string) int {
	t := s.m.Tensor(name)
	switch {
	case t == nil:
		return 0
	case len(t.Shape) > 2:
		return t.Shape[2]
	}
	return 1
}

func (s source) Tensors() []string { return s.m.Names() }

func (s source) Vector(name string) ([]float32, error) {
	t := s.m.Tensor(name)
	v := make([]float32, t.Rows()*t.Cols())
	quant.Decode(t.Type, v, t.Data)
	return v, nil
}

// weightsOf reads the weights of a model for the float64 interpreter.
func weightsOf(g *graph.Graph, m *gguf.Model) func(graph.WeightID, int, []float64) {
	return func(w graph.WeightID, row int, dst []float64) {
		x, t := g.Weights[w], m.Tensor(g.Weights[w].Name)
		if x.Rows == 1 && x.Of > 0 { // of a bias
			all := make([]float64, x.Of)
			quant.Exact(t.Type, all, t.Row(0))
			copy(dst, all[x.From:])
			return
		}
		quant.Exact(t.Type, dst, t.Row(x.TensorRow(row)))
	}
}

// input is the whole sequence as one run, all logits wanted.
func input(ids []int32) graph.Input {
	in := graph.Input{IDs: ids}
	for i := range ids {
		in.Pos, in.Seq, in.Pick = append(in.Pos, int32(i)), append(in.Seq, 0), append(in.Pick, int32(i))
	}
	return in
}

// The graphs are right: interpreted in float64 they give the exact logits of every reference model, in both forms.
func TestGraphsAgainstExactLogits(t *testing.T) {
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testkit.LoadCase(t, name)
			tol := 1e-6
			if name == "phi3-longrope" {
				tol = 3e-6 // its factors are float32 in the file, and multiply positions of hundreds
			}
			for form, m := range forms(t, c) {
				g, _, err := arch.Build(source{m.KV, m})
				if err != nil {
					t.Fatal(form, err)
				}
				for i := range c.Sequences {
					s := &c.Sequences[i]
					if s.Name == "text" && !strings.HasPrefix(name, "llama") {
						continue // short and long say the same at less cost
					}
					var logits [][]float32
					for _, row := range graph.Interpret(g, input(s.IDs), weightsOf(g, m)) {
						l := make([]float32, len(row))
						for j, v := range row {
							l[j] = float32(v)
						}
						logits = append(logits, l)
					}
					if v := c.Compare(t, s, "exact", logits, tol, false); !v.OK {
						t.Errorf("%s: %s", form, v.Text)
					}
				}
			}
		})
	}
}
