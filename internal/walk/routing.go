package walk

import (
	"sync/atomic"

	"ck/internal/graph"
	"ck/internal/plan"
)

// Routing is where the rows of a choice of experts lie: sorted by expert, and for each expert as the rows of the walk are.
type Routing struct {
	From  []int32 // by routed row: row * used + j, its row and the number of the expert in that row's choice
	At    []int32 // by row * used + j: the routed row
	Start []int32 // by expert: its first routed row; one more for the end

	run   uint64 // of the walk that it is of
	route int
}

// Routing is the places of the rows of a routed space, whose ids lie in an operand. Every worker sorts for itself: that takes less than to wait
// for one of them.
func (w *Worker) Routing(space graph.Space, ids plan.Operand) *Routing {
	r := &w.routed
	if r.run == w.x.runs && r.route == space.Route {
		return r
	}
	n := w.Rows(space)
	list, _ := w.Floats(ids)
	r.sort(list[:n])
	r.run, r.route = w.x.runs, space.Route
	w.x.chosen[space.Route-1].Store(r.chosen())
	return r
}

// chosen is the number of experts that have rows.
func (r *Routing) chosen() (n int32) {
	for e := range r.Start[1:] {
		if r.Start[e+1] > r.Start[e] {
			n++
		}
	}
	return n
}

// RoutingOf is the places of rows with these ids, [row][used], for who sees routed rows through taps.
func RoutingOf(ids []float32) *Routing {
	r := new(Routing)
	r.sort(ids)
	return r
}

// sort makes the places for ids [row][used].
func (r *Routing) sort(ids []float32) {
	experts := 0
	for _, id := range ids {
		experts = max(experts, int(id)+1)
	}
	if len(r.From) < len(ids) {
		r.From, r.At = make([]int32, len(ids)), make([]int32, len(ids))
	}
	if len(r.Start) < experts+1 {
		r.Start = make([]int32, experts+1)
	}
	clear(r.Start)
	for _, id := range ids {
		r.Start[int(id)+1]++
	}
	for e := 1; e < len(r.Start); e++ {
		r.Start[e] += r.Start[e-1]
	}
	for i, id := range ids { // Start[id] moves on to the end of its expert, which is the begin of the next one
		at := r.Start[int(id)]
		r.Start[int(id)]++
		r.At[i], r.From[at] = at, int32(i)
	}
	copy(r.Start[1:], r.Start)
	r.Start[0] = 0
}

// Count counts the experts that rows chose in a step of the graph, if somebody wants to know.
func (w *Worker) Count(step int, ids []float32) {
	if w.x.Choices == nil {
		return
	}
	to := w.x.Choices[step]
	if len(w.chose) < len(to) {
		w.chose = make([]uint64, len(to))
	}
	for _, id := range ids {
		w.chose[int(id)]++
	}
	for e, n := range w.chose[:len(to)] {
		if n > 0 { // other workers count rows of their own
			atomic.AddUint64(&to[e], n)
			w.chose[e] = 0
		}
	}
}
