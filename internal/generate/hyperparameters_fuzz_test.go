package generate

import (
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/testkit"
)

// FuzzHyperparameters sets up to four keys of a reference model to values that belong to others, or to none, over its own tensors: the file is refused
// or runs, and nothing is read or taken beyond what it justifies.
func FuzzHyperparameters(tf *testing.F) {
	f := testkit.Fuzz(tf)
	paths, err := filepath.Glob(filepath.Join(testkit.Data(tf, "models"), "*", "model.gguf"))
	if err != nil {
		f.Fatal(err)
	}
	var models []*gguf.Model
	for _, p := range paths {
		m, err := gguf.Open(p)
		if err != nil {
			f.Fatal(err)
		}
		defer m.Close()
		models = append(models, m)
	}
	for i := range models {
		f.Add(uint8(i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, model uint8, seed uint64) {
		m, rng := models[int(model)%len(models)], rand.New(rand.NewPCG(seed, uint64(model)))
		var keys []string // hyperparameters; vocabularies have a fuzz test of their own
		for _, k := range m.KV.Keys() {
			if !strings.HasPrefix(k, "tokenizer.") && !strings.HasPrefix(k, "general.") {
				keys = append(keys, k)
			}
		}
		more := map[string]any{}
		for range 1 + rng.IntN(4) {
			more[keys[rng.IntN(len(keys))]] = anyValue(rng, m, keys)
		}
		b := damaged(t, m, more, "", nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := useGGUF(b); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<29 {
			t.Errorf("%s with %v: took %d MiB", m.Path, more, took>>20)
		}
	})
}

// anyValue is the value of some key, a number near it, or a number of the kind that files are damaged with.
func anyValue(rng *rand.Rand, m *gguf.Model, keys []string) any {
	v := m.KV.Value(keys[rng.IntN(len(keys))])
	switch x := v.(type) {
	case uint32:
		return []uint32{x, x + 1, x - 1, 2 * x, x / 2, uint32(rng.IntN(1 << 10)), 1 << rng.IntN(32)}[rng.IntN(7)]
	case float32:
		return []float32{x, -x, 2 * x, x / 1e6, x * 1e6, float32(rng.NormFloat64())}[rng.IntN(6)]
	case []bool:
		out := slices.Clone(x)
		for i := range out {
			out[i] = rng.IntN(2) == 0
		}
		return out
	case []int32:
		out := slices.Clone(x)
		for i := range out {
			out[i] = int32(rng.IntN(9))
		}
		return out
	}
	return v
}
