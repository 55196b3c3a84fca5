package template

import (
	"fmt"

	"ck/internal/template/builtin"
	"ck/internal/template/syntax"
	"ck/internal/template/value"
)

// macro is a macro, or the body of a call block, where it was defined.
type macro struct {
	r      *state
	def    *syntax.MacroDef
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
	return "<Macro " + m.r.Quote(m.def.Name) + ">"
}

// Attr is an attribute of a macro.
func (m *macro) Attr(name string) (value.Value, bool) {
	if name == "name" {
		return m.def.Name, true
	}
	return nil, false
}

// Call is the text of the macro's body.
func (m *macro) Call(_ *builtin.Env, a builtin.Args) value.Value {
	r, d := m.r, m.def
	what := fmt.Sprintf("macro '%s'", d.Name)
	s := &scope{parent: m.scope}
	explicitCaller := false
	given := make([]bool, len(d.Params))
	for i, name := range d.Params {
		explicitCaller = explicitCaller || name == "caller"
		if i < len(a.Pos) {
			s.set(name, a.Pos[i])
			given[i] = true
		} else if v, ok := a.Take(&r.Env, name); ok {
			s.set(name, v)
			given[i] = true
		}
	}
	if d.Caller && !explicitCaller {
		v, ok := a.Take(&r.Env, "caller")
		if !ok || v == nil {
			v = r.Undefined("No caller defined")
		}
		s.set("caller", v)
	}
	rest := a.Pos[min(len(a.Pos), len(d.Params)):]
	if d.Kwargs && s.find("kwargs") < 0 {
		kw := value.NewDict()
		for i, name := range a.Names {
			r.Put(kw, a.NameValue(name), a.Kw[i])
		}
		s.set("kwargs", kw)
	} else if len(a.Names) > 0 {
		r.TypeError("%s takes no keyword argument '%s'", what, a.Names[0])
	}
	if d.Varargs && s.find("varargs") < 0 {
		s.set("varargs", r.Tuple(rest))
	} else if len(rest) > 0 {
		r.TypeError("%s takes not more than %d argument(s)", what, len(d.Params))
	}
	saved := r.scope
	r.scope = s
	for i, name := range d.Params {
		if given[i] {
			continue
		}
		if k := i - (len(d.Params) - len(d.Defaults)); k >= 0 {
			s.set(name, r.eval(d.Defaults[k]))
		} else {
			s.set(name, r.Undefined("parameter '%s' was not provided", name))
		}
	}
	out := r.capture(func() flow { return r.body(d.Body) })
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
func (s selfRef) Attr(name string) (value.Value, bool) {
	if b := s.r.tree.Blocks[name]; b != nil {
		return blockRef{s.r, b}, true
	}
	return nil, false
}

// blockRef is a block that "self" gave.
type blockRef struct {
	r *state
	b *syntax.BlockStmt
}

// TypeName is the name of its Python type.
func (blockRef) TypeName() string { return "object" }

// Repr is repr(self.name).
func (blockRef) Repr() string { return "<object>" }

// Call is the text of the block.
func (b blockRef) Call(*builtin.Env, builtin.Args) value.Value {
	return b.r.capture(func() flow { return b.r.exec(b.b) })
}

// Fresh says that no two of them are the same.
func (blockRef) Fresh() {}
