package plan

import (
	"fmt"

	"ck/internal/graph"
)

// rect is the part of a buffer that one worker touches: rows [r0, r1), columns [c0, c1).
type rect struct{ r0, r1, c0, c1 int }

func (a rect) empty() bool { return a.r0 >= a.r1 || a.c0 >= a.c1 }

func (a rect) meets(b rect) bool {
	return !a.empty() && !b.empty() && a.r0 < b.r1 && b.r0 < a.r1 && a.c0 < b.c1 && b.c0 < a.c1
}

// regions lists what worker w of workers touches of operand o of an item, in a walk of rows rows.
func (p *Plan) regions(it *Item, o Operand, w, workers, rows, picks int) []rect {
	buf := &p.Bufs[o.Buf]
	n := pickRows(it.Picked, rows, picks)
	whole := rect{0, pickRows(buf.Picked, rows, picks), 0, buf.Width}
	switch it.Cut.By {
	case Rows:
		lo, hi := Share(n, w, workers)
		switch {
		case lo >= hi:
			return nil
		case o.All:
			return []rect{whole}
		}
		return []rect{{lo, hi, 0, buf.Width}}
	case Cols:
		lo, hi := Share(it.Cut.N, w, workers)
		switch {
		case lo >= hi:
			return nil
		case o.All:
			return []rect{whole}
		}
		return []rect{{0, whole.r1, lo * o.Unit, min(hi*o.Unit, buf.Width)}}
	case Tiles:
		tiles := (n + TileRows - 1) / TileRows
		lo, hi := Share(it.Cut.N*tiles, w, workers)
		var out []rect
		for h := 0; lo < hi; lo = (h + 1) * tiles {
			h = lo / tiles
			t0, t1 := lo%tiles, min(hi-h*tiles, tiles)
			r := rect{t0 * TileRows, min(t1*TileRows, n), h * o.Unit, (h + 1) * o.Unit}
			if buf.Cache != 0 {
				r.r0, r.r1 = 0, n // earlier rows' keys
			}
			out = append(out, r)
		}
		return out
	default: // Split: the number of chunks is known to the walk alone; each worker has parts of its own
		if o.All {
			return []rect{whole}
		}
		return []rect{{0, n, w, w + 1}}
	}
}

// touched is regions for the sake of comparing with an item that is cut otherwise: what reads all of a Parts buffer reads the columns
// that Split writes; a tile's rows stand for all rows, since where tiles fall depends on the number of rows, and the answer must hold
// for all of them; of a shared item every worker may touch everything.
func (p *Plan) touched(it *Item, o Operand, w, workers, rows, picks int, other Cut) []rect {
	if it.Cut.Shared {
		return []rect{{0, pickRows(p.Bufs[o.Buf].Picked, rows, picks), 0, p.Bufs[o.Buf].Width}}
	}
	r := p.regions(it, o, w, workers, rows, picks)
	if it.Cut.By == Tiles && other != it.Cut {
		for i := range r {
			r[i].r0, r[i].r1 = 0, pickRows(it.Picked, rows, picks)
		}
	}
	if p.Bufs[o.Buf].Parts && o.All {
		for i := range r {
			r[i].c1 = max(r[i].c1, workers)
		}
	}
	return r
}

// conflict says how a worker in item b touches what another worker writes in item a, or writes what another one touches there; nil
// if none does. Within one item the workers' shares are compared: nobody takes over what another one has begun.
func (p *Plan) conflict(a, b *Item, workers, rows, picks int) error {
	touched := p.touched
	if a != b && workers == 1 {
		return nil // one after the other; that buffers hold what is read is checked apart
	}
	if a == b {
		touched = func(it *Item, o Operand, w, workers, rows, picks int, _ Cut) []rect {
			return p.regions(it, o, w, workers, rows, picks)
		}
	} else if a.Cut.Shared && b.Cut.Shared {
		return fmt.Errorf("%s %s: no barrier since %s %s, which is shared as well", b.Do, b.Name, a.Do, a.Name)
	}
	check := func(x, y []Operand, what string) error {
		for _, ox := range x {
			for _, oy := range y {
				if ox.Buf != oy.Buf {
					if p.overlap(ox.Buf, oy.Buf) {
						return fmt.Errorf("%s %s: %s and %s share memory", b.Do, b.Name, p.Bufs[ox.Buf].Name, p.Bufs[oy.Buf].Name)
					}
					continue
				}
				for w := range workers {
					rx := touched(a, ox, w, workers, rows, picks, b.Cut)
					if len(rx) == 0 {
						continue
					}
					for v := range workers {
						if v == w {
							continue
						}
						for _, s := range touched(b, oy, v, workers, rows, picks, a.Cut) {
							for _, r := range rx {
								if r.meets(s) {
									return fmt.Errorf("%s %s: worker %d %s %s that worker %d has in %s %s", b.Do, b.Name, v, what,
										p.Bufs[oy.Buf].Name, w, a.Do, a.Name)
								}
							}
						}
					}
				}
			}
		}
		return nil
	}
	if err := check(a.Out, b.In, "reads"); err != nil {
		return err
	}
	if err := check(a.Out, b.Out, "writes"); err != nil {
		return err
	}
	return check(a.In, b.Out, "writes")
}

// overlap reports whether two buffers share memory of the arena.
func (p *Plan) overlap(a, b BufID) bool {
	x, y := &p.Bufs[a], &p.Bufs[b]
	return x.Bytes > 0 && y.Bytes > 0 && x.Offset < y.Offset+y.Bytes && y.Offset < x.Offset+x.Bytes
}

// arities are the numbers of inputs and outputs of each realisation, and of weights (from, to).
var arities = [codes]struct{ in, out, w0, w1 int }{
	Embed: {0, 1, 1, 1}, Angles: {0, 2, 0, 0}, Norm: {1, 1, 1, 1}, Quant: {1, 1, 0, 0}, Matmul: {1, 1, 1, 2}, Rope: {3, 1, 0, 0},
	Store: {2, 1, 0, 0}, Attend: {2, 1, 0, 0}, AttendChunks: {2, 1, 0, 0}, AttendMerge: {1, 1, 0, 0}, SwiGLU: {2, 1, 0, 0},
	Add: {2, 1, 0, 0}, Pick: {1, 1, 0, 0},
}

// Check proves a plan: every item has its operands; every buffer holds, when it is read, the version that the reader wants, whole;
// no worker touches what another one writes unless a barrier stands between; every step of the graph is realised; the logits are
// what the plan ends with. It holds for the plan's number of workers, and is asked for walks of one row, of a few and many tiles, and
// of MaxRows rows.
func (p *Plan) Check() error {
	for _, rows := range append([]int{1}, p.sampleRows()...) {
		if err := p.checkRows(rows, min(rows, p.MaxPicks)); err != nil {
			return fmt.Errorf("%d rows, %d workers: %w", rows, p.Workers, err)
		}
	}
	return nil
}

// sampleRows are the row counts at which conflicts are looked for: the largest, and those at which tiles begin to be dealt otherwise.
func (p *Plan) sampleRows() []int {
	out := []int{p.MaxRows}
	for _, r := range []int{TileRows, TileRows + 1, 2*TileRows + 1, 3*TileRows + 1} {
		if r < p.MaxRows {
			out = append(out, r)
		}
	}
	return out
}

func (p *Plan) checkRows(rows, picks int) error {
	holds := make([]int, len(p.Bufs)) // version in each buffer; 0: nothing
	done := make([]bool, len(p.G.Steps))
	since := 0
	for i := range p.Items {
		it := &p.Items[i]
		if it.Do == Barrier {
			since = i + 1
			continue
		}
		at := func(err error) error { return fmt.Errorf("item %d: %w", i, err) }
		if err := p.checkOperands(it); err != nil {
			return at(err)
		}
		for _, o := range it.In {
			if holds[o.Buf] != o.Val {
				return at(fmt.Errorf("%s %s: reads version %d of %s, which holds %d", it.Do, it.Name, o.Val, p.Bufs[o.Buf].Name, holds[o.Buf]))
			}
		}
		for j := since; j <= i; j++ {
			if j == i && len(it.Out) == 0 {
				continue
			}
			if err := p.conflict(&p.Items[j], it, p.Workers, rows, picks); err != nil {
				return at(err)
			}
		}
		for _, o := range it.Out {
			if err := p.covers(it, o, rows, picks); err != nil {
				return at(err)
			}
			for b := range holds {
				if p.overlap(BufID(b), o.Buf) {
					holds[b] = 0
				}
			}
			holds[o.Buf] = o.Val
		}
		for _, s := range it.Steps {
			done[s] = true
		}
	}
	for s, ok := range done {
		if !ok {
			return fmt.Errorf("no item realises step %d %s", s, p.G.Steps[s].Name)
		}
	}
	if len(p.Items) == 0 || holds[p.Logits] == 0 {
		return fmt.Errorf("the plan does not end with the logits")
	}
	return nil
}

// checkOperands is the shape rule of items.
func (p *Plan) checkOperands(it *Item) error {
	a := arities[it.Do]
	in := a.in
	if it.Add {
		in++
	}
	if len(it.In) != in || len(it.Out) != a.out || len(it.W) < a.w0 || len(it.W) > a.w1 || it.Bias != (len(it.W) == 2) {
		return fmt.Errorf("%s %s: has %d inputs, %d outputs, %d weights", it.Do, it.Name, len(it.In), len(it.Out), len(it.W))
	}
	if it.Op != nil && len(it.Steps) > 0 {
		if s := &p.G.Steps[it.Steps[0]]; s.Op != it.Op || it.Do != Store && it.Do != Attend && it.Do != AttendChunks && it.Do != AttendMerge && len(s.W) != len(it.W) {
			return fmt.Errorf("%s %s: is not what step %d asks for", it.Do, it.Name, it.Steps[0])
		}
	}
	if it.Cut.Shared && (it.Do != Matmul || it.Cut.By != Cols) {
		return fmt.Errorf("%s %s: only matmuls are shared, by columns", it.Do, it.Name)
	}
	if _, fused := it.Op.(graph.Matmul); it.Add && (!fused || len(it.Steps) != 2) {
		return fmt.Errorf("%s %s: a fused residual needs two steps", it.Do, it.Name)
	}
	return nil
}

// covers checks that the workers together write all of the output (that they do not write anything twice is conflict's part).
func (p *Plan) covers(it *Item, o Operand, rows, picks int) error {
	buf := &p.Bufs[o.Buf]
	if buf.Parts {
		return nil
	}
	area := 0
	for w := range p.Workers {
		for _, r := range p.regions(it, o, w, p.Workers, rows, picks) {
			if !r.empty() {
				area += (r.r1 - r.r0) * (r.c1 - r.c0)
			}
		}
	}
	if want := pickRows(buf.Picked, rows, picks) * buf.Width; area != want {
		return fmt.Errorf("%s %s: writes %d of %d elements of %s", it.Do, it.Name, area, want, buf.Name)
	}
	return nil
}
