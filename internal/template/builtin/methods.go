package builtin

import (
	"ck/internal/template/value"
)

func init() {
	table := func(kind string) map[string]*Func {
		methodTable[kind] = map[string]*Func{}
		return methodTable[kind]
	}
	strMethods(table("str"))

	dict := table("dict")
	define(dict, "get / key default?", func(r *Env, v value.Value, a []value.Value) value.Value {
		d := v.(*value.Dict)
		if i := d.Find(r.Hashable(a[0])); i >= 0 {
			return d.Vals[i]
		}
		return opt(a[1], nil)
	})
	for _, kind := range []string{"keys", "values", "items"} {
		define(dict, kind, func(r *Env, v value.Value, _ []value.Value) value.Value {
			r.Charge(value.CostObject)
			return &value.View{D: v.(*value.Dict), Kind: kind}
		})
	}
	define(dict, "copy", func(_ *Env, v value.Value, _ []value.Value) value.Value { return v })

	for _, kind := range []string{"list", "tuple", "range"} {
		t := table(kind)
		define(t, "count / value", func(r *Env, v value.Value, a []value.Value) value.Value {
			n := 0
			for _, x := range r.Items(v) {
				n += value.BoolInt(r.EqualItem(x, a[0], 0))
			}
			return n
		})
		define(t, "index / value start? stop?", func(r *Env, v value.Value, a []value.Value) value.Value {
			items := r.Items(v)
			from, _, count := r.SliceRange(value.SliceKey{Start: opt(a[1], nil), Stop: opt(a[2], nil), Step: nil}, len(items))
			for i, x := range items[from : from+count] {
				if r.EqualItem(x, a[0], 0) {
					return from + i
				}
			}
			r.Fail("ValueError", "the value is not in the %s", kind)
			return nil
		})
	}
	define(methodTable["list"], "copy", func(_ *Env, v value.Value, _ []value.Value) value.Value { return v })

	define(table("float"), "is_integer", func(r *Env, v value.Value, _ []value.Value) value.Value {
		return r.Equal(r.Arith("%", v, 1), 0)
	})
	define(table("int"), "bit_length", func(_ *Env, v value.Value, _ []value.Value) value.Value {
		n, _ := value.Number(v)
		return value.ToBig(n).BitLen()
	})

	cy := table("cycler")
	define(cy, "next", func(_ *Env, v value.Value, _ []value.Value) value.Value {
		c := v.(*cycler)
		x := c.items[c.pos]
		c.pos = (c.pos + 1) % len(c.items)
		return x
	})
	define(cy, "reset", func(_ *Env, v value.Value, _ []value.Value) value.Value {
		v.(*cycler).pos = 0
		return nil
	})
}
