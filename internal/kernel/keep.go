package kernel

import (
	"math"
	"slices"
	"unsafe"
)

// Kept is how many of n weights a share of them is: one at least.
func Kept(share float64, n int) int { return min(n, max(1, int(math.Ceil(share*float64(n))))) }

// AttendKept is Attend where each query keeps the largest of its weights alone: share is their part of the positions
// that it sees, see Kept. The others count as if they were not seen; of equal ones the earlier are kept. It is there
// to measure what models lose by it: plain Go, with sums in float64, the same for one row and for many.
func (f *KVFormat) AttendKept(s *AttnScratch, a *Attend, share float64) {
	f.check(a)
	k := &s.keep
	k.key, k.value = slices.Grow(k.key[:0], f.D)[:f.D], slices.Grow(k.value[:0], f.Dv)[:f.Dv]
	k.w, k.out = slices.Grow(k.w[:0], a.G)[:a.G], slices.Grow(k.out[:0], a.G*f.Dv)[:a.G*f.Dv]
	for r := range a.Rows {
		if s.Stop != nil && s.Stop.Load() {
			return
		}
		k.row(f, a, r, share)
	}
}

// keeper is the memory of AttendKept.
type keeper struct {
	key, value []float32
	w          [][]float64 // by head of the group, then by position
	sorted     []float64
	out        []float64
}

// row computes the outputs of a row.
func (k *keeper) row(f *KVFormat, a *Attend, r int, share float64) {
	lo, hi := max(0, int(a.Lo[r])), int(a.Hi[r])
	for g := range k.w {
		k.w[g] = k.w[g][:0]
	}
	for p := lo; p < hi; p++ {
		k.load(f, a, p)
		for g := range k.w {
			k.w[g] = append(k.w[g], a.score(a.Q[r*a.QStride+g*f.D:][:f.D], k.key))
		}
	}
	for g := range k.w {
		k.weigh(a, g, Kept(share, len(k.w[g])))
	}
	clear(k.out)
	for p := lo; p < hi; p++ {
		k.load(f, a, p)
		for g := range k.w {
			out := k.out[g*f.Dv:][:f.Dv]
			for d, v := range k.value {
				out[d] += float64(k.w[g][p-lo] * float64(v))
			}
		}
	}
	for g := range k.w {
		for d, x := range k.out[g*f.Dv:][:f.Dv] {
			a.O[r*a.OStride+g*f.Dv+d] = float32(x)
		}
	}
}

// load decodes key and value of position p.
func (k *keeper) load(f *KVFormat, a *Attend, p int) {
	b := p / BlockKeys
	f.Load(unsafe.Slice((*byte)(a.K[b]), f.kb), unsafe.Slice((*byte)(a.V[b]), f.vb), p%BlockKeys, k.key, k.value)
}

// score is the score of a key for a query.
func (a *Attend) score(q, key []float32) float64 {
	dot := 0.0
	for d, x := range q {
		dot += float64(x) * float64(key[d]) // the product is exact: fused or not, the sum is the same
	}
	x := float64(a.Scale) * dot
	if a.Softcap != 0 {
		x = float64(a.Softcap) * math.Tanh(x/float64(a.Softcap))
	}
	return x
}

// weigh makes the softmax of the n largest scores of head g in their place; the others become zero.
func (k *keeper) weigh(a *Attend, g, n int) {
	w := k.w[g]
	if len(w) == 0 {
		return
	}
	k.sorted = append(k.sorted[:0], w...)
	slices.Sort(k.sorted)
	least, top := k.sorted[len(w)-n], k.sorted[len(w)-1]
	equal := n // how many of those that equal the least are kept
	for i := len(w) - 1; i >= 0 && k.sorted[i] > least; i-- {
		equal--
	}
	total := 0.0
	if a.Sinks != nil {
		top = max(top, float64(a.Sinks[g]))
		total = math.Exp(float64(a.Sinks[g]) - top)
	}
	for i, x := range w {
		if x == least {
			equal--
		}
		if x < least || x == least && equal < 0 {
			w[i] = 0
			continue
		}
		w[i] = math.Exp(x - top) // NaN stays NaN
		total += w[i]
	}
	for i := range w {
		w[i] /= total
	}
}
