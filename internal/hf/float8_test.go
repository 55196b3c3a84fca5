package hf

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ck/internal/quant"
)

// The values of all codes, by the formats' definitions in float64.
func TestFloat8Values(t *testing.T) {
	for i := range 256 {
		sign := 1 - 2*float64(i>>7)
		e, m := i>>3&15, float64(i&7)
		want := sign * (1 + m/8) * math.Pow(2, float64(e-7))
		if e == 0 {
			want = sign * m / 8 * math.Pow(2, -6)
		}
		got := float64(float8["F8_E4M3"][i])
		if i&127 == 127 && got == got || i&127 != 127 && (got != want || math.Signbit(got) != (i > 127)) {
			t.Errorf("F8_E4M3 0x%02x is %g, expected %g", i, got, want)
		}
		e, m = i>>2&31, float64(i&3)
		want = sign * (1 + m/4) * math.Pow(2, float64(e-15))
		if e == 0 {
			want = sign * m / 4 * math.Pow(2, -14)
		}
		got = float64(float8["F8_E5M2"][i])
		switch {
		case e == 31 && m == 0:
			if !math.IsInf(got, int(sign)) {
				t.Errorf("F8_E5M2 0x%02x is %g, expected an infinity", i, got)
			}
		case e == 31:
			if got == got {
				t.Errorf("F8_E5M2 0x%02x is %g, expected NaN", i, got)
			}
		case got != want:
			t.Errorf("F8_E5M2 0x%02x is %g, expected %g", i, got, want)
		}
	}
}

// fp8Config is small, of 7 rows and 10 columns where that matters, with a quantization_config.
func fp8Config(kv ...any) map[string]any {
	return with(small(), "intermediate_size", 7, "quantization_config", with(map[string]any{}, kv...))
}

var (
	fineGrained = fp8Config("quant_method", "fp8", "weight_block_size", []int{3, 5}, "activation_scheme", "dynamic")
	fbgemm      = fp8Config("quant_method", "fbgemm_fp8", "activation_scale_ub", 1200)
	compressed  = fp8Config("quant_method", "compressed-tensors", "format", "float-quantized", "config_groups",
		map[string]any{
			"group_0": map[string]any{"weights": map[string]any{"type": "float", "num_bits": 8, "strategy": "channel",
				"group_size": nil}}})
)

// Rows are codes times their scales, rounded once to float32 and once to BF16; rows of q are permuted.
func TestFloat8Rows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	embd := stored{"BF16", []int{3, 8}, bf16(make([]float32, 24)...)}
	for _, c := range []struct {
		name, suffix, dtype, scales string
		config                      map[string]any
		shape                       []int
		at                          func(r, col int) int // of the scale
	}{
		{"blocks", ".weight_scale_inv", "F8_E4M3", "F32", fineGrained, []int{3, 2},
			func(r, col int) int { return r/3*2 + col/5 }},
		{"blocks of BF16", ".weight_scale_inv", "F8_E4M3", "BF16", fineGrained, []int{3, 2},
			func(r, col int) int { return r/3*2 + col/5 }},
		{"rows", ".weight_scale", "F8_E4M3", "F32", compressed, []int{8, 1}, func(r, _ int) int { return r }},
		{"rows, one dimension", ".weight_scale", "F8_E5M2", "F32", fbgemm, []int{8}, func(r, _ int) int { return r }},
		{"one", ".weight_scale", "F8_E4M3", "F32", compressed, []int{}, func(_, _ int) int { return 0 }},
		{"one of blocks", ".weight_scale", "F8_E4M3", "F32", fineGrained, []int{1}, func(_, _ int) int { return 0 }},
	} {
		codes := make([]byte, 8*8)
		for i := range codes {
			for codes[i] = byte(rng.Uint32()); codes[i]&0x7c == 0x7c; {
				codes[i] = byte(rng.Uint32())
			}
		}
		n := 1
		for _, d := range c.shape {
			n *= d
		}
		scales := make([]float32, n)
		for i := range scales {
			scales[i] = float32(math.Exp(rng.NormFloat64()))
		}
		data := floatBytes(scales)
		if c.scales == "BF16" {
			data = bf16(scales...)
			for i := range scales {
				scales[i] = math.Float32frombits(math.Float32bits(scales[i]) &^ 0xffff)
			}
		}
		m, err := Open(folder(t, c.config, map[string]stored{"model.embed_tokens.weight": embd,
			"model.layers.0.self_attn.q_proj.weight":      {c.dtype, []int{8, 8}, codes},
			"model.layers.0.self_attn.q_proj" + c.suffix:  {c.scales, c.shape, data},
			"model.layers.0.self_attn.q_proj.input_scale": {"F32", []int{1}, floatBytes([]float32{3})},
		}))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		q := m.Tensor("blk.0.attn_q.weight")
		if q.Type != quant.BF16 || len(m.Tensors) != 2 {
			t.Errorf("%s: %v, %d tensors", c.name, q.Type, len(m.Tensors))
		}
		for r := range 8 {
			from := r/4*4 + r%2*2 + r%4/2 // heads of 4 rows, in halves
			want := make([]byte, 16)
			for col := range 8 {
				x := float32(float64(float8[c.dtype][codes[from*8+col]]) * float64(scales[c.at(from, col)]))
				binary.LittleEndian.PutUint16(want[2*col:], toBF16(x))
			}
			read := make([]byte, 16)
			q.Compute(read, r, r+1)
			if got := q.Row(r); !slices.Equal(got, want) || !slices.Equal(read, want) {
				t.Errorf("%s: row %d is %x, computed %x, expected %x", c.name, r, got, read, want)
			}
		}
		m.Close()
	}
}

// toBF16 takes the nearer neighbour, of two the even one.
func toBF16(x float32) uint16 {
	low := math.Float32bits(x) &^ 0xffff
	a, b := float64(math.Float32frombits(low)), float64(math.Float32frombits(low+0x10000))
	up := math.Abs(b-float64(x)) < math.Abs(a-float64(x)) || math.Abs(b-float64(x)) == math.Abs(a-float64(x)) &&
		low&0x10000 != 0
	if up {
		low += 0x10000
	}
	return uint16(low >> 16)
}

func TestFloat8Refused(t *testing.T) {
	embd := stored{"BF16", []int{3, 8}, bf16(make([]float32, 24)...)}
	const up = "model.layers.0.mlp.up_proj.weight"
	codes := stored{"F8_E4M3", []int{7, 8}, make([]byte, 56)}
	scales := func(shape ...int) stored {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return stored{"F32", shape, make([]byte, 4*n)}
	}
	for name, c := range map[string]struct {
		config  map[string]any
		tensors map[string]stored
		want    string
	}{
		"without":   {fineGrained, map[string]stored{up: codes}, up + `": is F8_E4M3 without scales`},
		"no config": {small(), map[string]stored{up: codes}, up + `": is F8_E4M3 without scales`},
		"transposed": {fineGrained, map[string]stored{up: codes, up + "_scale_inv": scales(2, 3)},
			up + "_scale_inv has shape [2 3], expected [3 2]"},
		"of rows": {compressed, map[string]stored{up: codes, up + "_scale": scales(6, 1)},
			up + "_scale has shape [6 1], expected one scale, or 7"},
		"no weight": {fineGrained, map[string]stored{up + "_scale_inv": scales(3, 2)},
			`_scale_inv": there is no FP8 weight`},
		"not FP8": {fineGrained, map[string]stored{up: embd, up + "_scale_inv": scales(1)},
			`_scale_inv": there is no FP8 weight`},
		"two": {fineGrained, map[string]stored{up: codes, up + "_scale": scales(1),
			up + "_scale_inv": scales(1)}, "too"},
		"scale dtype": {compressed, map[string]stored{up: codes, up + "_scale": {"U8", []int{1}, []byte{1}}},
			"scales of dtype U8"},
		"dimensions": {compressed, map[string]stored{up: {"F8_E5M2", []int{1, 1, 1}, []byte{1}},
			up + "_scale": scales(1)}, "3 dimensions"},
	} {
		c.tensors["model.embed_tokens.weight"] = embd
		if _, err := Open(folder(t, c.config, c.tensors)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q in it", name, err, c.want)
		}
	}
	for want, q := range map[string]map[string]any{
		"blocks of [128]":   {"quant_method": "fp8", "weight_block_size": []int{128}},
		"blocks of [0 128]": {"quant_method": "fp8", "weight_block_size": []int{0, 128}},
		`weights of "group_0"`: {"quant_method": "compressed-tensors", "format": "float-quantized",
			"config_groups": map[string]any{"group_0": map[string]any{"weights": map[string]any{"type": "float",
				"num_bits": 4, "strategy": "channel"}}}},
		"of this form": {"quant_method": "compressed-tensors", "format": "pack-quantized"},
	} {
		if _, err := parse(t, with(small(), "quantization_config", q)); err == nil || !strings.Contains(err.Error(),
			want) {
			t.Errorf("%v: %v, expected %q in it", q, err, want)
		}
	}
}
