package gguf

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ck/internal/quant"
	"ck/internal/testkit"
)

func TestRoundTrip(t *testing.T) {
	values := []any{uint8(200), int8(-3), uint16(60000), int16(-5), uint32(1 << 31), int32(-7), float32(0.1), true, "a\x00\xff", uint64(math.MaxUint64),
		int64(math.MinInt64), math.Pi, []uint8{1, 2}, []int8{-1}, []uint16{3}, []int16{-3}, []uint32{4, 5}, []int32{-6}, []float32{1.5, -2},
		[]bool{true, false, true}, []string{"", "x", "ü"}, []uint64{7}, []int64{-8}, []float64{9.25}, []string{}, []int32{}, ""}
	tensors := []TensorInfo{{Name: "a", Type: quant.F32, Shape: []int{3}}, {Name: "b.weight", Type: quant.Q4_0, Shape: []int{64, 5}}, {Name: "c", Type: quant.F16, Shape: []int{7, 1, 3, 2}}, {Name: "d", Type: quant.Q6_K, Shape: []int{256, 2}}, {Name: "e", Type: quant.I8, Shape: []int{1}}}
	for _, align := range []int{0, 1, 64, 4096} {
		kv := &Metadata{}
		if align > 0 {
			kv.Set("general.alignment", uint32(align))
		}
		for i, v := range values {
			kv.Set(string(rune('a'+i)), v)
		}
		kv.Set("a", "set again")
		var file bytes.Buffer
		w, err := NewWriter(&file, kv, tensors)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, uint64(align)))
		var data [][]byte
		for i, x := range tensors {
			if cur, ok := w.Tensor(); !ok || cur.Name != x.Name {
				t.Fatalf("Tensor() = %v before %s", cur, x.Name)
			}
			size, _ := tensorBytes(x.Type, x.Shape)
			b := make([]byte, size)
			for j := range b {
				b[j] = byte(rng.Uint32())
			}
			data = append(data, b)
			if _, err := w.Write(make([]byte, size+1)); err == nil {
				t.Error("bytes beyond the tensor's end were taken")
			}
			if w.Close() == nil {
				t.Error("Close of an incomplete file is no error")
			}
			for piece := range slices.Chunk(b, 10+100*i) {
				if _, err := w.Write(piece); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := w.Write([]byte{1}); err == nil {
			t.Error("bytes after the last tensor were taken")
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}

		path := filepath.Join(t.TempDir(), "w.gguf")
		if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if !slices.Equal(m.KV.Keys(), kv.Keys()) {
			t.Errorf("keys %v, written %v", m.KV.Keys(), kv.Keys())
		}
		for i, v := range values {
			if i == 0 {
				v = "set again"
			}
			if got := m.KV.Value(string(rune('a' + i))); !reflect.DeepEqual(got, v) {
				t.Errorf("read %T %v, written %T %v", got, got, v, v)
			}
		}
		want := max(align, 1)
		if align == 0 {
			want = 32
		}
		if m.Alignment != want || file.Len()%want != 0 {
			t.Errorf("alignment %d, expected %d; file of %d bytes", m.Alignment, want, file.Len())
		}
		for i, x := range m.Tensors {
			in := tensors[i]
			if x.Name != in.Name || x.Type != in.Type || !slices.Equal(x.Shape, in.Shape) || !bytes.Equal(x.Data, data[i]) || x.Offset%int64(want) != 0 {
				t.Errorf("tensor %v at 0x%x differs from what was written as %v", x.Name, x.Offset, in)
			}
		}
	}
}

// A file of llama.cpp's converter, read and written again, is the same file.
func TestRewriteIsIdentical(t *testing.T) {
	for _, name := range []string{"models/llama-gqa/model.gguf", "models/kq-llama/Q4_K_M.gguf"} {
		path := testkit.Data(t, name)
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var infos []TensorInfo
		for _, x := range m.Tensors {
			infos = append(infos, TensorInfo{Name: x.Name, Type: x.Type, Shape: x.Shape})
		}
		var file bytes.Buffer
		w, err := NewWriter(&file, m.KV, infos)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range m.Tensors {
			if _, err := w.Write(x.Data); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(file.Bytes(), want) {
			t.Errorf("%s: written again it has %d bytes and differs from the %d read", name, file.Len(), len(want))
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	ok := TensorInfo{Name: "a", Type: quant.F32, Shape: []int{3}}
	for want, infos := range map[string][]TensorInfo{
		"two of that name":  {ok, ok},
		"64 bytes":          {{Name: strings.Repeat("n", 64), Type: quant.F32, Shape: []int{3}}},
		"0 bytes":           {{Name: "", Type: quant.F32, Shape: []int{3}}},
		"no multiple":       {{Name: "a", Type: quant.Q4_0, Shape: []int{33}}},
		"removed":           {{Name: "a", Type: quant.Type(4), Shape: []int{32}}},
		"5 dimensions":      {{Name: "a", Type: quant.F32, Shape: []int{1, 1, 1, 1, 1}}},
		"0 dimensions":      {{Name: "a", Type: quant.F32, Shape: nil}},
		"dimension 1 is 0":  {{Name: "a", Type: quant.F32, Shape: []int{1, 0}}},
		"2^63 elements":     {{Name: "a", Type: quant.F32, Shape: []int{1 << 62, 2}}},
		"2^63 bytes":        {{Name: "a", Type: quant.F32, Shape: []int{1 << 62}}},
		"more than 2^62 by": {{Name: "a", Type: quant.I8, Shape: []int{1 << 62}}, {Name: "b", Type: quant.I8, Shape: []int{1 << 62}}},
	} {
		if _, err := NewWriter(&bytes.Buffer{}, &Metadata{}, infos); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, expected %q in it", infos, err, want)
		}
	}
	kv := &Metadata{}
	kv.Set("general.alignment", uint32(48))
	if _, err := NewWriter(&bytes.Buffer{}, kv, nil); err == nil {
		t.Error("alignment 48 was taken")
	}
}

func TestRowInterleave(t *testing.T) {
	x := &Tensor{Name: "q", Type: quant.I8, Shape: []int{1, 12}, Interleave: 2}
	for i := range 12 {
		x.Data = append(x.Data, byte(i))
	}
	var got []byte
	for r := range 12 {
		got = append(got, x.Row(r)...)
	}
	if want := []byte{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}; !bytes.Equal(got, want) {
		t.Errorf("rows %v, expected %v", got, want)
	}
}

func TestSetPanicsOnInt(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Set took an int")
		}
	}()
	(&Metadata{}).Set("k", 5)
}
