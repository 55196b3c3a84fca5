package value

import (
	"cmp"
	"slices"
	"strings"
)

// Equal is a == b of Python.
func (r *Run) Equal(a, b Value) bool { return r.equalAt(a, b, 0) }

func (r *Run) equalAt(a, b Value, depth int) bool {
	r.Step(1)
	r.nest(depth)
	if s, ok := r.Text(a); ok {
		t, ok := r.Text(b)
		if ok && len(s) == len(t) {
			r.Scan(len(s))
		}
		return ok && s == t
	}
	if IsNumber(a) && IsNumber(b) {
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
	case *Range:
		b, ok := b.(*Range)
		if !ok || a.Len() != b.Len() {
			return false
		}
		return a.Len() == 0 || a.Start == b.Start && (a.Len() == 1 || a.Step == b.Step)
	}
	return a == b
}

func (r *Run) equalLists(a, b *List, depth int) bool {
	if a.Tuple != b.Tuple || len(a.Items) != len(b.Items) {
		return false
	}
	for i := range a.Items {
		if !r.EqualItem(a.Items[i], b.Items[i], depth) {
			return false
		}
	}
	return true
}

func (r *Run) equalDicts(a, b *Dict, depth int) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i, key := range a.Keys {
		k, _ := dictKey(key)
		j := b.Find(k)
		if j < 0 || !r.EqualItem(a.Vals[i], b.Vals[j], depth) {
			return false
		}
	}
	return true
}

// EqualItem compares items of containers: the same object is equal to itself, as in Python.
func (r *Run) EqualItem(a, b Value, depth int) bool {
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
func (r *Run) nest(depth int) {
	if depth > maxValueNest {
		r.Fail("LimitError", "value nested deeper than %d", maxValueNest)
	}
}

// unordered is the result of a comparison with NaN.
const unordered = 2

// compare orders two values as Python's < does: -1, 0, 1 or unordered; op names the operator for the error of values
// without an order.
func (r *Run) compare(a, b Value, op string) int { return r.compareAt(a, b, op, 0) }

func (r *Run) compareAt(a, b Value, op string, depth int) int {
	r.Step(1)
	r.nest(depth)
	if s, ok := r.Text(a); ok {
		if t, ok := r.Text(b); ok {
			r.Scan(min(len(s), len(t)))
			return strings.Compare(s, t)
		}
	}
	if IsNumber(a) && IsNumber(b) {
		return compareNumbers(a, b)
	}
	r.Need(a)
	r.Need(b)
	if x, ok := a.(*List); ok {
		if y, ok := b.(*List); ok && x.Tuple == y.Tuple {
			return r.compareLists(x, y, op, depth)
		}
	}
	r.TypeError("'%s' not supported between instances of '%s' and '%s'", op, TypeName(a), TypeName(b))
	return 0
}

// compareLists orders lists by their first items that differ, else by length.
func (r *Run) compareLists(x, y *List, op string, depth int) int {
	for i := range min(len(x.Items), len(y.Items)) {
		if !r.EqualItem(x.Items[i], y.Items[i], depth) {
			return r.compareAt(x.Items[i], y.Items[i], op, depth+1)
		}
	}
	return cmp.Compare(len(x.Items), len(y.Items))
}

// CompareOp is "a op b" for the operators of comparison.
func (r *Run) CompareOp(op string, a, b Value) bool {
	switch op {
	case "==":
		return r.Equal(a, b)
	case "!=":
		return !r.Equal(a, b)
	case "in":
		return r.Contains(b, a)
	case "not in":
		return !r.Contains(b, a)
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

// Contains is "item in v".
func (r *Run) Contains(v, item Value) bool {
	switch v := v.(type) {
	case string, Markup, *Mixed:
		s, _ := r.Text(v)
		t, ok := r.Text(item)
		if !ok {
			r.TypeError("'in <string>' requires string as left operand, not %s", TypeName(item))
		}
		r.Scan(len(s))
		return strings.Contains(s, t)
	case *Dict:
		return v.Find(r.Hashable(item)) >= 0
	case *View:
		if v.Kind == "keys" {
			return v.D.Find(r.Hashable(item)) >= 0
		}
	case *Range:
		if IsNumber(item) {
			n, ok := exactInt(item)
			d := n - v.Start
			return ok && d%v.Step == 0 && d/v.Step >= 0 && d/v.Step < v.Len()
		}
	}
	it, ok := r.TryIterate(v)
	if !ok {
		r.TypeError("argument of type '%s' is not iterable", TypeName(v))
	}
	for {
		x, ok := r.Next(it)
		if !ok {
			return false
		}
		if r.EqualItem(x, item, 0) {
			return true
		}
	}
}

// Sort sorts in place, stably.
func (r *Run) Sort(items []Value, key func(Value) Value, reverse bool) {
	type entry struct{ key, v Value }
	r.ChargeN(len(items), 2*CostItem)
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
