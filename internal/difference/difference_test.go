package difference

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/inspect"
	"ck/internal/isa"
	"ck/internal/linalg"
	"ck/internal/quant"
)

// model is a model with tensors and keys of the test.
func model() *inspect.Model { return &inspect.Model{Model: gguf.NewModel("test")} }

// put adds a matrix of a type.
func put(t *testing.T, m *inspect.Model, name string, typ quant.Type, rows, cols int, x []float64) {
	t.Helper()
	f := make([]float32, len(x))
	for i, v := range x {
		f[i] = float32(v)
	}
	var data []byte
	if typ == quant.F32 {
		for _, v := range f {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	} else {
		size := typ.RowBytes(cols)
		data = make([]byte, rows*size)
		for r := range rows {
			if err := quant.NewEncoder(typ, isa.Detect()).Encode(data[r*size:][:size], f[r*cols:][:cols], nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.Add(&gguf.Tensor{Name: name, Type: typ, Shape: []int{cols, rows}, Data: data, File: -1}); err != nil {
		t.Fatal(err)
	}
}

func compare(t *testing.T, a, b *inspect.Model, opt Options) *Report {
	t.Helper()
	opt.Width = linalg.WidthOf(isa.Best(isa.Detect()))
	opt.Workers = max(1, opt.Workers)
	last := 0.0
	opt.At = func(done float64) {
		if done < last-1e-9 || done > 1+1e-9 {
			t.Errorf("progress goes from %v to %v", last, done)
		}
		last = done
	}
	r, err := Of(t.Context(), a, b, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func normals(rng *rand.Rand, n int, sd float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = sd * rng.NormFloat64()
	}
	return x
}

// plus adds f·u·vᵀ of so many random directions.
func plus(rng *rand.Rand, x []float64, rows, cols, rank int, f float64) []float64 {
	y := append([]float64{}, x...)
	for range rank {
		u, v := normals(rng, rows, 1), normals(rng, cols, 1)
		for i := range u {
			for j := range v {
				y[i*cols+j] += f * u[i] * v[j]
			}
		}
	}
	return y
}

// A change of rank 8 is found in each type, one of all weights is not called low, noise is told from both; the figures are those
// that were planted, for any number of workers.
func TestRanks(t *testing.T) {
	const rows, cols = 160, 200
	for _, typ := range []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0} {
		rng := rand.New(rand.NewPCG(3, uint64(typ)))
		a, b := model(), model()
		base := normals(rng, rows*cols, 0.02)
		other := normals(rng, rows*cols, 0.004)
		full := append([]float64{}, base...)
		for i := range full {
			full[i] += other[i]
		}
		c := cols // rows of blocks of 32
		if typ == quant.Q8_0 {
			c = 192
		}
		cut := func(x []float64) (y []float64) {
			for r := range rows {
				y = append(y, x[r*cols:][:c]...)
			}
			return y
		}
		low := cut(plus(rng, base, rows, cols, 8, 0.002))
		base, full = cut(base), cut(full)
		for name, x := range map[string][]float64{"blk.0.equal.weight": base, "blk.0.low.weight": low, "blk.0.full.weight": full} {
			put(t, a, name, typ, rows, c, base)
			put(t, b, name, typ, rows, c, x)
		}
		put(t, a, "blk.0.rounded.weight", quant.F32, rows, c, base)
		put(t, b, "blk.0.rounded.weight", quant.BF16, rows, c, base)
		r := compare(t, a, b, Options{Rank: true})
		if more := compare(t, a, b, Options{Rank: true, Workers: 3}); !reflect.DeepEqual(r, more) {
			t.Errorf("%s: %+v, with three workers %+v", typ, r, more)
		}
		if r.Equal != 1 || len(r.Changed) != 3 || r.Same() {
			t.Fatalf("%s: %+v", typ, r)
		}
		want := map[string]Kind{"blk.0.low.weight": LowRank, "blk.0.full.weight": FullRank, "blk.0.rounded.weight": NoiseOnly}
		if typ == quant.Q8_0 {
			want["blk.0.low.weight"] = LowNoise
		}
		for _, x := range r.Changed {
			k := x.Ranks[0]
			if k.Kind != want[x.Name] || k.Short != rows {
				t.Errorf("%s %s: %+v, want %s", typ, x.Name, k, want[x.Name])
			}
			switch x.Name {
			case "blk.0.low.weight":
				if k.Spikes != 8 || k.Energy < 0.9 || k.Rank99 < 7 {
					t.Errorf("%s: %+v, want 8 directions", typ, k)
				}
				norm := 0.0
				for i := range base {
					norm += math.Pow(low[i]-base[i], 2)
				}
				if got := x.RMSE; math.Abs(got-math.Sqrt(norm/float64(len(base)))) > 0.02*got {
					t.Errorf("%s: RMSE %v, want %v", typ, got, math.Sqrt(norm/float64(len(base))))
				}
			case "blk.0.full.weight":
				if k.Spikes != 0 || math.Abs(k.Noise/0.004-1) > 0.05 || math.Abs(*x.Share-0.2) > 0.01 {
					t.Errorf("%s: %+v %v, want noise of 0.004", typ, k, *x.Share)
				}
			}
		}
	}
}

// A few large directions and small changes of all weights are both said.
func TestLowRankAndNoise(t *testing.T) {
	const rows, cols = 128, 256
	rng := rand.New(rand.NewPCG(5, 6))
	a, b := model(), model()
	base := normals(rng, rows*cols, 0.02)
	x := plus(rng, base, rows, cols, 3, 0.01)
	for i := range x {
		x[i] += 0.001 * rng.NormFloat64()
	}
	put(t, a, "w", quant.F32, rows, cols, base)
	put(t, b, "w", quant.F32, rows, cols, x)
	k := compare(t, a, b, Options{Rank: true}).Changed[0].Ranks[0]
	if k.Kind != LowNoise || k.Spikes != 3 {
		t.Errorf("%+v", k)
	}
	// Without rounding the directions are counted to the last digit.
	put(t, a, "v", quant.F32, rows, cols, make([]float64, rows*cols))
	put(t, b, "v", quant.F32, rows, cols, plus(rng, make([]float64, rows*cols), rows, cols, 2, 1))
	if k = compare(t, a, b, Options{Rank: true}).Changed[1].Ranks[0]; k.Kind != LowRank || k.Spikes != 2 {
		t.Errorf("%+v", k)
	}
	if c := compare(t, a, b, Options{}); c.Changed[0].Ranks != nil || c.Changed[1].Share != nil {
		t.Errorf("no ranks were asked for, and of a zero matrix there is no share: %+v", c)
	}
	if c := compare(t, a, b, Options{Rank: true, Memory: 1000}).Changed[0]; c.Ranks != nil || !strings.Contains(c.Left, "memory") {
		t.Errorf("%+v", c)
	}
	if c := compare(t, a, b, Options{Match: regexp.MustCompile("^v$")}); len(c.Changed) != 1 || c.Changed[0].Name != "v" {
		t.Errorf("%+v", c)
	}
}

// Tensors that only one has, other shapes, values that are not finite: each is said, the rest goes on.
func TestOthers(t *testing.T) {
	a, b := model(), model()
	x := make([]float64, 12)
	for _, m := range []*inspect.Model{a, b} {
		put(t, m, "same", quant.F32, 3, 4, x)
	}
	put(t, a, "gone", quant.F32, 3, 4, x)
	put(t, b, "new", quant.F32, 3, 4, x)
	put(t, a, "turned", quant.F32, 3, 4, x)
	put(t, b, "turned", quant.F32, 4, 3, x)
	bad := append([]float64{}, x...)
	bad[7] = math.Inf(-1)
	put(t, a, "bad", quant.F32, 3, 4, x)
	put(t, b, "bad", quant.F32, 3, 4, bad)
	r := compare(t, a, b, Options{Rank: true})
	if !reflect.DeepEqual(r.OnlyA, []string{"gone"}) || !reflect.DeepEqual(r.OnlyB, []string{"new"}) || r.Equal != 1 ||
		!reflect.DeepEqual(r.Shapes, []Shape{{"turned", []int{4, 3}, []int{3, 4}}}) {
		t.Errorf("%+v", r)
	}
	if len(r.Changed) != 1 || !strings.HasSuffix(r.Changed[0].Failed, "row 1, column 3 (from 0) is -Inf") || r.Changed[0].RMSE != 0 {
		t.Errorf("%+v", r.Changed)
	}
}

// Keys, tokens and templates are compared one by one.
func TestMetadata(t *testing.T) {
	a, b := model(), model()
	for i, m := range []*inspect.Model{a, b} {
		words := []string{"<unk>", "a", "b"}
		m.KV.Set("tokenizer.ggml.model", "llama")
		m.KV.Set("tokenizer.ggml.tokens", words[:3-i])
		m.KV.Set("tokenizer.ggml.scores", []float32{0, float32(math.NaN()), 1}[:3-i])
		m.KV.Set("tokenizer.ggml.token_type", []int32{2, 1, int32(1)}[:3-i])
		m.KV.Set("x.list", []float32{1, 2, float32(i), float32(math.NaN())})
		m.KV.Set("x.number", uint32(i))
		m.KV.Set("x.same", float32(math.NaN()))
		m.KV.Set("tokenizer.chat_template", "one\ntwo "+string(rune('0'+i)))
	}
	a.KV.Set("x.gone", "text")
	b.KV.Set("x.new", strings.Repeat("é", 70))
	r := compare(t, a, b, Options{})
	want := []Key{{"x.list", "changed in 1 of 4 elements", "[1 2 0 NaN]", "[1 2 1 NaN]"}, {"x.number", "changed", "0", "1"}, {"x.gone", "removed", "text", ""},
		{"x.new", "added", "", strings.Repeat("é", 59) + "…"}}
	if !reflect.DeepEqual(r.Metadata, want) {
		t.Errorf("%+v\nwant %+v", r.Metadata, want)
	}
	if r.Tokens == nil || len(r.Tokens.Changed) != 1 || r.Tokens.Changed[0].ID != 2 || r.Tokens.Changed[0].B != nil || r.Tokens.Changed[0].A.Piece != "b" {
		t.Errorf("%+v", r.Tokens)
	}
	if !strings.Contains(r.Template, "-two 0\n+two 1\n") {
		t.Errorf("%s", r.Template)
	}
	if same := compare(t, a, a, Options{Rank: true}); !same.Same() {
		t.Errorf("a model differs from itself: %+v", same)
	}
}
