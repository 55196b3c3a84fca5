// Package builtin is what templates call by name: filters, tests, global functions and the methods of values. What a
// template itself makes callable is a Callable. It knows nothing of statements.
package builtin

import (
	"slices"
	"strings"
	"time"

	"ck/internal/template/value"
)

// Env is what built-ins know of a rendering.
type Env struct {
	value.Run
	Now func() time.Time // the time that strftime_now shows
}

// Raised is the panic of raise_exception: the template refuses its input.
type Raised struct{ Message string }

// Func is a filter, test, method or global function. fn gets the value it is applied to (nil for functions) and one
// argument per parameter, absent where none was given; raw gets the arguments as they are.
type Func struct {
	name     string
	params   []string
	required int
	posOnly  bool
	fn       func(r *Env, v value.Value, a []value.Value) value.Value
	raw      func(r *Env, v value.Value, a Args) value.Value
}

type absentValue struct{}

var absent = absentValue{}

var (
	filterTable = map[string]*Func{}
	testTable   = map[string]*Func{}
	globalTable = map[string]*Func{}
	methodTable = map[string]map[string]*Func{} // by kind of value, see methodKind
)

// Filter is the filter of a name, nil if there is none.
func Filter(name string) *Func { return filterTable[name] }

// Test is the test of a name, nil if there is none.
func Test(name string) *Func { return testTable[name] }

// Global is the global function of a name, nil if there is none.
func Global(name string) *Func { return globalTable[name] }

// define adds a Func to a table. spec is a name (or several, separated by "|") and the parameters, optional ones with
// a "?" behind; "/" says that parameters have no names.
func define(table map[string]*Func, spec string, fn func(r *Env, v value.Value, a []value.Value) value.Value) {
	words := strings.Fields(spec)
	b := &Func{fn: fn}
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

// DefineRaw adds a Func that takes its arguments as they are.
func DefineRaw(table map[string]*Func, name string, raw func(r *Env, v value.Value, a Args) value.Value) {
	add(table, name, &Func{raw: raw})
}

func add(table map[string]*Func, names string, b *Func) {
	for _, name := range strings.Split(names, "|") {
		c := *b
		c.name = name
		table[name] = &c
	}
}

func (b *Func) call(r *Env, v value.Value, a Args) value.Value {
	if b.raw != nil {
		return b.raw(r, v, a)
	}
	if len(a.Pos) > len(b.params) {
		r.TypeError("%s() takes at most %d arguments (%d given)", b.name, len(b.params), len(a.Pos))
	}
	vals := make([]value.Value, len(b.params))
	for i := range vals {
		vals[i] = absent
	}
	copy(vals, a.Pos)
	for i, name := range a.Names {
		k := slices.Index(b.params, name)
		if k < 0 || b.posOnly {
			r.TypeError("%s() got an unexpected keyword argument '%s'", b.name, name)
		}
		if vals[k] != absent {
			r.TypeError("%s() got multiple values for argument '%s'", b.name, name)
		}
		vals[k] = a.Kw[i]
	}
	for i := range b.required {
		if vals[i] == absent {
			r.TypeError("%s() missing required argument '%s'", b.name, b.params[i])
		}
	}
	return b.fn(r, v, vals)
}

// Invoke calls b. What it makes of a text from outside is from outside, unless it says itself which of it is.
func (b *Func) Invoke(r *Env, v value.Value, a Args) value.Value {
	n := r.Touched
	out := b.call(r, v, a)
	if r.Touched != n {
		return r.Foreign(out)
	}
	return out
}

// opt is v, or def where the argument was not given.
func opt(v, def value.Value) value.Value {
	if v == absent {
		return def
	}
	return v
}

// optNone is v, or def where the argument was not given or is None.
func optNone(v, def value.Value) value.Value {
	if v == absent || v == nil {
		return def
	}
	return v
}

// Args are evaluated arguments.
type Args struct {
	Pos   []value.Value
	Names []string
	Kw    []value.Value
	Alien bool // some of the names are from outside
}

// NameValue is the name of an argument as a value.
func (a *Args) NameValue(name string) value.Value {
	if a.Alien {
		return &value.Mixed{S: name}
	}
	return name
}

// Take removes and returns the keyword argument of a name.
func (a *Args) Take(r *Env, name string) (value.Value, bool) {
	r.Step(1 + len(a.Names)>>3)
	for i, n := range a.Names {
		if n == name {
			v := a.Kw[i]
			a.Names = append(append([]string{}, a.Names[:i]...), a.Names[i+1:]...)
			a.Kw = append(append([]value.Value{}, a.Kw[:i]...), a.Kw[i+1:]...)
			return v, true
		}
	}
	return nil, false
}

// Callable is a value that templates can call.
type Callable interface {
	Call(r *Env, a Args) value.Value
}

type (
	// Function is a global function; boundMethod a method of a value.
	Function    struct{ F *Func }
	boundMethod struct {
		recv value.Value
		f    *Func
	}
)

// Bind is the method f of a value.
func (r *Env) Bind(v value.Value, f *Func) value.Value {
	r.Charge(value.CostItem)
	return &boundMethod{v, f}
}

// TypeName is the name of its Python type.
func (f *Function) TypeName() string { return "function" }

// Repr is repr(f).
func (f *Function) Repr() string { return "<function " + f.F.name + ">" }

// Call calls the function.
func (f *Function) Call(r *Env, a Args) value.Value { return f.F.Invoke(r, nil, a) }

// TypeName is the name of its Python type.
func (m *boundMethod) TypeName() string { return "builtin_function_or_method" }

// Repr is repr(m).
func (m *boundMethod) Repr() string {
	return "<built-in method " + m.f.name + " of " + value.TypeName(m.recv) + " object>"
}

// Call calls the method.
func (m *boundMethod) Call(r *Env, a Args) value.Value { return m.f.Invoke(r, m.recv, a) }
