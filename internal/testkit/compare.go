package testkit

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"testing"
)

// Case is one reference model of the data: ids.json of its folder.
type Case struct {
	Dir       string
	Vocab     int     `json:"n_vocab"`
	Tol       float64 `json:"tol"`
	TolLow    float64 `json:"tol_low_precision_activations"`
	Sequences []Sequence
	Quants    []QuantCase
}

// Sequence is a token sequence with the files of its reference logits.
type Sequence struct {
	Name  string            `json:"name"`
	IDs   []int32           `json:"ids"`
	Keep  int               `json:"n_keep"`
	Refs  map[string]string `json:"refs"`
	Stats string            `json:"stats"`
}

// QuantCase is one quantized file of a kq set.
type QuantCase struct {
	Type string  `json:"type"`
	Tol  float64 `json:"tol_quantized_activations"`
}

// LoadCase reads models/NAME/ids.json.
func LoadCase(t testing.TB, name string) *Case {
	t.Helper()
	c := &Case{Dir: Data(t, "models/"+name)}
	b, err := os.ReadFile(filepath.Join(c.Dir, "ids.json"))
	if err == nil {
		err = json.Unmarshal(b, c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Floats reads a raw little-endian float32 file of the case's folder.
func (c *Case) Floats(t testing.TB, name string) []float64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float64, len(b)/4)
	for i := range v {
		v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return v
}

// Verdict is what Compare found, as data/models/compare.py prints it.
type Verdict struct {
	OK    bool
	Rel   float64 // rms of the difference over rms of the reference about its mean, kept positions
	Worst float64 // the same for the worst position
	Text  string
}

// Compare judges logits of all positions ([positions][vocabulary]) against reference ref, as compare.py does: tol 0 means the case's
// own; low judges median positions for engines that round activations.
func (c *Case) Compare(t testing.TB, s *Sequence, ref string, logits [][]float32, tol float64, low bool) Verdict {
	t.Helper()
	file, ok := s.Refs[ref]
	if !ok {
		t.Fatalf("%s: no reference %s of %s", c.Dir, ref, s.Name)
	}
	if tol == 0 {
		tol = c.Tol
		if low {
			tol = c.TolLow
		}
	}
	r := c.Floats(t, file)
	v, k, n := c.Vocab, s.Keep, len(s.IDs)
	if len(logits) != n || len(r) != k*v {
		t.Fatalf("%s %s: %d positions of %d, %d reference values of %d", c.Dir, s.Name, len(logits), n, len(r), k*v)
	}
	var pos []float64
	var sumD, sumC float64
	agree, worst, finite := 0, 0.0, true
	for i := range k {
		x, y := logits[n-k+i], r[i*v:(i+1)*v]
		mean := 0.0
		for _, f := range y {
			mean += f / float64(v)
		}
		var d2, c2 float64
		for j, f := range y {
			d := float64(x[j]) - f
			d2, c2 = d2+d*d, c2+(f-mean)*(f-mean)
			finite = finite && !math.IsNaN(float64(x[j])) && !math.IsInf(float64(x[j]), 0)
		}
		sumD, sumC = sumD+d2, sumC+c2
		p := math.Sqrt(d2) / math.Sqrt(c2)
		pos = append(pos, p)
		worst = max(worst, p)
		best, second := top2(y)
		rms := math.Sqrt(c2 / float64(v))
		if argmax32(x) == best || y[best]-second < 4*tol*rms {
			agree++
		}
	}
	rel := math.Sqrt(sumD) / math.Sqrt(sumC)
	sort.Float64s(pos)
	median := (pos[(k-1)/2] + pos[k/2]) / 2
	ok = rel <= tol && worst <= 4*tol && agree == k
	if low {
		ok = median <= tol && float64(agree) >= 0.75*float64(k)
	}
	text := fmt.Sprintf("%s/%s ref=%s: rel %.3e (tol %.1e), worst position %.3e, argmax %d/%d", filepath.Base(c.Dir), s.Name, ref, rel, tol, worst, agree, k)
	if ref == "exact" && s.Stats != "" {
		good, more := c.stats(t, s, logits, tol, low)
		ok, text = ok && good, text+more
	}
	return Verdict{OK: ok && finite, Rel: rel, Worst: worst, Text: text}
}

// stats judges logsumexp, maximum and argmax of all positions.
func (c *Case) stats(t testing.TB, s *Sequence, logits [][]float32, tol float64, low bool) (bool, string) {
	st := c.Floats(t, s.Stats)
	var es, ems []float64
	agree := 0
	for i, x := range logits {
		lse, top, best, rms := logsumexp(x), float64(x[argmax32(x)]), int(st[4*i+1]), st[4*i+3]
		es = append(es, math.Abs(lse-st[4*i])/rms)
		ems = append(ems, math.Abs(top-st[4*i+2])/rms)
		if argmax32(x) == best || math.Abs(top-float64(x[best])) < 4*tol*rms {
			agree++
		}
	}
	sort.Float64s(es)
	sort.Float64s(ems)
	e, em, n := es[len(es)-1], ems[len(ems)-1], len(logits)
	ok := e <= 8*tol && em <= 12*tol && agree == n
	if low {
		ok = quantile(es, .9) <= 8*tol && quantile(ems, .9) <= 12*tol && float64(agree) >= .95*float64(n)
	}
	return ok, fmt.Sprintf("; all %d: logsumexp %.2e, max logit %.2e, argmax %d/%d", n, e, em, agree, n)
}

// quantile interpolates linearly between the sorted values, as numpy does.
func quantile(v []float64, q float64) float64 {
	p := q * float64(len(v)-1)
	i := int(p)
	if i+1 >= len(v) {
		return v[len(v)-1]
	}
	return v[i] + (p-float64(i))*(v[i+1]-v[i])
}

func logsumexp(x []float32) float64 {
	m := float64(x[argmax32(x)])
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - m)
	}
	return m + math.Log(sum)
}

func argmax32(x []float32) int {
	b := 0
	for i, v := range x {
		if v > x[b] {
			b = i
		}
	}
	return b
}

// top2 is the index of the largest value, and the second largest value.
func top2(y []float64) (best int, second float64) {
	second = math.Inf(-1)
	for i, v := range y {
		switch {
		case v > y[best]:
			second, best = y[best], i
		case i != best && v > second:
			second = v
		}
	}
	return best, second
}
