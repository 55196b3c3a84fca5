package generate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Params are the settings of sampling. The zero value is greedy.
type Params struct {
	Temp          float64 // 0 or less: greedy
	TopK          int     // 0 or less: all
	TopP          float64 // 1 or more: off
	MinP          float64 // least share of the best token's probability, a token with just this share stays; 0 or less: off
	RepeatPenalty float64 // 1 or 0: off
	RepeatLastN   int     // tokens that the penalty looks back on, prompt included; 0: none, below 0: all
	Seed          uint64
	Stream        uint64 // which of the seed's sequences of random numbers: requests of a batch differ here
}

// DefaultParams are the defaults of ckrun, but for the seed.
func DefaultParams() Params {
	return Params{Temp: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, RepeatLastN: 64}
}

// Candidate is a token with its natural log probability.
type Candidate struct {
	ID      int32
	LogProb float64
}

// Sampler draws tokens. Its filters come in llama.cpp's order: repeat penalty, top-k, top-p, min-p, temperature; equal logits are
// ordered by id, lower first, so that the outcome depends on the logits and the seed alone. Each token takes one random number u in
// [0, 1): the token drawn is the first at which the sum of probabilities exceeds u, best first where top-k or top-p sorted, else by id.
type Sampler struct {
	p    Params
	rng  *rand.Rand
	cand []scored  // working memory
	mod  []float32 // logits with the penalty and without banned tokens
	seen []uint64  // bit set of ids that were penalised
	ban  []int32
}

type scored struct {
	logit float32
	id    int32
}

// before orders candidates: higher logit, then lower id.
func (a scored) before(b scored) bool {
	return a.logit > b.logit || a.logit == b.logit && a.id < b.id
}

// NewSampler makes a sampler at the start of its random sequence (PCG-DXSM of math/rand/v2).
func NewSampler(p Params) *Sampler {
	return &Sampler{p: p, rng: rand.New(rand.NewPCG(p.Seed, p.Stream))}
}

// Ban makes ids impossible, whatever their logits.
func (s *Sampler) Ban(ids ...int32) { s.ban = append(s.ban, ids...) }

// Sample draws the next id. last are the tokens so far, prompt included, for the repeat penalty. logits [vocabulary] are not
// changed. NaN counts as minus infinity.
//
// Greedy sampling reads the logits once; top-k reads them once with a heap of k entries, which little of a real distribution
// enters; top-p over all tokens sorts only as far as its share reaches.
func (s *Sampler) Sample(logits []float32, last []int32) int32 {
	logits = s.penalise(logits, last)
	logits = s.banned(logits)
	if !(s.p.Temp > 0) {
		return argmax(logits)
	}
	c := s.candidates(logits)
	return s.draw(c)
}

// argmax is the id of the highest logit, the lowest of equal ones.
func argmax(logits []float32) int32 {
	best, at := float32(math.Inf(-1)), 0
	for i := 0; i < len(logits); i++ {
		i += skip(logits[i:], best)
		if i < len(logits) && logits[i] > best {
			best, at = logits[i], i
		}
	}
	return int32(at)
}

// skip is the number of logits, whole eights of them, before one that is above the floor. Of a vocabulary nearly all are not; looking
// at eight at once takes a quarter of the time of a loop over each.
func skip(logits []float32, floor float32) int {
	n := 0
	for ; len(logits) >= 8; n += 8 {
		l := (*[8]float32)(logits)
		if l[0] > floor || l[1] > floor || l[2] > floor || l[3] > floor || l[4] > floor || l[5] > floor || l[6] > floor || l[7] > floor {
			break
		}
		logits = logits[8:]
	}
	return n
}

// penalise divides positive and multiplies negative logits of the last tokens by the penalty, each token once (N. Keskar et al.,
// CTRL, 2019, section 4.1, with llama.cpp's treatment of negative logits).
func (s *Sampler) penalise(logits []float32, last []int32) []float32 {
	if n := s.p.RepeatLastN; n >= 0 {
		last = last[max(len(last)-n, 0):]
	}
	if s.p.RepeatPenalty == 1 || s.p.RepeatPenalty <= 0 || len(last) == 0 {
		return logits
	}
	s.mod = append(s.mod[:0], logits...)
	if words := (len(logits) + 63) / 64; len(s.seen) < words {
		s.seen = make([]uint64, words)
	}
	penalty := float32(s.p.RepeatPenalty)
	for _, id := range last {
		if int(id) >= len(logits) || s.seen[id/64]>>(id%64)&1 != 0 {
			continue
		}
		s.seen[id/64] |= 1 << (id % 64)
		if s.mod[id] > 0 {
			s.mod[id] /= penalty
		} else {
			s.mod[id] *= penalty
		}
	}
	for _, id := range last {
		if int(id) < len(logits) {
			s.seen[id/64] = 0
		}
	}
	return s.mod
}

// banned sets the logits of banned tokens to minus infinity.
func (s *Sampler) banned(logits []float32) []float32 {
	if len(s.ban) == 0 {
		return logits
	}
	if len(s.mod) == 0 || &s.mod[0] != &logits[0] {
		s.mod = append(s.mod[:0], logits...)
	}
	for _, id := range s.ban {
		if int(id) < len(s.mod) {
			s.mod[id] = float32(math.Inf(-1))
		}
	}
	return s.mod
}

// candidates applies top-k, top-p and min-p; what is left is sorted where a filter needs order.
func (s *Sampler) candidates(logits []float32) []scored {
	c := s.cand[:0]
	k := s.p.TopK
	if k > 0 && k < len(logits) {
		c = topK(c, logits, k)
	} else {
		for i, v := range logits {
			if v > float32(math.Inf(-1)) {
				c = append(c, scored{v, int32(i)})
			}
		}
		if len(c) == 0 {
			c = append(c, scored{0, argmax(logits)})
		}
	}
	s.cand = c
	top := c[0]
	for _, x := range c {
		if x.before(top) {
			top = x
		}
	}
	// Both cuts keep a run from the top of the sorted list, so their order does not matter: what lies below either floor goes before
	// anything is sorted. Of n candidates those below (1-p)/n of the sum have less than 1-p of it together, so that the ones that
	// top-p keeps lie above.
	floor, mass := math.Inf(-1), 0.0
	if s.p.MinP > 0 {
		floor = float64(top.logit) + math.Log(min(s.p.MinP, 1))
	}
	if s.p.TopP < 1 {
		sum := 0.0
		for _, x := range c {
			sum += math.Exp(float64(x.logit) - float64(top.logit))
		}
		mass = max(s.p.TopP, 0) * sum
		floor = max(floor, float64(top.logit)+math.Log((sum-mass)/float64(len(c)))-1e-6)
	}
	c = slices.DeleteFunc(c, func(x scored) bool { return float64(x.logit) < floor })
	if s.p.TopP < 1 {
		c = nucleus(c, mass, float64(top.logit))
	}
	return c
}

// topK appends the k best logits to h, sorted: best first. h is a heap with the worst on top until the end.
func topK(h []scored, logits []float32, k int) []scored {
	for i := 0; i < len(logits); i++ {
		if len(h) == k {
			if i += skip(logits[i:], h[0].logit); i == len(logits) {
				break
			}
		}
		v := logits[i]
		x := scored{v, int32(i)}
		switch {
		case v != v || v == float32(math.Inf(-1)):
		case len(h) < k:
			h = append(h, x)
			if len(h) == k {
				for j := k/2 - 1; j >= 0; j-- {
					sink(h, j, worse)
				}
			}
		case v > h[0].logit: // an equal logit has a higher id than all that are here
			h[0] = x
			sink(h, 0, worse)
		}
	}
	if len(h) == 0 {
		h = append(h, scored{0, argmax(logits)})
	}
	slices.SortFunc(h, func(a, b scored) int {
		if a.logit != b.logit {
			return cmp.Compare(b.logit, a.logit)
		}
		return cmp.Compare(a.id, b.id)
	})
	return h
}

// nucleus keeps the fewest best candidates whose weights exp(logit-top) add up to mass, at least one, and returns them best first.
func nucleus(c []scored, mass, top float64) []scored {
	for i := len(c)/2 - 1; i >= 0; i-- {
		sink(c, i, scored.before)
	}
	// A heap that shrinks from its end: the best ones gather there, in reverse.
	n := len(c)
	for acc := 0.0; n > 0; {
		acc += math.Exp(float64(c[0].logit) - top)
		n--
		c[0], c[n] = c[n], c[0]
		sink(c[:n], 0, scored.before)
		if acc >= mass {
			break
		}
	}
	c = c[n:]
	slices.Reverse(c)
	return c
}

func worse(a, b scored) bool { return b.before(a) }

// sink restores the heap below i, where first(parent, child) holds.
func sink(h []scored, i int, first func(a, b scored) bool) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && first(h[c+1], h[c]) {
			c++
		}
		if !first(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// draw takes one of the candidates by softmax(logit/temp).
func (s *Sampler) draw(c []scored) int32 {
	top := c[0].logit
	for _, x := range c {
		top = max(top, x.logit)
	}
	weight := func(x scored) float64 {
		if x.logit == top {
			return 1 // of an infinite one too
		}
		return math.Exp((float64(x.logit) - float64(top)) / s.p.Temp)
	}
	sum := 0.0
	for _, x := range c {
		sum += weight(x)
	}
	r := s.rng.Float64() * sum
	for _, x := range c {
		if r -= weight(x); r < 0 {
			return x.id
		}
	}
	// The sum was rounded: the last one with any weight.
	for i := len(c) - 1; ; i-- {
		if i == 0 || weight(c[i]) > 0 {
			return c[i].id
		}
	}
}

// LogProbs returns the log probability of id under softmax(logits), and appends the k most probable tokens to dst, best first.
// The logits are the model's own, before penalty and filters.
func (s *Sampler) LogProbs(dst []Candidate, logits []float32, id int32, k int) (float64, []Candidate) {
	top := math.Inf(-1)
	for _, v := range logits {
		top = max(top, float64(v))
	}
	sum := 0.0
	for _, v := range logits {
		if v == v {
			sum += math.Exp(float64(v) - top)
		}
	}
	z := top + math.Log(sum)
	if k > 0 {
		s.cand = topK(s.cand[:0], logits, min(k, len(logits)))
		for _, x := range s.cand {
			dst = append(dst, Candidate{x.id, float64(x.logit) - z})
		}
	}
	return float64(logits[id]) - z, dst
}
