package hf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/safetensors"
)

// apart is a tensor of a folder that becomes others than one.
type apart struct {
	*safetensors.Tensor
	file int
}

// keep keeps a tensor that is taken apart when all are known.
func (c *config) keep(st *safetensors.Tensor, file int) bool {
	rest, ok := strings.CutPrefix(st.Name, "model.layers.")
	number, part, _ := strings.Cut(rest, ".")
	if !ok || !c.class.apart["N."+part] {
		return false
	}
	if l, err := strconv.Atoi(number); err != nil || l < 0 || l >= c.layers || strconv.Itoa(l) != number {
		return false // as any other tensor of a layer that there is none of
	}
	if c.apart == nil {
		c.apart = map[string]apart{}
	}
	c.apart[st.Name] = apart{st, file}
	return true
}

// beyond reports whether a tensor is of a layer that predicts tokens further on, which is left out.
func (c *config) beyond(name string) bool {
	rest, ok := strings.CutPrefix(name, "model.layers.")
	number, _, _ := strings.Cut(rest, ".")
	l, err := strconv.Atoi(number)
	return ok && err == nil && l >= c.layers && l < c.layers+c.nextn
}

// part is a tensor that is taken apart, of a layer. Its shape must be the wanted one, slowest dimension first.
func (c *config) part(layer int, name string, dtypes []string, shape ...int) (apart, error) {
	name = fmt.Sprintf("model.layers.%d.%s", layer, name)
	t, ok := c.apart[name]
	switch {
	case !ok:
		return t, fmt.Errorf("tensor %s: is missing; the files are not whole: download them again", name)
	case !slices.Equal(t.Shape, shape):
		return t, fmt.Errorf("tensor %s: shape %v, expected %v", name, t.Shape, shape)
	case !slices.Contains(dtypes, t.DType):
		return t, fmt.Errorf("tensor %s: dtype %s, expected %s", name, t.DType, strings.Join(dtypes, " or "))
	}
	return t, nil
}

var floatTypes = []string{"F32", "F16", "BF16"}

// graniteMoEInput is the tensor of the gates of a layer's experts and of what they multiply: of each expert the rows of the first, then of the second.
const graniteMoEInput = "N.block_sparse_moe.input_linear.weight"

// graniteMoEInput makes two tensors of it, whose rows stay where they lie.
func (c *config) graniteMoEInput(m *gguf.Model) error {
	for l := range c.layers {
		t, err := c.part(l, graniteMoEInput[2:], floatTypes, c.experts, 2*c.ffn, c.hidden)
		if err != nil {
			return err
		}
		typ, _ := t.Type()
		half := len(t.Data) / c.experts / 2
		for i, name := range []string{"ffn_gate_exps", "ffn_up_exps"} {
			x := &gguf.Tensor{Name: fmt.Sprintf("blk.%d.%s.weight", l, name), Type: typ, Shape: []int{c.hidden, c.ffn, c.experts}, File: t.file, Offset: t.Offset + int64(i*half)}
			for e := range c.experts {
				x.Parts = append(x.Parts, t.Data[(2*e+i)*half:][:half])
			}
			if err := m.Add(x); err != nil {
				return err
			}
		}
	}
	return nil
}

// gptOSSExperts are the tensors of gpt-oss' experts. Blocks are codes of 32 weights, two in a byte, scales their powers of two; of the gates and of
// what they multiply the rows stand in turns.
var gptOSSExperts = map[string]bool{"N.mlp.experts.gate_up_proj_blocks": true, "N.mlp.experts.gate_up_proj_scales": true, "N.mlp.experts.gate_up_proj_bias": true,
	"N.mlp.experts.down_proj_blocks": true, "N.mlp.experts.down_proj_scales": true, "N.mlp.experts.down_proj_bias": true}

// gptOSSExperts makes the tensors of a GGUF file of them.
func (c *config) gptOSSExperts(m *gguf.Model) error {
	for l := range c.layers {
		for _, p := range []struct {
			from       string
			to         []string // whose rows stand in turns
			rows, cols int
		}{{"gate_up_proj", []string{"ffn_gate_exps", "ffn_up_exps"}, 2 * c.ffn, c.hidden}, {"down_proj", []string{"ffn_down_exps"}, c.hidden, c.ffn}} {
			name := "mlp.experts." + p.from
			if p.cols%32 != 0 {
				return fmt.Errorf("tensor model.layers.%d.%s_blocks: rows of %d weights, expected blocks of 32", l, name, p.cols)
			}
			blocks, err := c.part(l, name+"_blocks", []string{"U8"}, c.experts, p.rows, p.cols/32, 16)
			if err != nil {
				return err
			}
			scales, err := c.part(l, name+"_scales", []string{"U8"}, c.experts, p.rows, p.cols/32)
			if err != nil {
				return err
			}
			bias, err := c.part(l, name+"_bias", floatTypes, c.experts, p.rows)
			if err != nil {
				return err
			}
			typ, _ := bias.Type()
			biases, err := toFloats(typ, bias.Data)
			if err != nil {
				return err
			}
			turns := len(p.to)
			for i, to := range p.to {
				to = fmt.Sprintf("blk.%d.%s.", l, to)
				shape := []int{p.cols, p.rows / turns, c.experts}
				w := &gguf.Tensor{Name: to + "weight", Type: quant.MXFP4, Shape: shape, File: blocks.file, Offset: blocks.Offset,
					Make: func(dst []byte, r int) { mxfp4Row(dst, blocks.Data, scales.Data, r*turns+i, p.cols/32) }}
				own := make([]float32, 0, len(biases)/turns)
				for r := i; r < len(biases); r += turns {
					own = append(own, biases[r])
				}
				b := vector(to+"bias", own)
				b.Shape = shape[1:]
				for _, t := range []*gguf.Tensor{w, b} {
					if err := m.Add(t); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// mxfp4Row writes row r of so many blocks as GGUF has them: a block is its scale, then its codes, the first 16 in the low halves of the bytes and the
// others in the high ones; the folder has neighbours in a byte.
func mxfp4Row(dst, blocks, scales []byte, r, n int) {
	for b := range n {
		from, to := blocks[(r*n+b)*16:][:16], dst[b*17:][:17]
		to[0] = scales[r*n+b]
		code := func(i int) byte { return from[i/2] >> (4 * (i & 1)) & 15 }
		for j := range 16 {
			to[1+j] = code(j) | code(j+16)<<4
		}
	}
}
