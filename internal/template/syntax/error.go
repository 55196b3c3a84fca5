// Package syntax parses Jinja templates into trees of statements and expressions. It knows no value beyond literals,
// and filters and tests only by their names. Source, nesting and literals are limited.
package syntax

import (
	"fmt"
)

const (
	maxSource  = 1 << 20 // bytes of a template
	maxNest    = 400     // nested tags, brackets and operators in a template's source
	maxArgs    = 255     // named arguments of a call, parameters of a macro
	maxLiteral = 4300    // digits of an integer, as in Python
)

// Error says what is wrong with a template's source. Kind is the name of the exception that jinja2 would raise, or
// "LimitError".
type Error struct {
	Line int // 1-based
	Kind string
	Msg  string
}

// Error is the line, the kind and what is wrong.
func (e *Error) Error() string { return fmt.Sprintf("line %d: %s: %s", e.Line, e.Kind, e.Msg) }

// failAt ends parsing: errors travel as panics within the package and become returned errors in Parse.
func failAt(line int, kind, format string, args ...any) {
	panic(&Error{Line: line, Kind: kind, Msg: fmt.Sprintf(format, args...)})
}
