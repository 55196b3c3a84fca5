package engine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/kv"
	"ck/internal/numa"
	"ck/internal/plan"
	"ck/internal/topo"
	"ck/internal/walk"
)

// A home is memory where a part of the model lies, and the CPUs that work there.
type home struct {
	nodes []int // memory nodes in the order in which they are filled; none: memory lies where it is touched first
	cpus  []int

	siblings []int // others of the same cores
}

// A Workplace is where a walk would be: so many workers on so many homes, on one if that is 1, of a machine that has Sockets of them.
type Workplace struct {
	Tier           isa.Tier
	Workers, Homes int
	Cores, Sockets int // of the machine
}

// prefersHomes compares a token on one home with one on all, as Options.Judge predicts them.
func (e *Engine) prefersHomes(m topo.Machine, homes []home) bool {
	least, most := 1<<30, 0
	for _, h := range homes {
		least, most = min(least, len(h.cpus)), max(most, len(h.cpus))
	}
	all, one := least*len(homes), most
	if n := m.QuotaWorkers(); n > 0 {
		all, one = min(all, n), min(one, n)
	}
	if n := e.opt.Threads; n > 0 {
		all, one = min(all, n), min(one, n)
	}
	if all < len(homes) {
		return false
	}
	all -= all % len(homes)
	matrix := make([]bool, len(e.Graph.Weights))
	for i := range matrix {
		matrix[i] = e.Graph.Roles(graph.WeightID(i))[graph.Matrix] && decodable(e.model.Tensor(e.Graph.Weights[i].Name).Type)
	}
	layers, err := e.layers()
	if err != nil {
		return false // said later
	}
	load := plan.Load{Rows: 1, Picks: 1, Keys: 512, CacheReads: 1, CacheBytes: kv.New(layers, 1, 1, nil, 0).LayerBytes()}
	seconds := func(h plan.Homes, workers int) float64 {
		p, err := plan.Build(e.Graph, plan.Machine{Workers: workers, MaxRows: 1, MaxPicks: 1, Format: e.tableFormat(matrix), Layout: plan.NewLayout(e.Graph, h)})
		if err != nil {
			return math.Inf(1)
		}
		return e.opt.Judge(p, load, Workplace{e.Tier, workers, h.N(), all, len(homes)})
	}
	alone, together := seconds(plan.OneHome, one), seconds(plan.HomesFor(e.Graph, len(homes)), all)
	word := "one home does all"
	if together < alone {
		word = "every home has a part of each weight (--numa tp)"
	}
	e.note("--numa auto: %.4g tokens/s predicted of one of %d homes, %.4g of all: %s", 1/alone, len(homes), 1/together, word)
	return together < alone
}

// tensorParallel takes the homes of the machine, of which each is to have a part of every weight. What it cannot do is a warning, and one home is
// left.
func (e *Engine) tensorParallel(homes []home, granted int, why string) {
	n, least, word := len(homes), 1<<30, "tp"
	if e.mirror {
		word = "mirror"
	}
	for _, h := range homes {
		least = min(least, len(h.cpus))
	}
	workers := granted
	if e.opt.Threads > 0 {
		workers = e.opt.Threads
	}
	if e.opt.ThreadsBatch > 0 {
		workers = min(workers, e.opt.ThreadsBatch)
	}
	for n > 1 && (workers < n || !evenly(n, len(homes)) && workers < len(homes)) {
		n--
	}
	if n < 2 {
		e.warn("--numa %s: %s at %d homes: one home does all; see -t and the quota", word, count(workers, "worker"), len(homes))
		e.mirror = false
		return
	}
	e.homes = homes[:n]
	e.layout = plan.NewLayout(e.Graph, plan.HomesFor(e.Graph, n))
	e.granted = max(1, min(granted/n, least)) * n
	if e.opt.Threads <= 0 {
		e.opt.Threads = e.granted
	}
	if e.opt.ThreadsBatch <= 0 {
		e.opt.ThreadsBatch = e.opt.Threads
	}
	e.note("tensor-parallel over %d members of %s: %d workers for generation, %d for prompts; %s", e.layout.Members, count(e.layout.Places, "home"),
		e.opt.Threads, e.opt.ThreadsBatch, why)
	if queues := topo.WorkQueues(); len(queues) > 0 {
		e.note("work queues in /dev/dsa: %s; threads move panels, queues are not used yet", strings.Join(queues, ", "))
	} else {
		e.note("no work queues in /dev/dsa: threads move panels")
	}
	if n < len(homes) {
		e.note("%d of %d homes: there are %s", n, len(homes), count(workers, "worker"))
	}
}

// tokensFrom is for how many rows of a member rows of prompts are dealt where nothing predicts it: so many hide behind their arithmetic that weights of
// other members are read over the link. With VNNI on 56 cores 30 do, with AMX on int8 130.
const tokensFrom = 128

// boundDeals decides from how many rows on prompts are dealt to members. Fewer are computed as generation is, every member with its part of the weights:
// where Options.Judge predicts that to be shorter.
func (e *Engine) boundDeals() error {
	n := e.layout.Members
	if e.dealsFrom = tokensFrom * n; n < 2 || e.opt.Judge == nil || !e.dealsTokens() {
		return nil
	}
	layers, err := e.layers()
	if err != nil {
		return err
	}
	parts, err := e.planOn(e.layout, plan.Many, 1, e.format)
	if err != nil {
		return err
	}
	dealt, err := e.planOn(e.layout.Tokens(), plan.Many, 1, e.format)
	if err != nil {
		return err
	}
	cores := 0
	for _, h := range e.homes {
		cores += len(h.cpus)
	}
	at := Workplace{e.Tier, e.opt.ThreadsBatch, e.layout.N(), cores, len(e.homes)}
	cache := kv.New(layers, 1, 1, nil, 0).LayerBytes()
	for each := kernel.BlockKeys; each <= e.opt.UBatch; each *= 2 {
		l := plan.Load{Rows: each * n, Picks: 1, Keys: float64(each*n) / 2, CacheReads: 1, CacheBytes: cache}
		if e.dealsFrom = each * n; e.opt.Judge(dealt, l, at) < e.opt.Judge(parts, l, at) {
			e.note("prompts of %d rows and more are dealt to members; shorter ones are computed as generation is", e.dealsFrom)
			return nil
		}
	}
	e.dealsFrom = math.MaxInt
	e.note("prompts are computed as generation is: no walk is long enough to hide that weights are read over the link")
	return nil
}

// evenly reports whether n is a power of two or all homes.
func evenly(n, homes int) bool { return n == homes || n&(n-1) == 0 }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// homesOf are the homes of a survey.
func homesOf(s *topo.Survey) (homes []home, notes []string) {
	list, notes := s.Homes()
	for _, h := range list {
		homes = append(homes, home{nodes: h.Nodes, cpus: h.Cores, siblings: h.Siblings})
	}
	return homes, notes
}

// asNodes are homes of lists of CPUs, "0-3/4-7", all of whose memory is where it is touched first. A CPU may be in several.
func asNodes(lists string, m topo.Machine) ([]home, error) {
	var homes []home
	for _, list := range strings.Split(lists, "/") {
		cpus, err := topo.ParseCPUs(list)
		if err != nil || len(cpus) == 0 {
			return nil, fmt.Errorf("%q: %q is no list of CPUs; expected lists such as 0-3/4-7", lists, list)
		}
		for _, id := range cpus {
			if !m.Allows(id) {
				return nil, fmt.Errorf("%q: CPU %d is none of those that this process may use", lists, id)
			}
		}
		homes = append(homes, home{cpus: cpus})
	}
	return homes, nil
}

// ParseLink reads a link between homes: the time of a meeting and, if there is a second word, bytes a second: "2us,20GB/s".
func ParseLink(s string) (latency time.Duration, rate float64, err error) {
	first, second, two := strings.Cut(s, ",")
	if latency, err = time.ParseDuration(first); err != nil || latency < 0 || latency > time.Second {
		return 0, 0, fmt.Errorf("%q: %q is no time of a meeting such as 2us", s, first)
	}
	if two {
		n, ok := strings.CutSuffix(second, "GB/s")
		x, err := strconv.ParseFloat(n, 64)
		if !ok || err != nil || !(x > 0 && x <= 1e6) {
			return 0, 0, fmt.Errorf("%q: %q is no rate such as 20GB/s", s, second)
		}
		rate = x * 1e9
	}
	return latency, rate, nil
}

// linkOf is the link that walks of so many workers wait for; nil without Options.Link. Homes are those of Options.AsNodes, whoever has the weights.
func (e *Engine) linkOf(workers int) *walk.Link {
	if e.opt.Link == "" {
		return nil
	}
	latency, rate, err := ParseLink(e.opt.Link)
	if err != nil {
		return nil // bound said it
	}
	l := &walk.Link{Latency: latency, Rate: rate, Homes: make([]int, workers)}
	for w, cpu := range e.cpusFor(workers) {
		if l.Homes[w], _, _ = e.layout.Of(w, workers); len(e.homes) == 0 {
			l.Homes[w] = slices.IndexFunc(e.linked, func(h home) bool { return slices.Contains(h.cpus, cpu) })
		}
	}
	return l
}

// SetLink has walks wait as over another link from now on (Options.Link), "" over none, for measurements that alternate.
func (e *Engine) SetLink(link string) error {
	if link != "" {
		if _, _, err := ParseLink(link); err != nil {
			return err
		}
	}
	e.opt.Link = link
	for _, w := range e.walkers {
		w.Link = e.linkOf(w.Plan.Workers)
	}
	return nil
}

// cpusFor lists CPUs for n workers, dealt to homes.
func (e *Engine) cpusFor(n int) []int {
	if e.layout.N() == 1 {
		return e.Machine.CPUsFor(n)
	}
	var cpus []int
	for h, home := range e.homes {
		lo, hi := plan.Deal(n, h, len(e.homes))
		for i := range hi - lo {
			cpus = append(cpus, home.cpus[i%len(home.cpus)])
		}
	}
	return cpus
}

// A shelf is the panels of a home on some of its nodes.
type shelf struct {
	home  int
	nodes []int // none: no one in particular
	room  int64 // that is left there; below zero: nothing tells
	size  int64 // of what is to be there
	mem   []byte
}

// options is how memory of the shelf is taken.
func (e *Engine) options(s *shelf) numa.Options {
	opt := e.pages()
	if len(s.nodes) > 0 {
		opt.Policy, opt.Nodes = numa.Bind, s.nodes
	}
	return opt
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

// shelves are the places for panels, by home.
func (e *Engine) shelves() [][]*shelf {
	if len(e.slow) > 0 {
		return [][]*shelf{e.overflow()}
	}
	all := make([][]*shelf, e.layout.N())
	for h := range all {
		if len(e.homes) == 0 || len(e.homes[h].nodes) == 0 {
			all[h] = []*shelf{{home: h, room: -1}}
			continue
		}
		for _, node := range e.homes[h].nodes {
			all[h] = append(all[h], &shelf{home: h, nodes: []int{node}, room: topo.NodeRoom(node)})
		}
		if last := all[h][len(all[h])-1]; last.room >= 0 { // the cache is there too
			cache := e.mem.cache / int64(len(all))
			if last.room < cache {
				e.warn("--numa: %s has room for %s of the KV cache's %s: the others lie elsewhere", nodeList(last.nodes), mib(last.room), mib(cache))
			}
			last.room = max(0, last.room-cache)
		}
	}
	return all
}

// overflow are the shelves of a machine part with slower memory beside its own: of what the nodes with cores have no room for, the oldest keys and values go
// there first, then the panels that generation reads last.
func (e *Engine) overflow() []*shelf {
	fast, slow := roomOf(e.place.Nodes), roomOf(e.slow)
	if fast < 0 {
		return []*shelf{{nodes: e.place.Nodes, room: -1}}
	}
	over := max(0, e.mem.panels+e.mem.cache-fast)
	e.mem.slow = min(e.mem.cache, over)
	if panels := over - e.mem.slow; over > 0 {
		e.note("%s has no room for %s of the KV cache and %s of panels: these go to %s", nodeList(e.place.Nodes), mib(e.mem.slow), mib(panels), nodeList(e.slow))
	} else {
		e.note("%s has room for all: nothing is taken of %s", nodeList(e.place.Nodes), nodeList(e.slow))
	}
	return []*shelf{{nodes: e.place.Nodes, room: max(0, fast-(e.mem.cache-e.mem.slow))}, {nodes: e.slow, room: slow}}
}

// put finds the shelf of a home that has room for n bytes; nil: none has.
func put(shelves []*shelf, n int64) *shelf {
	for _, s := range shelves {
		if s.room < 0 || s.size+n <= s.room {
			s.size += n
			return s
		}
	}
	return nil
}

// pieces are the parts of a matrix by home.
func (e *Engine) pieces(id graph.WeightID) []plan.Piece {
	w := e.Graph.Weights[id]
	return e.layout.Pieces(id, e.tbl.Format(e.model.Tensor(w.Name).Type, e.opt.F32Act).PanelRows)
}

// A replica is a part of a matrix that a member has though it is of another one's home.
type replica struct {
	at    int // in walk.Weights.Copies
	home  int // where it lies
	piece plan.Piece
}

// replicas are those of a matrix; none unless members have copies.
func (e *Engine) replicas(id graph.WeightID) (list []replica) {
	if !e.mirror || e.layout.Mirrored(id) {
		return nil
	}
	n, places := e.layout.N(), e.layout.Places
	for m := range e.layout.Members {
		for h, p := range e.pieces(id) {
			if h/places != m && p.R0 < p.R1 {
				list = append(list, replica{m*n + h, m*places + h%places, p})
			}
		}
	}
	return list
}

// keepReplicas finds room for copies of parts, in the order of matrices; room is that of all panels together, 0 without a limit.
func (e *Engine) keepReplicas(order []graph.WeightID, shelves [][]*shelf, room int64) {
	e.keepCopies = make([][]*shelf, len(e.Graph.Weights))
	lack := int64(0)
	for _, id := range order {
		w := e.Graph.Weights[id]
		f := e.tbl.Format(e.model.Tensor(w.Name).Type, e.opt.F32Act)
		for _, r := range e.replicas(id) {
			if e.keepCopies[id] == nil {
				e.keepCopies[id] = make([]*shelf, e.layout.Members*e.layout.N())
			}
			n := int64(walk.PanelsRoom(walk.PartOf(w, r.piece), f))
			if e.mem.limit == 0 || e.mem.kept+n <= room {
				if s := put(shelves[r.home], n); s != nil {
					e.keepCopies[id][r.at] = s
					e.mem.kept += n
					continue
				}
			}
			lack += n
		}
	}
	if lack > 0 {
		e.warn("--numa mirror: there is no room for %s of copies: prompts read these parts at other homes", mib(lack))
	}
}

// copies makes the slots of the copies of parts of matrix i.
func (e *Engine) copies(i int) {
	list := e.replicas(graph.WeightID(i))
	if len(list) == 0 {
		return
	}
	if e.weights.Copies == nil {
		e.weights.Copies = make([][]*walk.Slot, len(e.Graph.Weights))
	}
	all := make([]*walk.Slot, 0, e.layout.Members*e.layout.N())
	for range e.layout.Members {
		all = append(all, e.weights.Slots[i]...)
	}
	for _, r := range list {
		if e.keepCopies == nil || e.keepCopies[i] == nil || e.keepCopies[i][r.at] == nil {
			continue
		}
		s := e.part(i, r.piece, e.keepCopies[i][r.at])
		s.Home, s.Copy = r.home, true
		all[r.at] = s
	}
	e.weights.Copies[i] = all
}

// near is how n bytes of a home are taken that are not panels: on its nearest node, where there is one. What has no room there lies where there is some:
// bound, it would end the process.
func (e *Engine) near(home, n int) numa.Options {
	opt := e.pages()
	if node, ok := e.nearest(home); ok {
		opt.Policy, opt.Nodes = numa.Bind, []int{node}
		if room := topo.NodeRoom(node); room >= 0 && int64(n) > room {
			opt.Policy = numa.Prefer
		}
	}
	opt.Nodes = append(opt.Nodes[:len(opt.Nodes):len(opt.Nodes)], e.slow...) // nearer ones are filled first
	return opt
}

// nearCache is near for keys and values, of which some are there. Where slower memory was named the oldest may lie there.
func (e *Engine) nearCache(home, n int, there int64) numa.Options {
	if there >= e.mem.slow {
		return e.near(home, n)
	}
	opt := e.pages()
	if opt.Nodes = e.slow; roomOf(e.slow) < int64(n) {
		opt.Policy, opt.Nodes = numa.Prefer, e.slow[:1]
	}
	return opt
}

// nearest is the last node of a home, which has CPUs.
func (e *Engine) nearest(home int) (node int, ok bool) {
	if len(e.homes) == 0 || len(e.homes[home].nodes) == 0 {
		return 0, false
	}
	nodes := e.homes[home].nodes
	return nodes[len(nodes)-1], true
}

// nodesOf are the memory nodes of homes [from, to); none where one home has all.
func (e *Engine) nodesOf(from, to int) (nodes []int) {
	if len(e.homes) > 0 {
		for _, h := range e.homes[from:to] {
			nodes = append(nodes, h.nodes...)
		}
	}
	return nodes
}

// fileSlots are slots of whole matrices that pack from the file at each use, for walks of one worker.
func (e *Engine) fileSlots() [][]*walk.Slot {
	slots := make([][]*walk.Slot, len(e.weights.Slots))
	for i, parts := range e.weights.Slots {
		if parts != nil {
			w := e.Graph.Weights[i]
			t := e.model.Tensor(w.Name)
			slots[i] = []*walk.Slot{e.rows(walk.NewSlot(w, parts[0].Format, t.Row, nil), t)}
		}
	}
	return slots
}
