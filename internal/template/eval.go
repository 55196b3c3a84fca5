package template

func (r *state) eval(x expr) Value {
	r.step(1)
	r.enter()
	v := r.node(x)
	r.leave()
	return v
}

// node is the value of an expression.
func (r *state) node(x expr) Value {
	switch x := x.(type) {
	case *constExpr:
		return x.v
	case *nameExpr:
		r.line = x.line
		return r.lookup(x.name)
	case *listExpr:
		return r.evalList(x.items, x.tuple)
	case *dictExpr:
		return r.evalDict(x)
	case *unaryExpr:
		v := r.eval(x.x)
		r.line = x.line
		return r.unary(x.op, v)
	case *binExpr:
		a, b := r.eval(x.l), r.eval(x.r)
		r.line = x.line
		return r.binary(x.op, a, b)
	case *notExpr:
		return !r.truth(r.eval(x.x))
	case *andExpr:
		if v := r.eval(x.l); !r.truth(v) {
			return v
		}
		return r.eval(x.r)
	case *orExpr:
		if v := r.eval(x.l); r.truth(v) {
			return v
		}
		return r.eval(x.r)
	case *condExpr:
		return r.cond(x)
	case *compareExpr:
		return r.compareChain(x)
	case *concatExpr:
		return r.concat(x)
	case *attrExpr:
		v := r.eval(x.x)
		r.line = x.line
		return r.attr(v, x.name)
	case *indexExpr:
		v, k := r.eval(x.x), r.eval(x.key)
		r.line = x.line
		return r.item(v, k)
	case *sliceExpr:
		v, k := r.eval(x.x), sliceKey{r.evalPart(x.start), r.evalPart(x.stop), r.evalPart(x.step)}
		r.line = x.line
		return r.slice(v, k)
	case *callExpr:
		fn, a := r.eval(x.fn), r.args(&x.args)
		r.line = x.line
		return r.call(fn, a)
	case *filterExpr:
		return r.apply("filter", x.x, x.name, x.def, &x.args, x.line)
	case *testExpr:
		return r.apply("test", x.x, x.name, x.def, &x.args, x.line)
	}
	return r.bodyText(x.(*bodyExpr).body)
}

// bodyText is the text of a body with variables of its own.
func (r *state) bodyText(body []stmt) Value {
	return r.capture(func() flow {
		return r.inScope(r.scope, func() flow { return r.body(body) })
	})
}

// lookup is the value of a variable, a global function, or undefined.
func (r *state) lookup(name string) Value {
	for s := r.scope; s != nil; s = s.parent {
		if i := s.find(name); i >= 0 {
			return s.vals[i]
		}
	}
	if f := globalTable[name]; f != nil {
		return &function{f}
	}
	if name == "self" {
		return selfRef{r}
	}
	return r.undefined("'%s' is undefined", name)
}

func (r *state) evalAll(xs []expr) []Value {
	vals := make([]Value, len(xs))
	for i, x := range xs {
		vals[i] = r.eval(x)
	}
	return vals
}

// evalPart is nil for a part of a slice that was left out.
func (r *state) evalPart(x expr) Value {
	if x == nil {
		return nil
	}
	return r.eval(x)
}

func (r *state) evalList(items []expr, tuple bool) Value {
	r.chargeN(len(items), costItem)
	l := &List{items: r.evalAll(items), tuple: tuple}
	r.charge(costObject)
	return l
}

func (r *state) evalDict(x *dictExpr) Value {
	d := NewDict()
	r.charge(costObject)
	for i := range x.keys {
		k := r.eval(x.keys[i])
		v := r.eval(x.vals[i])
		r.line = x.line
		r.put(d, k, v)
	}
	return d
}

func (r *state) cond(x *condExpr) Value {
	if r.truth(r.eval(x.cond)) {
		return r.eval(x.yes)
	}
	if x.no == nil {
		return r.undefined("the inline if-expression on line %d evaluated to false and no else section was defined.", x.line)
	}
	return r.eval(x.no)
}

func (r *state) compareChain(x *compareExpr) Value {
	a := r.eval(x.first)
	for i, op := range x.ops {
		b := r.eval(x.args[i])
		r.line = x.line
		if !r.compareOp(op, a, b) {
			return false
		}
		a = b
	}
	return true
}

func (r *state) concat(x *concatExpr) Value {
	var b blend
	for _, p := range x.parts {
		v := r.textOf(r.eval(p))
		s, _ := plainText(v)
		r.charge(2 * len(s))
		b.add(v)
	}
	return b.value(false)
}

// apply applies a filter or test to x; def is what the parser got for its name.
func (r *state) apply(what string, x expr, name string, def any, given *callArgs, line int) Value {
	v := r.eval(x)
	a := r.args(given)
	r.line = line
	b, ok := def.(*builtin)
	if !ok {
		r.fail("TemplateRuntimeError", "no %s named '%s'", what, name)
	}
	return b.invoke(&r.env, v, a)
}

// args evaluates the arguments of a call.
func (r *state) args(a *callArgs) args {
	out := args{pos: r.evalAll(a.pos), names: a.names, kw: r.evalAll(a.kw)}
	if a.star != nil {
		out.pos = append(out.pos, r.items(r.eval(a.star))...)
	}
	if a.dstar != nil {
		v := r.eval(a.dstar)
		d, ok := v.(*Dict)
		if !ok {
			r.typeError("argument after ** must be a mapping, not %s", typeName(v))
		}
		out.names = append([]string{}, out.names...)
		for i, k := range d.keys {
			name, ok := plainText(k)
			if !ok {
				r.typeError("keywords must be strings")
			}
			if _, ok := k.(*mixed); ok {
				out.alien = true
			}
			r.charge(costItem)
			out.names, out.kw = append(out.names, name), append(out.kw, d.vals[i])
		}
	}
	return out
}

// call is fn(a).
func (r *state) call(fn Value, a args) Value {
	switch fn := fn.(type) {
	case callable:
		return fn.Call(&r.env, a)
	case *Undefined:
		r.missing(fn)
	}
	r.typeError("'%s' object is not callable", typeName(fn))
	return nil
}
