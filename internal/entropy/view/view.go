// Package view writes how many bits weights carry as tables and as a chart.
package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ck/internal/entropy"
	"ck/internal/picture"
	"ck/internal/plaintext"
)

// Row is a tensor, a class of tensors, or all of them. Bits are of a weight.
type Row struct {
	Name      string         `json:"name"`
	Class     string         `json:"class,omitempty"`
	Layer     *int           `json:"layer,omitempty"`
	Type      string         `json:"type,omitempty"` // "" where there are several
	Tensors   int            `json:"tensors,omitempty"`
	Weights   int64          `json:"weights"`
	Bits      float64        `json:"bits_per_weight"`
	Entropy   float64        `json:"entropy_per_weight"`
	Coded     float64        `json:"coded_bits_per_weight"`
	Histogram *float64       `json:"histogram_bits"` // null: a value is not finite
	Parts     []entropy.Part `json:"parts,omitempty"`
	Failed    string         `json:"error,omitempty"`
}

// RowOf is the row of a tensor.
func RowOf(x *entropy.Full, class string, layer int) Row {
	r := Row{Name: x.Name, Class: class, Type: x.Type.String(), Weights: x.Weights, Bits: x.Bits(), Entropy: x.Entropy(), Coded: x.Coded, Parts: x.Parts}
	if layer >= 0 {
		r.Layer = &layer
	}
	if !math.IsNaN(x.Histogram) {
		r.Histogram = &x.Histogram
	}
	return r
}

// Sum is the row of several, whose figures are means over their weights.
func Sum(name string, list []Row) Row {
	r := Row{Name: name}
	bins, known := 0.0, int64(0)
	for i := range list {
		x := &list[i]
		if x.Failed != "" {
			continue
		}
		if r.Tensors++; r.Tensors == 1 {
			r.Type = x.Type
		} else if r.Type != x.Type {
			r.Type = ""
		}
		n := float64(x.Weights)
		r.Weights, r.Bits, r.Entropy, r.Coded = r.Weights+x.Weights, r.Bits+n*x.Bits, r.Entropy+n*x.Entropy, r.Coded+n*x.Coded
		if x.Histogram != nil {
			bins, known = bins+n**x.Histogram, known+x.Weights
		}
	}
	if n := float64(r.Weights); n > 0 {
		r.Bits, r.Entropy, r.Coded = r.Bits/n, r.Entropy/n, r.Coded/n
	}
	if known > 0 {
		bins /= float64(known)
		r.Histogram = &bins
	}
	return r
}

// Classes sums the rows of each class, in the order of their first tensor.
func Classes(list []Row) []Row {
	by := map[string][]Row{}
	var order []string
	for _, x := range list {
		if by[x.Class] == nil {
			order = append(order, x.Class)
		}
		by[x.Class] = append(by[x.Class], x)
	}
	var sums []Row
	for _, c := range order {
		sums = append(sums, Sum(c, by[c]))
	}
	return sums
}

// Table has a row for each of list. parts adds the entropy of the parts of each tensor.
func Table(what string, list []Row, parts bool) plaintext.Table {
	t := plaintext.Table{Head: []string{what, "type", "weights", "bits", "entropy", "coded", "saved", "256 bins"},
		Right: []bool{false, false, true, true, true, true, true, true}}
	if parts {
		t.Head, t.Right = append(t.Head, "parts"), append(t.Right, false)
	}
	for i := range list {
		r := &list[i]
		row := []string{r.Name, r.Type, fmt.Sprint(r.Weights)}
		if r.Failed != "" {
			row = append(row, "", "", "", "", r.Failed)
		} else {
			bins := "not finite"
			if r.Histogram != nil {
				bins = fmt.Sprintf("%.2f", *r.Histogram)
			}
			row = append(row, fmt.Sprintf("%.2f", r.Bits), fmt.Sprintf("%.2f", r.Entropy), fmt.Sprintf("%.2f", r.Coded),
				fmt.Sprintf("%.1f %%", 100*(1-r.Coded/max(r.Bits, 1e-9))), bins)
		}
		if parts {
			row = append(row, partsOf(r.Parts))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func partsOf(list []entropy.Part) (s string) {
	for i, q := range list {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%s %.2f of %.2f", q.Name, q.Entropy, q.Bits)
	}
	return s
}

// Summary is all in a line.
func Summary(all Row) string {
	bins := ""
	if all.Histogram != nil {
		bins = fmt.Sprintf("; %.2f bits in 256 bins", *all.Histogram)
	}
	return fmt.Sprintf("%d tensors: %.2f bits a weight carry %.2f, a coder stores them in %.2f%s", all.Tensors, all.Bits, all.Entropy, all.Coded, bins)
}

// mostLines is the classes that a chart has: those of most weights, and of no fewer than one in so many of the largest.
const (
	mostLines = 10
	least     = 200
)

// Chart draws the entropy by layer, a line for each class.
func Chart(title string, list []Row) *picture.Lines {
	d := &picture.Lines{Title: "Entropy of the weights of " + title, XName: "layer", YName: "bits a weight", FromZero: true,
		Subtitle: "of order 0, of signs, exponents, mantissas or of codes and scales; dashed: stored"}
	by, order, most := map[string][]Row{}, []string(nil), int64(0)
	for _, x := range list {
		if x.Layer == nil || x.Failed != "" {
			continue
		}
		most = max(most, x.Weights)
		if by[x.Class] == nil {
			order = append(order, x.Class)
		}
		by[x.Class] = append(by[x.Class], x)
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(Sum("", by[b]).Weights, Sum("", by[a]).Weights) })
	for _, c := range order[:min(len(order), mostLines)] {
		rows := by[c]
		if rows[0].Weights < most/least {
			continue // a vector
		}
		slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(*a.Layer, *b.Layer) })
		carried, stored := picture.Line{Name: plaintext.Escape(c), Dots: true}, picture.Line{Dashed: true}
		for _, r := range rows {
			carried.X, carried.Y = append(carried.X, float64(*r.Layer)), append(carried.Y, r.Entropy)
			stored.X, stored.Y = append(stored.X, float64(*r.Layer)), append(stored.Y, r.Bits)
		}
		d.Lines = append(d.Lines, carried, stored)
	}
	return d
}
