package template

import (
	"slices"
	"strings"
	"time"
)

// env is what built-ins know of a rendering.
type env struct {
	run
	now func() time.Time // the time that strftime_now shows
}

// raised is the panic of raise_exception: the template refuses its input.
type raised struct{ message string }

// builtin is a filter, test, method or global function. fn gets the value it is applied to (nil for functions) and one argument
// per parameter, absent where none was given; raw gets the arguments as they are.
type builtin struct {
	name     string
	params   []string
	required int
	posOnly  bool
	fn       func(r *env, v Value, a []Value) Value
	raw      func(r *env, v Value, a args) Value
}

type absentValue struct{}

var absent = absentValue{}

var (
	filterTable = map[string]*builtin{}
	testTable   = map[string]*builtin{}
	globalTable = map[string]*builtin{}
	methodTable = map[string]map[string]*builtin{} // by kind of value, see methodKind
)

// define adds builtins to a table. spec is a name (or several, separated by "|") and the parameters, optional ones with a "?"
// behind; "/" says that parameters have no names.
func define(table map[string]*builtin, spec string, fn func(r *env, v Value, a []Value) Value) {
	words := strings.Fields(spec)
	b := &builtin{fn: fn}
	for _, w := range words[1:] {
		name, optional := strings.CutSuffix(w, "?")
		if w == "/" {
			b.posOnly = true
			continue
		}
		if !optional {
			b.required++
		}
		b.params = append(b.params, name)
	}
	add(table, words[0], b)
}

// defineRaw adds a builtin that takes its arguments as they are.
func defineRaw(table map[string]*builtin, name string, raw func(r *env, v Value, a args) Value) {
	add(table, name, &builtin{raw: raw})
}

func add(table map[string]*builtin, names string, b *builtin) {
	for _, name := range strings.Split(names, "|") {
		c := *b
		c.name = name
		table[name] = &c
	}
}

func (b *builtin) call(r *env, v Value, a args) Value {
	if b.raw != nil {
		return b.raw(r, v, a)
	}
	if len(a.pos) > len(b.params) {
		r.typeError("%s() takes at most %d arguments (%d given)", b.name, len(b.params), len(a.pos))
	}
	vals := make([]Value, len(b.params))
	for i := range vals {
		vals[i] = absent
	}
	copy(vals, a.pos)
	for i, name := range a.names {
		k := slices.Index(b.params, name)
		if k < 0 || b.posOnly {
			r.typeError("%s() got an unexpected keyword argument '%s'", b.name, name)
		}
		if vals[k] != absent {
			r.typeError("%s() got multiple values for argument '%s'", b.name, name)
		}
		vals[k] = a.kw[i]
	}
	for i := range b.required {
		if vals[i] == absent {
			r.typeError("%s() missing required argument '%s'", b.name, b.params[i])
		}
	}
	return b.fn(r, v, vals)
}

// invoke calls b. What it makes of a text from outside is from outside, unless it says itself which of it is.
func (b *builtin) invoke(r *env, v Value, a args) Value {
	n := r.touched
	out := b.call(r, v, a)
	if r.touched != n {
		return r.foreign(out)
	}
	return out
}

// opt is v, or def where the argument was not given.
func opt(v, def Value) Value {
	if v == absent {
		return def
	}
	return v
}

// optNone is v, or def where the argument was not given or is None.
func optNone(v, def Value) Value {
	if v == absent || v == nil {
		return def
	}
	return v
}

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

// take removes and returns the keyword argument of a name.
func (a *args) take(r *env, name string) (Value, bool) {
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

// callable is a value that templates can call.
type callable interface {
	Call(r *env, a args) Value
}

type (
	// function is a global function; boundMethod a method of a value.
	function    struct{ f *builtin }
	boundMethod struct {
		recv Value
		f    *builtin
	}
)

// bind is the method f of a value.
func (r *env) bind(v Value, f *builtin) Value {
	r.charge(costItem)
	return &boundMethod{v, f}
}

// TypeName is the name of its Python type.
func (f *function) TypeName() string { return "function" }

// Repr is repr(f).
func (f *function) Repr() string { return "<function " + f.f.name + ">" }

// Call calls the function.
func (f *function) Call(r *env, a args) Value { return f.f.invoke(r, nil, a) }

// TypeName is the name of its Python type.
func (m *boundMethod) TypeName() string { return "builtin_function_or_method" }

// Repr is repr(m).
func (m *boundMethod) Repr() string {
	return "<built-in method " + m.f.name + " of " + typeName(m.recv) + " object>"
}

// Call calls the method.
func (m *boundMethod) Call(r *env, a args) Value { return m.f.invoke(r, m.recv, a) }
