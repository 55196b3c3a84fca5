package format

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"ck/internal/attention"
	"ck/internal/picture"
)

func report() *attention.Report {
	w := func(x float64) attention.Weights {
		return attention.Weights{Rows: 10, Top: [4]float64{x, 2 * x, 3 * x, 1}, Small: 0.5, First: x}
	}
	return &attention.Report{Blocks: 2, Block: 32, Tokens: 64, Least: 16,
		Heads:   []attention.Head{{Layer: 0, Head: 0, Weights: w(0.1)}, {Layer: 0, Head: 1, Weights: w(0.3)}, {Layer: 1, Head: 0, Weights: w(0.2)}},
		Lengths: []attention.Length{{From: 1, To: 1, Weights: w(0.25)}, {From: 2, To: 3, Weights: w(0.2)}},
		Ages:    []attention.Age{{From: 0, To: 0, Mass: 0.25}, {From: 1, To: 1, Mass: 0.5}, {From: 2, To: 3, Mass: 0.25}},
		Layers: []attention.Layer{{Layer: 0, Cosine: 0.5, Step: 1.25, Agree: 0.4, Decided: 0.25, KLD: 2},
			{Layer: 1, Cosine: 0.75, Step: 0.5, Agree: 1, Decided: 1}}}
}

// The tables have the figures where they belong; means are over the heads of a layer.
func TestSections(t *testing.T) {
	var b strings.Builder
	for _, s := range Sections(report(), []attention.Dropped{{Share: 0.9, Perplexity: 9.5, Base: 9}}, true) {
		b.WriteString("# " + s.Title + "\n")
		if err := s.Table.Write(&b, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"\n    0     20.0      60.0      50.0     20.0   0.500  1.250       25.0  2.0000\n",
		"\n 0.1    10     30.0     60.0      90.0     100.0      50.0     30.0\n", "\n 2–3    10     20.0 ", "\n1                 50.0      75.0\n",
		"\n         0      9.0000\n        90      9.5000  +0.5000\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	if got, want := Summary(report()), "64 tokens, 3 heads: 50.0 % of the weights are below 0.01 from position 16 on; "+
		"half of the tokens are decided behind layer 2 of 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A layer with fewer heads has empty cells.
func TestPicture(t *testing.T) {
	d := Picture("m", report())
	if err := d.Draw(&bytes.Buffer{}, picture.PNG); err != nil {
		t.Fatal(err)
	}
	if len(d.Values) != 2 || len(d.Values[1]) != 2 || math.Abs(d.Values[0][1]-0.9) > 1e-12 || !math.IsNaN(d.Values[1][1]) {
		t.Errorf("%v", d.Values)
	}
}
