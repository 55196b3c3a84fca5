// Package cost predicts what a model costs on a machine: bytes, operations, meetings of workers, packing; memory for weights, state and
// training. Bytes and operations are those of the plan that the engine would walk, made without the weights.
//
// It is a model, not a measurement: constants.go names every constant with its source. What is left out: other load, heat, turbo, pages
// that lie on the wrong node.
package cost

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ck/internal/arch"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/kv"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/synth"
)

// A Model is a model without its weights: the graph and the tensors' shapes and types.
type Model struct {
	Name    string
	Type    string // recipe, block type, or "as in the file"
	Graph   *graph.Graph
	Tensors []gguf.TensorInfo

	types map[string]quant.Type
	plans map[planKey]*plan.Plan
}

type planKey struct {
	class         plan.Class
	workers, rows int
	homes         int
	tokens        bool
}

// table is for formats and sizes, which no tier changes.
var table = kernel.For(isa.Go, 0)

// OfShape is a model of a shape. typ is the name of a recipe or of a block type for all matrices.
func OfShape(name string, s synth.Shape, typ string) (*Model, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	m := &Model{Name: name}
	if r, ok := quant.FindRecipe(typ); ok { // a name that is both is what llama-quantize makes under it
		m.Tensors, m.Type = s.Mixed(r), r.Name
	} else if t, ok := quant.Parse(typ); ok && usable(t) {
		m.Tensors, m.Type = s.Pure(t), t.String()
	} else {
		return nil, fmt.Errorf("type %q is neither a recipe (%s) nor a block type of weights", typ, strings.Join(quant.RecipeNames(), ", "))
	}
	return m, m.build(shapeSource{s.Metadata(name), s, m})
}

// OfFile is the model of an open file, with its own tensors and types.
func OfFile(name string, f *gguf.Model) (*Model, error) {
	m := &Model{Name: name, Type: "as in the file"}
	for _, t := range f.Tensors {
		if !usable(t.Type) {
			return nil, fmt.Errorf("tensor %s: weights of type %s are not supported", t.Name, t.Type)
		}
		m.Tensors = append(m.Tensors, gguf.TensorInfo{Name: t.Name, Type: t.Type, Shape: t.Shape})
	}
	return m, m.build(fileSource{f.KV, f})
}

// usable reports whether weights of the type can be used.
func usable(t quant.Type) bool {
	switch t {
	case quant.I8, quant.I16, quant.I32, quant.I64, quant.F64, quant.Q8_1, quant.Q8_K:
		return false
	}
	return t.Known()
}

func (m *Model) build(src arch.Source) error {
	m.types, m.plans = map[string]quant.Type{}, map[planKey]*plan.Plan{}
	for _, t := range m.Tensors {
		m.types[t.Name] = t.Type
	}
	g, _, err := arch.Build(src)
	m.Graph = g
	return err
}

// shapeSource shows a shape to package arch.
type shapeSource struct {
	*gguf.Metadata
	s synth.Shape
	m *Model
}

func (x shapeSource) Shape(name string) (rows, cols int, ok bool) {
	for i := range x.m.Tensors {
		if t := &x.m.Tensors[i]; t.Name == name {
			return rowsOf(t.Shape), t.Shape[0], true
		}
	}
	return 0, 0, false
}

func (x shapeSource) Experts(name string) int {
	for i := range x.m.Tensors {
		if t := &x.m.Tensors[i]; t.Name == name {
			if len(t.Shape) > 2 {
				return t.Shape[2]
			}
			return 1
		}
	}
	return 0
}

func (x shapeSource) Vector(name string) ([]float32, error) {
	if v := x.s.Vector(name); v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("tensor %s: a shape has no contents", name)
}

func (x shapeSource) Tensors() []string {
	var names []string
	for i := range x.m.Tensors {
		names = append(names, x.m.Tensors[i].Name)
	}
	return names
}

// fileSource shows a file to package arch.
type fileSource struct {
	*gguf.Metadata
	f *gguf.Model
}

func (x fileSource) Shape(name string) (rows, cols int, ok bool) {
	t := x.f.Tensor(name)
	if t == nil {
		return 0, 0, false
	}
	return t.Rows(), t.Cols(), true
}

func (x fileSource) Experts(name string) int {
	t := x.f.Tensor(name)
	switch {
	case t == nil:
		return 0
	case len(t.Shape) > 2:
		return t.Shape[2]
	}
	return 1
}

func (x fileSource) Vector(name string) ([]float32, error) {
	t := x.f.Tensor(name)
	if t == nil {
		return nil, fmt.Errorf("tensor %s: is missing", name)
	}
	return x.f.Decode(t, 1<<22)
}

func (x fileSource) Tensors() []string { return x.f.Names() }

func rowsOf(shape []int) int {
	n := 1
	for _, d := range shape[1:] {
		n *= d
	}
	return n
}

// Params is the number of weights of all tensors.
func (m *Model) Params() float64 {
	n := 0.0
	for _, t := range m.Tensors {
		n += float64(rowsOf(t.Shape)) * float64(t.Shape[0])
	}
	return n
}

// format is how matmuls read a weight of the graph.
func (m *Model) format(w graph.WeightID) *kernel.Format {
	t, ok := m.types[m.Graph.Weights[w].Name]
	if !ok {
		return nil
	}
	return table.Format(t, false)
}

// planWorkers bounds the workers that plans are made for, which take 0.1 s for a hundred. More workers get the plan of fewer, with heads
// that divide over them or do not as over the true number.
const planWorkers = 512

// Plan is the plan of the engine for walks of a class, of rows rows at most, by workers.
func (m *Model) Plan(c plan.Class, workers, rows int) (*plan.Plan, error) {
	return m.planOn(1, false, c, workers, rows)
}

// planOn is Plan on so many homes, of which members may have rows of their own.
func (m *Model) planOn(homes int, tokens bool, c plan.Class, workers, rows int) (*plan.Plan, error) {
	if workers > planWorkers {
		n := planWorkers
		for ; n > 2 && !m.sharesHeads(n, workers); n-- {
		}
		workers = n
	}
	key := planKey{c, workers, rows, homes, tokens}
	if p := m.plans[key]; p != nil {
		return p, nil
	}
	layout := plan.NewLayout(m.Graph, plan.HomesFor(m.Graph, homes))
	if tokens {
		layout = layout.Tokens()
	}
	p, err := plan.Build(m.Graph, plan.Machine{Workers: workers, MaxRows: rows, MaxPicks: rows, Format: m.format, Layout: layout})
	if err != nil {
		return nil, err
	}
	m.plans[key] = p
	return p, nil
}

// sharesHeads reports whether the KV heads of every layer divide over n workers where they do over others, and do not where they do not.
func (m *Model) sharesHeads(n, others int) bool {
	return !slices.ContainsFunc(m.Graph.Caches, func(c graph.Cache) bool { return (c.KVHeads%n == 0) != (c.KVHeads%others == 0) })
}

// CacheBytes is what one more position of a sequence takes in a KV cache of a type, all layers together. heads, unless 0, is the number of
// KV heads instead of the model's: as many as query heads, one, or between.
func (m *Model) CacheBytes(t quant.Type, heads int) (int64, error) {
	c, err := m.cache(t, heads)
	if err != nil {
		return 0, err
	}
	return c.BytesPerPosition(), nil
}

// cache is the engine's cache for the model, without memory.
func (m *Model) cache(t quant.Type, heads int) (*kv.Cache, error) {
	var layers []kv.Layer
	for _, c := range m.Graph.Caches {
		f, err := table.KV(t, c.D, c.Dv)
		if err != nil {
			return nil, fmt.Errorf("KV cache: %w", err)
		}
		n := c.KVHeads
		if heads > 0 {
			n = heads
		}
		layers = append(layers, kv.Layer{Heads: n, Format: f})
	}
	return kv.New(layers, 1, 1, nil, 0), nil
}

// Heads is the number of query and of KV heads of the first layer with attention.
func (m *Model) Heads() (query, kvHeads int) {
	for i := range m.Graph.Steps {
		if a, ok := m.Graph.Steps[i].Op.(step.Attend); ok {
			return a.Heads, m.Graph.Caches[a.Cache].KVHeads
		}
	}
	return 0, 0
}

// Hidden is the width of the residual stream.
func (m *Model) Hidden() int { return m.Graph.Values[0].Width }

// Layers is the number of layers with attention.
func (m *Model) Layers() int { return len(m.Graph.Caches) }

// ParseParams reads a number of parameters: 250B, 1.5T, 600M.
func ParseParams(s string) (float64, error) {
	unit := 1.0
	num := s
	if n := len(s); n > 0 {
		switch s[n-1] {
		case 'M', 'm':
			unit, num = 1e6, s[:n-1]
		case 'B', 'b':
			unit, num = 1e9, s[:n-1]
		case 'T', 't':
			unit, num = 1e12, s[:n-1]
		}
	}
	x, err := strconv.ParseFloat(num, 64)
	if err != nil || strings.ContainsAny(num, "xXpPnN_eE+-") || !(x*unit >= 3e8 && x*unit <= 1e14) {
		return 0, fmt.Errorf("%q is no number of parameters such as 250B, 1.5T or 600M (300M to 100T)", s)
	}
	return x * unit, nil
}

// ShapeOfSize is a shape of so many parameters in the proportions of the llama-3 family: heads of 128 elements, 8 KV heads, a feed-forward
// network of 3.5 times the hidden size, about one layer for 128 elements of it, a vocabulary of 128256, untied.
func ShapeOfSize(params float64) synth.Shape {
	best, bestOff := synth.Shape{}, math.Inf(1)
	step := 256
	for hidden := 512; hidden <= 1<<17; hidden += step {
		if hidden == 2048 {
			step = 1024 // 8 KV heads
		}
		s := synth.Shape{Arch: "llama", Hidden: hidden, FFN: hidden * 7 / 2, HeadDim: 128, Heads: hidden / 128, Vocab: 128256, Context: 131072, RopeBase: 5e5}
		s.KVHeads = min(8, s.Heads)
		for s.Heads%s.KVHeads != 0 {
			s.KVHeads--
		}
		h, kvw := float64(hidden), float64(s.KVHeads*s.HeadDim)
		rest := params - 2*h*float64(s.Vocab)
		attention := 2*h*h + 2*h*kvw
		s.Layers = int(math.Round(rest / (attention + 3*h*float64(s.FFN))))
		if s.Layers < 2 || s.Layers > 1024 {
			continue
		}
		// The feed-forward network takes up what rounding left, in blocks of 256.
		s.FFN = int(math.Round((rest/float64(s.Layers)-attention)/(3*h)/256)) * 256
		if s.FFN < 256 {
			continue
		}
		if off := math.Abs(math.Log(float64(s.Layers) * 128 / h)); off < bestOff {
			best, bestOff = s, off
		}
	}
	return best
}
