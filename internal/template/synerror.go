package template

import (
	"fmt"
)

const (
	maxSource  = 1 << 20 // bytes of a template
	maxNest    = 400     // nested tags, brackets and operators in a template's source
	maxArgs    = 255     // named arguments of a call, parameters of a macro
	maxLiteral = 4300    // digits of an integer, as in Python
)

// syntaxError says what is wrong with a template's source. Kind is the name of the exception that jinja2 would raise, or "LimitError".
type syntaxError struct {
	Line int // 1-based
	Kind string
	Msg  string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("line %d: %s: %s", e.Line, e.Kind, e.Msg) }

// failAt ends parsing: errors travel as panics within the package and become returned errors in parseTree.
func failAt(line int, kind, format string, args ...any) {
	panic(&syntaxError{Line: line, Kind: kind, Msg: fmt.Sprintf(format, args...)})
}
