package spectrum

import "math"

// Ratio is a likelihood ratio of a power law and another tail (Vuong 1989).
type Ratio struct {
	LogRatio float64 // of the whole tail; positive where the power law is likelier
	P        float64 // probability of so large a ratio, of either sign, where both are equally near to the truth
}

// Tails is what a continuous power law is held against, from the same xmin on.
type Tails struct {
	Exponential Ratio
	Lognormal   Ratio
	// Rate is the exponential's; Mu and Sigma are of ln x. Where no lognormal is likelier than the power law, which
	// is its limit for Mu to minus infinity, Sigma is infinite.
	Rate, Mu, Sigma float64
	// Fits says that the power law beats both: the exponential by Vuong's test at 10 %, the lognormal because its
	// second parameter does not earn its price, half the logarithm of the tail's length. A ratio against a family
	// that contains the law cannot be positive.
	Fits bool
}

// Compare fits exponential and lognormal tails to the values from f's xmin on. f must be continuous.
func (f PowerLaw) Compare(data []float64) Tails {
	x := positive(data)
	x = x[firstFrom(x, f.Xmin):]
	n := float64(len(x))
	var t Tails
	excess, m1, m2 := 0.0, 0.0, 0.0
	for _, v := range x {
		y := math.Log(v / f.Xmin)
		excess += v - f.Xmin
		m1 += y
		m2 += float64(y * y)
	}
	t.Rate, m1, m2 = n/excess, m1/n, m2/n
	power := func(v float64) float64 {
		return math.Log((f.Alpha-1)/f.Xmin) - float64(f.Alpha*math.Log(v/f.Xmin))
	}
	t.Exponential = vuong(x, power, func(v float64) float64 {
		return math.Log(t.Rate) - float64(t.Rate*(v-f.Xmin))
	})
	a, ok := truncation(m2 / (m1 * m1))
	if !ok {
		t.Mu, t.Sigma, t.Lognormal.P = math.Inf(-1), math.Inf(1), 1
	} else {
		t.Sigma = m1 / (hazard(a) - a)
		t.Mu = math.Log(f.Xmin) - float64(a*t.Sigma)
		// The density of y at 0 is hazard(a)/sigma; from there it falls as the normal one does.
		start := math.Log(hazard(a) / t.Sigma / f.Xmin)
		t.Lognormal = vuong(x, power, func(v float64) float64 {
			y := math.Log(v / f.Xmin)
			z := y / t.Sigma
			return start - y - float64(z*a) - float64(z*z)/2
		})
	}
	t.Fits = t.Exponential.LogRatio > 0 && t.Exponential.P < 0.1 && t.Lognormal.LogRatio > -math.Log(n)/2
	return t
}

// vuong compares two densities, given by their logarithms.
func vuong(x []float64, one, other func(float64) float64) Ratio {
	n := float64(len(x))
	mean, squares := 0.0, 0.0
	for i, v := range x {
		d := one(v) - other(v)
		step := d - mean
		mean += step / float64(i+1)
		squares += float64(step * (d - mean))
	}
	r := Ratio{LogRatio: mean * n, P: 1}
	if squares > 0 {
		r.P = math.Erfc(math.Abs(r.LogRatio) / math.Sqrt(2*squares))
	}
	return r
}

// hazard is density over survival of the standard normal law.
func hazard(a float64) float64 {
	if a < 20 {
		return math.Exp(-float64(a*a)/2) / math.Sqrt(2*math.Pi) / (0.5 * math.Erfc(a/math.Sqrt2))
	}
	tail := a // Laplace's continued fraction
	for k := 30; k >= 1; k-- {
		tail = a + float64(k)/tail
	}
	return tail
}

// truncation finds the a for which a normal variable over a, less a, has that ratio of the second moment to the
// squared mean. The ratio rises from 1 to 2, which the exponential has; from there on there is no such a.
func truncation(ratio float64) (float64, bool) {
	of := func(a float64) float64 {
		d := hazard(a) - a
		return (1 - float64(a*d)) / (d * d)
	}
	lo, hi := -1e4, 100.0
	if !(ratio < of(hi)) {
		return 0, false
	}
	for range 200 {
		if mid := (lo + hi) / 2; of(mid) < ratio {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2, true
}
