package hf

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"ck/asm/half"
	"ck/internal/gguf"
	"ck/internal/safetensors"
)

// FP8 weights have a scale for the matrix, for each row or for each block. A weight is its code's value times the
// scale in float32, rounded to BF16 (llama.cpp, convert_hf_to_gguf.py, dequant_simple). Rows are made when they are
// read.

// float8 has the values of all codes of the types that folders have weights in.
var float8 = map[string]*[256]float32{"F8_E4M3": e4m3(), "F8_E5M2": e5m2()}

// e4m3 has no infinity, and one NaN of either sign.
func e4m3() *[256]float32 {
	var v [256]float32
	for i := range v {
		e, m := i>>3&15, i&7
		x := math.Ldexp(float64(8+m), e-10)
		switch {
		case i&127 == 127:
			x = math.NaN()
		case e == 0:
			x = math.Ldexp(float64(m), -9)
		}
		v[i] = float32(math.Copysign(x, float64(int8(i))+0.5))
	}
	return &v
}

// e5m2 is the upper half of a float16.
func e5m2() *[256]float32 {
	var v [256]float32
	for i := range v {
		v[i] = half.F16ToF32(uint16(i) << 8)
	}
	return &v
}

// scale is what the codes of a weight are multiplied by.
type scale struct {
	name   string // of its tensor
	shape  []int
	values []float32
	used   bool
}

// scaleSuffixes are what names of scales have in place of ".weight": of fine-grained FP8, and of compressed-tensors
// and fbgemm.
var scaleSuffixes = []string{".weight_scale_inv", ".weight_scale"}

// activationSuffixes end names of what scales activations or the cache, which ck does not take from the model.
var activationSuffixes = []string{".input_scale", ".activation_scale", ".input_scale_ub", ".k_scale", ".v_scale"}

// beside reports whether a tensor is no weight but scales something.
func beside(name string) bool {
	has := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
	return slices.ContainsFunc(scaleSuffixes, has) || slices.ContainsFunc(activationSuffixes, has)
}

// weightOf is the name of the weight that a tensor scales, "" if it is no such tensor.
func weightOf(name string) string {
	for _, s := range scaleSuffixes {
		if stem, ok := strings.CutSuffix(name, s); ok {
			return stem + ".weight"
		}
	}
	return ""
}

// quantization is quantization_config, as far as it says what FP8 weights are.
type quantization struct {
	Method string `json:"quant_method"`
	Block  []int  `json:"weight_block_size"`
	Format string `json:"format"`
	Groups map[string]struct {
		Weights *struct {
			Type      string `json:"type"`
			Bits      int    `json:"num_bits"`
			Strategy  string `json:"strategy"`
			GroupSize *int   `json:"group_size"`
			Block     []int  `json:"block_structure"`
		} `json:"weights"`
	} `json:"config_groups"`
}

// readQuantization reads quantization_config; what it means for weights must be FP8.
func (c *config) readQuantization() error {
	if q := string(c.Quantization); q == "" || q == "null" {
		return nil
	}
	var q quantization
	if err := json.Unmarshal(c.Quantization, &q); err != nil {
		return fmt.Errorf("quantization_config: %w", err)
	}
	block := q.Block
	switch {
	case q.Method == "mxfp4" && c.class.arch == "gpt-oss":
		return nil // its tensors say it all
	case q.Method == "fp8" || q.Method == "fbgemm_fp8":
	case q.Method == "compressed-tensors" && (q.Format == "float-quantized" || q.Format == "naive-quantized"):
		for _, name := range slices.Sorted(maps.Keys(q.Groups)) {
			w := q.Groups[name].Weights
			if w == nil || w.Type != "float" || w.Bits != 8 || w.GroupSize != nil ||
				!slices.Contains([]string{"tensor", "channel", "block"}, w.Strategy) {
				return fmt.Errorf("quantization_config: the weights of %.60q are not FP8 with scales of tensors, "+
					"channels or blocks; take the original model or a GGUF file", name)
			}
			if block != nil && w.Block != nil && !slices.Equal(block, w.Block) {
				return fmt.Errorf("quantization_config: blocks of %v and of %v; one size is supported", block,
					w.Block)
			}
			if w.Block != nil {
				block = w.Block
			}
		}
	default:
		return errors.New("quantization_config: quantized weights of this form are not supported; take the original " +
			"model or a GGUF file")
	}
	if block != nil {
		if len(block) != 2 || block[0] < 1 || block[1] < 1 {
			return fmt.Errorf("quantization_config: blocks of %v, expected rows and columns", block)
		}
		c.block = [2]int(block)
	}
	c.quantized = true
	return nil
}

// readScales reads the scales of all files: an index may have them in another file than their weights.
func (c *config) readScales(files []*safetensors.File) error {
	if !c.quantized {
		return nil
	}
	c.scales = map[string]*scale{}
	for _, f := range files {
		err := f.Map.Guard(func() error {
			for _, st := range f.Tensors {
				weight := weightOf(st.Name)
				if weight == "" {
					continue
				}
				s, err := readScale(st)
				if other := c.scales[weight]; err == nil && other != nil {
					err = fmt.Errorf("%s has %.100q too", weight, other.name)
				}
				if err != nil {
					return fmt.Errorf("%s: tensor %.100q: %w", f.Map.Path, st.Name, err)
				}
				c.scales[weight] = s
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func readScale(st *safetensors.Tensor) (*scale, error) {
	typ, ok := st.Type()
	if !ok {
		return nil, fmt.Errorf("scales of dtype %s are not supported; expected F32, F16 or BF16", st.DType)
	}
	values, err := toFloats(typ, st.Data)
	if err != nil {
		return nil, err
	}
	return &scale{name: st.Name, shape: st.Shape, values: values}, nil
}

// scaled makes t, a matrix of FP8 codes, compute its rows.
func (c *config) scaled(t *gguf.Tensor, st *safetensors.Tensor, values *[256]float32) error {
	if len(st.Shape) != 2 {
		return fmt.Errorf("%s of %d dimensions is not supported; expected a matrix", st.DType, len(st.Shape))
	}
	s := c.scales[st.Name]
	if s == nil {
		stem := strings.TrimSuffix(st.Name, ".weight")
		return fmt.Errorf("is %s without scales: neither %s.weight_scale_inv nor %s.weight_scale is there", st.DType,
			stem, stem)
	}
	rows, cols := st.Shape[0], st.Shape[1]
	high, wide := rows, cols // of a scale
	switch blocks := []int{ceil(rows, c.block[0]), ceil(cols, c.block[1])}; {
	case c.block[0] > 0 && slices.Equal(s.shape, blocks):
		high, wide = c.block[0], c.block[1]
	case len(s.values) == 1 && len(s.shape) <= 2:
	case slices.Equal(s.shape, []int{rows}) || slices.Equal(s.shape, []int{rows, 1}):
		high = 1
	case c.block[0] > 0:
		return fmt.Errorf("%s has shape %v, expected %v: a scale for each block of %v of the weight's %v",
			s.name, s.shape, blocks, c.block, st.Shape)
	default:
		return fmt.Errorf("%s has shape %v, expected one scale, or %d for the rows of the weight", s.name, s.shape,
			rows)
	}
	s.used = true
	data, perRow := st.Data, ceil(cols, wide)
	t.Make = func(dst []byte, r int) {
		scaleRow(dst, data[r*cols:(r+1)*cols], values, s.values[r/high*perRow:][:perRow], wide)
	}
	return nil
}

// ceil is n/d rounded up; 0 for blocks that nobody named.
func ceil(n, d int) int {
	if d == 0 {
		return 0
	}
	return (n + d - 1) / d
}

// scaleRow decodes a row; each scale is that of wide codes.
func scaleRow(dst, codes []byte, values *[256]float32, scales []float32, wide int) {
	for i, s := range scales {
		from := i * wide
		for j, code := range codes[from:min(from+wide, len(codes))] {
			binary.LittleEndian.PutUint16(dst[2*(from+j):], half.F32ToBF16(values[code]*s))
		}
	}
}

// scalesUsed reports scales that belong to no FP8 weight: the files are incomplete, or of another form than is read
// here.
func (c *config) scalesUsed() error {
	for _, weight := range slices.Sorted(maps.Keys(c.scales)) {
		if s := c.scales[weight]; !s.used && !(weight == "lm_head.weight" && c.tied()) {
			return fmt.Errorf("tensor %.100q: there is no FP8 weight %.100q that it scales", s.name, weight)
		}
	}
	return nil
}
