package builtin

import (
	"slices"
	"strings"
	"unicode"

	"ck/internal/template/pystr"
	"ck/internal/template/value"
)

func listFilters() {
	define(filterTable, "list", filterList)
	define(filterTable, "items", filterItems)
	define(filterTable, "first", func(r *Env, v value.Value, _ []value.Value) value.Value {
		if x, ok := r.Next(r.Iterate(v)); ok {
			return x
		}
		return r.Undefined("No first item, sequence was empty.")
	})
	define(filterTable, "last", func(r *Env, v value.Value, _ []value.Value) value.Value {
		l := r.reversed(v)
		if len(l) == 0 {
			return r.Undefined("No last item, sequence was empty.")
		}
		return l[0]
	})
	define(filterTable, "reverse", filterReverse)
	define(filterTable, "join d? attribute?", filterJoin)
	define(filterTable, "sum attribute? start?", filterSum)
	for name, op := range map[string]string{"min": "<", "max": ">"} {
		define(filterTable, name+" case_sensitive? attribute?", func(r *Env, v value.Value, a []value.Value) value.Value {
			return r.extreme(v, a, op)
		})
	}
	const sort = "sort reverse? case_sensitive? attribute?"
	define(filterTable, sort, func(r *Env, v value.Value, a []value.Value) value.Value {
		items := slices.Clone(r.Items(v))
		r.Sort(items, r.sortKey(opt(a[2], nil), r.Truth(opt(a[1], false))), r.Truth(opt(a[0], false)))
		return r.List(items)
	})
	define(filterTable, "dictsort case_sensitive? by? reverse?", filterDictSort)
	define(filterTable, "unique case_sensitive? attribute?", filterUnique)
	define(filterTable, "groupby attribute default? case_sensitive?", filterGroupBy)
	define(filterTable, "batch linecount fill_with?", filterBatch)
	define(filterTable, "slice slices fill_with?", filterSlice)
	define(filterTable, "attr name", func(r *Env, v value.Value, a []value.Value) value.Value {
		name := r.StrArg(a[0])
		if x, ok := r.attribute(v, name); ok {
			return x
		}
		return r.noAttr(v, name)
	})
	DefineRaw(filterTable, "map", filterMap)
	for _, name := range []string{"select", "reject", "selectattr", "rejectattr"} {
		DefineRaw(filterTable, name, func(r *Env, v value.Value, a Args) value.Value {
			return r.choose(name, v, a, strings.HasPrefix(name, "select"), strings.HasSuffix(name, "attr"))
		})
	}
}

// filterList is list(v).
func filterList(r *Env, v value.Value, _ []value.Value) value.Value {
	if l, ok := v.(*value.List); ok {
		return &value.List{Items: l.Items}
	}
	items := r.Items(v)
	r.Charge(value.CostObject)
	return &value.List{Items: items}
}

// filterItems is the pairs of a dict.
func filterItems(r *Env, v value.Value, _ []value.Value) value.Value {
	var src *value.Iterator
	return r.Generate("do_items", nil, func() (value.Value, bool) {
		if src == nil {
			d, ok := v.(*value.Dict)
			if _, undef := v.(*value.Undefined); undef {
				d = value.NewDict()
			} else if !ok {
				r.TypeError("Can only get item pairs from a mapping.")
			}
			src = r.Iterate(&value.View{D: d, Kind: "items"})
		}
		return r.Next(src)
	})
}

// filterReverse is the reverse of a text or a sequence.
func filterReverse(r *Env, v value.Value, _ []value.Value) value.Value {
	if s, ok := r.Text(v); ok {
		return value.LikeText(v, r.SliceText(s, value.SliceKey{Step: -1}))
	}
	if g, ok := v.(*value.Generator); ok {
		items := slices.Clone(r.Rest(g.Iterator))
		slices.Reverse(items)
		return r.List(items)
	}
	if !isSequence(v) {
		r.Fail("FilterArgumentError", "argument must be iterable")
	}
	r.Charge(value.CostObject)
	return &value.Generator{Name: "reversed", Iterator: &value.Iterator{Items: r.reversed(v)}}
}

// filterJoin joins the texts of items.
func filterJoin(r *Env, v value.Value, a []value.Value) value.Value {
	get := r.getter(optNone(a[1], nil), nil)
	sep := r.TextOf(opt(a[0], ""))
	var b value.Blend
	it := r.Iterate(v)
	for i := 0; ; i++ {
		x, ok := r.Next(it)
		if !ok {
			return b.Value(false)
		}
		x = r.TextOf(get(x))
		was := b.B.Len()
		if i > 0 {
			b.Add(sep)
		}
		b.Add(x)
		r.Charge(2*(b.B.Len()-was) + 1)
	}
}

// filterSum adds items up.
func filterSum(r *Env, v value.Value, a []value.Value) value.Value {
	get := r.getter(optNone(a[0], nil), nil)
	total := opt(a[1], 0)
	if _, ok := r.Text(total); ok {
		r.TypeError("sum() can't sum strings [use ''.join(seq) instead]")
	}
	for _, x := range r.Items(v) {
		total = r.Binary("+", total, get(x))
	}
	return total
}

// reversed is the items of v from the last to the first. Only sequences have them, not generators and sets.
func (r *Env) reversed(v value.Value) []value.Value {
	if _, ok := v.(*value.Generator); ok || !isSequence(v) {
		r.TypeError("'%s' object is not reversible", value.TypeName(v))
	}
	items := slices.Clone(r.Items(v))
	r.ChargeN(len(items), value.CostItem)
	slices.Reverse(items)
	return items
}

func isSequence(v value.Value) bool {
	switch v.(type) {
	case string, value.Markup, *value.Mixed, *value.List, *value.Dict, *value.View, *value.Range, *value.Undefined:
		return true
	}
	return false
}

// getter looks up a path of attributes ("a.b.0"), or is the identity for None. def replaces what is undefined, if it
// is not nil.
func (r *Env) getter(attribute, def value.Value) func(value.Value) value.Value {
	if attribute == nil {
		return func(v value.Value) value.Value { return v }
	}
	parts := []value.Value{attribute}
	if s, ok := r.Text(attribute); ok {
		parts = parts[:0]
		r.Charge(len(s))
		r.ChargeN(strings.Count(s, "."), 2*value.CostItem)
		for _, p := range strings.Split(s, ".") {
			if n, ok := value.ParseInt(p, 10); ok && pystr.All(p, unicode.IsDigit) {
				parts = append(parts, n)
			} else {
				parts = append(parts, p)
			}
		}
	}
	return func(v value.Value) value.Value {
		for _, p := range parts {
			r.Step(1)
			v = r.Item(v, p)
			if _, ok := v.(*value.Undefined); ok && def != nil {
				v = def
			}
		}
		return v
	}
}

// folded is v in lower case if it is a text and case does not matter.
func (r *Env) folded(v value.Value, caseSensitive bool) value.Value {
	if s, ok := r.Text(v); ok && !caseSensitive {
		r.Charge(len(s))
		return pystr.Lower(s)
	}
	return v
}

// sortKey is the key of the filter sort: one value, or a list of several for an attribute "a,b".
func (r *Env) sortKey(attribute value.Value, caseSensitive bool) func(value.Value) value.Value {
	var gets []func(value.Value) value.Value
	if s, ok := r.Text(attribute); ok {
		r.Charge(len(s))
		r.ChargeN(strings.Count(s, ","), 4*value.CostItem)
		for _, p := range strings.Split(s, ",") {
			gets = append(gets, r.getter(p, nil))
		}
	} else {
		gets = append(gets, r.getter(attribute, nil))
	}
	return func(v value.Value) value.Value {
		keys := make([]value.Value, len(gets))
		for i, get := range gets {
			keys[i] = r.folded(get(v), caseSensitive)
		}
		return r.List(keys)
	}
}

// extreme is the first item that comes before (op "<") or after all others.
func (r *Env) extreme(v value.Value, a []value.Value, op string) value.Value {
	get := r.getter(optNone(a[1], nil), nil)
	key := func(v value.Value) value.Value { return r.folded(get(v), r.Truth(opt(a[0], false))) }
	it := r.Iterate(v)
	best, ok := r.Next(it)
	if !ok {
		return r.Undefined("No aggregated item, sequence was empty.")
	}
	bestKey := key(best)
	for {
		x, ok := r.Next(it)
		if !ok {
			return best
		}
		if k := key(x); r.CompareOp(op, k, bestKey) {
			best, bestKey = x, k
		}
	}
}

// filterDictSort sorts the pairs of a dict by key or value.
func filterDictSort(r *Env, v value.Value, a []value.Value) value.Value {
	r.Need(v)
	d, ok := v.(*value.Dict)
	if !ok {
		r.Fail("AttributeError", "'%s' object has no attribute 'items'", value.TypeName(v))
	}
	by := map[string]int{"key": 0, "value": 1}
	pos, ok := by[r.Str(opt(a[1], "key"))]
	if !ok {
		r.Fail("FilterArgumentError", "You can only sort by either \"key\" or \"value\"")
	}
	items := slices.Clone(r.Items(&value.View{D: d, Kind: "items"}))
	r.Sort(items, func(pair value.Value) value.Value {
		return r.folded(pair.(*value.List).Items[pos], r.Truth(opt(a[0], false)))
	}, r.Truth(opt(a[2], false)))
	return r.List(items)
}

// filterUnique leaves out items that came before.
func filterUnique(r *Env, v value.Value, a []value.Value) value.Value {
	get := r.getter(optNone(a[1], nil), nil)
	seen := value.NewDict()
	src := r.Lazily(v)
	return r.Generate("sync_do_unique", src, func() (value.Value, bool) {
		for {
			x, ok := r.Next(src)
			if !ok {
				return nil, false
			}
			r.Step(1)
			k := r.folded(get(x), r.Truth(opt(a[0], false)))
			if h := r.Hashable(k); seen.Find(h) < 0 {
				r.Put(seen, k, nil)
				return x, true
			}
		}
	})
}

// filterGroupBy is the groups of items with equal attributes, sorted.
func filterGroupBy(r *Env, v value.Value, a []value.Value) value.Value {
	def := optNone(a[1], nil)
	get := r.getter(a[0], def)
	key := func(x value.Value) value.Value { return r.folded(get(x), r.Truth(opt(a[2], false))) }
	items := slices.Clone(r.Items(v))
	r.Sort(items, key, false)
	var groups []value.Value
	for i := 0; i < len(items); {
		k := key(items[i])
		j := i + 1
		for j < len(items) && r.Equal(key(items[j]), k) {
			j++
		}
		if !r.Truth(opt(a[2], false)) {
			k = get(items[i])
		}
		g := r.Pair(k, r.List(items[i:j:j]))
		g.Group = true
		groups = append(groups, g)
		i = j
	}
	return r.List(groups)
}

// filterBatch cuts items into lists of a length.
func filterBatch(r *Env, v value.Value, a []value.Value) value.Value {
	n, src := r.IntArg(a[0]), r.Lazily(v)
	var pending value.Value
	started, more := false, false
	return r.Generate("do_batch", src, func() (value.Value, bool) {
		if !started {
			started = true
			pending, more = r.Next(src)
		}
		if !more {
			return nil, false
		}
		var items []value.Value
		for more && (len(items) == 0 || len(items) != n) {
			items = append(items, pending)
			r.Charge(value.CostItem)
			pending, more = r.Next(src)
		}
		if fill := optNone(a[1], nil); fill != nil && len(items) < n {
			r.ChargeN(n-len(items), value.CostItem)
			for len(items) < n {
				items = append(items, fill)
			}
		}
		return r.List(items), true
	})
}

// filterSlice cuts items into a number of lists.
func filterSlice(r *Env, v value.Value, a []value.Value) value.Value {
	src, n := r.Lazily(v), r.IntArg(a[0])
	fill := optNone(a[1], nil)
	i, at := 0, 0
	var items []value.Value
	return r.Generate("sync_do_slice", src, func() (value.Value, bool) {
		if i == 0 {
			items = r.Rest(src)
			if n == 0 {
				r.Fail("ZeroDivisionError", "integer division or modulo by zero")
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
		return r.List(part), true
	})
}

// filterMap applies another filter to each item, or looks up an attribute of each.
func filterMap(r *Env, v value.Value, a Args) value.Value {
	if !r.Truth(v) {
		return r.Generate("sync_do_map", nil, func() (value.Value, bool) { return nil, false })
	}
	var f func(value.Value) value.Value
	if attribute, ok := a.Take(r, "attribute"); ok && len(a.Pos) == 0 {
		def, _ := a.Take(r, "default")
		if len(a.Names) > 0 {
			r.Fail("FilterArgumentError", "Unexpected keyword argument '%s'", a.Names[0])
		}
		f = r.getter(attribute, def)
	} else {
		if len(a.Pos) == 0 {
			r.Fail("FilterArgumentError", "map requires a filter argument")
		}
		name := r.StrArg(a.Pos[0])
		b := filterTable[name]
		if b == nil {
			r.Fail("TemplateRuntimeError", "no filter named '%s'", name)
		}
		a.Pos = a.Pos[1:]
		f = func(x value.Value) value.Value { return b.Invoke(r, x, a) }
	}
	src := r.Lazily(v)
	return r.Generate("sync_do_map", src, func() (value.Value, bool) {
		r.Step(1)
		x, ok := r.Next(src)
		if !ok {
			return nil, false
		}
		return f(x), true
	})
}

// choose is select, reject, selectattr and rejectattr.
func (r *Env) choose(name string, v value.Value, a Args, want, byAttr bool) value.Value {
	if !r.Truth(v) {
		return r.Generate("select_or_reject", nil, func() (value.Value, bool) { return nil, false })
	}
	get := func(x value.Value) value.Value { return x }
	if byAttr {
		if len(a.Pos) == 0 {
			r.Fail("FilterArgumentError", "Missing parameter for attribute name")
		}
		get = r.getter(a.Pos[0], nil)
		a.Pos = a.Pos[1:]
	}
	test := r.Truth
	if len(a.Pos) > 0 {
		name := r.StrArg(a.Pos[0])
		b := testTable[name]
		if b == nil {
			r.Fail("TemplateRuntimeError", "no test named '%s'", name)
		}
		a.Pos = a.Pos[1:]
		test = func(x value.Value) bool { return r.Truth(b.Invoke(r, x, a)) }
	}
	src := r.Lazily(v)
	return r.Generate("select_or_reject", src, func() (value.Value, bool) {
		for {
			r.Step(1)
			x, ok := r.Next(src)
			if !ok || test(get(x)) == want {
				return x, ok
			}
		}
	})
}
