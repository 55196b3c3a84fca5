package test

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// mayImport says which of ck's own packages a package may know. Imports run downward only: what stands lower in this list never knows
// what stands above it. A new package is a new row, unless it is a part of the package whose folder it lives in.
var mayImport = map[string][]string{
	// assembly knows nothing of the project; half is the one conversion that its definitions share
	"asm/attn": {}, "asm/clone": {}, "asm/half": {}, "asm/pause": {}, "asm/roof": {},
	"asm/dot": {"asm/half"}, "asm/elem": {"asm/half"},
	"asm/mat": {}, "asm/quant": {},
	// features of CPUs
	"internal/isa": {},
	// formats and text
	"internal/aside":     {},
	"internal/humanize":  {},
	"internal/jsonfile":  {},
	"internal/mapfile":   {},
	"internal/panelfile": {"internal/mapfile"},
	"internal/plaintext": {},
	"internal/quant":     {"asm/elem", "asm/half", "asm/quant", "internal/isa"},
	"internal/tokenizer": {"internal/jsonfile"},
	// templates: what is parsed knows no value, values know no filter, built-ins know no statement; pystr is characters alone
	"internal/template/pystr":   {},
	"internal/template/syntax":  {"internal/template/pystr"},
	"internal/template/value":   {"internal/template/pystr"},
	"internal/template/builtin": {"internal/template/pystr", "internal/template/value"},
	"internal/template":         {"internal/template/builtin", "internal/template/syntax", "internal/template/value"},
	// files of models
	"internal/entropycode": {"internal/quant"},
	"internal/gguf":        {"internal/entropycode", "internal/mapfile", "internal/quant"},
	"internal/safetensors": {"internal/mapfile", "internal/quant"},
	"internal/synth":       {"internal/gguf", "internal/quant"},
	"internal/convert":     {"internal/aside", "internal/entropycode", "internal/gguf", "internal/hf", "internal/humanize", "internal/isa", "internal/quant", "internal/tokenizer"},
	"internal/linalg":      {"asm/mat", "internal/isa"},
	// machine
	"internal/topo": {"internal/isa"}, "internal/numa": {},
	"internal/team": {"asm/clone", "asm/pause"}, "internal/mover": {"asm/clone"},
	// one table of kernels
	"internal/kernel": {"asm/attn", "asm/dot", "asm/elem", "asm/half", "internal/isa", "internal/quant"},
	// the engine: the graph knows nobody, plans know no file format, the walk knows no model
	"internal/graph":  {},
	"internal/arch":   {"internal/graph", "internal/step"},
	"internal/hf":     {"internal/aside", "asm/half", "internal/arch", "internal/gguf", "internal/jsonfile", "internal/mapfile", "internal/quant", "internal/safetensors"},
	"internal/kv":     {"internal/kernel"},
	"internal/plan":   {"internal/graph", "internal/kernel"},
	"internal/walk":   {"internal/graph", "internal/kernel", "internal/kv", "internal/mover", "internal/plan", "internal/team"},
	"internal/step":   {"internal/graph", "internal/kernel", "internal/kv", "internal/plan", "internal/walk"},
	"internal/engine": {"internal/arch", "internal/entropycode", "internal/gguf", "internal/graph", "internal/isa", "internal/kernel", "internal/kv", "internal/mover", "internal/numa", "internal/panelfile", "internal/plan", "internal/quant", "internal/step", "internal/team", "internal/topo", "internal/walk"},
	// what the programs do
	"internal/measure":          {"asm/roof", "internal/graph", "internal/isa", "internal/kernel", "internal/numa", "internal/plan", "internal/team", "internal/topo", "internal/walk"},
	"internal/demotext":         {"internal/aside", "internal/plaintext"},
	"internal/demotext/make":    {"internal/demotext", "internal/engine", "internal/generate", "internal/quality", "internal/walk"},
	"internal/bpe":              {"internal/tokenizer"},
	"internal/dataset":          {"internal/aside", "internal/generate", "internal/plaintext", "internal/template", "internal/tokenizer"},
	"internal/scratch":          {"internal/bpe", "internal/dataset", "internal/gguf", "internal/quant", "internal/synth"},
	"internal/adapter":          {"internal/gguf", "internal/hf", "internal/jsonfile", "internal/quant", "internal/safetensors"},
	"internal/train/curve":      {"internal/picture"},
	"internal/train":            {"asm/elem", "asm/half", "internal/adapter", "internal/engine", "internal/gguf", "internal/graph", "internal/kernel", "internal/kv", "internal/numa", "internal/plan", "internal/quant", "internal/step", "internal/team", "internal/topo", "internal/walk"},
	"internal/cost":             {"internal/arch", "internal/engine", "internal/gguf", "internal/graph", "internal/isa", "internal/kernel", "internal/kv", "internal/measure", "internal/plan", "internal/quant", "internal/step", "internal/synth", "internal/walk"},
	"internal/generate":         {"internal/engine", "internal/gguf", "internal/hf", "internal/jsonfile", "internal/quant", "internal/template", "internal/template/value", "internal/tokenizer"},
	"internal/probe":            {"internal/gguf", "internal/humanize", "internal/isa", "internal/kernel", "internal/mapfile", "internal/measure", "internal/numa", "internal/team", "internal/topo"},
	"internal/allocate":         {"internal/entropy", "internal/gguf", "internal/graph", "internal/isa", "internal/kernel", "internal/quant", "internal/walk"},
	"internal/entropy":          {"internal/entropycode", "internal/gguf", "internal/quant"},
	"internal/entropy/view":     {"internal/entropy", "internal/picture", "internal/plaintext"},
	"internal/distance":         {"internal/gguf", "internal/quant"},
	"internal/feedback":         {"internal/quant"},
	"internal/quality/format":   {"internal/plaintext", "internal/quality"},
	"internal/quality":          {"internal/engine", "internal/tokenizer", "internal/walk"},
	"internal/cli":              {"asm/clone", "internal/aside", "internal/humanize", "internal/isa", "internal/numa", "internal/plaintext"},
	"internal/lineedit":         {},
	"internal/picture":          {"internal/humanize", "internal/plaintext", "internal/topo"},
	"internal/testkit":          {},
	"internal/bench":            {"internal/engine", "internal/generate", "internal/measure", "internal/plan", "internal/probe", "internal/quant", "internal/topo", "internal/walk"},
	"internal/bench/format":     {"internal/bench", "internal/measure", "internal/plaintext", "internal/probe"},
	"internal/compare":          {"internal/bench", "internal/measure"},
	"internal/findings":         {"internal/humanize", "internal/probe", "internal/topo"},
	"internal/gather":           {"internal/humanize", "internal/topo"},
	"internal/page":             {"internal/findings", "internal/humanize", "internal/isa", "internal/kernel", "internal/plaintext", "internal/probe", "internal/quant", "internal/topo"},
	"internal/advice":           {"internal/cost", "internal/humanize", "internal/isa", "internal/measure", "internal/plaintext", "internal/quant", "internal/team", "internal/topo"},
	"internal/prompt":           {"internal/cli"},
	"internal/output":           {"internal/cli", "internal/engine", "internal/generate", "internal/measure", "internal/plaintext", "internal/plan", "internal/team"},
	"internal/chat":             {"internal/cli", "internal/engine", "internal/generate", "internal/lineedit", "internal/output", "internal/plaintext", "internal/prompt", "internal/template"},
	"internal/attention":        {"internal/engine", "internal/gguf", "internal/graph", "internal/plan", "internal/quality", "internal/quant", "internal/step", "internal/team", "internal/walk"},
	"internal/attention/format": {"internal/attention", "internal/picture", "internal/plaintext"},
	"internal/inspect":          {"internal/gguf", "internal/hf", "internal/humanize", "internal/linalg", "internal/mapfile", "internal/npy", "internal/quant", "internal/safetensors", "internal/tokenizer"},
	"internal/facts":            {"internal/cost", "internal/gguf", "internal/inspect", "internal/quant", "internal/tokenizer"},
	"internal/facts/view":       {"internal/facts", "internal/humanize", "internal/plaintext"},
	"internal/difference":       {"asm/mat", "internal/distance", "internal/facts", "internal/inspect", "internal/linalg", "internal/quant", "internal/spectrum"},
	"internal/difference/view":  {"internal/difference", "internal/facts", "internal/humanize", "internal/plaintext"},
	"internal/correlate":        {"asm/mat", "internal/inspect", "internal/linalg", "internal/spectrum"},
	"internal/correlate/view":   {"internal/correlate", "internal/picture", "internal/plaintext"},
	"internal/spectra":          {"asm/mat", "internal/inspect", "internal/linalg", "internal/quant", "internal/spectrum"},
	"internal/spectra/view":     {"internal/picture", "internal/plaintext", "internal/spectra"},
	"internal/verdict":          {"internal/attention", "internal/humanize"},
	"internal/verdict/measure":  {"asm/mat", "internal/correlate", "internal/engine", "internal/entropy", "internal/gguf", "internal/imatrix", "internal/inspect", "internal/isa", "internal/linalg", "internal/quality", "internal/quant", "internal/spectra", "internal/spectrum", "internal/verdict"},
	"internal/verdict/view":     {"internal/plaintext", "internal/verdict"},
	"internal/imatrix":          {"asm/mat", "internal/engine", "internal/gguf", "internal/graph", "internal/linalg", "internal/mapfile", "internal/plan", "internal/quality", "internal/quant", "internal/step", "internal/team", "internal/tokenizer", "internal/walk"},
	"internal/spectrum":         {"internal/isa", "internal/quant"},
	"internal/npy":              {},
}

// goList is the packages of the tree with their imports, those of tests left out.
func goList(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = testkit.Root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	out := map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(p.ImportPath, "ck/")
		if !ok {
			t.Fatalf("package %s is not part of module ck", p.ImportPath)
		}
		out[name] = p.Imports
	}
}

func TestImportsRunDownward(t *testing.T) {
	for name, imports := range goList(t) {
		if strings.HasPrefix(name, "cmd/") || name == "test" || strings.HasPrefix(name, "test/") {
			continue // programs wire everything together; nobody imports them
		}
		row := rowOf(name)
		allowed, ok := mayImport[row]
		if !ok {
			t.Errorf("%s has no row in mayImport; decide what it may know", name)
			continue
		}
		for _, i := range imports {
			own, ok := strings.CutPrefix(i, "ck/")
			if ok && rowOf(own) != row && !slices.Contains(allowed, rowOf(own)) {
				t.Errorf("%s imports %s, which it may not know", name, own)
			}
			if i == "C" {
				t.Errorf("%s uses cgo", name)
			}
			if own == "internal/testkit" {
				t.Errorf("%s imports testkit outside of tests", name)
			}
		}
	}
}

// rowOf is the row that speaks for a package: its own, else that of the nearest folder above it that has one.
func rowOf(pkg string) string {
	for mayImport[pkg] == nil && strings.Contains(pkg, "/") {
		pkg = pkg[:strings.LastIndex(pkg, "/")]
	}
	return pkg
}
