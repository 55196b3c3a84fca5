package template

import (
	"fmt"

	"ck/internal/template/builtin"
	"ck/internal/template/syntax"
	"ck/internal/template/value"
)

// loop is the variable "loop" of a for statement.
type loop struct {
	r         *state
	stmt      *syntax.ForStmt
	scope     *scope // around the loop
	seq       value.Value
	it        *value.Iterator
	index     int // of cur, from 0; -1 before the first
	prev, cur value.Value
	after     []value.Value // items read ahead
	depth0    int
	changed   *value.List // the last arguments of changed()
	n         int         // number of items, -1 while unknown
}

func (l *loop) peek() (value.Value, bool) {
	if len(l.after) == 0 {
		v, ok := l.r.Next(l.it)
		if !ok {
			return nil, false
		}
		l.after = append(l.after, v)
	}
	return l.after[0], true
}

func (l *loop) advance() bool {
	l.r.Step(3)
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
		l.after = append(l.after, l.r.Rest(l.it)...)
		l.n = l.index + 1 + len(l.after)
	}
	return l.n
}

// runLoop runs a loop over seq inside of the given scope.
func (r *state) runLoop(s *syntax.ForStmt, seq value.Value, around *scope, depth0 int) flow {
	r.line = s.Line
	l := &loop{r: r, stmt: s, scope: around, seq: seq, it: r.Iterate(seq), index: -1, depth0: depth0, n: -1}
	switch seq.(type) {
	case *value.List, *value.Dict, *value.View, *value.Range, *value.Undefined:
		l.n, _ = r.Length(seq)
	}
	if s.Test != nil {
		l.n, l.it = -1, r.filtered(s, l.it, around)
	}
	// As in jinja2, "else" runs if no iteration came to the end of the body, be it because of a break or continue.
	done := false
	for l.advance() {
		fl := r.inScope(around, func() flow {
			r.scope.set("loop", l)
			r.assign(s.Target, l.cur)
			return r.body(s.Body)
		})
		if fl == flowBreak {
			break
		}
		done = done || fl == flowNext
	}
	if !done {
		return r.inScope(around, func() flow { return r.body(s.Other) })
	}
	return flowNext
}

// filtered is the items of src for which the condition of the loop holds.
func (r *state) filtered(s *syntax.ForStmt, src *value.Iterator, around *scope) *value.Iterator {
	return &value.Iterator{Gen: func() (value.Value, bool) {
		for {
			v, ok := r.Next(src)
			if !ok {
				return nil, false
			}
			keep := false
			r.inScope(around, func() flow {
				r.assign(s.Target, v)
				keep = r.Truth(r.eval(s.Test))
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
func (l *loop) Call(_ *builtin.Env, a builtin.Args) value.Value {
	r := l.r
	if !l.stmt.Recursive {
		r.TypeError("The loop must have the 'recursive' marker to be called recursively.")
	}
	if len(a.Pos) != 1 || len(a.Names) > 0 {
		r.TypeError("loop() takes one argument")
	}
	return r.capture(func() flow { return r.runLoop(l.stmt, a.Pos[0], l.scope, l.depth0+1) })
}

// Attr is an attribute or a method of the loop variable.
func (l *loop) Attr(name string) (value.Value, bool) {
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
			return l.r.Undefined("there is no previous item"), true
		}
		return l.prev, true
	case "nextitem":
		if v, ok := l.peek(); ok {
			return v, true
		}
		return l.r.Undefined("there is no next item"), true
	}
	if f := loopMethods[name]; f != nil {
		return l.r.Bind(l, f), true
	}
	return nil, false
}

var loopMethods = map[string]*builtin.Func{}

func init() {
	builtin.DefineRaw(loopMethods, "cycle", func(r *builtin.Env, v value.Value, a builtin.Args) value.Value {
		if len(a.Pos) == 0 {
			r.TypeError("no items for cycling given")
		}
		return a.Pos[max(v.(*loop).index, 0)%len(a.Pos)]
	})
	builtin.DefineRaw(loopMethods, "changed", func(r *builtin.Env, v value.Value, a builtin.Args) value.Value {
		l, now := v.(*loop), r.Tuple(a.Pos)
		changed := l.changed == nil || !r.Equal(l.changed, now)
		l.changed = now
		return changed
	})
}
