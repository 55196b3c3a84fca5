// Package value is the values of templates: numbers, texts that know which of their bytes the template wrote, lists,
// dicts, with Python's operators, comparison and formatting, and the limits that all of these count against. It knows
// no filter and no statement.
package value

import (
	"fmt"
	"math/big"

	"ck/internal/template/pystr"
)

// Value is a value of a template: nil (None), bool, int, *big.Int (integers beyond int), float64, string, *List,
// *Dict, and the types that only templates make (Undefined, Markup, ranges, macros, ...).
type Value = any

// Undefined is the value of a missing variable or attribute: empty text, false, and an error when it is used
// otherwise.
type Undefined struct {
	msg  string // what is missing
	kind string // kind of the error, "" for "UndefinedError"
}

// Markup is text marked as HTML by "safe" or "escape". Text joined to it with "+" is escaped, as jinja2 does even
// though chat templates have no automatic escaping.
type Markup string

// List is a list or a tuple. It never changes once a template can see it, so that slices of it share its memory.
type List struct {
	Items []Value
	Tuple bool
	Group bool // made by groupby: the two items have the names grouper and list
}

// NewList makes a list.
func NewList(items ...Value) *List { return &List{Items: items} }

// Values that only templates make.
type (
	// Range is a range.
	Range struct{ Start, Stop, Step int }
	// View is what keys(), values() and items() of a dict give.
	View struct {
		D    *Dict
		Kind string // "keys", "values", "items"
	}
	// Generator is a sequence that can be read once, item by item: the result of map, select and their like.
	Generator struct {
		Name string
		*Iterator
	}
	// Namespace is an object whose attributes a template may set.
	Namespace struct{ Attrs *Dict }
	// SliceKey is the evaluated key of x[a:b:c]; nil parts were left out.
	SliceKey struct{ Start, Stop, Step Value }
)

// Len is the number of items.
func (g *Range) Len() int {
	switch {
	case g.Step > 0 && g.Start < g.Stop:
		return int((uint(g.Stop)-uint(g.Start)-1)/uint(g.Step)) + 1
	case g.Step < 0 && g.Start > g.Stop:
		return int((uint(g.Start)-uint(g.Stop)-1)/-uint(g.Step)) + 1
	}
	return 0
}

func (v *View) at(r *Run, i int) Value {
	switch v.Kind {
	case "keys":
		return v.D.Keys[i]
	case "values":
		return v.D.Vals[i]
	}
	return r.Pair(v.D.Keys[i], v.D.Vals[i])
}

// List makes a list of items.
func (r *Run) List(items []Value) *List {
	r.ChargeN(len(items), CostItem)
	r.Charge(CostObject)
	return &List{Items: items}
}

// Tuple makes a tuple of items.
func (r *Run) Tuple(items []Value) *List {
	l := r.List(items)
	l.Tuple = true
	return l
}

// Pair is the tuple (a, b).
func (r *Run) Pair(a, b Value) *List { return r.Tuple([]Value{a, b}) }

// Undefined is an undefined value that says what is missing.
func (r *Run) Undefined(format string, args ...any) *Undefined {
	return &Undefined{msg: fmt.Sprintf(format, args...)}
}

// Forbidden is an undefined value whose use is an error of the given kind.
func (r *Run) Forbidden(kind, format string, args ...any) *Undefined {
	return &Undefined{kind: kind, msg: fmt.Sprintf(format, args...)}
}

// Missing ends the rendering because u was used.
func (r *Run) Missing(u *Undefined) {
	if u.kind != "" {
		r.Fail(u.kind, "%s", u.msg)
	}
	r.Fail("UndefinedError", "%s", u.msg)
}

// Object is a value of a type that this package does not know: a macro, a loop, a function. One with a method Len has
// a length.
type Object interface {
	TypeName() string // the name of its Python type
	Repr() string     // repr(v)
}

// TypeName is the name of a value's Python type.
func TypeName(v Value) string {
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
	case *Mixed:
		return TypeName(v.plain())
	case *List:
		if v.Tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case *Undefined:
		return "Undefined"
	case *Range:
		return "range"
	case *View:
		return "dict_" + v.Kind
	case *Generator:
		return "generator"
	case *Namespace:
		return "Namespace"
	case Object:
		return v.TypeName()
	}
	return "object"
}

// BoolInt is int(b).
func BoolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Truth is bool(v).
func (r *Run) Truth(v Value) bool {
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
	case *Mixed:
		return v.S != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return v.Len() > 0
	case *View:
		return v.D.Len() > 0
	case *Range:
		return v.Len() > 0
	}
	return true
}

// Length is len(v); ok is false for values without one.
func (r *Run) Length(v Value) (n int, ok bool) {
	switch v := v.(type) {
	case string, Markup, *Mixed:
		s, _ := r.Text(v)
		r.Scan(len(s))
		return pystr.RuneCount(s), true
	case *List:
		return len(v.Items), true
	case *Dict:
		return v.Len(), true
	case *View:
		return v.D.Len(), true
	case *Range:
		return v.Len(), true
	case *Undefined:
		return 0, true
	case interface{ Len() int }:
		return v.Len(), true
	}
	return 0, false
}

// Normalize turns a value from Go into one of the engine's own and adds up its size in bytes.
func Normalize(v Value, size *int, depth int) Value {
	*size += 16
	if depth > maxValueNest {
		panic(&Error{"LimitError", fmt.Sprintf("variable nested deeper than %d", maxValueNest)})
	}
	switch v := v.(type) {
	case nil, bool, int, float64, *Undefined:
	case string:
		*size += len(v)
	case Markup:
		*size += len(v)
	case Untrusted:
		*size += len(v)
		return (&Mixed{S: string(v)}).simple()
	case int64:
		return NormBig(big.NewInt(v))
	case *big.Int:
		return NormBig(v)
	case []Value:
		return Normalize(&List{Items: v}, size, depth)
	case *List:
		items := make([]Value, len(v.Items))
		for i, item := range v.Items {
			items[i] = Normalize(item, size, depth+1)
		}
		return &List{Items: items, Tuple: v.Tuple}
	case *Dict:
		d := &Dict{Keys: v.Keys, index: v.index, Vals: make([]Value, len(v.Vals))}
		for i, item := range v.Vals {
			if s, ok := v.Keys[i].(string); ok {
				*size += len(s)
			}
			d.Vals[i] = Normalize(item, size, depth+1)
		}
		return d
	default:
		panic(&Error{"TypeError", fmt.Sprintf("variable of Go type %T, which templates do not know", v)})
	}
	return v
}

// Need ends the rendering if v is undefined.
func (r *Run) Need(v Value) {
	if u, ok := v.(*Undefined); ok {
		r.Missing(u)
	}
}

// SetAttr sets an attribute of a namespace.
func (r *Run) SetAttr(ns *Namespace, name string, v Value) {
	if ns.Attrs.Find(name) < 0 {
		r.Charge(costEntry)
	}
	ns.Attrs.SetKey(name, name, v)
}

// Element is v[key] of a container or text; ok is false for other values and where there is no such item.
func (r *Run) Element(v, key Value) (x Value, ok bool) {
	n, _ := Number(key)
	i, isInt := n.(int)
	switch v := v.(type) {
	case *Dict:
		if k, ok := r.key(key); ok {
			if i := v.Find(k); i >= 0 {
				return v.Vals[i], true
			}
		}
	case string, Markup, *Mixed:
		if isInt {
			s, _ := PlainText(v)
			c, ok := r.indexText(s, i)
			return LikeText(v, c), ok
		}
	case *List:
		if i = fromEnd(i, len(v.Items)); isInt && i >= 0 {
			return v.Items[i], true
		}
	case *Range:
		if i = fromEnd(i, v.Len()); isInt && i >= 0 {
			return v.Start + i*v.Step, true
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

// Slice is v[start:stop:step].
func (r *Run) Slice(v Value, k SliceKey) Value {
	switch v := v.(type) {
	case string:
		return r.SliceText(v, k)
	case Markup:
		return Markup(r.SliceText(string(v), k))
	case *Mixed:
		return r.sliceMixed(v, k)
	case *List:
		start, step, count := r.SliceRange(k, len(v.Items))
		if step == 1 {
			r.Charge(CostObject)
			return &List{Items: v.Items[start : start+count : start+count], Tuple: v.Tuple}
		}
		r.ChargeN(count, CostItem)
		items := make([]Value, count)
		for i := range items {
			items[i] = v.Items[start+i*step]
		}
		r.Charge(CostObject)
		return &List{Items: items, Tuple: v.Tuple}
	case *Range:
		start, step, count := r.SliceRange(k, v.Len())
		return &Range{v.Start + start*v.Step, v.Start + (start+count*step)*v.Step, v.Step * step}
	case *Undefined:
		r.Missing(v)
	case *Dict:
		r.TypeError("unhashable type: 'slice'")
	}
	r.TypeError("'%s' object is not subscriptable", TypeName(v))
	return nil
}
