package train

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/numa"
	"ck/internal/team"
	"ck/internal/topo"
	"ck/internal/walk"
)

// Replicas are nets of one graph and the same masters, each with workers, panels and buffers of its own. A replica walks an aligned subtree of a batch's
// leaves. Then each owns a shard of the parameters, an even part of their values: its workers add the tops of the trees there, and update masters and moments,
// which are kept once and lie at their owner. Each replica packs all its panels of the new masters. It reads (R-1)/R of 8 bytes a value over the link in
// BF16, the matrix and its transpose; owners that packed for all would write 4 over it, read those lines before, and read 4 (R-1)/R for the transposes, which
// need columns of all shards. So neither moves less. This way panels are first touched at home, nobody waits for a packer, and a
// panel that came over wrongly differs from the others'.
type Replicas struct {
	Nets  []*Net
	Notes []string // what the system did not grant, a line each

	places []Place
	teams  []*team.Team
	mu     sync.Mutex // of what follows and Notes: replicas take memory while they walk
	held   []held
	left   []int64 // by replica: bytes that its nodes have room for; below zero: nothing tells
}

// held is memory of replicas outside of the heap.
type held struct {
	*numa.Region
	what    string
	replica int // below zero: shards of all
}

// NewReplicas makes a net at each place; open makes the first one, with the options that it is given. Errors of open are passed on.
func NewReplicas(places []Place, opt NetOptions, open func(NetOptions) (*Net, error)) (*Replicas, error) {
	x := &Replicas{places: places}
	workers := 2
	for i, p := range places {
		t, err := x.crew(p)
		if err != nil {
			x.Close()
			return nil, err
		}
		x.teams = append(x.teams, t)
		x.left = append(x.left, roomOf(places[i].Nodes))
		workers += len(p.CPUs)
	}
	if runtime.GOMAXPROCS(0) < workers { // workers that spin keep other goroutines waiting
		runtime.GOMAXPROCS(workers)
	}
	if slices.ContainsFunc(places, func(p Place) bool { return len(p.Nodes) > 0 }) {
		opt.spread = x.spread
	}
	opt.decode = new([]float32)
	defer func() { *opt.decode = nil }() // nobody reads it again
	for r := range places {
		var n *Net
		var err error
		if r == 0 {
			opt.Team, opt.memory = x.teams[0], x.memoryOf(0)
			n, err = open(opt)
		} else {
			n, err = x.Nets[0].twin(x.teams[r], x.memoryOf(r))
		}
		if err != nil {
			x.Close()
			return nil, err
		}
		x.Nets = append(x.Nets, n)
	}
	return x, nil
}

// crew starts the workers of a place, pinned where the system grants it.
func (x *Replicas) crew(p Place) (*team.Team, error) {
	opt := team.Options{Pin: true}
	if p.Shared {
		opt.SpinMicros = -1 // who spins takes the CPU from those that it waits for
	}
	t, err := team.New(p.CPUs, opt)
	if err == nil {
		return t, nil
	}
	x.note("workers are not pinned: %v", err)
	opt.Pin = false
	return team.New(p.CPUs, opt)
}

func (x *Replicas) note(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(x.Notes, line) {
		x.Notes = append(x.Notes, line)
	}
}

// Close ends the workers and gives the memory back: nets must not be used any more.
func (x *Replicas) Close() {
	for _, t := range x.teams {
		t.Close()
	}
	for _, h := range x.held {
		h.Free()
	}
	x.held = nil
}

// roomOf is how many bytes can be bound to nodes; below zero: nothing tells.
func roomOf(nodes []int) (room int64) {
	for _, node := range nodes {
		n := topo.NodeRoom(node)
		if n < 0 {
			return n
		}
		room += n
	}
	return room
}

// at is how memory of replica r is taken: bound to its nodes, or where there is room if they have none.
func (x *Replicas) at(r int, what string, n int) (numa.Policy, []int) {
	nodes := x.places[r].Nodes
	if room := x.left[r]; room >= 0 {
		if x.left[r] = max(0, room-int64(n)); int64(n) > room { // bound, it would end the process
			x.note("nodes %s have no room for %s of replica %d's %s: these lie elsewhere", list(nodes), size(int64(n)), r, what)
			return numa.Prefer, nodes[len(nodes)-1:]
		}
	}
	return numa.Bind, nodes
}

func list(nodes []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(nodes), "[]"), " ", ",")
}

// memoryOf takes memory of replica r; nil where none is in particular.
func (x *Replicas) memoryOf(r int) func(what string, n int) ([]byte, error) {
	if len(x.places[r].Nodes) == 0 {
		return nil
	}
	return func(what string, n int) ([]byte, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		policy, nodes := x.at(r, what, n)
		m, err := numa.Alloc(n, numa.Options{Policy: policy, Nodes: nodes})
		if err != nil {
			return nil, fmt.Errorf("replica %d: %s: %w", r, what, err)
		}
		x.tell(m)
		x.held = append(x.held, held{m, what, r})
		return m.Bytes(), nil
	}
}

// tell notes that memory lies where it is touched first.
func (x *Replicas) tell(m *numa.Region) {
	if err := m.Misplaced(); err != nil {
		x.note("%v", err)
	}
}

// spread is memory for lists of numbers that is kept once: the parts that a replica owns lie on its nodes.
func (x *Replicas) spread(sizes []int) (v [][]float32, err error) {
	all := 0
	for _, n := range sizes {
		all += (n + part - 1) / part
	}
	m, err := numa.Alloc(all*4*part, numa.Options{})
	if err != nil {
		return nil, fmt.Errorf("masters and moments: %w", err)
	}
	x.held = append(x.held, held{m, "masters and moments", -1})
	for r, p := range x.places {
		if lo, hi := owned(all, r, len(x.places)); hi > lo && len(p.Nodes) > 0 {
			policy, nodes := x.at(r, "masters and moments", hi-lo)
			if err := m.Place(lo, hi-lo, policy, nodes...); err != nil {
				x.note("%v", err)
			}
		}
	}
	at := m.Bytes()
	for _, n := range sizes {
		if n == 0 {
			v = append(v, nil)
			continue
		}
		v = append(v, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(at))), n))
		at = at[(n+part-1)/part*4*part:]
	}
	return v, nil
}

// owned are the bytes of a region of so many parts that replica r owns.
func owned(parts, r, replicas int) (lo, hi int) {
	return parts * r / replicas * 4 * part, parts * (r + 1) / replicas * 4 * part
}

// A Placed says where memory of a replica lies.
type Placed struct {
	Replica int
	What    string // panels, buffers, keys and values, sums, masters and moments
	Bytes   int64  // that were taken
	Nodes   []int  // where it should lie
	Home    int    // pages that lie there
	numa.Placement
	Err error // nothing could be found out
}

// Share is how much of it lies on its nodes, of what was touched.
func (p Placed) Share() float64 { return float64(p.Home) / float64(max(1, p.Pages-p.Absent)) }

// Where looks at the pages of all memory that was bound to nodes, by replica and what it is for.
func (x *Replicas) Where() (all []Placed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	add := func(h held, r, lo, hi int) {
		if hi <= lo {
			return
		}
		i := slices.IndexFunc(all, func(p Placed) bool { return p.Replica == r && p.What == h.what })
		if i < 0 {
			i = len(all)
			all = append(all, Placed{Replica: r, What: h.what, Nodes: x.places[r].Nodes})
		}
		p := &all[i]
		pl, err := h.Region.Where(lo, hi-lo)
		if err != nil {
			p.Err = err
			return
		}
		p.Add(pl)
		p.Bytes += int64(hi - lo)
		for node, n := range pl.OnNode {
			if slices.Contains(p.Nodes, node) {
				p.Home += n
			}
		}
	}
	for _, h := range x.held {
		if h.replica >= 0 {
			add(h, h.replica, 0, len(h.Bytes()))
			continue
		}
		for r := range x.places {
			lo, hi := owned(len(h.Bytes())/(4*part), r, len(x.places))
			add(h, r, lo, hi)
		}
	}
	slices.SortStableFunc(all, func(a, b Placed) int { return a.Replica - b.Replica })
	return all
}

// panels are those of a weight.
type panels struct {
	of  graph.Weight
	mem []byte
}

// twin is another net of the same graph and masters.
func (n *Net) twin(t *team.Team, memory func(string, int) ([]byte, error)) (*Net, error) {
	x := &Net{G: n.G, opt: n.opt, values: n.values, load: n.load}
	x.opt.Team, x.opt.memory = t, memory
	for _, p := range n.Params {
		x.Params = append(x.Params, &Param{Weight: p.Weight, Value: p.Value, vectors: p.vectors, gradients: p.gradients})
	}
	return x, x.lay()
}

// take is memory of the net.
func (n *Net) take(what string, bytes int) ([]byte, error) {
	if n.opt.memory == nil {
		return aligned(bytes), nil
	}
	return n.opt.memory(what, bytes)
}

// panelsRoom is memory for the panels of all matrices, each in whole pages.
func (n *Net) panelsRoom(f *kernel.Format) ([]byte, error) {
	size := 0
	for i, w := range n.G.Weights {
		if n.G.Roles(graph.WeightID(i))[graph.Matrix] {
			size += walk.PanelsRoom(w, f)
		}
	}
	return n.take("panels", size)
}

// masters is memory for the values of weights that are trained; nil where a list by itself will do.
func (n *Net) masters(weights []graph.Weight, trained func(graph.WeightID) bool) ([][]float32, error) {
	if n.opt.spread == nil {
		return make([][]float32, len(weights)), nil
	}
	sizes := make([]int, len(weights))
	for i, w := range weights {
		if trained(graph.WeightID(i)) {
			sizes[i] = w.Rows * w.Cols
		}
	}
	return n.opt.spread(sizes)
}

// moments is memory for numbers of each parameter, zeros.
func (n *Net) moments() ([][]float32, error) {
	var sizes []int
	var v [][]float32
	for _, p := range n.Params {
		sizes = append(sizes, len(p.Value))
	}
	if n.opt.spread != nil {
		return n.opt.spread(sizes)
	}
	for _, size := range sizes {
		v = append(v, make([]float32, size))
	}
	return v, nil
}

// all calls f for every replica at once and returns when all have returned. An error or a panic raises stop, so that the others end soon, and is told
// once: the first replica's that did not end because of it.
func (t *Trainer) all(stop *atomic.Bool, f func(r int) error) error {
	if len(t.nets) == 1 {
		return f(0)
	}
	errs := make([]error, len(t.nets))
	var group sync.WaitGroup
	for r := range t.nets {
		group.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					errs[r] = &team.Panic{Value: v, Stack: debug.Stack()}
				}
				if errs[r] != nil {
					stop.Store(true)
				}
			}()
			errs[r] = f(r)
		})
	}
	group.Wait()
	var stopped error
	for r, err := range errs {
		switch {
		case errors.Is(err, walk.ErrStopped):
			stopped = err
		case err != nil:
			return fmt.Errorf("replica %d: %w", r, err)
		}
	}
	return stopped
}
