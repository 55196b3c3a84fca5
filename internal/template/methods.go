package template

func init() {
	table := func(kind string) map[string]*builtin {
		methodTable[kind] = map[string]*builtin{}
		return methodTable[kind]
	}
	strMethods(table("str"))

	dict := table("dict")
	define(dict, "get / key default?", func(r *env, v Value, a []Value) Value {
		d := v.(*Dict)
		if i := d.find(r.hashable(a[0])); i >= 0 {
			return d.vals[i]
		}
		return opt(a[1], nil)
	})
	for _, kind := range []string{"keys", "values", "items"} {
		define(dict, kind, func(r *env, v Value, _ []Value) Value {
			r.charge(costObject)
			return &view{v.(*Dict), kind}
		})
	}
	define(dict, "copy", func(_ *env, v Value, _ []Value) Value { return v })

	for _, kind := range []string{"list", "tuple", "range"} {
		t := table(kind)
		define(t, "count / value", func(r *env, v Value, a []Value) Value {
			n := 0
			for _, x := range r.items(v) {
				n += boolInt(r.equalItem(x, a[0], 0))
			}
			return n
		})
		define(t, "index / value start? stop?", func(r *env, v Value, a []Value) Value {
			items := r.items(v)
			from, _, count := r.sliceRange(sliceKey{opt(a[1], nil), opt(a[2], nil), nil}, len(items))
			for i, x := range items[from : from+count] {
				if r.equalItem(x, a[0], 0) {
					return from + i
				}
			}
			r.fail("ValueError", "the value is not in the %s", kind)
			return nil
		})
	}
	define(methodTable["list"], "copy", func(_ *env, v Value, _ []Value) Value { return v })

	define(table("float"), "is_integer", func(r *env, v Value, _ []Value) Value {
		return r.equal(r.arith("%", v, 1), 0)
	})
	define(table("int"), "bit_length", func(_ *env, v Value, _ []Value) Value {
		n, _ := number(v)
		return toBig(n).BitLen()
	})

	cy := table("cycler")
	define(cy, "next", func(_ *env, v Value, _ []Value) Value {
		c := v.(*cycler)
		x := c.items[c.pos]
		c.pos = (c.pos + 1) % len(c.items)
		return x
	})
	define(cy, "reset", func(_ *env, v Value, _ []Value) Value {
		v.(*cycler).pos = 0
		return nil
	})
}
