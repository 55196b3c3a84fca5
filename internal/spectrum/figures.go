// Package spectrum says what the singular values of a matrix mean: how much of its energy a few directions carry,
// whether the values have a power law for a tail, which of them noise alone would not give.
//
// It is numerics only: it takes values and returns figures. Results depend on their arguments and, where numbers are
// drawn, on the seed.
package spectrum

import "math"

// Figures are the measures of rank of one spectrum. Energy is the sum of the squared singular values.
type Figures struct {
	Energy        float64
	Largest       float64 // singular value
	Rank90        int     // leading values that hold 90 % of the energy
	Rank95        int
	Rank99        int
	Stable        float64 // energy over the largest squared value
	Entropy       float64 // of the shares of energy, in nats
	EntropyRank   float64 // exp(Entropy): so many equal values have that entropy
	Participation float64 // 1 / sum of the squared shares
	Numerical     int     // values above the rounding of F32
}

// FiguresOf returns the figures of a matrix of that shape with these singular values, in descending order. A zero
// matrix has zero figures.
func FiguresOf(rows, cols int, values []float64) Figures {
	f := Figures{Energy: energy(values)}
	if f.Energy == 0 {
		return f
	}
	f.Largest = values[0]
	floor := values[0] * float64(max(rows, cols)) * 0x1p-23
	squares := 0.0
	for _, s := range values {
		// Shares are taken of the largest value first, so that tiny matrices do not underflow.
		p := s / f.Largest * (s / f.Largest) / (f.Energy / f.Largest / f.Largest)
		if p > 0 {
			f.Entropy -= float64(p * math.Log(p))
		}
		squares += float64(p * p)
		if s > floor {
			f.Numerical++
		}
	}
	f.Stable = f.Energy / f.Largest / f.Largest
	f.EntropyRank = math.Exp(f.Entropy)
	f.Participation = 1 / squares
	f.Rank90, f.Rank95, f.Rank99 = RankOf(values, 0.90), RankOf(values, 0.95), RankOf(values, 0.99)
	return f
}

// energy is the sum of squares, from the smallest on, which loses least.
func energy(values []float64) (sum float64) {
	for i := len(values) - 1; i >= 0; i-- {
		sum += float64(values[i] * values[i])
	}
	return sum
}

// RankOf returns how many leading values hold that share of the energy.
func RankOf(values []float64, share float64) int {
	goal, sum := share*energy(values), 0.0
	if goal == 0 {
		return 0
	}
	for i, s := range values {
		if sum += float64(s * s); sum >= goal {
			return i + 1
		}
	}
	return len(values)
}

// Kept returns the share of the energy that the best matrix of the given rank keeps.
func Kept(values []float64, rank int) float64 {
	all := energy(values)
	if all == 0 {
		return 0
	}
	return energy(values[:min(rank, len(values))]) / all
}

// Hill returns Hill's estimate of the tail index from the k largest of descending positive values; NaN where k is not
// below their number.
func Hill(values []float64, k int) float64 {
	if k < 1 || k >= len(values) || values[k] <= 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, x := range values[:k] {
		sum += math.Log(x / values[k])
	}
	return float64(k) / sum
}
