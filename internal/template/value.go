package template

import (
	"fmt"
	"math/big"
)

// Value is a value of a template: nil (None), bool, int, *big.Int (integers beyond int), float64, string, *List, *Dict, and the
// types that only templates make (Undefined, Markup, ranges, macros, ...).
type Value = any

// Undefined is the value of a missing variable or attribute: empty text, false, and an error when it is used otherwise.
type Undefined struct {
	msg  string // what is missing
	kind string // kind of the error, "" for "UndefinedError"
}

// Markup is text marked as HTML by "safe" or "escape". Text joined to it with "+" is escaped, as jinja2 does even though chat
// templates have no automatic escaping.
type Markup string

// List is a list or a tuple. It never changes once a template can see it, so that slices of it share its memory.
type List struct {
	items []Value
	tuple bool
	group bool // made by groupby: the two items have the names grouper and list
}

// NewList makes a list.
func NewList(items ...Value) *List { return &List{items: items} }

// Values that only templates make.
type (
	// pyRange is a range.
	pyRange struct{ start, stop, step int }
	// view is what keys(), values() and items() of a dict give.
	view struct {
		d    *Dict
		kind string // "keys", "values", "items"
	}
	// generator is a sequence that can be read once, item by item: the result of map, select and their like.
	generator struct {
		name string
		*iterator
	}
	namespace struct{ attrs *Dict }
	// sliceKey is the evaluated key of x[a:b:c]; nil parts were left out.
	sliceKey struct{ start, stop, step Value }
)

func (g *pyRange) len() int {
	switch {
	case g.step > 0 && g.start < g.stop:
		return int((uint(g.stop)-uint(g.start)-1)/uint(g.step)) + 1
	case g.step < 0 && g.start > g.stop:
		return int((uint(g.start)-uint(g.stop)-1)/-uint(g.step)) + 1
	}
	return 0
}

func (v *view) at(r *run, i int) Value {
	switch v.kind {
	case "keys":
		return v.d.keys[i]
	case "values":
		return v.d.vals[i]
	}
	return r.pair(v.d.keys[i], v.d.vals[i])
}

func (r *run) list(items []Value) *List {
	r.chargeN(len(items), costItem)
	r.charge(costObject)
	return &List{items: items}
}

func (r *run) tuple(items []Value) *List {
	l := r.list(items)
	l.tuple = true
	return l
}

func (r *run) pair(a, b Value) *List { return r.tuple([]Value{a, b}) }

func (r *run) undefined(format string, args ...any) *Undefined {
	return &Undefined{msg: fmt.Sprintf(format, args...)}
}

// forbidden is an undefined value whose use is an error of the given kind.
func (r *run) forbidden(kind, format string, args ...any) *Undefined {
	return &Undefined{kind: kind, msg: fmt.Sprintf(format, args...)}
}

// missing ends the rendering because u was used.
func (r *run) missing(u *Undefined) {
	if u.kind != "" {
		r.fail(u.kind, "%s", u.msg)
	}
	r.fail("UndefinedError", "%s", u.msg)
}

// Object is a value of a type that this package does not know: a macro, a loop, a function. One with a method Len has a length.
type Object interface {
	TypeName() string // the name of its Python type
	Repr() string     // repr(v)
}

// typeName is the name of a value's Python type.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case Markup:
		return "Markup"
	case *mixed:
		return typeName(v.plain())
	case *List:
		if v.tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case *Undefined:
		return "Undefined"
	case *pyRange:
		return "range"
	case *view:
		return "dict_" + v.kind
	case *generator:
		return "generator"
	case *namespace:
		return "Namespace"
	case Object:
		return v.TypeName()
	}
	return "object"
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (r *run) truth(v Value) bool {
	switch v := v.(type) {
	case nil, *Undefined:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case Markup:
		return v != ""
	case *mixed:
		return v.s != ""
	case *List:
		return len(v.items) > 0
	case *Dict:
		return v.Len() > 0
	case *view:
		return v.d.Len() > 0
	case *pyRange:
		return v.len() > 0
	}
	return true
}

// length is len(v); ok is false for values without one.
func (r *run) length(v Value) (n int, ok bool) {
	switch v := v.(type) {
	case string, Markup, *mixed:
		s, _ := r.text(v)
		r.scan(len(s))
		return runeCount(s), true
	case *List:
		return len(v.items), true
	case *Dict:
		return v.Len(), true
	case *view:
		return v.d.Len(), true
	case *pyRange:
		return v.len(), true
	case *Undefined:
		return 0, true
	case interface{ Len() int }:
		return v.Len(), true
	}
	return 0, false
}

// normalize turns a value from Go into one of the engine's own and adds up its size in bytes.
func normalize(v Value, size *int, depth int) Value {
	*size += 16
	if depth > maxValueNest {
		panic(&valueError{"LimitError", fmt.Sprintf("variable nested deeper than %d", maxValueNest)})
	}
	switch v := v.(type) {
	case nil, bool, int, float64, *Undefined:
	case string:
		*size += len(v)
	case Markup:
		*size += len(v)
	case Untrusted:
		*size += len(v)
		return (&mixed{s: string(v)}).simple()
	case int64:
		return normBig(big.NewInt(v))
	case *big.Int:
		return normBig(v)
	case []Value:
		return normalize(&List{items: v}, size, depth)
	case *List:
		items := make([]Value, len(v.items))
		for i, item := range v.items {
			items[i] = normalize(item, size, depth+1)
		}
		return &List{items: items, tuple: v.tuple}
	case *Dict:
		d := &Dict{keys: v.keys, index: v.index, vals: make([]Value, len(v.vals))}
		for i, item := range v.vals {
			if s, ok := v.keys[i].(string); ok {
				*size += len(s)
			}
			d.vals[i] = normalize(item, size, depth+1)
		}
		return d
	default:
		panic(&valueError{"TypeError", fmt.Sprintf("variable of Go type %T, which templates do not know", v)})
	}
	return v
}

// use ends the rendering if v is undefined.
func (r *run) use(v Value) {
	if u, ok := v.(*Undefined); ok {
		r.missing(u)
	}
}

// setAttr sets an attribute of a namespace.
func (r *run) setAttr(ns *namespace, name string, v Value) {
	if ns.attrs.find(name) < 0 {
		r.charge(costEntry)
	}
	ns.attrs.set(name, name, v)
}

// element is v[key] of a container or text; ok is false for other values and where there is no such item.
func (r *run) element(v, key Value) (x Value, ok bool) {
	n, _ := number(key)
	i, isInt := n.(int)
	switch v := v.(type) {
	case *Dict:
		if k, ok := r.key(key); ok {
			if i := v.find(k); i >= 0 {
				return v.vals[i], true
			}
		}
	case string, Markup, *mixed:
		if isInt {
			s, _ := plainText(v)
			c, ok := r.indexText(s, i)
			return likeText(v, c), ok
		}
	case *List:
		if i = fromEnd(i, len(v.items)); isInt && i >= 0 {
			return v.items[i], true
		}
	case *pyRange:
		if i = fromEnd(i, v.len()); isInt && i >= 0 {
			return v.start + i*v.step, true
		}
	}
	return nil, false
}

// fromEnd is an index of a sequence of n items, of which negative ones count from the end; -1 if it lies outside.
func fromEnd(i, n int) int {
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return -1
	}
	return i
}

// slice is v[start:stop:step].
func (r *run) slice(v Value, k sliceKey) Value {
	switch v := v.(type) {
	case string:
		return r.sliceText(v, k)
	case Markup:
		return Markup(r.sliceText(string(v), k))
	case *mixed:
		return r.sliceMixed(v, k)
	case *List:
		start, step, count := r.sliceRange(k, len(v.items))
		if step == 1 {
			r.charge(costObject)
			return &List{items: v.items[start : start+count : start+count], tuple: v.tuple}
		}
		r.chargeN(count, costItem)
		items := make([]Value, count)
		for i := range items {
			items[i] = v.items[start+i*step]
		}
		r.charge(costObject)
		return &List{items: items, tuple: v.tuple}
	case *pyRange:
		start, step, count := r.sliceRange(k, v.len())
		return &pyRange{v.start + start*v.step, v.start + (start+count*step)*v.step, v.step * step}
	case *Undefined:
		r.missing(v)
	case *Dict:
		r.typeError("unhashable type: 'slice'")
	}
	r.typeError("'%s' object is not subscriptable", typeName(v))
	return nil
}
