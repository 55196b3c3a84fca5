package adapter

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/quant"
	"ck/internal/safetensors"
	"ck/internal/testkit"
)

// shapes are the tensors of the llama of these tests, as its folder has them: 2 layers, 2 heads of 6, 1 of keys and values.
var shapes = map[string][]int{"model.embed_tokens.weight": {3, 8}, "lm_head.weight": {3, 8}, "model.norm.weight": {8},
	"N.input_layernorm.weight": {8}, "N.post_attention_layernorm.weight": {8},
	"N.self_attn.q_proj.weight": {12, 8}, "N.self_attn.k_proj.weight": {6, 8}, "N.self_attn.v_proj.weight": {6, 8}, "N.self_attn.o_proj.weight": {8, 12},
	"N.mlp.gate_proj.weight": {5, 8}, "N.mlp.up_proj.weight": {5, 8}, "N.mlp.down_proj.weight": {8, 5}}

const modelConfig = `{"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 5, "num_hidden_layers": 2,
	"num_attention_heads": 2, "num_key_value_heads": 1,
	"head_dim": 6, "max_position_embeddings": 64, "vocab_size": 3, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": TIED}`

// numbers are small integers, for which sums are exact.
func numbers(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.IntN(17) - 8)
	}
	return v
}

func f32Bytes(v []float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

type named struct {
	dtype string
	shape []int
	data  []byte
}

// safetensorsFile is the bytes of a file.
func safetensorsFile(t testing.TB, tensors map[string]named) []byte {
	var infos []safetensors.Info
	for name, x := range tensors {
		infos = append(infos, safetensors.Info{Name: name, DType: x.dtype, Shape: x.shape})
	}
	safetensors.Sort(infos)
	var out bytes.Buffer
	w, err := safetensors.NewWriter(&out, nil, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range infos {
		if _, err := w.Write(tensors[x.Name].data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func put(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// llama writes the folder of a model and opens it; weights are by the folder's names.
func llama(t testing.TB, tied bool) (m *gguf.Model, weights map[string][]float32) {
	r := rand.New(rand.NewPCG(1, 2))
	weights = map[string][]float32{}
	tensors := map[string]named{}
	for _, layer := range []string{"0", "1"} {
		for name, shape := range shapes {
			if name == "lm_head.weight" && tied {
				continue
			}
			n := 1
			for _, d := range shape {
				n *= d
			}
			name = strings.Replace(name, "N.", "model.layers."+layer+".", 1)
			weights[name] = numbers(r, n)
			tensors[name] = named{"F32", shape, f32Bytes(weights[name])}
		}
	}
	dir := t.TempDir()
	text := strings.Replace(modelConfig, "TIED", map[bool]string{true: "true", false: "false"}[tied], 1)
	put(t, filepath.Join(dir, "config.json"), []byte(text))
	put(t, filepath.Join(dir, "model.safetensors"), safetensorsFile(t, tensors))
	m, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, weights
}

// peft is an adapter as PEFT has it.
type peft struct {
	config  map[string]any
	tensors map[string]named
}

func (p *peft) write(t testing.TB) string {
	dir := t.TempDir()
	b, err := json.Marshal(p.config)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, configName), b)
	put(t, filepath.Join(dir, weightsName), safetensorsFile(t, p.tensors))
	return dir
}

func (p *peft) values(module string) (a, b []float32, rank int) {
	x, y := p.tensors[prefix+module+suffixA], p.tensors[prefix+module+suffixB]
	decode := func(n named) []float32 {
		v := make([]float32, len(n.data)/4)
		quant.Decode(quant.F32, v, n.data)
		return v
	}
	return decode(x), decode(y), x.shape[0]
}

// onAll is an adapter of these modules, with rank 3, or another by name.
func onAll(modules []string, ranks map[string]int) *peft {
	r := rand.New(rand.NewPCG(3, 4))
	p := &peft{map[string]any{"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": []string{"q_proj"}, "bias": "none", "modules_to_save": nil,
		"use_dora":          false,
		"init_lora_weights": true, "base_model_name_or_path": "a/b", "alpha_pattern": map[string]any{}, "rank_pattern": ranks}, map[string]named{}}
	for _, m := range modules {
		rank := 3
		if ranks[m] != 0 {
			rank = ranks[m]
		}
		key := m + ".weight"
		for _, l := range []string{"0", "1"} {
			key = strings.Replace(key, "model.layers."+l+".", "N.", 1)
		}
		shape := shapes[key]
		p.tensors[prefix+m+suffixA] = named{"F32", []int{rank, shape[1]}, f32Bytes(numbers(r, rank*shape[1]))}
		p.tensors[prefix+m+suffixB] = named{"F32", []int{shape[0], rank}, f32Bytes(numbers(r, rank*shape[0]))}
	}
	return p
}

var allModules = []string{"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "model.layers.1.self_attn.k_proj",
	"model.layers.1.self_attn.v_proj",
	"model.layers.0.self_attn.o_proj", "model.layers.1.mlp.gate_proj", "model.layers.0.mlp.up_proj", "model.layers.1.mlp.down_proj", "lm_head"}

// An adapter of PEFT that is merged and written as a folder is what transformers has: W + scale * B * A of the folder's own rows, and all else as it was.
func TestMergeIsTransformers(t *testing.T) {
	m, weights := llama(t, false)
	p := onAll(allModules, map[string]int{"model.layers.0.mlp.up_proj": 1, "lm_head": 5})
	for _, c := range []struct {
		alpha  float64
		rslora bool
		scale  func(rank int) float64
	}{{6, false, func(rank int) float64 { return 6 / float64(rank) }}, {-4, true, func(rank int) float64 { return -4 / math.Sqrt(float64(rank)) }}} {
		p.config["lora_alpha"], p.config["use_rslora"] = c.alpha, c.rslora
		a, err := ReadPEFT(p.write(t), m, "")
		if err != nil {
			t.Fatal(err)
		}
		if a.Base != "a/b" || a.Alpha != c.alpha || len(a.Targets) != len(allModules) {
			t.Errorf("base %s, alpha %v, %d targets", a.Base, a.Alpha, len(a.Targets))
		}
		merged, err := a.Merge(m, nil)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "merged")
		if err := hf.Write(t.Context(), dir, merged, hf.WriteOptions{Type: quant.F32}); err != nil {
			t.Fatal(err)
		}
		f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if len(f.Tensors) != len(weights) {
			t.Errorf("%d tensors, expected %d", len(f.Tensors), len(weights))
		}
		for _, x := range f.Tensors {
			want := slices.Clone(weights[x.Name])
			if module := strings.TrimSuffix(x.Name, ".weight"); slices.Contains(allModules, module) {
				A, B, rank := p.values(module)
				in, changed := x.Shape[1], false
				for o := range x.Shape[0] {
					for i := range in {
						sum := 0.0
						for k := range rank {
							sum += float64(B[o*rank+k]) * float64(A[k*in+i])
						}
						changed = changed || sum != 0
						want[o*in+i] += float32(float32(c.scale(rank)) * float32(sum)) // the sum is an integer
					}
				}
				if !changed {
					t.Fatalf("%s: the adapter changes nothing", module)
				}
			}
			if !bytes.Equal(x.Data, f32Bytes(want)) {
				t.Errorf("rslora %v: %s differs", c.rslora, x.Name)
			}
		}
	}
}

// Written and read again an adapter has the same bits, as PEFT and as GGUF; and PEFT's tensors are those that it was read of.
func TestAdapterReadsBack(t *testing.T) {
	m, _ := llama(t, false)
	for _, rslora := range []bool{false, true} {
		p := onAll(allModules, map[string]int{"model.layers.1.self_attn.k_proj": 1})
		if rslora {
			p = onAll(allModules, nil)
		}
		p.config["use_rslora"] = rslora
		folder := p.write(t)
		a, err := ReadPEFT(folder, m, "")
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "a")
		for range 2 { // the second one replaces the first
			if err := a.WritePEFT(t.Context(), dir, m, PEFTOptions{Type: quant.F32, Force: true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.WritePEFT(t.Context(), dir, m, PEFTOptions{}); !errors.Is(err, fs.ErrExist) {
			t.Errorf("without force: %v", err)
		}
		got, err := safetensors.Open(filepath.Join(dir, weightsName))
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		for _, x := range got.Tensors {
			if w := p.tensors[x.Name]; !slices.Equal(w.shape, x.Shape) || !bytes.Equal(w.data, x.Data) {
				t.Errorf("%s: %v, or other numbers", x.Name, x.Shape)
			}
		}
		back, err := ReadPEFT(dir, m, "LlamaForCausalLM")
		if err != nil {
			t.Fatal(err)
		}
		sameAdapter(t, back, a)
		var out bytes.Buffer
		if err := a.WriteGGUF(&out, quant.F32); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "a.gguf")
		put(t, path, out.Bytes())
		back, err = ReadGGUF(path, m)
		if err != nil {
			t.Fatal(err)
		}
		if rslora { // what llama.cpp computes is the same
			if s := back.Scale(&back.Targets[0]); math.Abs(s-a.Scale(&a.Targets[0])) > 1e-6 {
				t.Errorf("scale %v, expected %v", s, a.Scale(&a.Targets[0]))
			}
			back.RSLoRA, back.Alpha = true, a.Alpha
		}
		sameAdapter(t, back, a)
	}
}

func sameAdapter(t *testing.T, got, want *Adapter) {
	t.Helper()
	if got.Arch != want.Arch || got.Alpha != want.Alpha || got.RSLoRA != want.RSLoRA || got.Base != want.Base || len(got.Targets) != len(want.Targets) {
		t.Errorf("adapter %v %v %v %v with %d targets", got.Arch, got.Alpha, got.RSLoRA, got.Base, len(got.Targets))
		return
	}
	for i, w := range want.Targets {
		g := got.Targets[i]
		if g.Name != w.Name || g.Rank != w.Rank || g.In != w.In || g.Out != w.Out || !slices.Equal(g.A, w.A) || !slices.Equal(g.B, w.B) {
			t.Errorf("target %s differs from %s", g.Name, w.Name)
		}
	}
}

// The GGUF file is as llama.cpp reads it: shapes, names, keys. A small one is written out by hand.
func TestGGUFForm(t *testing.T) {
	a := &Adapter{Arch: "llama", Alpha: 5, RSLoRA: true, Targets: []Target{{Name: "blk.0.attn_v.weight", Rank: 4, In: 3, Out: 2, A: []float32{1, 2, 3, 4, 5, 6,
		7, 8, 9, 10, 11, 12}, B: []float32{13, 14, 15, 16, 17, 18, 19, 20}}}}
	for _, typ := range floatTypes {
		var out bytes.Buffer
		if err := a.WriteGGUF(&out, typ); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "a.gguf")
		put(t, path, out.Bytes())
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for key, want := range map[string]any{"general.type": "adapter", "adapter.type": "lora", "general.architecture": "llama", "adapter.lora.alpha": float32(10)} {
			if got := f.KV.Value(key); got != want {
				t.Errorf("%s is %v, expected %v", key, got, want)
			}
		}
		A, B := f.Tensor("blk.0.attn_v.weight.lora_a"), f.Tensor("blk.0.attn_v.weight.lora_b")
		if A == nil || B == nil || len(f.Tensors) != 2 || !slices.Equal(A.Shape, []int{3, 4}) || !slices.Equal(B.Shape, []int{4, 2}) || A.Type != typ {
			t.Fatalf("tensors %v, %v", A, B)
		}
		row := make([]float32, 4)
		if quant.Decode(typ, row[:3], A.Row(1)); !slices.Equal(row[:3], []float32{4, 5, 6}) {
			t.Errorf("row 1 of A is %v", row)
		}
		if quant.Decode(typ, row, B.Row(1)); !slices.Equal(row, []float32{17, 18, 19, 20}) {
			t.Errorf("row 1 of B is %v", row)
		}
	}
}

// random is a model of one matrix, "blk.0.ffn_up.weight", and an adapter of it.
func random(t testing.TB, typ quant.Type, rank, in, out int) (*gguf.Model, *Adapter) {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(in)))
	normal := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	m := gguf.NewModel("m")
	m.KV.Set("general.architecture", "llama")
	x := &gguf.Tensor{Name: "blk.0.ffn_up.weight", Type: typ, Shape: []int{in, out}, File: -1, Data: make([]byte, typ.RowBytes(in)*out)}
	if err := quant.Quantize(typ, x.Data, normal(in*out), nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Add(x); err != nil {
		t.Fatal(err)
	}
	return m, &Adapter{Arch: "llama", Alpha: 1.7, Targets: []Target{{x.Name, rank, in, out, normal(rank * in), normal(out * rank)}}}
}

// Merged rows are within the bound of the doc from a sum in float64, before they are rounded to the type; by any number of readers.
func TestMergeAgainstFloat64(t *testing.T) {
	for _, c := range []struct {
		base, want    quant.Type
		rank, in, out int
	}{{quant.F32, quant.F32, 1, 1, 1}, {quant.F32, quant.F32, 3, 33, 5}, {quant.F32, quant.F32, 64, 257, 7}, {quant.F16, quant.F16, 7, 31, 3}, {quant.BF16,
		quant.BF16, 2, 63, 4},
		{quant.Q8_0, quant.F32, 5, 64, 3}, {quant.Q4_K, quant.F32, 8, 512, 2}, {quant.F32, quant.Q8_0, 4, 96, 9}} {
		m, a := random(t, c.base, c.rank, c.in, c.out)
		as := Floats
		if c.want == quant.Q8_0 {
			as = func(*gguf.Tensor) quant.Type { return c.want }
		}
		merged, err := a.Merge(m, as)
		if err != nil {
			t.Fatal(err)
		}
		x, w, l := merged.Tensor("blk.0.ffn_up.weight"), m.Tensors[0], &a.Targets[0]
		if x.Type != c.want || !slices.Equal(x.Shape, w.Shape) || len(merged.Tensors) != 1 {
			t.Errorf("%v of %v, expected %v", x.Type, x.Shape, c.want)
		}
		if merged.Tensors[0] != x {
			t.Error("the list has another tensor")
		}
		got, base := make([]float32, c.in), make([]float32, c.in)
		var wg sync.WaitGroup
		for r := range c.out {
			quant.Decode(x.Type, got, x.Row(r))
			quant.Decode(w.Type, base, w.Row(r))
			for i := range c.in {
				sum, size := 0.0, 0.0
				for k := range c.rank {
					p := float64(l.B[r*c.rank+k]) * float64(l.A[k*c.in+i])
					sum, size = sum+p, size+math.Abs(p)
				}
				scale := 1.7 / float64(c.rank)
				want := float64(base[i]) + scale*sum
				bound := float64(c.rank+3) * 0x1p-24 * (math.Abs(float64(base[i])) + scale*size)
				switch c.want { // and half a unit of the type
				case quant.F16:
					bound += math.Abs(want) * 0x1.01p-11
				case quant.BF16:
					bound += math.Abs(want) * 0x1.01p-8
				case quant.Q8_0:
					bound += 0.05
				}
				if d := math.Abs(float64(got[i]) - want); d > bound {
					t.Fatalf("%v, rank %d: row %d, element %d is %v, expected %v within %g", c.base, c.rank, r, i, got[i], want, bound)
				}
			}
			want := bytes.Clone(x.Row(r))
			wg.Go(func() {
				for range 20 {
					if !bytes.Equal(x.Row(r), want) {
						t.Error("another reader has other bits")
					}
				}
			})
		}
		wg.Wait()
		if b := x.Reader().Rows(0, c.out); !bytes.Equal(b[(c.out-1)*len(b)/c.out:], x.Row(c.out-1)) {
			t.Error("rows together differ from a row")
		}
	}
}

// writeGGUF writes a model as a GGUF file and opens that.
func writeGGUF(t testing.TB, m *gguf.Model) *gguf.Model {
	var infos []gguf.TensorInfo
	for _, x := range m.Tensors {
		infos = append(infos, gguf.TensorInfo{Name: x.Name, Type: x.Type, Shape: x.Shape})
	}
	var out bytes.Buffer
	w, err := gguf.NewWriter(&out, m.KV, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range m.Tensors {
		if _, err := w.Write(x.Reader().Rows(0, x.Rows())); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	put(t, path, out.Bytes())
	g, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// A real model: merged into its GGUF file and into its folder an adapter gives the same bits, and back from a folder of the merged model.
func TestMergeRealModel(t *testing.T) {
	g, err := gguf.Open(testkit.Data(t, "models/llama-gqa/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	h, err := hf.Open(testkit.Data(t, "models/llama-gqa/hf"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	a := &Adapter{Arch: "llama", Alpha: 3}
	r := rand.New(rand.NewPCG(8, 9))
	for _, x := range g.Tensors {
		if strings.Contains(x.Name, "attn_q") || strings.Contains(x.Name, "attn_k") || strings.Contains(x.Name, "ffn_down") || x.Name == "output.weight" {
			a.Targets = append(a.Targets, Target{x.Name, 2, x.Shape[0], x.Shape[1], numbers(r, 2*x.Shape[0]), numbers(r, 2*x.Shape[1])})
		}
	}
	dir := filepath.Join(t.TempDir(), "a")
	if err := a.WritePEFT(t.Context(), dir, g, PEFTOptions{Type: quant.BF16}); err != nil { // small integers
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, configName))
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(b)), ""), `"target_modules":["down_proj","k_proj","lm_head","q_proj"]`) {
		t.Errorf("%s, %v", b, err)
	}
	read, err := ReadPEFT(dir, h, "")
	if err != nil {
		t.Fatal(err)
	}
	one, err := a.Merge(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := read.Merge(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "m")
	if err := hf.Write(t.Context(), out, two, hf.WriteOptions{Type: quant.F32}); err != nil {
		t.Fatal(err)
	}
	back, err := hf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	file := writeGGUF(t, one)
	changed := 0
	for _, x := range one.Tensors {
		for r := range x.Rows() {
			if !bytes.Equal(x.Row(r), file.Tensor(x.Name).Row(r)) {
				t.Fatalf("%s: row %d differs in the GGUF file", x.Name, r)
			}
			if !bytes.Equal(x.Row(r), two.Tensor(x.Name).Row(r)) || !bytes.Equal(x.Row(r), back.Tensor(x.Name).Row(r)) {
				t.Fatalf("%s: row %d differs", x.Name, r)
			}
			if !bytes.Equal(x.Row(r), g.Tensor(x.Name).Row(r)) {
				changed++
			}
		}
	}
	if changed == 0 {
		t.Error("the adapter changes nothing")
	}
}

// What the writer names as targets: modules in full where some are left out, and ranks of their own.
func TestPEFTTargets(t *testing.T) {
	m, _ := llama(t, false)
	p := onAll([]string{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj"},
		map[string]int{"model.layers.1.mlp.up_proj": 2})
	a, err := ReadPEFT(p.write(t), m, "")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "a")
	if err := a.WritePEFT(t.Context(), dir, m, PEFTOptions{Dropout: 0.25}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, configName))
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(string(b)), "")
	for _, want := range []string{`"target_modules":["model.layers.1.mlp.up_proj","q_proj"]`, `"rank_pattern":{"model\\.layers\\.1\\.mlp\\.up_proj":2}`,
		`"r":3,`, `"lora_alpha":6,`, `"lora_dropout":0.25`, `"use_rslora":false`} {
		if !strings.Contains(flat, want) {
			t.Errorf("%s is not in %s", want, flat)
		}
	}
}
