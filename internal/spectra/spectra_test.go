package spectra

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/inspect"
	"ck/internal/isa"
	"ck/internal/linalg"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// writeArray writes a file of numpy.
func writeArray(t *testing.T, path, kind string, rows, cols int, data []byte) {
	t.Helper()
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }", kind, rows, cols)
	head += strings.Repeat(" ", (64-(11+len(head))%64)%64) + "\n"
	var b bytes.Buffer
	b.WriteString("\x93NUMPY\x01\x00")
	binary.Write(&b, binary.LittleEndian, uint16(len(head)))
	b.WriteString(head)
	b.Write(data)
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

// measure opens a model and measures it.
func measure(t *testing.T, path string, opt Options) []Result {
	t.Helper()
	m, err := inspect.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	list, _, err := m.Matrices(nil)
	if err != nil {
		t.Fatal(err)
	}
	opt.Width = linalg.WidthOf(isa.Best(isa.Detect()))
	results, err := Of(context.Background(), m, list, opt)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// Every matrix of the reference data has its values within 1e-5 of the largest, and its figures, by both ways, from files
// of float32 and of float64.
func TestReference(t *testing.T) {
	var all map[string]struct {
		Rows, Cols    int
		Values        []float64 `json:"singular_values"`
		Stable        float64   `json:"stable_rank"`
		Entropy       float64   `json:"entropy_nats"`
		Participation float64   `json:"participation_ratio"`
	}
	b, err := os.ReadFile(testkit.Data(t, "spectral/matrices.json"))
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for name, want := range all {
		raw, err := os.ReadFile(filepath.Join(testkit.Data(t, "spectral"), name+".f32"))
		if errors.Is(err, os.ErrNotExist) {
			continue // made by a rule: internal/spectrum has it
		}
		if err != nil {
			t.Fatal(err)
		}
		seen++
		var double []byte
		for i := 0; i < len(raw); i += 4 {
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
			double = binary.LittleEndian.AppendUint64(double, math.Float64bits(v))
		}
		for kind, data := range map[string][]byte{"<f4": raw, "<f8": double} {
			path := filepath.Join(t.TempDir(), name+".npy")
			writeArray(t, path, kind, want.Rows, want.Cols, data)
			for _, method := range []linalg.Method{linalg.Direct, linalg.ByGram} {
				r := measure(t, path, Options{Workers: 2, Method: method})[0]
				if len(r.Values) != len(want.Values) || r.Name != name || r.Shape != [2]int{want.Rows, want.Cols} {
					t.Fatalf("%s: %d values of %q, %v", name, len(r.Values), r.Name, r.Shape)
				}
				for i, v := range want.Values {
					if !(math.Abs(r.Values[i]-v) <= 1e-5*want.Values[0]) {
						t.Errorf("%s, %s, %s: value %d is %v, want %v", name, kind, r.Method, i, r.Values[i], v)
					}
					if e := method.Bound(v, want.Values[0]); !(math.Abs(r.Values[i]-v) <= 2*e) {
						t.Errorf("%s, %s, %s: value %d is off by %g, the bound is %g", name, kind, r.Method, i, r.Values[i]-v, e)
					}
				}
				for _, c := range [][2]float64{{r.Stable, want.Stable}, {r.Entropy, want.Entropy}, {r.Participation, want.Participation}} {
					if !(math.Abs(c[0]-c[1]) <= 1e-6*max(1, c[1])) {
						t.Errorf("%s, %s, %s: figure %v, want %v", name, kind, r.Method, c[0], c[1])
					}
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d matrices", seen)
	}
}

// writeModel writes random matrices of F32, one of which has a NaN.
func writeModel(t *testing.T, shapes [][2]int, bad int) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var infos []gguf.TensorInfo
	for i, s := range shapes {
		infos = append(infos, gguf.TensorInfo{Name: fmt.Sprintf("blk.%d.ffn_up.weight", i), Type: quant.F32, Shape: []int{s[1], s[0]}})
	}
	kv := gguf.NewModel("").KV
	kv.Set("general.architecture", "none")
	path := filepath.Join(t.TempDir(), "m.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := gguf.NewWriter(f, kv, infos)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range shapes {
		var data []byte
		for k := range s[0] * s[1] {
			v := float32(rng.NormFloat64())
			if i == bad && k == 2*s[1]+1 {
				v = float32(math.NaN())
			}
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A matrix with a NaN says where; the others are measured. Results are the same for any number of workers.
func TestWorkers(t *testing.T) {
	path := writeModel(t, [][2]int{{40, 60}, {1100, 1030}, {33, 20}, {50, 20}}, 2)
	var first []Result
	for _, n := range []int{1, 2, 5} {
		results := measure(t, path, Options{Workers: n, Rank: 7, Bootstrap: 5, Residual: &Residue{quant.Q4_0, quant.Q8_0}})
		for i := range results {
			results[i].Seconds = 0
		}
		if first == nil {
			first = results
		}
		if !reflect.DeepEqual(results, first) {
			t.Errorf("%d workers: other results", n)
		}
	}
	if got := first[2].Failed; got != "row 2, column 1 (from 0) is NaN" || first[2].Figures != nil {
		t.Errorf("the row of a NaN says %q", got)
	}
	for _, i := range []int{0, 1, 3} {
		if first[i].Failed != "" || first[i].Figures == nil || first[i].Kept.Rank != 7 {
			t.Errorf("matrix %d: %+v", i, first[i])
		}
	}
	if first[0].Method != "direct" || first[1].Method != "gram" {
		t.Errorf("methods %s, %s", first[0].Method, first[1].Method)
	}
	if n := first[1].Noise; n == nil || math.Abs(n.Deviation-1) > 0.01 || n.Spikes != 0 || first[1].PowerLaw.Fits {
		t.Errorf("noise %+v, %+v", n, first[1].PowerLaw)
	}
}

// What a journal has is not measured again: results are those kept. One of other work, and one that is damaged, are refused;
// a last line that was not written whole is dropped.
func TestJournal(t *testing.T) {
	path := writeModel(t, [][2]int{{40, 60}, {33, 20}, {50, 20}}, -1)
	file := filepath.Join(t.TempDir(), "journal")
	with := func(key string) ([]Result, error) {
		j, err := inspect.OpenJournal(file, key)
		if err != nil {
			return nil, err
		}
		defer j.Close()
		return measure(t, path, Options{Workers: 2, Journal: j}), nil
	}
	first, err := with("a")
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := os.ReadFile(file)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	torn := append(bytes.Join(lines[:2], nil), lines[2][:len(lines[2])/2]...)
	for name, content := range map[string][]byte{"whole": whole, "torn": torn, "marked": bytes.Replace(whole, []byte(`"seconds":`), []byte(`"seconds":12`), 1)} {
		os.WriteFile(file, content, 0o666)
		again, err := with("a")
		if err != nil {
			t.Fatal(err)
		}
		kept := false
		for i := range again {
			kept = kept || again[i].Seconds >= 12
			again[i].Seconds = first[i].Seconds
		}
		if !reflect.DeepEqual(again, first) || kept != (name == "marked") {
			t.Errorf("%s: other results, or kept ones not taken", name)
		}
		if b, _ := os.ReadFile(file); bytes.Count(b, []byte("\n")) != 4 {
			t.Errorf("%s: the journal has %d lines", name, bytes.Count(b, []byte("\n")))
		}
	}
	var other *inspect.JournalError
	if _, err := with("b"); !errors.As(err, &other) || !strings.Contains(err.Error(), "other options") {
		t.Errorf("another key: %v", err)
	}
	for _, content := range []string{"text\n", "text", `{"schema":"ck.inspect.journal/1","key":"a"}` + "\nx\n"} {
		os.WriteFile(file, []byte(content), 0o666)
		if _, err := with("a"); !errors.As(err, &other) {
			t.Errorf("%q: %v", content, err)
		}
		if b, _ := os.ReadFile(file); string(b) != content {
			t.Errorf("%q was changed to %q", content, b)
		}
	}
}

// Too little memory is an error before work starts.
func TestMemory(t *testing.T) {
	list := []inspect.Matrix{{Name: "big", Rows: 4096, Cols: 14336}}
	var e *MemoryError
	if err := Check(list, Options{Memory: 100 << 20}); !errors.As(err, &e) || e.Need > 1<<30 {
		t.Errorf("%v", err)
	}
	if err := Check(list, Options{Memory: 1 << 30}); err != nil {
		t.Error(err)
	}
}
