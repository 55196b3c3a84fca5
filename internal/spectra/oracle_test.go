package spectra

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"ck/internal/linalg"
	"ck/internal/spectrum"
	"ck/internal/testkit"
)

// oneSided is the fit that WeightWatcher makes: the values below count, the value itself does not, and the last one is no xmin.
func oneSided(values []float64) (alpha, xmin float64) {
	best := math.Inf(1)
	n := len(values) // descending
	for k := n; k > 1; k-- {
		x, sum := values[k-1]*values[k-1], 0.0
		for _, v := range values[:k] {
			sum += math.Log(v * v / x)
		}
		if sum <= 0 {
			continue
		}
		a, d := 1+float64(k)/sum, 0.0
		for i := range k {
			v := values[k-1-i] * values[k-1-i]
			d = max(d, math.Abs(1-math.Pow(v/x, 1-a)-float64(i)/float64(k)))
		}
		if d < best {
			best, alpha, xmin = d, a, x
		}
	}
	return alpha, xmin
}

// TestOracle holds the spectra of trained models against numpy.linalg.svd, both ways, to 1e-6 of the largest value; and power laws
// against WeightWatcher: from its xmin on, alpha is the same. Where the xmin is another one, that is because its distance
// looks at one side of each step of the distribution only: ours, from both, is nowhere larger at our xmin than at its.
func TestOracle(t *testing.T) {
	b, err := os.ReadFile("testdata/toys.json")
	if err != nil {
		t.Fatal(err)
	}
	var toys map[string]map[string]struct {
		Shape         [2]int
		Values        []float64
		WeightWatcher struct{ Alpha, Xmin, KS float64 }
	}
	if err := json.Unmarshal(b, &toys); err != nil {
		t.Fatal(err)
	}
	matrices, same, furthest := 0, 0, 0.0
	for model, want := range toys {
		folder := testkit.Data(t, "models/"+model+"/hf")
		for _, method := range []linalg.Method{linalg.Direct, linalg.ByGram} {
			seen := 0
			for _, r := range measure(t, folder, Options{Method: method, Workers: 2}) {
				w, ok := want[r.Name]
				if !ok {
					t.Errorf("%s %s is not in the figures", model, r.Name)
					continue
				}
				seen++
				if r.Shape != w.Shape || len(r.Values) != len(w.Values) {
					t.Fatalf("%s %s: %v and %d values, want %v and %d", model, r.Name, r.Shape, len(r.Values), w.Shape, len(w.Values))
				}
				for i, v := range w.Values {
					d := math.Abs(r.Values[i]-v) / w.Values[0]
					if furthest = max(furthest, d); d > 1e-6 {
						t.Fatalf("%s %s, %s: value %d is %v, numpy has %v", model, r.Name, r.Method, i, r.Values[i], v)
					}
				}
				if method == linalg.ByGram {
					continue
				}
				matrices++
				ww := w.WeightWatcher
				alpha, xmin := oneSided(r.Values)
				if math.Abs(alpha-ww.Alpha) > 1e-4 || math.Abs(xmin/ww.Xmin-1) > 1e-6 {
					t.Errorf("%s %s: WeightWatcher has alpha %v from %v, with its distance here %v from %v", model, r.Name, ww.Alpha, ww.Xmin, alpha, xmin)
				}
				if math.Abs(r.PowerLaw.Xmin/ww.Xmin-1) < 1e-6 {
					same++
					if math.Abs(r.PowerLaw.Alpha-ww.Alpha) > 1e-4 {
						t.Errorf("%s %s: alpha %v, WeightWatcher has %v from the same xmin", model, r.Name, r.PowerLaw.Alpha, ww.Alpha)
					}
					continue
				}
				var squares []float64
				for _, v := range r.Values {
					squares = append(squares, v*v)
				}
				theirs, ok := spectrum.FitPowerLawFrom(squares, spectrum.Continuous, xmin)
				if !ok || theirs.KS < r.PowerLaw.KS || math.Abs(theirs.Alpha-ww.Alpha) > 1e-4 {
					t.Errorf("%s %s: %+v from WeightWatcher's xmin, ours is %+v", model, r.Name, theirs, *r.PowerLaw)
				}
			}
			if seen != len(want) {
				t.Errorf("%s: %d of %d matrices", model, seen, len(want))
			}
		}
	}
	t.Logf("%d matrices; furthest from numpy %.1e of the largest value; xmin is WeightWatcher's for %d", matrices, furthest, same)
	if matrices < 90 || same < matrices/3 {
		t.Errorf("%d matrices, xmin is WeightWatcher's for %d", matrices, same)
	}
}
