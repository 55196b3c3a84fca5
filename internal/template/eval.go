package template

import (
	"fmt"
	"strings"
	"time"
)

// Options are the settings of a rendering.
type Options struct {
	// Now is the time that strftime_now shows; the zero time stands for the present.
	Now    time.Time
	Limits Limits
}

// state is one rendering.
type state struct {
	t         *Template
	lim       Limits
	now       func() time.Time
	start     time.Time
	steps     int
	mem       int
	depth     int
	line      int // of the node evaluated last, for errors
	out       []byte
	own       []stretch // of out, what the template wrote
	touched   int       // times that a text from outside was read
	digits    bool      // a number was made of such a text
	scope     *scope
	root      *scope
	nextCheck int
}

// Render renders the template with the given variables. Errors are of type *ErrRaised if the template called raise_exception,
// else *Error. Variables are read only.
func (t *Template) Render(vars Vars, opt Options) (text string, err error) {
	list, err := t.RenderParts(vars, opt)
	var b strings.Builder
	for _, p := range list {
		b.WriteString(p.Text)
	}
	return b.String(), err
}

// RenderParts is Render that says of each stretch whether the template wrote it or an Untrusted variable.
func (t *Template) RenderParts(vars Vars, opt Options) (list []Part, err error) {
	r := &state{t: t, now: time.Now, start: time.Now()}
	if !opt.Now.IsZero() {
		r.now = func() time.Time { return opt.Now }
	}
	defer catch(t.name, func() int { return r.line }, &err)
	size := 0
	context := &scope{}
	for name, v := range vars {
		context.set(name, normalize(v, &size, 0))
		size += len(name)
	}
	r.lim = opt.Limits.withDefaults(size)
	r.root = &scope{parent: context}
	r.scope = r.root
	r.body(t.body)
	return parts(string(r.out), r.own), nil
}

// scope holds the variables of a template, loop body, macro or block; parent is the scope around it.
type scope struct {
	parent *scope
	names  []string
	vals   []Value
	index  map[string]int // of names, once there are many
}

func (s *scope) find(name string) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	for i, n := range s.names {
		if n == name {
			return i
		}
	}
	return -1
}

func (s *scope) set(name string, v Value) {
	if i := s.find(name); i >= 0 {
		s.vals[i] = v
		return
	}
	s.names, s.vals = append(s.names, name), append(s.vals, v)
	if s.index != nil {
		s.index[name] = len(s.names) - 1
	} else if len(s.names) > 12 {
		s.index = map[string]int{}
		for i, n := range s.names {
			s.index[n] = i
		}
	}
}

func (r *state) setVar(name string, v Value) {
	if len(r.scope.names) > 16 {
		r.charge(costItem)
	}
	r.scope.set(name, v)
}

// inScope runs f with a fresh scope inside of parent.
func (r *state) inScope(parent *scope, f func() flow) flow {
	saved := r.scope
	r.scope = &scope{parent: parent}
	fl := f()
	r.scope = saved
	return fl
}

// write writes a text, whoever's it is.
func (r *state) write(v Value) {
	s, _ := plainText(v)
	if len(s) > r.lim.Output-len(r.out) {
		r.fail("LimitError", "more than %d bytes of output", r.lim.Output)
	}
	r.charge(2 * len(s))
	if m, ok := v.(*mixed); ok {
		for _, o := range m.own {
			r.own = appendStretch(r.own, len(r.out)+o.lo, len(r.out)+o.hi)
		}
	} else {
		r.own = appendStretch(r.own, len(r.out), len(r.out)+len(s))
	}
	r.out = append(r.out, s...)
}

// capture is the text that f writes.
func (r *state) capture(f func() flow) (Value, flow) {
	out, own := r.out, r.own
	r.out, r.own = nil, nil
	fl := f()
	v := (&mixed{s: string(r.out), own: r.own}).simple()
	r.out, r.own = out, own
	return v, fl
}

func (r *state) body(body []stmt) flow {
	r.enter()
	for _, s := range body {
		r.step(1)
		if fl := s.exec(r); fl != flowNext {
			r.leave()
			return fl
		}
	}
	r.leave()
	return flowNext
}

func (r *state) eval(x expr) Value {
	r.step(1)
	r.enter()
	v := x.eval(r)
	r.leave()
	return v
}

// Statements.

func (s *dataStmt) exec(r *state) flow {
	r.write(s.text)
	return flowNext
}

func (s *outputStmt) exec(r *state) flow {
	r.line = s.line
	v := r.eval(s.x)
	r.line = s.line
	r.write(r.textOf(v))
	return flowNext
}

func (s *ifStmt) exec(r *state) flow {
	for i, c := range s.conds {
		if r.truth(r.eval(c)) {
			return r.body(s.bodies[i])
		}
	}
	return r.body(s.other)
}

func (s *setStmt) exec(r *state) flow {
	v := r.eval(s.x)
	r.line = s.line
	s.target.assign(r, v)
	return flowNext
}

func (s *withStmt) exec(r *state) flow {
	vals := make([]Value, len(s.values))
	for i, x := range s.values {
		vals[i] = r.eval(x)
	}
	return r.inScope(r.scope, func() flow {
		for i, t := range s.targets {
			t.assign(r, vals[i])
		}
		return r.body(s.body)
	})
}

func (s *scopeStmt) exec(r *state) flow {
	return r.inScope(r.scope, func() flow { return r.body(s.body) })
}

func (s *blockStmt) exec(r *state) flow {
	parent := r.root
	if s.scoped {
		parent = r.scope
	}
	return r.inScope(parent, func() flow { return r.body(s.body) })
}

func (f flowStmt) exec(*state) flow { return flow(f) }

func (s *macroStmt) exec(r *state) flow {
	r.charge(2 * costObject)
	r.setVar(s.def.name, &macro{def: s.def, scope: r.scope})
	return flowNext
}

func (s *callStmt) exec(r *state) flow {
	r.charge(2 * costObject)
	caller := &macro{def: s.caller, scope: r.scope, caller: true}
	fn := r.eval(s.call.fn)
	args := r.args(&s.call.args)
	args.names, args.kw = append(args.names, "caller"), append(args.kw, caller)
	r.line = s.call.line
	r.write(r.textOf(r.call(fn, args)))
	return flowNext
}

// Targets.

func (t nameTarget) assign(r *state, v Value) { r.setVar(string(t), v) }

func (t *attrTarget) assign(r *state, v Value) {
	r.line = t.line
	ns, ok := r.lookup(t.name).(*namespace)
	if !ok {
		r.fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
	}
	if ns.attrs.find(t.attr) < 0 {
		r.charge(costEntry)
	}
	ns.attrs.set(t.attr, t.attr, v)
}

func (t *tupleTarget) assign(r *state, v Value) {
	r.line = t.line
	it, ok := r.tryIterate(v)
	if !ok {
		r.typeError("cannot unpack non-iterable %s object", typeName(v))
	}
	vals := make([]Value, 0, len(t.items))
	for {
		x, ok := it.next(r)
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
		item.assign(r, vals[i])
	}
}

// Loops.

// loop is the variable "loop" of a for statement.
type loop struct {
	stmt      *forStmt
	scope     *scope // around the loop
	seq       Value
	it        *iterator
	index     int // of cur, from 0; -1 before the first
	prev, cur Value
	after     []Value // items read ahead
	depth0    int
	changed   *List // the last arguments of changed()
	n         int   // number of items, -1 while unknown
}

func (l *loop) peek(r *state) (Value, bool) {
	if len(l.after) == 0 {
		v, ok := l.it.next(r)
		if !ok {
			return nil, false
		}
		l.after = append(l.after, v)
	}
	return l.after[0], true
}

func (l *loop) advance(r *state) bool {
	r.step(3)
	v, ok := l.peek(r)
	if !ok {
		return false
	}
	l.after = l.after[1:]
	l.prev, l.cur = l.cur, v
	l.index++
	return true
}

// length is the number of items; where it is not known beforehand, the rest of them is read.
func (l *loop) length(r *state) int {
	if l.n < 0 {
		l.after = append(l.after, r.items(&generator{"", l.it})...)
		l.n = l.index + 1 + len(l.after)
	}
	return l.n
}

func (s *forStmt) exec(r *state) flow {
	return r.runLoop(s, r.eval(s.iter), r.scope, 0)
}

// runLoop runs a loop over seq inside of the given scope.
func (r *state) runLoop(s *forStmt, seq Value, around *scope, depth0 int) flow {
	r.line = s.line
	l := &loop{stmt: s, scope: around, seq: seq, it: r.iterate(seq), index: -1, depth0: depth0, n: -1}
	switch seq.(type) {
	case *List, *Dict, *view, *pyRange, *Undefined:
		l.n, _ = r.length(seq)
	}
	if s.test != nil {
		src := l.it
		l.n = -1
		l.it = &iterator{gen: func() (Value, bool) {
			for {
				v, ok := src.next(r)
				if !ok {
					return nil, false
				}
				keep := false
				r.inScope(around, func() flow {
					s.target.assign(r, v)
					keep = r.truth(r.eval(s.test))
					return flowNext
				})
				if keep {
					return v, true
				}
			}
		}}
	}
	// As in jinja2, "else" runs if no iteration came to the end of the body, be it because of a break or continue.
	done := false
	for l.advance(r) {
		fl := r.inScope(around, func() flow {
			r.scope.set("loop", l)
			s.target.assign(r, l.cur)
			return r.body(s.body)
		})
		if fl == flowBreak {
			break
		}
		done = done || fl == flowNext
	}
	if !done {
		return r.inScope(around, func() flow { return r.body(s.other) })
	}
	return flowNext
}

// attr is an attribute of the loop variable.
func (l *loop) attr(r *state, name string) (Value, bool) {
	switch name {
	case "index":
		return l.index + 1, true
	case "index0":
		return l.index, true
	case "first":
		return l.index == 0, true
	case "last":
		_, more := l.peek(r)
		return !more, true
	case "length":
		return l.length(r), true
	case "revindex":
		return l.length(r) - l.index, true
	case "revindex0":
		return l.length(r) - l.index - 1, true
	case "depth":
		return l.depth0 + 1, true
	case "depth0":
		return l.depth0, true
	case "previtem":
		if l.index <= 0 {
			return r.undefined("there is no previous item"), true
		}
		return l.prev, true
	case "nextitem":
		if v, ok := l.peek(r); ok {
			return v, true
		}
		return r.undefined("there is no next item"), true
	}
	return nil, false
}

// Expressions.

func (x *constExpr) eval(*state) Value { return x.v }

func (x *nameExpr) eval(r *state) Value {
	r.line = x.line
	return r.lookup(x.name)
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
		return selfRef{}
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

func (x *listExpr) eval(r *state) Value {
	r.chargeN(len(x.items), costItem)
	l := &List{items: r.evalAll(x.items), tuple: x.tuple}
	r.charge(costObject)
	return l
}

func (x *dictExpr) eval(r *state) Value {
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

func (x *unaryExpr) eval(r *state) Value {
	v := r.eval(x.x)
	r.line = x.line
	n, ok := number(v)
	if u, isUndef := v.(*Undefined); isUndef {
		r.missing(u)
	}
	if !ok {
		r.typeError("bad operand type for unary %c: '%s'", x.op, typeName(v))
	}
	if x.op == '+' {
		return n
	}
	if f, ok := n.(float64); ok {
		return -f
	}
	return r.arith("-", 0, n)
}

func (x *binExpr) eval(r *state) Value {
	a := r.eval(x.l)
	b := r.eval(x.r)
	r.line = x.line
	return r.binary(x.op, a, b)
}

func (x *notExpr) eval(r *state) Value { return !r.truth(r.eval(x.x)) }

func (x *andExpr) eval(r *state) Value {
	if v := r.eval(x.l); !r.truth(v) {
		return v
	}
	return r.eval(x.r)
}

func (x *orExpr) eval(r *state) Value {
	if v := r.eval(x.l); r.truth(v) {
		return v
	}
	return r.eval(x.r)
}

func (x *condExpr) eval(r *state) Value {
	if r.truth(r.eval(x.cond)) {
		return r.eval(x.yes)
	}
	if x.no == nil {
		return r.undefined("the inline if-expression on line %d evaluated to false and no else section was defined.", x.line)
	}
	return r.eval(x.no)
}

func (x *compareExpr) eval(r *state) Value {
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

func (r *state) compareOp(op string, a, b Value) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	c := r.compare(a, b, op)
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c == 1
	}
	return c == 0 || c == 1
}

func (x *concatExpr) eval(r *state) Value {
	var b blend
	for _, p := range x.parts {
		v := r.textOf(r.eval(p))
		s, _ := plainText(v)
		r.charge(2 * len(s))
		b.add(v)
	}
	return b.value(false)
}

func (x *attrExpr) eval(r *state) Value {
	v := r.eval(x.x)
	r.line = x.line
	return r.attr(v, x.name)
}

func (x *indexExpr) eval(r *state) Value {
	v := r.eval(x.x)
	if s, ok := x.key.(*sliceExpr); ok {
		k := s.key(r)
		r.line = x.line
		return r.slice(v, k)
	}
	k := r.eval(x.key)
	r.line = x.line
	return r.item(v, k)
}

// eval of a slice alone does not happen: the parser allows slices in brackets only, where indexExpr takes them.
func (x *sliceExpr) eval(r *state) Value { return x.key(r) }

func (x *sliceExpr) key(r *state) sliceKey {
	part := func(p expr) Value {
		if p == nil {
			return nil
		}
		return r.eval(p)
	}
	return sliceKey{part(x.start), part(x.stop), part(x.step)}
}

func (x *callExpr) eval(r *state) Value {
	fn := r.eval(x.fn)
	args := r.args(&x.args)
	r.line = x.line
	return r.call(fn, args)
}

func (x *filterExpr) eval(r *state) Value {
	v := r.eval(x.x)
	args := r.args(&x.args)
	r.line = x.line
	if x.f == nil {
		r.fail("TemplateRuntimeError", "no filter named '%s'", x.name)
	}
	return x.f.invoke(r, v, args)
}

func (x *testExpr) eval(r *state) Value {
	v := r.eval(x.x)
	args := r.args(&x.args)
	r.line = x.line
	if x.f == nil {
		r.fail("TemplateRuntimeError", "no test named '%s'", x.name)
	}
	return x.f.invoke(r, v, args)
}

func (x *bodyExpr) eval(r *state) Value {
	s, _ := r.capture(func() flow {
		return r.inScope(r.scope, func() flow { return r.body(x.body) })
	})
	return s
}

// Calls.

// args are evaluated arguments.
type args struct {
	pos   []Value
	names []string
	kw    []Value
	alien bool // some of the names are from outside
}

// nameValue is the name of an argument as a value.
func (a *args) nameValue(name string) Value {
	if a.alien {
		return &mixed{s: name}
	}
	return name
}

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

// take removes and returns the keyword argument of a name.
func (a *args) take(r *state, name string) (Value, bool) {
	r.step(1 + len(a.names)>>3)
	for i, n := range a.names {
		if n == name {
			v := a.kw[i]
			a.names = append(append([]string{}, a.names[:i]...), a.names[i+1:]...)
			a.kw = append(append([]Value{}, a.kw[:i]...), a.kw[i+1:]...)
			return v, true
		}
	}
	return nil, false
}

func (r *state) call(fn Value, a args) Value {
	switch fn := fn.(type) {
	case *macro:
		return r.callMacro(fn, a)
	case *function:
		return fn.f.invoke(r, nil, a)
	case *boundMethod:
		return fn.f.invoke(r, fn.recv, a)
	case *Undefined:
		r.missing(fn)
	case *joiner:
		if fn.used {
			return fn.sep
		}
		fn.used = true
		return ""
	case *loop:
		if !fn.stmt.recursive {
			r.typeError("The loop must have the 'recursive' marker to be called recursively.")
		}
		if len(a.pos) != 1 || len(a.names) > 0 {
			r.typeError("loop() takes one argument")
		}
		s, _ := r.capture(func() flow { return r.runLoop(fn.stmt, a.pos[0], fn.scope, fn.depth0+1) })
		return s
	case blockRef:
		s, _ := r.capture(func() flow { return fn.b.exec(r) })
		return s
	}
	r.typeError("'%s' object is not callable", typeName(fn))
	return nil
}

func (r *state) callMacro(m *macro, a args) Value {
	d := m.def
	what := fmt.Sprintf("macro '%s'", d.name)
	s := &scope{parent: m.scope}
	explicitCaller := false
	given := make([]bool, len(d.params))
	for i, name := range d.params {
		explicitCaller = explicitCaller || name == "caller"
		if i < len(a.pos) {
			s.set(name, a.pos[i])
			given[i] = true
		} else if v, ok := a.take(r, name); ok {
			s.set(name, v)
			given[i] = true
		}
	}
	if d.caller && !explicitCaller {
		v, ok := a.take(r, "caller")
		if !ok || v == nil {
			v = r.undefined("No caller defined")
		}
		s.set("caller", v)
	}
	rest := a.pos[min(len(a.pos), len(d.params)):]
	if d.kwargs && s.find("kwargs") < 0 {
		kw := NewDict()
		for i, name := range a.names {
			r.put(kw, a.nameValue(name), a.kw[i])
		}
		s.set("kwargs", kw)
	} else if len(a.names) > 0 {
		r.typeError("%s takes no keyword argument '%s'", what, a.names[0])
	}
	if d.varargs && s.find("varargs") < 0 {
		s.set("varargs", r.tuple(rest))
	} else if len(rest) > 0 {
		r.typeError("%s takes not more than %d argument(s)", what, len(d.params))
	}
	saved := r.scope
	r.scope = s
	for i, name := range d.params {
		if given[i] {
			continue
		}
		if k := i - (len(d.params) - len(d.defaults)); k >= 0 {
			s.set(name, r.eval(d.defaults[k]))
		} else {
			s.set(name, r.undefined("parameter '%s' was not provided", name))
		}
	}
	out, _ := r.capture(func() flow { return r.body(d.body) })
	r.scope = saved
	return out
}

// Attributes and items.

// attr is v.name: a method or an attribute first, else an item.
func (r *state) attr(v Value, name string) Value {
	if a, ok := r.attribute(v, name); ok {
		return a
	}
	if d, ok := v.(*Dict); ok {
		if x, ok := d.Get(name); ok {
			return x
		}
	}
	return r.noAttr(v, name)
}

func (r *state) noAttr(v Value, name string) Value {
	what := typeName(v)
	switch v.(type) {
	case nil:
		what = "None"
	case *namespace, *loop, *macro:
	default:
		what += " object"
	}
	return r.undefined("'%s' has no attribute '%s'", what, name)
}

// attribute is a method or attribute in Python's sense. Those which would change a value are undefined, and an error when called.
func (r *state) attribute(v Value, name string) (Value, bool) {
	switch v := v.(type) {
	case *Undefined:
		r.missing(v)
	case *namespace:
		return v.attrs.Get(name)
	case *loop:
		if a, ok := v.attr(r, name); ok {
			return a, true
		}
	case *cycler:
		if name == "current" {
			return v.items[v.pos], true
		}
	case *macro:
		if name == "name" {
			return v.def.name, true
		}
	case *List:
		if v.group && name == "grouper" {
			return v.items[0], true
		}
		if v.group && name == "list" {
			return v.items[1], true
		}
	case selfRef:
		if b := r.t.blocks[name]; b != nil {
			return blockRef{b}, true
		}
	}
	kind := methodKind(v)
	if f := methodTable[kind][name]; f != nil {
		r.charge(costItem)
		return &boundMethod{v, f}, true
	}
	unsafe := changing[kind+"."+name]
	if strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
		d, ok := v.(*Dict)
		unsafe = !ok || d.find(name) < 0
	}
	if unsafe {
		return &Undefined{kind: "SecurityError", msg: fmt.Sprintf("access to attribute '%s' of '%s' object is unsafe", name, typeName(v))}, true
	}
	return nil, false
}

// item is v[key]: an item first, else an attribute.
func (r *state) item(v, key Value) Value {
	switch v := v.(type) {
	case *Dict:
		if k, ok := r.key(key); ok {
			if i := v.find(k); i >= 0 {
				return v.vals[i]
			}
		}
	case *List, *pyRange, string, Markup, *mixed:
		var i int
		switch n, _ := number(key); n := n.(type) {
		case int:
			i = n
		default:
			return r.itemAttr(v, key)
		}
		if s, ok := plainText(v); ok {
			if c, ok := r.indexText(s, i); ok {
				return likeText(v, c)
			}
			return r.itemAttr(v, key)
		}
		n, _ := r.length(v)
		if i < 0 {
			i += n
		}
		if i < 0 || i >= n {
			return r.itemAttr(v, key)
		}
		if l, ok := v.(*List); ok {
			return l.items[i]
		}
		g := v.(*pyRange)
		return g.start + i*g.step
	case *Undefined:
		r.missing(v)
	}
	return r.itemAttr(v, key)
}

func (r *state) itemAttr(v, key Value) Value {
	name, ok := plainText(key)
	if !ok {
		return r.undefined("%s object has no element %s", typeName(v), r.short(key))
	}
	if a, ok := r.attribute(v, name); ok {
		return a
	}
	return r.noAttr(v, name)
}

// short is repr(v) for messages; long values give their type instead.
func (r *state) short(v Value) string {
	switch v.(type) {
	case nil, bool, int, float64:
		return r.repr(v)
	}
	return "of type " + typeName(v)
}

// slice is v[start:stop:step].
func (r *state) slice(v Value, k sliceKey) Value {
	switch v := v.(type) {
	case string:
		return r.sliceText(v, k)
	case Markup:
		return Markup(r.sliceText(string(v), k))
	case *mixed:
		return r.sliceMixed(v, k)
	case *List:
		start, step, count := r.sliceRange(k, len(v.items))
		if step == 1 {
			r.charge(costObject)
			return &List{items: v.items[start : start+count : start+count], tuple: v.tuple}
		}
		r.chargeN(count, costItem)
		items := make([]Value, count)
		for i := range items {
			items[i] = v.items[start+i*step]
		}
		r.charge(costObject)
		return &List{items: items, tuple: v.tuple}
	case *pyRange:
		start, step, count := r.sliceRange(k, v.len())
		return &pyRange{v.start + start*v.step, v.start + (start+count*step)*v.step, v.step * step}
	case *Undefined:
		r.missing(v)
	case *Dict:
		r.typeError("unhashable type: 'slice'")
	}
	r.typeError("'%s' object is not subscriptable", typeName(v))
	return nil
}
