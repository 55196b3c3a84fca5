package template

import (
	"math/big"
)

// The tests that follow "is".
func init() {
	is := func(name string, f func(r *env, v Value) bool) {
		define(testTable, name, func(r *env, v Value, _ []Value) Value { return f(r, v) })
	}
	is("defined", func(_ *env, v Value) bool { _, ok := v.(*Undefined); return !ok })
	is("undefined", func(_ *env, v Value) bool { _, ok := v.(*Undefined); return ok })
	is("none", func(_ *env, v Value) bool { return v == nil })
	is("boolean", func(_ *env, v Value) bool { _, ok := v.(bool); return ok })
	is("true", func(_ *env, v Value) bool { return v == true })
	is("false", func(_ *env, v Value) bool { return v == false })
	is("integer", func(_ *env, v Value) bool { return typeName(v) == "int" })
	is("float", func(_ *env, v Value) bool { _, ok := v.(float64); return ok })
	is("number", func(_ *env, v Value) bool { return isNumber(v) })
	is("string", func(_ *env, v Value) bool { _, ok := plainText(v); return ok })
	is("mapping", func(_ *env, v Value) bool { _, ok := v.(*Dict); return ok })
	is("sequence", func(_ *env, v Value) bool {
		_, isView := v.(*view)
		return isSequence(v) && !isView
	})
	is("iterable", func(r *env, v Value) bool { _, ok := r.tryIterate(v); return ok })
	is("callable", func(_ *env, v Value) bool {
		switch v.(type) {
		case callable, *Undefined:
			return true
		}
		return false
	})
	is("escaped", func(_ *env, v Value) bool { return isMarkup(v) })
	for _, name := range []string{"lower", "upper"} {
		is(name, func(r *env, v Value) bool {
			s := r.str(v)
			r.scan(len(s))
			return isCase(s, name == "upper")
		})
	}
	is("odd", func(r *env, v Value) bool { return r.equal(r.binary("%", v, 2), 1) })
	is("even", func(r *env, v Value) bool { return r.equal(r.binary("%", v, 2), 0) })
	is("filter", func(r *env, v Value) bool { return filterTable[r.str(v)] != nil })
	is("test", func(r *env, v Value) bool { return testTable[r.str(v)] != nil })

	define(testTable, "divisibleby num", func(r *env, v Value, a []Value) Value {
		return r.equal(r.binary("%", v, a[0]), 0)
	})
	define(testTable, "sameas other", func(_ *env, v Value, a []Value) Value { return same(v, a[0]) })
	define(testTable, "in seq", func(r *env, v Value, a []Value) Value { return r.contains(a[0], v) })
	for names, op := range map[string]string{"==|eq|equalto": "==", "!=|ne": "!=", ">|gt|greaterthan": ">", ">=|ge": ">=",
		"<|lt|lessthan": "<", "<=|le": "<="} {
		define(testTable, names+" other", func(r *env, v Value, a []Value) Value { return r.compareOp(op, v, a[0]) })
	}
}

// fresh is an object that is made anew at each look: it is never the same as another.
type fresh interface{ Fresh() }

// same reports whether a and b are one object; equal numbers and strings of one type count as one.
func same(a, b Value) bool {
	if x, ok := a.(*big.Int); ok {
		y, ok := b.(*big.Int)
		return ok && x.Cmp(y) == 0
	}
	if _, ok := a.(fresh); ok {
		return false
	}
	if s, ok := a.(*mixed); ok {
		t, isText := plainText(b)
		return isText && s.s == t && s.markup == isMarkup(b)
	}
	if _, ok := b.(*mixed); ok {
		return same(b, a)
	}
	return a == b
}
