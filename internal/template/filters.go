package template

func init() {
	textFilters()
	numberFilters()
	listFilters()
	define(filterTable, "length|count", func(r *env, v Value, _ []Value) Value {
		n, ok := r.length(v)
		if !ok {
			r.typeError("object of type '%s' has no len()", typeName(v))
		}
		return n
	})
	define(filterTable, "default|d default_value? boolean?", func(r *env, v Value, a []Value) Value {
		if _, ok := v.(*Undefined); ok || r.truth(opt(a[1], false)) && !r.truth(v) {
			return opt(a[0], "")
		}
		return v
	})
}
