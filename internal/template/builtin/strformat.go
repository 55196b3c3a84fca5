package builtin

import (
	"slices"
	"strings"

	"ck/internal/template/pystr"
	"ck/internal/template/value"
)

// format is format.format(*args, **kwargs).
func (r *Env) format(like value.Value, format string, a Args) value.Value {
	auto := 0 // next automatic number, -1 once fields are numbered by hand
	return r.formatFields(like, format, a, &auto, 0)
}

func (r *Env) formatFields(like value.Value, format string, a Args, auto *int, depth int) value.Value {
	if depth > 1 {
		r.Fail("ValueError", "Max string recursion exceeded")
	}
	b := r.NewFilled(like)
	r.Charge(len(format))
	for format != "" {
		i := strings.IndexAny(format, "{}")
		if i < 0 {
			b.Literal(format)
			break
		}
		b.Literal(format[:i])
		c := format[i]
		format = format[i+1:]
		if format != "" && format[0] == c {
			b.Literal(format[:1])
			format = format[1:]
			continue
		}
		if c == '}' {
			r.Fail("ValueError", "Single '}' encountered in format string")
		}
		end := fieldEnd(format)
		if end < 0 {
			r.Fail("ValueError", "expected '}' before end of string")
		}
		field := format[:end]
		n := b.Fill(func() string { return r.formatField(like, field, a, auto, depth) })
		r.Charge(2 * n)
		r.Step(1)
		format = format[end+1:]
	}
	return b.Value(value.IsMarkup(like))
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
func (r *Env) formatField(like value.Value, field string, a Args, auto *int, depth int) string {
	field, how, _ := strings.Cut(field, ":")
	name, conversion, converted := strings.Cut(field, "!")
	v := r.formatArg(name, a, auto)
	if strings.Contains(how, "{") {
		how = r.Str(r.formatFields(like, how, a, auto, depth+1))
	}
	if converted {
		switch conversion {
		case "s":
			v = r.Str(v)
		case "r":
			v = r.Repr(v)
		case "a":
			v = pystr.ASCIIEscape(r.Repr(v))
		default:
			r.Fail("ValueError", "Unknown conversion specifier")
		}
	}
	s := r.FormatOne(how, v)
	if value.IsMarkup(like) && !value.IsMarkup(v) {
		s = r.Escape(s)
	}
	return s
}

// formatArg is the argument that a field names: a number or a name, then attributes and items.
func (r *Env) formatArg(name string, a Args, auto *int) value.Value {
	head, rest := name, ""
	if i := strings.IndexAny(name, ".["); i >= 0 {
		head, rest = name[:i], name[i:]
	}
	var v value.Value
	n, isNum := value.ParseInt(head, 10)
	k, isInt := n.(int)
	switch {
	case head == "" && *auto >= 0:
		k, isNum, isInt = *auto, true, true
		*auto++
	case head == "" || isNum && *auto > 0:
		r.Fail("ValueError", "cannot switch between automatic field numbering and manual field specification")
	case isNum:
		*auto = -1
	}
	if isNum {
		if !isInt || k < 0 || k >= len(a.Pos) {
			r.Fail("IndexError", "Replacement index %s out of range for positional args tuple", head)
		}
		v = a.Pos[k]
	} else {
		r.Step(1 + len(a.Names)>>3)
		at := slices.Index(a.Names, head)
		if at < 0 {
			r.Fail("KeyError", "'%s'", head)
		}
		v = a.Kw[at]
	}
	return r.formatPath(v, rest)
}

// formatPath follows the attributes and items of a field: ".name" and "[key]".
func (r *Env) formatPath(v value.Value, rest string) value.Value {
	for rest != "" {
		r.Step(1)
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			v = r.Attr(v, rest[1:1+end])
			rest = rest[1+end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 0 {
			r.Fail("ValueError", "Missing ']' in format string")
		}
		var key value.Value = rest[1:end]
		if n, ok := value.ParseInt(rest[1:end], 10); ok {
			key = n
		}
		v = r.Item(v, key)
		rest = rest[end+1:]
	}
	return v
}
