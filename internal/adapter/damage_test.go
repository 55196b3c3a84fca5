package adapter

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/testkit"
)

const q0 = prefix + "model.layers.0.self_attn.q_proj"

// An adapter of others is refused with the key or the tensor that is wrong.
func TestPEFTDamage(t *testing.T) {
	m, _ := llama(t, true)
	config := func(key string, v any) func(*peft) { return func(p *peft) { p.config[key] = v } }
	tensor := func(name string, x named) func(*peft) { return func(p *peft) { p.tensors[name] = x } }
	zeros := func(shape ...int) named {
		n := 4
		for _, d := range shape {
			n *= d
		}
		return named{"F32", shape, make([]byte, n)}
	}
	bad := f32Bytes([]float32{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, float32(math.NaN()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	for want, change := range map[string]func(*peft){
		"peft_type: is \"LOHA\", expected LORA":                                     config("peft_type", "LOHA"),
		"r: is missing":                                                             func(p *peft) { delete(p.config, "r") },
		"r: is 0, expected a rank from 1":                                           config("r", 0),
		"r: is of type string":                                                      config("r", "8"),
		"r: is 100000, expected":                                                    config("r", 100000),
		"lora_alpha: is missing":                                                    config("lora_alpha", nil),
		"use_dora: is true, which is not supported":                                 config("use_dora", true),
		"modules_to_save: is [\"lm_head\"]":                                         config("modules_to_save", []string{"lm_head"}),
		"alpha_pattern: has entries":                                                config("alpha_pattern", map[string]any{"q_proj": 3}),
		"bias: is \"all\", expected none":                                           config("bias", "all"),
		"fan_in_fan_out: is true":                                                   config("fan_in_fan_out", true),
		"init_lora_weights: is \"pissa_niter_16\"":                                  config("init_lora_weights", "pissa_niter_16"),
		"rank_pattern: \"(\": error parsing regexp":                                 config("rank_pattern", map[string]int{"(": 2}),
		"rank_pattern: \"a\": is -1":                                                config("rank_pattern", map[string]int{"a": -1}),
		"lora_A.weight\": shape [3 8], but adapter_config.json says rank 4":         config("r", 4),
		"shape [3 8], but adapter_config.json says rank 2":                          config("rank_pattern", map[string]int{"q_proj": 2}),
		"rank_pattern: two patterns give \"model.layers.0.self_attn.q_proj\"":       config("rank_pattern", map[string]int{"q_proj": 3, "self_attn.q_proj": 2}),
		"the adapter changes no tensor":                                             func(p *peft) { clear(p.tensors) },
		"lora_A.weight\": is missing, its partner is there":                         func(p *peft) { delete(p.tensors, q0+suffixA) },
		"lora_B.weight\": is missing, its partner is there":                         func(p *peft) { delete(p.tensors, q0+suffixB) },
		"tensor \"model.layers.0.self_attn.q_proj.lora_A.weight\": is not called":   tensor("model.layers.0.self_attn.q_proj.lora_A.weight", zeros(3, 8)),
		"q_proj.lora_magnitude_vector\": is not called":                             tensor(q0+".lora_magnitude_vector", zeros(12)),
		"lora_embedding_A\": is not called":                                         tensor(prefix+"model.embed_tokens.lora_embedding_A", zeros(3, 3)),
		"layers.2.self_attn.q_proj.lora_A.weight\": layer 2, but num_hidden_layers": func(p *peft) { move(p, "layers.2.self_attn.q_proj") },
		"x_proj.lora_A.weight\": no such tensor is known in a LlamaForCausalLM":     func(p *peft) { move(p, "layers.0.self_attn.x_proj") },
		"input_layernorm.lora_A.weight\": tensor blk.0.attn_norm.weight: shape [8]": func(p *peft) { move(p, "layers.0.input_layernorm") },
		"embed_tokens.lora_A.weight\": tensor token_embd.weight: adapters of the":   func(p *peft) { move(p, "embed_tokens") },
		"lm_head.lora_A.weight\": tensor output.weight: the model's output is its": func(p *peft) {
			move(p, "x")
			for _, s := range []string{suffixA, suffixB} {
				p.tensors[prefix+"lm_head"+s] = p.tensors[prefix+"model.x"+s]
				delete(p.tensors, prefix+"model.x"+s)
			}
		},
		"lora_A.weight\": shape [3 7], expected rows of 8 elements": tensor(q0+suffixA, zeros(3, 7)),
		"lora_A.weight\": shape [3 8 1], expected a matrix":         tensor(q0+suffixA, zeros(3, 8, 1)),
		"lora_B.weight\": shape [11 3], expected 12 rows":           tensor(q0+suffixB, zeros(11, 3)),
		"lora_B.weight\": shape [12 2], but the rank of":            tensor(q0+suffixB, zeros(12, 2)),
		"lora_A.weight\": shape [0 8], expected a rank from 1": func(p *peft) {
			tensor(q0+suffixA, zeros(0, 8))(p)
			tensor(q0+suffixB, zeros(12,
				0))(p)
		},
		"lora_A.weight\": dtype I32, expected F32, F16 or BF16":              tensor(q0+suffixA, named{"I32", []int{3, 8}, make([]byte, 96)}),
		"lora_A.weight\": row 1, element 3: is NaN, expected":                tensor(q0+suffixA, named{"F32", []int{3, 8}, bad}),
		"lora_A.weight\": there are two of that module":                      tensor(q0+".lora_A.default.weight", zeros(3, 8)),
		"target_parameters: is [\"mlp.experts.down_proj\"], which is not su": config("target_parameters", []string{"mlp.experts.down_proj"}),
	} {
		p := onAll([]string{"model.layers.0.self_attn.q_proj"}, nil)
		change(p)
		dir := p.write(t)
		_, err := ReadPEFT(dir, m, "")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// A folder that is not whole, or has another kind of weights.
func TestPEFTFolder(t *testing.T) {
	m, _ := llama(t, true)
	p := onAll([]string{"model.layers.0.self_attn.q_proj"}, nil)
	dir := p.write(t)
	if a, err := ReadPEFT(dir, m, ""); err != nil || len(a.Targets) != 1 {
		t.Errorf("the adapter of these cases: %v", err)
	}
	move := func(from, to string) {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	if move(weightsName, "adapter_model.bin"); true {
		if _, err := ReadPEFT(dir, m, ""); err == nil || !strings.Contains(err.Error(), "adapter_model.bin is a pickle") {
			t.Errorf("a pickle: %v", err)
		}
	}
	put(t, filepath.Join(dir, configName), make([]byte, maxConfigBytes+1))
	if _, err := ReadPEFT(dir, m, ""); err == nil || !strings.Contains(err.Error(), "the limit is 16777216") {
		t.Errorf("a large %s: %v", configName, err)
	}
	if _, err := ReadPEFT(dir, m, "GptOssForCausalLM"); err == nil || !strings.Contains(err.Error(), "GptOssForCausalLM") {
		t.Errorf("another class: %v", err)
	}
}

// move gives the tensors of q_proj another module below "model.".
func move(p *peft, module string) {
	for _, s := range []string{suffixA, suffixB} {
		p.tensors[prefix+"model."+module+s] = p.tensors[q0+s]
		delete(p.tensors, q0+s)
	}
}

// Names with the adapter's own within are read as those without.
func TestPEFTDefaultName(t *testing.T) {
	m, _ := llama(t, false)
	p := onAll([]string{"model.layers.0.self_attn.q_proj"}, nil)
	want, err := ReadPEFT(p.write(t), m, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{suffixA, suffixB} {
		p.tensors[strings.Replace(q0+s, ".weight", ".default.weight", 1)] = p.tensors[q0+s]
		delete(p.tensors, q0+s)
	}
	got, err := ReadPEFT(p.write(t), m, "")
	if err != nil {
		t.Fatal(err)
	}
	sameAdapter(t, got, want)
}

// An adapter that does not fit its model, or types that cannot be made, are refused before anything is written.
func TestAdapterErrors(t *testing.T) {
	m, a := random(t, quant.F32, 2, 6, 5)
	changed := func(change func(*Adapter, *Target)) *Adapter {
		c, l := *a, a.Targets[0]
		change(&c, &l)
		if c.Targets != nil {
			c.Targets = []Target{l}
		}
		return &c
	}
	for want, c := range map[string]*Adapter{
		"the adapter is of architecture \"qwen2\", the model's is \"llama\"": changed(func(c *Adapter, _ *Target) { c.Arch = "qwen2" }),
		"alpha: is NaN":                                   changed(func(c *Adapter, _ *Target) { c.Alpha = math.NaN() }),
		"changes no tensor":                               changed(func(c *Adapter, _ *Target) { c.Targets = nil }),
		"blk.9.x: the model has none":                     changed(func(_ *Adapter, t *Target) { t.Name = "blk.9.x" }),
		"rank 0 of [5, 6]":                                changed(func(_ *Adapter, t *Target) { t.Rank = 0 }),
		"11 and 10 numbers are no mat":                    changed(func(_ *Adapter, t *Target) { t.A = t.A[1:] }),
		"12 and 9 numbers are no mat":                     changed(func(_ *Adapter, t *Target) { t.B = t.B[1:] }),
		"the adapter is of [4, 6], the model's is [5, 6]": changed(func(_ *Adapter, t *Target) { t.Out, t.B = 4, t.B[:8] }),
		"the adapter is of [5, 4], the model's is [5, 6]": changed(func(_ *Adapter, t *Target) { t.In, t.A = 4, t.A[:8] }),
	} {
		if err := c.Check(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
		if _, err := c.Merge(m, nil); err == nil {
			t.Errorf("%s: it is merged", want)
		}
	}
	twice := *a
	twice.Targets = append(twice.Targets, a.Targets[0])
	if err := twice.Check(m); err == nil || !strings.Contains(err.Error(), "has it twice") {
		t.Errorf("twice: %v", err)
	}
	for typ, want := range map[quant.Type]string{quant.IQ1_S: "IQ1_S cannot be made", quant.Q8_0: "rows of 6 elements are no multiple of the 32",
		quant.I8: "cannot be made"} {
		if _, err := a.Merge(m, func(*gguf.Tensor) quant.Type { return typ }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", typ, err)
		}
	}
	if err := a.WriteGGUF(&bytes.Buffer{}, quant.Q8_0); err == nil || !strings.Contains(err.Error(), "Q8_0 is not supported") {
		t.Errorf("GGUF of Q8_0: %v", err)
	}
	large := changed(func(_ *Adapter, t *Target) { t.A = append([]float32{0, 0, 0, 0, 0, 0, 0, 0, 1e5}, t.A[9:]...) })
	if err := large.WriteGGUF(&bytes.Buffer{}, quant.F16); err == nil || !strings.Contains(err.Error(),
		"ffn_up.weight.lora_a: row 1, element 2: 100000 is more than F16 holds") {
		t.Errorf("beyond F16: %v", err)
	}
	mixed := changed(func(c *Adapter, _ *Target) { c.RSLoRA = true })
	mixed.Targets = append(mixed.Targets, Target{"b", 1, 1, 1, []float32{1}, []float32{1}})
	if err := mixed.WriteGGUF(&bytes.Buffer{}, quant.F32); err == nil || !strings.Contains(err.Error(), "tensor b: rank 1, and blk.0.ffn_up.weight has 2") {
		t.Errorf("ranks of rslora: %v", err)
	}
}

// What ends while it is written leaves nothing, and a merged row that its type does not hold ends the read.
func TestWriteAndReadErrors(t *testing.T) {
	for _, half := range []string{"llama", "none"} { // PEFT of a model that has no class, and into a context that has ended
		l, _ := llama(t, false)
		b := &Adapter{Arch: "llama", Alpha: 1, Targets: []Target{{"blk.0.attn_v.weight", 1, 8, 6, make([]float32, 8), make([]float32, 6)}}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		dir := filepath.Join(t.TempDir(), "x")
		o := PEFTOptions{}
		if half == "none" {
			o.Class = "NoSuch"
		}
		if err := b.WritePEFT(ctx, dir, l, o); err == nil {
			t.Errorf("%s: it is written", half)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: %s is left", half, dir)
		}
	}
	// A merged row that its type does not hold ends the read with an error that names the tensor.
	w, b := random(t, quant.F32, 1, 32, 2)
	b.Targets[0].A[3], b.Alpha = 3e38, 1e30
	merged, err := b.Merge(w, func(*gguf.Tensor) quant.Type { return quant.Q8_0 })
	if err != nil {
		t.Fatal(err)
	}
	if err := merged.Guard(func() error { merged.Tensors[0].Row(1); return nil }); err == nil || !strings.Contains(err.Error(),
		"ffn_up.weight: rows 1 to 1 are damaged: the merged row: element 0 is") {
		t.Errorf("an infinite row: %v", err)
	}
}

// adapterFile is a GGUF adapter as others may write it.
func adapterFile(t testing.TB, kv map[string]any, tensors ...gguf.TensorInfo) []byte {
	all := map[string]any{"general.type": "adapter", "adapter.type": "lora", "general.architecture": "llama", "adapter.lora.alpha": float32(4)}
	maps.Copy(all, kv)
	meta := &gguf.Metadata{}
	for k, v := range all {
		if v != nil {
			meta.Set(k, v)
		}
	}
	var out bytes.Buffer
	w, err := gguf.NewWriter(&out, meta, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		n := x.Type.RowBytes(x.Shape[0])
		for _, d := range x.Shape[1:] {
			n *= d
		}
		if _, err := w.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func TestGGUFDamage(t *testing.T) {
	m, _ := random(t, quant.F32, 2, 32, 5)
	a := gguf.TensorInfo{Name: "blk.0.ffn_up.weight.lora_a", Type: quant.F32, Shape: []int{32, 2}}
	b := gguf.TensorInfo{Name: "blk.0.ffn_up.weight.lora_b", Type: quant.F32, Shape: []int{2, 5}}
	of := func(x gguf.TensorInfo, typ quant.Type, shape ...int) gguf.TensorInfo {
		x.Type, x.Shape = typ, shape
		return x
	}
	path := filepath.Join(t.TempDir(), "a.gguf")
	for want, file := range map[string][]byte{
		`general.type: is "model", expected "adapter"`:       adapterFile(t, map[string]any{"general.type": "model"}, a, b),
		`adapter.type: is "", expected "lora"`:               adapterFile(t, map[string]any{"adapter.type": nil}, a, b),
		"adapter.type: is of type u32":                       adapterFile(t, map[string]any{"adapter.type": uint32(1)}, a, b),
		"general.architecture: is missing":                   adapterFile(t, map[string]any{"general.architecture": nil}, a, b),
		"adapter.lora.alpha: is missing":                     adapterFile(t, map[string]any{"adapter.lora.alpha": nil}, a, b),
		"alpha: is +Inf":                                     adapterFile(t, map[string]any{"adapter.lora.alpha": float32(math.Inf(1))}, a, b),
		"of architecture \"qwen2\"":                          adapterFile(t, map[string]any{"general.architecture": "qwen2"}, a, b),
		"changes no tensor":                                  adapterFile(t, nil),
		"there is no blk.0.ffn_up.weight.lora_b":             adapterFile(t, nil, a),
		"lora_b: has no partner":                             adapterFile(t, nil, b),
		"no part of a LoRA adapter":                          adapterFile(t, nil, a, b, gguf.TensorInfo{Name: "x", Type: quant.F32, Shape: []int{1}}),
		"have no rank in common":                             adapterFile(t, nil, of(a, quant.F32, 32, 3), b),
		"shapes [32] and [2 5] of blk.0.ffn_up.weight":       adapterFile(t, nil, of(a, quant.F32, 32), b),
		"the adapter is of [5, 31], the model's is [5, 32]":  adapterFile(t, nil, of(a, quant.F32, 31, 2), b),
		"lora_a: type Q8_0, expected F32, F16 or BF16":       adapterFile(t, nil, of(a, quant.Q8_0, 32, 2), b),
		"rank 65537 of [5, 32], expected a rank from 1 to 6": adapterFile(t, nil, of(a, quant.F16, 32, 65537), of(b, quant.F16, 65537, 5)),
	} {
		put(t, path, file)
		if _, err := ReadGGUF(path, m); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
	nan := adapterFile(t, nil, a, b)
	copy(nan[len(nan)-64+4*3:], []byte{0, 0, 0xc0, 0x7f}) // B has 40 bytes, and padding
	put(t, path, nan)
	if _, err := ReadGGUF(path, m); err == nil || !strings.Contains(err.Error(), "lora_b: row 1, element 1: is NaN") {
		t.Errorf("NaN: %v", err)
	}
	put(t, path, adapterFile(t, nil, a, b))
	if _, err := ReadGGUF(path, m); err != nil {
		t.Errorf("the adapter of these cases: %v", err)
	}
}

func FuzzAdapterConfig(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for _, ranks := range []map[string]int{nil, {"q_proj": 3, `model\.layers\.0\.mlp\.up_proj`: 1}} {
		b, err := json.Marshal(onAll(nil, ranks).config)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseConfig(b)
		if err != nil {
			return
		}
		if rank, ok := c.rankOf("model.layers.0.mlp.up_proj"); ok && (rank < 1 || rank > maxRank) {
			t.Errorf("rank %d", rank)
		}
		if math.IsNaN(*c.Alpha) || math.IsInf(*c.Alpha, 0) {
			t.Errorf("alpha %v", *c.Alpha)
		}
	})
}

// Any file of weights is refused, or an adapter that fits the model.
func FuzzAdapterWeights(tf *testing.F) {
	f := testkit.Fuzz(tf)
	m, _ := llama(f, false)
	p := onAll([]string{"model.layers.0.self_attn.q_proj", "lm_head"}, nil)
	dir := p.write(f)
	f.Add(safetensorsFile(f, p.tensors))
	f.Fuzz(func(t *testing.T, b []byte) {
		put(t, filepath.Join(dir, weightsName), b)
		a, err := ReadPEFT(dir, m, "")
		if err != nil {
			return
		}
		if _, err := a.Merge(m, nil); err != nil {
			t.Error(err)
		}
	})
}

func FuzzAdapterGGUF(tf *testing.F) {
	f := testkit.Fuzz(tf)
	m, a := random(f, quant.F32, 2, 6, 5)
	var out bytes.Buffer
	if err := a.WriteGGUF(&out, quant.F32); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	path := filepath.Join(f.TempDir(), "a.gguf")
	f.Fuzz(func(t *testing.T, b []byte) {
		put(t, path, b)
		a, err := ReadGGUF(path, m)
		if err != nil {
			return
		}
		merged, err := a.Merge(m, nil)
		if err != nil {
			t.Fatal(err)
		}
		merged.Tensors[0].Row(0)
	})
}
