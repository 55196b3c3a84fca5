// Package hf opens model folders in Hugging Face's form, config.json and safetensors, as the GGUF models that llama.cpp's
// convert_hf_to_gguf.py would make of them: the same metadata keys, tensor names, types and rows. Weights stay in their mapped
// files; only norms and biases, which GGUF keeps in F32, are converted to the heap. Rows of FP8
// weights are scaled while they are read. Tokenizers are not read here. Write is the inverse: a folder of a model.
package hf

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ck/internal/gguf"
	"ck/internal/mapfile"
	"ck/internal/quant"
	"ck/internal/safetensors"
)

// Open opens the model in folder dir. Architectures that are not in the table are an error that names the class. A folder without
// config.json or weights gives an error that is fs.ErrNotExist.
func Open(dir string) (*gguf.Model, error) {
	c, err := readConfig(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	m := gguf.NewModel(dir)
	m.Notes = c.notes
	if err := fill(m, dir, c); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func readConfig(path string) (*config, error) {
	f, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var c *config
	err = f.Guard(func() error {
		if c, err = parseConfig(f.Data); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	return c, err
}

// fill adds metadata and tensors to m.
func fill(m *gguf.Model, dir string, c *config) error {
	c.metadata(m.KV)
	files, err := safetensors.OpenDir(dir)
	if err != nil {
		return err
	}
	index := make([]int, len(files))
	for i, f := range files { // all of them first: from here on m closes them
		index[i] = m.AddFile(f.Map)
	}
	if c.wrapped {
		if n := textAlone(files); n > 0 {
			m.Notes = append(m.Notes, fmt.Sprintf("tensors for pictures or sound are left out: %d", n))
		}
	}
	factors := c.ropeFactors()
	for _, name := range slices.Sorted(maps.Keys(factors)) {
		if err := m.Add(vector(name, factors[name])); err != nil {
			return err
		}
	}
	if err := c.readScales(files); err != nil {
		return err
	}
	stacks := map[string][]*gguf.Tensor{}
	for i, f := range files {
		err := f.Map.Guard(func() error {
			for _, st := range f.Tensors {
				t, expert, err := c.tensor(st, index[i])
				switch {
				case err != nil || t == nil:
				case expert >= 0:
					err = c.stack(stacks, t, expert)
				default:
					err = m.Add(t)
				}
				if err != nil {
					return fmt.Errorf("%s: tensor %.100q: %w", f.Map.Path, st.Name, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := c.scalesUsed(); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if err := addStacks(m, stacks); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if c.class.takeApart != nil {
		if err := c.class.takeApart(c, m); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if m.Tensor("output.weight") == nil && !c.tied() {
		return fmt.Errorf("%s: lm_head.weight is missing, and config.json does not set tie_word_embeddings", dir)
	}
	// What kind of file it would be (llama.h, enum llama_ftype).
	if embd := m.Tensor("token_embd.weight"); embd != nil {
		if embd.Rows() != c.vocab {
			return fmt.Errorf("%s: vocab_size: is %d, but model.embed_tokens.weight has %d rows; the files are of different models: download them again",
				filepath.Join(dir, "config.json"), c.vocab, embd.Rows())
		}
		switch embd.Type {
		case quant.F32:
			m.KV.Set("general.file_type", uint32(0))
		case quant.F16:
			m.KV.Set("general.file_type", uint32(1))
		case quant.BF16:
			m.KV.Set("general.file_type", uint32(32))
		}
	}
	return nil
}

// tensor makes the GGUF tensor of one tensor of a file; nil for those that hold nothing to compute with. expert is the expert that the tensor is
// one matrix of, -1 if it is whole.
func (c *config) tensor(st *safetensors.Tensor, file int) (t *gguf.Tensor, expert int, err error) {
	if strings.HasSuffix(st.Name, ".rotary_emb.inv_freq") || st.Name == "lm_head.weight" && c.tied() {
		return nil, -1, nil // computed from the configuration; the same numbers as token_embd
	}
	if c.quantized && beside(st.Name) {
		return nil, -1, nil // scales are read before
	}
	if c.keep(st, file) || c.beyond(st.Name) {
		return nil, -1, nil
	}
	name, change, expert, err := c.rename(st.Name)
	if err != nil {
		return nil, -1, err
	}
	t, err = c.make(st, file, name, change)
	return t, expert, err
}

// make is the tensor of that name, with a recipe of its rows or none.
func (c *config) make(st *safetensors.Tensor, file int, name string, change recipe) (*gguf.Tensor, error) {
	typ, ok := st.Type()
	values := float8[st.DType]
	if values != nil {
		typ = quant.BF16
	} else if !ok {
		return nil, fmt.Errorf("dtype %s is not supported; expected F32, F16 or BF16", st.DType)
	}
	t := &gguf.Tensor{Name: name, Type: typ, Shape: slices.Clone(st.Shape), Data: st.Data, File: file, Offset: st.Offset}
	slices.Reverse(t.Shape)
	if len(t.Shape) == 0 {
		t.Shape = []int{1}
	}
	if values != nil {
		if err := c.scaled(t, st, values); err != nil {
			return nil, err
		}
	}
	var vector []float32
	var err error
	if len(t.Shape) == 1 && (typ != quant.F32 || change != nil) { // GGUF keeps vectors in F32
		if vector, err = toFloats(typ, st.Data); err != nil {
			return nil, err
		}
	}
	if strings.HasSuffix(name, ".ffn_gate_inp.weight") && len(t.Shape) == 2 { // and routers
		if err := widen(t); err != nil {
			return nil, err
		}
	}
	if change != nil {
		if err := change(c, t, vector); err != nil {
			return nil, err
		}
	}
	if vector != nil {
		t.Type, t.Data, t.File, t.Offset = quant.F32, floatBytes(vector), -1, 0
	}
	return t, nil
}

// rename gives the GGUF name of a tensor, the recipe of its rows, and the expert that it is of, or -1.
func (c *config) rename(name string) (gguf string, change recipe, expert int, err error) {
	stem, suffix := name, ""
	for _, s := range []string{".weight", ".bias"} {
		if cut, ok := strings.CutSuffix(name, s); ok {
			stem, suffix = cut, s
		}
	}
	key, layer, number := stem, -1, ""
	if rest, ok := strings.CutPrefix(stem, "model.layers."); ok {
		var part string
		number, part, _ = strings.Cut(rest, ".")
		if layer, err = strconv.Atoi(number); err == nil && number == strconv.Itoa(layer) {
			key = "N." + part
		}
	}
	key, expert = ofExpert(key)
	to := c.class.names[key]
	switch {
	case to == "" || (suffix == "") != strings.Contains(to, ".") || strings.HasPrefix(stem, "N.") || expert >= 0 && expert >= c.experts:
		return "", nil, -1, fmt.Errorf("no such tensor is known in a %s", c.name)
	case key == stem:
		return to + suffix, c.class.recipes[to], -1, nil
	case layer < 0 || layer >= c.layers:
		return "", nil, -1, fmt.Errorf("layer %d, but num_hidden_layers is %d", layer, c.layers)
	}
	return "blk." + number + "." + to + suffix, c.class.recipes[to], expert, nil
}
