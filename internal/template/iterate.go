package template

// iterator reads a sequence item by item: from items, or from gen if that is not nil.
type iterator struct {
	items []Value
	gen   func() (Value, bool)
	depth int // generators that this one reads from
}

// next is the next item of an iterator.
func (r *run) next(it *iterator) (Value, bool) {
	if it.gen != nil {
		r.enter()
		v, ok := it.gen()
		r.leave()
		return v, ok
	}
	if len(it.items) == 0 {
		return nil, false
	}
	v := it.items[0]
	it.items = it.items[1:]
	return v, true
}

// iterate is an iterator over v; it is an error for values that cannot be iterated over.
func (r *run) iterate(v Value) *iterator {
	it, ok := r.tryIterate(v)
	if !ok {
		r.typeError("'%s' object is not iterable", typeName(v))
	}
	return it
}

func (r *run) tryIterate(v Value) (*iterator, bool) {
	count := func(n int, at func(i int) Value) (*iterator, bool) {
		i := 0
		return &iterator{gen: func() (Value, bool) {
			if i >= n {
				return nil, false
			}
			i++
			return at(i - 1), true
		}}, true
	}
	switch v := v.(type) {
	case *List:
		return &iterator{items: v.items}, true
	case *Dict:
		return &iterator{items: v.keys}, true
	case *view:
		return count(v.d.Len(), func(i int) Value { return v.at(r, i) })
	case *pyRange:
		return count(v.len(), func(i int) Value { return v.start + i*v.step })
	case string, Markup, *mixed:
		s, _ := plainText(v)
		_, fromOutside := v.(*mixed)
		at := 0
		return &iterator{gen: func() (Value, bool) {
			if at == len(s) {
				return nil, false
			}
			from := at
			at += runeLen(s[at:])
			if fromOutside {
				return cutText(v, from, at), true
			}
			return s[from:at], true
		}}, true
	case *generator:
		return v.iterator, true
	case *Undefined:
		return &iterator{}, true
	}
	return nil, false
}

// items reads all of v.
func (r *run) items(v Value) []Value {
	if l, ok := v.(*List); ok {
		return l.items
	}
	return r.rest(r.iterate(v))
}

// rest reads all that an iterator has left.
func (r *run) rest(it *iterator) []Value {
	if it.gen == nil {
		items := it.items
		it.items = nil
		return items
	}
	var items []Value
	for {
		item, ok := r.next(it)
		if !ok {
			return items
		}
		r.charge(costItem)
		r.step(1)
		items = append(items, item)
	}
}

// lazily is an iterator over v that turns to v when its first item is asked for, as Python's generators do.
func (r *run) lazily(v Value) *iterator {
	if g, ok := v.(*generator); ok {
		return g.iterator
	}
	var it *iterator
	return &iterator{gen: func() (Value, bool) {
		if it == nil {
			it = r.iterate(v)
		}
		return r.next(it)
	}}
}

// generate makes a generator; gen reads from src, which may be nil.
func (r *run) generate(name string, src *iterator, gen func() (Value, bool)) *generator {
	r.charge(2 * costObject)
	g := &generator{name, &iterator{gen: gen, depth: 1}}
	if src != nil {
		g.depth = src.depth + 1
	}
	if g.depth > maxValueNest {
		r.fail("LimitError", "more than %d generators that read from one another", maxValueNest)
	}
	return g
}
