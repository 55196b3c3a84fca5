package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"ck/internal/quant"
	"ck/internal/testkit"
)

type verdict struct {
	Expect  string
	Reason  string
	Lenient bool
}

func verdicts(t testing.TB) (dir string, files map[string]verdict) {
	dir = testkit.Data(t, "safetensors-malformed")
	b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &files); err != nil {
		t.Fatal(err)
	}
	return dir, files
}

func TestMalformed(t *testing.T) {
	dir, files := verdicts(t)
	if len(files) != 62 {
		t.Errorf("%d verdicts, README says 62", len(files))
	}
	for name, v := range files {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f, err := Open(path)
		runtime.ReadMemStats(&after)
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+64*info.Size()); got > limit {
			t.Errorf("%s: %d bytes allocated, the file justifies %d", name, got, limit)
		}
		if err != nil {
			if v.Expect == "ok" {
				t.Errorf("%s (%s) was refused: %v", name, v.Reason, err)
			}
			if !strings.HasPrefix(err.Error(), path+": ") {
				t.Errorf("%s: error does not name the file: %v", name, err)
			}
			t.Log(strings.TrimPrefix(err.Error(), dir+"/"))
			continue
		}
		if v.Expect == "error" && !v.Lenient {
			t.Errorf("%s (%s) was read, expected an error", name, v.Reason)
		}
		f.Close()
	}
}

func TestContent(t *testing.T) {
	open := func(name string) *File {
		f, err := Open(testkit.Data(t, "safetensors-malformed/"+name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	f := open("ok-reordered.safetensors")
	var got []string
	for _, x := range f.Tensors {
		got = append(got, x.Name)
		if typ, ok := x.Type(); !ok || typ != quant.F32 || string(f.Map.Data[x.Offset:][:len(x.Data)]) != string(x.Data) {
			t.Errorf("tensor %s: type %v, or Offset does not lead to Data", x.Name, typ)
		}
	}
	if s := strings.Join(got, " "); s != "m a z" {
		t.Errorf("tensors %s, expected the order of the data", s)
	}
	m, a := f.Tensors[0].Data, f.Tensors[1].Data // the data is 0, 1, 2, …
	if len(m) != 32 || m[31] != 31 || len(a) != 16 || a[0] != 32 {
		t.Errorf("m = %v, a = %v", m, a)
	}
	if f := open("ok-metadata-only.safetensors"); f.Metadata["format"] != "pt" || len(f.Tensors) != 0 {
		t.Errorf("metadata %v", f.Metadata)
	}
	if f := open("ok-scalar.safetensors"); len(f.Tensors[0].Shape) != 0 || len(f.Tensors[0].Data) != 4 {
		t.Errorf("scalar: %v", f.Tensors[0])
	}
	if f := open("ok-unicode-name.safetensors"); f.Tensors[0].Name != "wéight 测.😀" {
		t.Errorf("name %q", f.Tensors[0].Name)
	}
	types := map[string]bool{}
	for _, x := range open("ok-dtypes.safetensors").Tensors {
		_, types[x.DType] = x.Type()
	}
	for d, want := range map[string]bool{"F64": true, "BF16": true, "I8": true, "BOOL": false, "U16": false, "F8_E4M3": false} {
		if types[d] != want {
			t.Errorf("%s: has a ggml type: %v", d, types[d])
		}
	}
}

// write makes a file with one F32 tensor of n elements per name.
func write(t testing.TB, path string, n int, names ...string) {
	header := map[string]any{}
	for i, name := range names {
		header[name] = map[string]any{"dtype": "F32", "shape": []int{n}, "data_offsets": []int{4 * n * i, 4 * n * (i + 1)}}
	}
	h, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)
	if err := os.WriteFile(path, append(b, make([]byte, 4*n*len(names))...), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpenDir(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenDir(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), singleName) {
		t.Errorf("empty folder: %v", err)
	}
	index := func(weights map[string]string) {
		b, err := json.Marshal(map[string]any{"weight_map": weights})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, indexName), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "s-1.safetensors"), 3, "a", "b")
	write(t, filepath.Join(dir, "s-2.safetensors"), 5, "b", "c")

	index(map[string]string{"a": "s-1.safetensors", "b": "s-2.safetensors", "c": "s-2.safetensors"})
	files, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 || len(files[0].Tensors) != 1 || files[0].Tensors[0].Name != "a" || len(files[1].Tensors) != 2 || files[1].Tensors[0].Shape[0] != 5 {
		t.Errorf("files %v", files)
	}
	for _, f := range files {
		f.Close()
	}

	index(map[string]string{"a": "s-1.safetensors", "x": "s-1.safetensors"})
	if _, err := OpenDir(dir); err == nil || !strings.Contains(err.Error(), `s-1.safetensors: tensor "x" is missing`) {
		t.Errorf("missing tensor: %v", err)
	}
	index(map[string]string{"a": "s-1.safetensors", "b": "s-3.safetensors"})
	if _, err := OpenDir(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "s-3.safetensors: no such file") {
		t.Errorf("missing shard: %v", err)
	}
	for _, evil := range []string{"../x/s-1.safetensors", "/etc/passwd", "..", ".", "", `..\s-1.safetensors`, "sub/s.safetensors"} {
		index(map[string]string{"a": evil})
		if _, err := OpenDir(dir); err == nil || !strings.Contains(err.Error(), "beside the index") {
			t.Errorf("shard %q: %v, expected it to be refused by its name", evil, err)
		}
	}
	index(nil)
	if _, err := OpenDir(dir); err == nil || !strings.Contains(err.Error(), "no tensors") {
		t.Errorf("empty index: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, indexName), []byte(`{"weight_map": {"a": 3}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(dir); err == nil || !strings.Contains(err.Error(), indexName) {
		t.Errorf("malformed index: %v", err)
	}
	// A single file goes before the index.
	write(t, filepath.Join(dir, singleName), 1, "single")
	if files, err := OpenDir(dir); err != nil || len(files) != 1 || files[0].Tensors[0].Name != "single" {
		t.Errorf("single file: %v, %v", files, err)
	} else {
		files[0].Close()
	}
}

// A sixth of a byte cannot be the end of a tensor, and a file cut anywhere is refused.
func TestTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	write(t, path, 3, "a", "b")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := os.WriteFile(path, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		if f, err := Open(path); err == nil {
			f.Close()
			t.Fatalf("%d of %d bytes were read as a whole file", n, len(whole))
		}
	}
	x := &Tensor{DType: "F6_E2M3", Shape: []int{3}}
	if _, err := x.sizeBytes(); err == nil {
		t.Error("18 bits were taken as a number of bytes")
	}
}

func FuzzSafetensors(tf *testing.F) {
	f := testkit.Fuzz(tf)
	dir, files := verdicts(f)
	for name := range files {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	path := filepath.Join(f.TempDir(), "f.safetensors")
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path)
		if err != nil {
			return
		}
		n := 0
		for _, x := range s.Tensors {
			n += len(x.Data)
		}
		if end := len(b) - n; end < 8 || len(s.Tensors) > 0 && s.Tensors[0].Offset != int64(end) {
			t.Errorf("%d bytes of data in a file of %d", n, len(b))
		}
		s.Close()
	})
}
