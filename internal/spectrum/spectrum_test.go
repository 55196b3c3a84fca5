package spectrum

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"ck/internal/testkit"
)

// golden reads a JSON file of the spectral reference data.
func golden(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(testkit.Data(t, "spectral/"+name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

type matrixCase struct {
	Rows, Cols    int
	Values        []float64 `json:"singular_values"`
	Energy        float64   `json:"frobenius_sq"`
	Norm          float64   `json:"spectral_norm"`
	Stable        float64   `json:"stable_rank"`
	Entropy       float64   `json:"entropy_nats"`
	Participation float64   `json:"participation_ratio"`
	Numerical     int       `json:"numerical_rank"`
	Deviation     float64   `json:"noise_std"`
	MP            *struct {
		Q         float64
		Low       float64 `json:"sigma_min"`
		High      float64 `json:"sigma_max"`
		LambdaMin float64 `json:"lambda_min"`
		LambdaMax float64 `json:"lambda_max"`
	}
}

// elements is the matrix itself; uniform-300x1000 is made by its rule (splitmix64).
func elements(t *testing.T, name string, c matrixCase) []float64 {
	t.Helper()
	list := make([]float64, c.Rows*c.Cols)
	if name == "uniform-300x1000" {
		for k := range list {
			z := uint64(k) + 0x9E3779B97F4A7C15
			z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
			z = (z ^ z>>27) * 0x94D049BB133111EB
			list[k] = float64((z^z>>31)>>40)*0x1p-24 - 0.5
		}
		return list
	}
	data, err := os.ReadFile(filepath.Join(testkit.Data(t, "spectral"), name+".f32"))
	if err != nil {
		t.Fatal(err)
	}
	for k := range list {
		list[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*k:])))
	}
	return list
}

func singular(rows, cols int, elements []float64) []float64 {
	var svd mat.SVD
	svd.Factorize(mat.NewDense(rows, cols, elements), mat.SVDNone)
	return svd.Values(nil)
}

func near(a, b, relative float64) bool {
	return math.Abs(a-b) <= relative*max(1e-300, math.Abs(a), math.Abs(b))
}

func TestFiguresGolden(t *testing.T) {
	var cases map[string]matrixCase
	golden(t, "matrices.json", &cases)
	for name, c := range cases {
		values := singular(c.Rows, c.Cols, elements(t, name, c))
		for i, s := range values {
			if math.Abs(s-c.Values[i]) > 1e-5*c.Values[0] {
				t.Errorf("%s: value %d is %g, want %g", name, i, s, c.Values[i])
			}
		}
		f := FiguresOf(c.Rows, c.Cols, values)
		for _, v := range []struct {
			what      string
			got, want float64
		}{
			{"energy", f.Energy, c.Energy}, {"largest", f.Largest, c.Norm}, {"stable rank", f.Stable, c.Stable},
			{"entropy", f.Entropy + 1, c.Entropy + 1}, {"participation", f.Participation, c.Participation},
			{"numerical rank", float64(f.Numerical), float64(c.Numerical)},
		} {
			if !near(v.got, v.want, 1e-6) {
				t.Errorf("%s: %s is %.9g, want %.9g", name, v.what, v.got, v.want)
			}
		}
		if c.MP == nil {
			continue
		}
		m := MarchenkoPastur{c.MP.Q, c.Deviation * c.Deviation}
		if lo, hi := m.Edges(); !near(lo, c.MP.LambdaMin, 1e-9) || !near(hi, c.MP.LambdaMax, 1e-9) {
			t.Errorf("%s: edges %g %g, want %g %g", name, lo, hi, c.MP.LambdaMin, c.MP.LambdaMax)
		}
		n := FitNoise(c.Rows, c.Cols, values)
		t.Logf("%s: deviation %.5f, want %.5f; edges %.4f %.4f, %d spikes", name, n.Deviation, c.Deviation,
			n.Low, n.High, n.Spikes)
		if !near(n.High, c.MP.High, 0.01) || math.Abs(n.Low-c.MP.Low) > 0.01*c.MP.High {
			t.Errorf("%s: fitted edges %g %g, want %g %g", name, n.Low, n.High, c.MP.Low, c.MP.High)
		}
		want := 0
		if strings.HasPrefix(name, "spikes8") {
			want = 8
		}
		if n.Spikes != want || want > 0 && n.Past != want {
			t.Errorf("%s: %d spikes, %d past the edge, want %d", name, n.Spikes, n.Past, want)
		}
	}
}

func TestRanksAndTruncation(t *testing.T) {
	values := []float64{3, 2, 1, 0} // energies 9, 4, 1 of 14
	for _, c := range []struct {
		share float64
		want  int
	}{{0.64, 1}, {0.65, 2}, {0.9, 2}, {0.93, 3}, {1, 3}} {
		if got := RankOf(values, c.share); got != c.want {
			t.Errorf("rank at %g is %d, want %d", c.share, got, c.want)
		}
	}
	if got := Kept(values, 2); !near(got, 13.0/14, 1e-15) {
		t.Errorf("rank 2 keeps %g", got)
	}
	f := FiguresOf(4, 4, []float64{1e-200, 1e-200})
	if f.Energy != 0 && f.Numerical != 2 {
		t.Errorf("tiny values: %+v", f)
	}
	f = FiguresOf(4, 4, []float64{5, 5, 5, 5})
	if f.Rank90 != 4 || !near(f.EntropyRank, 4, 1e-14) || f.Stable != 4 {
		t.Errorf("equal values: %+v", f)
	}
}

func TestMarchenkoPasturGolden(t *testing.T) {
	var cases []struct {
		Q      float64
		Min    float64 `json:"lambda_min"`
		Max    float64 `json:"lambda_max"`
		Points []struct{ X, PDF, CDF float64 }
	}
	golden(t, "marchenko-pastur.json", &cases)
	for _, c := range cases {
		m := MarchenkoPastur{c.Q, 1}
		if lo, hi := m.Edges(); math.Abs(lo-c.Min) > 1e-12 || math.Abs(hi-c.Max) > 1e-12 {
			t.Errorf("q %g: edges %g %g", c.Q, lo, hi)
		}
		wide := MarchenkoPastur{c.Q, 4}
		for _, p := range c.Points {
			close := 1e-9
			if p.CDF == 1 {
				close = 1e-7 // the density falls as a root there: it halves the digits of x
			}
			if d := m.Density(p.X); math.Abs(d-p.PDF) > close {
				t.Errorf("q %g: density at %g is %.12g, want %.12g", c.Q, p.X, d, p.PDF)
			}
			if d := m.Distribution(p.X); math.Abs(d-p.CDF) > 1e-9 {
				t.Errorf("q %g: distribution at %g is %.12g, want %.12g", c.Q, p.X, d, p.CDF)
			}
			a, b := wide.Distribution(4*p.X), 4*wide.Density(4*p.X)
			if math.Abs(a-p.CDF) > 1e-9 || math.Abs(b-p.PDF) > close {
				t.Errorf("q %g: the law does not scale: %g %g", c.Q, a, b)
			}
			if p.CDF < 1 {
				if x := m.Quantile(p.CDF); !near(x, p.X, 1e-7) {
					t.Errorf("q %g: quantile %g, want %g", c.Q, x, p.X)
				}
			}
		}
	}
}

// bidiagonal draws the singular values of a matrix of standard normal noise from the bidiagonal matrix that has the
// same law (Dumitriu, Edelman 2002): chi variables with long, long-1, ... degrees of freedom on the diagonal,
// short-1, ... beside it.
func bidiagonal(rng *rand.Rand, long, short int) []float64 {
	d, e := make([]float64, short), make([]float64, short)
	for i := range d {
		d[i] = chi(rng, long-i)
		e[i] = chi(rng, short-1-i) // below the diagonal
	}
	diagonal, side := make([]float64, short), make([]float64, short-1)
	for i := range d {
		diagonal[i] = d[i] * d[i]
		if i > 0 {
			diagonal[i] += e[i-1] * e[i-1]
			side[i-1] = d[i-1] * e[i-1]
		}
	}
	return rootsOf(diagonal, side)
}

func chi(rng *rand.Rand, n int) float64 {
	sum := 0.0
	for range n {
		x := rng.NormFloat64()
		sum += x * x
	}
	return math.Sqrt(sum)
}

func TestNoSpikesInNoise(t *testing.T) {
	seeds, shapes := 8, [][2]int{{1000, 4000}}
	if os.Getenv("CK_TEST_LARGE") != "" {
		seeds, shapes = 100, [][2]int{{1000, 4000}, {512, 512}, {200, 1000}}
	}
	for _, s := range shapes {
		spikes, worst := 0, 0.0
		for seed := range seeds {
			rng := rand.New(rand.NewPCG(uint64(seed), 77))
			n := FitNoise(s[0], s[1], bidiagonal(rng, s[1], s[0]))
			spikes += n.Spikes
			worst = max(worst, math.Abs(n.Deviation-1))
		}
		t.Logf("%d x %d: %d false spikes in %d seeds, deviation off by up to %.4f", s[0], s[1], spikes, seeds, worst)
		if spikes > 1 || worst > 0.01 {
			t.Errorf("%d x %d: %d false spikes in %d seeds, deviation off by %g", s[0], s[1], spikes, seeds, worst)
		}
	}
}

// The bidiagonal model stands for real matrices only if both give the same figures.
func TestBidiagonalIsNoise(t *testing.T) {
	const rows, cols, seeds = 60, 240, 20
	top, topModel := 0.0, 0.0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 3))
		a := make([]float64, rows*cols)
		for i := range a {
			a[i] = rng.NormFloat64()
		}
		values := singular(rows, cols, a)
		if n := FitNoise(rows, cols, values); !near(n.Deviation, 1, 0.02) || n.Spikes != 0 {
			t.Errorf("seed %d: deviation %g, %d spikes", seed, n.Deviation, n.Spikes)
		}
		top += values[0] / seeds
		topModel += bidiagonal(rng, cols, rows)[0] / seeds
	}
	if !near(top, topModel, 0.01) {
		t.Errorf("largest value %g in matrices, %g in the model", top, topModel)
	}
}

func TestPlantedSpikes(t *testing.T) {
	const rows, cols, planted = 300, 500, 8
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 9))
		a := mat.NewDense(rows, cols, nil)
		for i := range rows {
			for j := range cols {
				a.Set(i, j, 0.02*rng.NormFloat64())
			}
		}
		u, v := orthonormal(rng, rows, planted), orthonormal(rng, cols, planted)
		threshold := 0.02 * math.Pow(rows*cols, 0.25) // a planted value under it leaves no spike
		for k := range planted {
			s := threshold * (1.5 + 0.4*float64(k))
			a.RankOne(a, s, u.ColView(k), v.ColView(k))
		}
		n := FitNoise(rows, cols, singular(rows, cols, a.RawMatrix().Data))
		if n.Spikes != planted || !near(n.Deviation, 0.02, 0.01) {
			t.Errorf("seed %d: %d spikes, deviation %g", seed, n.Spikes, n.Deviation)
		}
	}
}

func orthonormal(rng *rand.Rand, n, k int) *mat.Dense {
	a := mat.NewDense(n, k, nil)
	for i := range n {
		for j := range k {
			a.Set(i, j, rng.NormFloat64())
		}
	}
	var svd mat.SVD
	svd.Factorize(a, mat.SVDThinU)
	var u mat.Dense
	svd.UTo(&u)
	return &u
}

type fitCase struct {
	Xmin, Alpha, D float64
	Tail           int `json:"n_tail"`
}

func TestPowerLawGolden(t *testing.T) {
	var cases map[string]struct {
		File     string
		Factor   float64
		Discrete bool
		Direct   fitCase
		Package  fitCase `json:"powerlaw_package"`
		At       fitCase `json:"direct_at_package_xmin"`
		Hill     struct {
			Values map[string]float64 `json:"k_to_value"`
		} `json:"hill_tail_index"`
	}
	golden(t, "powerlaw.json", &cases)
	var matrices map[string]matrixCase
	golden(t, "matrices.json", &matrices)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var data []float64
			if of, ok := strings.CutPrefix(name, "eigenvalues of "); ok {
				for _, s := range matrices[of].Values {
					data = append(data, s*s)
				}
			} else {
				data = numbers(t, c.File, c.Factor)
			}
			kind, close := Continuous, 1e-12
			if c.Discrete {
				kind, close = Discrete, 1e-7
			}
			f, ok := FitPowerLaw(data, kind)
			if !ok || !near(f.Xmin, c.Direct.Xmin, 1e-12) || f.Tail != c.Direct.Tail ||
				!near(f.Alpha, c.Direct.Alpha, close) ||
				!near(f.KS, c.Direct.D, 10*close) {
				t.Errorf("%s: %+v, want %+v", name, f, c.Direct)
			}
			g, _ := FitPowerLawFrom(data, kind, c.Package.Xmin)
			if c.At.Alpha != 0 && (!near(g.Alpha, c.At.Alpha, close) || !near(g.KS, c.At.D, 10*close)) {
				t.Errorf("%s: from %g on: %+v, want %+v", name, c.Package.Xmin, g, c.At)
			}
			for k, want := range c.Hill.Values {
				n := map[string]int{"5": 5, "10": 10, "20": 20, "40": 40}[k]
				if got := Hill(data, n); !near(got, want, 1e-9) {
					t.Errorf("%s: Hill's index of %d is %.12g, want %.12g", name, n, got, want)
				}
			}
			if kind == Continuous {
				t.Logf("%s: alpha %.4f ± %.4f, %+v", name, f.Alpha, f.Error, f.Compare(data))
			}
		})
	}
}

func numbers(t *testing.T, file string, factor float64) (list []float64) {
	t.Helper()
	data, err := os.ReadFile(testkit.Data(t, "spectral/"+file))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(data)) {
		var x float64
		if err := json.Unmarshal([]byte(word), &x); err != nil {
			t.Fatal(err)
		}
		list = append(list, x*factor)
	}
	return list
}

// Each family's own data must be told from the power law, and a power law must be said to be one.
func TestTails(t *testing.T) {
	const n = 3000
	for name, c := range map[string]struct {
		draw func(*rand.Rand) float64
		fits bool
	}{
		"power law":   {func(r *rand.Rand) float64 { return math.Pow(1-r.Float64(), -1/1.5) }, true},
		"exponential": {func(r *rand.Rand) float64 { return 1 + r.ExpFloat64() }, false},
		"lognormal":   {func(r *rand.Rand) float64 { return math.Exp(2 + 0.5*r.NormFloat64()) }, false},
	} {
		rng := rand.New(rand.NewPCG(5, 6))
		data := make([]float64, n)
		for i := range data {
			data[i] = c.draw(rng)
		}
		f, _ := FitPowerLawFrom(data, Continuous, slices.Min(data))
		tails := f.Compare(data)
		t.Logf("%s: alpha %.3f ± %.3f, %+v", name, f.Alpha, f.Error, tails)
		if tails.Fits != c.fits {
			t.Errorf("%s: %+v", name, tails)
		}
		switch {
		case name == "exponential" && !near(tails.Rate, 1, 0.05):
			t.Errorf("rate %g", tails.Rate)
		case name == "lognormal" && (!near(tails.Mu, 2, 0.02) || !near(tails.Sigma, 0.5, 0.05)):
			t.Errorf("lognormal %g %g", tails.Mu, tails.Sigma)
		case name == "power law" && math.Abs(f.Alpha-2.5) > 3*f.Error:
			t.Errorf("alpha %g ± %g", f.Alpha, f.Error)
		}
	}
}

func TestGoodness(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	law := make([]float64, 300)
	normal := make([]float64, 300)
	for i := range law {
		law[i] = math.Pow(1-rng.Float64(), -1/1.5)
		normal[i] = 10 + rng.NormFloat64()
	}
	f, _ := FitPowerLaw(law, Continuous)
	p, err := f.Goodness(t.Context(), law, 100, 1)
	if err != nil || p < 0.1 {
		t.Errorf("p of a power law is %g, %v", p, err)
	}
	again, _ := f.Goodness(t.Context(), law, 100, 1)
	if again != p {
		t.Errorf("the same seed gives %g and %g", p, again)
	}
	g, _ := FitPowerLawFrom(normal, Continuous, slices.Min(normal))
	if p, _ := g.Goodness(t.Context(), normal, 50, 1); p > 0.02 {
		t.Errorf("p of a normal law is %g", p)
	}
}

// Counts that are drawn must have the fitted law.
func TestDiscreteDraw(t *testing.T) {
	law := PowerLaw{Kind: Discrete, Xmin: 3, Alpha: 2.4}
	rng := rand.New(rand.NewPCG(8, 8))
	data := make([]float64, 4000)
	for i := range data {
		data[i] = law.draw(rng)
	}
	f, _ := FitPowerLawFrom(data, Discrete, 3)
	if math.Abs(f.Alpha-2.4) > 4*f.Error || f.KS > 0.03 || slices.Min(data) != 3 {
		t.Errorf("%+v", f)
	}
}

// The standard error must be the spread of alpha over sets that are drawn anew.
func TestStandardError(t *testing.T) {
	const sets = 300
	for _, law := range []PowerLaw{{Kind: Continuous, Xmin: 2, Alpha: 2.5}, {Kind: Discrete, Xmin: 2, Alpha: 2.5}} {
		rng := rand.New(rand.NewPCG(6, 1))
		sum, squares, said := 0.0, 0.0, 0.0
		for range sets {
			data := make([]float64, 400)
			for i := range data {
				data[i] = law.draw(rng)
			}
			f, _ := FitPowerLawFrom(data, law.Kind, law.Xmin)
			sum += f.Alpha
			squares += (f.Alpha - law.Alpha) * (f.Alpha - law.Alpha)
			said += f.Error / sets
		}
		spread := math.Sqrt(squares / sets)
		t.Logf("kind %d: mean %.4f, spread %.4f, said %.4f", law.Kind, sum/sets, spread, said)
		if !near(spread, said, 0.15) || !near(sum/sets, law.Alpha, 0.01) {
			t.Errorf("kind %d: mean %g, spread %g, said %g", law.Kind, sum/sets, spread, said)
		}
	}
}
