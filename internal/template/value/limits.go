package value

import (
	"fmt"
	"time"
)

// Limits bounds what one rendering may use. Zero fields take the defaults. A template that exceeds a limit ends in an
// *Error of kind "LimitError".
type Limits struct {
	Steps  int           // nodes evaluated and items or bytes worked through; default 5e6 + 50 per byte of the variables
	Depth  int           // nested evaluations (expressions, statements, macro calls); default 6000
	Output int           // bytes of the rendered text; default 16 MiB + 16 per byte of the variables
	Memory int           // bytes allocated for values, freed or not; default 32 MiB + 48 per byte of the variables
	Time   time.Duration // wall time; default 0.8 s
}

const (
	maxValueNest = 400 // nested lists and dicts in one value
	// MaxIntBits, CostItem and CostObject are limits and charges that built-ins need as well.
	MaxIntBits   = 1 << 16 // bits of an integer
	maxIntDigits = 4300    // digits of an integer in text, as in Python
	CostItem     = 40      // bytes charged for one item of a list
	costEntry    = 160     // bytes charged for one entry of a dict
	CostObject   = 96      // bytes charged for one object
)

// WithDefaults is l with zero fields filled in, for variables of so many bytes.
func (l Limits) WithDefaults(input int) Limits {
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

// Run is one rendering as its values see it: what it has used of its limits, and whether texts from outside were
// read. All operations on values are its methods or those of types that embed it, because each counts its work.
type Run struct {
	Lim       Limits
	start     time.Time
	steps     int
	mem       int
	depth     int
	Touched   int  // times that a text from outside was read
	digits    bool // a number was made of such a text
	nextCheck int
}

// NewRun begins a rendering.
func NewRun(start time.Time, lim Limits) Run { return Run{Lim: lim, start: start} }

// Error ends a rendering. Kind is the name of the exception that Python would raise, or "LimitError".
type Error struct{ Kind, Msg string }

// Error is the kind and what is wrong.
func (e *Error) Error() string { return e.Kind + ": " + e.Msg }

// Fail ends the rendering: errors travel as panics of type *Error until whoever renders recovers them.
func (r *Run) Fail(kind, format string, args ...any) {
	panic(&Error{kind, fmt.Sprintf(format, args...)})
}

// TypeError ends the rendering with an error of kind "TypeError".
func (r *Run) TypeError(format string, args ...any) { r.Fail("TypeError", format, args...) }

// Step counts n units of work; the clock is read every few thousand.
func (r *Run) Step(n int) {
	r.steps += n
	if r.steps < r.nextCheck && n >= 0 {
		return
	}
	if r.steps > r.Lim.Steps || n < 0 {
		r.Fail("LimitError", "more than %d steps; the template does not come to an end", r.Lim.Steps)
	}
	if time.Since(r.start) > r.Lim.Time {
		r.Fail("LimitError", "takes longer than %v", r.Lim.Time)
	}
	r.nextCheck = min(r.steps+4096, r.Lim.Steps+1)
}

// Charge counts n bytes about to be allocated, and the work of filling them.
func (r *Run) Charge(n int) {
	if n < 0 || n > r.Lim.Memory-r.mem {
		r.Fail("LimitError", "needs more than %d bytes of memory", r.Lim.Memory)
	}
	r.mem += n
	r.Step(n >> 6)
}

// Scan counts the work of reading n bytes.
func (r *Run) Scan(n int) { r.Step(n >> 5) }

// ChargeN charges n items of size bytes each; the product cannot overflow.
func (r *Run) ChargeN(n, size int) {
	if n > 0 && size > 0 && n > r.Lim.Memory/size {
		r.Charge(-1)
	}
	r.Charge(max(n, 0) * max(size, 0))
}

// Enter counts a nested evaluation, until Leave.
func (r *Run) Enter() {
	r.depth++
	if r.depth > r.Lim.Depth {
		r.Fail("LimitError", "more than %d nested evaluations", r.Lim.Depth)
	}
}

// Leave ends what Enter began.
func (r *Run) Leave() { r.depth-- }
