package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ck/internal/graph"
	"ck/internal/mover"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Moves says how panels came to their place.
type Moves struct {
	Decode   walk.Moves    // of walks of one row
	Prompts  walk.Moves    // of walks of many
	Kept     int64         // bytes that workers packed to stay beside their work
	Took     time.Duration // CPU time of that
	Homes    int
	Movers   int           // threads beside the workers
	Copied   int64         // bytes that workers packed and movers copied
	Filled   int64         // bytes that movers packed
	Busy     time.Duration // of movers
	Waiting  int64         // bytes that Pack packed
	WaitTook time.Duration // time of that
}

// Moves is how panels came to their place since the engine was opened.
func (e *Engine) Moves() Moves {
	m := e.moves
	m.Homes, m.Movers = e.layout.N(), len(e.movers)
	for _, t := range e.movers {
		m.Copied, m.Filled, m.Busy = m.Copied+t.Copied(), m.Filled+t.Filled(), m.Busy+t.Busy()
	}
	return m
}

// noteMoves keeps what a walk found and did.
func (e *Engine) noteMoves(w *walk.Walker, c plan.Class) {
	m := w.Moves()
	e.moves.Kept += m.Kept
	e.moves.Took += m.Took
	m.Kept, m.Took = 0, 0
	switch c {
	case plan.One:
		e.moves.Decode.Add(m)
	case plan.Many:
		e.moves.Prompts.Add(m)
	}
}

// decodeWeights lists the matrices in the order in which generation reads them.
func (e *Engine) decodeWeights(matrix []bool) (list []graph.WeightID, err error) {
	p, err := e.plan(plan.One, 1, e.tableFormat(matrix))
	if err != nil {
		return nil, err
	}
	seen := make([]bool, len(matrix))
	for i := range p.Items {
		for _, id := range p.Items[i].W {
			if matrix[id] && !seen[id] {
				list, seen[id] = append(list, id), true
			}
		}
	}
	return list, nil
}

// decodeOrder lists the parts that a home has of all matrices, in the order in which generation reads them; copies of others' parts behind these.
func (e *Engine) decodeOrder(home int) (slots []*walk.Slot) {
	matrix := make([]bool, len(e.weights.Slots))
	for i, parts := range e.weights.Slots {
		matrix[i] = parts != nil
	}
	list, _ := e.decodeWeights(matrix) // an error is said in the walk
	for _, id := range list {
		slots = append(slots, e.weights.Slots[id][home])
	}
	for _, id := range list { // which prompts read
		if e.weights.Copies != nil {
			for _, s := range e.weights.Copies[id] {
				if s.Copy && s.Home == home {
					slots = append(slots, s)
				}
			}
		}
	}
	return slots
}

// spareCPUs are those of a home that no worker runs on, no more than it has workers.
func (e *Engine) spareCPUs(home int) []int {
	var used []int
	for _, n := range []int{e.opt.Threads, e.opt.ThreadsBatch} {
		used = append(used, e.cpusFor(n)...)
	}
	all := e.Machine.Affinity
	if len(e.homes) > 0 {
		all = slices.Concat(e.homes[home].cpus, e.homes[home].siblings)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(cpu int) bool { return slices.Contains(used, cpu) })
	lo, hi := plan.Deal(e.mostWorkers(), home, e.layout.N())
	return all[:min(len(all), hi-lo)]
}

func (e *Engine) mostWorkers() int { return max(e.opt.Threads, e.opt.ThreadsBatch) }

// planMovers decides where movers run, if they are to, and sets memory aside for the lanes to them. Where it is short there are none, nor
// where a quota does not pay for them: they would take their time from workers.
func (e *Engine) planMovers(lane int64) {
	e.moverCPUs = nil
	if e.of != nil || e.opt.Movers < 0 || e.mem.kept == 0 {
		return
	}
	lanes := lane * int64(e.mostWorkers())
	if e.mem.limit > 0 && e.mem.limit-e.mem.cache-e.mem.kept < lanes {
		return
	}
	all, any := make([][]int, e.layout.N()), []int{}
	for h := range all {
		for range e.opt.Movers {
			all[h] = append(all[h], -1)
		}
		if e.opt.Movers == 0 {
			all[h] = e.spareCPUs(h)
			if quota := e.Machine.QuotaWorkers(); quota > 0 {
				all[h] = all[h][:min(len(all[h]), max(0, quota-e.mostWorkers())/len(all))]
			}
			any = append(any, all[h]...)
		}
	}
	if e.opt.Movers == 0 && len(any) == 0 {
		return
	}
	if e.moverCPUs = all; e.mem.limit > 0 {
		e.mem.limit -= lanes
	}
	if len(any) > 0 {
		e.note("until all weights are packed, threads beside the workers pack them too, on CPUs %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(any), " ", ", "), "[]"))
	}
}

// startMovers starts threads on CPUs that workers leave, if there is something to pack: what workers pack for a walk they copy to its place, and pack
// the rest themselves.
func (e *Engine) startMovers() {
	if e.moverCPUs == nil || e.movers != nil || !e.Packing() {
		return
	}
	all := e.moverCPUs
	e.moverCPUs = nil
	scratch, n := e.scratchBytes(), e.mostWorkers()
	for h, cpus := range all {
		lo, hi := plan.Deal(n, h, len(all))
		slots := e.decodeOrder(h)
		for i, cpu := range cpus {
			var workers []int
			for w := lo + i; w < hi; w += len(cpus) {
				workers = append(workers, w)
			}
			t, err := mover.Start(cpu, len(workers), walk.NewFiller(slots, i, len(cpus)).Next)
			if err != nil {
				e.note("weights are packed by the workers alone: %v", err)
				return
			}
			e.movers = append(e.movers, t)
			if e.lanes == nil {
				e.lanes = make([]*walk.Lane, n)
			}
			for q, w := range workers {
				e.lanes[w] = walk.NewLane(h, scratch, t.Queue(q))
			}
		}
	}
}

// scratchBytes is the size of the largest scratch that a worker needs for panels.
func (e *Engine) scratchBytes() (n int) {
	for _, parts := range e.weights.Slots {
		for _, s := range parts {
			n = max(n, s.Scratch())
		}
	}
	return n
}

// settle ends the moves that are complete.
func (e *Engine) settle() {
	for _, l := range e.lanes {
		if l != nil {
			l.Settle()
		}
	}
}

// endMovers ends the movers; what they did not do is as it was.
func (e *Engine) endMovers() {
	for _, t := range e.movers {
		t.Close()
	}
	e.settle()
}
