package attention

import (
	"math"
	"slices"
)

// weigher computes the attention weights of one row and head as the graph defines them (step.Attend), in float64.
type weigher struct {
	scale, cap float64
	weights    []float64 // of the last row
}

// row computes the weights of a query [D] for the keys of positions [lo, hi): those of the KV head begin at
// keys[p*stride].
func (w *weigher) row(q, keys []float32, stride, lo, hi int) []float64 {
	w.weights = slices.Grow(w.weights[:0], hi-lo)[:hi-lo]
	top := math.Inf(-1)
	for p := lo; p < hi; p++ {
		x := w.score(q, keys[p*stride:][:len(q)])
		w.weights[p-lo] = x
		top = max(top, x)
	}
	sum := 0.0
	for i, x := range w.weights {
		w.weights[i] = math.Exp(x - top)
		sum += w.weights[i]
	}
	for i := range w.weights {
		w.weights[i] /= sum
	}
	return w.weights
}

func (w *weigher) score(q, key []float32) float64 {
	x := w.scale * dot(q, key)
	if w.cap != 0 {
		x = w.cap * math.Tanh(x/w.cap)
	}
	return x
}

// dot is the product of two vectors. Four sums side by side: the order is fixed.
func dot(x, y []float32) float64 {
	var a, b, c, d float64
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a += float64(x[i]) * float64(y[i])
		b += float64(x[i+1]) * float64(y[i+1])
		c += float64(x[i+2]) * float64(y[i+2])
		d += float64(x[i+3]) * float64(y[i+3])
	}
	for ; i < len(x); i++ {
		a += float64(x[i]) * float64(y[i])
	}
	return (a + b) + (c + d)
}
