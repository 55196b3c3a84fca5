package template

import (
	"slices"
	"strings"
	"unicode"
)

func listFilters() {
	define(filterTable, "list", filterList)
	define(filterTable, "items", filterItems)
	define(filterTable, "first", func(r *env, v Value, _ []Value) Value {
		if x, ok := r.next(r.iterate(v)); ok {
			return x
		}
		return r.undefined("No first item, sequence was empty.")
	})
	define(filterTable, "last", func(r *env, v Value, _ []Value) Value {
		l := r.reversed(v)
		if len(l) == 0 {
			return r.undefined("No last item, sequence was empty.")
		}
		return l[0]
	})
	define(filterTable, "reverse", filterReverse)
	define(filterTable, "join d? attribute?", filterJoin)
	define(filterTable, "sum attribute? start?", filterSum)
	define(filterTable, "min case_sensitive? attribute?", func(r *env, v Value, a []Value) Value { return r.extreme(v, a, "<") })
	define(filterTable, "max case_sensitive? attribute?", func(r *env, v Value, a []Value) Value { return r.extreme(v, a, ">") })
	define(filterTable, "sort reverse? case_sensitive? attribute?", func(r *env, v Value, a []Value) Value {
		items := slices.Clone(r.items(v))
		r.sort(items, r.sortKey(opt(a[2], nil), r.truth(opt(a[1], false))), r.truth(opt(a[0], false)))
		return r.list(items)
	})
	define(filterTable, "dictsort case_sensitive? by? reverse?", filterDictSort)
	define(filterTable, "unique case_sensitive? attribute?", filterUnique)
	define(filterTable, "groupby attribute default? case_sensitive?", filterGroupBy)
	define(filterTable, "batch linecount fill_with?", filterBatch)
	define(filterTable, "slice slices fill_with?", filterSlice)
	define(filterTable, "attr name", func(r *env, v Value, a []Value) Value {
		name := r.strArg(a[0])
		if x, ok := r.attribute(v, name); ok {
			return x
		}
		return r.noAttr(v, name)
	})
	defineRaw(filterTable, "map", filterMap)
	for _, name := range []string{"select", "reject", "selectattr", "rejectattr"} {
		defineRaw(filterTable, name, func(r *env, v Value, a args) Value {
			return r.choose(name, v, a, strings.HasPrefix(name, "select"), strings.HasSuffix(name, "attr"))
		})
	}
}

// filterList is list(v).
func filterList(r *env, v Value, _ []Value) Value {
	if l, ok := v.(*List); ok {
		return &List{items: l.items}
	}
	items := r.items(v)
	r.charge(costObject)
	return &List{items: items}
}

// filterItems is the pairs of a dict.
func filterItems(r *env, v Value, _ []Value) Value {
	var src *iterator
	return r.generate("do_items", nil, func() (Value, bool) {
		if src == nil {
			d, ok := v.(*Dict)
			if _, undef := v.(*Undefined); undef {
				d = NewDict()
			} else if !ok {
				r.typeError("Can only get item pairs from a mapping.")
			}
			src = r.iterate(&view{d, "items"})
		}
		return r.next(src)
	})
}

// filterReverse is the reverse of a text or a sequence.
func filterReverse(r *env, v Value, _ []Value) Value {
	if s, ok := r.text(v); ok {
		return likeText(v, r.sliceText(s, sliceKey{step: -1}))
	}
	if g, ok := v.(*generator); ok {
		items := slices.Clone(r.rest(g.iterator))
		slices.Reverse(items)
		return r.list(items)
	}
	if !isSequence(v) {
		r.fail("FilterArgumentError", "argument must be iterable")
	}
	r.charge(costObject)
	return &generator{"reversed", &iterator{items: r.reversed(v)}}
}

// filterJoin joins the texts of items.
func filterJoin(r *env, v Value, a []Value) Value {
	get := r.getter(optNone(a[1], nil), nil)
	sep := r.textOf(opt(a[0], ""))
	var b blend
	it := r.iterate(v)
	for i := 0; ; i++ {
		x, ok := r.next(it)
		if !ok {
			return b.value(false)
		}
		x = r.textOf(get(x))
		was := b.b.Len()
		if i > 0 {
			b.add(sep)
		}
		b.add(x)
		r.charge(2*(b.b.Len()-was) + 1)
	}
}

// filterSum adds items up.
func filterSum(r *env, v Value, a []Value) Value {
	get := r.getter(optNone(a[0], nil), nil)
	total := opt(a[1], 0)
	if _, ok := r.text(total); ok {
		r.typeError("sum() can't sum strings [use ''.join(seq) instead]")
	}
	for _, x := range r.items(v) {
		total = r.binary("+", total, get(x))
	}
	return total
}

// reversed is the items of v from the last to the first. Only sequences have them, not generators and sets.
func (r *env) reversed(v Value) []Value {
	if _, ok := v.(*generator); ok || !isSequence(v) {
		r.typeError("'%s' object is not reversible", typeName(v))
	}
	items := slices.Clone(r.items(v))
	r.chargeN(len(items), costItem)
	slices.Reverse(items)
	return items
}

func isSequence(v Value) bool {
	switch v.(type) {
	case string, Markup, *mixed, *List, *Dict, *view, *pyRange, *Undefined:
		return true
	}
	return false
}

// getter looks up a path of attributes ("a.b.0"), or is the identity for None. def replaces what is undefined, if it is not nil.
func (r *env) getter(attribute, def Value) func(Value) Value {
	if attribute == nil {
		return func(v Value) Value { return v }
	}
	parts := []Value{attribute}
	if s, ok := r.text(attribute); ok {
		parts = parts[:0]
		r.charge(len(s))
		r.chargeN(strings.Count(s, "."), 2*costItem)
		for _, p := range strings.Split(s, ".") {
			if n, ok := parseInt(p, 10); ok && all(p, unicode.IsDigit) {
				parts = append(parts, n)
			} else {
				parts = append(parts, p)
			}
		}
	}
	return func(v Value) Value {
		for _, p := range parts {
			r.step(1)
			v = r.item(v, p)
			if _, ok := v.(*Undefined); ok && def != nil {
				v = def
			}
		}
		return v
	}
}

// folded is v in lower case if it is a text and case does not matter.
func (r *env) folded(v Value, caseSensitive bool) Value {
	if s, ok := r.text(v); ok && !caseSensitive {
		r.charge(len(s))
		return lower(s)
	}
	return v
}

// sortKey is the key of the filter sort: one value, or a list of several for an attribute "a,b".
func (r *env) sortKey(attribute Value, caseSensitive bool) func(Value) Value {
	var gets []func(Value) Value
	if s, ok := r.text(attribute); ok {
		r.charge(len(s))
		r.chargeN(strings.Count(s, ","), 4*costItem)
		for _, p := range strings.Split(s, ",") {
			gets = append(gets, r.getter(p, nil))
		}
	} else {
		gets = append(gets, r.getter(attribute, nil))
	}
	return func(v Value) Value {
		keys := make([]Value, len(gets))
		for i, get := range gets {
			keys[i] = r.folded(get(v), caseSensitive)
		}
		return r.list(keys)
	}
}

// extreme is the first item that comes before (op "<") or after all others.
func (r *env) extreme(v Value, a []Value, op string) Value {
	get := r.getter(optNone(a[1], nil), nil)
	key := func(v Value) Value { return r.folded(get(v), r.truth(opt(a[0], false))) }
	it := r.iterate(v)
	best, ok := r.next(it)
	if !ok {
		return r.undefined("No aggregated item, sequence was empty.")
	}
	bestKey := key(best)
	for {
		x, ok := r.next(it)
		if !ok {
			return best
		}
		if k := key(x); r.compareOp(op, k, bestKey) {
			best, bestKey = x, k
		}
	}
}

// filterDictSort sorts the pairs of a dict by key or value.
func filterDictSort(r *env, v Value, a []Value) Value {
	r.use(v)
	d, ok := v.(*Dict)
	if !ok {
		r.fail("AttributeError", "'%s' object has no attribute 'items'", typeName(v))
	}
	by := map[string]int{"key": 0, "value": 1}
	pos, ok := by[r.str(opt(a[1], "key"))]
	if !ok {
		r.fail("FilterArgumentError", "You can only sort by either \"key\" or \"value\"")
	}
	items := slices.Clone(r.items(&view{d, "items"}))
	r.sort(items, func(pair Value) Value {
		return r.folded(pair.(*List).items[pos], r.truth(opt(a[0], false)))
	}, r.truth(opt(a[2], false)))
	return r.list(items)
}

// filterUnique leaves out items that came before.
func filterUnique(r *env, v Value, a []Value) Value {
	get := r.getter(optNone(a[1], nil), nil)
	seen := NewDict()
	src := r.lazily(v)
	return r.generate("sync_do_unique", src, func() (Value, bool) {
		for {
			x, ok := r.next(src)
			if !ok {
				return nil, false
			}
			r.step(1)
			k := r.folded(get(x), r.truth(opt(a[0], false)))
			if h := r.hashable(k); seen.find(h) < 0 {
				r.put(seen, k, nil)
				return x, true
			}
		}
	})
}

// filterGroupBy is the groups of items with equal attributes, sorted.
func filterGroupBy(r *env, v Value, a []Value) Value {
	def := optNone(a[1], nil)
	get := r.getter(a[0], def)
	key := func(x Value) Value { return r.folded(get(x), r.truth(opt(a[2], false))) }
	items := slices.Clone(r.items(v))
	r.sort(items, key, false)
	var groups []Value
	for i := 0; i < len(items); {
		k := key(items[i])
		j := i + 1
		for j < len(items) && r.equal(key(items[j]), k) {
			j++
		}
		if !r.truth(opt(a[2], false)) {
			k = get(items[i])
		}
		g := r.pair(k, r.list(items[i:j:j]))
		g.group = true
		groups = append(groups, g)
		i = j
	}
	return r.list(groups)
}

// filterBatch cuts items into lists of a length.
func filterBatch(r *env, v Value, a []Value) Value {
	n, src := r.intArg(a[0]), r.lazily(v)
	var pending Value
	started, more := false, false
	return r.generate("do_batch", src, func() (Value, bool) {
		if !started {
			started = true
			pending, more = r.next(src)
		}
		if !more {
			return nil, false
		}
		var items []Value
		for more && (len(items) == 0 || len(items) != n) {
			items = append(items, pending)
			r.charge(costItem)
			pending, more = r.next(src)
		}
		if fill := optNone(a[1], nil); fill != nil && len(items) < n {
			r.chargeN(n-len(items), costItem)
			for len(items) < n {
				items = append(items, fill)
			}
		}
		return r.list(items), true
	})
}

// filterSlice cuts items into a number of lists.
func filterSlice(r *env, v Value, a []Value) Value {
	src, n := r.lazily(v), r.intArg(a[0])
	fill := optNone(a[1], nil)
	i, at := 0, 0
	var items []Value
	return r.generate("sync_do_slice", src, func() (Value, bool) {
		if i == 0 {
			items = r.rest(src)
			if n == 0 {
				r.fail("ZeroDivisionError", "integer division or modulo by zero")
			}
		}
		if i >= n {
			return nil, false
		}
		size := len(items) / n
		if i < len(items)%n {
			size++
		}
		part := slices.Clone(items[at : at+size])
		if fill != nil && i >= len(items)%n {
			part = append(part, fill)
		}
		i, at = i+1, at+size
		return r.list(part), true
	})
}

// filterMap applies another filter to each item, or looks up an attribute of each.
func filterMap(r *env, v Value, a args) Value {
	if !r.truth(v) {
		return r.generate("sync_do_map", nil, func() (Value, bool) { return nil, false })
	}
	var f func(Value) Value
	if attribute, ok := a.take(r, "attribute"); ok && len(a.pos) == 0 {
		def, _ := a.take(r, "default")
		if len(a.names) > 0 {
			r.fail("FilterArgumentError", "Unexpected keyword argument '%s'", a.names[0])
		}
		f = r.getter(attribute, def)
	} else {
		if len(a.pos) == 0 {
			r.fail("FilterArgumentError", "map requires a filter argument")
		}
		name := r.strArg(a.pos[0])
		b := filterTable[name]
		if b == nil {
			r.fail("TemplateRuntimeError", "no filter named '%s'", name)
		}
		a.pos = a.pos[1:]
		f = func(x Value) Value { return b.invoke(r, x, a) }
	}
	src := r.lazily(v)
	return r.generate("sync_do_map", src, func() (Value, bool) {
		r.step(1)
		x, ok := r.next(src)
		if !ok {
			return nil, false
		}
		return f(x), true
	})
}

// choose is select, reject, selectattr and rejectattr.
func (r *env) choose(name string, v Value, a args, want, byAttr bool) Value {
	if !r.truth(v) {
		return r.generate("select_or_reject", nil, func() (Value, bool) { return nil, false })
	}
	get := func(x Value) Value { return x }
	if byAttr {
		if len(a.pos) == 0 {
			r.fail("FilterArgumentError", "Missing parameter for attribute name")
		}
		get = r.getter(a.pos[0], nil)
		a.pos = a.pos[1:]
	}
	test := r.truth
	if len(a.pos) > 0 {
		name := r.strArg(a.pos[0])
		b := testTable[name]
		if b == nil {
			r.fail("TemplateRuntimeError", "no test named '%s'", name)
		}
		a.pos = a.pos[1:]
		test = func(x Value) bool { return r.truth(b.invoke(r, x, a)) }
	}
	src := r.lazily(v)
	return r.generate("select_or_reject", src, func() (Value, bool) {
		for {
			r.step(1)
			x, ok := r.next(src)
			if !ok || test(get(x)) == want {
				return x, ok
			}
		}
	})
}
