package template

const maxRange = 100000 // items of a range, as in jinja2's sandbox

func init() {
	define(globalTable, "range / start stop? step?", func(r *env, _ Value, a []Value) Value {
		g := &pyRange{0, r.intArg(a[0]), 1}
		if a[1] != absent {
			g.start, g.stop = g.stop, r.intArg(a[1])
		}
		if a[2] != absent {
			g.step = r.intArg(a[2])
		}
		if g.step == 0 {
			r.fail("ValueError", "range() arg 3 must not be zero")
		}
		if n := g.len(); n > maxRange || n < 0 {
			r.fail("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
		}
		r.charge(costObject)
		return g
	})
	defineRaw(globalTable, "dict", (*env).makeDict)
	defineRaw(globalTable, "namespace", func(r *env, _ Value, a args) Value {
		return &namespace{r.makeDict(nil, a).(*Dict)}
	})
	defineRaw(globalTable, "cycler", func(r *env, _ Value, a args) Value {
		if len(a.pos) == 0 || len(a.names) > 0 {
			r.fail("RuntimeError", "at least one item has to be provided")
		}
		r.chargeN(len(a.pos)+2, costItem)
		return &cycler{items: a.pos}
	})
	define(globalTable, "joiner sep?", func(r *env, _ Value, a []Value) Value {
		r.charge(costObject)
		return &joiner{sep: r.textOf(opt(a[0], ", "))}
	})
	defineRaw(globalTable, "lipsum", func(r *env, _ Value, _ args) Value {
		r.fail("NotImplementedError", "lipsum makes random text; a chat template has no use for it")
		return nil
	})
	define(globalTable, "raise_exception message", func(r *env, _ Value, a []Value) Value {
		panic(&raised{r.str(a[0])})
	})
	define(globalTable, "strftime_now format", func(r *env, _ Value, a []Value) Value {
		return r.strftime(r.now(), r.strArg(a[0]))
	})
}

// makeDict is dict(mapping or pairs, **entries).
func (r *env) makeDict(_ Value, a args) Value {
	if len(a.pos) > 1 {
		r.typeError("dict expected at most 1 argument, got %d", len(a.pos))
	}
	d := NewDict()
	r.charge(costObject)
	if len(a.pos) == 1 {
		if src, ok := a.pos[0].(*Dict); ok {
			for i, k := range src.keys {
				r.put(d, k, src.vals[i])
			}
		} else {
			for _, item := range r.items(a.pos[0]) {
				kv := r.items(item)
				if len(kv) != 2 {
					r.fail("ValueError", "dictionary update sequence element has length %d; 2 is required", len(kv))
				}
				r.put(d, kv[0], kv[1])
			}
		}
	}
	for i, name := range a.names {
		r.put(d, a.nameValue(name), a.kw[i])
	}
	return d
}

// cycler gives its items in turn.
type cycler struct {
	items []Value
	pos   int
}

// TypeName is the name of its Python type.
func (c *cycler) TypeName() string { return "Cycler" }

// Repr is repr(c).
func (c *cycler) Repr() string { return "<Cycler>" }

// Attr is an attribute of a cycler.
func (c *cycler) Attr(name string) (Value, bool) {
	if name == "current" {
		return c.items[c.pos], true
	}
	return nil, false
}

// joiner is empty when it is called first, then its separator.
type joiner struct {
	sep  Value
	used bool
}

// TypeName is the name of its Python type.
func (j *joiner) TypeName() string { return "Joiner" }

// Repr is repr(j).
func (j *joiner) Repr() string { return "<Joiner>" }

// Call is the separator, but for the first call.
func (j *joiner) Call(*env, args) Value {
	if j.used {
		return j.sep
	}
	j.used = true
	return ""
}
