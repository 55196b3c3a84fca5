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
	maxValueNest = 400     // nested lists and dicts in one value
	maxIntBits   = 1 << 16 // bits of an integer
	maxIntDigits = 4300    // digits of an integer in text, as in Python
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

// run is one rendering as its values see it: what it has used of its limits, and whether texts from outside were read. All operations on
// values are its methods or those of types that embed it, because each counts its work.
type run struct {
	lim       Limits
	start     time.Time
	steps     int
	mem       int
	depth     int
	touched   int  // times that a text from outside was read
	digits    bool // a number was made of such a text
	nextCheck int
}

func newRun(start time.Time, lim Limits) run { return run{lim: lim, start: start} }

// valueError ends a rendering. Kind is the name of the exception that Python would raise, or "LimitError".
type valueError struct{ Kind, Msg string }

func (e *valueError) Error() string { return e.Kind + ": " + e.Msg }

// fail ends the rendering: errors travel as panics of type *valueError until whoever renders recovers them.
func (r *run) fail(kind, format string, args ...any) {
	panic(&valueError{kind, fmt.Sprintf(format, args...)})
}

func (r *run) typeError(format string, args ...any) { r.fail("TypeError", format, args...) }

// step counts n units of work; the clock is read every few thousand.
func (r *run) step(n int) {
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
func (r *run) charge(n int) {
	if n < 0 || n > r.lim.Memory-r.mem {
		r.fail("LimitError", "needs more than %d bytes of memory", r.lim.Memory)
	}
	r.mem += n
	r.step(n >> 6)
}

// scan counts the work of reading n bytes.
func (r *run) scan(n int) { r.step(n >> 5) }

// chargeN charges n items of size bytes each; the product cannot overflow.
func (r *run) chargeN(n, size int) {
	if n > 0 && size > 0 && n > r.lim.Memory/size {
		r.charge(-1)
	}
	r.charge(max(n, 0) * max(size, 0))
}

// enter and leave count nested evaluations.
func (r *run) enter() {
	r.depth++
	if r.depth > r.lim.Depth {
		r.fail("LimitError", "more than %d nested evaluations", r.lim.Depth)
	}
}

func (r *run) leave() { r.depth-- }
