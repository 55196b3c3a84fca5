package imatrix

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// column reads a number of a printed table, with the half of its last digit as the error that it may have.
func column(t *testing.T, s string) (v, half float64) {
	t.Helper()
	s = strings.TrimSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	_, digits, _ := strings.Cut(s, ".")
	return v, 0.51 * math.Pow10(-len(digits))
}

// The values are those that llama-imatrix prints, in its order, but for its float32 sums.
func TestStatistics(t *testing.T) {
	b, err := os.ReadFile("testdata/statistics.txt")
	if err != nil {
		t.Fatal(err)
	}
	m, _ := read(t, "stories.gguf")
	list := m.Statistics()
	layers := ByLayer(list)
	tensors, rows := 0, 0
	compare := func(what string, printed string, x float64) {
		t.Helper()
		if v, half := column(t, printed); !(math.Abs(v-x) <= half+2e-6*math.Abs(v)) {
			t.Errorf("%s: %g, printed %s", what, x, printed)
		}
	}
	for _, line := range strings.Split(string(b), "\n") {
		c := strings.Split(line, "\t")
		n, err := strconv.Atoi(strings.TrimSpace(c[0]))
		switch {
		case err == nil && len(c) == 13:
			s := list[tensors]
			tensors++
			if s.Layer != n || s.Kind != strings.TrimSpace(c[1]) ||
				strconv.Itoa(s.Elements) != strings.TrimSpace(c[8]) {
				t.Fatalf("%+v at %s", s, line)
			}
			for i, x := range map[int]float64{2: s.Sum, 3: s.Min, 4: s.Max, 5: s.Mean, 6: s.Deviation,
				7: 100 * s.Active, 9: s.Entropy, 10: 100 * s.Evenness, 11: 100 * s.ZD,
				12: s.Similarity} {
				compare(s.Tensor, c[i], x)
			}
		case err == nil && len(c) == 4:
			l := layers[rows]
			rows++
			if l.Layer != n {
				t.Fatalf("%+v at %s", l, line)
			}
			compare("sum of a layer", c[1], l.Sum)
			compare("z score of a layer", c[2], 100*l.ZD)
			compare("similarity of a layer", c[3], l.Similarity)
		}
	}
	if tensors != 35 || tensors != len(list) || rows != 5 || rows != len(layers) {
		t.Errorf("%d of %d tensors and %d of %d layers are printed", len(list), tensors, len(layers), rows)
	}
}

// Inputs that are nothing at all, a single column, and entries without data.
func TestStatisticsOfLittle(t *testing.T) {
	m := &Matrix{ChunkSize: 4, Entries: []Entry{
		{Name: "a", Sums: []float64{0, 0}, Counts: []int64{4}}, {Name: "b", Sums: []float64{8}, Counts: []int64{4}},
		{Name: "c", Sums: []float64{8}, Counts: []int64{0}},
		{Name: "d", Sums: []float64{8, 4, 3, 0}, Counts: []int64{4, 0}},
	}}
	list := m.Statistics()
	if len(list) != 3 || list[0].Entropy != 0 || list[0].Active != 0 || list[1].Sum != 2 || list[1].Evenness != 0 ||
		list[1].Layer != -1 || list[2].Elements != 2 || list[2].Max != 2 {
		t.Errorf("%+v", list)
	}
	for _, s := range list {
		for _, x := range []float64{s.Sum, s.Mean, s.Deviation, s.Entropy, s.Evenness, s.ZD, s.Similarity} {
			if math.IsNaN(x) {
				t.Errorf("%+v", s)
			}
		}
	}
	if n := ByLayer(list); len(n) != 0 {
		t.Errorf("layers of tensors without one: %+v", n)
	}
}
