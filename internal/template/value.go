package template

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Value is a value of a template: nil (None), bool, int, *big.Int (integers beyond int), float64, string, *List, *Dict, and the
// types that only templates make (Undefined, Markup, ranges, macros, ...).
type Value = any

// Vars are the variables given to a rendering. []Value is accepted for a list, at any depth that NewList and Dict.Set reach.
type Vars map[string]Value

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

// Items are the items, for reading.
func (l *List) Items() []Value { return l.items }

// Dict is a dict, in order of insertion.
type Dict struct {
	keys, vals []Value
	index      map[any]int // from dictKey to position; nil while the dict is small
}

// NewDict makes an empty dict.
func NewDict() *Dict { return &Dict{} }

const smallDict = 8

// Set sets key's value and returns d. Keys given from Go are strings; numbers, None and tuples appear in templates only.
func (d *Dict) Set(key string, v Value) *Dict {
	d.set(key, key, v)
	return d
}

// Get is the value of a key.
func (d *Dict) Get(key string) (Value, bool) {
	if i := d.find(key); i >= 0 {
		return d.vals[i], true
	}
	return nil, false
}

// Keys are the keys that are strings, in order.
func (d *Dict) Keys() (keys []string) {
	for _, k := range d.keys {
		if s, ok := k.(string); ok {
			keys = append(keys, s)
		}
	}
	return keys
}

// Len is the number of entries.
func (d *Dict) Len() int { return len(d.keys) }

// set sets the entry of which k is the dictKey.
func (d *Dict) set(k any, key, v Value) {
	if i := d.find(k); i >= 0 {
		d.vals[i] = v
		return
	}
	d.keys, d.vals = append(d.keys, key), append(d.vals, v)
	if d.index != nil {
		d.index[k] = len(d.keys) - 1
	} else if len(d.keys) > smallDict {
		d.index = make(map[any]int, 2*len(d.keys))
		for i, key := range d.keys {
			k, _ := dictKey(key)
			d.index[k] = i
		}
	}
}

// find is the position of the entry with dictKey k, or -1.
func (d *Dict) find(k any) int {
	if d.index != nil {
		if i, ok := d.index[k]; ok {
			return i
		}
		return -1
	}
	for i, key := range d.keys {
		if s, ok := key.(string); ok {
			if s == k {
				return i
			}
		} else if other, _ := dictKey(key); other == k {
			return i
		}
	}
	return -1
}

type (
	noneKey  struct{}
	bigKey   string
	tupleKey string
)

// dictKey is a Go map key that is equal for values that are equal as Python's dict keys (1, 1.0 and True are). ok is false for
// values that cannot be keys, and for tuples beyond a sane size.
func dictKey(v Value) (k any, ok bool) {
	switch v := v.(type) {
	case string, int:
		return v, true
	case Markup:
		return string(v), true
	case *mixed:
		return v.s, true
	case nil:
		return noneKey{}, true
	case bool:
		return boolInt(v), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int(v), true
		}
		return v, true
	case *big.Int:
		return bigKey(string(v.Bytes()) + string(rune('0'+v.Sign()))), true
	case *List:
		if !v.tuple {
			return nil, false
		}
		b, ok := tupleBytes(nil, v, 0)
		return tupleKey(b), ok
	case *Dict, *view:
		return nil, false
	case *Undefined:
		return (*Undefined)(nil), true
	}
	return v, true
}

func tupleBytes(b []byte, l *List, depth int) ([]byte, bool) {
	if depth > maxValueNest || len(b) > 1<<16 {
		return b, false
	}
	b = append(b, '(')
	for _, item := range l.items {
		if t, ok := item.(*List); ok && t.tuple {
			if b, ok = tupleBytes(b, t, depth+1); !ok {
				return b, false
			}
			continue
		}
		k, ok := dictKey(item)
		s, kind := "", "o"
		switch k := k.(type) {
		case string:
			s, kind = k, "s"
		case int:
			s, kind = strconv.Itoa(k), "i"
		case float64:
			s, kind = strconv.FormatFloat(k, 'g', -1, 64), "f"
		case bigKey:
			s, kind = string(k), "b"
		case noneKey:
		default: // identity cannot be written down
			return b, false
		}
		b = append(append(strconv.AppendInt(append(b, kind...), int64(len(s)), 10), ':'), s...)
		if !ok || len(b) > 1<<16 {
			return b, false
		}
	}
	return append(b, ')'), true
}

// key is the dictKey of v, the work of hashing it counted.
func (r *state) key(v Value) (any, bool) {
	if s, ok := plainText(v); ok {
		r.scan(len(s))
	}
	return dictKey(v)
}

// hashable is the dictKey of v, or an error.
func (r *state) hashable(v Value) any {
	k, ok := r.key(v)
	if !ok {
		r.typeError("unhashable type: '%s'", typeName(v))
	}
	return k
}

func (r *state) put(d *Dict, key, v Value) {
	r.charge(costEntry)
	d.set(r.hashable(key), key, v)
}

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
	// function is a global function; boundMethod a method of a value.
	function    struct{ f *builtin }
	boundMethod struct {
		recv Value
		f    *builtin
	}
	macro struct {
		def    *macroDef
		scope  *scope
		caller bool // the body of a call block
	}
	cycler struct {
		items []Value
		pos   int
	}
	joiner struct {
		sep  Value
		used bool
	}
	// selfRef is "self", whose attributes are the template's blocks.
	selfRef  struct{}
	blockRef struct{ b *blockStmt }
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

func (v *view) at(r *state, i int) Value {
	switch v.kind {
	case "keys":
		return v.d.keys[i]
	case "values":
		return v.d.vals[i]
	}
	return r.pair(v.d.keys[i], v.d.vals[i])
}

func (r *state) list(items []Value) *List {
	r.chargeN(len(items), costItem)
	r.charge(costObject)
	return &List{items: items}
}

func (r *state) tuple(items []Value) *List {
	l := r.list(items)
	l.tuple = true
	return l
}

func (r *state) pair(a, b Value) *List { return r.tuple([]Value{a, b}) }

func (r *state) undefined(format string, args ...any) *Undefined {
	return &Undefined{msg: fmt.Sprintf(format, args...)}
}

// missing ends the rendering because u was used.
func (r *state) missing(u *Undefined) {
	if u.kind != "" {
		r.fail(u.kind, "%s", u.msg)
	}
	r.fail("UndefinedError", "%s", u.msg)
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
	case *loop:
		return "LoopContext"
	case *macro:
		return "Macro"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	case *function:
		return "function"
	case *boundMethod:
		return "builtin_function_or_method"
	case sliceKey:
		return "slice"
	}
	return "object"
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (r *state) truth(v Value) bool {
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
func (r *state) length(v Value) (n int, ok bool) {
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
	case *loop:
		return v.length(r), true
	}
	return 0, false
}

// iterator reads a sequence item by item: from items, or from gen if that is not nil.
type iterator struct {
	items []Value
	gen   func() (Value, bool)
	depth int // generators that this one reads from
}

func (it *iterator) next(r *state) (Value, bool) {
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
func (r *state) iterate(v Value) *iterator {
	it, ok := r.tryIterate(v)
	if !ok {
		r.typeError("'%s' object is not iterable", typeName(v))
	}
	return it
}

func (r *state) tryIterate(v Value) (*iterator, bool) {
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
func (r *state) items(v Value) []Value {
	if l, ok := v.(*List); ok {
		return l.items
	}
	it := r.iterate(v)
	if it.gen == nil {
		items := it.items
		it.items = nil
		return items
	}
	var items []Value
	for {
		item, ok := it.next(r)
		if !ok {
			return items
		}
		r.charge(costItem)
		r.step(1)
		items = append(items, item)
	}
}

// lazily is an iterator over v that turns to v when its first item is asked for, as Python's generators do.
func (r *state) lazily(v Value) *iterator {
	if g, ok := v.(*generator); ok {
		return g.iterator
	}
	var it *iterator
	return &iterator{gen: func() (Value, bool) {
		if it == nil {
			it = r.iterate(v)
		}
		return it.next(r)
	}}
}

// generate makes a generator; gen reads from src, which may be nil.
func (r *state) generate(name string, src *iterator, gen func() (Value, bool)) *generator {
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

// equal is a == b of Python.
func (r *state) equal(a, b Value) bool { return r.equalAt(a, b, 0) }

func (r *state) equalAt(a, b Value, depth int) bool {
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
	case nil:
		return b == nil
	case *List:
		b, ok := b.(*List)
		if !ok || a.tuple != b.tuple || len(a.items) != len(b.items) {
			return false
		}
		for i := range a.items {
			if !r.equalItem(a.items[i], b.items[i], depth) {
				return false
			}
		}
		return true
	case *Dict:
		b, ok := b.(*Dict)
		if !ok || a.Len() != b.Len() {
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

// equalItem compares items of containers: the same object is equal to itself, as in Python.
func (r *state) equalItem(a, b Value, depth int) bool {
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
func (r *state) nest(depth int) {
	if depth > maxValueNest {
		r.fail("LimitError", "value nested deeper than %d", maxValueNest)
	}
}

// unordered is the result of a comparison with NaN.
const unordered = 2

// compare orders two values as Python's < does: -1, 0, 1 or unordered; op names the operator for the error of values without an
// order.
func (r *state) compare(a, b Value, op string) int { return r.compareAt(a, b, op, 0) }

func (r *state) compareAt(a, b Value, op string, depth int) int {
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
	for _, v := range []Value{a, b} {
		if u, ok := v.(*Undefined); ok {
			r.missing(u)
		}
	}
	if x, ok := a.(*List); ok {
		if y, ok := b.(*List); ok && x.tuple == y.tuple {
			for i := range x.items {
				if i >= len(y.items) {
					break
				}
				if !r.equalItem(x.items[i], y.items[i], depth) {
					return r.compareAt(x.items[i], y.items[i], op, depth+1)
				}
			}
			return cmp.Compare(len(x.items), len(y.items))
		}
	}
	r.typeError("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	return 0
}

// contains is "item in v".
func (r *state) contains(v, item Value) bool {
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
		x, ok := it.next(r)
		if !ok {
			return false
		}
		if r.equalItem(x, item, 0) {
			return true
		}
	}
}

// normalize turns a value from Go into one of the engine's own and adds up its size in bytes.
func normalize(v Value, size *int, depth int) Value {
	*size += 16
	if depth > maxValueNest {
		failAt(0, "LimitError", "variable nested deeper than %d", maxValueNest)
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
		failAt(0, "TypeError", "variable of Go type %T, which templates do not know", v)
	}
	return v
}
