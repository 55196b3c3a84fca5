package generate

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// refDistribution is what the filters leave, in the plain way: sort everything, cut three times, scale. It returns ids and probabilities.
func refDistribution(logits []float32, last []int32, p Params) ([]int32, []float64) {
	l := make([]float64, len(logits))
	for i, v := range logits {
		l[i] = float64(v)
	}
	if p.RepeatLastN >= 0 {
		last = last[max(0, len(last)-p.RepeatLastN):]
	}
	seen := map[int32]bool{}
	for _, id := range last {
		if p.RepeatPenalty > 0 && !seen[id] {
			v := float32(l[id])
			if v > 0 {
				l[id] = float64(v / float32(p.RepeatPenalty))
			} else {
				l[id] = float64(v * float32(p.RepeatPenalty))
			}
		}
		seen[id] = true
	}
	ids := make([]int32, len(l))
	for i := range ids {
		ids[i] = int32(i)
	}
	sort.SliceStable(ids, func(a, b int) bool { return l[ids[a]] > l[ids[b]] })
	if p.TopK > 0 {
		ids = ids[:min(p.TopK, len(ids))]
	}
	softmax := func(temp float64) []float64 {
		w := make([]float64, len(ids))
		sum := 0.0
		for i, id := range ids {
			w[i] = math.Exp((l[id] - l[ids[0]]) / temp)
			sum += w[i]
		}
		for i := range w {
			w[i] /= sum
		}
		return w
	}
	if p.TopP < 1 {
		acc, n := 0.0, 0
		for w := softmax(1); n < len(w); {
			acc += w[n]
			n++
			if acc >= p.TopP-1e-12 {
				break
			}
		}
		ids = ids[:n]
	}
	if p.MinP > 0 {
		w, n := softmax(1), 1
		for n < len(w) && w[n] >= p.MinP*w[0] {
			n++
		}
		ids = ids[:n]
	}
	return ids, softmax(p.Temp)
}

// inOrder is ids and probabilities as the sampler walks them: best first where top-k or top-p sorted, else by id.
func inOrder(ids []int32, prob []float64, logits int, p Params) ([]int32, []float64) {
	if p.TopK > 0 && p.TopK < logits || p.TopP < 1 {
		return ids, prob
	}
	of := map[int32]float64{}
	for i, id := range ids {
		of[id] = prob[i]
	}
	ids = slices.Sorted(slices.Values(ids))
	prob = make([]float64, len(ids))
	for i, id := range ids {
		prob[i] = of[id]
	}
	return ids, prob
}

// Each sample is the one that the plain computation gives for the same random number, for many settings: the probabilities are exact, so
// that a temperature that is off by a thousandth is found.
func TestSampleExactly(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	drawn := 0
	for trial := range 200 {
		logits := make([]float32, 40)
		for i := range logits {
			logits[i] = float32(math.Round(r.NormFloat64()*16)) / 8 // equal ones among them
		}
		p := Params{Temp: 0.3 + 1.5*r.Float64(), TopK: r.IntN(3) * 6, TopP: []float64{1, 0.9, 0.5, 0}[r.IntN(4)],
			MinP: []float64{0, 0.05, 0.3}[r.IntN(3)], RepeatPenalty: 1 + float64(r.IntN(3))/4, RepeatLastN: r.IntN(5) - 1, Seed: uint64(trial), Stream: uint64(trial % 3)}
		last := []int32{3, 5, 3, 7}
		ids, prob := refDistribution(logits, last, p)
		ids, prob = inOrder(ids, prob, len(logits), p)
		s, rng := NewSampler(p), rand.New(rand.NewPCG(p.Seed, p.Stream))
		for range 2000 {
			got, u := s.Sample(logits, last), rng.Float64()
			acc, at, near := 0.0, len(ids)-1, false
			for i, w := range prob {
				if acc += w; u < acc {
					at, near = i, acc-u < 1e-9 || i > 0 && u-(acc-w) < 1e-9
					break
				}
			}
			drawn++
			if got != ids[at] && !near {
				t.Fatalf("%+v: %.9f draws %d, expected %d of %v with %.4f", p, u, got, ids[at], ids, prob)
			}
		}
	}
	if drawn != 200*2000 {
		t.Errorf("%d samples were compared", drawn)
	}
}

// A token whose probability is min-p times that of the best one stays, a token just below it goes.
func TestMinPAtTie(t *testing.T) {
	below := func(x float32) float32 { return math.Nextafter32(x, -100) }
	for _, c := range []struct {
		logits []float32
		minP   float64
		want   []int32
	}{
		{[]float32{2, 2, below(2), 1}, 1, []int32{0, 1}},
		{[]float32{2, 1, below(1), 1}, math.Exp(-1), []int32{0, 1, 3}}, // e^-1 and its logarithm are exact to the last bit
		{[]float32{below(-2), 0, -2, -1}, math.Exp(-2), []int32{1, 2, 3}},
	} {
		for _, p := range []Params{{Temp: 9, TopP: 1, MinP: c.minP}, {Temp: 9, TopP: 1, TopK: 4, MinP: c.minP}, {Temp: 9, TopP: 1, TopK: 3, MinP: c.minP},
			{Temp: 9, TopP: 0.999999, MinP: c.minP}} {
			s := NewSampler(p)
			seen := map[int32]bool{}
			for range 500 {
				seen[s.Sample(c.logits, nil)] = true
			}
			want := c.want
			if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
				t.Errorf("%v %+v: %v are left, expected %v", c.logits, p, got, want)
			}
		}
	}
}

func TestGreedy(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		logits []float32
		last   []int32
		p      Params
		want   int32
	}{
		{logits: []float32{1, 3, 3, 2}, want: 1},
		{logits: []float32{nan, -5, nan, -4}, want: 3},
		{logits: []float32{nan, -inf}, want: 0},
		{logits: []float32{0, inf, inf}, want: 1},
		{logits: []float32{1, 3, 2.5, 2}, last: []int32{1}, p: Params{RepeatPenalty: 1.5, RepeatLastN: -1}, want: 2},
		{logits: []float32{1, 3, 2.5, 2}, last: []int32{1, 0}, p: Params{RepeatPenalty: 1.5, RepeatLastN: 1}, want: 1},
		{logits: []float32{-1, -1.1}, last: []int32{0, 0}, p: Params{RepeatPenalty: 1.2, RepeatLastN: 9}, want: 1},
	} {
		if got := NewSampler(c.p).Sample(c.logits, c.last); got != c.want {
			t.Errorf("%v %+v: %d, expected %d", c.logits, c.p, got, c.want)
		}
	}
	logits := []float32{1, 5, 4}
	s := NewSampler(Params{Temp: 1, TopK: 1})
	s.Ban(1)
	if got := s.Sample(logits, nil); got != 2 || logits[1] != 5 {
		t.Errorf("banned: %d, logits %v", got, logits)
	}
	// Sampling survives logits that no model should give.
	for _, logits := range [][]float32{{nan, nan}, {-inf, -inf}, {inf, 1}, {inf, inf, nan}} {
		for _, p := range []Params{{Temp: 1, TopP: 1}, DefaultParams(), {Temp: 1, TopP: 0.5, MinP: 0.1}} {
			if id := NewSampler(p).Sample(logits, nil); int(id) >= len(logits) || id < 0 {
				t.Errorf("%v: id %d", logits, id)
			}
		}
	}
}

// topK is the head of a full sort, with ties by id.
func TestTopK(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		logits := make([]float32, 1+r.IntN(300))
		for i := range logits {
			logits[i] = float32(r.IntN(20))
		}
		k := 1 + r.IntN(len(logits))
		want := make([]scored, len(logits))
		for i, v := range logits {
			want[i] = scored{v, int32(i)}
		}
		slices.SortStableFunc(want, func(a, b scored) int { return int(b.logit - a.logit) })
		if got := topK(nil, logits, k); !slices.Equal(got, want[:k]) {
			t.Fatalf("top %d of %v: %v, expected %v", k, logits, got, want[:k])
		}
	}
}

// A seed fixes the sequence; other seeds and streams have others.
func TestSeed(t *testing.T) {
	logits := make([]float32, 500)
	draw := func(seed, stream uint64) []int32 {
		s := NewSampler(Params{Temp: 1, TopP: 1, Seed: seed, Stream: stream})
		ids := make([]int32, 20)
		for i := range ids {
			ids[i] = s.Sample(logits, nil)
		}
		return ids
	}
	a := draw(7, 0)
	if !slices.Equal(a, draw(7, 0)) || slices.Equal(a, draw(8, 0)) || slices.Equal(a, draw(7, 1)) {
		t.Error("sequences of random numbers do not depend on seed and stream alone")
	}
	// The same seed gives the same text: these change with a note to the users only.
	if want := []int32{497, 411, 12, 109, 163, 130, 77, 209}; !slices.Equal(a[:len(want)], want) {
		t.Errorf("seed 7 draws %v, expected %v", a, want)
	}
}

func TestLogProbs(t *testing.T) {
	logits := []float32{1, 2, 3, 3}
	z := math.Log(math.Exp(1) + math.Exp(2) + 2*math.Exp(3))
	lp, top := NewSampler(Params{}).LogProbs(nil, logits, 1, 3)
	want := []Candidate{{2, 3 - z}, {3, 3 - z}, {1, 2 - z}}
	if math.Abs(lp-(2-z)) > 1e-12 || len(top) != 3 {
		t.Fatalf("log probability %v, expected %v; top %v", lp, 2-z, top)
	}
	for i := range want {
		if top[i].ID != want[i].ID || math.Abs(top[i].LogProb-want[i].LogProb) > 1e-12 {
			t.Errorf("top %d is %v, expected %v", i, top[i], want[i])
		}
	}
}

// BenchmarkSample draws from a vocabulary of Qwen's size; logits as peaked as a model's.
func BenchmarkSample(b *testing.B) {
	logits := make([]float32, 151936)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 3)
	}
	d := DefaultParams()
	all := d
	all.TopK = 0
	flat := Params{Temp: 1, TopP: 0.95}
	for _, c := range []struct {
		name string
		p    Params
	}{{"greedy", Params{}}, {"default", d}, {"top-p+min-p", all}, {"top-p", flat}} {
		b.Run(c.name, func(b *testing.B) {
			s := NewSampler(c.p)
			b.ReportAllocs()
			for b.Loop() {
				s.Sample(logits, nil)
			}
			b.ReportMetric(float64(len(logits)*4)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
		})
	}
}
