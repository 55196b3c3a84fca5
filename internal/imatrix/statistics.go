package imatrix

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Statistics describe the importances of a tensor, those that llama-imatrix --show-statistics prints.
type Statistics struct {
	Tensor     string  `json:"tensor"`
	Layer      int     `json:"layer"` // -1: the tensor is of no layer
	Kind       string  `json:"kind"`  // the name without layer and ".weight"
	Elements   int     `json:"elements"`
	Sum        float64 `json:"sum"` // of the importances, the mean squares of columns
	Min        float64 `json:"min"`
	Max        float64 `json:"max"`
	Mean       float64 `json:"mean"`
	Deviation  float64 `json:"standard_deviation"`
	Active     float64 `json:"active"`         // share of importances above 1e-5
	Entropy    float64 `json:"entropy"`        // of the importances' shares of their sum, in bits
	Evenness   float64 `json:"entropy_share"`  // of the entropy that equal importances would have
	ZD         float64 `json:"z_score_share"`  // share of importances more than a standard deviation above the mean
	Similarity float64 `json:"cosine_of_sums"` // with those of the same kind in the layer before; 0 without one
}

// inactive is what an importance must exceed to count as active.
const inactive = 1e-5

// Statistics describes all tensors that have data: by kind, the largest sum first.
func (m *Matrix) Statistics() []Statistics {
	var list []Statistics
	for i := range m.Entries {
		e := &m.Entries[i]
		x := e.counted(m.ChunkSize == 0)
		if len(x) == 0 {
			continue
		}
		s := describe(x)
		s.Tensor = e.Name
		s.Layer, s.Kind = place(e.Name)
		if s.Layer > 0 {
			before := strings.Replace(e.Name, layerName(s.Layer), layerName(s.Layer-1), 1)
			s.Similarity = cosine(e, m.Find(before))
		}
		list = append(list, s)
	}
	slices.SortStableFunc(list, func(a, b Statistics) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), cmp.Compare(b.Sum, a.Sum))
	})
	return list
}

// counted is the importances of the matrices that have data.
func (e *Entry) counted(old bool) []float64 {
	var x []float64
	per := e.columns()
	for i, n := range e.Counts {
		if n == 0 && !old {
			continue
		}
		for _, sum := range e.Sums[i*per:][:per] {
			x = append(x, sum/float64(max(n, 1)))
		}
	}
	return x
}

// describe computes what depends on the importances alone.
func describe(x []float64) Statistics {
	s := Statistics{Elements: len(x), Min: slices.Min(x), Max: slices.Max(x)}
	n := float64(len(x))
	squares, active := 0.0, 0
	for _, v := range x {
		s.Sum += v
		squares += v * v
		if v > inactive {
			active++
		}
	}
	s.Mean = s.Sum / n
	s.Deviation = math.Sqrt(max(squares/n-s.Mean*s.Mean, 0))
	s.Active = float64(active) / n
	above := 0
	for _, v := range x {
		if p := v / s.Sum; p > 0 {
			s.Entropy -= p * math.Log2(p)
		}
		if s.Deviation > 0 && (v-s.Mean)/s.Deviation > 1 {
			above++
		}
	}
	if len(x) > 1 {
		s.Evenness = s.Entropy / math.Log2(n)
	}
	s.ZD = float64(above) / n
	return s
}

// place is the layer and the kind of a tensor.
func place(name string) (layer int, kind string) {
	layer, kind = -1, strings.TrimSuffix(name, ".weight")
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		number, rest, ok := strings.Cut(rest, ".")
		if n, err := strconv.Atoi(number); ok && err == nil && n >= 0 {
			layer, kind = n, strings.TrimSuffix(rest, ".weight")
		}
	}
	return layer, kind
}

func layerName(n int) string { return "blk." + strconv.Itoa(n) + "." }

// cosine is that of the angle between the sums of two entries, 0 where there is none.
func cosine(a, b *Entry) float64 {
	if b == nil || len(a.Sums) != len(b.Sums) {
		return 0
	}
	ab, aa, bb := 0.0, 0.0, 0.0
	for i, x := range a.Sums {
		y := b.Sums[i]
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// LayerStatistics are means over the tensors of a layer, each weighted with its elements.
type LayerStatistics struct {
	Layer      int     `json:"layer"`
	Sum        float64 `json:"sum"`
	ZD         float64 `json:"z_score_share"`
	Similarity float64 `json:"cosine_of_sums"`
}

// ByLayer sums up statistics by layer, first to last; tensors of no layer are left out.
func ByLayer(list []Statistics) []LayerStatistics {
	var layers []LayerStatistics
	var elements []float64
	for _, s := range list {
		if s.Layer < 0 {
			continue
		}
		i, ok := slices.BinarySearchFunc(layers, s.Layer, func(l LayerStatistics, n int) int { return l.Layer - n })
		if !ok {
			layers = slices.Insert(layers, i, LayerStatistics{Layer: s.Layer})
			elements = slices.Insert(elements, i, 0)
		}
		n, l := float64(s.Elements), &layers[i]
		elements[i] += n
		l.Sum, l.ZD, l.Similarity = l.Sum+n*s.Sum, l.ZD+n*s.ZD, l.Similarity+n*s.Similarity
	}
	for i := range layers {
		l, n := &layers[i], elements[i]
		l.Sum, l.ZD, l.Similarity = l.Sum/n, l.ZD/n, l.Similarity/n
	}
	return layers
}
