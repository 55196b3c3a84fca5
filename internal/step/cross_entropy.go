package step

import (
	"math"

	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// CrossEntropy is the loss of picked rows: the first output is -ln of the probability of the token that should follow (graph.Input.Target; 0 where none
// counts), the second one the gradient of the loss by the logits, where each row that counts has its share (graph.Input.Share): share * (softmax - 1 at the
// target). The first row is picked row From.
type CrossEntropy struct{ From int }

func (CrossEntropy) Kind() string         { return "cross-entropy" }
func (CrossEntropy) Needs(int) graph.Need { return graph.SameRow }
func (CrossEntropy) Role(int) graph.Role  { return graph.Vector }

func (CrossEntropy) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 2, 0, 0); err != nil {
		return err
	}
	if err := g.SameWidth(s.In[0], s.Out[1]); err != nil {
		return err
	}
	if g.Width(s.Out[0]) != 1 {
		return s.Arity(1, 1, 0, 0)
	}
	return nil
}

func (c CrossEntropy) Ref(r *graph.Ref, s *graph.Step) {
	for i, logits := range r.Vals[s.In[0]] {
		target := r.In.Target[r.In.Pick[c.From+i]]
		if target < 0 || logits == nil {
			continue
		}
		top, sum := math.Inf(-1), 0.0
		for _, x := range logits {
			top = max(top, x)
		}
		for _, x := range logits {
			sum += math.Exp(x - top)
		}
		if loss := r.Vals[s.Out[0]][i]; loss != nil {
			loss[0] = top + math.Log(sum) - logits[target]
		}
		if d := r.Vals[s.Out[1]][i]; d != nil {
			for t, x := range logits {
				d[t] = r.In.Share * math.Exp(x-top) / sum
			}
			d[target] -= r.In.Share
		}
	}
}

func (CrossEntropy) Realise(b *plan.Builder, i int) (int, error) {
	s := b.Step(i)
	it := b.Item(i, crossEntropy)
	it.Cut = plan.Cut{By: plan.Rows}
	it.In = []plan.Operand{b.At(s.In[0]).Cols(0)}
	b.FinishAll(it, s.Out, 0)
	return 0, nil
}

var crossEntropy = &plan.Kind{Name: "cross-entropy", In: 1, Out: 2, Ops: 40, InPlace: anyInput}

func runCrossEntropy(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, vocab := w.Floats(it.In[0])
	loss, _ := w.Floats(it.Out[0])
	out, _ := w.Floats(it.Out[1])
	b, from := w.Batch(), it.Op.(CrossEntropy).From
	for r := p.R0; r < p.R1 && !w.Stopped(); r++ {
		x, d := in[r*vocab:(r+1)*vocab], out[r*vocab:(r+1)*vocab]
		target := b.Target[b.Pick[from+r]]
		if target < 0 {
			clear(d)
			loss[r] = 0
			continue
		}
		k, wanted := w.Kernels(), float64(x[target])
		top := k.Max(x)
		k.Exp(d, x, top)
		sum := k.Sum64(d)
		loss[r] = float32(float64(top) + math.Log(sum) - wanted)
		k.Scale(d, d, float32(float64(b.Share)/sum))
		d[target] -= b.Share
	}
}
