package template

import (
	"slices"
	"time"
)

// state is one rendering.
type state struct {
	env
	tree  *tree
	line  int // of the node evaluated last, for errors
	out   *blend
	scope *scope
	root  *scope
}

// begin makes the rendering's variables and limits, which grow with the variables.
func (r *state) begin(vars Vars, opt Options) {
	start := time.Now()
	r.now = time.Now
	if !opt.Now.IsZero() {
		r.now = func() time.Time { return opt.Now }
	}
	size := 0
	context := &scope{}
	for name, v := range vars {
		context.set(name, normalize(v, &size, 0))
		size += len(name)
	}
	r.run = newRun(start, opt.Limits.withDefaults(size))
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
func (r *state) write(v Value) {
	s, _ := plainText(v)
	if len(s) > r.lim.Output-r.out.len() {
		r.fail("LimitError", "more than %d bytes of output", r.lim.Output)
	}
	r.charge(2 * len(s))
	r.out.add(v)
}

// capture is the text that f writes.
func (r *state) capture(f func() flow) Value {
	saved := r.out
	r.out = &blend{}
	f()
	v := r.out.value(false)
	r.out = saved
	return v
}

func (r *state) body(body []stmt) flow {
	r.enter()
	for _, s := range body {
		r.step(1)
		if fl := r.exec(s); fl != flowNext {
			r.leave()
			return fl
		}
	}
	r.leave()
	return flowNext
}

// exec runs one statement; its text goes to r.out.
func (r *state) exec(s stmt) flow {
	switch s := s.(type) {
	case *dataStmt:
		r.write(s.text)
	case *outputStmt:
		r.line = s.line
		v := r.eval(s.x)
		r.line = s.line
		r.write(r.textOf(v))
	case *ifStmt:
		for i, c := range s.conds {
			if r.truth(r.eval(c)) {
				return r.body(s.bodies[i])
			}
		}
		return r.body(s.other)
	case *forStmt:
		return r.runLoop(s, r.eval(s.iter), r.scope, 0)
	case *setStmt:
		v := r.eval(s.x)
		r.line = s.line
		r.assign(s.target, v)
	case *withStmt:
		return r.with(s)
	case *macroStmt:
		r.charge(2 * costObject)
		r.setVar(s.def.name, &macro{r: r, def: s.def, scope: r.scope})
	case *callStmt:
		r.callBlock(s)
	case *blockStmt:
		parent := r.root
		if s.scoped {
			parent = r.scope
		}
		return r.inScope(parent, func() flow { return r.body(s.body) })
	case *scopeStmt:
		return r.inScope(r.scope, func() flow { return r.body(s.body) })
	case *breakStmt:
		return flowBreak
	case *continueStmt:
		return flowContinue
	}
	return flowNext
}

func (r *state) with(s *withStmt) flow {
	vals := r.evalAll(s.values)
	return r.inScope(r.scope, func() flow {
		for i, t := range s.targets {
			r.assign(t, vals[i])
		}
		return r.body(s.body)
	})
}

func (r *state) callBlock(s *callStmt) {
	r.charge(2 * costObject)
	caller := &macro{r: r, def: s.caller, scope: r.scope, caller: true}
	fn := r.eval(s.call.fn)
	a := r.args(&s.call.args)
	a.names, a.kw = append(slices.Clip(a.names), "caller"), append(a.kw, caller)
	r.line = s.call.line
	r.write(r.textOf(r.call(fn, a)))
}

// assign gives a target its value.
func (r *state) assign(t target, v Value) {
	switch t := t.(type) {
	case nameTarget:
		r.setVar(string(t), v)
	case *attrTarget:
		r.line = t.line
		ns, ok := r.lookup(t.name).(*namespace)
		if !ok {
			r.fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
		}
		r.setAttr(ns, t.attr, v)
	case *tupleTarget:
		r.unpack(t, v)
	}
}

// unpack gives the targets of a tuple the items of v.
func (r *state) unpack(t *tupleTarget, v Value) {
	r.line = t.line
	it, ok := r.tryIterate(v)
	if !ok {
		r.typeError("cannot unpack non-iterable %s object", typeName(v))
	}
	vals := make([]Value, 0, len(t.items))
	for {
		x, ok := r.next(it)
		if !ok {
			break
		}
		if len(vals) == len(t.items) {
			r.fail("ValueError", "too many values to unpack (expected %d)", len(t.items))
		}
		vals = append(vals, x)
	}
	if len(vals) < len(t.items) {
		r.fail("ValueError", "not enough values to unpack (expected %d, got %d)", len(t.items), len(vals))
	}
	for i, item := range t.items {
		r.assign(item, vals[i])
	}
}
