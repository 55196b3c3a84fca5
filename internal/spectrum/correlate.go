package spectrum

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// Pair is how alike two matrices of one shape are, element by element.
type Pair struct {
	Cosine      float64
	Correlation float64 // Pearson's
	Scale       float64 // of A that is nearest to B
	Left        float64 // energy of B - Scale*A over that of B
	Gaussian    float64 // bits per weight saved by coding B from A, were both Gaussian; infinite for multiples
	Measured    float64 // bits per weight by which codes of B - Scale*A have less entropy than codes of B
}

// codeSteps is the steps of a code to a standard deviation of B: codes of about five bits, where entropy is that of a
// fine quantizer.
const codeSteps = 8

// codeReach is the codes to each side. What lies beyond counts as the outermost code.
const codeReach = 1 << 12

// Correlate compares matrices of one shape. Figures that a zero matrix leaves undefined are 0.
func Correlate(a, b Rows) (Pair, error) {
	if a.Rows != b.Rows || a.Cols != b.Cols {
		return Pair{}, fmt.Errorf("shapes %d x %d and %d x %d differ", a.Rows, a.Cols, b.Rows, b.Cols)
	}
	var m moments
	err := both(a, b, func(x, y float64) {
		m.x += x
		m.y += y
		m.xx += float64(x * x)
		m.yy += float64(y * y)
		m.xy += float64(x * y)
	})
	n := float64(a.Rows) * float64(a.Cols)
	if err != nil || n == 0 || m.xx == 0 || m.yy == 0 {
		return Pair{}, err
	}
	p := Pair{Cosine: m.xy / math.Sqrt(m.xx) / math.Sqrt(m.yy), Scale: m.xy / m.xx}
	p.Left = max(0, 1-float64(p.Cosine*p.Cosine))
	vx, vy := m.xx-m.x*m.x/n, m.yy-m.y*m.y/n
	if vx > 0 && vy > 0 {
		p.Correlation = (m.xy - m.x*m.y/n) / math.Sqrt(vx) / math.Sqrt(vy)
		p.Gaussian = -math.Log2(max(0, 1-float64(p.Correlation*p.Correlation))) / 2 // log2(1/(1-r²))/2
	}
	step := math.Sqrt(m.yy/n) / codeSteps
	whole, rest := make([]int64, 2*codeReach+1), make([]int64, 2*codeReach+1)
	err = both(a, b, func(x, y float64) {
		whole[code(y, step)]++
		rest[code(y-float64(p.Scale*x), step)]++
	})
	p.Measured = entropyOf(whole) - entropyOf(rest)
	return p, err
}

// moments are sums over elements.
type moments struct{ x, y, xx, yy, xy float64 }

// both calls fn with the elements of both, row by row, up to the first that is not finite.
func both(a, b Rows, fn func(x, y float64)) error {
	x, y := make([]float32, a.Cols), make([]float32, a.Cols)
	for i := range a.Rows {
		a.Row(i, x)
		b.Row(i, y)
		for j := range x {
			u, v := float64(x[j]), float64(y[j])
			if d := u - u + v - v; d != 0 { // NaN, too, is not 0
				return &NotFiniteError{i, j}
			}
			fn(u, v)
		}
	}
	return nil
}

// code is the index of the step nearest to x.
func code(x, step float64) int {
	return int(min(max(math.RoundToEven(x/step), -codeReach), codeReach)) + codeReach
}

// entropyOf is the entropy of symbols counted so often, in bits.
func entropyOf(counts []int64) (sum float64) {
	n := int64(0)
	for _, c := range counts {
		n += c
	}
	for _, c := range counts {
		if c > 0 {
			p := float64(c) / float64(n)
			sum -= float64(p * math.Log2(p))
		}
	}
	return sum
}

// Angles returns the principal angles, ascending and in radians, between the spaces that two sets of orthonormal
// vectors span. The vectors of both are of one length.
func Angles(a, b [][]float64) ([]float64, error) {
	if len(a) == 0 || len(b) == 0 {
		return nil, nil
	}
	products := mat.NewDense(len(a), len(b), nil)
	for i, x := range a {
		for j, y := range b {
			if len(x) != len(y) {
				return nil, fmt.Errorf("vectors of %d and of %d have no angle", len(x), len(y))
			}
			sum := 0.0
			for k := range x {
				sum += float64(x[k] * y[k])
			}
			products.Set(i, j, sum)
		}
	}
	var svd mat.SVD
	if !svd.Factorize(products, mat.SVDNone) {
		return nil, fmt.Errorf("the products of %d and %d vectors have no singular values", len(a), len(b))
	}
	list := svd.Values(nil)
	for i, c := range list {
		list[i] = math.Acos(min(1, c))
	}
	return list, nil
}
