package spectrum

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// Kind says what values a power law is fitted to.
type Kind int

// Continuous values are any positive numbers, discrete ones are counts.
const (
	Continuous Kind = iota
	Discrete
)

// DiscreteLimit is the largest xmin that a search over counts tries. Above it the continuous law is as good.
const DiscreteLimit = 200

// PowerLaw is a tail p(x) ~ x^-Alpha from Xmin on.
type PowerLaw struct {
	Kind  Kind
	Xmin  float64
	Alpha float64
	Error float64 // standard error of Alpha
	KS    float64 // largest distance between the tail's distribution and the law's, from both sides
	Tail  int     // values from Xmin on
}

// positive returns the values over zero in ascending order.
func positive(data []float64) []float64 {
	var list []float64
	for _, x := range data {
		if x > 0 && !math.IsInf(x, 1) {
			list = append(list, x)
		}
	}
	slices.Sort(list)
	return list
}

// FitPowerLaw finds the xmin whose tail is nearest to a power law (Clauset, Shalizi, Newman 2009), with alpha of the
// greatest likelihood. Values that are not positive are left out. It reports false where fewer than two different
// values remain.
func FitPowerLaw(data []float64, kind Kind) (PowerLaw, bool) {
	return search(positive(data), kind)
}

// FitPowerLawFrom fits alpha to the values from a given xmin on.
func FitPowerLawFrom(data []float64, kind Kind, xmin float64) (PowerLaw, bool) {
	x := positive(data)
	x = x[firstFrom(x, xmin):]
	return fitTail(x, logs(x), kind, xmin, math.Inf(1))
}

func firstFrom(x []float64, xmin float64) int {
	i, _ := slices.BinarySearch(x, xmin)
	return i
}

func logs(x []float64) []float64 {
	list := make([]float64, len(x))
	for i, v := range x {
		list[i] = math.Log(v)
	}
	return list
}

// search tries every value as xmin.
func search(x []float64, kind Kind) (best PowerLaw, ok bool) {
	best.KS = math.Inf(1)
	ln := logs(x)
	for i := range x {
		if i > 0 && x[i] == x[i-1] {
			continue
		}
		if kind == Discrete && x[i] > DiscreteLimit {
			break
		}
		if f, fits := fitTail(x[i:], ln[i:], kind, x[i], best.KS); fits && f.KS < best.KS {
			best, ok = f, true
		}
	}
	return best, ok
}

// fitTail fits one tail, which starts at xmin or after. It gives up where the distance is not under limit.
func fitTail(x, ln []float64, kind Kind, xmin, limit float64) (PowerLaw, bool) {
	n := len(x)
	if n < 2 || x[n-1] <= xmin {
		return PowerLaw{}, false
	}
	sum, first := 0.0, math.Log(xmin)
	for _, v := range ln {
		sum += v - first
	}
	f := PowerLaw{Kind: kind, Xmin: xmin, Tail: n}
	if kind == Discrete {
		f.Alpha = discreteAlpha(sum/float64(n), xmin)
		const h = 1e-3
		second := (logZeta(f.Alpha+h, xmin) - 2*logZeta(f.Alpha, xmin) + logZeta(f.Alpha-h, xmin)) / (h * h)
		f.Error = 1 / math.Sqrt(float64(n)*second)
		f.KS = discreteDistance(x, f.Alpha, xmin)
		return f, f.KS < limit
	}
	f.Alpha = 1 + float64(n)/sum
	f.Error = (f.Alpha - 1) / math.Sqrt(float64(n))
	for i, v := range ln {
		p := -math.Expm1((1 - f.Alpha) * (v - first))
		d := max(math.Abs(float64(i+1)/float64(n)-p), math.Abs(float64(i)/float64(n)-p))
		if f.KS = max(f.KS, d); f.KS >= limit {
			return PowerLaw{}, false
		}
	}
	return f, true
}

// logZeta is the logarithm of Hurwitz' zeta times q^s, which keeps large exponents in range.
func logZeta(s, q float64) float64 { return math.Log(mathext.Zeta(s, q)) + s*math.Log(q) }

// discreteAlpha minimizes alpha*mean + ln(zeta(alpha, xmin)*xmin^alpha) by the golden section; mean is that of
// ln(x/xmin).
func discreteAlpha(mean, xmin float64) float64 {
	loss := func(a float64) float64 { return a*mean + logZeta(a, xmin) }
	const golden = 0.6180339887498949
	// The estimate for continuous values is 1 + 1/mean; that for counts is smaller.
	lo, hi := 1+1e-6, min(2+2/mean, 100)
	a, b := hi-golden*(hi-lo), lo+golden*(hi-lo)
	fa, fb := loss(a), loss(b)
	for hi-lo > 1e-9 {
		if fa < fb {
			hi, b, fb = b, a, fa
			a = hi - golden*(hi-lo)
			fa = loss(a)
		} else {
			lo, a, fa = a, b, fb
			b = lo + golden*(hi-lo)
			fb = loss(b)
		}
	}
	return (lo + hi) / 2
}

// discreteDistance compares the distributions at the values that occur.
func discreteDistance(x []float64, alpha, xmin float64) (d float64) {
	all := mathext.Zeta(alpha, xmin)
	for i := range x {
		if i+1 < len(x) && x[i+1] == x[i] {
			continue
		}
		law := 1 - mathext.Zeta(alpha, x[i]+1)/all
		d = max(d, math.Abs(float64(i+1)/float64(len(x))-law))
	}
	return d
}

// Goodness returns the share of synthetic sets that are farther from their own best power law than the data are from
// f, their fit. Sets are drawn from f above xmin and from the data below it. Under 0.1 the law is rejected. About
// 2,500 sets give two digits.
func (f PowerLaw) Goodness(ctx context.Context, data []float64, sets int, seed uint64) (float64, error) {
	x := positive(data)
	below := x[:firstFrom(x, f.Xmin)]
	rng := rand.New(rand.NewPCG(seed, 0x5bec))
	farther := 0
	set := make([]float64, len(x))
	for range sets {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		for i := range set {
			if k := rng.IntN(len(x)); k < len(below) {
				set[i] = below[k]
			} else {
				set[i] = f.draw(rng)
			}
		}
		slices.Sort(set)
		if g, ok := search(set, f.Kind); ok && g.KS >= f.KS {
			farther++
		}
	}
	return float64(farther) / float64(max(1, sets)), nil
}

// draw returns a value of the law.
func (f PowerLaw) draw(rng *rand.Rand) float64 {
	u := 1 - rng.Float64() // never 0
	if f.Kind == Continuous {
		return f.Xmin * math.Pow(u, -1/(f.Alpha-1))
	}
	// The value is the last one whose survival P(X >= x) is not under u.
	all := mathext.Zeta(f.Alpha, f.Xmin)
	lo, hi := f.Xmin, 2*f.Xmin
	for mathext.Zeta(f.Alpha, hi)/all >= u && hi < 1e15 {
		lo, hi = hi, 2*hi
	}
	for hi-lo > 1 {
		if mid := math.Floor((lo + hi) / 2); mathext.Zeta(f.Alpha, mid)/all >= u {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
