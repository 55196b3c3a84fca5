package hf

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// Names as model folders and cards have them, with what the converter makes of them.
func TestSplitName(t *testing.T) {
	for _, c := range []struct {
		id    string
		total float64
		want  nameParts
	}{
		{"Mistral", 0, nameParts{full: "Mistral"}},
		{"A name of words", 7e9, nameParts{full: "A name of words"}},
		{"Mixtral-8x7B-v0.1", 0, nameParts{full: "Mixtral-8x7B-v0.1", base: "Mixtral", version: "v0.1",
			size: "8x7B"}},
		{"mistralai/Mistral-7B-Instruct-v0.2", 7.2e9, nameParts{"Mistral-7B-Instruct-v0.2", "mistralai", "Mistral",
			"Instruct", "v0.2", "7B"}},
		{"meta-llama/Llama-2-7b-hf", 6.7e9, nameParts{"Llama-2-7b-hf", "meta-llama", "Llama-2", "hf", "", "7B"}},
		{"Meta-Llama-3-8B", 8e9, nameParts{"Meta-Llama-3-8B", "", "Meta-Llama-3", "", "", "8B"}},
		{"bigscience/bloom-7b1-petals", 7.1e9, nameParts{"bloom-7b1-petals", "bigscience", "bloom", "petals", "",
			"7.1B"}},
		{"Phi-3-mini-4k-instruct", 3.8e9, nameParts{"Phi-3-mini-4k-instruct", "", "Phi-3", "4k-instruct", "",
			"mini"}},
		{"Qwen1.5-MoE-A2.7B-Chat", 14.3e9, nameParts{"Qwen1.5-MoE-A2.7B-Chat", "", "Qwen1.5-MoE", "Chat", "",
			"A2.7B"}},
		{"Qwen2.5-0.5B", 4.9e8, nameParts{"Qwen2.5-0.5B", "", "Qwen2.5", "", "", "0.5B"}},
		{"gpt2-small-1B", 1e9, nameParts{"gpt2-small-1B", "", "gpt2-small", "", "", "1B"}},
		{"model-bf16", 0, nameParts{full: "model-bf16"}},
		{"./models", 0, nameParts{full: "models"}},
		{"--", 0, nameParts{full: "--"}},
		{"", 0, nameParts{}},
	} {
		if got := splitName(c.id, c.total); got != c.want {
			t.Errorf("%q: %+v, want %+v", c.id, got, c.want)
		}
	}
}

func TestTitle(t *testing.T) {
	for name, want := range map[string]string{"llama-gqa": "Llama Gqa", "Qwen2.5-7B-instruct": "Qwen2.5 7B Instruct",
		"mixtral-v0.1": "Mixtral v0.1", "stories260K": "stories260K",
		"a1b  c": "A1B C", "8x7b": "8x7b", "": "", "GPT": "GPT", "phi-3": "Phi 3"} {
		if got := title(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestSizeLabel(t *testing.T) {
	for n, want := range map[float64]string{151_000: "151K", 260_032: "260K", 999_999: "1000K", 1_100_048_384: "1.1B",
		6.738e9: "6.7B", 70.55e9: "71B", 494_032_768: "494M", 1e12: "1000B", 1.04e12: "1.0T",
		400: "0.40K", 9_960_000: "10M", 9_400_000: "9.4M"} {
		if got := sizeLabel(n); got != want {
			t.Errorf("%.0f: %s, want %s", n, got, want)
		}
	}
	tensors := []*gguf.Tensor{{Name: "token_embd.weight", Shape: []int{1000, 1000}},
		{Name: "blk.0.ffn_up_exps.weight", Shape: []int{1000, 500, 8}},
		{Name: "blk.1.ffn_up_exps.weight", Shape: []int{1000, 500, 7}}}
	if total, label := parameters(tensors); total != 8.5e6 || label != "7x2.0M" {
		t.Errorf("experts: %v, %s", total, label)
	}
}

const cardText = `---
license: apache-2.0
license_name: 'tongyi-qianwen' # as its page says
license_link: "https://example.org/a#b"
language: [en, "no", zh]
languages:
- de
tags:
  - chat
  # a comment
  -   "text: generation"
  - key: value
pipeline_tag: text-generation
base_model:
- Qwen/Qwen2.5-7B
- https://huggingface.co/meta-llama/Llama-2-7b-hf
- https://example.org/other
datasets: tiny/stories
model_creator: Someone
description: |
  name: not a key
  more
empty:
none: null
widget:
  - text: hello
    name: no
name: The Name
extra_gated_fields:
  Name: text
---
author: behind it
`

func TestCard(t *testing.T) {
	want := card{"license": {"apache-2.0"}, "license_name": {"tongyi-qianwen"},
		"license_link": {"https://example.org/a#b"}, "language": {"en", "no", "zh"},
		"languages": {"de"}, "tags": {"chat", "text: generation"}, "pipeline_tag": {"text-generation"},
		"datasets": {"tiny/stories"}, "model_creator": {"Someone"},
		"base_model": {"Qwen/Qwen2.5-7B", "https://huggingface.co/meta-llama/Llama-2-7b-hf",
			"https://example.org/other"}, "name": {"The Name"}}
	for _, text := range []string{cardText, strings.ReplaceAll(cardText, "\n", "\r\n")} {
		if got := parseCard(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, text := range []string{"", "# A model", "---", "--- \nname: x", "---\n\xff: x\n---",
		"---\n- x\n-\n:\n---"} {
		if got := parseCard(text); len(got[""]) != len(got) {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// What Describe takes from the folder.
func TestDescribe(t *testing.T) {
	general := func(folder string, files map[string]string) map[string]any {
		dir := filepath.Join(t.TempDir(), folder)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m := gguf.NewModel(dir)
		if err := m.Add(&gguf.Tensor{Name: "token_embd.weight", Type: quant.F32, Shape: []int{100, 1500},
			Data: make([]byte, 600_000), File: -1}); err != nil {
			t.Fatal(err)
		}
		if err := Describe(m, dir); err != nil {
			t.Fatal(err)
		}
		all := map[string]any{}
		for _, k := range m.KV.Keys() {
			all[strings.TrimPrefix(k, "general.")] = m.KV.Value(k)
		}
		return all
	}
	base := map[string]any{"type": "model", "quantization_version": uint32(2)}
	for _, c := range []struct {
		folder string
		files  map[string]string
		want   map[string]any
	}{
		{"tiny", nil, map[string]any{"name": "Tiny", "size_label": "150K"}},
		{"tiny-150k-chat", map[string]string{"config.json": `{"_name_or_path":"/home/someone/model"}`},
			map[string]any{"name": "Tiny 150k Chat", "basename": "tiny", "size_label": "150K", "finetune": "chat"}},
		{"x", map[string]string{"config.json": `{"_name_or_path":"some-one/Tiny-150K-v2"}`, "README.md": "No head"},
			map[string]any{"name": "Tiny 150K v2", "organization": "Some One", "basename": "Tiny", "version": "v2",
				"size_label": "150K"}},
		{"x", map[string]string{"README.md": cardText,
			"generation_config.json": `{"top_k":20,"top_p":0.5,"temperature":0.25,"repetition_penalty":null,"eos_token_id":1}`},
			map[string]any{"name": "The Name", "author": "Someone", "size_label": "150K", "license": "apache-2.0",
				"license.name": "tongyi-qianwen",
				"license.link": "https://example.org/a#b", "tags": []string{"chat", "text: generation",
					"text-generation"}, "languages": []string{"de", "en", "no", "zh"},
				"base_model.count": uint32(3), "base_model.0.name": "Qwen2.5 7B", "base_model.0.organization": "Qwen",
				"base_model.0.repo_url": "https://huggingface.co/Qwen/Qwen2.5-7B",
				"base_model.1.name":     "Llama 2 7b Hf", "base_model.1.organization": "Meta Llama",
				"base_model.1.repo_url": "https://huggingface.co/meta-llama/Llama-2-7b-hf",
				"base_model.2.repo_url": "https://example.org/other", "dataset.count": uint32(1),
				"dataset.0.name": "Stories", "dataset.0.organization": "Tiny",
				"dataset.0.repo_url": "https://huggingface.co/tiny/stories", "sampling.top_k": int32(20),
				"sampling.top_p": float32(0.5), "sampling.temp": float32(0.25)}},
	} {
		maps.Copy(c.want, base)
		if got := general(c.folder, c.files); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %v\nwant %v", c.folder, got, c.want)
		}
	}
	dir := t.TempDir()
	for file, text := range map[string]string{"config.json": `{"_name_or_path":3}`,
		"generation_config.json": `{"top_k":"x"}`} {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Describe(gguf.NewModel(dir), dir); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%s: %v", file, err)
		}
		os.Remove(path)
	}
}

func FuzzCard(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add(cardText, "owner/Name-7b1-v2-chat", 7e9)
	f.Add("---\n- x\n'a': 'b\n---", "a/b/c--small-1x2B-iq4_x", 0.0)
	f.Fuzz(func(t *testing.T, text, id string, total float64) {
		for key, list := range parseCard(text) {
			if len(list) == 0 || slices.Contains(list, "") {
				t.Errorf("%q is %q", key, list)
			}
		}
		splitName(id, total)
		title(id)
	})
}
