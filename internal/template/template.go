// Package template renders the Jinja chat templates that models carry: text, outputs, control structures, macros,
// with the values, operators, methods and filters of Python as jinja2 shows them to templates. It follows jinja2
// 3.1.6 as Hugging Face transformers sets it up (immutable sandbox, trim_blocks, lstrip_blocks, loop controls, the
// tag "generation", and the functions raise_exception, strftime_now, tojson), and it never trusts a template: steps,
// depth, output, memory and time are limited.
//
// Templates that include, import or extend others are refused, and so is the tag "autoescape". Beyond jinja2 there is
// the filter from_json, which some templates ask for. Known differences: the kind of the error of a few misuses; x **
// y of floats may differ in the last digit; a slice of a constant that has no items is an error (jinja2 makes it
// undefined while compiling).
package template

import (
	"fmt"
	"strings"
	"time"

	"ck/internal/template/builtin"
	"ck/internal/template/syntax"
	"ck/internal/template/value"
)

// Vars are the variables given to a rendering. []value.Value is accepted for a list, at any depth that value.NewList
// and Dict.Set reach.
type Vars map[string]value.Value

// Template is a parsed template. It is immutable and may be rendered by many goroutines at once.
type Template struct {
	name   string
	source string
	tree   *syntax.Tree
}

// Source is the text that Parse got.
func (t *Template) Source() string { return t.source }

// names are the filters and tests that templates know.
var names = syntax.Names{
	Filter: func(name string) any { return known(builtin.Filter(name)) },
	Test:   func(name string) any { return known(builtin.Test(name)) },
}

// known is f, or a plain nil where there is none.
func known(f *builtin.Func) any {
	if f == nil {
		return nil
	}
	return f
}

// Parse parses a template. name appears in errors. Errors are of type *Error, kind "TemplateSyntaxError",
// "TemplateAssertionError" (unknown filter or test) or "LimitError".
func Parse(name, source string) (*Template, error) {
	tree, err := syntax.Parse(source, names)
	if e, ok := err.(*syntax.Error); ok {
		return nil, &Error{Template: name, Line: e.Line, Kind: e.Kind, Msg: e.Msg}
	}
	return &Template{name: name, source: source, tree: tree}, nil
}

// Options are the settings of a rendering.
type Options struct {
	// Now is the time that strftime_now shows; the zero time stands for the present.
	Now    time.Time
	Limits value.Limits
}

// Render renders the template with the given variables. Errors are of type *ErrRaised if the template called
// raise_exception, else *Error. Variables are read only.
func (t *Template) Render(vars Vars, opt Options) (text string, err error) {
	list, err := t.RenderParts(vars, opt)
	var b strings.Builder
	for _, p := range list {
		b.WriteString(p.Text)
	}
	return b.String(), err
}

// RenderParts is Render that says of each stretch whether the template wrote it or a value.Untrusted variable.
func (t *Template) RenderParts(vars Vars, opt Options) (list []value.Part, err error) {
	r := &state{tree: t.tree, out: &value.Blend{}}
	defer r.catch(t.name, &err)
	r.begin(vars, opt)
	r.body(t.tree.Body)
	return r.out.Parts(), nil
}

// Error is any error of a template but ErrRaised. Kind is the name of the exception that Python would raise
// ("TemplateSyntaxError", "UndefinedError", "TypeError", ...), or "LimitError".
type Error struct {
	Template string
	Line     int // 1-based line of the template
	Kind     string
	Msg      string
}

// Error says where and of which kind.
func (e *Error) Error() string {
	return fmt.Sprintf("template %s, line %d: %s: %s", e.Template, e.Line, e.Kind, e.Msg)
}

// ErrRaised is the error of a template that called raise_exception: it refuses its input, and Message says why.
type ErrRaised struct {
	Template string
	Line     int
	Message  string
}

// Error is the message and where it was raised.
func (e *ErrRaised) Error() string {
	return fmt.Sprintf("template %s, line %d: %s", e.Template, e.Line, e.Message)
}

// catch turns a panic into *err: errors travel as panics within a rendering. A panic that is no error of ours is a
// defect of this package; it becomes an error as well, because a template from a stranger must not end the program.
func (r *state) catch(name string, err *error) {
	switch e := recover().(type) {
	case nil:
	case *value.Error:
		*err = &Error{Template: name, Line: r.line, Kind: e.Kind, Msg: e.Msg}
	case *builtin.Raised:
		*err = &ErrRaised{Template: name, Line: r.line, Message: e.Message}
	default:
		*err = &Error{Template: name, Line: r.line, Kind: "InternalError", Msg: fmt.Sprint(e)}
	}
}
