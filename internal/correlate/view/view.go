// Package view writes how alike layers are as a table and as a heat map.
package view

import (
	"fmt"
	"math"

	"ck/internal/correlate"
	"ck/internal/picture"
	"ck/internal/plaintext"
)

// Table has a row for each class, with means over layers that follow each other; pairs gives each of those a row.
func Table(list []correlate.Class, pairs bool) plaintext.Table {
	t := plaintext.Table{Head: []string{"class", "layers", "mean |r|", "largest |r|", "of layers", "left %", "bits"}}
	if pairs {
		t.Head = append(t.Head, "left between %")
	}
	codes, overlap := false, false
	for i := range list {
		for _, p := range list[i].Pairs {
			codes, overlap = codes || p.Measured != nil, overlap || p.Overlap != nil
		}
	}
	if codes {
		t.Head = append(t.Head, "by codes")
	}
	if overlap {
		t.Head = append(t.Head, "overlap", "random")
	}
	t.Right = make([]bool, len(t.Head))
	for i := range t.Right {
		t.Right[i] = i > 0
	}
	for i := range list {
		c := &list[i]
		t.Rows = append(t.Rows, row(c, c.Pairs, fmt.Sprint(len(c.Layers)), pairs, codes, overlap))
		for k := range c.Pairs {
			if pairs {
				t.Rows = append(t.Rows, row(c, c.Pairs[k:k+1], fmt.Sprintf("%d–%d", c.Pairs[k].First, c.Pairs[k].Second), pairs, codes, overlap))
			}
		}
	}
	return t
}

// row has the means of some pairs of a class.
func row(c *correlate.Class, list []correlate.Pair, layers string, between, codes, overlap bool) []string {
	name := c.Name
	if len(list) == 1 && len(c.Pairs) > 1 {
		name += " " + layers
	}
	if len(list) == 0 {
		return append([]string{name, layers}, make([]string, 5)...)
	}
	r := mean(list, magnitude)
	left := mean(list, func(p *correlate.Pair) *float64 { return &p.Left })
	bits := mean(list, func(p *correlate.Pair) *float64 { return &p.Gaussian })
	most, of := list[0].Correlation, fmt.Sprintf("%d–%d", list[0].First, list[0].Second)
	if len(list) > 1 {
		most, of = largest(c)
	}
	cells := []string{name, layers, fmt.Sprintf("%.4f", *r), fmt.Sprintf("%.4f", math.Abs(most)), of, fmt.Sprintf("%.2f", 100**left), fmt.Sprintf("%.4f", *bits)}
	optional := func(format string, scale float64, of func(p *correlate.Pair) *float64) {
		cell := ""
		if v := mean(list, of); v != nil {
			cell = fmt.Sprintf(format, scale**v)
		}
		cells = append(cells, cell)
	}
	if between {
		optional("%.2f", 100, func(p *correlate.Pair) *float64 { return p.Between })
	}
	if codes {
		optional("%.4f", 1, func(p *correlate.Pair) *float64 { return p.Measured })
	}
	if overlap {
		optional("%.4f", 1, func(p *correlate.Pair) *float64 { return p.Overlap })
		optional("%.4f", 1, func(p *correlate.Pair) *float64 { return p.Random })
	}
	return cells
}

func magnitude(p *correlate.Pair) *float64 {
	r := math.Abs(p.Correlation)
	return &r
}

// mean is over the pairs that have the figure; nil: none has.
func mean(list []correlate.Pair, of func(p *correlate.Pair) *float64) *float64 {
	sum, n := 0.0, 0
	for i := range list {
		if v := of(&list[i]); v != nil {
			sum, n = sum+*v, n+1
		}
	}
	if n == 0 {
		return nil
	}
	sum /= float64(n)
	return &sum
}

// largest is the correlation of the largest magnitude among all pairs of layers.
func largest(c *correlate.Class) (r float64, of string) {
	for i, line := range c.Correlation {
		for j, v := range line[:i] {
			if of == "" || math.Abs(v) > math.Abs(r) {
				r, of = v, fmt.Sprintf("%d–%d", c.Layers[j], c.Layers[i])
			}
		}
	}
	return r, of
}

// Summary is what all classes have in common, in a line.
func Summary(list []correlate.Class) string {
	var all []correlate.Pair
	most, where := 0.0, ""
	for i := range list {
		all = append(all, list[i].Pairs...)
		if r, of := largest(&list[i]); math.Abs(r) >= math.Abs(most) {
			most, where = r, fmt.Sprintf("%s of layers %s", plaintext.Escape(list[i].Name), of)
		}
	}
	if len(all) == 0 {
		return "no two layers have matrices of one class and shape"
	}
	r := mean(all, magnitude)
	bits := mean(all, func(p *correlate.Pair) *float64 { return &p.Gaussian })
	return fmt.Sprintf("%d classes, %d pairs of neighbours: |r| is %.4f in the mean, at most %.4f (%s); coding from the layer before saves %.4f bits a weight",
		len(list), len(all), *r, math.Abs(most), where, *bits)
}

// Map draws the correlations: of one class between all layers, of several between layers that follow each other.
func Map(title string, list []correlate.Class) *picture.HeatMap {
	d := &picture.HeatMap{Title: "Correlation of layers in " + title, Scale: "r", Lo: -1, Hi: 1}
	if len(list) == 1 {
		c := &list[0]
		d.Subtitle = fmt.Sprintf("%s, %d × %d, all pairs of layers", plaintext.Escape(c.Name), c.Shape[0], c.Shape[1])
		d.XName, d.YName, d.Values = "layer", "layer", c.Correlation
		for _, l := range c.Layers {
			d.Columns, d.Rows = append(d.Columns, fmt.Sprint(l)), append(d.Rows, fmt.Sprint(l))
		}
		return fit(d)
	}
	d.Subtitle, d.XName, d.YName = "each layer and the one before it; --tensors with one class draws all its pairs", "layer", ""
	last := 0
	for i := range list {
		for _, p := range list[i].Pairs {
			last = max(last, p.Second)
		}
	}
	for l := 1; l <= last; l++ {
		d.Columns = append(d.Columns, fmt.Sprint(l))
	}
	for i := range list {
		line := make([]float64, last)
		for k := range line {
			line[k] = math.NaN()
		}
		for _, p := range list[i].Pairs {
			if p.Second >= 1 {
				line[p.Second-1] = p.Correlation
			}
		}
		d.Rows, d.Values = append(d.Rows, plaintext.Escape(list[i].Name)), append(d.Values, line)
	}
	return fit(d)
}

// fit takes the ends of the scale from the largest magnitude beside the diagonal: correlations of trained layers are
// small, and would all be white.
func fit(d *picture.HeatMap) *picture.HeatMap {
	top := 0.0
	for i, line := range d.Values {
		for j, v := range line {
			if !math.IsNaN(v) && (d.YName == "" || i != j) {
				top = max(top, math.Abs(v))
			}
		}
	}
	top = max(top, 1e-6)
	d.Lo, d.Hi = -top, top
	return d
}
