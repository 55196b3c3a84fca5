package builtin

import (
	"math/big"

	"ck/internal/template/pystr"
	"ck/internal/template/value"
)

// The tests that follow "is".
func init() {
	is := func(name string, f func(r *Env, v value.Value) bool) {
		define(testTable, name, func(r *Env, v value.Value, _ []value.Value) value.Value { return f(r, v) })
	}
	is("defined", func(_ *Env, v value.Value) bool { _, ok := v.(*value.Undefined); return !ok })
	is("undefined", func(_ *Env, v value.Value) bool { _, ok := v.(*value.Undefined); return ok })
	is("none", func(_ *Env, v value.Value) bool { return v == nil })
	is("boolean", func(_ *Env, v value.Value) bool { _, ok := v.(bool); return ok })
	is("true", func(_ *Env, v value.Value) bool { return v == true })
	is("false", func(_ *Env, v value.Value) bool { return v == false })
	is("integer", func(_ *Env, v value.Value) bool { return value.TypeName(v) == "int" })
	is("float", func(_ *Env, v value.Value) bool { _, ok := v.(float64); return ok })
	is("number", func(_ *Env, v value.Value) bool { return value.IsNumber(v) })
	is("string", func(_ *Env, v value.Value) bool { _, ok := value.PlainText(v); return ok })
	is("mapping", func(_ *Env, v value.Value) bool { _, ok := v.(*value.Dict); return ok })
	is("sequence", func(_ *Env, v value.Value) bool {
		_, isView := v.(*value.View)
		return isSequence(v) && !isView
	})
	is("iterable", func(r *Env, v value.Value) bool { _, ok := r.TryIterate(v); return ok })
	is("callable", func(_ *Env, v value.Value) bool {
		switch v.(type) {
		case Callable, *value.Undefined:
			return true
		}
		return false
	})
	is("escaped", func(_ *Env, v value.Value) bool { return value.IsMarkup(v) })
	for _, name := range []string{"lower", "upper"} {
		is(name, func(r *Env, v value.Value) bool {
			s := r.Str(v)
			r.Scan(len(s))
			return pystr.IsCase(s, name == "upper")
		})
	}
	is("odd", func(r *Env, v value.Value) bool { return r.Equal(r.Binary("%", v, 2), 1) })
	is("even", func(r *Env, v value.Value) bool { return r.Equal(r.Binary("%", v, 2), 0) })
	is("filter", func(r *Env, v value.Value) bool { return filterTable[r.Str(v)] != nil })
	is("test", func(r *Env, v value.Value) bool { return testTable[r.Str(v)] != nil })

	define(testTable, "divisibleby num", func(r *Env, v value.Value, a []value.Value) value.Value {
		return r.Equal(r.Binary("%", v, a[0]), 0)
	})
	define(testTable, "sameas other", func(_ *Env, v value.Value, a []value.Value) value.Value { return same(v, a[0]) })
	define(testTable, "in seq", func(r *Env, v value.Value, a []value.Value) value.Value { return r.Contains(a[0], v) })
	for names, op := range map[string]string{"==|eq|equalto": "==", "!=|ne": "!=", ">|gt|greaterthan": ">",
		">=|ge":         ">=",
		"<|lt|lessthan": "<", "<=|le": "<="} {
		define(testTable, names+" other", func(r *Env, v value.Value, a []value.Value) value.Value {
			return r.CompareOp(op, v, a[0])
		})
	}
}

// fresh is an object that is made anew at each look: it is never the same as another.
type fresh interface{ Fresh() }

// same reports whether a and b are one object; equal numbers and strings of one type count as one.
func same(a, b value.Value) bool {
	if x, ok := a.(*big.Int); ok {
		y, ok := b.(*big.Int)
		return ok && x.Cmp(y) == 0
	}
	if _, ok := a.(fresh); ok {
		return false
	}
	if s, ok := a.(*value.Mixed); ok {
		t, isText := value.PlainText(b)
		return isText && s.S == t && s.Markup == value.IsMarkup(b)
	}
	if _, ok := b.(*value.Mixed); ok {
		return same(b, a)
	}
	return a == b
}
