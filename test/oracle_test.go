package test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/convert"
	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/isa"
	"ck/internal/quant"
	"ck/internal/testkit"
	"ck/test/oracle"
)

// hfOnly are the keys that hf sets and the converter leaves to their defaults.
var hfOnly = []string{"attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base", "vocab_size", "attention.sliding_window_pattern"}

// A folder that the inverse of llama.cpp's conversion makes of a GGUF file is that file again for package hf, and when
// ckquant converts it: keys, names, types and rows.
func TestFoldersOfOracle(t *testing.T) {
	for _, name := range []string{"gemma2", "olmo2", "phi3", "phi3-longrope", "granite", "granitemoe", "glm4moe", "gpt-oss"} {
		g, err := gguf.Open(filepath.Join(testkit.Data(t, "models/"+name), "model.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		if name == "gpt-oss" {
			g = withFP4Experts(t, g)
		}
		dir := t.TempDir()
		if err := oracle.Folder(g, dir); err != nil {
			t.Fatal(err)
		}
		h, err := hf.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		asOracle(t, name, h, g)
		made, err := gguf.Open(converted(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		defer made.Close()
		asOracle(t, name+" by ckquant convert", made, g)
	}
}

// withFP4Experts is a model with experts in MXFP4, as gpt-oss is published.
func withFP4Experts(t *testing.T, m *gguf.Model) *gguf.Model {
	t.Helper()
	made := map[string]*gguf.Tensor{}
	for _, x := range m.Tensors {
		if !strings.HasSuffix(x.Name, "_exps.weight") {
			continue
		}
		v, err := m.Decode(x, 1<<22)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, x.Rows()*quant.MXFP4.RowBytes(x.Cols()))
		if err := quant.Quantize(quant.MXFP4, b, v, nil); err != nil {
			t.Fatal(err)
		}
		made[x.Name] = &gguf.Tensor{Name: x.Name, Type: quant.MXFP4, Shape: x.Shape, Data: b, File: -1}
	}
	return m.With(made)
}

// converted is the GGUF file that ckquant convert makes of a folder without a tokenizer.
func converted(t *testing.T, dir string) string {
	t.Helper()
	m, err := convert.Open(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var tensors []convert.Tensor
	for i, typ := range convert.OwnTypes(m) {
		tensors = append(tensors, convert.Tensor{From: m.Tensors[i], Type: typ})
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	p, err := convert.NewPlan(m, m.KV, tensors, convert.Output{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(context.Background(), convert.Options{Workers: 2, Features: isa.Detect()}); err != nil {
		t.Fatal(err)
	}
	return path
}

// asOracle compares h with g, which llama.cpp's converter wrote.
func asOracle(t *testing.T, name string, h, g *gguf.Model) {
	t.Helper()
	arch, _, _ := g.KV.String("general.architecture")
	own := func(m *gguf.Model) []string {
		return slices.DeleteFunc(m.KV.Keys(), func(k string) bool { return !strings.HasPrefix(k, arch+".") && k != "general.file_type" })
	}
	for _, k := range own(g) {
		if got, want := h.KV.Value(k), g.KV.Value(k); got != want {
			t.Errorf("%s: %s is %T %v, the converter wrote %T %v", name, k, got, got, want, want)
		}
	}
	for _, k := range own(h) {
		if g.KV.Value(k) == nil && !slices.Contains(hfOnly, strings.TrimPrefix(k, arch+".")) {
			t.Errorf("%s: the converter does not write %s", name, k)
		}
	}
	if len(h.Tensors) != len(g.Tensors) {
		t.Errorf("%s: %d tensors, the converter wrote %d", name, len(h.Tensors), len(g.Tensors))
	}
	for _, want := range g.Tensors {
		got := h.Tensor(want.Name)
		switch {
		case got == nil:
			t.Errorf("%s: tensor %s is missing", name, want.Name)
		case got.Type != want.Type || !slices.Equal(got.Shape, want.Shape):
			t.Errorf("%s: tensor %s is %v %v, the converter wrote %v %v", name, want.Name, got.Type, got.Shape, want.Type, want.Shape)
		case string(got.Reader().Rows(0, got.Rows())) != string(want.Data):
			t.Errorf("%s: the rows of tensor %s are others than the converter wrote", name, want.Name)
		}
	}
}
