// Builtin writes the GGUF file of the model that is part of the programs, from A. Karpathy's stories260K:
//
//	builtin IN.gguf OUT.gguf
//
// Matrices become F16, norms stay F32. (Tried: Q8_0 where a row is a multiple of its blocks, 345,056 bytes. The greedy text leaves the
// published one after 114 tokens, also with activations in F32.) The vocabulary is kept. Metadata is added: licence and source, that
// prompts are sent as they are, that BOS ends a text (the stories of the training data stand behind one another, BOS between them: llama2.c
// stops there too), and a chat template that joins the turns to one story.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"strings"

	"ck/internal/gguf"
	"ck/internal/quant"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "builtin: error: usage: builtin IN.gguf OUT.gguf")
		os.Exit(2)
	}
	b, err := build(os.Args[1])
	if err == nil {
		err = os.WriteFile(os.Args[2], b, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "builtin: error:", err)
		os.Exit(1)
	}
}

//go:embed story.jinja
var story string

// build returns the file made of the model at path.
func build(path string) ([]byte, error) {
	m, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	kv := metadata(m.KV)
	infos := make([]gguf.TensorInfo, len(m.Tensors))
	data := make([][]byte, len(m.Tensors))
	for i, t := range m.Tensors {
		infos[i] = gguf.TensorInfo{Name: t.Name, Type: typeOf(t), Shape: t.Shape}
		if data[i], err = convert(t, infos[i].Type); err != nil {
			return nil, fmt.Errorf("%s: tensor %q: %w", path, t.Name, err)
		}
	}
	var out bytes.Buffer
	w, err := gguf.NewWriter(&out, kv, infos)
	if err != nil {
		return nil, err
	}
	for _, b := range data {
		if _, err := w.Write(b); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// metadata copies the model's keys and adds ours.
func metadata(in *gguf.Metadata) *gguf.Metadata {
	kv := &gguf.Metadata{}
	for _, k := range in.Keys() {
		kv.Set(k, in.Value(k))
	}
	kv.Set("general.description", "A tiny model that tells stories, trained on TinyStories")
	kv.Set("general.author", "Andrej Karpathy")
	kv.Set("general.license", "mit")
	kv.Set("general.source.url", "https://huggingface.co/karpathy/tinyllamas")
	kv.Set("general.file_type", uint32(1)) // mostly F16 (llama.h, LLAMA_FTYPE_MOSTLY_F16)
	kv.Set("ck.prompt.default", "raw")
	bos := in.Value("tokenizer.ggml.bos_token_id")
	kv.Set("tokenizer.ggml.eot_token_id", bos)
	kv.Set("tokenizer.chat_template", strings.TrimSuffix(story, "\n"))
	return kv
}

// typeOf is the type that a tensor gets.
func typeOf(t *gguf.Tensor) quant.Type {
	if len(t.Shape) == 1 {
		return quant.F32
	}
	return quant.F16
}

// convert returns t's elements as blocks of type to.
func convert(t *gguf.Tensor, to quant.Type) ([]byte, error) {
	row := make([]float32, t.Cols())
	n := to.RowBytes(t.Cols())
	out := make([]byte, t.Rows()*n)
	for r := range t.Rows() {
		quant.Decode(t.Type, row, t.Row(r))
		if err := quant.Quantize(to, out[r*n:(r+1)*n], row, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}
