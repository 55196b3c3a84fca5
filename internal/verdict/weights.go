package verdict

import (
	"math"
	"slices"
)

// largeSide is the shorter side from which on a matrix says something about those of large models: below it the
// smallest ranks are large parts of all.
const largeSide = 1024

var weightClaims = []Claim{
	{"entropy-3.6", "a weight carries 3.6 bits of entropy", "circulated figure: histograms of 256 bins",
		"ckinspect entropy MODEL",
		"how small lossless storage could be", judgeEntropy},
	{"rank-5-99", "5 % of the rank carries 99 % of the energy", "circulated figure on low rank",
		"ckinspect svd MODEL",
		"whether factored matrices would read less memory", judgeRank},
	{"low-rank-outliers", "low rank + 1 % of the rest: 99 % of the energy", "circulated figure: rank k plus a sparse residual; k is 5 % here",
		"ckinspect svd MODEL",
		"whether a factored and a sparse part could stand for a matrix", judgeOutliers},
	{"correlation-0.3", "neighbouring layers correlate by 0.3", "circulated figure on layers alike",
		"ckinspect correlate MODEL",
		"whether layers could be stored as differences", judgeCorrelation},
	{"residue-8-15", "coding layers as residues saves 8 to 15 %", "circulated figure on layers alike",
		"ckinspect correlate MODEL",
		"whether layers could be stored as differences", judgeResidue},
	{"layers-alike", "middle layers are nearly equal", "circulated figure on layers alike",
		"ckinspect correlate MODEL",
		"whether weights could be shared between layers", judgeAlike},
	{"layers-between", "a middle layer is a mix: W = αA + (1−α)B", "circulated figure on layers alike",
		"ckinspect correlate MODEL",
		"whether layers could be computed from others", judgeBetween},
}

// sample says what matrices were measured.
func (f *Figures) sample() string {
	if f.Sample == "" {
		return "all matrices of the layers"
	}
	return f.Sample
}

// size is what matrices are weighed by.
func size(m *Matrix) float64 { return float64(m.Rows) * float64(m.Cols) }

func judgeEntropy(f *Figures) finding {
	if len(f.Matrices) == 0 {
		return open("no matrix was measured")
	}
	sum, n := 0.0, 0.0
	lo, hi := math.Inf(1), math.Inf(-1)
	for i := range f.Matrices {
		m := &f.Matrices[i]
		sum, n = sum+m.Bits*size(m), n+size(m)
		lo, hi = min(lo, m.Bits), max(hi, m.Bits)
	}
	mean := sum / n
	return told(math.Abs(mean-3.6) <= 0.25, mean, "%.2f bits", mean).of("%.2f to %.2f; %s", lo, hi, f.sample())
}

// middle is the median of what of says of the matrices.
func middle(list []Matrix, of func(*Matrix) float64) float64 {
	var x []float64
	for i := range list {
		x = append(x, of(&list[i]))
	}
	return median(x)
}

func median(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// widest is the largest shorter side.
func widest(list []Matrix) int {
	n := 0
	for i := range list {
		n = max(n, list[i].short())
	}
	return n
}

func judgeRank(f *Figures) finding {
	return energy(f, func(m *Matrix) float64 { return m.Energy })
}

func judgeOutliers(f *Figures) finding {
	return energy(f, func(m *Matrix) float64 { return m.Outliers })
}

// energy judges whether a share of the energy reaches 99 % in the large matrices.
func energy(f *Figures, of func(*Matrix) float64) finding {
	if len(f.Matrices) == 0 {
		return open("no matrix was measured")
	}
	large := slices.DeleteFunc(slices.Clone(f.Matrices), func(m Matrix) bool { return m.short() < largeSide })
	if len(large) == 0 {
		x := middle(f.Matrices, of)
		return told(x >= 0.99, x, "%.1f %%", 100*x).of("of the energy, in the median; %s", f.sample()).
			untold("its matrices are %d wide at most; %d and more would tell", widest(f.Matrices), largeSide)
	}
	x := middle(large, of)
	return told(x >= 0.99, x, "%.1f %%", 100*x).
		of("of the energy, in the median of %d matrices of %d and more; %s", len(large), largeSide, f.sample())
}

// pairs picks pairs of the middle half of the layers, or all.
func pairs(f *Figures, inner bool, of func(*Pair) float64) []float64 {
	var x []float64
	for i := range f.Pairs {
		p := &f.Pairs[i]
		if inner && (4*p.Layer < p.Layers || 4*p.Layer >= 3*p.Layers) {
			continue
		}
		if v := of(p); v >= 0 {
			x = append(x, v)
		}
	}
	return x
}

const fewLayers = "the model has too few layers"

func judgeCorrelation(f *Figures) finding {
	x := pairs(f, false, func(p *Pair) float64 { return math.Abs(p.Correlation) })
	if len(x) == 0 {
		return open(fewLayers)
	}
	r := median(x)
	return told(r >= 0.25, r, "|r| %.3f", r).of("median of the sizes of %d pairs", len(x))
}

// Saved is the bits of a weight that a Gaussian residue to a correlated value saves: -1/2 log2(1 - r²).
func Saved(r float64) float64 { return -0.5 * math.Log2(1-r*r) }

func judgeResidue(f *Figures) finding {
	x := pairs(f, false, func(p *Pair) float64 { return Saved(min(math.Abs(p.Correlation), 1-1e-12)) })
	if len(x) == 0 || len(f.Matrices) == 0 {
		return open(fewLayers)
	}
	bits := middle(f.Matrices, func(m *Matrix) float64 { return m.Bits })
	s := median(x) / bits
	return told(s >= 0.08, s, "%.2f %%", 100*s).of("of %.2f bits, for Gaussians of the median correlation", bits)
}

func judgeAlike(f *Figures) finding {
	x := pairs(f, true, func(p *Pair) float64 { return p.Left })
	if len(x) == 0 {
		return open(fewLayers)
	}
	left := median(x)
	return told(left <= 0.1, left, "%.1f %% left", 100*left).of("of the energy, behind the best multiple of the layer before")
}

func judgeBetween(f *Figures) finding {
	x := pairs(f, true, func(p *Pair) float64 { return p.Between })
	if len(x) == 0 {
		return open(fewLayers)
	}
	left := median(x)
	return told(left <= 0.1, left, "%.1f %% left", 100*left).of("of the energy, behind the best mix of both neighbours")
}
