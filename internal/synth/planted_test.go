package synth

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"ck/internal/gguf"
	"ck/internal/quant"
)

func small(t *testing.T) *gguf.Model {
	t.Helper()
	m, err := Model("small", Shape{Arch: "llama", Layers: 3, Hidden: 64, FFN: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 400, Context: 256,
		RopeBase: 1e4}, quant.F32, 7)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// matrix is a tensor's values.
func matrix(m *gguf.Model, name string) (x []float64, rows, cols int) {
	t := m.Tensor(name)
	row := make([]float32, t.Cols())
	for r := range t.Rows() {
		quant.Decode(t.Type, row, t.Row(r))
		for _, v := range row {
			x = append(x, float64(v))
		}
	}
	return x, t.Rows(), t.Cols()
}

// What is planted is there: rank, correlation, levels, scales; what is not named stays.
func TestPlanted(t *testing.T) {
	m := small(t)
	const name = "blk.1.ffn_up.weight"
	x, rows, cols := matrix(Planted(m, LowRank(5, 0.001, 1)), name)
	var svd mat.SVD
	svd.Factorize(mat.NewDense(rows, cols, x), mat.SVDNone)
	s := svd.Values(nil)
	if s[4] < 0.1*s[0] || s[5] > 0.01*s[0] {
		t.Errorf("rank 5: singular values %v", s[:8])
	}
	alike := Planted(m, Alike(0.6, 1))
	x, _, _ = matrix(alike, name)
	y, _, _ := matrix(alike, "blk.2.ffn_up.weight")
	if r := stat.Correlation(x, y, nil); math.Abs(r-0.6) > 0.03 {
		t.Errorf("correlation %v", r)
	}
	x, _, _ = matrix(Planted(m, Levels(8, 1)), name)
	count := map[float64]int{}
	for _, v := range x {
		count[v]++
	}
	if len(count) != 8 {
		t.Errorf("%d levels", len(count))
	}
	for v, n := range count {
		if math.Abs(float64(n)*8/float64(len(x))-1) > 0.15 {
			t.Errorf("level %v: %d of %d", v, n, len(x))
		}
	}
	x, _, _ = matrix(m, name)
	y, _, _ = matrix(Planted(m, Scaled("ffn_up", 1, 2, 3)), name)
	z, _, _ := matrix(Planted(m, Scaled("ffn_up", 0, 1, 3)), name)
	if y[0] != 3*x[0] || z[0] != x[0] {
		t.Errorf("scaled: %v and %v of %v", y[0], z[0], x[0])
	}
}
