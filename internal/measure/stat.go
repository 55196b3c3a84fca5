package measure

import (
	"math"
	"slices"
)

// Summary describes the samples of one quantity.
type Summary struct {
	N            int     `json:"n"`
	Median       float64 `json:"median"`
	Lo           float64 `json:"lo"` // interval of the median
	Hi           float64 `json:"hi"`
	Level        float64 `json:"level"` // probability that the interval holds the true median
	Mean         float64 `json:"mean"`
	Stddev       float64 `json:"stddev"` // of the samples, divisor N-1
	Min          float64 `json:"min"`
	Max          float64 `json:"max"`
	OutlierIndex []int   `json:"outliers"`
}

// wantedLevel is the level that intervals aim at.
const wantedLevel = 0.95

// Summarize describes samples. The interval lies between two order statistics, which needs no assumption on the distribution: the
// k-th smallest and k-th largest of n samples hold the median with probability 1 - 2*P(Binomial(n, 1/2) < k). Fewer than six samples
// cannot reach 95 %; Level says what they reach (0.9375 for five). Outliers are further from the median than 3.5 robust deviations
// (1.4826 times the median distance; Iglewicz and Hoaglin 1993) and than 2 %.
func Summarize(samples []float64) Summary {
	n := len(samples)
	if n == 0 {
		return Summary{OutlierIndex: []int{}}
	}
	v := slices.Clone(samples)
	slices.Sort(v)
	s := Summary{N: n, Median: Median(v), Min: v[0], Max: v[n-1], OutlierIndex: []int{}}
	for _, x := range v {
		s.Mean += x / float64(n)
	}
	if n > 1 {
		for _, x := range v {
			s.Stddev += (x - s.Mean) * (x - s.Mean) / float64(n-1)
		}
		s.Stddev = math.Sqrt(s.Stddev)
	}
	k, tail := 1, math.Exp2(-float64(n)) // tail: P(Binomial(n, 1/2) < k)
	term := tail
	for k < (n+1)/2 {
		term *= float64(n-k+1) / float64(k)
		if 1-2*(tail+term) < wantedLevel {
			break
		}
		tail += term
		k++
	}
	s.Lo, s.Hi, s.Level = v[k-1], v[n-k], max(0, 1-2*tail)
	dist := make([]float64, n)
	for i, x := range samples {
		dist[i] = math.Abs(x - s.Median)
	}
	slices.Sort(dist)
	limit := max(3.5*1.4826*Median(dist), 0.02*math.Abs(s.Median))
	for i, x := range samples {
		if n > 2 && math.Abs(x-s.Median) > limit {
			s.OutlierIndex = append(s.OutlierIndex, i)
		}
	}
	return s
}

// Median is the middle of samples, or the mean of the two in the middle; NaN without samples.
func Median(samples []float64) float64 {
	n := len(samples)
	if n == 0 {
		return math.NaN()
	}
	v := slices.Clone(samples)
	slices.Sort(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// exactLimit is the largest number of samples of both sides for which RankTest counts all arrangements.
const exactLimit = 100

// RankTest is the two-sided rank-sum test of Wilcoxon, Mann and Whitney (1947): the probability that samples of one distribution would
// be told apart by their ranks at least as clearly as a and b are. Up to 100 samples in all it is exact, ties included; above, the
// normal approximation with its correction for ties. It is 1 where a side is empty.
func RankTest(a, b []float64) float64 {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return 1
	}
	all := append(slices.Clone(a), b...)
	ranks := doubledRanks(all)
	sum := 0
	for _, r := range ranks[:n] {
		sum += r
	}
	if n+m <= exactLimit {
		return exactRankSum(ranks, n, sum)
	}
	return normalRankSum(ranks, n, sum)
}

// normalRankSum is exactRankSum by the normal distribution of large samples.
func normalRankSum(ranks []int, n, sum int) float64 {
	size := float64(len(ranks))
	ties := map[int]int{}
	for _, r := range ranks {
		ties[r]++
	}
	variance := size + 1
	for _, c := range ties {
		variance -= float64(c) * (float64(c)*float64(c) - 1) / (size * (size - 1))
	}
	variance *= float64(n) * (size - float64(n)) / 12 * 4 // of the doubled sum
	if variance <= 0 {
		return 1
	}
	mean := float64(n) * (size + 1)
	return math.Erfc(math.Abs(float64(sum)-mean) / math.Sqrt(variance) / math.Sqrt2)
}

// doubledRanks gives each sample twice its rank, ties sharing the mean: whole numbers.
func doubledRanks(v []float64) []int {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		switch {
		case v[i] < v[j]:
			return -1
		case v[i] > v[j]:
			return 1
		}
		return 0
	})
	ranks := make([]int, len(v))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && v[order[j]] == v[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			ranks[order[k]] = i + j + 1 // (i+1 + j) / 2, doubled
		}
		i = j
	}
	return ranks
}

// exactRankSum is the share of all choices of n of the ranks whose sum is as far from the mean as sum is.
func exactRankSum(ranks []int, n, sum int) float64 {
	total := 0
	for _, r := range ranks {
		total += r
	}
	// ways[k][s]: choices of k ranks with sum s; plain floats hold binomials of 100.
	ways := make([][]float64, n+1)
	for k := range ways {
		ways[k] = make([]float64, total+1)
	}
	ways[0][0] = 1
	for _, r := range ranks {
		for k := n; k >= 1; k-- {
			for s := total; s >= r; s-- {
				ways[k][s] += ways[k-1][s-r]
			}
		}
	}
	// The mean is n/N of the total; distances are compared in multiples of 1/N, in whole numbers.
	size := len(ranks)
	far := func(s int) int { return max(s*size-n*total, n*total-s*size) }
	all, beyond := 0.0, 0.0
	for s, w := range ways[n] {
		all += w
		if far(s) >= far(sum) {
			beyond += w
		}
	}
	return beyond / all
}

// Amdahl fits the time of a job on n workers, time = t1*(S + (1-S)/n), by least squares of the relative error, and returns the serial
// share S in 0..1 and t1, the time on one. It needs two different numbers of workers; else ok is false.
func Amdahl(workers []int, times []float64) (serial, t1 float64, ok bool) {
	// time = a + b/n, weights 1/time^2; S = a/(a+b).
	var w, wx, wxx, wy, wxy float64
	for i, n := range workers {
		x, y := 1/float64(n), times[i]
		g := 1 / (y * y)
		w, wx, wxx, wy, wxy = w+g, wx+g*x, wxx+g*x*x, wy+g*y, wxy+g*x*y
	}
	det := w*wxx - wx*wx
	if det <= 1e-12*w*wxx {
		return 0, 0, false
	}
	a, b := (wy*wxx-wxy*wx)/det, (w*wxy-wx*wy)/det
	t1 = a + b
	return min(max(a/t1, 0), 1), t1, true
}

// AmdahlRange is how far the serial share that Amdahl fits may lie apart when the time of each number of workers is only known to lie
// between fast and slow: few workers fast and many slow give the largest share, the other way round the smallest.
func AmdahlRange(workers []int, fast, slow []float64) (lo, hi float64, ok bool) {
	if len(workers) == 0 {
		return 0, 0, false
	}
	middle := (1/float64(slices.Min(workers)) + 1/float64(slices.Max(workers))) / 2
	mix := func(few, many []float64) []float64 {
		out := slices.Clone(many)
		for i, n := range workers {
			if 1/float64(n) > middle {
				out[i] = few[i]
			}
		}
		return out
	}
	if hi, _, ok = Amdahl(workers, mix(fast, slow)); ok {
		lo, _, ok = Amdahl(workers, mix(slow, fast))
	}
	return lo, hi, ok
}

// Knee is the smallest number of workers whose rate is within share (0.95) of the best rate; 0 without any.
func Knee(workers []int, rates []float64, share float64) int {
	if len(rates) == 0 {
		return 0
	}
	best, knee := slices.Max(rates), 0
	for i, n := range workers {
		if rates[i] >= share*best && (knee == 0 || n < knee) {
			knee = n
		}
	}
	return knee
}
