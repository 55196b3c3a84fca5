package template

import (
	"fmt"
	"time"
)

// Limits bounds what one rendering may use. Zero fields take the defaults. A template that exceeds a limit ends in an *Error of
// kind "LimitError".
type Limits struct {
	Steps  int           // nodes evaluated and items or bytes worked through; default 5e6 + 50 per byte of the variables
	Depth  int           // nested evaluations (expressions, statements, macro calls); default 6000
	Output int           // bytes of the rendered text; default 16 MiB + 16 per byte of the variables
	Memory int           // bytes allocated for values in all, whether still in use or not; default 32 MiB + 48 per byte of the variables
	Time   time.Duration // wall time; default 0.8 s
}

const (
	maxSource    = 1 << 20 // bytes of a template
	maxNest      = 400     // nested tags, brackets and operators in a template's source
	maxArgs      = 255     // named arguments of a call, parameters of a macro
	maxValueNest = 400     // nested lists and dicts in one value
	maxIntBits   = 1 << 16 // bits of an integer
	maxIntDigits = 4300    // digits of an integer in text, as in Python
	maxRange     = 100000  // items of a range, as in jinja2's sandbox
	costItem     = 40      // bytes charged for one item of a list
	costEntry    = 160     // bytes charged for one entry of a dict
	costObject   = 96      // bytes charged for one object
)

func (l Limits) withDefaults(input int) Limits {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&l.Steps, 5e6+50*input)
	def(&l.Depth, 6000)
	def(&l.Output, 16<<20+16*input)
	def(&l.Memory, 32<<20+48*input)
	if l.Time <= 0 {
		l.Time = 800 * time.Millisecond
	}
	return l
}

// Error is any error of a template but ErrRaised. Kind is the name of the exception that Python would raise
// ("TemplateSyntaxError", "UndefinedError", "TypeError", ...), or "LimitError".
type Error struct {
	Template string
	Line     int // 1-based line of the template
	Kind     string
	Msg      string
}

func (e *Error) Error() string {
	return fmt.Sprintf("template %s, line %d: %s: %s", e.Template, e.Line, e.Kind, e.Msg)
}

// ErrRaised is the error of a template that called raise_exception: it refuses its input, and Message says why.
type ErrRaised struct {
	Template string
	Line     int
	Message  string
}

func (e *ErrRaised) Error() string {
	return fmt.Sprintf("template %s, line %d: %s", e.Template, e.Line, e.Message)
}

// failAt ends parsing or rendering: errors travel as panics within the package and become returned errors in catch.
func failAt(line int, kind, format string, args ...any) {
	panic(&Error{Line: line, Kind: kind, Msg: fmt.Sprintf(format, args...)})
}

// catch turns a panic into *err. line gives the line of errors that carry none. A panic that is no error of ours is a defect of
// this package; it becomes an error as well, because a template from a stranger must not end the program.
func catch(name string, line func() int, err *error) {
	switch e := recover().(type) {
	case nil:
	case *Error:
		e.Template = name
		if e.Line == 0 {
			e.Line = line()
		}
		*err = e
	case *ErrRaised:
		e.Template, e.Line = name, line()
		*err = e
	default:
		*err = &Error{Template: name, Line: line(), Kind: "InternalError", Msg: fmt.Sprint(e)}
	}
}

// fail ends the rendering with an error at the current line.
func (r *state) fail(kind, format string, args ...any) { failAt(r.line, kind, format, args...) }

func (r *state) typeError(format string, args ...any) { r.fail("TypeError", format, args...) }

// step counts n units of work; the clock is read every few thousand.
func (r *state) step(n int) {
	r.steps += n
	if r.steps < r.nextCheck && n >= 0 {
		return
	}
	if r.steps > r.lim.Steps || n < 0 {
		r.fail("LimitError", "more than %d steps; the template does not come to an end", r.lim.Steps)
	}
	if time.Since(r.start) > r.lim.Time {
		r.fail("LimitError", "takes longer than %v", r.lim.Time)
	}
	r.nextCheck = min(r.steps+4096, r.lim.Steps+1)
}

// charge counts n bytes about to be allocated, and the work of filling them.
func (r *state) charge(n int) {
	if n < 0 || n > r.lim.Memory-r.mem {
		r.fail("LimitError", "needs more than %d bytes of memory", r.lim.Memory)
	}
	r.mem += n
	r.step(n >> 6)
}

// scan counts the work of reading n bytes.
func (r *state) scan(n int) { r.step(n >> 5) }

// chargeN charges n items of size bytes each; the product cannot overflow.
func (r *state) chargeN(n, size int) {
	if n > 0 && size > 0 && n > r.lim.Memory/size {
		r.charge(-1)
	}
	r.charge(max(n, 0) * max(size, 0))
}

// enter and leave count nested evaluations.
func (r *state) enter() {
	r.depth++
	if r.depth > r.lim.Depth {
		r.fail("LimitError", "more than %d nested evaluations", r.lim.Depth)
	}
}

func (r *state) leave() { r.depth-- }
