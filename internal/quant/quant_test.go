package quant

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"ck/internal/testkit"
)

// reference is one type of the reference data (quant-ref/index.json): bytes that ggml wrote and the floats it read back.
type reference struct {
	ID            Type
	Name          string
	BlockElements int   `json:"block_elements"`
	BlockBytes    int   `json:"block_bytes"`
	Plain         files `json:"plain"`
	WithImatrix   files `json:"with_imatrix"`
}

type files struct{ Bytes, Dequantized string }

// references reads the index of the reference data and names its folder.
func references(t testing.TB) (dir string, refs []reference) {
	t.Helper()
	dir = testkit.Data(t, "quant-ref")
	var index struct{ Types []reference }
	if err := json.Unmarshal(read(t, dir, "index.json"), &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Types) < 29 {
		t.Fatalf("index.json has %d types, at least 29 expected", len(index.Types))
	}
	return dir, index.Types
}

func read(t testing.TB, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readF32(t testing.TB, dir, name string) []float32 {
	t.Helper()
	b := read(t, dir, name)
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}

// TestDecodeReference decodes ggml's bytes of every type, placed against guard pages, and wants ggml's floats, bit for bit.
func TestDecodeReference(t *testing.T) {
	dir, refs := references(t)
	decoded := 0
	for _, r := range refs {
		for _, f := range []files{r.Plain, r.WithImatrix} {
			if f.Dequantized == "" {
				continue
			}
			decoded++
			t.Run(f.Bytes, func(t *testing.T) {
				if r.ID.BlockElems() != r.BlockElements || r.ID.BlockBytes() != r.BlockBytes {
					t.Fatalf("block of %d elements in %d bytes, want %d in %d",
						r.ID.BlockElems(), r.ID.BlockBytes(), r.BlockElements, r.BlockBytes)
				}
				want, b := readF32(t, dir, f.Dequantized), read(t, dir, f.Bytes)
				src, dst := testkit.Guarded[byte](t, len(b)), testkit.Guarded[float32](t, len(want))
				copy(src, b)
				Decode(r.ID, dst, src)
				for i := range want {
					if math.Float32bits(dst[i]) != math.Float32bits(want[i]) {
						t.Fatalf("element %d is %g, want %g", i, dst[i], want[i])
					}
				}
				wide := make([]float64, len(want))
				Exact(r.ID, wide, src)
				for i := range want {
					if wide[i] != float64(want[i]) {
						t.Fatalf("Exact: element %d is %g, want %g", i, wide[i], want[i])
					}
				}
			})
		}
	}
	if decoded < 43 {
		t.Errorf("%d files decoded, at least 43 expected", decoded)
	}
}
