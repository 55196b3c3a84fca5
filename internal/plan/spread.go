package plan

import (
	"slices"

	"ck/internal/graph"
)

// A Scope says which workers a barrier, or a conflict, is about.
type Scope uint8

const (
	Home   Scope = iota // those of one home
	Member              // those of the homes of one member
	All
)

func (s Scope) String() string { return [...]string{"home", "member", "all"}[s] }

// Homes says where workers are: Members times Places homes, to which workers are dealt in equal numbers, the first ones first. The homes of a
// member are neighbours. Members have copies of what all need and parts of everything else; its places share what is their member's.
type Homes struct{ Members, Places int }

// OneHome is a machine on which all memory is equally near.
var OneHome = Homes{1, 1}

// N is the number of homes.
func (h Homes) N() int { return h.Members * h.Places }

// Of is the home of worker w of so many, and its workers [lo, hi).
func (h Homes) Of(w, workers int) (home, lo, hi int) {
	n := h.N()
	home = ((w+1)*n - 1) / workers
	lo, hi = Deal(workers, home, n)
	return home, lo, hi
}

// deal is the range of n units that a home takes: each member a range, of which each of its places takes one. Alike, every member has all of them.
func (h Homes) deal(n, home int, over Over) (lo, hi int) {
	lo, hi = 0, n
	if over == Dealt {
		lo, hi = Deal(n, home/h.Places, h.Members)
	}
	p0, p1 := Deal(hi-lo, home%h.Places, h.Places)
	return lo + p0, lo + p1
}

// scope is the smallest group that has two workers, the largest of those that are the same.
func (h Homes) scope(v, w, workers int) Scope {
	a, _, _ := h.Of(v, workers)
	b, _, _ := h.Of(w, workers)
	switch {
	case a/h.Places != b/h.Places:
		return All
	case a != b:
		return h.top(Member)
	}
	return h.top(Home)
}

// top is the largest of the scopes that are the same group as s.
func (h Homes) top(s Scope) Scope {
	if s == Home && h.Places == 1 {
		s = Member
	}
	if s == Member && h.Members == 1 {
		s = All
	}
	return s
}

// Homes for a graph on so many homes, of which it says what members they are: the largest power of two that divides the KV heads of all caches
// and the homes. Homes that are left over share a member.
func HomesFor(g *graph.Graph, homes int) Homes {
	members := 1
	for m := 2; m <= homes; m *= 2 {
		if homes%m == 0 && !slices.ContainsFunc(g.Caches, func(c graph.Cache) bool { return c.KVHeads%m != 0 }) {
			members = m
		}
	}
	return Homes{members, homes / members}
}

// A Product is a kind of step that multiplies its first weight with its first input. Its K is the sum of so many slices, a tree.
type Product interface{ SliceCount() int }

// A Headed is a kind of step that computes each KV head by itself: of its inputs and its output, whose columns are those of heads.
type Headed interface{ KVHeads(g *graph.Graph) int }

// A Columnwise is a kind of step whose output's columns depend on the same ones of input i, together with those of their group; 0: all of the
// input is read.
type Columnwise interface{ Columns(i int) (group int) }

// mirrorRows is how many outputs a product has at most whose weight every member has whole: the router of experts. To read it all takes less
// than to meet.
const mirrorRows = 1024

// A Layout says which member computes which columns of a graph's values, and so which parts of its weights belong to a home. It does not
// depend on workers or rows.
type Layout struct {
	Homes
	g       *graph.Graph
	modes   []mode // of each product, by step
	tokens  bool   // members have rows of their own, see Tokens
	forms   []mode // modes, as weights are cut
	weights []int  // by weight: 1 + a step that multiplies it; 0: none does
	readers [][]use
	maker   []int  // by value: 1 + the step that writes it
	dealt   []bool // by value: each member computes columns of it
	split   []bool // by value: and nobody else reads them
	exact   []bool // split, as weights are cut
}

// A use is input in of a step.
type use struct{ step, in int }

// A mode is how the members share a product.
type mode uint8

const (
	byRows mode = iota // each computes some outputs
	byK                // each computes a part of every output's sum
	mirror             // each computes all
	gather             // each computes all, from the parts of all
)

// NewLayout lays a graph out on homes.
func NewLayout(g *graph.Graph, h Homes) *Layout {
	l := &Layout{Homes: h, g: g, modes: make([]mode, len(g.Steps)), weights: make([]int, len(g.Weights)), readers: make([][]use, len(g.Values)),
		maker: make([]int, len(g.Values)), dealt: make([]bool, len(g.Values)), split: make([]bool, len(g.Values))}
	for i := range g.Steps {
		s := &g.Steps[i]
		for n, v := range s.In {
			l.readers[v] = append(l.readers[v], use{i, n})
		}
		for _, v := range s.Out {
			l.maker[v] = i + 1
		}
	}
	for i := range g.Steps {
		s := &g.Steps[i]
		if p, ok := s.Op.(Product); ok {
			m := l.modeOf(s, p)
			if w := s.W[0]; l.weights[w] == 0 {
				l.weights[w] = i + 1
			} else if first := l.weights[w] - 1; l.modes[first] != m { // a weight has one form
				m = byRows
				for j := range i {
					if _, ok := g.Steps[j].Op.(Product); ok && g.Steps[j].W[0] == w {
						l.modes[j] = m
					}
				}
			}
			l.modes[i] = m
		}
	}
	l.deals()
	l.forms, l.exact = l.modes, l.split
	return l
}

// deals finds out which values are dealt.
func (l *Layout) deals() {
	if l.Members == 1 {
		return
	}
	for i := range l.g.Steps {
		for _, v := range l.g.Steps[i].Out {
			l.dealt[v] = l.isDealt(i)
		}
	}
	for v := range l.g.Values {
		l.split[v] = l.isSplit(graph.ValueID(v))
	}
}

// Tokens is the layout of prompts whose rows are dealt to members: each does all for its rows, with the weights of all, and meets the others before
// it attends to their keys. What is done for picked rows is shared as l says. Weights lie as l says.
func (l *Layout) Tokens() *Layout {
	t := *l
	t.tokens, t.modes = true, slices.Clone(l.modes)
	t.dealt, t.split = make([]bool, len(l.dealt)), make([]bool, len(l.split))
	for i := range l.g.Steps {
		if _, ok := l.g.Steps[i].Op.(Product); ok && !l.picked(i) && t.modes[i] != mirror {
			t.modes[i] = gather
		}
	}
	t.deals()
	return &t
}

// picked reports whether a step is about picked rows.
func (l *Layout) picked(step int) bool {
	out := l.g.Steps[step].Out
	return len(out) > 0 && l.g.Values[out[0]].Space.Picked
}

func (l *Layout) modeOf(s *graph.Step, p Product) mode {
	out := s.Out[0]
	narrow := l.g.Width(out) <= mirrorRows && out != l.g.Logits
	for _, u := range l.readers[out] {
		x := &l.g.Steps[u.step]
		_, product := x.Op.(Product)
		_, headed := x.Op.(Headed)
		if product || headed || columns(x, u.in) > 0 {
			narrow = false
		}
	}
	switch n := p.SliceCount(); {
	case l.Members == 1:
		return byRows
	case n > 1 && n%l.Members == 0:
		return byK
	case narrow:
		return mirror
	}
	return byRows
}

// columns is Columnwise.Columns of input i of a step.
func columns(s *graph.Step, i int) int {
	if c, ok := s.Op.(Columnwise); ok {
		return c.Columns(i)
	}
	return 0
}

// isDealt reports whether each member computes columns of what step i writes.
func (l *Layout) isDealt(i int) bool {
	s := &l.g.Steps[i]
	switch s.Op.(type) {
	case Product:
		return l.modes[i] == byRows
	case Headed:
		return !l.tokens || l.picked(i)
	}
	any := false
	for n, v := range s.In {
		if columns(s, n) > 0 {
			if !l.dealt[v] {
				return false
			}
			any = true
		}
	}
	return any
}

// isSplit reports whether everybody who reads the dealt value v reads the columns that its own member computed: an equal share of them.
func (l *Layout) isSplit(v graph.ValueID) bool {
	width := l.g.Width(v)
	if !l.dealt[v] || v == l.g.Logits || width%l.Members != 0 || len(l.readers[v]) == 0 {
		return false
	}
	for _, u := range l.readers[v] {
		s := &l.g.Steps[u.step]
		switch op := s.Op.(type) {
		case Product:
			if u.in != 0 || l.modes[u.step] != byK {
				return false
			}
		case Headed:
			if op.KVHeads(l.g)%l.Members != 0 || u.in > 2 {
				return false
			}
		default:
			if n := columns(s, u.in); n == 0 || width/l.Members%n != 0 || !l.dealt[s.Out[0]] {
				return false
			}
		}
	}
	return true
}

// grain is the number of columns that a cut of value v keeps together: the panel of the weight that makes it, or where members' shares are no whole
// panels, a share.
func (l *Layout) grain(v graph.ValueID, panel int) int {
	if share := l.g.Width(v) / l.Members; l.exact[v] && share%panel != 0 {
		return share
	}
	return panel
}

// A Piece is the part of a matrix that belongs to a home: rows [R0, R1) of it, or of each expert's, and elements [K0, K1) of each row.
type Piece struct{ R0, R1, K0, K1 int }

// Pieces are the parts of a matrix by home, whose panels have so many rows. None overlap, except that members have the same ones of a mirrored
// matrix (Mirrored).
func (l *Layout) Pieces(w graph.WeightID, panel int) []Piece {
	m := l.g.Weights[w]
	all := make([]Piece, l.N())
	if l.weights[w] == 0 {
		for h := range all {
			all[h].K1 = m.Cols
		}
		all[0].R1 = m.Each()
		return all
	}
	step := l.weights[w] - 1
	over, unit := Alike, panel
	if l.forms[step] == byRows && l.Members > 1 {
		over, unit = Dealt, l.grain(l.g.Steps[step].Out[0], panel)
	}
	for h := range all {
		p := &all[h]
		lo, hi := l.deal((m.Each()+unit-1)/unit, h, over)
		p.R0, p.R1, p.K0, p.K1 = lo*unit, min(hi*unit, m.Each()), 0, m.Cols
		if l.forms[step] == byK {
			p.K0, p.K1 = Deal(m.Cols, h/l.Places, l.Members)
		}
	}
	return all
}

// Mirrored reports whether every member has all of a matrix.
func (l *Layout) Mirrored(w graph.WeightID) bool {
	return l.weights[w] > 0 && l.forms[l.weights[w]-1] == mirror
}
