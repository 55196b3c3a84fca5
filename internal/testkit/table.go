package testkit

import (
	"path"
	"slices"
	"strings"
)

// An archive is a part of the reference data that travels with the repository: testdata/NAME.tar.gz.
type archive struct {
	name  string
	files []string // patterns (path.Match) of its files; a pattern reaches no deeper than it has elements
}

// archives is the list of what travels. A new row, or a changed one, asks for make testdata.
var archives = slices.Concat([]archive{
	{"quant-ref", []string{"quant-ref/*"}},
	{"gguf-malformed", []string{"gguf-malformed/*", "gguf-malformed/*/*"}},
	{"safetensors-malformed", []string{"safetensors-malformed/*"}},
	{"gguf-shapes", []string{"gguf-shapes/*"}},
	{"templates", []string{"templates/*", "templates/*/*"}},
	{"spectral", []string{"spectral/*.json", "spectral/*.f32"}},

	// One form of each model; two of those that show that both forms give the same.
	{"models/compare", []string{"models/compare.py"}},
	{"models/llama-bias", []string{"models/llama-bias/*"}},
	{"models/llama-gqa", []string{"models/llama-gqa/*"}},
	{"models/llama-rope-linear", []string{"models/llama-rope-linear/*"}},
	{"models/llama-rope-llama3", []string{"models/llama-rope-llama3/*"}},
	{"models/llama-rope-yarn", []string{"models/llama-rope-yarn/*"}},
	{"models/llama-spm-tied", []string{"models/llama-spm-tied/*", "models/llama-spm-tied/hf/*"}},
	{"models/mistral", []string{"models/mistral/*", "models/mistral/hf/*"}},
	{"models/mistral-window-hf", []string{"models/mistral-window-hf/*", "models/mistral-window-hf/hf/*"}},
	{"models/qwen2", []string{"models/qwen2/*", "models/qwen2/hf/*"}},
	{"models/qwen3", []string{"models/qwen3/*", "models/qwen3/hf/*"}},
	{"models/stories260K", []string{"models/stories260K/*", "models/stories260K/hf/*"}},
	{"models/trained-qwen3", []string{"models/trained-qwen3/*", "models/trained-qwen3/hf/*"}},
	{"models/kq-llama", []string{"models/kq-llama/*"}},

	// Vocabularies under MIT and Apache-2.0 alone: testdata/README.md names each licence.
	{"tokenizers/pre", []string{"tokenizers/pre.json"}},
	{"tokenizers/gpt-2", vocabulary("gpt-2", "gguf/gpt-2.gguf.gz")},
	{"tokenizers/mpt", vocabulary("mpt", "gguf/mpt.gguf.gz")},
	{"tokenizers/phi-3", vocabulary("phi-3", "gguf/phi-3.gguf.gz")},
	{"tokenizers/qwen3", vocabulary("qwen3", "hf/qwen3.tokenizer.json.gz")},
	{"tokenizers/mistral-v1", vocabulary("mistral-v1", "spm/mistral-v1.model")},
	{"tokenizers/tekken", vocabulary("tekken", "hf/tekken.json.gz")},
}, trees("alderlake-hybrid", "dev-cxl", "dev-dsa", "dev-power", "hm-gh200-9nodes", "hm-spr-2s-snc4", "hm-xeonmax-2s-snc4-flat",
	"vm-1s-smt-offline-cgroup1", "vm-2s-cxl-hmat", "vm-2s-memless-cgroup2"))

func vocabulary(name, file string) []string {
	return []string{"tokenizers/" + file, "tokenizers/cases/" + name + ".jsonl", "tokenizers/upstream/" + name + ".*"}
}

func trees(names ...string) (out []archive) {
	for _, n := range names {
		out = append(out, archive{"topology/" + n, []string{"topology/trees/" + n + ".*"}})
	}
	return out
}

// A rest is what of a folder tests ask for and does not travel.
type rest struct {
	folder string
	each   string // pattern below the folder: what matches it and does not travel is counted
	count  int
	what   string // what is counted
}

var stays = []rest{
	{"models", "*/ids.json", 64, "models"},
	{"models", "*/hf/config.json", 7, "Hugging Face folders"},
	{"tokenizers", "cases/*.jsonl", 11, "vocabularies"},
	{"topology/trees", "*.tar.gz", 39, "saved machines"},
	{"topology/cpuid", "*.txt", 17, "CPUID dumps"},
	{"text", "*/*.txt", 46, "texts"},
	{"spectral", "*.txt", 5, "sets of numbers"},
}

// known reports whether a row has name, something below or something above it.
func known(name string) bool {
	return slices.ContainsFunc(archives, func(a archive) bool { return a.has(name) }) ||
		slices.ContainsFunc(stays, func(r rest) bool { return covers(r.folder, name) })
}

// has reports whether the archive may hold name, something below or something above it.
func (a archive) has(name string) bool {
	return slices.ContainsFunc(a.files, func(p string) bool { return covers(p, name) })
}

// covers reports whether the pattern and name agree as far as both go.
func covers(pattern, name string) bool {
	if name == "." {
		return true
	}
	p, n := strings.Split(pattern, "/"), strings.Split(name, "/")
	for i := range min(len(p), len(n)) {
		if ok, err := path.Match(p[i], n[i]); !ok || err != nil {
			return false
		}
	}
	return true
}
