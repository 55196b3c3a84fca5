package template

import (
	"fmt"
)

// loop is the variable "loop" of a for statement.
type loop struct {
	r         *state
	stmt      *forStmt
	scope     *scope // around the loop
	seq       Value
	it        *iterator
	index     int // of cur, from 0; -1 before the first
	prev, cur Value
	after     []Value // items read ahead
	depth0    int
	changed   *List // the last arguments of changed()
	n         int   // number of items, -1 while unknown
}

func (l *loop) peek() (Value, bool) {
	if len(l.after) == 0 {
		v, ok := l.r.next(l.it)
		if !ok {
			return nil, false
		}
		l.after = append(l.after, v)
	}
	return l.after[0], true
}

func (l *loop) advance() bool {
	l.r.step(3)
	v, ok := l.peek()
	if !ok {
		return false
	}
	l.after = l.after[1:]
	l.prev, l.cur = l.cur, v
	l.index++
	return true
}

// Len is the number of items; where it is not known beforehand, the rest of them is read.
func (l *loop) Len() int {
	if l.n < 0 {
		l.after = append(l.after, l.r.rest(l.it)...)
		l.n = l.index + 1 + len(l.after)
	}
	return l.n
}

// runLoop runs a loop over seq inside of the given scope.
func (r *state) runLoop(s *forStmt, seq Value, around *scope, depth0 int) flow {
	r.line = s.line
	l := &loop{r: r, stmt: s, scope: around, seq: seq, it: r.iterate(seq), index: -1, depth0: depth0, n: -1}
	switch seq.(type) {
	case *List, *Dict, *view, *pyRange, *Undefined:
		l.n, _ = r.length(seq)
	}
	if s.test != nil {
		l.n, l.it = -1, r.filtered(s, l.it, around)
	}
	// As in jinja2, "else" runs if no iteration came to the end of the body, be it because of a break or continue.
	done := false
	for l.advance() {
		fl := r.inScope(around, func() flow {
			r.scope.set("loop", l)
			r.assign(s.target, l.cur)
			return r.body(s.body)
		})
		if fl == flowBreak {
			break
		}
		done = done || fl == flowNext
	}
	if !done {
		return r.inScope(around, func() flow { return r.body(s.other) })
	}
	return flowNext
}

// filtered is the items of src for which the condition of the loop holds.
func (r *state) filtered(s *forStmt, src *iterator, around *scope) *iterator {
	return &iterator{gen: func() (Value, bool) {
		for {
			v, ok := r.next(src)
			if !ok {
				return nil, false
			}
			keep := false
			r.inScope(around, func() flow {
				r.assign(s.target, v)
				keep = r.truth(r.eval(s.test))
				return flowNext
			})
			if keep {
				return v, true
			}
		}
	}}
}

// TypeName, Repr, Len, Attr and Call make a loop a value.
func (l *loop) TypeName() string { return "LoopContext" }

// Repr is repr(loop).
func (l *loop) Repr() string { return fmt.Sprintf("<LoopContext %d/%d>", l.index+1, l.Len()) }

// Call runs a recursive loop over other items.
func (l *loop) Call(_ *env, a args) Value {
	r := l.r
	if !l.stmt.recursive {
		r.typeError("The loop must have the 'recursive' marker to be called recursively.")
	}
	if len(a.pos) != 1 || len(a.names) > 0 {
		r.typeError("loop() takes one argument")
	}
	return r.capture(func() flow { return r.runLoop(l.stmt, a.pos[0], l.scope, l.depth0+1) })
}

// Attr is an attribute or a method of the loop variable.
func (l *loop) Attr(name string) (Value, bool) {
	switch name {
	case "index":
		return l.index + 1, true
	case "index0":
		return l.index, true
	case "first":
		return l.index == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return l.Len(), true
	case "revindex":
		return l.Len() - l.index, true
	case "revindex0":
		return l.Len() - l.index - 1, true
	case "depth":
		return l.depth0 + 1, true
	case "depth0":
		return l.depth0, true
	case "previtem":
		if l.index <= 0 {
			return l.r.undefined("there is no previous item"), true
		}
		return l.prev, true
	case "nextitem":
		if v, ok := l.peek(); ok {
			return v, true
		}
		return l.r.undefined("there is no next item"), true
	}
	if f := loopMethods[name]; f != nil {
		return l.r.bind(l, f), true
	}
	return nil, false
}

var loopMethods = map[string]*builtin{}

func init() {
	defineRaw(loopMethods, "cycle", func(r *env, v Value, a args) Value {
		if len(a.pos) == 0 {
			r.typeError("no items for cycling given")
		}
		return a.pos[max(v.(*loop).index, 0)%len(a.pos)]
	})
	defineRaw(loopMethods, "changed", func(r *env, v Value, a args) Value {
		l, now := v.(*loop), r.tuple(a.pos)
		changed := l.changed == nil || !r.equal(l.changed, now)
		l.changed = now
		return changed
	})
}
