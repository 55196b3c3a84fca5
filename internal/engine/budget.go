package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/kv"
	"ck/internal/numa"
	"ck/internal/plan"
	"ck/internal/topo"
	"ck/internal/walk"
)

// memory is the account of what the model takes, in bytes. Everything is accounted for before it is taken: what is beyond a cgroup's limit
// is not refused by the kernel but punished with the end of the process.
type memory struct {
	file   int64 // mapped; its pages are dropped under pressure, so they count for nothing
	mapped int64 // panels of a file, which count for nothing either
	panels int64 // of all other matrices
	kept   int64 // of the matrices that have room for theirs
	cache  int64 // set aside for the cache before panels get the rest
	limit  int64 // of panels and cache together; 0: nothing tells
	why    string
	tight  bool // the file and its panels have no room beside each other

	slow int64 // of the cache that is to lie on slower nodes

	// With Options.MemLimit: what of it is set aside for buffers of walks.
	buffers int64
}

// A MemoryError says that the memory budget does not hold what must be there.
type MemoryError struct{ What string }

func (e *MemoryError) Error() string { return e.What }
func (e *MemoryError) Unwrap() error { return syscall.ENOMEM }

const (
	// programBytes is what the program takes behind the opening of the engine, panels, cache and buffers of walks aside: growth of the Go
	// heap, scratch of workers, the ends of huge pages, page tables. Measured: 7 MiB with two workers after a prompt of 512 rows (two layers
	// of qwen3-0.6b), 6 MiB with its cgroup's page tables in TestMemoryLimit of test/numa; the rest is for more workers. What grows with
	// memory (page tables, 2 MiB for 1 GiB in small pages) is a 32nd of what is left.
	programBytes = 24 << 20

	// goBytes is how much address space the Go runtime may ask for until the end: it takes 64 MiB at a time.
	goBytes = 64 << 20

	// cachePositions is for how many positions the cache has room before panels get theirs, if the user does not name a context.
	cachePositions = 4096

	// picksMin is how many rows of logits a walk may always have: those of the class Few.
	picksMin = 16
)

// account decides what the memory is for: first what walks need, then the cache, then as many panels as there is room for.
func (e *Engine) account(matrix []bool) error {
	e.mem = memory{file: e.model.SizeBytes()}
	e.picks = e.opt.UBatch
	size, panel := make([][]int64, len(matrix)), 0 // by home
	for i, w := range e.Graph.Weights {
		if !matrix[i] {
			continue
		}
		if x := e.mapped[i]; x != nil {
			e.mem.mapped += x.Bytes()
		} else {
			f := e.tbl.Format(e.model.Tensor(w.Name).Type, e.opt.F32Act)
			panel = max(panel, f.PanelBytes(w.Cols))
			for _, p := range e.pieces(graph.WeightID(i)) {
				n := int64(walk.PanelsRoom(walk.PartOf(w, p), f))
				size[i] = append(size[i], n)
				e.mem.panels += n
			}
			for _, r := range e.replicas(graph.WeightID(i)) {
				e.mem.panels += int64(walk.PanelsRoom(walk.PartOf(w, r.piece), f))
			}
		}
	}
	if err := e.budget(matrix); err != nil {
		return err
	}
	e.keep = make([][]*shelf, len(matrix))
	for i := range e.keep {
		e.keep[i] = make([]*shelf, e.layout.N())
	}
	if e.opt.NoPack {
		e.note("weights stay in the file's form (--no-pack)")
		return nil
	}
	shelves, lack := e.shelves(), make([]int64, e.layout.N()) // lack: bytes that the nodes of a home have no room for
	room, all, kept := e.mem.limit-e.mem.cache, 0, 0
	order, err := e.decodeWeights(matrix)
	if err != nil {
		return err
	}
	for _, i := range order {
		parts, n := size[i], int64(0)
		for _, part := range parts {
			n += part
		}
		if n == 0 {
			continue
		}
		if all++; e.mem.limit != 0 && e.mem.kept+n > room {
			continue
		}
		whole := true
		for h, part := range parts {
			if part == 0 {
				continue
			}
			if e.keep[i][h] = put(shelves[h], part); e.keep[i][h] == nil {
				whole = false
				lack[h] += part
				continue
			}
			e.mem.kept += part
		}
		if whole {
			kept++
		}
	}
	for h, n := range lack {
		if n > 0 {
			e.warn("--numa: %s has no room for %s of panels: these stay in the file's form", nodeList(e.homes[h].nodes), mib(n))
		}
	}
	if e.mirror {
		e.keepReplicas(order, shelves, room)
	}
	e.planMovers(int64(walk.LaneBytes(walk.ScratchBytes(panel))))
	if left, _, ok := e.Machine.Budget(); ok {
		e.mem.tight = e.mem.kept+e.mem.cache+e.mem.file > left
	}
	for _, s := range slices.Concat(shelves...) {
		if s.size == 0 {
			continue
		}
		r, err := numa.Alloc(int(s.size), e.options(s))
		if err != nil {
			for i := range e.keep {
				clear(e.keep[i])
			}
			e.keepCopies = nil
			e.mem.kept = 0
			e.note("weights stay in the file's form: panels: %v", err)
			return nil
		}
		shelf := held{Region: r, what: "panels"}
		if len(e.homes) > 0 {
			shelf.at = e.homes[s.home].nodes
		}
		e.regions = append(e.regions, shelf)
		s.mem = r.Bytes()
	}
	switch {
	case all == 0 && e.mem.mapped > 0:
		e.note("weights: %s mapped, all panels too; nothing is packed", mib(e.mem.file))
	case kept == all:
		e.note("weights: %s mapped, %s of panels, packed during the first walks", mib(e.mem.file), mib(e.mem.kept))
		if e.mem.tight {
			e.note("memory of the file is given back matrix by matrix, where panels stand")
		}
	case e.mem.kept == 0:
		e.note("weights stay in the file's form: panels need %s, the memory budget leaves %s", mib(e.mem.panels), mib(room))
	default:
		e.note("weights: %s mapped, panels for %d of %d matrices, %s of %s; the memory budget has no room for the others, which stay in the file's form",
			mib(e.mem.file), kept, all, mib(e.mem.kept), mib(e.mem.panels))
	}
	return nil
}

// budget finds the limit of panels and cache, and what of it is the cache's. Errors are *MemoryError.
func (e *Engine) budget(matrix []bool) error {
	m := &e.mem
	position, err := e.positionBytes()
	if err != nil {
		return err
	}
	m.cache = (int64(e.positions()) + kernel.BlockKeys - 1) / kernel.BlockKeys * kernel.BlockKeys * position
	must := kernel.BlockKeys * position
	if e.opt.Context > 0 {
		must = m.cache
	}
	if e.of != nil { // what its engine was granted and has not taken
		m.limit, m.why = e.opt.MemLimit, "what is left of the engine's"
		m.cache = min(m.cache, m.limit/4)
		return nil
	}
	if left, why, ok := e.Machine.Budget(); ok {
		if e.opt.Share > 1 {
			why = fmt.Sprintf("%s, for %d models", why, e.opt.Share)
		}
		if err := e.fromMachine(matrix, left/e.share()-e.unpackBytes(), must, why); err != nil {
			return err
		}
	}
	if err := e.fromUlimits(matrix, must); err != nil {
		return err
	}
	if err := e.fromFlag(matrix, must); err != nil {
		return err
	}
	if m.limit == 0 {
		return nil
	}
	e.note("memory: %s for panels and KV cache (%s)", mib(m.limit), m.why)
	if e.opt.Context > 0 && m.cache > m.limit {
		return &MemoryError{fmt.Sprintf("-c %d: the KV cache needs %s, the memory budget is %s (%s); use a shorter context or --kv q8_0", e.opt.Context, mib(m.cache),
			mib(m.limit), m.why)}
	}
	if e.opt.Context == 0 {
		m.cache = min(m.cache, max(m.limit/4, must))
	}
	if m.limit < must {
		return &MemoryError{fmt.Sprintf("the KV cache needs at least %s, the memory budget is %s (%s); raise the limit", mib(must), mib(m.limit), m.why)}
	}
	return nil
}

// program is what the program needs of left free bytes (programBytes).
func program(left int64) int64 { return programBytes + left/32 }

// FreeFor is how much memory must be free for an engine that takes n bytes of it.
func FreeFor(n int64) int64 {
	n += programBytes
	return n + n/31 + 1
}

// fromMachine sets the limit by what the machine and its cgroups leave; must is the least that the cache needs. Where much is left,
// nothing is looked at closely.
func (e *Engine) fromMachine(matrix []bool, left, must int64, why string) error {
	m := &e.mem
	widest := 0
	for _, v := range e.Graph.Values {
		if !v.Space.Picked {
			widest = max(widest, v.Width*max(1, v.Space.Used))
		}
	}
	vocab := 4 * int64(e.Graph.Vocab)
	program := program(left)
	most := 4 * int64(e.opt.UBatch) * int64(32*widest) // no plan has 32 buffers of the widest value
	if m.panels+m.cache+most+int64(e.opt.UBatch)*vocab <= left-program {
		m.limit, m.why = left-program, why
		return nil
	}
	e.picks = int(min(int64(e.picks), max(picksMin, left/16/vocab)))
	arena, err := e.buffers(matrix, e.picks, func(arena int64) bool { return arena > min(left/4, left-program-must) })
	if err != nil {
		return err
	}
	m.limit = left - program - arena
	m.why = fmt.Sprintf("%s; %s of it for buffers, %s for the program", why, mib(arena), mib(program))
	if m.limit <= 0 {
		return &MemoryError{fmt.Sprintf("memory: %s; a walk's buffers take %s, the program %s; raise the limit", why, mib(arena), mib(program))}
	}
	return nil
}

// buffers is the size of the buffers of the largest walk with so many rows of logits. Walks of prompts become smaller while they are tight.
func (e *Engine) buffers(matrix []bool, picks int, tight func(arena int64) bool) (int64, error) {
	for asked := e.opt.UBatch; ; e.opt.UBatch /= 2 {
		e.picks = min(e.picks, e.opt.UBatch)
		p, err := e.plan(plan.Many, picks, e.tableFormat(matrix))
		if err != nil {
			return 0, err
		}
		if tight(arenas(p)) && e.opt.UBatch > 2*picksMin {
			continue
		}
		if e.opt.UBatch < asked {
			e.note("prompts go in walks of %d rows: the memory budget has no room for the buffers of %d", e.opt.UBatch, asked)
		}
		return arenas(p), nil
	}
}

// arenas is the size of a plan's buffers.
func arenas(p *plan.Plan) int64 { return int64(p.Arena)*int64(p.Homes.Members) + int64(p.Common) }

// fromUlimits lowers the limit to what the process may still map. All of a mapping counts there, touched or not.
func (e *Engine) fromUlimits(matrix []bool, must int64) error {
	limits := topo.Ulimits()
	if len(limits) == 0 {
		return nil
	}
	for i := range limits {
		limits[i].Left /= e.share()
	}
	left := slices.MinFunc(limits, func(a, b topo.Ulimit) int { return cmp.Compare(a.Left, b.Left) }).Left
	// The cache takes slabs, and huge pages are aligned by mapping one more of them.
	others := int64(e.layout.N())*kv.SlabBytes + goBytes + 8*numa.HugePage
	arena, err := e.buffers(matrix, e.opt.UBatch, func(arena int64) bool { return arena > min(left/4, left-others-must) })
	if err != nil {
		return err
	}
	for _, u := range limits {
		why := fmt.Sprintf("%s left of ulimit %s %d KiB, %s of it for buffers, slabs of the cache and the Go runtime", mib(u.Left), u.Flag, u.Max>>10, mib(arena+others))
		if u.Left <= arena+others {
			return &MemoryError{fmt.Sprintf("memory: %s left of ulimit %s %d KiB; buffers, a slab of the cache and the Go runtime take %s; raise it",
				mib(u.Left), u.Flag, u.Max>>10, mib(arena+others))}
		}
		if n := u.Left - others - arena; e.mem.limit == 0 || n < e.mem.limit {
			e.mem.limit, e.mem.why = n, why
		}
	}
	return nil
}

// fromFlag lowers the limit to what the user grants, less the buffers of walks.
func (e *Engine) fromFlag(matrix []bool, must int64) error {
	l := e.opt.MemLimit / e.share()
	if l <= 0 {
		return nil
	}
	e.picks = int(min(int64(e.picks), max(picksMin, l/16/(4*int64(e.Graph.Vocab)))))
	parts, err := e.partsBytes(matrix)
	if err != nil {
		return err
	}
	parts += e.unpackBytes()
	arena, err := e.buffers(matrix, e.picks, func(arena int64) bool { return arena+parts > min(l/4, l-must) })
	if err != nil {
		return err
	}
	e.mem.buffers = arena + parts
	if l < e.mem.buffers+must {
		return &MemoryError{fmt.Sprintf("--mem-limit %s: buffers of walks take %s, the KV cache at least %s; raise it to %s, use a shorter context or --kv q8_0",
			mib(e.opt.MemLimit), mib(e.mem.buffers), mib(must), mib((e.mem.buffers+must)*e.share()))}
	}
	if n := l - e.mem.buffers; e.mem.limit == 0 || n <= e.mem.limit {
		e.mem.limit, e.mem.why = n, fmt.Sprintf("--mem-limit %s, %s of it for buffers", mib(l), mib(e.mem.buffers))
	}
	return nil
}

// ubatch is the rows of the largest walk.
func (e *Engine) ubatch() int {
	if e.tapped > 0 {
		return e.tapped
	}
	return e.opt.UBatch
}

// fitTap makes walks smaller until what the tap keeps fits. Panels have their memory for good; of what they leave the
// cache keeps as much as taps get. Where not even the smallest walk fits it goes beyond the limit. A plan that cannot be made shows in the walk.
func (e *Engine) fitTap() {
	e.tapped = 0
	if e.mem.limit == 0 || e.of != nil {
		return
	}
	e.cache.SetLimit(e.cacheRoom())
	e.freeArenas() // what a tap kept is the cache's again
	if e.tap == nil {
		return
	}
	room := (e.mem.limit - e.mem.kept) / 2
	for rows := e.opt.UBatch; ; rows /= 2 {
		e.tapped = rows
		p, err := e.plan(plan.Many, rows, e.format)
		if err != nil {
			return
		}
		if more := arenas(p) - e.mem.buffers; more <= room || rows <= 2*picksMin {
			e.cache.SetLimit(e.cacheRoom() - min(max(more, 0), room))
			break
		}
	}
	if e.tapped < e.opt.UBatch {
		e.note("walks of %d rows: the memory budget has no room for values kept of %d", e.tapped, e.opt.UBatch)
	}
}

// share is by how many engines memory is divided. Panels are mapped long before they are touched, so that an engine does
// not see what one beside it will take.
func (e *Engine) share() int64 { return int64(max(e.opt.Share, 1)) }

// unpackBytes is what workers take to unpack compressed weights: rows that kernels go through side by side, and a
// chunk's planes.
func (e *Engine) unpackBytes() int64 {
	most := 0
	for _, t := range e.model.Tensors {
		if t.Stored != nil {
			most = max(most, (walk.GroupRows+2*t.Stored.Rows)*t.Type.RowBytes(t.Cols()))
		}
	}
	return int64(most) * int64(max(1, e.granted))
}

// noteStored says what of the weights is compressed.
func (e *Engine) noteStored() {
	stored, whole := int64(0), int64(0)
	for _, t := range e.model.Tensors {
		if t.Stored != nil {
			stored, whole = stored+t.Stored.Size(), whole+t.Bytes()
		}
	}
	if whole == 0 {
		return
	}
	e.note("%s of weights lie compressed in %s, and are unpacked when panels are packed", mib(whole), mib(stored))
	if e.mem.kept < e.mem.panels {
		e.note("matrices without panels are unpacked at every use: slow; make a plain file with ckquant convert")
	}
}

// partsBytes is what partial results of attention take in the longest context that the cache is sized for; see walk.Walker.
func (e *Engine) partsBytes(matrix []bool) (int64, error) {
	layers, err := e.layers()
	if err != nil {
		return 0, err
	}
	p, err := e.plan(plan.Few, picksMin, e.tableFormat(matrix))
	if err != nil {
		return 0, err
	}
	return walk.PartsBytes(p, layers, e.positions()), nil
}

// positions is how many positions the cache is sized for.
func (e *Engine) positions() int {
	switch {
	case e.opt.Context > 0:
		return e.opt.Context
	case e.Graph.Context > 0:
		return min(cachePositions, e.Graph.Context)
	}
	return cachePositions
}

// tableFormat is the form of matrices before they have slots.
func (e *Engine) tableFormat(matrix []bool) func(graph.WeightID) *kernel.Format {
	return func(w graph.WeightID) *kernel.Format {
		if !matrix[w] {
			return nil
		}
		return e.tbl.Format(e.model.Tensor(e.Graph.Weights[w].Name).Type, e.opt.F32Act)
	}
}

// layers are the shapes of the cache.
func (e *Engine) layers() ([]kv.Layer, error) {
	var layers []kv.Layer
	for _, c := range e.Graph.Caches {
		f, err := e.tbl.KV(e.opt.KV, c.D, c.Dv)
		if err != nil {
			return nil, fmt.Errorf("KV cache: %w", err)
		}
		layers = append(layers, kv.Layer{Heads: c.KVHeads, Format: f})
	}
	return layers, nil
}

// positionBytes is what one position of a sequence takes.
func (e *Engine) positionBytes() (int64, error) {
	layers, err := e.layers()
	return kv.New(layers, 1, 1, nil, 0).BytesPerPosition(), err
}

// cacheRoom is what the cache may take: what panels leave; 0: nothing bounds it.
func (e *Engine) cacheRoom() int64 {
	if e.mem.limit == 0 {
		return 0
	}
	room := max(e.mem.limit-e.mem.kept, 1)
	if e.of != nil {
		room = max(room/3, 1) // the engine needs as much, and there may be two variants with a cache of their own
	}
	return room
}

// makeCache lays the KV cache out.
func (e *Engine) makeCache() error {
	layers, err := e.layers()
	if err != nil {
		return err
	}
	limit := e.cacheRoom()
	there := int64(0)
	e.cache = kv.New(layers, e.layout.Members, e.layout.Places, func(home, n int) ([]byte, error) {
		r, err := e.take("KV cache", n, e.nearCache(home, n, there))
		there += int64(n)
		if err != nil {
			return nil, err
		}
		e.regions = append(e.regions, held{r, "KV cache", e.nodesOf(home, home+1)})
		return r.Bytes()[:n], nil
	}, limit)
	if n := e.cache.BytesPerPosition(); limit > 0 && n > 0 {
		e.note("KV cache: %s a position, room for %d positions", bytes(n), limit/n/kernel.BlockKeys*kernel.BlockKeys)
	}
	return nil
}

// take maps memory. What the kernel refuses is said with what to do.
func (e *Engine) take(what string, n int, opt numa.Options) (*numa.Region, error) {
	r, err := numa.Alloc(n, opt)
	if err != nil {
		hint := "see vm.overcommit_memory"
		var set []string
		for _, u := range topo.Ulimits() {
			set = append(set, fmt.Sprintf("ulimit %s is %d KiB", u.Flag, u.Max>>10))
		}
		if len(set) > 0 {
			hint = strings.Join(slices.Compact(set), ", ") + "; raise it"
		}
		return nil, fmt.Errorf("%s: %w; %s", what, err, hint)
	}
	return r, nil
}

// mib is a size in MiB, with a digit behind the point where it is small.
func mib(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// bytes is a size that may be small.
func bytes(n int64) string {
	if n < 10<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
