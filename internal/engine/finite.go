package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"

	"ck/internal/arch"
	"ck/internal/gguf"
	"ck/internal/kernel"
	"ck/internal/plan"
	"ck/internal/quant"
	"ck/internal/step"
	"ck/internal/team"
	"ck/internal/walk"
)

// Weights are not looked at when a model opens, but for norms and biases: an infinity or NaN in one survives every step up to the logits
// (kernels are made so), and the logits are looked at after each walk. One pass over them finds it, in 11 µs for a vocabulary of 151,936.
// Only then the cause is searched.

// NotFiniteError says that the arithmetic came to an infinity or NaN though all weights are finite.
type NotFiniteError struct {
	Path     string // of the model
	Step     string // the first step of the walk whose output is not finite; "" if a second walk came to finite numbers
	Attends  bool   // the step reads earlier positions too
	Position int    // of the row in its sequence
	KV       quant.Type
}

func (e *NotFiniteError) Error() string {
	if e.Step == "" {
		return fmt.Sprintf("%s: position %d: logits were not finite, and are on a second try; the memory or the CPU errs: test the machine", e.Path, e.Position)
	}
	hint := "try --kv f32 and --act f32, and another copy of the model"
	if e.KV == quant.F32 {
		hint = "try --act f32 and another copy of the model"
	}
	from := ""
	if e.Attends {
		from = ", from it or from what it attends to"
	}
	return fmt.Sprintf("%s: position %d: step %s gives no finite number%s, though all weights are finite; %s", e.Path, e.Position, e.Step, from, hint)
}

// finite reports whether all of x is. Squares of what is beyond 1e19 overflow: then it takes a second look.
func finite(tbl *kernel.Table, x []float32) bool {
	if s := tbl.SumSquares(x); s-s == 0 {
		return true
	}
	return notFinite(x) < 0
}

// notFinite is the index of the first infinity or NaN in x, or -1.
func notFinite(x []float32) int {
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}

// checkLogits looks at all logits of a walk. The error says why one is not finite.
func (e *Engine) checkLogits(ctx context.Context, w *walk.Walker, b *walk.Batch) error {
	for i := range b.Pick {
		if !finite(e.tbl, w.Logits(i)) {
			return e.whyNotFinite(ctx, b, int(b.Pos[b.Pick[i]]))
		}
	}
	return nil
}

// whyNotFinite searches the weights, then the steps of the walk over b. It takes as long as reading the file.
func (e *Engine) whyNotFinite(ctx context.Context, b *walk.Batch, pos int) error {
	if err := e.badWeight(ctx); err != nil {
		return err
	}
	err := &NotFiniteError{Path: e.model.Path, Position: pos, KV: e.opt.KV}
	w, werr := e.trace(ctx, b, func(it *plan.Item, row int) {
		err.Step, err.Position, err.Attends = it.Name, int(b.Pos[row]), it.Do.Group == plan.Attention
	})
	if werr != nil {
		return werr
	}
	for i := range b.Pick {
		if err.Step == "" && !finite(e.tbl, w.Logits(i)) {
			err.Step = "output"
		}
	}
	return err
}

// trace walks over b once more, with one worker, and tells found the first item that writes a row that is not finite, and the row.
func (e *Engine) trace(ctx context.Context, b *walk.Batch, found func(it *plan.Item, row int)) (*walk.Walker, error) {
	p, err := plan.Build(e.Graph, plan.Machine{Workers: 1, MaxRows: max(len(b.IDs), 1), MaxPicks: max(len(b.Pick), 1), Format: e.format})
	if err != nil {
		return nil, err
	}
	t, err := team.New(e.cpusFor(e.layout.N())[:1], team.Options{})
	if err != nil {
		return nil, err
	}
	defer t.Close()
	arena := make([]byte, p.Arena+128)
	arena = arena[-uintptr(unsafe.Pointer(&arena[0]))&63:]
	weights := e.weights
	if e.layout.N() > 1 { // no home has all
		weights.Slots, weights.Copies = e.fileSlots(), nil
	}
	w, err := walk.New(p, step.Routines, e.tbl, weights, e.cache, arena)
	if err != nil {
		return nil, err
	}
	done := false
	w.Hook = func(_, i int) {
		if i == 0 || done {
			return
		}
		if row := w.NotFinite(i - 1); row >= 0 {
			done = true
			found(&p.Items[i-1], row)
		}
	}
	switch err := w.Run(t, b, e.watch(ctx)); {
	case errors.Is(err, walk.ErrStopped):
		return nil, ctx.Err()
	case err != nil:
		return nil, e.fault(err)
	}
	return w, nil
}

// badWeight decodes every weight of the graph and is an error that names the first tensor with an element that is not finite, and its
// row; nil if there is none.
func (e *Engine) badWeight(ctx context.Context) error {
	for _, w := range e.Graph.Weights {
		if w.From > 0 {
			continue // of a tensor that was looked at
		}
		if err := e.scan(ctx, e.model.Tensor(w.Name)); err != nil {
			return err
		}
	}
	return nil
}

// scan looks at all elements of a tensor, on all CPUs that the machine grants.
func (e *Engine) scan(ctx context.Context, t *gguf.Tensor) error {
	n := max(1, min(e.granted, runtime.GOMAXPROCS(0), t.Rows()))
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			errs[i] = e.model.Guard(func() error { // faults are the goroutine's own
				row, rows := make([]float32, t.Cols()), t.Reader()
				for r := i * t.Rows() / n; r < (i+1)*t.Rows()/n; r++ {
					if err := ctx.Err(); err != nil {
						return err
					}
					quant.Decode(t.Type, row, rows.Row(r))
					if j := notFinite(row); j >= 0 {
						return e.badElement(t, r, j, row[j])
					}
				}
				return nil
			})
		})
	}
	wg.Wait()
	for _, err := range errs { // in the order of the rows
		if err != nil {
			return err
		}
	}
	return nil
}

// badElement is the error of element j of row r of a tensor. A vector has no rows.
func (e *Engine) badElement(t *gguf.Tensor, r, j int, v float32) error {
	path := e.model.Path
	if files := e.model.Files(); t.File >= 0 && t.File < len(files) {
		path = files[t.File]
	}
	what := "an infinity"
	if math.IsNaN(float64(v)) {
		what = "NaN"
	}
	where := fmt.Sprintf("row %d, element %d", r, j)
	if len(t.Shape) == 1 {
		where = fmt.Sprintf("element %d", j)
	}
	return &ModelError{path, fmt.Errorf("tensor %s: %s is %s, and weights must be finite; %s", t.Name, where, what, arch.Remedy)}
}
