package hf

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// A language model within one that reads pictures is the one that stands alone: keys, names, rows; of either style of names.
func TestWrapped(t *testing.T) {
	for _, c := range []struct{ folder, class, model, head string }{
		{"gemma3", "Gemma3ForConditionalGeneration", "language_model.model.", "language_model."},
		{"gemma4-kv", "Gemma4ForConditionalGeneration", "model.language_model.", ""},
		{"mistral3", "Mistral3ForConditionalGeneration", "model.language_model.", ""},
	} {
		dir := testkit.Data(t, "models/"+c.folder+"/hf")
		want, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		got, err := Open(wrap(t, dir, c.class, c.model, c.head))
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if a, b := got.KV.Keys(), want.KV.Keys(); !slices.Equal(a, b) {
			t.Errorf("%s: keys %v, want %v", c.folder, a, b)
		}
		if len(got.Tensors) != len(want.Tensors) {
			t.Errorf("%s: %d tensors, want %d", c.folder, len(got.Tensors), len(want.Tensors))
		}
		for _, x := range want.Tensors {
			if y := got.Tensor(x.Name); y == nil || y.Type != x.Type || !slices.Equal(y.Shape, x.Shape) ||
				string(y.Reader().Rows(0, y.Rows())) != string(x.Reader().Rows(0, x.Rows())) {
				t.Errorf("%s: tensor %s is another", c.folder, x.Name)
			}
		}
		if !slices.ContainsFunc(got.Notes, func(n string) bool { return strings.Contains(n, "sound are left out: 1") }) {
			t.Errorf("%s: notes %q", c.folder, got.Notes)
		}
	}
}

// wrap writes the folder as the language model of a larger one, with a tensor of another part.
func wrap(t *testing.T, dir, class, model, head string) string {
	t.Helper()
	out := t.TempDir()
	var text map[string]any
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &text); err != nil {
		t.Fatal(err)
	}
	delete(text, "architectures")
	if b, err = json.Marshal(map[string]any{"architectures": []string{class}, "text_config": text, "vision_config": map[string]any{"hidden_size": 8}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "config.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]any
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	renamed := map[string]any{"vision_tower.norm.weight": map[string]any{"dtype": "F32", "shape": []int{1}, "data_offsets": []int{len(b) - 8 - int(n), len(b) - 4 - int(n)}}}
	for name, v := range header {
		switch rest, ok := strings.CutPrefix(name, "model."); {
		case name == "__metadata__":
			renamed[name] = v
		case ok:
			renamed[model+rest] = v
		default:
			renamed[head+name] = v
		}
	}
	h, err := json.Marshal(renamed)
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)
	file = append(append(file, b[8+n:]...), 0, 0, 0, 0)
	if err := os.WriteFile(filepath.Join(out, "model.safetensors"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

// What a folder leaves out of text_config is what transformers takes, and is said; another kind of text model is an error that names it.
func TestWrappedConfig(t *testing.T) {
	text := `{"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
		"num_hidden_layers": 34, "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}}`
	c, err := parseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if c.vocab != 262208 || c.heads != 8 || c.headsKV != 4 || c.headDim != 256 || c.context != 131072 || c.eps != 1e-6 || c.theta != 1e6 || c.factor != 8 || len(c.notes) < 7 {
		t.Errorf("%+v", c)
	}
	for want, text := range map[string]string{"model_type": `{"architectures": ["Gemma3ForConditionalGeneration"]}`,
		`model_type "x"`: `{"architectures": ["Mistral3ForConditionalGeneration"], "text_config": {"model_type": "x"}}`} {
		if _, err := parseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %s in it", err, want)
		}
	}
}
