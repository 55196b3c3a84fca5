package builtin

import (
	"ck/internal/template/value"
)

func init() {
	textFilters()
	numberFilters()
	listFilters()
	define(filterTable, "length|count", func(r *Env, v value.Value, _ []value.Value) value.Value {
		n, ok := r.Length(v)
		if !ok {
			r.TypeError("object of type '%s' has no len()", value.TypeName(v))
		}
		return n
	})
	define(filterTable, "default|d default_value? boolean?", func(r *Env, v value.Value, a []value.Value) value.Value {
		if _, ok := v.(*value.Undefined); ok || r.Truth(opt(a[1], false)) && !r.Truth(v) {
			return opt(a[0], "")
		}
		return v
	})
}
