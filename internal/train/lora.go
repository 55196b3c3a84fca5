package train

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"

	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/quant"
	"ck/internal/step"
)

// LoRA trains products of low rank beside frozen matrices.
type LoRA struct {
	Rank      int
	Alpha     float64        // the product counts Alpha/Rank times, or
	RankRoot  bool           // Alpha/sqrt(Rank) times (Kalajdzievski 2023, arXiv:2312.03732)
	Targets   *regexp.Regexp // names of matrices
	Seed      uint64         // of the values that A begins with; B begins with zeros
	adapters  []step.Adapter
	adaptedBy float32
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

// adapt puts the adapters into a graph, and says which of its weights are frozen.
func (l *LoRA) adapt(g *graph.Graph) (frozen func(graph.WeightID) bool, err error) {
	weights := len(g.Weights)
	l.adaptedBy = float32(l.By())
	l.adapters = step.Adapt(g, l.Rank, l.adaptedBy, func(w graph.Weight) bool {
		return w.Of == 0 && w.Experts == 0 && w.Name != "output.weight" && w.Name != "token_embd.weight" && l.Targets.MatchString(w.Name)
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

// A Product is what an adapter adds to a matrix: By * B*A.
type Product struct {
	Rank, Rows, Cols int
	A, B             []float32
	By               float64
}

// row adds what the product has in row r.
func (p *Product) row(r int, dst []float32, wide []float64) {
	clear(wide)
	for j := range p.Rank {
		b := float64(p.B[r*p.Rank+j])
		for k, a := range p.A[j*p.Cols : (j+1)*p.Cols] {
			wide[k] += b * float64(a)
		}
	}
	for k := range dst {
		dst[k] = float32(float64(dst[k]) + p.By*wide[k])
	}
}

// Products are the adapters of a net, by the name of the matrix.
func (n *Net) Products() map[string]*Product {
	list := map[string]*Product{}
	if n.opt.LoRA == nil {
		return list
	}
	values := map[string][]float32{}
	for _, p := range n.Params {
		values[p.Name] = p.Value
	}
	for _, a := range n.opt.LoRA.adapters {
		w, low := n.G.Weights[a.W], n.G.Weights[a.A]
		list[w.Name] = &Product{low.Rows, w.Rows, w.Cols, values[low.Name], values[n.G.Weights[a.B].Name], float64(n.opt.LoRA.adaptedBy)}
	}
	return list
}

// Keys of adapter files (llama.cpp's convert_lora_to_gguf.py).
const (
	keyType        = "general.type"
	keyAdapterType = "adapter.type"
	keyAlpha       = "adapter.lora.alpha"
)

// WriteAdapter writes the adapters as llama.cpp's LoRA file, in float32. They count alpha/rank times there.
func (n *Net) WriteAdapter(w io.Writer, m *gguf.Model) error {
	arch, _, err := m.KV.String("general.architecture")
	if err != nil {
		return err
	}
	kv := &gguf.Metadata{}
	kv.Set("general.architecture", arch)
	kv.Set(keyType, "adapter")
	kv.Set(keyAdapterType, "lora")
	kv.Set(keyAlpha, float32(n.opt.LoRA.By()*float64(n.opt.LoRA.Rank)))
	var infos []gguf.TensorInfo
	for _, p := range n.Params {
		infos = append(infos, gguf.TensorInfo{Name: p.Name, Type: quant.F32, Shape: []int{p.Cols, p.Rows}})
	}
	out, err := gguf.NewWriter(w, kv, infos)
	if err != nil {
		return err
	}
	for _, p := range n.Params {
		if _, err := out.Write(floatBytes(p.Value)); err != nil {
			return err
		}
	}
	return out.Close()
}

// ReadAdapter reads llama.cpp's LoRA file for a model. Errors name the key or tensor.
func ReadAdapter(a, m *gguf.Model) (map[string]*Product, error) {
	for key, want := range map[string]string{keyType: "adapter", keyAdapterType: "lora"} {
		if s, ok, err := a.KV.String(key); err != nil || !ok || s != want {
			return nil, fmt.Errorf("key %s: %q: is no file of an adapter of low rank", key, s)
		}
	}
	arch, _, err := a.KV.String("general.architecture")
	own, _, err2 := m.KV.String("general.architecture")
	if err != nil || err2 != nil || arch != own {
		return nil, fmt.Errorf("key general.architecture: the adapter is for %q, the model is %q", arch, own)
	}
	alpha, ok, err := a.KV.Float(keyAlpha)
	if err != nil || !ok || alpha-alpha != 0 {
		return nil, fmt.Errorf("key %s: is missing or no number", keyAlpha)
	}
	list := map[string]*Product{}
	for _, t := range a.Tensors {
		name, isA := strings.CutSuffix(t.Name, step.AdapterA)
		if !isA {
			if name, isA = strings.CutSuffix(t.Name, step.AdapterB); !isA {
				return nil, fmt.Errorf("tensor %s: is no matrix of an adapter", t.Name)
			}
			if a.Tensor(name+step.AdapterA) == nil {
				return nil, fmt.Errorf("tensor %s: has no %s beside it", t.Name, step.AdapterA)
			}
			continue
		}
		w, b := m.Tensor(name), a.Tensor(name+step.AdapterB)
		if w == nil || len(w.Shape) != 2 {
			return nil, fmt.Errorf("tensor %s: the model has no matrix %s", t.Name, name)
		}
		if b == nil || len(t.Shape) != 2 || len(b.Shape) != 2 || t.Cols() != w.Cols() || b.Rows() != w.Rows() || b.Cols() != t.Rows() {
			return nil, fmt.Errorf("tensor %s: the sizes of the adapter do not fit those of the model's %s, [%d, %d]", t.Name, name, w.Rows(), w.Cols())
		}
		p := &Product{Rank: t.Rows(), Rows: w.Rows(), Cols: w.Cols(), By: alpha / float64(t.Rows())}
		for _, x := range []struct {
			t   *gguf.Tensor
			dst *[]float32
		}{{t, &p.A}, {b, &p.B}} {
			*x.dst = make([]float32, x.t.Rows()*x.t.Cols())
			if err := load(a, graph.Weight{Name: x.t.Name}, *x.dst); err != nil {
				return nil, err
			}
		}
		list[name] = p
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("has no adapter")
	}
	return list, nil
}

// Merge writes a model with products added to its matrices. These keep their type where it is a float type, else they become typ.
func Merge(w io.Writer, m *gguf.Model, products map[string]*Product, typ quant.Type) error {
	var infos []gguf.TensorInfo
	for _, t := range m.Tensors {
		info := gguf.TensorInfo{Name: t.Name, Type: t.Type, Shape: t.Shape}
		if products[t.Name] != nil && t.Type != quant.F32 && t.Type != quant.F16 && t.Type != quant.BF16 {
			info.Type = typ
		}
		infos = append(infos, info)
	}
	out, err := gguf.NewWriter(w, m.KV, infos)
	if err != nil {
		return err
	}
	return m.Guard(func() error {
		for i, t := range m.Tensors {
			p, r := products[t.Name], t.Reader()
			row, to, wide := make([]float32, t.Cols()), make([]byte, infos[i].Type.RowBytes(t.Cols())), make([]float64, t.Cols())
			for j := range t.Rows() {
				b := r.Row(j)
				if p != nil {
					quant.Decode(t.Type, row, b)
					p.row(j, row, wide)
					if err := quant.Quantize(infos[i].Type, to, row, nil); err != nil {
						return fmt.Errorf("tensor %s: %w", t.Name, err)
					}
					b = to
				}
				if _, err := out.Write(b); err != nil {
					return err
				}
			}
		}
		return out.Close()
	})
}
