package quality

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

func randomLogits(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(3 * rng.NormFloat64())
	}
	return v
}

// fullKLD is the divergence over all tokens, by its definition.
func fullKLD(p, q []float32) float64 {
	np, nq, sum := logNorm(p), logNorm(q), 0.0
	for i := range p {
		lp, lq := float64(p[i])-np, float64(q[i])-nq
		sum += math.Exp(lp) * (lp - lq)
	}
	return sum
}

func TestPosition(t *testing.T) {
	p := At([]float32{0, 5, 1, 5, 4}, 2, 3)
	if !slices.Equal(p.IDs, []int32{1, 3, 4}) || p.Token != 2 {
		t.Errorf("%+v", p)
	}
	z := math.Log(1 + 2*math.Exp(5) + math.E + math.Exp(4))
	if !near(float64(p.LogProb), 1-z, 1e-6) || !near(float64(p.Logs[0]), 5-z, 1e-6) {
		t.Errorf("%+v, want %g", p, 1-z)
	}
}

// Against itself a model has no divergence; against another one, with all tokens kept, the true one, and with few
// kept no more.
func TestTally(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var same, all, few Tally
	truth, nll, n := 0.0, 0.0, 0
	for range 4 {
		same.Block()
		all.Block()
		few.Block()
		for range 10 {
			a, b := randomLogits(rng, 500), randomLogits(rng, 500)
			for i := range b {
				b[i] = a[i] + 0.3*b[i]
			}
			token := int32(rng.IntN(500))
			full, short := At(a, token, 500), At(a, token, 40)
			same.Add(a, token, &short)
			all.Add(b, token, &full)
			few.Add(b, token, &short)
			truth += fullKLD(a, b)
			nll -= float64(b[token]) - logNorm(b)
			n++
		}
	}
	truth /= float64(n)
	if k, ok := same.KLD(); !ok || k.Value > 1e-5 {
		t.Errorf("to itself: %g", k.Value)
	}
	if a, _ := same.Agreement(); a.Value != 1 {
		t.Errorf("agreement with itself %g", a.Value)
	}
	if r, _ := same.RMSProb(); r.Value > 1e-6 {
		t.Errorf("difference to itself %g", r.Value)
	}
	if k, _ := all.KLD(); !near(k.Value, truth, 1e-4) || k.Lo >= k.Value || k.Hi <= k.Value {
		t.Errorf("all tokens: %+v, want %g", k, truth)
	}
	if k, _ := few.KLD(); k.Value > truth || k.Value < 0.5*truth {
		t.Errorf("few tokens: %g of %g", k.Value, truth)
	}
	if p := few.Perplexity(); !near(p.Value, math.Exp(nll/float64(n)), 1e-9) || p.Lo >= p.Value {
		t.Errorf("perplexity %+v, want %g", p, math.Exp(nll/float64(n)))
	}
	var none Tally
	none.Block()
	none.Add([]float32{0, 0, 0, 0}, 1, nil)
	if p := none.Perplexity(); !near(p.Value, 4, 1e-9) || p.Lo != p.Hi {
		t.Errorf("uniform: %+v", p)
	}
	if _, ok := none.KLD(); ok {
		t.Error("a divergence without a base")
	}
}

func TestBaseFile(t *testing.T) {
	var b bytes.Buffer
	head := BaseHead{Model: "m", Block: 64, Vocab: 500, Top: 8, Positions: 2}
	if err := WriteBaseHead(&b, head); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(2, 2))
	var want []Position
	for range 2 {
		p := At(randomLogits(rng, 500), 3, 8)
		want = append(want, p)
		if err := WritePosition(&b, p); err != nil {
			t.Fatal(err)
		}
	}
	r, err := NewBaseReader(bytes.NewReader(b.Bytes()))
	if err != nil || r.Head.Model != "m" {
		t.Fatal(r, err)
	}
	for i, w := range want {
		p, err := r.Next()
		if err != nil || p.Token != w.Token || p.LogProb != w.LogProb || !slices.Equal(p.IDs, w.IDs) ||
			!slices.Equal(p.Logs, w.Logs) {
			t.Errorf("position %d: %+v, %v", i, p, err)
		}
	}
	if _, err := r.Next(); err == nil {
		t.Error("there is no third position")
	}
	body := b.Len() - 2*(8+8*8)
	for name, bad := range map[string]struct {
		at   int // in the second position
		bits uint32
	}{
		"token": {0, 500}, "negative token": {0, 1 << 31}, "NaN": {4, 0x7fc00000}, "infinite": {4, 0xff800000},
		"above 0": {4, math.Float32bits(0.5)},
		"id":      {8, 500}, "NaN in the list": {8 + 4*8 + 4*7, 0x7fc00000}, "infinite in the list": {8 + 4*8,
			0x7f800000},
	} {
		data := bytes.Clone(b.Bytes())
		binary.LittleEndian.PutUint32(data[body+8+8*8+bad.at:], bad.bits)
		r, err := NewBaseReader(bytes.NewReader(data))
		if err == nil {
			_, err = r.Next()
		}
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := r.Next(); err == nil || !strings.Contains(err.Error(), "position 1: token") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range body { // cut anywhere in the head
		if _, err := NewBaseReader(bytes.NewReader(b.Bytes()[:n])); err == nil {
			t.Fatalf("%d bytes of a head are read", n)
		}
	}
}

// FuzzBase: any bytes give an error or positions, and neither a crash nor much memory.
func FuzzBase(tf *testing.F) {
	f := testkit.Fuzz(tf)
	var b bytes.Buffer
	if err := WriteBaseHead(&b, BaseHead{Block: 4, Vocab: 9, Top: 2, Positions: 1}); err != nil {
		f.Fatal(err)
	}
	if err := WritePosition(&b, At([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1, 2)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(baseMagic + "\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := NewBaseReader(bytes.NewReader(data))
		for err == nil {
			_, err = r.Next()
		}
	})
}

func TestStudent95(t *testing.T) {
	for free, want := range map[int]float64{1: 12.706, 2: 4.303, 30: 2.042, 31: 2.0395, 60: 2.0003, 120: 1.9799,
		1 << 30: 1.95996} {
		if got := student95(free); !near(got, want, 0.003) {
			t.Errorf("%d degrees of freedom: %g, want %g", free, got, want)
		}
	}
	// The interval of two blocks holds the truth in 95 % of all cases.
	rng := rand.New(rand.NewPCG(8, 9))
	held := 0
	const cases = 4000
	for range cases {
		var q Tally
		for range 2 {
			q.Block()
			q.blocks[len(q.blocks)-1] = blockSums{n: 1, nll: rng.NormFloat64()}
		}
		if m := q.mean(func(b *blockSums) float64 { return b.nll }); m.Lo <= 0 && 0 <= m.Hi {
			held++
		}
	}
	if share := float64(held) / cases; share < 0.935 || share > 0.965 {
		t.Errorf("the interval of two blocks holds the truth in %.1f %% of all cases", 100*share)
	}
}

// near reports whether a is b, up to a relative error where b is above 1.
func near(a, b, tol float64) bool { return math.Abs(a-b) <= tol*max(1, math.Abs(b)) }
