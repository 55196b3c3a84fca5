package value

import (
	"ck/internal/template/pystr"
)

// Iterator reads a sequence item by item: from items, or from gen if that is not nil.
type Iterator struct {
	Items []Value
	Gen   func() (Value, bool)
	depth int // generators that this one reads from
}

// Next is the next item of an iterator.
func (r *Run) Next(it *Iterator) (Value, bool) {
	if it.Gen != nil {
		r.Enter()
		v, ok := it.Gen()
		r.Leave()
		return v, ok
	}
	if len(it.Items) == 0 {
		return nil, false
	}
	v := it.Items[0]
	it.Items = it.Items[1:]
	return v, true
}

// Iterate is an iterator over v; it is an error for values that cannot be iterated over.
func (r *Run) Iterate(v Value) *Iterator {
	it, ok := r.TryIterate(v)
	if !ok {
		r.TypeError("'%s' object is not iterable", TypeName(v))
	}
	return it
}

// TryIterate is an iterator over v; ok is false for values that cannot be iterated over.
func (r *Run) TryIterate(v Value) (*Iterator, bool) {
	count := func(n int, at func(i int) Value) (*Iterator, bool) {
		i := 0
		return &Iterator{Gen: func() (Value, bool) {
			if i >= n {
				return nil, false
			}
			i++
			return at(i - 1), true
		}}, true
	}
	switch v := v.(type) {
	case *List:
		return &Iterator{Items: v.Items}, true
	case *Dict:
		return &Iterator{Items: v.Keys}, true
	case *View:
		return count(v.D.Len(), func(i int) Value { return v.at(r, i) })
	case *Range:
		return count(v.Len(), func(i int) Value { return v.Start + i*v.Step })
	case string, Markup, *Mixed:
		s, _ := PlainText(v)
		_, fromOutside := v.(*Mixed)
		at := 0
		return &Iterator{Gen: func() (Value, bool) {
			if at == len(s) {
				return nil, false
			}
			from := at
			at += pystr.RuneLen(s[at:])
			if fromOutside {
				return CutText(v, from, at), true
			}
			return s[from:at], true
		}}, true
	case *Generator:
		return v.Iterator, true
	case *Undefined:
		return &Iterator{}, true
	}
	return nil, false
}

// Items reads all of v.
func (r *Run) Items(v Value) []Value {
	if l, ok := v.(*List); ok {
		return l.Items
	}
	return r.Rest(r.Iterate(v))
}

// Rest reads all that an iterator has left.
func (r *Run) Rest(it *Iterator) []Value {
	if it.Gen == nil {
		items := it.Items
		it.Items = nil
		return items
	}
	var items []Value
	for {
		item, ok := r.Next(it)
		if !ok {
			return items
		}
		r.Charge(CostItem)
		r.Step(1)
		items = append(items, item)
	}
}

// Lazily is an iterator over v that turns to v when its first item is asked for, as Python's generators do.
func (r *Run) Lazily(v Value) *Iterator {
	if g, ok := v.(*Generator); ok {
		return g.Iterator
	}
	var it *Iterator
	return &Iterator{Gen: func() (Value, bool) {
		if it == nil {
			it = r.Iterate(v)
		}
		return r.Next(it)
	}}
}

// Generate makes a generator; gen reads from src, which may be nil.
func (r *Run) Generate(name string, src *Iterator, gen func() (Value, bool)) *Generator {
	r.Charge(2 * CostObject)
	g := &Generator{name, &Iterator{Gen: gen, depth: 1}}
	if src != nil {
		g.depth = src.depth + 1
	}
	if g.depth > maxValueNest {
		r.Fail("LimitError", "more than %d generators that read from one another", maxValueNest)
	}
	return g
}
