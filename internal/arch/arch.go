// Package arch turns the hyperparameters of a model file into a graph. An architecture is one row of the table and one short file
// that composes the builder's pieces: norms, projections, attention, feed-forward.
package arch

import (
	"fmt"
	"sort"
	"strings"

	"ck/internal/graph"
)

// Source is what an architecture may ask of a model file: metadata under GGUF keys, shapes of tensors under GGUF names, and the
// contents of small vectors. A key of another type than is asked for is an error, not an absent one.
type Source interface {
	String(key string) (v string, ok bool, err error)
	Int(key string) (v int64, ok bool, err error)
	Float(key string) (v float64, ok bool, err error)
	Bool(key string) (v, ok bool, err error)
	Bools(key string) (v []bool, ok bool, err error)
	Ints(key string) (v []int64, ok bool, err error)
	Float32s(key string) (v []float32, ok bool, err error)
	Shape(tensor string) (rows, cols int, ok bool) // of all its matrices together
	Experts(tensor string) int                     // how many matrices it has: its third dimension; 1 where it has no more than two, 0 where it is missing
	Vector(tensor string) ([]float32, error)
	Tensors() []string // the names of all
}

// architectures maps general.architecture to the function that composes its graph.
var architectures = map[string]func(*builder){
	"apertus":       apertus,
	"arcee":         arcee,
	"ernie4_5":      ernie45,
	"ernie4_5-moe":  ernie45moe,
	"exaone4":       exaone4,
	"exaone-moe":    exaoneMoE,
	"gemma":         gemma,
	"gemma2":        gemma2,
	"gemma3":        gemma3,
	"gemma4":        gemma4,
	"glm4moe":       glm4moe,
	"glm4":          glm4,
	"gpt-oss":       gptOSS,
	"granite":       granite,
	"granitemoe":    granite,
	"hunyuan-dense": hunyuanDense,
	"hunyuan-moe":   hunyuanMoE,
	"llama":         llama,
	"llama4":        llama4,
	"minimax-m2":    minimaxM2,
	"mistral3":      mistral3,
	"olmo2":         olmo2,
	"olmoe":         olmoe,
	"phi3":          phi3,
	"qwen2":         qwen2,
	"qwen2moe":      qwen2moe,
	"qwen3":         qwen3,
	"qwen3moe":      qwen3moe,
	"seed_oss":      seedOSS,
	"smollm3":       smollm3,
}

// What architectures need that ck has not yet.
const (
	recurrence = "layers with a recurrent state"
	latent     = "attention over latent keys and values (MLA)"
	layerNorm  = "LayerNorm and what goes with it"
)

// lacking are known architectures that are not supported, and why.
var lacking = map[string]string{
	"bloom": layerNorm, "cohere2": layerNorm, "command-r": layerNorm, "dbrx": layerNorm, "falcon": layerNorm, "gpt2": layerNorm, "gptneox": layerNorm, "mpt": layerNorm,
	"nemotron": layerNorm, "olmo": layerNorm, "phi2": layerNorm, "stablelm": layerNorm, "starcoder": layerNorm, "starcoder2": layerNorm,
	"falcon-h1": recurrence, "granitehybrid": recurrence, "jamba": recurrence, "kimi-linear": recurrence, "lfm2": recurrence, "lfm2moe": recurrence, "mamba": recurrence,
	"mamba2": recurrence, "nemotron_h": recurrence, "nemotron_h_moe": recurrence, "qwen35": recurrence, "qwen35moe": recurrence, "qwen3next": recurrence, "rwkv6": recurrence, "rwkv7": recurrence,
	"deepseek2": latent, "minicpm3": latent,
	"bert": "encoders", "nomic-bert": "encoders", "modern-bert": "encoders", "t5": "encoders", "t5encoder": "encoders", "gemma-embedding": "encoders",
}

// unknown is the error of an architecture without a row.
func unknown(name string) error {
	switch why := lacking[name]; {
	case name == "clip":
		return fmt.Errorf("general.architecture: \"clip\" is a projector of pictures or sound (mmproj), which has no text to make; give the file of the language model that it belongs to")
	case why != "":
		return fmt.Errorf("general.architecture: %q is not supported yet: it needs %s; see docs/models.md for what runs", name, why)
	}
	return fmt.Errorf("general.architecture: %.100q is not supported; ck knows %s, and mistral, whose files say llama", name, strings.Join(Names(), ", "))
}

// Names lists the architectures that Build knows.
func Names() []string {
	var n []string
	for k := range architectures {
		n = append(n, k)
	}
	sort.Strings(n)
	return n
}

// Build makes the graph of the model in src and checks every value and every shape in it. Errors name the metadata key or the tensor.
// notes say which defaults the file relies on, a line each.
func Build(src Source) (g *graph.Graph, notes []string, err error) {
	name, ok, err := src.String("general.architecture")
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, fmt.Errorf("general.architecture: the key is missing; is this a language model?")
	}
	compose, ok := architectures[name]
	if !ok {
		return nil, nil, unknown(name)
	}
	asked := map[string]bool{}
	h := &hparams{src: recorder{src, asked}, arch: name}
	if !h.has("token_embd.weight") {
		return nil, nil, fmt.Errorf("tensor token_embd.weight: is missing; a file with a vocabulary alone has nothing to run")
	}
	b := newBuilder(h)
	compose(b)
	if n := h.size("expert_count"); n > 0 && b.g.Routes == 0 {
		h.fail(fmt.Errorf("%s.expert_count: is %d, but no layer has a tensor ffn_gate_inp.weight; %s", name, n, Remedy))
	}
	b.g.Context = h.size("context_length")
	b.allRead(asked)
	if h.err != nil {
		return nil, nil, h.err
	}
	pickRows(b.g)
	b.g.Arch = name
	if err := b.g.Check(); err != nil {
		return nil, nil, err
	}
	return b.g, h.notes, nil
}
