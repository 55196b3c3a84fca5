package gguf

import (
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

// verdict is what expected.json says of a file.
type verdict struct {
	Expect  string
	Reason  string
	Lenient bool
	Read    string `json:"llama.cpp read"`
}

func verdicts(t testing.TB, folder string) (dir string, files map[string]verdict) {
	dir = testkit.Data(t, folder)
	b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &files); err != nil {
		t.Fatal(err)
	}
	return dir, files
}

// allocated is the number of bytes that fn takes from the Go heap.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// touch reads everything that a model offers.
func touch(t testing.TB, m *Model) {
	for _, k := range m.KV.Keys() {
		if m.KV.Value(k) == nil {
			t.Errorf("key %q has no value", k)
		}
	}
	for _, x := range m.Tensors {
		n, rows := 0, x.Reader()
		for r := range x.Rows() {
			n += len(rows.Row(r))
		}
		if int64(n) != x.Bytes() || m.Tensor(x.Name) != x {
			t.Errorf("tensor %q: rows have %d bytes, the tensor %d", x.Name, n, x.Bytes())
		}
	}
}

func TestMalformed(t *testing.T) {
	dir, files := verdicts(t, "gguf-malformed")
	if len(files) != 158 {
		t.Errorf("%d verdicts, README says 158", len(files))
	}
	for name, v := range files {
		path := filepath.Join(dir, name)
		size := int64(2 << 14) // of a split model: two parts below 16 KiB
		if info, err := os.Stat(path); err != nil {
			t.Error(err)
		} else if !strings.Contains(name, "/") {
			size = info.Size()
		}
		var m *Model
		var err error
		got := allocated(func() { m, err = Open(path) })
		if limit := uint64(1<<20 + 64*size); got > limit {
			t.Errorf("%s: %d bytes allocated, the file justifies %d", name, got, limit)
		}
		if err != nil {
			if v.Expect == "ok" {
				t.Errorf("%s (%s) was refused: %v", name, v.Reason, err)
			}
			if !strings.Contains(err.Error(), filepath.Dir(path)) {
				t.Errorf("%s: error does not name the file: %v", name, err)
			}
			t.Logf("%s: %v", name, strings.TrimPrefix(err.Error(), dir+"/"))
			continue
		}
		if v.Expect == "error" && !v.Lenient {
			t.Errorf("%s (%s) was read, expected an error", name, v.Reason)
		}
		touch(t, m)
		if err := m.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}

// Every way to cut a file short is refused, with the file named, and never crashes.
func TestTruncated(t *testing.T) {
	whole, err := os.ReadFile(testkit.Data(t, "gguf-malformed/ok-arrays.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut.gguf")
	for n := range len(whole) - 96 { // 96: padding after the last tensor and its last byte
		if err := os.WriteFile(path, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := Open(path)
		if err == nil {
			m.Close()
			t.Fatalf("%d of %d bytes were read as a whole file", n, len(whole))
		}
		if !strings.HasPrefix(err.Error(), path+": offset 0x") {
			t.Fatalf("%d bytes: %v, expected file and offset", n, err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none.gguf")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("directory: %v", err)
	}
	bad := testkit.Data(t, "gguf-malformed")
	for name, want := range map[string]string{
		"split-missing-part/m-00001-of-00002.gguf": "m-00002-of-00002.gguf: no such file",
		"split-ok/m-00002-of-00002.gguf":           "part 2 of 2",
		"big-endian.gguf":                          "big-endian",
		"data-short.gguf":                          `tensor "a.weight": 64 bytes at 0xc0 + 0x0, file has 255 bytes; it is incomplete`,
		"string-length-huge.gguf":                  `offset 0x27: string length 4611686018427387904 of key "x.y", file has 114 bytes`,
	} {
		if _, err := Open(filepath.Join(bad, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q in it", name, err, want)
		}
	}
	if _, err := Open(filepath.Join(bad, "split-missing-part/m-00001-of-00002.gguf")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing part: %v, expected fs.ErrNotExist", err)
	}
}

// What was read of the odd files is what the generator of the data wrote.
func TestScalarsAndArrays(t *testing.T) {
	m, err := Open(testkit.Data(t, "gguf-malformed/ok-scalars.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	kv := m.KV
	for key, want := range map[string]int64{"s.u8": 255, "s.i8": -128, "s.u16": 65535, "s.i16": -32768, "s.u32": 1<<32 - 1, "s.i32": -1 << 31, "s.i64": -1 << 63} {
		if v, ok, _ := kv.Int(key); !ok || v != want {
			t.Errorf("Int(%s) = %d, %v, expected %d", key, v, ok, want)
		}
	}
	for _, key := range []string{"s.u64", "s.f32", "s.str", "s.bool1", "absent"} {
		v, ok, err := kv.Int(key)
		var wrong *TypeError
		if ok || errors.As(err, &wrong) != (key != "absent") {
			t.Errorf("Int(%s) = %d, %v, %v, expected none", key, v, ok, err)
		}
	}
	for key, want := range map[string]float64{"s.f32": -0.5, "s.f64": 1e300, "s.u64": 1 << 64, "s.i8": -128} {
		if v, ok, _ := kv.Float(key); !ok || v != want {
			t.Errorf("Float(%s) = %v, %v, expected %v", key, v, ok, want)
		}
	}
	b0, ok0, _ := kv.Bool("s.bool0")
	b1, ok1, _ := kv.Bool("s.bool1")
	if b0 || !b1 || !ok0 || !ok1 {
		t.Errorf("Bool = %v %v, %v %v", b0, ok0, b1, ok1)
	}
	if s, ok, _ := kv.String("s.str"); s != "text" || !ok {
		t.Errorf("String = %q, %v", s, ok)
	}
	if kv.Value("s.u64") != uint64(1<<64-1) || kv.Value("absent") != nil {
		t.Errorf("Value = %v", kv.Value("s.u64"))
	}

	a, err := Open(testkit.Data(t, "gguf-malformed/ok-arrays.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if s, ok, _ := a.KV.Strings("a.str"); !ok || len(s) != 3 || s[0] != "" || s[1] != "a" || s[2] != "€😀" {
		t.Errorf("Strings = %q, %v", s, ok)
	}
	if v, ok, _ := a.KV.Ints("a.i32"); !ok || len(v) != 2 || v[0] != -1 || v[1] != 2 {
		t.Errorf("Ints = %v, %v", v, ok)
	}
	if _, ok, err := a.KV.Ints("a.u64"); ok || err == nil {
		t.Error("Ints of 2^64-1 was given")
	}
	if v, ok, _ := a.KV.Float32s("a.f32"); !ok || len(v) != 2 || v[0] != 0.25 || v[1] != -1e30 {
		t.Errorf("Float32s = %v, %v", v, ok)
	}
	if v, ok, _ := a.KV.Bools("a.bool"); !ok || len(v) != 3 || v[0] || !v[1] || !v[2] {
		t.Errorf("Bools = %v, %v", v, ok)
	}
	if _, ok, err := a.KV.Bools("a.u8"); ok || err == nil {
		t.Error("Bools of an array of u8 was given")
	}
	if _, ok, err := a.KV.Float32s("a.str"); ok || err == nil {
		t.Error("Float32s of an array of strings was given")
	}
}

// Every model of the reference data opens, whatever its architecture and types.
func TestModels(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testkit.Data(t, "models"), "*", "*.gguf"))
	if err != nil || len(files) < testkit.Least(t, 60, 27) {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	for _, path := range files {
		m, err := Open(path)
		if err != nil {
			t.Error(err)
			continue
		}
		touch(t, m)
		if arch, ok, _ := m.KV.String("general.architecture"); !ok || m.KV.Value(arch+".block_count") == nil {
			t.Errorf("%s: architecture %q without block_count", path, arch)
		}
		m.Close()
	}
}

func TestSplit(t *testing.T) {
	for _, name := range []string{"split-ok", "split-ok-metadata-only-first"} {
		m, err := Open(testkit.Data(t, "gguf-malformed/"+name+"/m-00001-of-00002.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, x := range m.Tensors {
			names = append(names, x.Name)
		}
		if got := strings.Join(names, " "); got != "token_embd.weight output_norm.weight blk.0.attn_norm.weight blk.0.ffn_norm.weight" {
			t.Errorf("%s: tensors %s", name, got)
		}
		size := int64(0)
		for _, f := range m.Files() {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if len(m.Files()) != 2 || m.SizeBytes() != size {
			t.Errorf("%s: files %v, %d bytes, expected %d", name, m.Files(), m.SizeBytes(), size)
		}
		last := m.Tensor("blk.0.ffn_norm.weight")
		b, err := os.ReadFile(m.Files()[last.File])
		if err != nil || string(b[last.Offset:][:len(last.Data)]) != string(last.Data) {
			t.Errorf("%s: File and Offset do not lead to the tensor's bytes (%v)", name, err)
		}
		m.Close()
	}
}

func FuzzOpenGGUF(tf *testing.F) {
	f := testkit.Fuzz(tf)
	dir, files := verdicts(f, "gguf-malformed")
	for name := range files {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(compress(f, quant.BF16, []int{64, 70}, random(70*128)))
	path := filepath.Join(f.TempDir(), "f.gguf")
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := Open(path)
		if err != nil {
			return
		}
		if err := m.Guard(func() error { touch(t, m); return nil }); err != nil && !errors.As(err, new(*DamageError)) {
			t.Error(err)
		}
		m.Close()
	})
}

// A file in memory reads like the same file on disk, damaged ones included.
func TestFromBytes(t *testing.T) {
	dir, files := verdicts(t, "gguf-malformed")
	read := 0
	for name := range files {
		if strings.HasPrefix(name, "split") {
			continue
		}
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := FromBytes(path, data)
		want, wantErr := Open(path)
		if err != nil || wantErr != nil {
			if err == nil || wantErr == nil || err.Error() != wantErr.Error() {
				t.Errorf("%s: %v, the file gives %v", name, err, wantErr)
			}
			continue
		}
		read++
		touch(t, got)
		if len(got.Tensors) != len(want.Tensors) || len(got.KV.Keys()) != len(want.KV.Keys()) || len(got.Files()) != 0 || got.Alignment != 1 {
			t.Errorf("%s: %d tensors, %d keys, %d files, alignment %d", name, len(got.Tensors), len(got.KV.Keys()), len(got.Files()), got.Alignment)
			continue
		}
		for i, x := range got.Tensors {
			if y := want.Tensors[i]; x.Name != y.Name || string(x.Data) != string(y.Data) || x.Offset != y.Offset || x.File != -1 {
				t.Errorf("%s: tensor %q differs from that of the file", name, x.Name)
			}
		}
		if err := errors.Join(got.Close(), want.Close()); err != nil {
			t.Error(err)
		}
	}
	if read < 20 {
		t.Errorf("%d files could be read, expected more", read)
	}
	part, err := os.ReadFile(filepath.Join(dir, "split-ok", "m-00001-of-00002.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FromBytes("part", part); err == nil || !strings.Contains(err.Error(), "part of a split model") {
		t.Errorf("a part of a split model: %v, expected to be refused", err)
	}
}
