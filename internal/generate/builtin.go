package generate

import (
	_ "embed"

	"ck/internal/gguf"
)

// The built-in model: A. Karpathy's stories260K (MIT licence, see builtin/LICENSE), trained on TinyStories, quantized. It stands in
// until the project has a model of its own.
//
//go:generate go run ./builtin ../../../shared/data/models/stories260K/model.gguf builtin/stories260K.gguf
//go:embed builtin/stories260K.gguf
var builtinModel []byte

// BuiltinName is the name of the built-in model.
const BuiltinName = "stories260K"

func openBuiltin() (*Model, error) {
	w, err := gguf.FromBytes("built-in model "+BuiltinName, builtinModel)
	if err != nil {
		return nil, err
	}
	return fromGGUF(w, "")
}
