package template

import (
	"slices"
	"time"

	"ck/internal/template/builtin"
	"ck/internal/template/syntax"
	"ck/internal/template/value"
)

// state is one rendering.
type state struct {
	builtin.Env
	tree  *syntax.Tree
	line  int // of the node evaluated last, for errors
	out   *value.Blend
	scope *scope
	root  *scope
}

// begin makes the rendering's variables and limits, which grow with the variables.
func (r *state) begin(vars Vars, opt Options) {
	start := time.Now()
	r.Now = time.Now
	if !opt.Now.IsZero() {
		r.Now = func() time.Time { return opt.Now }
	}
	size := 0
	context := &scope{}
	for name, v := range vars {
		context.set(name, value.Normalize(v, &size, 0))
		size += len(name)
	}
	r.Run = value.NewRun(start, opt.Limits.WithDefaults(size))
	r.root = &scope{parent: context}
	r.scope = r.root
}

// flow says how a statement ended: loop controls travel up to their loop.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// write writes a text, whoever's it is.
func (r *state) write(v value.Value) {
	s, _ := value.PlainText(v)
	if len(s) > r.Lim.Output-r.out.Len() {
		r.Fail("LimitError", "more than %d bytes of output", r.Lim.Output)
	}
	r.Charge(2 * len(s))
	r.out.Add(v)
}

// capture is the text that f writes.
func (r *state) capture(f func() flow) value.Value {
	saved := r.out
	r.out = &value.Blend{}
	f()
	v := r.out.Value(false)
	r.out = saved
	return v
}

func (r *state) body(body []syntax.Stmt) flow {
	r.Enter()
	for _, s := range body {
		r.Step(1)
		if fl := r.exec(s); fl != flowNext {
			r.Leave()
			return fl
		}
	}
	r.Leave()
	return flowNext
}

// exec runs one statement; its text goes to r.out.
func (r *state) exec(s syntax.Stmt) flow {
	switch s := s.(type) {
	case *syntax.DataStmt:
		r.write(s.Text)
	case *syntax.OutputStmt:
		r.line = s.Line
		v := r.eval(s.X)
		r.line = s.Line
		r.write(r.TextOf(v))
	case *syntax.IfStmt:
		for i, c := range s.Conds {
			if r.Truth(r.eval(c)) {
				return r.body(s.Bodies[i])
			}
		}
		return r.body(s.Other)
	case *syntax.ForStmt:
		return r.runLoop(s, r.eval(s.Iter), r.scope, 0)
	case *syntax.SetStmt:
		v := r.eval(s.X)
		r.line = s.Line
		r.assign(s.Target, v)
	case *syntax.WithStmt:
		return r.with(s)
	case *syntax.MacroStmt:
		r.Charge(2 * value.CostObject)
		r.setVar(s.Def.Name, &macro{r: r, def: s.Def, scope: r.scope})
	case *syntax.CallStmt:
		r.callBlock(s)
	case *syntax.BlockStmt:
		parent := r.root
		if s.Scoped {
			parent = r.scope
		}
		return r.inScope(parent, func() flow { return r.body(s.Body) })
	case *syntax.ScopeStmt:
		return r.inScope(r.scope, func() flow { return r.body(s.Body) })
	case *syntax.BreakStmt:
		return flowBreak
	case *syntax.ContinueStmt:
		return flowContinue
	}
	return flowNext
}

func (r *state) with(s *syntax.WithStmt) flow {
	vals := r.evalAll(s.Values)
	return r.inScope(r.scope, func() flow {
		for i, t := range s.Targets {
			r.assign(t, vals[i])
		}
		return r.body(s.Body)
	})
}

func (r *state) callBlock(s *syntax.CallStmt) {
	r.Charge(2 * value.CostObject)
	caller := &macro{r: r, def: s.Caller, scope: r.scope, caller: true}
	fn := r.eval(s.Call.Fn)
	a := r.args(&s.Call.Args)
	a.Names, a.Kw = append(slices.Clip(a.Names), "caller"), append(a.Kw, caller)
	r.line = s.Call.Line
	r.write(r.TextOf(r.call(fn, a)))
}

// assign gives a target its value.
func (r *state) assign(t syntax.Target, v value.Value) {
	switch t := t.(type) {
	case syntax.NameTarget:
		r.setVar(string(t), v)
	case *syntax.AttrTarget:
		r.line = t.Line
		ns, ok := r.lookup(t.Name).(*value.Namespace)
		if !ok {
			r.Fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
		}
		r.SetAttr(ns, t.Attr, v)
	case *syntax.TupleTarget:
		r.unpack(t, v)
	}
}

// unpack gives the targets of a tuple the items of v.
func (r *state) unpack(t *syntax.TupleTarget, v value.Value) {
	r.line = t.Line
	it, ok := r.TryIterate(v)
	if !ok {
		r.TypeError("cannot unpack non-iterable %s object", value.TypeName(v))
	}
	vals := make([]value.Value, 0, len(t.Items))
	for {
		x, ok := r.Next(it)
		if !ok {
			break
		}
		if len(vals) == len(t.Items) {
			r.Fail("ValueError", "too many values to unpack (expected %d)", len(t.Items))
		}
		vals = append(vals, x)
	}
	if len(vals) < len(t.Items) {
		r.Fail("ValueError", "not enough values to unpack (expected %d, got %d)", len(t.Items), len(vals))
	}
	for i, item := range t.Items {
		r.assign(item, vals[i])
	}
}
