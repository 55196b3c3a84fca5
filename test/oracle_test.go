package test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/testkit"
	"ck/test/oracle"
)

// hfOnly are the keys that hf sets and the converter leaves to their defaults.
var hfOnly = []string{"attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base", "vocab_size", "attention.sliding_window_pattern"}

// A folder that the inverse of llama.cpp's conversion makes of a GGUF file is that file again for package hf: keys, names, types and rows.
func TestFoldersOfOracle(t *testing.T) {
	for _, name := range []string{"gemma2", "olmo2"} {
		g, err := gguf.Open(filepath.Join(testkit.Data(t, "models/"+name), "model.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		dir := t.TempDir()
		if err := oracle.Folder(g, dir); err != nil {
			t.Fatal(err)
		}
		h, err := hf.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		arch, _, _ := g.KV.String("general.architecture")
		own := func(m *gguf.Model) []string {
			return slices.DeleteFunc(m.KV.Keys(), func(k string) bool { return !strings.HasPrefix(k, arch+".") && k != "general.file_type" })
		}
		for _, k := range own(g) {
			if got, want := h.KV.Value(k), g.KV.Value(k); got != want {
				t.Errorf("%s is %T %v, the converter wrote %T %v", k, got, got, want, want)
			}
		}
		for _, k := range own(h) {
			if g.KV.Value(k) == nil && !slices.Contains(hfOnly, strings.TrimPrefix(k, arch+".")) {
				t.Errorf("%s: the converter does not write %s", name, k)
			}
		}
		if len(h.Tensors) != len(g.Tensors) {
			t.Errorf("%d tensors, the converter wrote %d", len(h.Tensors), len(g.Tensors))
		}
		for _, want := range g.Tensors {
			got := h.Tensor(want.Name)
			if got == nil || got.Type != want.Type || !slices.Equal(got.Shape, want.Shape) || string(got.Data) != string(want.Data) || got.Interleave != 0 {
				t.Errorf("tensor %v, the converter wrote %s %v %v", got, want.Name, want.Type, want.Shape)
			}
		}
	}
}
