package correlate

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/inspect"
	"ck/internal/isa"
	"ck/internal/linalg"
	"ck/internal/quant"
)

// layers is a model of one class, with these elements.
func layers(t *testing.T, rows, cols int, data [][]float32) *inspect.Model {
	t.Helper()
	m := &inspect.Model{Model: gguf.NewModel("test")}
	for l, x := range data {
		var b []byte
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		if err := m.Add(&gguf.Tensor{Name: fmt.Sprintf("blk.%d.ffn_up.weight", l), Type: quant.F32, Shape: []int{cols, rows}, Data: b, File: -1}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func measure(t *testing.T, m *inspect.Model, opt Options) []Class {
	t.Helper()
	list, _, err := m.Matrices(nil)
	if err != nil {
		t.Fatal(err)
	}
	groups, _ := Groups(list)
	opt.Width = linalg.WidthOf(isa.Best(isa.Detect()))
	classes, err := Of(context.Background(), m, groups, opt)
	if err != nil {
		t.Fatal(err)
	}
	return classes
}

// mixed is layers of which each has the correlation r with the one before it, a mean, and a scale of its own.
func mixed(rng *rand.Rand, n, size int, r float64) [][]float32 {
	list, before := make([][]float32, n), make([]float64, size)
	for l := range list {
		list[l] = make([]float32, size)
		for i := range before {
			x := rng.NormFloat64()
			if l > 0 {
				x = r*before[i] + math.Sqrt(1-r*r)*x
			}
			before[i] = x
			list[l][i] = float32(0.5 + float64(l+1)*x)
		}
	}
	return list
}

// All sums are those of a plain loop; the figures follow from them; nothing depends on the number of workers.
func TestBruteForce(t *testing.T) {
	const rows, cols, n = 150, 900, 5
	data := mixed(rand.New(rand.NewPCG(1, 2)), n, rows*cols, 0.3)
	m := layers(t, rows, cols, data)
	var first []Class
	for _, w := range []int{1, 2, 5} {
		c := measure(t, m, Options{Workers: w, Codes: true, Subspace: 4})
		if first == nil {
			first = c
		}
		if !reflect.DeepEqual(c, first) {
			t.Errorf("%d workers: other figures", w)
		}
	}
	c := first[0]
	if len(first) != 1 || c.Name != "ffn_up" || c.Shape != [2]int{rows, cols} || len(c.Pairs) != n-1 {
		t.Fatalf("%+v", c)
	}
	dot := func(a, b []float32, ma, mb float64) (sum float64) {
		for i := range a {
			sum += (float64(a[i]) - ma) * (float64(b[i]) - mb)
		}
		return sum
	}
	mean := func(a []float32) (sum float64) {
		for _, v := range a {
			sum += float64(v)
		}
		return sum / float64(len(a))
	}
	for i := range n {
		for j := range n {
			a, b := data[i], data[j]
			cos := dot(a, b, 0, 0) / math.Sqrt(dot(a, a, 0, 0)*dot(b, b, 0, 0))
			ma, mb := mean(a), mean(b)
			cor := dot(a, b, ma, mb) / math.Sqrt(dot(a, a, ma, ma)*dot(b, b, mb, mb))
			if math.Abs(c.Cosine[i][j]-cos) > 1e-9 || math.Abs(c.Correlation[i][j]-cor) > 1e-9 {
				t.Errorf("layers %d, %d: cosine %v, want %v; correlation %v, want %v", i, j, c.Cosine[i][j], cos, c.Correlation[i][j], cor)
			}
		}
	}
	for k, p := range c.Pairs {
		if p.First != k || p.Second != k+1 || math.Abs(p.Correlation-0.3) > 0.01 || math.Abs(p.Gaussian-0.068) > 0.005 {
			t.Errorf("pair %d: %+v", k, p)
		}
		if p.Measured == nil || math.Abs(*p.Measured-p.Gaussian) > 0.03 {
			t.Errorf("pair %d: codes save %v, a Gaussian %v", k, *p.Measured, p.Gaussian)
		}
		// Of four directions one is common to all: the mean.
		if p.Overlap == nil || *p.Random != 4./cols || *p.Overlap < 0.05 || *p.Overlap > 0.3 || *p.Largest*(*p.Largest) < 2**p.Overlap {
			t.Errorf("pair %d: overlap %v beside %v", k, *p.Overlap, *p.Random)
		}
		// behind the best mix of both neighbours, found by trying
		if k+2 < n {
			best := math.Inf(1)
			a, b, y := data[k], data[k+2], data[k+1]
			aa, bb, ab, ay, by, yy := dot(a, a, 0, 0), dot(b, b, 0, 0), dot(a, b, 0, 0), dot(a, y, 0, 0), dot(b, y, 0, 0), dot(y, y, 0, 0)
			for u := -3.0; u <= 3; u += 0.002 {
				v := (by - u*ab) / bb
				best = min(best, (yy+u*u*aa+v*v*bb+2*u*v*ab-2*u*ay-2*v*by)/yy)
			}
			if math.Abs(*p.Between-best) > 1e-5 {
				t.Errorf("pair %d: %v is left between, want %v", k, *p.Between, best)
			}
		}
	}
}

// Equal layers, multiples, opposite and independent ones are what they are; a layer with a NaN is left out by name.
func TestExtremes(t *testing.T) {
	const rows, cols = 40, 64
	rng := rand.New(rand.NewPCG(3, 4))
	a := mixed(rng, 1, rows*cols, 0)[0]
	twice, minus, zero, bad, free := make([]float32, len(a)), make([]float32, len(a)), make([]float32, len(a)), make([]float32, len(a)), mixed(rng, 1, len(a), 0)[0]
	for i, v := range a {
		twice[i], minus[i], bad[i] = 2*v, -v, v
	}
	bad[2*cols+3] = float32(math.Inf(1))
	c := measure(t, layers(t, rows, cols, [][]float32{a, twice, bad, minus, zero, free}), Options{Workers: 2, Subspace: 5, Codes: true})[0]
	if len(c.Failed) != 1 || c.Failed[0] != "blk.2.ffn_up.weight: row 2, column 3 (from 0) is +Inf" || !reflect.DeepEqual(c.Layers, []int{0, 1, 3, 4, 5}) {
		t.Errorf("failed %q, layers %v", c.Failed, c.Layers)
	}
	for k, want := range []struct{ r, left, bits float64 }{{1, 0, mostBits}, {-1, 0, mostBits}, {0, 1, 0}, {0, 1, 0}} {
		p := c.Pairs[k]
		if math.Abs(p.Correlation-want.r) > 1e-7 || math.Abs(p.Left-want.left) > 1e-7 || p.Gaussian < want.bits-20 || want.bits == 0 && p.Gaussian > 1e-7 {
			t.Errorf("pair %d: %+v", k, p)
		}
	}
	if o := *c.Pairs[0].Overlap; math.Abs(o-1) > 1e-9 {
		t.Errorf("a layer and its double overlap by %v", o)
	}
	if r := c.Correlation[0][4]; math.Abs(r) > 0.1 {
		t.Errorf("independent layers have the correlation %v", r)
	}
}

// Groups are by class, shape and expert; what stands alone is said.
func TestGroups(t *testing.T) {
	m := &inspect.Model{Model: gguf.NewModel("test")}
	add := func(name string, shape ...int) {
		n := 4
		for _, s := range shape {
			n *= s
		}
		if err := m.Add(&gguf.Tensor{Name: name, Type: quant.F32, Shape: shape, Data: make([]byte, n), File: -1}); err != nil {
			t.Fatal(err)
		}
	}
	add("token_embd.weight", 4, 8)
	add("blk.1.a.weight", 4, 2)
	add("blk.0.a.weight", 4, 2)
	add("blk.2.a.weight", 4, 3)
	add("blk.0.e.weight", 4, 2, 2)
	add("blk.1.e.weight", 4, 2, 2)
	list, _, err := m.Matrices(nil)
	if err != nil {
		t.Fatal(err)
	}
	groups, alone := Groups(list)
	var got []string
	for _, g := range groups {
		var names []string
		for _, x := range g {
			names = append(names, x.Name)
		}
		got = append(got, nameOf(g)+": "+strings.Join(names, " "))
	}
	want := []string{"a: blk.0.a.weight blk.1.a.weight", "e[0]: blk.0.e.weight[0] blk.1.e.weight[0]", "e[1]: blk.0.e.weight[1] blk.1.e.weight[1]"}
	if !reflect.DeepEqual(got, want) || len(alone) != 2 || alone[0].Why != "is of no layer" || alone[1].Name != "blk.2.a.weight" {
		t.Errorf("%q, %v", got, alone)
	}
}

// A journal gives what was kept.
func TestJournal(t *testing.T) {
	m := layers(t, 20, 30, mixed(rand.New(rand.NewPCG(5, 6)), 3, 600, 0.5))
	path := filepath.Join(t.TempDir(), "j")
	var first []Class
	for range 2 {
		j, err := inspect.OpenJournal(path, m.Key("correlate"))
		if err != nil {
			t.Fatal(err)
		}
		c := measure(t, m, Options{Workers: 1, Journal: j})
		j.Close()
		if first == nil {
			first = c
		}
		if !reflect.DeepEqual(c, first) {
			t.Error("kept results differ")
		}
	}
}
