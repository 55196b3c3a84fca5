package value

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"ck/internal/template/pystr"
)

// FormatFloat is f with a verb of C's printf (e, f, g) and a precision.
func FormatFloat(f float64, verb byte, precision int) string {
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
func (r *Run) pad(f spec, prefix, body string, def byte) string {
	align, fill := f.align, f.fill
	if align == 0 {
		align = def
	}
	if fill == "" {
		fill = " "
	}
	r.Scan(len(body))
	n := max(f.width-pystr.RuneCount(prefix)-pystr.RuneCount(body), 0)
	switch align {
	case '=':
		return r.Join(prefix+r.Repeat(fill, n), body)
	case '>':
		return r.Join(r.Repeat(fill, n), prefix+body)
	case '^':
		return r.Join(r.Repeat(fill, n/2)+prefix+body, r.Repeat(fill, n-n/2))
	}
	return r.Join(prefix+body, r.Repeat(fill, n))
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
func (r *Run) integer(f spec, n Value) string {
	r.ReadNumber()
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
	b := ToBig(n)
	var s string
	if base == 10 {
		s = r.bigText(b)
	} else {
		r.Charge(b.BitLen())
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
func (r *Run) floating(f spec, x float64) string {
	r.ReadNumber()
	precision, verb := f.precision, f.verb|0x20
	if precision < 0 {
		precision = 6
	}
	r.Charge(precision + 400)
	var s string
	switch {
	case f.verb == 0 && f.precision < 0:
		s = floatRepr(x)
	case f.verb == 0:
		s = FormatFloat(x, 'g', precision)
		if !strings.ContainsAny(s, ".en") { // an integer: ".0" takes a digit of the precision, or else an exponent comes
			if len(strings.TrimPrefix(s, "-")) < precision {
				s += ".0"
			} else {
				mantissa, exponent, _ := strings.Cut(FormatFloat(x, 'e', max(precision-1, 0)), "e")
				if strings.Contains(mantissa, ".") {
					mantissa = strings.TrimSuffix(strings.TrimRight(mantissa, "0"), ".")
				}
				s = mantissa + "e" + exponent
			}
		}
	case f.verb == '%':
		s = FormatFloat(x*100, 'f', precision) + "%"
	case verb == 'n':
		s = FormatFloat(x, 'g', precision)
	default:
		s = FormatFloat(x, verb, precision)
	}
	if f.verb >= 'A' && f.verb <= 'Z' {
		s = strings.ToUpper(s)
	}
	sign, s := f.signed(s)
	return r.pad(f, sign, f.grouped(s, 3), '>')
}

// Absolute is abs(n) of an int or *big.Int.
func (r *Run) Absolute(n Value) Value {
	if compareNumbers(n, 0) < 0 {
		return r.Arith("-", 0, n)
	}
	return n
}

// parseSpec reads the format specification mini-language.
func (r *Run) parseSpec(s string) spec {
	f := spec{precision: -1}
	isAlign := func(i int) bool { return i < len(s) && strings.IndexByte("<>^=", s[i]) >= 0 }
	if n := pystr.RuneLen(s); s != "" && isAlign(n) {
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
			r.Fail("ValueError", "Format specifier missing precision")
		}
		f.precision = n
	}
	f.verb = cut("bcdeEfFgGnosxX%")
	if s != "" {
		r.Fail("ValueError", "Invalid format specifier")
	}
	return f
}

// FormatOne is format(v, how).
func (r *Run) FormatOne(how string, v Value) string {
	if how == "" {
		return r.Str(v)
	}
	f := r.parseSpec(how)
	if s, ok := r.Text(v); ok {
		if f.verb != 0 && f.verb != 's' || f.align == '=' && f.fill != "0" || f.sign != 0 || f.group != "" {
			r.wrongCode(f, v)
		}
		if f.align == '=' {
			f.align = '<'
		}
		if f.precision >= 0 {
			s = s[:pystr.Offset(s, f.precision)]
		}
		return r.pad(f, "", s, '<')
	}
	switch n, _ := Number(v); n := n.(type) {
	case int, *big.Int:
		return r.formatInt(f, v, n)
	case float64:
		if f.verb != 0 && strings.IndexByte("eEfFgGn%", f.verb) < 0 {
			r.wrongCode(f, v)
		}
		return r.floating(f, n)
	}
	r.TypeError("unsupported format string passed to %s.__format__", TypeName(v))
	return ""
}

// formatInt is formatOne for an integer v, of which n is the value.
func (r *Run) formatInt(f spec, v, n Value) string {
	switch f.verb {
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		return r.floating(f, r.Float(n))
	case 's':
		r.wrongCode(f, v)
	case 'c':
		k, ok := n.(int)
		if !ok || k < 0 || k > utf8.MaxRune || !utf8.ValidRune(rune(k)) {
			r.Fail("OverflowError", "%%c arg not in range(0x110000)")
		}
		r.Touched++ // a character by its number could be any
		return r.pad(f, "", string(rune(k)), '<')
	}
	if f.precision >= 0 {
		r.Fail("ValueError", "Precision not allowed in integer format specifier")
	}
	return r.integer(f, n)
}

func (r *Run) wrongCode(f spec, v Value) {
	r.Fail("ValueError", "Unknown format code '%c' for object of type '%s'", f.verb, TypeName(v))
}
