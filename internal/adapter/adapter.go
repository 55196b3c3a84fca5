// Package adapter has LoRA adapters (Hu et al. 2021): low-rank changes of the matrices of a model. It reads and writes them as folders of
// PEFT and as llama.cpp's GGUF files, and merges them into models, row by row while these are read.
package adapter

import (
	"fmt"
	"math"
	"strings"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// maxRank bounds the rank of a target.
const maxRank = 1 << 16

// Adapter changes matrices W [out, in] of a model to W + scale * B * A.
type Adapter struct {
	Arch   string  // general.architecture of the model
	Alpha  float64 // of all targets; finite
	RSLoRA bool    // scale is alpha/sqrt(rank), not alpha/rank (Kalajdzievski 2023)
	Base   string  // name of the model, for people; may be empty

	Targets []Target
}

// Target is the change of one matrix.
type Target struct {
	Name          string // of the matrix in GGUF: "blk.0.attn_q.weight"
	Rank, In, Out int
	A             []float32 // [rank, in]
	B             []float32 // [out, rank], rows in GGUF's order, as the matrix has them
}

// Scale is the factor of B * A.
func (a *Adapter) Scale(t *Target) float64 {
	if a.RSLoRA {
		return a.Alpha / math.Sqrt(float64(t.Rank))
	}
	return a.Alpha / float64(t.Rank)
}

// Check holds the adapter against the model that it changes. Errors name the target.
func (a *Adapter) Check(m *gguf.Model) error {
	arch, _, err := m.KV.String("general.architecture")
	if err != nil {
		return err
	}
	if arch != a.Arch {
		return fmt.Errorf("the adapter is of architecture %.100q, the model's is %.100q; give the model that it was trained on", a.Arch, arch)
	}
	if err := a.sound(); err != nil {
		return err
	}
	for i := range a.Targets {
		t := &a.Targets[i]
		w, err := base(m, t.Name)
		if err != nil {
			return err
		}
		if t.In != w.Shape[0] || t.Out != w.Shape[1] {
			return fmt.Errorf("tensor %s: the adapter is of [%d, %d], the model's is [%d, %d]; give the model that it was trained on", t.Name, t.Out, t.In,
				w.Shape[1], w.Shape[0])
		}
	}
	return nil
}

// base is the matrix that a target may have.
func base(m *gguf.Model, name string) (*gguf.Tensor, error) {
	w := m.Tensor(name)
	switch {
	case w == nil && name == "output.weight" && m.Tensor("token_embd.weight") != nil:
		return nil, fmt.Errorf("tensor %s: the model's output is its embedding, which a change would part; adapters of it are not supported", name)
	case w == nil:
		return nil, fmt.Errorf("tensor %.100s: the model has none; give the one that the adapter was trained on", name)
	case name == "token_embd.weight":
		return nil, fmt.Errorf("tensor %s: adapters of the embedding are not supported", name)
	case len(w.Shape) != 2 || !strings.HasSuffix(name, ".weight"):
		return nil, fmt.Errorf("tensor %s: shape %v, and only matrices are adapted", name, w.Shape)
	}
	return w, nil
}

// sound checks the adapter by itself.
func (a *Adapter) sound() error {
	if len(a.Targets) == 0 {
		return fmt.Errorf("the adapter changes no tensor")
	}
	if math.IsNaN(a.Alpha) || math.IsInf(a.Alpha, 0) {
		return fmt.Errorf("alpha: is %v, expected a finite number", a.Alpha)
	}
	seen := map[string]bool{}
	for i := range a.Targets {
		t := &a.Targets[i]
		switch {
		case seen[t.Name]:
			return fmt.Errorf("tensor %.100s: the adapter has it twice", t.Name)
		case t.Rank < 1 || t.Rank > maxRank || t.In < 1 || t.Out < 1:
			return fmt.Errorf("tensor %.100s: rank %d of [%d, %d], expected a rank from 1 to %d", t.Name, t.Rank, t.Out, t.In, maxRank)
		case len(t.A)%t.Rank != 0 || len(t.A)/t.Rank != t.In || len(t.B)%t.Rank != 0 || len(t.B)/t.Rank != t.Out:
			return fmt.Errorf("tensor %.100s: %d and %d numbers are no matrices [%d, %d] and [%d, %d]", t.Name, len(t.A), len(t.B), t.Rank, t.In, t.Out, t.Rank)
		}
		seen[t.Name] = true
	}
	return nil
}

// finite looks for a number that is not. cols is the length of a row, for the error.
func finite(v []float32, cols int) error {
	for i, x := range v {
		if x-x != 0 {
			return fmt.Errorf("row %d, element %d: is %g, expected a finite number; the adapter is damaged", i/cols, i%cols, x)
		}
	}
	return nil
}

// encoded is the numbers in a float type, rounded once.
func encoded(typ quant.Type, v []float32, cols int) ([]byte, error) {
	b := make([]byte, typ.RowBytes(len(v)))
	if err := quant.Quantize(typ, b, v, nil); err != nil {
		return nil, err
	}
	if i := quant.FirstNotFinite(typ, b); i >= 0 {
		return nil, fmt.Errorf("row %d, element %d: %g is more than %v holds; choose BF16 or F32", i/cols, i%cols, v[i], typ)
	}
	return b, nil
}
