package template

import (
	"cmp"
	"slices"
	"strings"
)

// equal is a == b of Python.
func (r *run) equal(a, b Value) bool { return r.equalAt(a, b, 0) }

func (r *run) equalAt(a, b Value, depth int) bool {
	r.step(1)
	r.nest(depth)
	if s, ok := r.text(a); ok {
		t, ok := r.text(b)
		if ok && len(s) == len(t) {
			r.scan(len(s))
		}
		return ok && s == t
	}
	if isNumber(a) && isNumber(b) {
		return compareNumbers(a, b) == 0
	}
	switch a := a.(type) {
	case *List:
		b, ok := b.(*List)
		return ok && r.equalLists(a, b, depth)
	case *Dict:
		b, ok := b.(*Dict)
		return ok && r.equalDicts(a, b, depth)
	case *Undefined:
		_, ok := b.(*Undefined)
		return ok
	case *pyRange:
		b, ok := b.(*pyRange)
		if !ok || a.len() != b.len() {
			return false
		}
		return a.len() == 0 || a.start == b.start && (a.len() == 1 || a.step == b.step)
	}
	return a == b
}

func (r *run) equalLists(a, b *List, depth int) bool {
	if a.tuple != b.tuple || len(a.items) != len(b.items) {
		return false
	}
	for i := range a.items {
		if !r.equalItem(a.items[i], b.items[i], depth) {
			return false
		}
	}
	return true
}

func (r *run) equalDicts(a, b *Dict, depth int) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i, key := range a.keys {
		k, _ := dictKey(key)
		j := b.find(k)
		if j < 0 || !r.equalItem(a.vals[i], b.vals[j], depth) {
			return false
		}
	}
	return true
}

// equalItem compares items of containers: the same object is equal to itself, as in Python.
func (r *run) equalItem(a, b Value, depth int) bool {
	switch a := a.(type) {
	case *List:
		if b, ok := b.(*List); ok && a == b {
			return true
		}
	case *Dict:
		if b, ok := b.(*Dict); ok && a == b {
			return true
		}
	}
	return r.equalAt(a, b, depth+1)
}

// nest bounds the recursion over nested values.
func (r *run) nest(depth int) {
	if depth > maxValueNest {
		r.fail("LimitError", "value nested deeper than %d", maxValueNest)
	}
}

// unordered is the result of a comparison with NaN.
const unordered = 2

// compare orders two values as Python's < does: -1, 0, 1 or unordered; op names the operator for the error of values without an
// order.
func (r *run) compare(a, b Value, op string) int { return r.compareAt(a, b, op, 0) }

func (r *run) compareAt(a, b Value, op string, depth int) int {
	r.step(1)
	r.nest(depth)
	if s, ok := r.text(a); ok {
		if t, ok := r.text(b); ok {
			r.scan(min(len(s), len(t)))
			return strings.Compare(s, t)
		}
	}
	if isNumber(a) && isNumber(b) {
		return compareNumbers(a, b)
	}
	r.use(a)
	r.use(b)
	if x, ok := a.(*List); ok {
		if y, ok := b.(*List); ok && x.tuple == y.tuple {
			return r.compareLists(x, y, op, depth)
		}
	}
	r.typeError("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	return 0
}

// compareLists orders lists by their first items that differ, else by length.
func (r *run) compareLists(x, y *List, op string, depth int) int {
	for i := range min(len(x.items), len(y.items)) {
		if !r.equalItem(x.items[i], y.items[i], depth) {
			return r.compareAt(x.items[i], y.items[i], op, depth+1)
		}
	}
	return cmp.Compare(len(x.items), len(y.items))
}

// compareOp is "a op b" for the operators of comparison.
func (r *run) compareOp(op string, a, b Value) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	c := r.compare(a, b, op)
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c == 1
	}
	return c == 0 || c == 1
}

// contains is "item in v".
func (r *run) contains(v, item Value) bool {
	switch v := v.(type) {
	case string, Markup, *mixed:
		s, _ := r.text(v)
		t, ok := r.text(item)
		if !ok {
			r.typeError("'in <string>' requires string as left operand, not %s", typeName(item))
		}
		r.scan(len(s))
		return strings.Contains(s, t)
	case *Dict:
		return v.find(r.hashable(item)) >= 0
	case *view:
		if v.kind == "keys" {
			return v.d.find(r.hashable(item)) >= 0
		}
	case *pyRange:
		if isNumber(item) {
			n, ok := exactInt(item)
			d := n - v.start
			return ok && d%v.step == 0 && d/v.step >= 0 && d/v.step < v.len()
		}
	}
	it, ok := r.tryIterate(v)
	if !ok {
		r.typeError("argument of type '%s' is not iterable", typeName(v))
	}
	for {
		x, ok := r.next(it)
		if !ok {
			return false
		}
		if r.equalItem(x, item, 0) {
			return true
		}
	}
}

// sort sorts in place, stably.
func (r *run) sort(items []Value, key func(Value) Value, reverse bool) {
	type entry struct{ key, v Value }
	r.chargeN(len(items), 2*costItem)
	entries := make([]entry, len(items))
	for i, v := range items {
		entries[i] = entry{key(v), v}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		c := r.compare(a.key, b.key, "<")
		if c == unordered {
			c = 0
		}
		if reverse {
			return -c
		}
		return c
	})
	for i, e := range entries {
		items[i] = e.v
	}
}
