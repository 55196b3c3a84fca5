package template

import (
	"ck/internal/template/builtin"
	"ck/internal/template/syntax"
	"ck/internal/template/value"
)

func (r *state) eval(x syntax.Expr) value.Value {
	r.Step(1)
	r.Enter()
	v := r.node(x)
	r.Leave()
	return v
}

// node is the value of an expression.
func (r *state) node(x syntax.Expr) value.Value {
	switch x := x.(type) {
	case *syntax.ConstExpr:
		return x.V
	case *syntax.NameExpr:
		r.line = x.Line
		return r.lookup(x.Name)
	case *syntax.ListExpr:
		return r.evalList(x.Items, x.Tuple)
	case *syntax.DictExpr:
		return r.evalDict(x)
	case *syntax.UnaryExpr:
		v := r.eval(x.X)
		r.line = x.Line
		return r.Unary(x.Op, v)
	case *syntax.BinExpr:
		a, b := r.eval(x.L), r.eval(x.R)
		r.line = x.Line
		return r.Binary(x.Op, a, b)
	case *syntax.NotExpr:
		return !r.Truth(r.eval(x.X))
	case *syntax.AndExpr:
		if v := r.eval(x.L); !r.Truth(v) {
			return v
		}
		return r.eval(x.R)
	case *syntax.OrExpr:
		if v := r.eval(x.L); r.Truth(v) {
			return v
		}
		return r.eval(x.R)
	case *syntax.CondExpr:
		return r.cond(x)
	case *syntax.CompareExpr:
		return r.compareChain(x)
	case *syntax.ConcatExpr:
		return r.concat(x)
	case *syntax.AttrExpr:
		v := r.eval(x.X)
		r.line = x.Line
		return r.Attr(v, x.Name)
	case *syntax.IndexExpr:
		v, k := r.eval(x.X), r.eval(x.Key)
		r.line = x.Line
		return r.Item(v, k)
	case *syntax.SliceExpr:
		v, k := r.eval(x.X), value.SliceKey{Start: r.evalPart(x.Start), Stop: r.evalPart(x.Stop), Step: r.evalPart(x.Step)}
		r.line = x.Line
		return r.Slice(v, k)
	case *syntax.CallExpr:
		fn, a := r.eval(x.Fn), r.args(&x.Args)
		r.line = x.Line
		return r.call(fn, a)
	case *syntax.FilterExpr:
		return r.apply("filter", x.X, x.Name, x.Def, &x.Args, x.Line)
	case *syntax.TestExpr:
		return r.apply("test", x.X, x.Name, x.Def, &x.Args, x.Line)
	}
	return r.bodyText(x.(*syntax.BodyExpr).Body)
}

// bodyText is the text of a body with variables of its own.
func (r *state) bodyText(body []syntax.Stmt) value.Value {
	return r.capture(func() flow {
		return r.inScope(r.scope, func() flow { return r.body(body) })
	})
}

// lookup is the value of a variable, a global function, or undefined.
func (r *state) lookup(name string) value.Value {
	for s := r.scope; s != nil; s = s.parent {
		if i := s.find(name); i >= 0 {
			return s.vals[i]
		}
	}
	if f := builtin.Global(name); f != nil {
		return &builtin.Function{F: f}
	}
	if name == "self" {
		return selfRef{r}
	}
	return r.Undefined("'%s' is undefined", name)
}

func (r *state) evalAll(xs []syntax.Expr) []value.Value {
	vals := make([]value.Value, len(xs))
	for i, x := range xs {
		vals[i] = r.eval(x)
	}
	return vals
}

// evalPart is nil for a part of a slice that was left out.
func (r *state) evalPart(x syntax.Expr) value.Value {
	if x == nil {
		return nil
	}
	return r.eval(x)
}

func (r *state) evalList(items []syntax.Expr, tuple bool) value.Value {
	r.ChargeN(len(items), value.CostItem)
	l := &value.List{Items: r.evalAll(items), Tuple: tuple}
	r.Charge(value.CostObject)
	return l
}

func (r *state) evalDict(x *syntax.DictExpr) value.Value {
	d := value.NewDict()
	r.Charge(value.CostObject)
	for i := range x.Keys {
		k := r.eval(x.Keys[i])
		v := r.eval(x.Vals[i])
		r.line = x.Line
		r.Put(d, k, v)
	}
	return d
}

func (r *state) cond(x *syntax.CondExpr) value.Value {
	if r.Truth(r.eval(x.Cond)) {
		return r.eval(x.Yes)
	}
	if x.No == nil {
		return r.Undefined("the inline if-expression on line %d evaluated to false and no else section was defined.",
			x.Line)
	}
	return r.eval(x.No)
}

func (r *state) compareChain(x *syntax.CompareExpr) value.Value {
	a := r.eval(x.First)
	for i, op := range x.Ops {
		b := r.eval(x.Args[i])
		r.line = x.Line
		if !r.CompareOp(op, a, b) {
			return false
		}
		a = b
	}
	return true
}

func (r *state) concat(x *syntax.ConcatExpr) value.Value {
	var b value.Blend
	for _, p := range x.Parts {
		v := r.TextOf(r.eval(p))
		s, _ := value.PlainText(v)
		r.Charge(2 * len(s))
		b.Add(v)
	}
	return b.Value(false)
}

// apply applies a filter or test to x; def is what the parser got for its name.
func (r *state) apply(
	what string, x syntax.Expr, name string, def any, given *syntax.CallArgs, line int,
) value.Value {
	v := r.eval(x)
	a := r.args(given)
	r.line = line
	b, ok := def.(*builtin.Func)
	if !ok {
		r.Fail("TemplateRuntimeError", "no %s named '%s'", what, name)
	}
	return b.Invoke(&r.Env, v, a)
}

// args evaluates the arguments of a call.
func (r *state) args(a *syntax.CallArgs) builtin.Args {
	out := builtin.Args{Pos: r.evalAll(a.Pos), Names: a.Names, Kw: r.evalAll(a.Kw)}
	if a.Star != nil {
		out.Pos = append(out.Pos, r.Items(r.eval(a.Star))...)
	}
	if a.Dstar != nil {
		v := r.eval(a.Dstar)
		d, ok := v.(*value.Dict)
		if !ok {
			r.TypeError("argument after ** must be a mapping, not %s", value.TypeName(v))
		}
		out.Names = append([]string{}, out.Names...)
		for i, k := range d.Keys {
			name, ok := value.PlainText(k)
			if !ok {
				r.TypeError("keywords must be strings")
			}
			if _, ok := k.(*value.Mixed); ok {
				out.Alien = true
			}
			r.Charge(value.CostItem)
			out.Names, out.Kw = append(out.Names, name), append(out.Kw, d.Vals[i])
		}
	}
	return out
}

// call is fn(a).
func (r *state) call(fn value.Value, a builtin.Args) value.Value {
	switch fn := fn.(type) {
	case builtin.Callable:
		return fn.Call(&r.Env, a)
	case *value.Undefined:
		r.Missing(fn)
	}
	r.TypeError("'%s' object is not callable", value.TypeName(fn))
	return nil
}
