package facts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"ck/internal/entropy"
	"ck/internal/inspect"
	"ck/internal/testkit"
)

// mostFile is the largest input that is looked at, in bytes.
const mostFile = 1 << 16

// FuzzInspect looks at files of all forms as the commands do: facts with sums, the vocabulary, rows of all matrices. A file is refused or
// looked at whole, and takes no more memory than its bytes explain.
func FuzzInspect(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for i, set := range []string{"gguf-malformed", "safetensors-malformed"} {
		names, err := filepath.Glob(filepath.Join(testkit.Data(f, set), "*."+[]string{"gguf", "safetensors"}[i]))
		if err != nil || len(names) < 20 {
			f.Fatal(len(names), err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, uint8(i))
		}
	}
	for _, head := range []string{"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", "{'descr': '<f8', 'fortran_order': True, 'shape': (3, 1), }"} {
		f.Add([]byte("\x93NUMPY\x01\x00"+string(rune(len(head)))+"\x00"+head+strings.Repeat("\x01", 24)), uint8(2))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, form uint8) {
		if len(b) > mostFile {
			return
		}
		path := filepath.Join(dir, fmt.Sprintf("f.%s", []string{"gguf", "safetensors", "npy"}[form%3]))
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := inspect.Open(path)
		if err != nil {
			return
		}
		defer m.Close()
		if err := m.Guard(func() error { return look(t, m) }); err != nil {
			return // damage that is found at the use of a tensor
		}
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 64<<20+256*uint64(len(b)) {
			t.Errorf("%d bytes are taken for a file of %d", taken, len(b))
		}
	})
}

func look(t *testing.T, m *inspect.Model) error {
	chosen, err := m.Chosen(nil)
	if err != nil {
		return err
	}
	f, err := Of(t.Context(), m, Options{Chosen: chosen, Hash: true, Workers: 1})
	if err != nil {
		return err
	}
	if _, err := json.Marshal(f); err != nil {
		t.Error(err)
	}
	if v, err := VocabularyOf(m.KV); err == nil {
		for id := range int32(min(v.Len(), 1000)) {
			v.Token(id)
		}
	}
	list, _, err := m.Matrices(nil)
	if err != nil {
		return err
	}
	for i := range list {
		x := &list[i]
		entropy.HistogramBits(x.Rows, x.Cols, x.Reader().Row)
		x.Reader().Row64(x.Rows-1, make([]float64, x.Cols))
		inspect.WhereNotFinite(x)
	}
	return nil
}
