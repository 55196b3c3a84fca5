package spectrum

import (
	"math"
	"sort"
)

// MarchenkoPastur is the law of the eigenvalues of A Aᵀ / n for a matrix A of independent noise with variance
// Variance, n its longer side. Q is the shorter side over the longer one.
type MarchenkoPastur struct {
	Q        float64
	Variance float64
}

// Edges returns the ends of the law.
func (m MarchenkoPastur) Edges() (lo, hi float64) {
	root := math.Sqrt(m.Q)
	return m.Variance * (1 - root) * (1 - root), m.Variance * (1 + root) * (1 + root)
}

// Density returns the law's density at x.
func (m MarchenkoPastur) Density(x float64) float64 {
	lo, hi := m.Edges()
	if x <= lo || x >= hi {
		return 0
	}
	return math.Sqrt((hi-x)*(x-lo)) / (2 * math.Pi * m.Q * m.Variance * x)
}

// Distribution returns the law's share up to x.
func (m MarchenkoPastur) Distribution(x float64) float64 {
	lo, hi := m.Edges()
	if x <= lo {
		return 0
	}
	if x >= hi {
		return 1
	}
	// The density's integral in closed form; r is infinite at the lower edge and zero at the upper one.
	r := math.Sqrt((hi - x) / (x - lo))
	area := math.Sqrt((hi-x)*(x-lo))/m.Variance + float64(math.Pi*m.Q) - float64((1+m.Q)*math.Atan((r*r-1)/(2*r)))
	if m.Q < 1 {
		area += float64((1 - m.Q) * math.Atan((lo*r*r-hi)/(2*m.Variance*(1-m.Q)*r)))
	}
	return min(1, max(0, area/(2*math.Pi*m.Q)))
}

// Quantile returns the x up to which the law has the share p.
func (m MarchenkoPastur) Quantile(p float64) float64 {
	lo, hi := m.Edges()
	for range 60 {
		if mid := (lo + hi) / 2; m.Distribution(mid) < p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

// tracyWidom999 is the 99.9 % quantile of the Tracy–Widom law for real matrices (beta 1).
const tracyWidom999 = 3.2722

// Noise is what of a spectrum independent noise explains.
type Noise struct {
	Deviation float64 // standard deviation of an entry, fitted to the bulk
	Low, High float64 // Marchenko–Pastur edges of the singular values
	Past      int     // values over High; noise alone of finite size may have one
	Threshold float64 // what the first value that is no spike had to pass: noise does so once in a thousand matrices
	Spikes    int     // values that noise does not explain
}

// FitNoise fits the noise level to the middle half of the singular values, which are in descending order, and counts
// those that are too large for it. They are left out of the next fit, until their number stands. Beside k spikes the
// noise is as that of a matrix whose shorter side has k fewer (Kritchman, Nadler 2009), so each value is judged by
// what remains without the larger ones.
func FitNoise(rows, cols int, values []float64) Noise {
	long, short := max(rows, cols), min(rows, cols)
	if short == 0 || len(values) == 0 || values[0] == 0 {
		return Noise{}
	}
	floor := values[0] * float64(long) * 0x1p-23
	over := func(limit float64) int {
		return sort.Search(len(values), func(i int) bool { return values[i] <= limit })
	}
	var n Noise
	for n.Spikes < len(values) {
		n.Deviation = deviation(long-n.Spikes, short-n.Spikes, values[n.Spikes:])
		n.Threshold = max(n.Deviation*largestOfNoise(long, short-n.Spikes, tracyWidom999), floor)
		spikes := over(n.Threshold)
		if spikes <= n.Spikes {
			break
		}
		n.Spikes = spikes
	}
	m := MarchenkoPastur{float64(short) / float64(long), n.Deviation * n.Deviation}
	lo, hi := m.Edges()
	n.Low, n.High = math.Sqrt(lo*float64(long)), math.Sqrt(hi*float64(long))
	n.Past = over(max(n.High, floor))
	return n
}

// deviation matches the quantiles of the middle half of the eigenvalues with those of the law.
func deviation(long, short int, values []float64) float64 {
	m := MarchenkoPastur{float64(short) / float64(long), 1}
	product, squares := 0.0, 0.0
	k := len(values)
	// 256 quantiles say as much as all: neighbours move together.
	step := max(1, k/512)
	for i := k / 4; i < max(k/4+1, k-k/4); i += step {
		q := m.Quantile(1 - (float64(i)+0.5)/float64(k))
		s := values[i]
		product += float64(s * s / float64(long) * q)
		squares += float64(q * q)
	}
	return math.Sqrt(product / squares)
}

// largestOfNoise is a quantile of the largest singular value of standard normal noise, after Johnstone's centring and
// scaling (2001); quantile is that of the Tracy–Widom law.
func largestOfNoise(long, short int, quantile float64) float64 {
	a, b := math.Sqrt(max(0.5, float64(long)-1)), math.Sqrt(float64(short))
	return math.Sqrt((a+b)*(a+b) + float64((a+b)*math.Cbrt(1/a+1/b)*quantile))
}
