package template

import (
	"fmt"
)

// macro is a macro, or the body of a call block, where it was defined.
type macro struct {
	r      *state
	def    *macroDef
	scope  *scope
	caller bool // the body of a call block
}

// TypeName is the name of its Python type.
func (m *macro) TypeName() string { return "Macro" }

// Repr is repr(m).
func (m *macro) Repr() string {
	if m.caller {
		return "<Macro anonymous>"
	}
	return "<Macro " + m.r.quote(m.def.name) + ">"
}

// Attr is an attribute of a macro.
func (m *macro) Attr(name string) (Value, bool) {
	if name == "name" {
		return m.def.name, true
	}
	return nil, false
}

// Call is the text of the macro's body.
func (m *macro) Call(_ *env, a args) Value {
	r, d := m.r, m.def
	what := fmt.Sprintf("macro '%s'", d.name)
	s := &scope{parent: m.scope}
	explicitCaller := false
	given := make([]bool, len(d.params))
	for i, name := range d.params {
		explicitCaller = explicitCaller || name == "caller"
		if i < len(a.pos) {
			s.set(name, a.pos[i])
			given[i] = true
		} else if v, ok := a.take(&r.env, name); ok {
			s.set(name, v)
			given[i] = true
		}
	}
	if d.caller && !explicitCaller {
		v, ok := a.take(&r.env, "caller")
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
	out := r.capture(func() flow { return r.body(d.body) })
	r.scope = saved
	return out
}

// selfRef is "self", whose attributes are the template's blocks.
type selfRef struct{ r *state }

// TypeName is the name of its Python type.
func (selfRef) TypeName() string { return "object" }

// Repr is repr(self).
func (selfRef) Repr() string { return "<object>" }

// Attr is the block of a name.
func (s selfRef) Attr(name string) (Value, bool) {
	if b := s.r.tree.blocks[name]; b != nil {
		return blockRef{s.r, b}, true
	}
	return nil, false
}

// blockRef is a block that "self" gave.
type blockRef struct {
	r *state
	b *blockStmt
}

// TypeName is the name of its Python type.
func (blockRef) TypeName() string { return "object" }

// Repr is repr(self.name).
func (blockRef) Repr() string { return "<object>" }

// Call is the text of the block.
func (b blockRef) Call(*env, args) Value {
	return b.r.capture(func() flow { return b.r.exec(b.b) })
}

// Fresh says that no two of them are the same.
func (blockRef) Fresh() {}
