// Package hf opens model folders in Hugging Face's form, config.json and safetensors, as the GGUF models that llama.cpp's
// convert_hf_to_gguf.py would make of them: the same metadata keys, tensor names, types and rows. Weights stay in their mapped
// files; only norms and biases, which GGUF keeps in F32, are converted to the heap. Tokenizers are not read here.
package hf

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ck/asm/half"
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
	if factors := c.ropeFactors(); factors != nil {
		if err := m.Add(&gguf.Tensor{Name: "rope_freqs.weight", Type: quant.F32, Shape: []int{len(factors)}, Data: floatBytes(factors), File: -1}); err != nil {
			return err
		}
	}
	for i, f := range files {
		err := f.Map.Guard(func() error {
			for _, st := range f.Tensors {
				t, err := c.tensor(st, index[i])
				if t != nil && err == nil {
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
	if m.Tensor("output.weight") == nil && !c.TieWordEmbeddings {
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

// tensor makes the GGUF tensor of one tensor of a file; nil for those that hold nothing to compute with.
func (c *config) tensor(st *safetensors.Tensor, file int) (*gguf.Tensor, error) {
	if strings.HasSuffix(st.Name, ".rotary_emb.inv_freq") || st.Name == "lm_head.weight" && c.TieWordEmbeddings {
		return nil, nil // computed from the configuration; the same numbers as token_embd
	}
	name, heads, err := c.name(st.Name)
	if err != nil {
		return nil, err
	}
	typ, ok := st.Type()
	if !ok {
		return nil, fmt.Errorf("dtype %s is not supported; expected F32, F16 or BF16", st.DType)
	}
	t := &gguf.Tensor{Name: name, Type: typ, Shape: slices.Clone(st.Shape), Data: st.Data, File: file, Offset: st.Offset}
	slices.Reverse(t.Shape)
	if len(t.Shape) == 0 {
		t.Shape = []int{1}
	}
	if heads > 0 {
		if rows := t.Shape[len(t.Shape)-1]; rows != heads*c.headDim {
			return nil, fmt.Errorf("shape %v, expected %d heads of %d rows", st.Shape, heads, c.headDim)
		}
	}
	if len(t.Shape) > 1 {
		t.Interleave = heads
		return t, nil
	}
	// GGUF keeps vectors in F32. Permuted ones are put in order here, since a row of a vector is all of it.
	if typ == quant.F32 && heads == 0 {
		return t, nil
	}
	values, err := toFloats(typ, st.Data)
	if err != nil {
		return nil, err
	}
	if heads > 0 {
		values = interleave(values, heads)
	}
	t.Type, t.Data, t.File, t.Offset = quant.F32, floatBytes(values), -1, 0
	return t, nil
}

// name gives the GGUF name and, for rows that the converter permutes, their number of heads, else 0.
func (c *config) name(name string) (gguf string, heads int, err error) {
	stem, suffix := name, ""
	for _, s := range []string{".weight", ".bias"} {
		if cut, ok := strings.CutSuffix(name, s); ok {
			stem, suffix = cut, s
		}
	}
	if to, ok := c.arch.tensors[stem]; ok && suffix != "" {
		return to + suffix, 0, nil
	}
	rest, ok := strings.CutPrefix(stem, "model.layers.")
	number, part, ok2 := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	to := c.arch.layer[part]
	if !ok || !ok2 || err != nil || to == "" || suffix == "" || number != strconv.Itoa(layer) {
		return "", 0, fmt.Errorf("no such tensor is known in a %s", c.class)
	}
	if layer < 0 || layer >= c.layers {
		return "", 0, fmt.Errorf("layer %d, but num_hidden_layers is %d", layer, c.layers)
	}
	if c.arch.permute {
		switch to {
		case "attn_q":
			heads = c.heads
		case "attn_k":
			heads = c.headsKV
		}
	}
	return "blk." + number + "." + to + suffix, heads, nil
}

// interleave puts the halves of each head's elements in GGUF's order (see gguf.Tensor.Row).
func interleave(x []float32, heads int) []float32 {
	out := make([]float32, len(x))
	d := len(x) / heads
	for h := range heads {
		for i := range d / 2 {
			out[h*d+2*i] = x[h*d+i]
			out[h*d+2*i+1] = x[h*d+d/2+i]
		}
	}
	return out
}

// toFloats decodes a vector's elements, exactly for all types but F64.
func toFloats(typ quant.Type, b []byte) ([]float32, error) {
	le := binary.LittleEndian
	size := typ.BlockBytes()
	out := make([]float32, len(b)/size)
	for i := range out {
		e := b[i*size:]
		switch typ {
		case quant.F32:
			out[i] = math.Float32frombits(le.Uint32(e))
		case quant.F16:
			out[i] = half.F16ToF32(le.Uint16(e))
		case quant.BF16:
			out[i] = math.Float32frombits(uint32(le.Uint16(e)) << 16)
		case quant.F64:
			out[i] = float32(math.Float64frombits(le.Uint64(e)))
		default:
			return nil, fmt.Errorf("a vector of %v is not supported; expected F32, F16 or BF16", typ)
		}
	}
	return out, nil
}

func floatBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
