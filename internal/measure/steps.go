package measure

import (
	"fmt"
	"io"
	"slices"
	"time"

	"ck/internal/plan"
)

// Profile adds up the time that each worker spends on each item of a plan. Its Hook costs two clock readings an item (0.1 us), so walks
// that are profiled are a little slower than others.
type Profile struct {
	Plan    *plan.Plan
	Walks   int
	workers []profileWorker
}

type profileWorker struct {
	ns   []int64 // by item
	last time.Time
	_    [64]byte
}

// NewProfile prepares the profile of a plan.
func NewProfile(p *plan.Plan) *Profile {
	x := &Profile{Plan: p, workers: make([]profileWorker, p.Workers)}
	for w := range x.workers {
		x.workers[w].ns = make([]int64, len(p.Items)+1)
	}
	return x
}

// Hook is a walk.Hook.
func (x *Profile) Hook(w, i int) {
	k := &x.workers[w]
	now := time.Now()
	if i > 0 {
		k.ns[i-1] += now.Sub(k.last).Nanoseconds()
	} else if w == 0 {
		x.Walks++
	}
	k.last = now
}

// Step is the time of all items with one label.
type Step struct {
	Name  string
	Items int
	Time  float64   // seconds of a walk, mean of the workers
	Share float64   // of the walk's time
	Work  plan.Work // of a walk
}

// BytesRate and OpsRate are what the step reaches while it runs, per second; 0 for steps without work.
func (s Step) BytesRate() float64 { return rate(s.Work.Bytes, s.Time) }
func (s Step) OpsRate() float64   { return rate(s.Work.Ops, s.Time) }

func rate(n, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return n / seconds
}

// Steps sums the profile up by label, in the order of the plan; w describes the walks. Waiting at barriers is a step of its own.
func (x *Profile) Steps(w plan.Load) []Step {
	var out []Step
	at := map[string]int{}
	total := 0.0
	for i := range x.Plan.Items {
		it := &x.Plan.Items[i]
		label := it.Label()
		j, ok := at[label]
		if !ok {
			j = len(out)
			at[label], out = j, append(out, Step{Name: label})
		}
		work := x.Plan.Work(i, w)
		s := &out[j]
		s.Items++
		s.Work.Bytes += work.Bytes
		s.Work.Ops += work.Ops
		s.Work.Kind = work.Kind
		t := 0.0
		for k := range x.workers {
			t += float64(x.workers[k].ns[i])
		}
		t /= 1e9 * float64(len(x.workers)) * float64(max(1, x.Walks))
		s.Time += t
		total += t
	}
	for i := range out {
		if total > 0 {
			out[i].Share = out[i].Time / total
		}
	}
	// Barriers last: they belong to no step.
	slices.SortStableFunc(out, func(a, b Step) int { return isBarrier(a) - isBarrier(b) })
	return out
}

func isBarrier(s Step) int {
	if s.Name == plan.Barrier.Name {
		return 1
	}
	return 0
}

// Fold writes the profile as folded stacks, which flame graph programs read: one line for each worker, layer and step, with the
// nanoseconds of all walks. Waiting at a barrier stands behind the step that it follows.
func (x *Profile) Fold(w io.Writer, root string) error {
	for k := range x.workers {
		stack := func(i int) string {
			it := &x.Plan.Items[i]
			layer := "model"
			var n int
			if _, err := fmt.Sscanf(it.Name, "blk.%d.", &n); err == nil {
				layer = fmt.Sprintf("layer %d", n)
			}
			return layer + ";" + it.Label()
		}
		sum := map[string]int64{}
		var order []string
		before := ""
		for i := range x.Plan.Items {
			line := before + ";barrier"
			if x.Plan.Items[i].Do != plan.Barrier || before == "" {
				line = stack(i)
				before = line
			}
			if _, ok := sum[line]; !ok {
				order = append(order, line)
			}
			sum[line] += x.workers[k].ns[i]
		}
		for _, line := range order {
			if _, err := fmt.Fprintf(w, "%s;worker %d;%s %d\n", root, k, line, sum[line]); err != nil {
				return err
			}
		}
	}
	return nil
}
