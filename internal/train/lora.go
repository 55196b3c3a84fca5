package train

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"

	"ck/internal/adapter"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/quant"
	"ck/internal/step"
)

// LoRA trains products of low rank beside frozen matrices.
type LoRA struct {
	Rank     int
	Alpha    float64        // the product counts Alpha/Rank times, or
	RankRoot bool           // Alpha/sqrt(Rank) times (Kalajdzievski 2023, arXiv:2312.03732)
	Targets  *regexp.Regexp // names of matrices
	Seed     uint64         // of the values that A begins with; B begins with zeros

	adapters []step.Adapter
}

// By is how often the product counts.
func (l *LoRA) By() float64 {
	if l.RankRoot {
		return l.Alpha / math.Sqrt(float64(l.Rank))
	}
	return l.Alpha / float64(l.Rank)
}

// A NoTargetError says that no matrix is called so.
type NoTargetError struct{ Targets string }

func (e *NoTargetError) Error() string {
	return fmt.Sprintf("--targets %q: no matrix of the model is called so; names are such as blk.0.attn_q.weight", e.Targets)
}

// adapt puts the adapters, which read dropout of so much, into a graph, and says which of its weights are frozen.
func (l *LoRA) adapt(g *graph.Graph, dropout float64) (frozen func(graph.WeightID) bool, err error) {
	weights := len(g.Weights)
	l.adapters = step.Adapt(g, l.Rank, float32(l.By()), dropout, func(w graph.Weight) bool {
		return w.Experts == 0 && w.Name != "output.weight" && w.Name != "token_embd.weight" && l.Targets.MatchString(w.Name)
	})
	if len(l.adapters) == 0 {
		return nil, &NoTargetError{l.Targets.String()}
	}
	return func(w graph.WeightID) bool { return int(w) < weights }, nil
}

// begin writes the values that a matrix of an adapter has before training: of A even numbers within 1/sqrt(inputs), by its name and the seed.
func (l *LoRA) begin(w graph.Weight, dst []float32) bool {
	if !strings.HasSuffix(w.Name, step.AdapterA) {
		return strings.HasSuffix(w.Name, step.AdapterB)
	}
	h := fnv.New64a()
	io.WriteString(h, w.Name)
	rng := rand.New(rand.NewPCG(h.Sum64(), l.Seed))
	bound := 1 / math.Sqrt(float64(w.Cols))
	for i := range dst {
		dst[i] = float32((2*rng.Float64() - 1) * bound)
	}
	return true
}

// Adapter is what was trained, for the model that it was trained beside.
func (n *Net) Adapter(m *gguf.Model) (*adapter.Adapter, error) {
	arch, _, err := m.KV.String("general.architecture")
	if err != nil {
		return nil, err
	}
	l := n.opt.LoRA
	a := &adapter.Adapter{Arch: arch, Alpha: l.Alpha, RSLoRA: l.RankRoot}
	if a.Base, _, err = m.KV.String("general.name"); err != nil {
		return nil, err
	}
	for _, x := range l.adapters {
		w, low := n.G.Weights[x.W], n.G.Weights[x.A]
		a.Targets = append(a.Targets, adapter.Target{Name: w.Name, Rank: low.Rows, In: w.Cols, Out: w.TensorRows(),
			A: n.tensor(low.Name, low.Rows*low.Cols), B: n.tensor(w.Name+step.AdapterB, w.TensorRows()*low.Rows)})
	}
	return a, nil
}

// tensor is the values of a tensor of so many elements; zeros where no parameter has them.
func (n *Net) tensor(name string, size int) []float32 {
	v := make([]float32, size)
	for _, p := range n.Params {
		if p.Name == name {
			p.place(v)
		}
	}
	return v
}

// Merge writes a model with an adapter added to its matrices. These keep their type where it is a float type, else they become typ.
func Merge(w io.Writer, m *gguf.Model, a *adapter.Adapter, typ quant.Type) error {
	merged, err := Merged(m, a, typ)
	if err != nil {
		return err
	}
	return write(w, merged, nil)
}

// Merged is the model that Merge writes; see adapter.Adapter.Merge.
func Merged(m *gguf.Model, a *adapter.Adapter, typ quant.Type) (*gguf.Model, error) {
	return a.Merge(m, func(t *gguf.Tensor) quant.Type {
		if t.Type == quant.F32 || t.Type == quant.F16 || t.Type == quant.BF16 {
			return t.Type
		}
		return typ
	})
}
