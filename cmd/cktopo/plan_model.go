package main

import (
	"os"
	"strings"

	"ck/internal/cli"
	"ck/internal/cost"
	"ck/internal/gguf"
	"ck/internal/synth"
)

// word is what names the model: the word, --params or -m.
func (o *planOptions) word(args []string) string {
	switch {
	case len(args) > 0:
		return args[0]
	case o.params != "":
		return o.params
	}
	return o.app.Common.Model
}

// models reads the word, or -m: one model for each type. path is the file's name for commands.
func (o *planOptions) models(args []string) (models []*cost.Model, path string, err error) {
	word := o.word(args)
	switch {
	case len(args) > 1:
		return nil, "", cli.Usage("plan: takes one MODEL or SHAPE; see cktopo plan --help")
	case len(args) == 1 && o.params != "":
		return nil, "", cli.Usage("plan: --params and %q name two models; give one", args[0])
	case word == "":
		return nil, "", cli.Usage("plan: needs a model's file, a shape such as %s or a size such as 250B; see cktopo plan --help", synth.Names()[0])
	}
	s, isShape, err := o.shape(word)
	if err != nil {
		return nil, "", err
	}
	if !isShape {
		return o.file(word)
	}
	types := o.types
	if types == "" {
		types = "Q8_0"
	}
	for typ := range strings.SplitSeq(types, ",") {
		m, err := cost.OfShape(word, s, strings.TrimSpace(typ))
		if err != nil {
			return nil, "", cli.Usage("plan: %v", err)
		}
		models = append(models, m)
	}
	return models, "MODEL.gguf", nil
}

// shape reads the word as a shape or a size, and the flags that change it.
func (o *planOptions) shape(word string) (synth.Shape, bool, error) {
	s, err := synth.Find(word)
	if err != nil {
		if _, err := os.Stat(word); err == nil || strings.HasSuffix(word, ".gguf") || strings.ContainsRune(word, '/') {
			return s, false, nil
		}
		n, perr := cost.ParseParams(word)
		if perr != nil {
			return s, false, cli.Usage("plan: %q is no file, no shape that ck knows and no number of parameters such as 250B; see cktopo plan --help", word)
		}
		s = cost.ShapeOfSize(n)
	}
	for _, e := range []struct{ value, dst *int }{{&o.layers, &s.Layers}, {&o.hidden, &s.Hidden}, {&o.ffn, &s.FFN}, {&o.heads, &s.Heads},
		{&o.kvHeads, &s.KVHeads}, {&o.headDim, &s.HeadDim}, {&o.vocab, &s.Vocab}} {
		if *e.value != 0 {
			*e.dst = *e.value
		}
	}
	if err := s.Check(); err != nil {
		return s, true, cli.Usage("plan: %v", err)
	}
	return s, true, nil
}

// file opens a model's file; only its metadata and small vectors are read.
func (o *planOptions) file(path string) ([]*cost.Model, string, error) {
	switch {
	case o.types != "":
		return nil, "", cli.Usage("--type: a file has types of its own; name a shape")
	case o.layers+o.hidden+o.ffn+o.heads+o.kvHeads+o.headDim+o.vocab > 0:
		return nil, "", cli.Usage("plan: a file has a shape of its own; leave out the flags of the shape")
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil, "", cli.Input("%s: is a folder; plan reads GGUF files", path)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, "", cli.Input("%w", err)
	}
	defer f.Close()
	m, err := cost.OfFile(path, f)
	if err != nil {
		return nil, "", cli.Input("%s: %w", path, err)
	}
	return []*cost.Model{m}, path, nil
}
