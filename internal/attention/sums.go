package attention

import (
	"math"
	"math/bits"
	"slices"
)

// Tops are the numbers of keys whose mass is told.
var Tops = [...]int{1, 4, 16, 64}

const (
	// Small is the weight that published figures call negligible.
	Small = 0.01
	// RecallKeys is how many keys the first dimensions choose, and how many of the largest weights are looked for
	// among them.
	RecallKeys = 64
	// ages is the number of bins of age: 0, 1, 2 to 3, 4 to 7 and so on.
	ages = 25
	// lengths is the number of bins of the number of keys that a row sees: 1, 2 to 3, 4 to 7 and so on.
	lengths = 24
)

// sums is what is gathered of a set of rows of one head.
type sums struct {
	rows  int
	top   [len(Tops)]float64 // mass of the largest
	small float64            // share of the weights below Small
	first float64            // mass of the first position of the sequence
}

func (s *sums) add(o *sums) {
	s.rows += o.rows
	for i := range s.top {
		s.top[i] += o.top[i]
	}
	s.small += o.small
	s.first += o.first
}

// headSums is what is gathered of a head.
type headSums struct {
	by     [lengths]sums // by the keys that rows see
	long   sums          // of the rows far enough behind the begin
	age    [ages]float64 // mass by age, of the same rows
	recall float64       // of rows that see more than RecallKeys
	chosen int           // such rows

	w       weigher
	sorted  []float64
	partial []float64
	order   []int
}

// bin is the bin of a count: bin n has 2^(n-1) to 2^n - 1, bin 0 has 0.
func bin(n int) int { return bits.Len(uint(n)) }

// row adds a row whose query is q and that sees positions [lo, hi), the last of them its own; it is long if it has
// the position least - 1 or a later one. dims of the query's dimensions choose keys for the recall; 0: none do.
func (h *headSums) row(q, keys []float32, stride, lo, hi, least, dims int) {
	w := h.w.row(q, keys, stride, lo, hi)
	s := sums{rows: 1}
	h.sorted = append(h.sorted[:0], w...)
	slices.Sort(h.sorted)
	mass, at := 0.0, 0
	for i, n := range Tops {
		for ; at < min(n, len(w)); at++ {
			mass += h.sorted[len(w)-1-at]
		}
		s.top[i] += mass
	}
	below, _ := slices.BinarySearch(h.sorted, Small)
	s.small += float64(below) / float64(len(w))
	if lo == 0 {
		s.first += w[0]
	}
	h.by[min(bin(len(w)), lengths)-1].add(&s)
	if hi >= least {
		h.long.add(&s)
		for i, x := range w {
			h.age[min(bin(len(w)-1-i), ages-1)] += x
		}
	}
	if dims > 0 && len(w) > RecallKeys {
		h.recall += h.found(q[:dims], keys, stride, lo, w)
		h.chosen++
	}
}

// found is which share of the keys with the largest weights is among those that q, a part of the query, chooses.
func (h *headSums) found(q, keys []float32, stride, lo int, w []float64) float64 {
	h.partial = h.partial[:0]
	for p := range w {
		h.partial = append(h.partial, dot(q, keys[(lo+p)*stride:][:len(q)]))
	}
	chosen := largest(&h.order, h.partial)
	by := make(map[int]bool, RecallKeys)
	for _, p := range chosen {
		by[p] = true
	}
	n := 0
	for _, p := range largest(&h.order, w) {
		if by[p] {
			n++
		}
	}
	return float64(n) / RecallKeys
}

// largest is the indices of the RecallKeys largest values, of equal ones the earlier.
func largest(order *[]int, x []float64) []int {
	list := (*order)[:0]
	for i := range x {
		list = append(list, i)
	}
	slices.SortStableFunc(list, func(i, j int) int {
		switch {
		case x[i] > x[j]:
			return -1
		case x[i] < x[j]:
			return 1
		}
		return 0
	})
	*order = list
	return list[:RecallKeys]
}

// motion is how hidden states move in a layer.
type motion struct {
	cos, step float64
	rows      int
}

// row adds the hidden states of a row before and behind the layer.
func (m *motion) row(x, y []float32) {
	var xx, yy, xy, dd float64
	for i := range x {
		a, b := float64(x[i]), float64(y[i])
		xx += a * a
		yy += b * b
		xy += a * b
		dd += float64((b - a) * (b - a))
	}
	m.rows++
	if xx > 0 && yy > 0 {
		m.cos += xy / math.Sqrt(xx*yy)
		m.step += math.Sqrt(dd / xx)
	}
}

// exit is what a model says that ends behind a layer.
type exit struct {
	agree, decided int // rows with the model's own best token; with it here and behind all later layers
	kld            float64
}
