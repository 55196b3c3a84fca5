package synth

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// Shapes have the tensors that llama-quantize lists for the real models.
func TestShapesAsLlamaQuantize(t *testing.T) {
	for _, name := range []string{"gemma-3-1b", "gpt-oss-20b", "llama-3.1-8b", "llama-3.2-1b", "mixtral-8x7b", "qwen2.5-7b", "qwen3-0.6b", "qwen3-30b-a3b"} {
		b, err := os.ReadFile(testkit.Data(t, "gguf-shapes/"+name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			Tensors [][3]any
		}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		s, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		var names, listed []string
		for _, x := range s.tensors() {
			names = append(names, fmt.Sprint(x.Name, " ", x.Shape))
		}
		for _, x := range want.Tensors {
			if x[0] != ropeFreqs { // of llama 3, which shapes leave out
				listed = append(listed, fmt.Sprint(x[0], " ", x[1]))
			}
		}
		slices.Sort(names)
		slices.Sort(listed)
		if !slices.Equal(names, listed) {
			t.Errorf("%s: %d tensors, want %d: %v", name, len(names), len(listed), firstOther(names, listed))
		}
	}
}

func firstOther(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] + ", want " + b[i]
		}
	}
	return "one list goes on"
}

// The file of a shape with windows and experts is the same each time, and has the keys and contents that are not random.
func TestGemma4Shape(t *testing.T) {
	s, err := Find("gemma-4-26b-a4b")
	if err != nil {
		t.Fatal(err)
	}
	s.Layers, s.Vocab, s.Hidden, s.FFN, s.ExpertFFN, s.Experts = 6, 1000, 64, 64, 32, 16
	m, err := Model("gemma4", s, quant.Q8_0, 1)
	if err != nil {
		t.Fatal(err)
	}
	kvs, _, err := m.KV.Ints("gemma4.attention.head_count_kv")
	if want := []int64{8, 8, 8, 8, 8, 2}; err != nil || !slices.Equal(kvs, want) {
		t.Errorf("KV heads %v (%v), want %v", kvs, err, want)
	}
	f, err := m.Decode(m.Tensor(ropeFreqs), 1<<10)
	if err != nil || len(f) != 256 || f[63] != 1 || f[64] != 1e30 {
		t.Errorf("%d factors (%v)", len(f), err)
	}
	if m.Tensor("blk.5.attn_v.weight") != nil || m.Tensor("blk.4.attn_v.weight") == nil {
		t.Error("values are keys in layers without a window alone")
	}
	if slices.ContainsFunc(s.Pure(quant.Q8_0), func(x gguf.TensorInfo) bool { return strings.HasSuffix(x.Name, ".scale") && x.Type != quant.F32 }) {
		t.Error("scales are F32")
	}
}
