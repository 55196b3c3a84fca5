package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/topo"
)

// tiny is a model of two layers in memory, so that its weights can be damaged.
func tiny(t testing.TB, typ quant.Type) *gguf.Model {
	t.Helper()
	m, err := synth.Model("tiny", synth.Shape{Arch: "qwen2", Layers: 2, Hidden: 256, FFN: 256, Heads: 4, KVHeads: 2, HeadDim: 64, Vocab: 512, Context: 1 << 12,
		QKVBias: true, RopeBase: 1e4}, typ, 7)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// spoil writes v as element 0 of a row, or as the scale of the row's first block.
func spoil(t testing.TB, m *gguf.Model, tensor string, row int, v float32) {
	t.Helper()
	x := m.Tensor(tensor)
	b := x.Data[row*x.Type.RowBytes(x.Cols()):]
	if x.Type == quant.F32 {
		binary.LittleEndian.PutUint32(b, math.Float32bits(v))
		return
	}
	half := quant.F16
	if x.Type == quant.BF16 {
		half = quant.BF16
	}
	if err := quant.Quantize(half, b[:2], []float32{v}, nil); err != nil {
		t.Fatal(err)
	}
}

var none = func(int, []float32) error { return nil }

// A weight that is not finite ends with its name and row, wherever it is, in prompts and in generation, before any logits are given out;
// the sequence is as long as before.
func TestWeightNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, typ := range []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_K, quant.IQ4_XS} {
		for _, tensor := range []string{"token_embd", "blk.0.attn_q", "blk.0.attn_k", "blk.1.attn_v", "blk.0.attn_output", "blk.1.ffn_gate", "blk.0.ffn_up",
			"blk.1.ffn_down", "output"} {
			for _, v := range []float32{nan, inf, -inf} {
				m := tiny(t, typ)
				const row = 5
				spoil(t, m, tensor+".weight", row, v)
				e := open(t, m, Options{Threads: 2})
				for _, ids := range [][]int32{{1, 2, row, 3}, {row}} {
					seq := e.NewSeq()
					err := e.Forward(context.Background(), seq, ids, All, func(i int, l []float32) error {
						t.Errorf("%v %s %v: logits of row %d were given out", typ, tensor, v, i)
						return nil
					})
					var bad *ModelError
					want := fmt.Sprintf("tensor %s.weight: row %d, element 0 is", tensor, row)
					if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
						t.Errorf("%v %s %v: %v, expected %q in it", typ, tensor, v, err, want)
					}
					if n := e.Len(seq); n != 0 {
						t.Errorf("%v %s: %d positions after the error", typ, tensor, n)
					}
				}
				e.Close()
			}
		}
	}
}

// Every block type that can be decoded runs a model, and a damaged scale of it is found where it can be not finite.
func TestEveryBlockType(t *testing.T) {
	n := 0
	for i := range quant.Types {
		typ := quant.Type(i)
		if !decodable(typ) {
			continue
		}
		n++
		m := tiny(t, typ)
		e := open(t, m, Options{Threads: 1})
		if err := e.Forward(context.Background(), e.NewSeq(), []int32{1, 2, 3}, All, none); err != nil {
			t.Errorf("%v: %v", typ, err)
		}
		e.Close()
	}
	t.Logf("%d types", n)
}

// Norms and biases are looked at when the model opens. A negative one is legal.
func TestVectorNotFinite(t *testing.T) {
	for _, tensor := range []string{"blk.0.attn_norm.weight", "blk.1.ffn_norm.weight", "output_norm.weight", "blk.1.attn_q.bias"} {
		for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -1.5} {
			m := tiny(t, quant.F32)
			spoil(t, m, tensor, 0, v)
			e, err := Open(m, Options{Threads: 1})
			if v == -1.5 {
				if err != nil {
					t.Errorf("%s of %v: %v", tensor, v, err)
					continue
				}
				if err := e.Forward(context.Background(), e.NewSeq(), []int32{1, 2}, Last, none); err != nil {
					t.Errorf("%s of %v: %v", tensor, v, err)
				}
				e.Close()
				continue
			}
			var bad *ModelError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), "tensor "+tensor+": element 0 is") {
				t.Errorf("%s of %v: %v", tensor, v, err)
			}
		}
	}
}

// Finite weights whose results overflow: the error names the position and the first step, of a prompt in one walk and in several, and in
// generation; other sequences go on.
func TestStepNotFinite(t *testing.T) {
	live, err := topo.Live()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil    func(m *gguf.Model)
		opt      Options
		ids      []int32
		position int
		step     string
	}{
		"embedding": {func(m *gguf.Model) { spoil(t, m, "token_embd.weight", 300, 3e38) }, Options{}, []int32{1, 2, 300, 4}, 2, "blk.0.attn_norm"},
		"embedding, walks of 2": {func(m *gguf.Model) { spoil(t, m, "token_embd.weight", 300, 3e38) }, Options{UBatch: 2}, []int32{1, 2, 300, 4}, 2,
			"blk.0.attn_norm"},
		"embedding, an earlier walk": {func(m *gguf.Model) { spoil(t, m, "token_embd.weight", 300, 3e38) }, Options{UBatch: 2}, []int32{1, 300, 4}, 2,
			"blk.0.attn"},
		"down": {func(m *gguf.Model) { fill(m, "blk.1.ffn_down.weight", 1e38) }, Options{F32Act: true}, []int32{1, 2}, 1,
			"blk.1.ffn_down+residual"}, // behind the last attention only the wanted row is there
		"keys":   {func(m *gguf.Model) { fill(m, "blk.1.attn_k.bias", 1e5) }, Options{KV: quant.F16, KVSet: true}, []int32{1}, 0, "blk.1.attn"},
		"output": {func(m *gguf.Model) { fill(m, "output.weight", 3e38) }, Options{F32Act: true}, []int32{7}, 0, "output"},
	} {
		m := tiny(t, quant.F32)
		c.spoil(m)
		test := func(name string) {
			c.opt.Threads = 2
			e := open(t, m, c.opt)
			seq := e.NewSeq()
			release := e.Hold()
			err := e.Forward(context.Background(), seq, c.ids, Last, none)
			release()
			var bad *NotFiniteError
			if !errors.As(err, &bad) || bad.Position != c.position || bad.Step != c.step {
				t.Errorf("%s: %v, expected position %d and step %s", name, err, c.position, c.step)
			}
			if e.Len(seq) != 0 {
				t.Errorf("%s: %d positions after the error", name, e.Len(seq))
			}
			if strings.HasPrefix(name, "embedding") {
				if err := e.Forward(context.Background(), seq, []int32{1, 2, 3}, All, none); err != nil {
					t.Errorf("%s: other ids: %v", name, err)
				}
			}
			e.Close()
		}
		test(name)
		c.opt.NUMA, c.opt.AsNodes = "tp", fmt.Sprintf("%d/%d", live.Affinity[0], live.Affinity[0])
		test(name + ", two homes")
	}
}

// fill sets all elements of an F32 tensor.
func fill(m *gguf.Model, tensor string, v float32) {
	b := m.Tensor(tensor).Data
	for i := 0; i < len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], math.Float32bits(v))
	}
}

// What counts as finite: every float32 but infinities and NaN, at every place.
func TestFinite(t *testing.T) {
	f := isa.Detect()
	for tier := isa.Go; tier <= isa.Best(f); tier++ {
		tbl := kernel.For(tier, f)
		for _, n := range []int{1, 15, 16, 17, 511, 1000} {
			for at := range n {
				for _, v := range []float32{1, 3e38, -3e38, 1e-45, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
					x := make([]float32, n)
					x[at] = v
					if got, want := finite(tbl, x), v-v == 0; got != want {
						t.Fatalf("%v: %v at %d of %d: %v", tier, v, at, n, got)
					}
				}
			}
		}
	}
}

func BenchmarkFinite(b *testing.B) {
	x := make([]float32, 151936)
	for i := range x {
		x[i] = float32(i%37) - 18
	}
	f := isa.Detect()
	tbl := kernel.For(isa.Best(f), f)
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		if !finite(tbl, x) {
			b.Fatal("finite")
		}
	}
}

// What a file leaves out is said with -v, by the reader of another format as well.
func TestDefaultsAreNoted(t *testing.T) {
	m := tiny(t, quant.F32)
	kv := &gguf.Metadata{}
	for _, k := range m.KV.Keys() {
		if !strings.HasSuffix(k, ".rope.freq_base") {
			kv.Set(k, m.KV.Value(k))
		}
	}
	m.KV, m.Notes = kv, []string{"config.json: a note"}
	e := open(t, m, Options{Threads: 1})
	for _, want := range []string{"config.json: a note", "qwen2.rope.freq_base: not in the file, taken as 10000: "} {
		if !slices.ContainsFunc(e.Notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
			t.Errorf("notes %q, expected %q", e.Notes, want)
		}
	}
}
