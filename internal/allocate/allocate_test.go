package allocate

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/quant"
)

// random is tensors with random options.
func random(rng *rand.Rand, n, options int) ([]Tensor, map[string]float64) {
	classes := []string{"a", "b", "c"}
	var list []Tensor
	for i := range n {
		t := Tensor{Class: classes[i%3], Weights: 1000, Entropy: 4 + rng.Float64()*3}
		for j := range options {
			t.Options = append(t.Options, Option{Name: string(rune('A' + j)), Error: rng.Float64(),
				Bytes: 1 + rng.Int64N(50), Read: 1 + rng.Int64N(50)})
		}
		list = append(list, t)
	}
	return list, map[string]float64{"a": 1, "b": 0.1, "c": 7}
}

// all is every choice.
func all(tensors []Tensor, sensitivity map[string]float64, f func(Choice)) {
	pick := make([]int, len(tensors))
	for {
		f(Of(tensors, pick, sensitivity))
		i := 0
		for ; i < len(pick); i++ {
			if pick[i]++; pick[i] < len(tensors[i].Options) {
				break
			}
			pick[i] = 0
		}
		if i == len(pick) {
			return
		}
	}
}

// No choice of all has less divergence and a lower price than one of the frontier, and the frontier has the cheapest
// and the best.
func TestFrontier(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		tensors, sens := random(rng, 5, 4)
		for name, price := range map[string]func(c *Choice) int64{"size": func(c *Choice) int64 { return c.Bytes },
			"speed": func(c *Choice) int64 { return c.Read }} {
			p := Size
			if name == "speed" {
				p = Speed
			}
			f := Frontier(tensors, sens, p)
			cheapest, least := int64(math.MaxInt64), math.Inf(1)
			all(tensors, sens, func(c Choice) {
				cheapest, least = min(cheapest, price(&c)), min(least, c.Divergence)
				for i := range f {
					if price(&c) <= price(&f[i]) && c.Divergence < f[i].Divergence-1e-12 {
						t.Fatalf("%s: %+v beats %+v", name, c, f[i])
					}
				}
			})
			if price(&f[0]) != cheapest || math.Abs(f[len(f)-1].Divergence-least) > 1e-12 {
				t.Errorf("%s: from %d to %g, want %d and %g", name, price(&f[0]), f[len(f)-1].Divergence, cheapest,
					least)
			}
			for i := range f[1:] {
				if price(&f[i+1]) <= price(&f[i]) || f[i+1].Divergence >= f[i].Divergence {
					t.Errorf("%s: %d is no step up", name, i)
				}
			}
		}
	}
}

func TestWithin(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	tensors, sens := random(rng, 6, 4)
	f := Frontier(tensors, sens, Size)
	for _, bytes := range []int64{f[0].Bytes, f[len(f)/2].Bytes, f[len(f)-1].Bytes + 5} {
		c, err := Within(f, bytes)
		if err != nil || c.Bytes > bytes {
			t.Errorf("%v, %d bytes of %d", err, c.Bytes, bytes)
		}
		full := Fill(tensors, sens, Size, c, bytes)
		if full.Bytes > bytes || full.Divergence > c.Divergence {
			t.Errorf("filled: %d bytes of %d, divergence %g, before %g", full.Bytes, bytes, full.Divergence,
				c.Divergence)
		}
		for i := range tensors { // nothing more fits
			for j := range tensors[i].Options {
				pick := slices.Clone(full.Pick)
				pick[i] = j
				if o := Of(tensors, pick, sens); o.Bytes <= bytes && o.Bytes > full.Bytes &&
					o.Divergence < full.Divergence {
					t.Errorf("tensor %d with option %d fits and is better", i, j)
				}
			}
		}
		e, err := ByEntropy(tensors, sens, bytes+100)
		if err != nil || e.Bytes > bytes+100 {
			t.Errorf("by entropy: %v, %d bytes of %d", err, e.Bytes, bytes)
		}
	}
	if _, err := Within(f, f[0].Bytes-1); err == nil {
		t.Error("smaller than the smallest")
	}
	c, err := Below(f, f[3].Divergence)
	if err != nil || c.Bytes != f[3].Bytes {
		t.Errorf("%v, %d bytes, want %d", err, c.Bytes, f[3].Bytes)
	}
	if _, err := Below(f, f[len(f)-1].Divergence/2); err == nil {
		t.Error("nearer than the nearest")
	}
}

// Whatever the price, what is left of a size is spent: no change of one tensor fits and saves divergence.
func TestBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		tensors, sens := random(rng, 6, 4)
		sizes := Frontier(tensors, sens, Size)
		for name, price := range map[string]Price{"size": Size, "speed": Speed} {
			for _, bytes := range []int64{sizes[0].Bytes, sizes[len(sizes)/2].Bytes + 3, sizes[len(sizes)-1].Bytes} {
				c, err := Best(tensors, sens, price, bytes, nil)
				if err != nil || c.Bytes > bytes {
					t.Fatalf("%s: %v, %d bytes of %d", name, err, c.Bytes, bytes)
				}
				if w, err := Within(Frontier(tensors, sens, price), bytes); err == nil &&
					w.Divergence < c.Divergence {
					t.Errorf("%s: divergence %g, the frontier has %g", name, c.Divergence, w.Divergence)
				}
				bySize, err := Best(tensors, sens, Size, bytes, nil)
				if err != nil || bySize.Divergence < c.Divergence && bySize.Read <= c.Read {
					t.Errorf("%s: %d bytes read and divergence %g, by size %d and %g", name, c.Read, c.Divergence, bySize.Read, bySize.Divergence)
				}
				for i := range tensors {
					for j := range tensors[i].Options {
						pick := slices.Clone(c.Pick)
						pick[i] = j
						if o := Of(tensors, pick, sens); o.Bytes <= bytes && o.Divergence < c.Divergence {
							t.Errorf("%s: tensor %d with option %d fits in %d bytes and is better", name, i, j, bytes)
						}
					}
				}
			}
		}
		if _, err := Best(tensors, sens, Speed, sizes[0].Bytes-1, nil); err == nil {
			t.Error("smaller than the smallest")
		}
	}
}

// Of two changes that fit, the one that saves as much for a lower price is taken, though it takes more of the size.
func TestBestPrice(t *testing.T) {
	option := func(e float64, bytes, read int64) Option { return Option{Error: e, Bytes: bytes, Read: read} }
	tensors := []Tensor{
		{Class: "a", Options: []Option{option(2, 10, 10), option(1, 16, 12), option(0, 40, 14)}},
		{Class: "a", Options: []Option{option(2, 10, 10), option(1, 14, 18), option(0, 40, 26)}},
	}
	sens := map[string]float64{"a": 1}
	for _, c := range []struct {
		price Price
		want  []int
	}{{Speed, []int{1, 0}}, {Size, []int{0, 1}}} {
		if got, err := Best(tensors, sens, c.price, 27, nil); err != nil || !slices.Equal(got.Pick, c.want) {
			t.Errorf("%v, %v, expected %v", got.Pick, err, c.want)
		}
	}
	also := []Choice{Of(tensors, []int{2, 0}, sens)}
	if got, err := Best(tensors, sens, Size, 50, also); err != nil || got.Divergence > 2 {
		t.Errorf("%+v, %v, expected no worse than what else there is", got, err)
	}
}

func TestPrune(t *testing.T) {
	tensors := []Tensor{
		{Options: []Option{{Name: "A", Error: 1, Bytes: 10}, {Name: "B", Error: 1, Bytes: 9},
			{Name: "C", Error: 0.5, Bytes: 20}, {Name: "D", Error: 0.6, Bytes: 20}}},
		{Options: []Option{{Name: "A", Error: 1, Bytes: 10}, {Name: "B", Error: 0.9, Bytes: 10},
			{Name: "C", Error: 0.5, Bytes: 20}, {Name: "D", Error: 0.4, Bytes: 20}}},
	}
	out, beaten := Prune(tensors, Size)
	if len(beaten) != 1 || beaten[0] != (Beaten{"A", "B"}) || len(out[0].Options) != 3 ||
		len(tensors[0].Options) != 4 {
		t.Errorf("%v, %d options", beaten, len(out[0].Options))
	}
}

// Errors are those of the whole tensor where the sample is that, weighed by importances, of each matrix by its own.
func TestMeasure(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	m := gguf.NewModel("m")
	const cols, rows, matrices = 64, 20, 3
	x := make([]float32, cols*rows*matrices)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	b := make([]byte, 4*len(x))
	if err := quant.Quantize(quant.F32, b, x, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Add(&gguf.Tensor{Name: "blk.0.ffn_up_exps.weight", Type: quant.F32,
		Shape: []int{cols, rows, matrices}, Data: b, File: -1}); err != nil {
		t.Fatal(err)
	}
	imp := make([]float32, cols*matrices)
	for i := range imp {
		imp[i] = rng.Float32() + 0.01
	}
	for _, w := range [][]float32{nil, imp} {
		list, err := Measure(context.Background(), m, func(*gguf.Tensor) bool { return true },
			[]quant.Type{quant.Q4_0, quant.Q8_0, quant.Q4_K, quant.F16},
			func(*gguf.Tensor) []float32 { return w },
			func(t *gguf.Tensor, _ quant.Type) int64 { return int64(7 * t.Rows()) }, isa.Detect(), 2,
			func(int64) {})
		if err != nil || len(list) != 1 || list[0].Class != "ffn_up_exps" || len(list[0].Options) != 3 {
			t.Fatalf("%v, %+v; want Q4_0, Q8_0 and F16: rows are too short for Q4_K", err, list)
		}
		for _, o := range list[0].Options {
			var wrong, square float64
			for r := range rows * matrices {
				row := x[r*cols:][:cols]
				var rw []float32
				if w != nil {
					rw = w[r/rows*cols:][:cols]
				}
				y, q := make([]float32, cols), make([]byte, o.Type.RowBytes(cols))
				if err := quant.Quantize(o.Type, q, row, rw); err != nil {
					t.Fatal(err)
				}
				quant.Decode(o.Type, y, q)
				for i := range row {
					f := 1.0
					if rw != nil {
						f = float64(rw[i])
					}
					d := float64(row[i]) - float64(y[i])
					wrong, square = wrong+f*d*d, square+f*float64(row[i])*float64(row[i])
				}
			}
			if math.Abs(o.Error/(wrong/square)-1) > 1e-9 || o.Read != 7*rows*matrices ||
				o.Bytes != int64(rows*matrices*o.Type.RowBytes(cols)) {
				t.Errorf("%s: %+v, want an error of %g", o.Name, o, wrong/square)
			}
		}
		if e := list[0].Entropy; e < 5 || e > 7.9 {
			t.Errorf("entropy %g", e)
		}
	}
}
