package template

import (
	"slices"
	"strings"
)

// format is format.format(*args, **kwargs).
func (r *env) format(like Value, format string, a args) Value {
	auto := 0 // next automatic number, -1 once fields are numbered by hand
	return r.formatFields(like, format, a, &auto, 0)
}

func (r *env) formatFields(like Value, format string, a args, auto *int, depth int) Value {
	if depth > 1 {
		r.fail("ValueError", "Max string recursion exceeded")
	}
	b := r.newFilled(like)
	r.charge(len(format))
	for format != "" {
		i := strings.IndexAny(format, "{}")
		if i < 0 {
			b.literal(format)
			break
		}
		b.literal(format[:i])
		c := format[i]
		format = format[i+1:]
		if format != "" && format[0] == c {
			b.literal(format[:1])
			format = format[1:]
			continue
		}
		if c == '}' {
			r.fail("ValueError", "Single '}' encountered in format string")
		}
		end := fieldEnd(format)
		if end < 0 {
			r.fail("ValueError", "expected '}' before end of string")
		}
		field := format[:end]
		n := b.fill(func() string { return r.formatField(like, field, a, auto, depth) })
		r.charge(2 * n)
		r.step(1)
		format = format[end+1:]
	}
	return b.value(isMarkup(like))
}

// fieldEnd is the position of the bracket that closes a field, -1 if there is none.
func fieldEnd(format string) int {
	open := 1
	for i := range len(format) {
		if format[i] == '{' {
			open++
		} else if format[i] == '}' {
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}

// formatField formats one field "name!conversion:spec".
func (r *env) formatField(like Value, field string, a args, auto *int, depth int) string {
	field, how, _ := strings.Cut(field, ":")
	name, conversion, converted := strings.Cut(field, "!")
	v := r.formatArg(name, a, auto)
	if strings.Contains(how, "{") {
		how = r.str(r.formatFields(like, how, a, auto, depth+1))
	}
	if converted {
		switch conversion {
		case "s":
			v = r.str(v)
		case "r":
			v = r.repr(v)
		case "a":
			v = asciiEscape(r.repr(v))
		default:
			r.fail("ValueError", "Unknown conversion specifier")
		}
	}
	s := r.formatOne(how, v)
	if isMarkup(like) && !isMarkup(v) {
		s = r.escape(s)
	}
	return s
}

// formatArg is the argument that a field names: a number or a name, then attributes and items.
func (r *env) formatArg(name string, a args, auto *int) Value {
	head, rest := name, ""
	if i := strings.IndexAny(name, ".["); i >= 0 {
		head, rest = name[:i], name[i:]
	}
	var v Value
	n, isNum := parseInt(head, 10)
	k, isInt := n.(int)
	switch {
	case head == "" && *auto >= 0:
		k, isNum, isInt = *auto, true, true
		*auto++
	case head == "" || isNum && *auto > 0:
		r.fail("ValueError", "cannot switch between automatic field numbering and manual field specification")
	case isNum:
		*auto = -1
	}
	if isNum {
		if !isInt || k < 0 || k >= len(a.pos) {
			r.fail("IndexError", "Replacement index %s out of range for positional args tuple", head)
		}
		v = a.pos[k]
	} else {
		r.step(1 + len(a.names)>>3)
		at := slices.Index(a.names, head)
		if at < 0 {
			r.fail("KeyError", "'%s'", head)
		}
		v = a.kw[at]
	}
	return r.formatPath(v, rest)
}

// formatPath follows the attributes and items of a field: ".name" and "[key]".
func (r *env) formatPath(v Value, rest string) Value {
	for rest != "" {
		r.step(1)
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			v = r.attr(v, rest[1:1+end])
			rest = rest[1+end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 0 {
			r.fail("ValueError", "Missing ']' in format string")
		}
		var key Value = rest[1:end]
		if n, ok := parseInt(rest[1:end], 10); ok {
			key = n
		}
		v = r.item(v, key)
		rest = rest[end+1:]
	}
	return v
}
