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
	{"low-rank-outliers", "a low rank and the largest 1 % of the rest carry 99 % of the energy", "circulated figure: rank k plus a sparse residual",
		"ckinspect svd MODEL",
		"whether a factored and a sparse part could stand for a matrix", judgeOutliers},
	{"correlation-0.3", "matrices of neighbouring layers correlate by 0.3", "circulated figure on layers alike",
		"ckinspect correlate MODEL",
		"whether layers could be stored as differences", judgeCorrelation},
	{"residue-8-15", "coding the residue to the layer before saves 8 to 15 %", "circulated figure on layers alike",
		"ckinspect correlate MODEL",
		"whether layers could be stored as differences", judgeResidue},
	{"layers-alike", "middle layers are nearly equal", "circulated figure on layers alike",
		"ckinspect correlate MODEL",
		"whether weights could be shared between layers", judgeAlike},
	{"layers-between", "a middle layer is a mix of its neighbours: W = αA + (1−α)B", "circulated figure on layers alike",
		"ckinspect correlate MODEL",
		"whether layers could be computed from others", judgeBetween},
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
	return told(math.Abs(mean-3.6) <= 0.25, mean, "%.2f bits (%.2f to %.2f)", mean, lo, hi)
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
	return energy(f, func(m *Matrix) float64 { return m.Energy }, "5 %% of the singular values carry %.1f %% of the energy (median)")
}

func judgeOutliers(f *Figures) finding {
	return energy(f, func(m *Matrix) float64 { return m.Outliers },
		"5 %% of the singular values and the largest 1 %% of the rest carry %.1f %% of the energy (median)")
}

// energy judges whether a share of the energy reaches 99 %.
func energy(f *Figures, of func(*Matrix) float64, words string) finding {
	if len(f.Matrices) == 0 {
		return open("no matrix was measured")
	}
	x := middle(f.Matrices, of)
	v := told(x >= 0.99, x, words, 100*x)
	if n := widest(f.Matrices); n < largeSide {
		return v.untold("its matrices are %d wide at most; %d and more would tell", n, largeSide)
	}
	return v
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
	return told(r >= 0.25, r, "%.3f (median of the sizes)", r)
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
	return told(s >= 0.08, s, "%.2f %% of %.2f bits", 100*s, bits)
}

func judgeAlike(f *Figures) finding {
	x := pairs(f, true, func(p *Pair) float64 { return p.Left })
	if len(x) == 0 {
		return open(fewLayers)
	}
	left := median(x)
	return told(left <= 0.1, left, "%.1f %% of the energy is left behind the best multiple of the layer before", 100*left)
}

func judgeBetween(f *Figures) finding {
	x := pairs(f, true, func(p *Pair) float64 { return p.Between })
	if len(x) == 0 {
		return open(fewLayers)
	}
	left := median(x)
	return told(left <= 0.1, left, "%.1f %% of the energy is left behind the best mix of both neighbours", 100*left)
}
