package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/imatrix"
	"ck/internal/quant"
	"ck/internal/topo"
)

// importances is the importance matrix of --imatrix.
type importances struct {
	*imatrix.Matrix
	path, hash string
}

// openImatrix reads --imatrix and looks whether it is of this model; nil without the flag.
func (p *program) openImatrix(m *gguf.Model) (*importances, error) {
	path := p.quantize.imatrix
	if path == "" {
		return nil, nil
	}
	x, err := imatrix.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	known := slices.ContainsFunc(m.Tensors, func(t *gguf.Tensor) bool { return x.Find(t.Name) != nil })
	if !known {
		return nil, cli.Input("%s: has %d tensors, and the model none of their names; it is of another model", path,
			len(x.Entries))
	}
	return &importances{x, path, hex.EncodeToString(sum[:8])}, nil
}

// of is the importances of a tensor for a type; nil where there are none.
func (x *importances) of(t *gguf.Tensor, typ quant.Type) ([]float32, error) {
	if x == nil || !quantizable(t) {
		return nil, nil
	}
	matrices := 1
	if len(t.Shape) > 2 {
		matrices = t.Rows() / t.Shape[1]
	}
	return x.Weights(imatrix.Target{Name: t.Name, Columns: t.Cols(), Matrices: matrices, Type: typ})
}

// fact is what a run that goes on must find the same.
func (x *importances) fact() string {
	if x == nil {
		return ""
	}
	return x.hash
}

// keys says in the file which importances it was made with, as llama-quantize does.
func (x *importances) keys(kv *gguf.Metadata) {
	if x == nil {
		return
	}
	kv.Set("quantize.imatrix.file", filepath.Base(x.path))
	if len(x.Datasets) > 0 {
		kv.Set("quantize.imatrix.dataset", x.Datasets[0])
	}
	kv.Set("quantize.imatrix.entries_count", uint32(len(x.Entries)))
	if x.Chunks > 0 {
		kv.Set("quantize.imatrix.chunks_count", uint32(x.Chunks))
	}
}

// openEngine opens a model and its engine.
func (p *program) openEngine(path string) (*generate.Model, *engine.Engine, error) {
	m, err := generate.Open(path)
	if err != nil {
		return nil, nil, err
	}
	e, err := engine.Open(m.Weights, p.engineOptions(1))
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	for _, n := range e.Notes {
		p.app.Info("%s", n)
	}
	return m, e, nil
}

// memoryLeft is the bytes that may be taken: --mem-limit, else what the machine has left.
func (p *program) memoryLeft() int64 {
	if n := p.app.Common.MemLimit; n > 0 {
		return n
	}
	m, err := topo.Live()
	if err != nil {
		return 0
	}
	left, _, _ := m.Budget()
	return left
}

// covarianceBytes is what the covariance of so many columns takes.
func covarianceBytes(cols int) int64 { return 8 * int64(cols) * int64(cols) }

// tensorsOf is the tensors of the output with their importances.
func tensorsOf(m *gguf.Model, types []quant.Type, x *importances) ([]convert.Tensor, error) {
	tensors := make([]convert.Tensor, len(types))
	for i, t := range m.Tensors {
		tensors[i] = convert.Tensor{From: t, Type: types[i]}
		if types[i] == t.Type {
			continue
		}
		var err error
		if tensors[i].Importance, err = x.of(t, types[i]); err != nil {
			return nil, err
		}
	}
	return tensors, nil
}
