package template

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatFloat is f with a verb of C's printf (e, f, g) and a precision.
func formatFloat(f float64, verb byte, precision int) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(floatRepr(f), "+")
	}
	if verb == 'g' && precision == 0 {
		precision = 1
	}
	return strconv.FormatFloat(f, verb, precision, 64)
}

// spec is how one value is to be formatted, for "%" and for str.format.
type spec struct {
	fill      string
	align     byte // < > ^ = or 0
	sign      byte // + - space or 0
	alt       bool
	width     int
	group     string // thousands separator
	precision int    // -1 for none
	verb      byte   // 0 for none
}

// pad fills text up to the width; sign and prefix stay in front of a numeric fill.
func (r *state) pad(f spec, prefix, body string, def byte) string {
	align, fill := f.align, f.fill
	if align == 0 {
		align = def
	}
	if fill == "" {
		fill = " "
	}
	r.scan(len(body))
	n := max(f.width-runeCount(prefix)-runeCount(body), 0)
	switch align {
	case '=':
		return r.join(prefix+r.repeat(fill, n), body)
	case '>':
		return r.join(r.repeat(fill, n), prefix+body)
	case '^':
		return r.join(r.repeat(fill, n/2)+prefix+body, r.repeat(fill, n-n/2))
	}
	return r.join(prefix+body, r.repeat(fill, n))
}

// signed splits a number's text in sign and rest.
func (f spec) signed(s string) (sign, rest string) {
	if strings.HasPrefix(s, "-") {
		return "-", s[1:]
	}
	if f.sign == '+' || f.sign == ' ' {
		return string(f.sign), s
	}
	return "", s
}

// grouped puts the thousands separator between the digits before the point.
func (f spec) grouped(s string, every int) string {
	if f.group == "" {
		return s
	}
	n := 0
	for n < len(s) && (s[n] >= '0' && s[n] <= '9' || every == 4 && s[n] >= 'A' && s[n] <= 'f') {
		n++
	}
	out := s[n:]
	for n > every {
		out = f.group + s[n-every:n] + out
		n -= every
	}
	return s[:n] + out
}

// integer formats an int or *big.Int with one of the verbs b o x X d n.
func (r *state) integer(f spec, n Value) string {
	r.useNumber()
	base, prefix, every := 10, "", 4
	switch f.verb {
	case 'b':
		base, prefix = 2, "0b"
	case 'o':
		base, prefix = 8, "0o"
	case 'x', 'X':
		base, prefix = 16, "0"+string(f.verb)
	default:
		every = 3
	}
	b := toBig(n)
	var s string
	if base == 10 {
		s = r.bigText(b)
	} else {
		r.charge(b.BitLen())
		s = b.Text(base)
	}
	if f.verb == 'X' {
		s = strings.ToUpper(s)
	}
	sign, s := f.signed(s)
	if f.alt {
		sign += prefix
	}
	return r.pad(f, sign, f.grouped(s, every), '>')
}

// floating formats a float with one of the verbs e f g, their capitals, "%" or none.
func (r *state) floating(f spec, x float64) string {
	r.useNumber()
	precision, verb := f.precision, f.verb|0x20
	if precision < 0 {
		precision = 6
	}
	r.charge(precision + 400)
	var s string
	switch {
	case f.verb == 0 && f.precision < 0:
		s = floatRepr(x)
	case f.verb == 0:
		s = formatFloat(x, 'g', precision)
		if !strings.ContainsAny(s, ".en") { // an integer: ".0" takes a digit of the precision, or else an exponent comes
			if len(strings.TrimPrefix(s, "-")) < precision {
				s += ".0"
			} else {
				mantissa, exponent, _ := strings.Cut(formatFloat(x, 'e', max(precision-1, 0)), "e")
				if strings.Contains(mantissa, ".") {
					mantissa = strings.TrimSuffix(strings.TrimRight(mantissa, "0"), ".")
				}
				s = mantissa + "e" + exponent
			}
		}
	case f.verb == '%':
		s = formatFloat(x*100, 'f', precision) + "%"
	case verb == 'n':
		s = formatFloat(x, 'g', precision)
	default:
		s = formatFloat(x, verb, precision)
	}
	if f.verb >= 'A' && f.verb <= 'Z' {
		s = strings.ToUpper(s)
	}
	sign, s := f.signed(s)
	return r.pad(f, sign, f.grouped(s, 3), '>')
}

// percent is format % arg. like is the format as a value: Markup escapes what is put in.
func (r *state) percent(like Value, format string, arg Value) Value {
	b := r.newFilled(like)
	r.charge(len(format))
	list, isTuple := arg.(*List)
	isTuple = isTuple && list.tuple
	used := 0
	next := func() Value {
		used++
		switch {
		case isTuple && used <= len(list.items):
			return list.items[used-1]
		case !isTuple && used == 1:
			return arg
		}
		r.typeError("not enough arguments for format string")
		return nil
	}
	for i := 0; i < len(format); {
		if format[i] != '%' {
			j := strings.IndexByte(format[i:], '%')
			if j < 0 {
				j = len(format) - i
			}
			b.literal(format[i : i+j])
			i += j
			continue
		}
		i++
		at := func() byte {
			if i >= len(format) {
				r.fail("ValueError", "incomplete format")
			}
			return format[i]
		}
		f := spec{precision: -1}
		value := next
		if at() == '(' {
			end := strings.IndexByte(format[i:], ')')
			d, ok := arg.(*Dict)
			if end < 0 || !ok {
				r.typeError("format requires a mapping")
			}
			name := format[i+1 : i+end]
			i += end + 1
			value = func() Value {
				used = 1
				v, ok := d.Get(name)
				if !ok {
					r.fail("KeyError", "'%s'", name)
				}
				return v
			}
		}
		left := false
		for strings.IndexByte("-+ #0", at()) >= 0 {
			switch c := format[i]; c {
			case '-':
				left = true
			case '#':
				f.alt = true
			case '0':
				f.fill, f.align = "0", '='
			case '+':
				f.sign = c
			case ' ':
				if f.sign == 0 {
					f.sign = c
				}
			}
			i++
		}
		number := func() int {
			if at() == '*' {
				i++
				return r.intArg(next())
			}
			n := 0
			for at() >= '0' && at() <= '9' && n < 1<<40 {
				n = n*10 + int(at()-'0')
				i++
			}
			return n
		}
		if f.width = number(); f.width < 0 {
			left, f.width = true, -f.width
		}
		if left {
			f.fill, f.align = "", '<'
		}
		if at() == '.' {
			i++
			f.precision = max(number(), 0)
		}
		for strings.IndexByte("hlL", at()) >= 0 {
			i++
		}
		f.verb = at()
		i++
		if f.verb == '%' {
			b.literal("%")
			continue
		}
		v := value()
		n := b.fill(func() string { return r.percentOne(like, f, v) })
		r.charge(n)
	}
	rest := used == 0
	switch arg.(type) {
	case *List, *Dict, *pyRange, *Undefined: // what Python takes for a mapping need not be used
		rest = isTuple && used < len(list.items)
	}
	if rest {
		r.typeError("not all arguments converted during string formatting")
	}
	return b.value(isMarkup(like))
}

func (r *state) percentOne(like Value, f spec, v Value) string {
	switch f.verb {
	case 's', 'r', 'a':
		s := ""
		if f.verb == 's' {
			s = r.str(v)
		} else {
			s = r.repr(v)
		}
		if isMarkup(like) && !(isMarkup(v) && f.verb == 's') {
			s = r.escape(s)
		}
		if f.verb == 'a' {
			s = asciiEscape(s)
		}
		if f.precision >= 0 {
			s = s[:offset(s, f.precision)]
		}
		if f.align == '=' {
			f.fill, f.align = "", 0
		}
		return r.pad(f, "", s, '>')
	case 'c':
		f.fill = ""
		if s, ok := r.text(v); ok && runeCount(s) == 1 {
			return r.pad(f, "", s, '>')
		}
		r.touched++ // a character by its number could be any
		n, ok := exactInt(v)
		if !ok || n < 0 || !utf8.ValidRune(rune(n)) || n > utf8.MaxRune {
			r.typeError("%%c requires int or char")
		}
		return r.pad(f, "", string(rune(n)), '>')
	case 'd', 'i', 'u', 'o', 'x', 'X':
		r.use(v)
		n, ok := number(v)
		if x, isFloat := n.(float64); isFloat && f.verb != 'o' && f.verb|0x20 != 'x' {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				r.fail("OverflowError", "cannot convert float %s to integer", floatRepr(x))
			}
			n = r.toInt(x, 0, 10)
		} else if isFloat || !ok {
			r.typeError("%%%c format: a number is required, not %s", f.verb, typeName(v))
		}
		if f.precision > 0 { // least number of digits
			digits := r.integer(spec{verb: f.verb, precision: -1}, r.absolute(n))
			zeros := r.repeat("0", f.precision-len(digits))
			sign, _ := f.signed(strings.Repeat("-", boolInt(compareNumbers(n, 0) < 0)))
			return r.pad(f, sign, zeros+digits, '>')
		}
		return r.integer(f, n)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		return r.floating(f, r.float(v))
	}
	r.fail("ValueError", "unsupported format character '%c'", f.verb)
	return ""
}

func (r *state) absolute(n Value) Value {
	if compareNumbers(n, 0) < 0 {
		return r.arith("-", 0, n)
	}
	return n
}

// format is format.format(*args, **kwargs).
func (r *state) format(like Value, format string, a args) Value {
	auto := 0 // next automatic number, -1 once fields are numbered by hand
	return r.formatFields(like, format, a, &auto, 0)
}

func (r *state) formatFields(like Value, format string, a args, auto *int, depth int) Value {
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
		end, open := 0, 1
		for ; end < len(format); end++ {
			if format[end] == '{' {
				open++
			} else if format[end] == '}' {
				if open--; open == 0 {
					break
				}
			}
		}
		if open > 0 {
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

// filled is a format as it is filled in.
type filled struct {
	blend
	r     *state
	alien bool // the format is from outside
}

func (r *state) newFilled(format Value) *filled {
	_, alien := format.(*mixed)
	return &filled{r: r, alien: alien}
}

// literal adds a stretch of the format.
func (f *filled) literal(s string) {
	if f.alien {
		f.add(&mixed{s: s})
	} else {
		f.addOwn(s)
	}
}

// fill adds what s makes of a value and returns its length in bytes. It is from outside if such a text was read.
func (f *filled) fill(s func() string) int {
	n := f.r.touched
	text := s()
	if f.r.touched != n || f.alien {
		f.add(&mixed{s: text})
	} else {
		f.addOwn(text)
	}
	return len(text)
}

// formatField formats one field "name!conversion:spec".
func (r *state) formatField(like Value, field string, a args, auto *int, depth int) string {
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
func (r *state) formatArg(name string, a args, auto *int) Value {
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

// parseSpec reads the format specification mini-language.
func (r *state) parseSpec(s string) spec {
	f := spec{precision: -1}
	isAlign := func(i int) bool { return i < len(s) && strings.IndexByte("<>^=", s[i]) >= 0 }
	if n := runeLen(s); s != "" && isAlign(n) {
		f.fill, f.align, s = s[:n], s[n], s[n+1:]
	} else if isAlign(0) {
		f.align, s = s[0], s[1:]
	}
	cut := func(set string) byte {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	digits := func() (n int, ok bool) {
		for s != "" && s[0] >= '0' && s[0] <= '9' && n < 1<<40 {
			n, ok, s = n*10+int(s[0]-'0'), true, s[1:]
		}
		return n, ok
	}
	f.sign = cut("+- ")
	f.alt = cut("#") != 0
	if cut("0") != 0 {
		if f.fill == "" {
			f.fill = "0"
		}
		if f.align == 0 {
			f.align = '='
		}
	}
	f.width, _ = digits()
	if c := cut(",_"); c != 0 {
		f.group = string(c)
	}
	if cut(".") != 0 {
		n, ok := digits()
		if !ok {
			r.fail("ValueError", "Format specifier missing precision")
		}
		f.precision = n
	}
	f.verb = cut("bcdeEfFgGnosxX%")
	if s != "" {
		r.fail("ValueError", "Invalid format specifier")
	}
	return f
}

// formatOne is format(v, how).
func (r *state) formatOne(how string, v Value) string {
	if how == "" {
		return r.str(v)
	}
	f := r.parseSpec(how)
	wrong := func() {
		r.fail("ValueError", "Unknown format code '%c' for object of type '%s'", f.verb, typeName(v))
	}
	if s, ok := r.text(v); ok {
		if f.verb != 0 && f.verb != 's' || f.align == '=' && f.fill != "0" || f.sign != 0 || f.group != "" {
			wrong()
		}
		if f.align == '=' {
			f.align = '<'
		}
		if f.precision >= 0 {
			s = s[:offset(s, f.precision)]
		}
		return r.pad(f, "", s, '<')
	}
	switch n, _ := number(v); n := n.(type) {
	case int, *big.Int:
		switch f.verb {
		case 'e', 'E', 'f', 'F', 'g', 'G', '%':
			return r.floating(f, r.float(n))
		case 's':
			wrong()
		case 'c':
			k, ok := n.(int)
			if !ok || k < 0 || k > utf8.MaxRune || !utf8.ValidRune(rune(k)) {
				r.fail("OverflowError", "%%c arg not in range(0x110000)")
			}
			r.touched++ // a character by its number could be any
			return r.pad(f, "", string(rune(k)), '<')
		}
		if f.precision >= 0 {
			r.fail("ValueError", "Precision not allowed in integer format specifier")
		}
		return r.integer(f, n)
	case float64:
		if f.verb != 0 && strings.IndexByte("eEfFgGn%", f.verb) < 0 {
			wrong()
		}
		return r.floating(f, n)
	}
	r.typeError("unsupported format string passed to %s.__format__", typeName(v))
	return ""
}
