package imatrix

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// read reads a file of testdata.
func read(t testing.TB, name string) (*Matrix, []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return m, b
}

// written is what Write makes for a name.
func written(t *testing.T, m *Matrix, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.Write(&b, name); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What llama-imatrix wrote is read and written byte for byte, in both forms, and from either form into the other.
func TestForms(t *testing.T) {
	for _, c := range []struct{ from, to string }{
		{"stories.gguf", "stories.gguf"}, {"stories.dat", "stories.dat"}, {"stories.gguf", "stories.dat"},
		{"stories.dat", "fromdat.gguf"},
		{"experts.gguf", "experts.gguf"}, {"experts.dat", "experts.dat"}, {"experts.gguf", "experts.dat"},
		{"partial.gguf", "partial.gguf"}, {"partial.dat", "partial.dat"}, {"partial.gguf", "partial.dat"},
	} {
		m, _ := read(t, c.from)
		_, want := read(t, c.to)
		if got := written(t, m, c.to); !bytes.Equal(got, want) {
			t.Errorf("%s as %s: %d bytes, want %d, or other ones", c.from, c.to, len(got), len(want))
		}
	}
	m, _ := read(t, "stories.gguf")
	if m.Chunks != 3 || m.ChunkSize != 64 || !slices.Equal(m.Datasets, []string{"story.txt"}) ||
		len(m.Entries) != 35 || m.Find("blk.4.attn_q.weight") == nil ||
		m.Find("blk.5.attn_q.weight") != nil {
		t.Errorf("%d blocks of %d, %v, %d entries", m.Chunks, m.ChunkSize, m.Datasets, len(m.Entries))
	}
	for i := range m.Entries {
		if e := &m.Entries[i]; len(e.Counts) != 1 || e.Counts[0] != 192 {
			t.Errorf("%s: counts %v", e.Name, e.Counts)
		}
	}
	if m, _ := read(t, "stories.dat"); m.Chunks != 3 || m.ChunkSize != 0 ||
		!slices.Equal(m.Datasets, []string{"story.txt"}) || m.Entries[0].Counts[0] != 3 {
		t.Errorf("old form: %d blocks of %d, %v", m.Chunks, m.ChunkSize, m.Datasets)
	}
}

// exact is a matrix with all that a file can hold.
func exact() *Matrix {
	return &Matrix{Datasets: []string{"a", "b"}, Chunks: 7, ChunkSize: 3, Model: "model", Text: "text", Act: "auto",
		KV: "F16",
		Entries: []Entry{
			{Name: "blk.0.a.weight", Sums: []float64{1. / 3, 2, 0}, Counts: []int64{21},
				Covariance: []float64{1. / 3, 1, 2, 1, 2, 3, 2, 3, 0}},
			{Name: "blk.0.b.weight", Sums: []float64{1, 2, math.Pi, 4}, Counts: []int64{20, 0}},
		}}
}

// A matrix that is to be continued keeps all bits, and covariances stay in whole files too.
func TestPart(t *testing.T) {
	m := exact()
	var b bytes.Buffer
	if err := m.WritePart(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read("part", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !same(m, got) || got.Model != "model" || got.Text != "text" || got.Act != "auto" || got.KV != "F16" {
		t.Errorf("%+v, want %+v", got, m)
	}
	got, err = Read("whole", written(t, m, "whole.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Model+got.Text+got.Act+got.KV != "" || got.Entries[0].Sums[0] != float64(float32(1./3)) ||
		!slices.Equal(got.Entries[0].Covariance, m.Entries[0].Covariance) {
		t.Errorf("whole: %+v", got)
	}
}

// same compares entries, texts and blocks.
func same(a, b *Matrix) bool {
	return slices.Equal(a.Datasets, b.Datasets) && a.Chunks == b.Chunks && a.ChunkSize == b.ChunkSize &&
		slices.EqualFunc(a.Entries, b.Entries, func(x, y Entry) bool {
			return x.Name == y.Name && slices.Equal(x.Sums, y.Sums) && slices.Equal(x.Counts, y.Counts) &&
				slices.Equal(x.Covariance, y.Covariance)
		})
}

// Sums and counts add up as llama-imatrix adds them; the old form takes the tokens of a block from the other one.
func TestAdd(t *testing.T) {
	m, _ := read(t, "stories.gguf")
	o, _ := read(t, "stories.gguf")
	if err := m.Add(o); err != nil {
		t.Fatal(err)
	}
	want, _ := read(t, "twice.gguf")
	if m.Chunks != 6 || m.ChunkSize != 64 || len(m.Datasets) != 2 {
		t.Errorf("%d blocks of %d, %v", m.Chunks, m.ChunkSize, m.Datasets)
	}
	want.Chunks, want.ChunkSize = 6, 64 // llama-imatrix says how many of its present size they are
	if !same(m, want) {
		t.Error("other sums than llama-imatrix's")
	}
	for _, order := range [][2]string{{"stories.gguf", "stories.dat"}, {"stories.dat", "stories.gguf"}} {
		m, _ := read(t, order[0])
		old, _ := read(t, order[1])
		if err := m.Add(old); err != nil {
			t.Fatal(err)
		}
		if m.Chunks != 6 || m.ChunkSize != 64 || m.Entries[3].Counts[0] != 384 {
			t.Errorf("%v: %d blocks of %d, counts %v", order, m.Chunks, m.ChunkSize, m.Entries[3].Counts)
		}
		for i, x := range m.Entries[3].Sums {
			if y := want.Entries[3].Sums[i]; math.Abs(x-y) > 1e-6*y {
				t.Errorf("%v: sum %d is %g, want %g", order, i, x, y)
			}
		}
	}
	a, b := exact(), exact()
	b.Entries = append(b.Entries[1:], Entry{Name: "another", Sums: []float64{1}, Counts: []int64{33}})
	b.Entries[0].Counts = []int64{5} // for both matrices
	if err := a.Add(b); err != nil || len(a.Entries) != 3 || a.Find("another") == nil ||
		!slices.Equal(a.Find("blk.0.b.weight").Counts, []int64{25, 5}) || a.Chunks != 11 {
		t.Errorf("%v, %+v", err, a)
	}
	if a.Find("blk.0.b.weight").Sums[2] != 2*math.Pi || b.Entries[0].Sums[2] != math.Pi ||
		len(a.Find("blk.0.a.weight").Covariance) != 9 {
		t.Errorf("%+v", a)
	}
	if err := a.Add(exact()); err != nil || a.Find("blk.0.a.weight").Covariance[5] != 6 ||
		!slices.Equal(a.Find("blk.0.b.weight").Counts, []int64{45, 5}) {
		t.Errorf("%v, %+v", err, a)
	}
	b.Entries[0].Sums = make([]float64, 6)
	before := exact()
	var size *SizeError
	if err := before.Add(b); !errors.As(err, &size) || size.Tensor != "blk.0.b.weight" || !same(before, exact()) {
		t.Errorf("other sizes: %v", err)
	}
}

// compareForms holds the importances of a matrix in both forms against the definition, and counts those without data.
func compareForms(t *testing.T, name string) (empty int) {
	t.Helper()
	m, _ := read(t, name+".gguf")
	old, _ := read(t, name+".dat")
	for i := range m.Entries {
		e := &m.Entries[i]
		n := len(e.Counts)
		target := Target{e.Name, len(e.Sums) / n, n, quant.Q4_K}
		w, err := m.Weights(target)
		o, errOld := old.Weights(target)
		if err != nil || errOld != nil {
			t.Fatal(err, errOld)
		}
		for j, x := range w {
			want := float32(1)
			if c := e.Counts[j*n/len(w)]; c > 0 {
				want = float32(e.Sums[j]) / float32(c)
			} else {
				empty++
			}
			if x != want || math.Abs(float64(o[j]-x)) > 1e-6*float64(x) {
				t.Fatalf("%s: importance %d is %g, in the old form %g, want %g", e.Name, j, x, o[j], want)
			}
		}
	}
	return empty
}

// Importances are the means, in float32; of matrices without data 1. Both forms give the same but for rounding.
func TestWeights(t *testing.T) {
	empty := compareForms(t, "experts") + compareForms(t, "partial")
	if empty == 0 {
		t.Error("no expert without data")
	}
	m, _ := read(t, "experts.gguf")
	const q = "blk.0.attn_q.weight"
	cols := len(m.Find(q).Sums)
	var size *SizeError
	if _, err := m.Weights(Target{q, cols + 1, 1, quant.Q4_K}); !errors.As(err, &size) || size.Have != cols ||
		size.Want != cols+1 {
		t.Errorf("another model's matrix: %v", err)
	}
	if w, err := m.Weights(Target{"blk.9.attn_q.weight", cols, 1, quant.IQ2_XS}); w != nil || err != nil {
		t.Errorf("no entry: %v, %v", w, err)
	}
	m.Entries[0].Name = "token_embd.weight"
	m.sort()
	if w, err := m.Weights(Target{"token_embd.weight", 7, 1, quant.Q4_K}); w != nil || err != nil {
		t.Errorf("the embedding's entry of another size: %v, %v", w, err)
	}
	clear(m.Find(q).Sums)
	var zero *ZeroError
	if _, err := m.Weights(Target{q, cols, 1, quant.IQ2_XS}); !errors.As(err, &zero) || zero.Tensor != q {
		t.Errorf("zeros for IQ2_XS: %v", err)
	}
	if w, err := m.Weights(Target{q, cols, 1, quant.Q4_K}); err != nil || len(w) != cols {
		t.Errorf("zeros for Q4_K: %v", err)
	}
	large := &Matrix{ChunkSize: 1, Entries: []Entry{{Name: "a", Sums: []float64{3}, Counts: []int64{1<<24 + 3}}}}
	if w, _ := large.Weights(Target{"a", 1, 1, quant.Q4_K}); w[0] != 3/float32(1<<24+4) {
		t.Errorf("a count beyond what float32 holds: %g", w[0])
	}
	raw := &Matrix{Entries: []Entry{{Name: "a", Sums: []float64{5}, Counts: []int64{0}}}} // the oldest files
	if w, _ := raw.Weights(Target{"a", 1, 1, quant.Q4_K}); len(w) != 1 || w[0] != 5 {
		t.Errorf("values without a count: %v", w)
	}
}

// Quantized with the importances of either form, matrices have the bytes that llama-quantize --pure --imatrix gives
// them in Q5_1. The hash is of its tensors in the order of the entries, but for ffn_down, whose rows do not fit.
func TestWeightsMakeTheSameBytes(t *testing.T) {
	const want = "ef5903281564aceb208a2ec466ad4478d1cd16cc39a78df04537ed740a5584b6"
	model, err := gguf.Open(testkit.Data(t, "models/stories260K/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	for _, name := range []string{"stories.gguf", "stories.dat"} {
		m, _ := read(t, name)
		h := sha256.New()
		for i := range m.Entries {
			x := model.Tensor(m.Entries[i].Name)
			if x.Cols()%quant.Q5_1.BlockElems() != 0 {
				continue
			}
			w, err := m.Weights(Target{x.Name, x.Cols(), 1, quant.Q5_1})
			if err != nil {
				t.Fatal(err)
			}
			f := make([]float32, x.Cols()*x.Rows())
			quant.Decode(x.Type, f, x.Data)
			b := make([]byte, quant.Q5_1.RowBytes(len(f)))
			if err := quant.Quantize(quant.Q5_1, b, f, w); err != nil {
				t.Fatal(err)
			}
			h.Write(b)
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != want {
			t.Errorf("%s: other bytes, with hash %s", name, got)
		}
	}
}

// Damaged files are errors that name the entry.
func TestDamaged(t *testing.T) {
	_, dat := read(t, "stories.dat")
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "neither a GGUF file nor"},
		{"text", []byte("once upon a time there was a file"), "neither a GGUF file nor"},
		{"no entries", make([]byte, 64), "the number of entries is 0"},
		{"cut", dat[:len(dat)/2], "entry 18 \"blk.2.ffn_down.weight\": its values needs"},
		{"cut in the end", dat[:len(dat)-3], "the text's name needs 9 bytes"},
		{"name", replaced(dat, 4, 0xff, 0xff, 0, 0), "offset 0x4: entry 0: the length of its name is 65535"},
		{"twice", append(append([]byte{2, 0, 0, 0}, dat[4:4+4+19+8+4*64]...), dat[4:4+4+19+8+4*64]...),
			"entry 1: \"blk.0.attn_k.weight\" is there twice"},
		{"negative", replaced(dat, 4+4+19+8+3, 0xbf), "sums of squares are finite and not negative"},
		{"nan", replaced(dat, 4+4+19+8, 0, 0, 0xc0, 0x7f), "\"blk.0.attn_k.weight\": value 0 is NaN"},
	} {
		_, err := Read("f", c.data)
		var bad *FileError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := Open(testkit.Data(t, "models/stories260K/model.gguf")); err == nil ||
		!strings.Contains(err.Error(), "imatrix") {
		t.Errorf("a model: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// Damaged GGUF files are errors that name the key or the tensor.
func TestDamagedGGUF(t *testing.T) {
	f32 := func(name string, shape ...int) gguf.TensorInfo {
		return gguf.TensorInfo{Name: name, Type: quant.F32, Shape: shape}
	}
	f64 := func(name string, shape ...int) gguf.TensorInfo {
		return gguf.TensorInfo{Name: name, Type: quant.F64, Shape: shape}
	}
	sums, counts := f32("a.in_sum2", 4, 2), f32("a.counts", 1, 2)
	one, oneCount := f32("a.in_sum2", 4), f32("a.counts", 1)
	for _, c := range []struct {
		key     string
		value   any // nil: the key is not there
		fill    float64
		want    string
		tensors []gguf.TensorInfo
	}{
		{"general.type", "model", 1, "general.type is \"model\"", []gguf.TensorInfo{sums, counts}},
		{keyDatasets, "x", 1, keyDatasets + ": is of type string", []gguf.TensorInfo{sums, counts}},
		{keyChunks, nil, 1, "key imatrix.chunk_count is missing", []gguf.TensorInfo{sums, counts}},
		{keySize, uint32(0), 1, "imatrix.chunk_size is 0", []gguf.TensorInfo{sums, counts}},
		{keySize, int32(-1), 1, "imatrix.chunk_size is -1", []gguf.TensorInfo{sums, counts}},
		{keyModel, uint32(1), 1, keyModel + ": is of type u32", []gguf.TensorInfo{sums, counts}},
		{"", 0, 1, "no tensor whose name ends with .in_sum2", nil},
		{"", 0, 1, "\"a.in_sum2\": there is no a.counts beside it", []gguf.TensorInfo{sums}},
		{"", 0, 1, "\"b.counts\": there is no b.in_sum2 beside it",
			[]gguf.TensorInfo{sums, counts, f32("b.counts", 1)}},
		{"", 0, 1, "\".in_sum2\": no name", []gguf.TensorInfo{f32(".in_sum2", 1), f32(".counts", 1)}},
		{"", 0, 1, "\"a.in_sum2\": is of type F64", []gguf.TensorInfo{f64("a.in_sum2", 4, 2), counts}},
		{"", 0, 1, "8 sums and 3 counts", []gguf.TensorInfo{sums, f32("a.counts", 1, 3)}},
		{"", 0, -2, "\"a.counts\": count 0 is -2", []gguf.TensorInfo{sums, counts}},
		{"", 0, math.Inf(-1), "\"a.counts\": count 0 is -Inf", []gguf.TensorInfo{sums, counts}},
		{"", 0, math.NaN(), "\"a.counts\": count 0 is NaN", []gguf.TensorInfo{sums, counts}},
		{"", 0, 1e20, "\"a.counts\": count 0 is 1.0000000200408773e+20", []gguf.TensorInfo{sums, counts}},
		{"", 0, -0.25, "\"a\": value 0 is -0.25", []gguf.TensorInfo{sums, counts}},
		{"", 0, 1, "\"a.in_sum2_f64\": [3 2] of type F64 beside 8 sums",
			[]gguf.TensorInfo{sums, counts, f64("a.in_sum2_f64", 3, 2)}},
		{"", 0, 1, "\"a.in_sum2_f64\": [4 2] of type F32 beside 8 sums",
			[]gguf.TensorInfo{sums, counts, f32("a.in_sum2_f64", 4, 2)}},
		{"", 0, 1, "\"a.in_cov\": [4 3] of type F64 beside 4 sums",
			[]gguf.TensorInfo{one, oneCount, f64("a.in_cov", 4, 3)}},
		{"", 0, 1, "\"a.in_cov\": [4 4 2] of type F64 beside 4 sums",
			[]gguf.TensorInfo{one, oneCount, f64("a.in_cov", 4, 4, 2)}},
		{"", 0, 1, "\"a.in_cov\": [2 8] of type F64 beside 4 sums",
			[]gguf.TensorInfo{one, oneCount, f64("a.in_cov", 2, 8)}},
	} {
		kv := &gguf.Metadata{}
		kv.Set(keyType, typeImatrix)
		kv.Set(keyDatasets, []string{})
		kv.Set(keyChunks, uint32(1))
		kv.Set(keySize, uint32(1))
		if c.value == nil {
			kv.Remove(c.key)
		} else if c.key != "" {
			kv.Set(c.key, c.value)
		}
		var b bytes.Buffer
		w, err := gguf.NewWriter(&b, kv, c.tensors)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range c.tensors {
			if err := (&tensor{info, func(int) float64 { return c.fill }}).write(w); err != nil {
				t.Fatal(err)
			}
		}
		_, err = Read("f", b.Bytes())
		if bad := (*FileError)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// replaced is b with other bytes at an offset.
func replaced(b []byte, at int, with ...byte) []byte {
	b = slices.Clone(b)
	copy(b[at:], with)
	return b
}

// The old form has no entries without data, and a matrix of such alone cannot be written in it.
func TestDatWithoutData(t *testing.T) {
	m := exact()
	m.Entries[0].Counts[0] = 0
	again, err := Read("f.dat", written(t, m, "f.dat"))
	if err != nil || len(again.Entries) != 1 || again.Entries[0].Name != "blk.0.b.weight" ||
		!slices.Equal(again.Datasets, []string{"b"}) || again.Chunks != 7 {
		t.Errorf("%+v, %v", again, err)
	}
	m.Entries = m.Entries[:1]
	if err := m.Write(&bytes.Buffer{}, "f.dat"); err == nil {
		t.Error("a file without entries is written")
	}
}

// What is read can be written, in both forms, and is read again as the same.
func FuzzRead(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for _, name := range []string{"stories.gguf", "stories.dat", "experts.gguf", "experts.dat"} {
		_, b := read(f, name)
		f.Add(b)
	}
	var b bytes.Buffer
	if err := exact().WritePart(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	small := &Matrix{Chunks: 1, ChunkSize: 2, Entries: exact().Entries[1:], Datasets: []string{"x"}}
	b = bytes.Buffer{}
	if err := small.WriteDat(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read("f", data)
		if err != nil {
			return
		}
		m.Statistics()
		for _, name := range []string{"f.gguf", "f.dat"} {
			var b bytes.Buffer
			if err := m.Write(&b, name); err != nil {
				continue // names and counts that a form does not hold
			}
			if again, err := Read(name, b.Bytes()); err == nil && m.ChunkSize == 0 && name == "f.dat" &&
				len(m.Entries) == len(again.Entries) && !same(m, again) {
				t.Errorf("%+v was written and read as %+v", m, again)
			}
		}
		if err := m.Add(m); err != nil {
			t.Errorf("added to itself: %v", err)
		}
	})
}
