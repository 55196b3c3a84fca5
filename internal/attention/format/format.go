// Package format writes what attention found as tables and as a picture.
package format

import (
	"fmt"
	"math"
	"strconv"

	"ck/internal/attention"
	"ck/internal/picture"
	"ck/internal/plaintext"
)

// Section is a table with its heading.
type Section struct {
	Title string
	Table plaintext.Table
}

// Sections are the tables of a report: by layer, by keys seen, by age, and what dropping costs. heads adds one of all
// heads.
func Sections(r *attention.Report, dropped []attention.Dropped, heads bool) []Section {
	list := []Section{{"layers", layers(r)}}
	if heads {
		list = append(list, Section{"heads", table([]string{"head"}, r.Heads, func(h attention.Head) ([]string, attention.Weights) {
			return []string{fmt.Sprintf("%d.%d", h.Layer, h.Head)}, h.Weights
		})})
	}
	list = append(list, Section{"keys that a row sees", table([]string{"keys"}, r.Lengths, func(l attention.Length) ([]string, attention.Weights) {
		return []string{span(l.From, l.To)}, l.Weights
	})}, Section{"age of keys", ages(r)})
	if len(dropped) > 0 {
		list = append(list, Section{"smallest weights left out", sparse(dropped)})
	}
	return list
}

func percent(x float64) string { return fmt.Sprintf("%.1f", 100*x) }

func span(from, to int) string {
	if from == to {
		return strconv.Itoa(from)
	}
	return fmt.Sprintf("%d–%d", from, to)
}

// layers has what happens in each layer, with means over its heads.
func layers(r *attention.Report) plaintext.Table {
	t := plaintext.Table{Head: []string{"layer", "top 1 %", "top 16 %", "< 0.01 %", "first %", "cosine", "step", "decided %", "KLD"}}
	for range t.Head {
		t.Right = append(t.Right, true)
	}
	for _, l := range r.Layers {
		w := mean(r, l.Layer)
		t.Rows = append(t.Rows, []string{strconv.Itoa(l.Layer), percent(w.Top[0]), percent(w.Top[2]), percent(w.Small), percent(w.First),
			fmt.Sprintf("%.3f", l.Cosine), fmt.Sprintf("%.3f", l.Step), percent(l.Decided), fmt.Sprintf("%.4f", l.KLD)})
	}
	return t
}

// mean is the mean over the heads of a layer, which have the same rows.
func mean(r *attention.Report, layer int) (w attention.Weights) {
	n := 0.0
	for i := range r.Heads {
		if h := &r.Heads[i]; h.Layer == layer {
			n++
			for j := range w.Top {
				w.Top[j] += h.Top[j]
			}
			w.Small += h.Small
			w.First += h.First
		}
	}
	for j := range w.Top {
		w.Top[j] /= max(n, 1)
	}
	w.Small, w.First = w.Small/max(n, 1), w.First/max(n, 1)
	return w
}

// table has a row of weights for each of list.
func table[T any](head []string, list []T, of func(T) ([]string, attention.Weights)) plaintext.Table {
	t := plaintext.Table{Head: append(head, "rows")}
	for _, n := range attention.Tops {
		t.Head = append(t.Head, fmt.Sprintf("top %d %%", n))
	}
	t.Head = append(t.Head, "< 0.01 %", "first %")
	for range t.Head {
		t.Right = append(t.Right, true)
	}
	for _, x := range list {
		row, w := of(x)
		row = append(row, strconv.Itoa(w.Rows))
		for _, m := range w.Top {
			row = append(row, percent(m))
		}
		t.Rows = append(t.Rows, append(row, percent(w.Small), percent(w.First)))
	}
	return t
}

func ages(r *attention.Report) plaintext.Table {
	t := plaintext.Table{Head: []string{"positions back", "mass %", "so far %"}, Right: []bool{false, true, true}}
	sum := 0.0
	for _, a := range r.Ages {
		sum += a.Mass
		t.Rows = append(t.Rows, []string{span(a.From, a.To), percent(a.Mass), percent(sum)})
	}
	return t
}

func sparse(list []attention.Dropped) plaintext.Table {
	t := plaintext.Table{Head: []string{"left out %", "perplexity", "more"}, Right: []bool{true, true, true}}
	for i, d := range list {
		if i == 0 {
			t.Rows = append(t.Rows, []string{"0", fmt.Sprintf("%.4f", d.Base), ""})
		}
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%g", 100*d.Share), fmt.Sprintf("%.4f", d.Perplexity), fmt.Sprintf("%+.4f", d.Perplexity-d.Base)})
	}
	return t
}

// Summary is the report in a line.
func Summary(r *attention.Report) string {
	small, rows := 0.0, 0.0
	for _, h := range r.Heads {
		small, rows = small+h.Small*float64(h.Rows), rows+float64(h.Rows)
	}
	half := ""
	for _, l := range r.Layers {
		if l.Decided >= 0.5 {
			half = fmt.Sprintf("; half of the tokens are decided behind layer %d of %d", l.Layer+1, len(r.Layers))
			break
		}
	}
	return fmt.Sprintf("%d tokens, %d heads: %s %% of the weights are below 0.01 from position %d on%s", r.Tokens, len(r.Heads),
		percent(small/max(rows, 1)), r.Least, half)
}

// Picture is the mass of the 16 largest weights, by layer and head.
func Picture(title string, r *attention.Report) *picture.HeatMap {
	d := &picture.HeatMap{Title: "Mass of the 16 largest attention weights", XName: "head", YName: "layer", Lo: 0, Hi: 1, Scale: "mass",
		Subtitle: fmt.Sprintf("%s; %d blocks of %d tokens, from position %d on", title, r.Blocks, r.Block, r.Least)}
	last := -1
	for _, h := range r.Heads {
		if h.Layer != last {
			last = h.Layer
			d.Rows, d.Values = append(d.Rows, strconv.Itoa(last)), append(d.Values, nil)
		}
		row := &d.Values[len(d.Values)-1]
		*row = append(*row, h.Top[2])
		if len(*row) > len(d.Columns) {
			d.Columns = append(d.Columns, strconv.Itoa(h.Head))
		}
	}
	for i := range d.Values {
		for len(d.Values[i]) < len(d.Columns) {
			d.Values[i] = append(d.Values[i], math.NaN())
		}
	}
	return d
}
