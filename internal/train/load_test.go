package train

import (
	"bytes"
	"math"
	"testing"

	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/quant"
)

// Parts of tensors are their rows, of vectors their elements, of experts rows of each; what is placed back is where it was.
func TestPartsOfTensors(t *testing.T) {
	var b bytes.Buffer
	infos := []gguf.TensorInfo{{Name: "v", Type: quant.F32, Shape: []int{7}}, {Name: "m", Type: quant.F32, Shape: []int{3, 5}}, {Name: "e", Type: quant.F32, Shape: []int{3, 5, 2}},
		{Name: "bad", Type: quant.F32, Shape: []int{2, 2}}}
	kv := &gguf.Metadata{}
	kv.Set("general.architecture", "llama")
	out, err := gguf.NewWriter(&b, kv, infos)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]float32{}
	next := float32(1)
	for _, x := range infos {
		n := 1
		for _, d := range x.Shape {
			n *= d
		}
		for range n {
			all[x.Name] = append(all[x.Name], next)
			next++
		}
		if x.Name == "bad" {
			all[x.Name][3] = float32(math.Inf(1))
		}
		if _, err := out.Write(floatBytes(all[x.Name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := gguf.FromBytes("parts", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		parts []graph.Weight
		first []float32 // value of each part
	}{
		{[]graph.Weight{{Name: "v", Rows: 1, Cols: 3, Of: 7}, {Name: "v", Rows: 1, Cols: 4, From: 3, Of: 7}}, []float32{1, 4}},
		{[]graph.Weight{{Name: "m", Rows: 4, Cols: 3, Of: 5}, {Name: "m", Rows: 1, Cols: 3, From: 4, Of: 5}}, []float32{8, 20}},
		{[]graph.Weight{{Name: "e", Rows: 4, Cols: 3, Experts: 2, Of: 5}, {Name: "e", Rows: 6, Cols: 3, Experts: 2, From: 2, Of: 5}}, []float32{23, 29}},
		{[]graph.Weight{{Name: "m", Rows: 5, Cols: 3}}, []float32{8}},
	} {
		name := c.parts[0].Name
		back := make([]float32, len(all[name]))
		for i, w := range c.parts {
			v := make([]float32, w.Rows*w.Cols)
			if err := load(m, w, v); err != nil {
				t.Fatal(err)
			}
			if v[0] != c.first[i] {
				t.Errorf("%s begins with %v, expected %v", w.Label(), v[0], c.first[i])
			}
			(&Param{Weight: w, Value: v}).place(back)
		}
		for i, x := range back {
			if x != all[name][i] {
				t.Errorf("%s: element %d is %v, expected %v", name, i, x, all[name][i])
			}
		}
	}
	for want, w := range map[string]graph.Weight{
		"tensor none: is missing":                {Name: "none", Rows: 1, Cols: 2},
		"tensor v: has 7 elements, expected 8":   {Name: "v", Rows: 1, Cols: 8},
		"tensor m: has 15 elements, expected 18": {Name: "m", Rows: 2, Cols: 3, Of: 6},
		"tensor bad: element 3 is +Inf":          {Name: "bad", Rows: 2, Cols: 2},
	} {
		if err := load(m, w, make([]float32, w.Rows*w.Cols)); err == nil || err.Error() != want {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}
