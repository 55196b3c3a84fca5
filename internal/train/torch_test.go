package train

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"math"
	"os"
	"slices"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// torchRun is what test/oracle/train.py writes: what PyTorch computed in float64, with which models, batches and settings.
type torchRun struct {
	Torch string
	Betas [2]float64
	Cases []torchCase
	// Batches are those of all cases: each has its first ones.
	Batches [][]struct {
		Lengths []int // of sequences; the rest of the leaf is padding
		IDs     []int32
		Loss    string // of each token: 1 where it is to be predicted
	}
}

type torchCase struct {
	Name  string
	Model struct {
		Architecture       string
		Vocab, Hidden, FFN uint32
		Layers, Heads      uint32
		KVHeads            uint32 `json:"kv_heads"`
		Head               uint32
		Eps, Base          float32
	}
	Steps       int
	Rate, Eps   float64
	Decay, Clip float64
	Schedule    string
	Warmup      int
	Floor       float64
	Tensors     []struct {
		Name  string
		Shape []int // rows, columns; of vectors elements alone
	}
	Begin   uint32                                `json:"begin_crc32"`
	Float32 struct{ Loss, Value, Change float64 } // how far PyTorch's float32 is from these figures
	Figures []struct {
		Loss, Rate, Norm float64
		Targets          int
		Norms            []float64 // of the gradient of each tensor
	}
}

func openTorch(t *testing.T) *torchRun {
	t.Helper()
	b, err := os.ReadFile("testdata/torch.json")
	if err != nil {
		t.Fatal(err)
	}
	var r torchRun
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// mixed is Wellons's lowbias32, which the script has too.
func scrambled(n uint32) uint32 {
	n ^= n >> 16
	n *= 0x7feb352d
	n ^= n >> 15
	n *= 0x846ca68b
	return n ^ n>>16
}

// begin is the values of tensor number at the beginning, as the script has them.
func begin(number int, shape []int) []float32 {
	n := 1
	for _, d := range shape {
		n *= d
	}
	x := make([]float32, n)
	for i := range x {
		u := float64(scrambled(uint32(i+number<<16)))/(1<<31) - 1
		if x[i] = float32(1 + u/4); len(shape) > 1 {
			x[i] = float32(u * 2 / math.Sqrt(float64(shape[1])))
		}
	}
	return x
}

// model is a case's model at the beginning, as a GGUF file, and its values.
func (c *torchCase) model(t *testing.T) (*gguf.Model, [][]float32) {
	t.Helper()
	kv := &gguf.Metadata{}
	m := &c.Model
	kv.Set("general.architecture", m.Architecture)
	for key, v := range map[string]any{"embedding_length": m.Hidden, "feed_forward_length": m.FFN, "block_count": m.Layers, "context_length": uint32(128),
		"vocab_size": m.Vocab, "attention.head_count": m.Heads, "attention.head_count_kv": m.KVHeads, "attention.key_length": m.Head,
		"attention.value_length": m.Head, "attention.layer_norm_rms_epsilon": m.Eps, "rope.dimension_count": m.Head, "rope.freq_base": m.Base} {
		kv.Set(m.Architecture+"."+key, v)
	}
	var infos []gguf.TensorInfo
	var values [][]float32
	for i, x := range c.Tensors {
		shape := x.Shape
		if len(shape) == 2 {
			shape = []int{shape[1], shape[0]}
		}
		infos, values = append(infos, gguf.TensorInfo{Name: x.Name, Type: quant.F32, Shape: shape}), append(values, begin(i, x.Shape))
	}
	var b bytes.Buffer
	sum := uint32(0)
	w, err := gguf.NewWriter(&b, kv, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		sum = crc32.Update(sum, crc32.IEEETable, floatBytes(v))
		if _, err := w.Write(floatBytes(v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if sum != c.Begin {
		t.Fatalf("%s begins with other values than in PyTorch", c.Name)
	}
	out, err := gguf.FromBytes(c.Name, b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return out, values
}

// batch is the leaves of a step.
func (r *torchRun) batch(step int) (leaves []Leaf) {
	for _, x := range r.Batches[step] {
		l := Leaf{IDs: x.IDs, Pos: make([]int32, len(x.IDs)), Seq: make([]int32, len(x.IDs)), Loss: make([]bool, len(x.IDs))}
		for i := range l.Seq {
			l.Seq[i], l.Loss[i] = -1, x.Loss[i] == '1'
		}
		at := 0
		for s, n := range x.Lengths {
			for i := range n {
				l.Pos[at+i], l.Seq[at+i] = int32(i), int32(s)
			}
			at += n
		}
		leaves = append(leaves, l)
	}
	return leaves
}

// ends is the values of all tensors behind the last step in PyTorch, of the sizes that they have at the beginning.
func (c *torchCase) ends(t *testing.T, begins [][]float32) (all [][]float32) {
	t.Helper()
	b, err := os.ReadFile("testdata/torch-" + c.Name + ".f32")
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range begins {
		v := make([]float32, len(x))
		n, err := binary.Decode(b, binary.LittleEndian, v)
		if err != nil {
			t.Fatalf("%s: %v", c.Tensors[i].Name, err)
		}
		all, b = append(all, v), b[n:]
	}
	if len(b) > 0 {
		t.Fatalf("%s: %d bytes are left", c.Name, len(b))
	}
	return all
}

// Training is PyTorch's, step by step: losses, gradients of each tensor, rates, and all weights at the end. Twenty steps change weights by 2e-3, beside which
// mistakes of an optimizer are small; so of each tensor the change is compared as well, which may be off by four times what PyTorch's own float32 is: kernels
// add in other orders.
func TestTorch(t *testing.T) {
	r := openTorch(t)
	var names []string
	for i := range r.Cases {
		c := &r.Cases[i]
		names = append(names, c.Name)
		if f := c.Float32; len(c.Figures) != c.Steps || !(f.Loss < 2e-5 && f.Value < 3e-5) {
			t.Fatalf("%s: %d steps of %d; PyTorch in float32: %+v", c.Name, len(c.Figures), c.Steps, f)
		}
		for _, workers := range []int{1, 3} {
			c.compare(t, r, workers)
		}
	}
	if want := []string{"llama", "qwen3", "llama-fast"}; !slices.Equal(names, want) {
		t.Errorf("cases %v, expected %v", names, want)
	}
}

// compare trains a case and holds it against PyTorch.
func (c *torchCase) compare(t *testing.T, r *torchRun, workers int) {
	m, begins := c.model(t)
	n, err := Open(m, NetOptions{Leaf: len(r.Batches[0][0].IDs), Leaves: 2, Type: quant.F32, Table: table(), Team: crew(t, workers)})
	if err != nil {
		t.Fatal(err)
	}
	x, err := NewTrainer(n, Options{Batch: len(r.Batches[0]),
		Optimizer: Optimizer{Name: "adamw", Beta1: r.Betas[0], Beta2: r.Betas[1], Eps: c.Eps, Decay: c.Decay, Clip: c.Clip},
		Schedule:  Schedule{Kind: c.Schedule, Rate: c.Rate, Floor: c.Floor, Warmup: c.Warmup, Steps: c.Steps}})
	if err != nil {
		t.Fatal(err)
	}
	number, params := map[string]int{}, map[string]*Param{}
	for i, x := range c.Tensors {
		number[x.Name] = i
	}
	for _, p := range n.Params {
		params[p.Name] = p
	}
	if len(params) != len(c.Tensors) {
		t.Fatalf("%s: %d parameters, PyTorch has %d", c.Name, len(params), len(c.Tensors))
	}
	var loss, norm, value, change float64 // the furthest
	for step, want := range c.Figures {
		s, err := x.Step(r.batch(step), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Targets != want.Targets || math.Abs(s.Rate/want.Rate-1) > 1e-9 {
			t.Errorf("%s, step %d: %d tokens count, PyTorch has %d; the rate is %v, PyTorch's %v", c.Name, step+1, s.Targets, want.Targets, s.Rate, want.Rate)
		}
		loss, norm = max(loss, math.Abs(s.Loss-want.Loss)), max(norm, math.Abs(s.Norm/want.Norm-1))
		for i, g := range x.tops.whole[0] {
			sum := 0.0
			for _, v := range g {
				sum += float64(v) * float64(v)
			}
			norm = max(norm, math.Abs(math.Sqrt(sum)/want.Norms[number[n.Params[i].Name]]-1))
		}
	}
	for i, want := range c.ends(t, begins) {
		p := params[c.Tensors[i].Name]
		off, way := 0.0, 0.0
		for j, v := range p.Value {
			d := float64(v) - float64(want[j])
			value = max(value, math.Abs(d))
			off, way = off+d*d, way+math.Pow(float64(want[j])-float64(begins[i][j]), 2)
		}
		e := math.Sqrt(off / way)
		if change = max(change, e); !(e <= 4*c.Float32.Change) {
			t.Errorf("%s, %d workers: %s: its change is off by %.2g", c.Name, workers, p.Name, e)
		}
	}
	t.Logf("%s, %d workers: furthest from PyTorch %s: loss %.1e, norms %.1e, weights %.1e, their change %.1e", c.Name, workers, r.Torch, loss, norm, value, change)
	t.Logf("PyTorch in float32: loss %.1e, weights %.1e, their change %.1e", c.Float32.Loss, c.Float32.Value, c.Float32.Change)
	if !(loss <= 2e-5) || !(norm <= 1e-5) || !(value <= 3e-5) {
		t.Errorf("%s, %d workers: loss off by %.2g, norms of gradients by %.2g, weights by %.2g", c.Name, workers, loss, norm, value)
	}
}
