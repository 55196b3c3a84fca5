package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Kernels repeat themselves: the same instructions for another vector, for another half, in the kernel of another layout. What the generator
// emits between macro and its end becomes a macro of the assembler, and a line where it stands. The instructions are the same; what is left of
// a kernel can be read. Places in memory are told apart by their distance from the macro's first one behind the same register, so that a macro
// has a parameter for each such register: DOTS6(512, 32) is what DOTS6(0, 0) is, 512 bytes on behind DI and 32 behind SI.

// item is a line of assembly: an instruction, or the call of a macro; else text that is no part of a macro.
type item struct {
	text  string // with a %s for each of slots
	slots []slot
	call  *macro // nil: an instruction; slots are its arguments
	other bool   // label, comment, directive
}

// slot is a place in memory: off(base).
type slot struct {
	base string
	off  int
}

type macro struct {
	name  string
	body  []item // offsets from the parameters
	bases []string
	uses  int

	instruction bool // that the assembler lacks
}

// memory finds the places in memory of an instruction: an offset and a register, but for symbols.
var memory = regexp.MustCompile(`(^|[ ,])(-?\d*)\(([A-Z][A-Z0-9]*)\)`)

// newItem takes an instruction apart.
func newItem(line string) item {
	var it item
	it.text = memory.ReplaceAllStringFunc(line, func(m string) string {
		p := memory.FindStringSubmatch(m)
		off := 0
		if p[2] != "" {
			fmt.Sscan(p[2], &off)
		}
		it.slots = append(it.slots, slot{p[3], off})
		return p[1] + "%s"
	})
	return it
}

// macro begins a macro; what it returns ends it. The name says what it is for and of how many rows.
func (e *gen) macro(name string) (end func()) {
	start := len(e.items)
	return func() {
		body := slices.Clone(e.items[start:])
		e.items = append(e.items[:start], e.callOf(name, body))
	}
}

// callOf is the call of the macro with a body. A name that has another body already gets a number.
func (e *gen) callOf(name string, body []item) item {
	var bases []string
	var args []slot
	var key strings.Builder
	for i, it := range body {
		if it.other {
			panic(name + ": a label in a macro: " + it.text)
		}
		it.slots = slices.Clone(it.slots)
		for j, s := range it.slots {
			at := slices.Index(bases, s.base)
			if at < 0 {
				at, bases, args = len(bases), append(bases, s.base), append(args, s)
			}
			it.slots[j].off -= args[at].off
		}
		body[i] = it
		fmt.Fprintln(&key, it.text, it.slots, it.call)
	}
	m := e.macros[key.String()]
	if m == nil {
		e.named[name]++
		if n := e.named[name]; n > 1 {
			name = fmt.Sprintf("%s_%d", name, n)
		}
		m = &macro{name: name, body: body, bases: bases}
		e.macros[key.String()] = m
		e.order = append(e.order, m)
	}
	return item{call: m, slots: args}
}

// worth: what is used once, or shorter than its definition, stands where it is used.
func (m *macro) worth() bool { return m.instruction || m.uses > 1 && m.lines() > 2 }

// lines is the length of the definition.
func (m *macro) lines() (n int) {
	for _, it := range m.body {
		if it.call != nil && !it.call.worth() {
			n += it.call.lines()
		} else {
			n++
		}
	}
	return n
}

// count counts the uses of macros in items, and within those that are seen for the first time.
func count(items []item) {
	for _, it := range items {
		if m := it.call; m != nil {
			if m.uses++; m.uses == 1 {
				count(m.body)
			}
		}
	}
}

// render writes items; at is how a place in memory is written.
func render(items []item, to func(line string, other bool), at func(s slot) (arg, operand string)) {
	for _, it := range items {
		var args []string
		var operands []any
		for _, s := range it.slots {
			a, o := at(s)
			args, operands = append(args, a), append(operands, o)
		}
		switch {
		case it.call == nil && len(it.slots) == 0:
			to(it.text, it.other)
		case it.call == nil:
			to(fmt.Sprintf(it.text, operands...), false)
		case !it.call.worth():
			shift := map[string]int{}
			for i, s := range it.slots {
				shift[it.call.bases[i]] = s.off
			}
			render(it.call.body, to, func(s slot) (string, string) { return at(slot{s.base, s.off + shift[s.base]}) })
		case len(args) == 0:
			to(it.call.name, false)
		default:
			to(it.call.name+"("+strings.Join(args, ", ")+")", false)
		}
	}
}

// text is the file: the macros, then what calls them, in place of the mark.
func (e *gen) text() string {
	count(e.items)
	var s strings.Builder
	s.WriteString(e.head)
	for _, m := range e.order {
		if !m.worth() {
			continue
		}
		var lines []string
		render(m.body, func(line string, _ bool) { lines = append(lines, "\t"+line) }, func(s slot) (string, string) {
			p := strings.ToLower(s.base)
			switch {
			case s.off > 0:
				p = fmt.Sprintf("%s+%d", p, s.off)
			case s.off < 0:
				p = fmt.Sprintf("%s%d", p, s.off)
			}
			return p, fmt.Sprintf("(%s)(%s)", p, s.base)
		})
		params := ""
		if len(m.bases) > 0 {
			params = "(" + strings.ToLower(strings.Join(m.bases, ", ")) + ")"
		}
		fmt.Fprintf(&s, "\n#define %s%s \\\n%s\n", m.name, params, strings.Join(lines, "; \\\n"))
	}
	render(e.items, func(line string, other bool) {
		if !other {
			line = "\t" + line
		}
		s.WriteString(line + "\n")
	}, func(s slot) (string, string) { return fmt.Sprint(s.off), fmt.Sprintf("%d(%s)", s.off, s.base) })
	return s.String()
}
