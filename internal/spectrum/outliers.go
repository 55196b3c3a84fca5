package spectrum

import (
	"fmt"
	"math"
	"slices"
)

// Rows is a matrix by its rows: Row writes row i into dst, of Cols values.
type Rows struct {
	Rows, Cols int
	Row        func(i int, dst []float32)
}

// NotFiniteError says where a matrix has a value that is NaN or infinite.
type NotFiniteError struct{ Row, Col int }

func (e *NotFiniteError) Error() string {
	return fmt.Sprintf("row %d, column %d (from 0) is NaN or infinite", e.Row, e.Col)
}

// Outliers is what the largest elements of a matrix, by magnitude, hold.
type Outliers struct {
	Count    int64   // elements, not fewer than the share asked for: ties are taken whole
	Limit    float64 // the smallest magnitude among them
	Energy   float64 // their share of the energy
	Channels []Channel
}

// Channel is an input channel (a column) with the outliers that it has.
type Channel struct {
	Col   int
	Count int64
}

// OutliersOf finds the largest share of the elements, 0.01 for 1 %, and the channels that have most of them: as many
// as are asked for.
func OutliersOf(m Rows, share float64, channels int) (Outliers, error) {
	goal := int64(math.Ceil(share * float64(m.Rows) * float64(m.Cols)))
	if goal < 1 {
		return Outliers{}, nil
	}
	// The bits of a positive float32 order as its value does: the limit is found by its upper half, then by its lower
	// one.
	upper, lower := make([]int64, 1<<15), make([]int64, 1<<16)
	bad := error(nil)
	each(m, func(i, j int, bits uint32) {
		if bits >= 0x7f800000 && bad == nil {
			bad = &NotFiniteError{i, j}
		}
		upper[bits>>16]++
	})
	if bad != nil {
		return Outliers{}, bad
	}
	high, left := last(upper, goal)
	each(m, func(_, _ int, bits uint32) {
		if int(bits>>16) == high {
			lower[bits&0xffff]++
		}
	})
	low, _ := last(lower, left)
	limit := uint32(high)<<16 | uint32(low)
	o := Outliers{Limit: float64(math.Float32frombits(limit))}
	all, theirs := 0.0, 0.0
	counts := make([]int64, m.Cols)
	each(m, func(_, j int, bits uint32) {
		v := float64(math.Float32frombits(bits))
		all += float64(v * v)
		if bits >= limit {
			theirs += float64(v * v)
			o.Count++
			counts[j]++
		}
	})
	if all > 0 {
		o.Energy = theirs / all
	}
	for j, n := range counts {
		if n > 0 {
			o.Channels = append(o.Channels, Channel{j, n})
		}
	}
	slices.SortStableFunc(o.Channels, func(a, b Channel) int { return int(b.Count - a.Count) })
	o.Channels = o.Channels[:min(channels, len(o.Channels))]
	return o, nil
}

// each calls fn with the bits of every magnitude, row by row.
func each(m Rows, fn func(i, j int, bits uint32)) {
	row := make([]float32, m.Cols)
	for i := range m.Rows {
		m.Row(i, row)
		for j, v := range row {
			fn(i, j, math.Float32bits(v)&0x7fffffff)
		}
	}
}

// last returns the lowest index whose counts, summed from the top, reach the goal, and what of the goal is left for
// that index.
func last(counts []int64, goal int64) (index int, left int64) {
	for i := len(counts) - 1; i > 0; i-- {
		if counts[i] >= goal {
			return i, goal
		}
		goal -= counts[i]
	}
	return 0, goal
}
