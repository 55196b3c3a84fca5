package safetensors

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// written is the file of tensors with these data.
func written(t testing.TB, metadata map[string]string, tensors []Info, data [][]byte) []byte {
	var out bytes.Buffer
	w, err := NewWriter(&out, metadata, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range data {
		if cur, ok := w.Tensor(); len(d) > 0 && (!ok || cur.Name != tensors[i].Name) {
			t.Fatalf("the next tensor is %q, expected %q", cur.Name, tensors[i].Name)
		}
		for len(d) > 0 { // in pieces
			n := min(len(d), 5)
			if _, err := w.Write(d[:n]); err != nil {
				t.Fatal(err)
			}
			d = d[n:]
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// What is read of a file that others wrote and written again is that file, to the byte.
func TestWriteSameBytes(t *testing.T) {
	for _, name := range []string{"llama-gqa", "llama-spm-tied", "mistral", "qwen2", "trained-qwen3", "mixtral", "gemma3"} {
		path := testkit.Data(t, "models/"+name+"/hf/model.safetensors")
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var tensors []Info
		data := map[string][]byte{}
		for _, x := range f.Tensors {
			tensors = append(tensors, Info{x.Name, x.DType, x.Shape})
			data[x.Name] = x.Data
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(tensors), func(i, j int) { tensors[i], tensors[j] = tensors[j], tensors[i] })
		Sort(tensors)
		var all [][]byte
		for _, x := range tensors {
			all = append(all, data[x.Name])
		}
		if got := written(t, f.Metadata, tensors, all); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, expected %d, or other ones", name, len(got), len(want))
		}
	}
}

// Any types, shapes and names come back; sorted, every tensor is aligned to its elements.
func TestWriteReadsBack(t *testing.T) {
	tensors := []Info{{"a", "U8", []int{3}}, {"wéight <测>\"\\\n", "F32", []int{2, 1}}, {"none", "BF16", []int{0, 7}}, {"scalar", "F64", nil},
		{"z", "BF16", []int{5}}, {"m", "F16", []int{1, 1, 3}}, {"f6", "F6_E2M3", []int{4}}, {"b", "BOOL", []int{1}}, {"last", "BOOL", []int{0}}}
	Sort(tensors)
	var order []string
	var data [][]byte
	r := rand.New(rand.NewPCG(3, 4))
	for _, x := range tensors {
		n, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, x.Name)
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		data = append(data, b)
	}
	if want := []string{"scalar", "wéight <测>\"\\\n", "none", "z", "m", "a", "f6", "b", "last"}; !slices.Equal(order, want) {
		t.Errorf("order %q, expected %q", order, want)
	}
	path := filepath.Join(t.TempDir(), "x.safetensors")
	meta := map[string]string{"format": "pt", "a \"b\"": "<c>"}
	b := written(t, meta, tensors, data)
	want := `{"__metadata__":{"a \"b\"":"<c>","format":"pt"},"scalar":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"wéight <测>\"\\\n":`
	if !bytes.HasPrefix(b[8:], []byte(want)) {
		t.Errorf("header %.150q", b[8:])
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Tensors) != len(tensors) || f.Metadata["a \"b\""] != "<c>" || f.Metadata["format"] != "pt" {
		t.Errorf("%d tensors, metadata %v", len(f.Tensors), f.Metadata)
	}
	for _, x := range f.Tensors {
		i := slices.Index(order, x.Name)
		if i < 0 || x.DType != tensors[i].DType || !slices.Equal(x.Shape, tensors[i].Shape) || !bytes.Equal(x.Data, data[i]) {
			t.Errorf("tensor %q: %s %v", x.Name, x.DType, x.Shape)
		}
		if size := int64(max(1, dtypes[x.DType].bits/8)); x.Offset%size != 0 {
			t.Errorf("tensor %q: offset %d is not aligned", x.Name, x.Offset)
		}
	}
}

// Every type has a place in the order, and none of fewer bits follows on one of more.
func TestRanks(t *testing.T) {
	if len(ranks) != len(dtypes) {
		t.Errorf("%d types, %d with a place", len(dtypes), len(ranks))
	}
	for i, d := range ranks {
		if dtypes[d].bits == 0 || i > 0 && (dtypes[d].bits+7)/8 < (dtypes[ranks[i-1]].bits+7)/8 {
			t.Errorf("%s is unknown or out of place", d)
		}
	}
}

func TestWriterErrors(t *testing.T) {
	for want, tensors := range map[string][]Info{
		`"a": its name is taken`:                      {{"a", "F32", []int{1}}, {"a", "F16", []int{1}}},
		`"__metadata__": its name is taken`:           {{"__metadata__", "F32", nil}},
		`unknown dtype "Q4_K"`:                        {{"a", "Q4_K", []int{1}}},
		"dimension below 0":                           {{"a", "F32", []int{-1, -1}}},
		"overflows":                                   {{"a", "F32", []int{1 << 61, 1 << 61}}},
		`"f": the file would have more than 2^62 byt`: {huge("a"), huge("b"), huge("c"), huge("d"), huge("f")},
		"ends inside a byte":                          {{"a", "F6_E2M3", []int{1}}},
		"is not UTF-8":                                {{"a\xff", "F32", nil}},
	} {
		if _, err := NewWriter(&bytes.Buffer{}, nil, tensors); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, expected %q", tensors, err, want)
		}
	}
	for _, m := range []map[string]string{{"a\xff": "b"}, {"a": "b\xff"}} {
		if _, err := NewWriter(&bytes.Buffer{}, m, nil); err == nil || !strings.Contains(err.Error(), "metadata: ") {
			t.Errorf("%v: %v", m, err)
		}
	}
	w, err := NewWriter(&bytes.Buffer{}, nil, []Info{{"a", "F32", []int{2}}, {"b", "U8", []int{1}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 9)); err == nil || !strings.Contains(err.Error(), `"a": 9 bytes, but only 8`) {
		t.Errorf("too many bytes: %v", err)
	}
	w.Write(make([]byte, 8))
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), `"b": 1 bytes were not written`) {
		t.Errorf("not whole: %v", err)
	}
	w.Write(make([]byte, 1))
	if _, err := w.Write([]byte{1}); err == nil || w.Close() != nil {
		t.Errorf("behind the last one: %v; %v", err, w.Close())
	}
}

// Shards hold what they may, in order, and the folder of them reads back.
func TestShards(t *testing.T) {
	var tensors []Info
	for i, n := range []int{4, 6, 1, 30, 3, 7, 10, 1} {
		tensors = append(tensors, Info{fmt.Sprint("t", i), "U8", []int{n}})
	}
	for maxBytes, want := range map[int64]string{1: "4 6 1 30 3 7 10 1", 10: "4+6 1 30 3+7 10 1", 11: "4+6+1 30 3+7 10+1", 62: "4+6+1+30+3+7+10+1",
		61: "4+6+1+30+3+7+10 1"} {
		shards, err := Shards(tensors, maxBytes)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range shards {
			var sizes []string
			for _, x := range s {
				sizes = append(sizes, fmt.Sprint(x.Shape[0]))
			}
			got = append(got, strings.Join(sizes, "+"))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("at most %d: %s, expected %s", maxBytes, s, want)
		}
	}
	shards, err := Shards(tensors, 11)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, s := range shards {
		var data [][]byte
		for _, x := range s {
			data = append(data, bytes.Repeat([]byte(x.Name[1:]), x.Shape[0]))
		}
		if err := os.WriteFile(filepath.Join(dir, ShardName(i, len(shards))), written(t, nil, s, data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	index, err := Index(shards)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(index), `"total_size": 62`) || !strings.Contains(string(index), `"t3": "model-00002-of-00004.safetensors"`) {
		t.Errorf("index %s", index)
	}
	if err := os.WriteFile(filepath.Join(dir, IndexName()), index, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		for _, x := range f.Tensors {
			n++
			if !bytes.Equal(x.Data, bytes.Repeat([]byte(x.Name[1:]), x.Shape[0])) {
				t.Errorf("%s: %v", x.Name, x.Data)
			}
		}
		f.Close()
	}
	if n != len(tensors) || len(files) != 4 {
		t.Errorf("%d tensors in %d files", n, len(files))
	}
}

func TestShardErrors(t *testing.T) {
	one := []Info{{"a", "U8", []int{1}}}
	for name, err := range map[string]error{
		"expected 1 or more":  second(Shards(one, 0)),
		"unknown dtype":       second(Shards([]Info{{"a", "X", nil}}, 1)),
		"two shards or more":  second(Index([][]Info{one})),
		"its name is taken":   second(Index([][]Info{one, one})),
		"count to 99999":      second(Shards(slices.Repeat(one, maxShards+1), 1)),
		"the files would hav": second(Index([][]Info{{huge("a"), huge("b")}, {huge("c"), huge("d"), huge("e")}})),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, expected %q", err, name)
		}
	}
	mixed := []Info{{"b", "F16", []int{2}}, {"a", "F16", []int{2}}, {"c", "F32", []int{2}}}
	if s, err := Shards(mixed, 100); err != nil || s[0][0].Name != "c" || s[0][1].Name != "a" || mixed[0].Name != "b" {
		t.Errorf("one shard is in the order %v; the list given is %v: %v", s, mixed, err)
	}
	if s, err := Shards(nil, 1); err != nil || len(s) != 1 || ShardName(0, 1) != "model.safetensors" {
		t.Errorf("no tensors: %v, %v", s, err)
	}
}

func second[T any](_ T, err error) error { return err }

// huge is a tensor of 2^60 bytes.
func huge(name string) Info { return Info{name, "U8", []int{1 << 60}} }
