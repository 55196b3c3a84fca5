package builtin

import (
	"ck/internal/template/value"
)

const maxRange = 100000 // items of a range, as in jinja2's sandbox

func init() {
	define(globalTable, "range / start stop? step?", func(r *Env, _ value.Value, a []value.Value) value.Value {
		g := &value.Range{Start: 0, Stop: r.IntArg(a[0]), Step: 1}
		if a[1] != absent {
			g.Start, g.Stop = g.Stop, r.IntArg(a[1])
		}
		if a[2] != absent {
			g.Step = r.IntArg(a[2])
		}
		if g.Step == 0 {
			r.Fail("ValueError", "range() arg 3 must not be zero")
		}
		if n := g.Len(); n > maxRange || n < 0 {
			r.Fail("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
		}
		r.Charge(value.CostObject)
		return g
	})
	DefineRaw(globalTable, "dict", (*Env).makeDict)
	DefineRaw(globalTable, "namespace", func(r *Env, _ value.Value, a Args) value.Value {
		return &value.Namespace{Attrs: r.makeDict(nil, a).(*value.Dict)}
	})
	DefineRaw(globalTable, "cycler", func(r *Env, _ value.Value, a Args) value.Value {
		if len(a.Pos) == 0 || len(a.Names) > 0 {
			r.Fail("RuntimeError", "at least one item has to be provided")
		}
		r.ChargeN(len(a.Pos)+2, value.CostItem)
		return &cycler{items: a.Pos}
	})
	define(globalTable, "joiner sep?", func(r *Env, _ value.Value, a []value.Value) value.Value {
		r.Charge(value.CostObject)
		return &joiner{sep: r.TextOf(opt(a[0], ", "))}
	})
	DefineRaw(globalTable, "lipsum", func(r *Env, _ value.Value, _ Args) value.Value {
		r.Fail("NotImplementedError", "lipsum makes random text; a chat template has no use for it")
		return nil
	})
	define(globalTable, "raise_exception message", func(r *Env, _ value.Value, a []value.Value) value.Value {
		panic(&Raised{r.Str(a[0])})
	})
	define(globalTable, "strftime_now format", func(r *Env, _ value.Value, a []value.Value) value.Value {
		return r.strftime(r.Now(), r.StrArg(a[0]))
	})
}

// makeDict is dict(mapping or pairs, **entries).
func (r *Env) makeDict(_ value.Value, a Args) value.Value {
	if len(a.Pos) > 1 {
		r.TypeError("dict expected at most 1 argument, got %d", len(a.Pos))
	}
	d := value.NewDict()
	r.Charge(value.CostObject)
	if len(a.Pos) == 1 {
		if src, ok := a.Pos[0].(*value.Dict); ok {
			for i, k := range src.Keys {
				r.Put(d, k, src.Vals[i])
			}
		} else {
			for _, item := range r.Items(a.Pos[0]) {
				kv := r.Items(item)
				if len(kv) != 2 {
					r.Fail("ValueError", "dictionary update sequence element has length %d; 2 is required", len(kv))
				}
				r.Put(d, kv[0], kv[1])
			}
		}
	}
	for i, name := range a.Names {
		r.Put(d, a.NameValue(name), a.Kw[i])
	}
	return d
}

// cycler gives its items in turn.
type cycler struct {
	items []value.Value
	pos   int
}

// TypeName is the name of its Python type.
func (c *cycler) TypeName() string { return "Cycler" }

// Repr is repr(c).
func (c *cycler) Repr() string { return "<Cycler>" }

// Attr is an attribute of a cycler.
func (c *cycler) Attr(name string) (value.Value, bool) {
	if name == "current" {
		return c.items[c.pos], true
	}
	return nil, false
}

// joiner is empty when it is called first, then its separator.
type joiner struct {
	sep  value.Value
	used bool
}

// TypeName is the name of its Python type.
func (j *joiner) TypeName() string { return "Joiner" }

// Repr is repr(j).
func (j *joiner) Repr() string { return "<Joiner>" }

// Call is the separator, but for the first call.
func (j *joiner) Call(*Env, Args) value.Value {
	if j.used {
		return j.sep
	}
	j.used = true
	return ""
}
