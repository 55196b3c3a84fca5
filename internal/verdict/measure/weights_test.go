package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	gm "gonum.org/v1/gonum/mat"

	"ck/internal/gguf"
	"ck/internal/inspect"
	"ck/internal/isa"
	"ck/internal/linalg"
	"ck/internal/quant"
	"ck/internal/spectra"
	"ck/internal/synth"
	"ck/internal/verdict"
)

// gaussian is a model of one class with so many layers, changed by plants.
func gaussian(t *testing.T, layers, rows, cols int, plants ...synth.Plant) *inspect.Model {
	t.Helper()
	m := &inspect.Model{Model: gguf.NewModel("test")}
	for l := range layers {
		rng := rand.New(rand.NewPCG(7, uint64(l)))
		x := make([]float32, rows*cols)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		name := fmt.Sprintf("blk.%d.ffn_up.weight", l)
		for _, p := range plants {
			p(name, rows, cols, x)
		}
		add(t, m, name, cols, rows, x)
	}
	return m
}

func add(t *testing.T, m *inspect.Model, name string, cols, rows int, x []float32) {
	t.Helper()
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	if err := m.Add(&gguf.Tensor{Name: name, Type: quant.F32, Shape: []int{cols, rows}, Data: b, File: -1}); err != nil {
		t.Fatal(err)
	}
}

// weigh takes the figures of a model.
func weigh(t *testing.T, m *inspect.Model, workers int) (*verdict.Figures, []Left) {
	t.Helper()
	list, _, err := m.Matrices(nil)
	if err != nil {
		t.Fatal(err)
	}
	f := new(verdict.Figures)
	last := 0.0
	left, err := Weights(t.Context(), m, list, f, Options{Workers: workers, Width: linalg.WidthOf(isa.Best(isa.Detect())),
		At: func(done float64) { last = max(last, done) }})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(last-1) > 1e-9 {
		t.Errorf("progress ends at %v", last)
	}
	return f, left
}

// spikes makes one element of 200 large.
func spikes(size float32) synth.Plant {
	return func(_ string, _, _ int, x []float32) {
		for i := 0; i < len(x); i += 200 {
			x[(i+i/200*37%200)%len(x)] += size
		}
	}
}

// Every claim on weights holds for a model that is built so, and not for Gaussian weights.
func TestClaims(t *testing.T) {
	const side = 1024 // as claims on ranks need it
	large, small := gaussian(t, 1, side, side), gaussian(t, 8, 64, 80)
	cases := map[string]struct{ yes, no *inspect.Model }{
		"entropy-3.6":       {gaussian(t, 2, 64, 64, synth.Levels(12, 1)), small},
		"rank-5-99":         {gaussian(t, 1, side, side, synth.LowRank(20, 0.02, 1)), large},
		"low-rank-outliers": {gaussian(t, 1, side, side, synth.LowRank(20, 0.02, 1), spikes(3)), large},
		"correlation-0.3":   {gaussian(t, 8, 64, 80, synth.Alike(0.3, 1)), small},
		"residue-8-15":      {gaussian(t, 8, 64, 80, synth.Alike(0.8, 1)), gaussian(t, 8, 64, 80, synth.Alike(0.3, 1))},
		"layers-alike":      {gaussian(t, 8, 64, 80, synth.Alike(0.97, 1)), gaussian(t, 8, 64, 80, synth.Alike(0.8, 1))},
		"layers-between":    {gaussian(t, 8, 64, 80, synth.Alike(0.95, 1)), gaussian(t, 8, 64, 80, synth.Alike(0.8, 1))},
	}
	for id, c := range cases {
		for m, want := range map[*inspect.Model]verdict.Answer{c.yes: verdict.Yes, c.no: verdict.No} {
			f, _ := weigh(t, m, 2)
			if r := row(t, f, id); r.Holds != want {
				t.Errorf("%s: %+v, want %s", id, r, want)
			}
		}
	}
	f, _ := weigh(t, cases["low-rank-outliers"].yes, 2)
	if r := row(t, f, "rank-5-99"); r.Holds != verdict.No {
		t.Errorf("a low rank with spikes: %+v", r)
	}
	f, _ = weigh(t, gaussian(t, 8, 64, 80, synth.LowRank(2, 0.01, 1)), 2)
	if r := row(t, f, "rank-5-99"); r.Holds != verdict.Untold {
		t.Errorf("narrow matrices: %+v", r)
	}
}

// row is the verdict on a claim.
func row(t *testing.T, f *verdict.Figures, id string) verdict.Row {
	t.Helper()
	for _, r := range verdict.Judge(f) {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("no claim %s", id)
	return verdict.Row{}
}

// The figures are those of a plain computation, for any number of workers.
func TestFigures(t *testing.T) {
	const rows, cols, k = 60, 40, 2
	m := gaussian(t, 3, rows, cols, synth.LowRank(k, 0.05, 3), spikes(2))
	f, left := weigh(t, m, 1)
	if more, _ := weigh(t, m, 3); !reflect.DeepEqual(f, more) || len(left) != 0 || len(f.Matrices) != 3 || len(f.Pairs) != 2 || f.Sample != "" {
		t.Fatalf("%+v, with more workers %+v; left out %v", f, more, left)
	}
	for l, got := range f.Matrices {
		x := mat(m, l)
		var svd gm.SVD
		svd.Factorize(x, gm.SVDThin)
		var u, v gm.Dense
		svd.UTo(&u)
		svd.VTo(&v)
		s := svd.Values(nil)
		all, most := gm.Norm(x, 2)*gm.Norm(x, 2), 0.0
		rest := gm.DenseCopyOf(x)
		for i := range k {
			most += s[i] * s[i]
			rest.RankOne(rest, -s[i], u.ColView(i), v.ColView(i))
		}
		var sizes []float64
		for _, e := range rest.RawMatrix().Data {
			sizes = append(sizes, e*e)
		}
		for range rows * cols / 100 {
			at := 0
			for i, e := range sizes {
				if e > sizes[at] {
					at = i
				}
			}
			most += sizes[at]
			sizes[at] = 0
		}
		if math.Abs(got.Energy-(s[0]*s[0]+s[1]*s[1])/all) > 1e-9 || math.Abs(got.Outliers-most/all) > 1e-6 {
			t.Errorf("layer %d: %+v, want outliers %v", l, got, most/all)
		}
	}
	if p := f.Pairs[0]; p.Class != "ffn_up" || p.Layer != 1 || p.Layers != 3 || p.Between < 0 || f.Pairs[1].Between >= 0 {
		t.Errorf("%+v", f.Pairs)
	}
}

// mat is a layer's matrix.
func mat(m *inspect.Model, layer int) *gm.Dense {
	x := m.Tensor(fmt.Sprintf("blk.%d.ffn_up.weight", layer))
	d, row := gm.NewDense(x.Rows(), x.Cols(), nil), make([]float32, x.Cols())
	for r := range x.Rows() {
		quant.Decode(x.Type, row, x.Row(r))
		for c, v := range row {
			d.Set(r, c, float64(v))
		}
	}
	return d
}

// What cannot be measured is left out, with its place; the others are measured.
func TestLeft(t *testing.T) {
	bad := func(name string, _, cols int, x []float32) {
		switch {
		case strings.HasPrefix(name, "blk.1."):
			x[3*cols+5] = float32(math.Inf(1))
		case strings.HasPrefix(name, "blk.2."):
			clear(x)
		}
	}
	f, left := weigh(t, gaussian(t, 5, 64, 80, bad), 2)
	want := []Left{{"blk.1.ffn_up.weight", "row 3, column 5 (from 0) is +Inf"}, {"blk.2.ffn_up.weight", "is zero"}}
	if !reflect.DeepEqual(left, want) || len(f.Matrices) != 3 {
		t.Errorf("left out %v, want %v; measured %+v", left, want, f.Matrices)
	}
	for _, p := range f.Pairs {
		if p.Layer == 1 || p.Layer == 2 {
			t.Errorf("a pair of what is not finite: %+v", p)
		}
	}
	one := gaussian(t, 1, 64, 80, bad)
	add(t, one, "blk.1.attn_q.weight", 32, 32, append(make([]float32, 1023), float32(math.NaN())))
	add(t, one, "blk.0.gate.weight", 32, 8, make([]float32, 256)) // too narrow
	if f, left := weigh(t, one, 2); len(f.Matrices) != 1 || len(left) != 1 || left[0].Why != "row 31, column 31 (from 0) is NaN" {
		t.Errorf("%+v, left out %v", f.Matrices, left)
	}
}

// Of large models the first, middle and last layer of each class are taken, and one expert.
func TestSample(t *testing.T) {
	var list []inspect.Matrix
	for l := range 9 {
		for e := range 4 {
			list = append(list, inspect.Matrix{Class: "ffn_up_exps", Layer: l, Slice: e, Rows: 1024, Cols: 1024})
		}
		list = append(list, inspect.Matrix{Class: "attn_q", Layer: l, Rows: 512, Cols: 1024})
	}
	list = append(list, inspect.Matrix{Class: "token_embd", Layer: -1, Rows: 512, Cols: 1024}, inspect.Matrix{Class: "gate", Rows: 8, Cols: 1024})
	var got []string
	for _, x := range sample(layered(list)) {
		got = append(got, fmt.Sprint(x.Class, x.Layer, x.Slice))
	}
	if want := "[ffn_up_exps0 0 attn_q0 0 ffn_up_exps4 0 attn_q4 0 ffn_up_exps8 0 attn_q8 0]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if n := len(sample(list[:30])); n != 30 {
		t.Errorf("%d of 30 matrices of a small model", n)
	}
	if n := len(layered(list[45:46])); n != 1 {
		t.Error("a model without layers has no matrix")
	}
	var memory *spectra.MemoryError
	if err := check(list, 1<<20); !errors.As(err, &memory) || check(list, 0) != nil || check(list, 1<<30) != nil {
		t.Errorf("1 MiB for %v", err)
	}
}
