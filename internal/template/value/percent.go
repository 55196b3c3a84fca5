package value

import (
	"strings"
	"unicode/utf8"

	"ck/internal/template/pystr"
)

// percenter reads a format of "%".
type percenter struct {
	r      *Run
	format string
	at     int // position in format
	arg    Value
	list   []Value // the arguments, if arg is a tuple
	tuple  bool
	used   int // arguments used
}

// Percent is format % arg. like is the format as a value: Markup escapes what is put in.
func (r *Run) Percent(like Value, format string, arg Value) Value {
	b := r.NewFilled(like)
	r.Charge(len(format))
	p := &percenter{r: r, format: format, arg: arg}
	if l, ok := arg.(*List); ok && l.Tuple {
		p.list, p.tuple = l.Items, true
	}
	for p.at < len(format) {
		if format[p.at] != '%' {
			j := strings.IndexByte(format[p.at:], '%')
			if j < 0 {
				j = len(format) - p.at
			}
			b.Literal(format[p.at : p.at+j])
			p.at += j
			continue
		}
		p.at++
		f, value := p.spec()
		if f.verb == '%' {
			b.Literal("%")
			continue
		}
		v := value()
		n := b.Fill(func() string { return r.percentOne(like, f, v) })
		r.Charge(n)
	}
	rest := p.used == 0
	switch arg.(type) {
	case *List, *Dict, *Range, *Undefined: // what Python takes for a mapping need not be used
		rest = p.tuple && p.used < len(p.list)
	}
	if rest {
		r.TypeError("not all arguments converted during string formatting")
	}
	return b.Value(IsMarkup(like))
}

// next is the next argument.
func (p *percenter) next() Value {
	p.used++
	switch {
	case p.tuple && p.used <= len(p.list):
		return p.list[p.used-1]
	case !p.tuple && p.used == 1:
		return p.arg
	}
	p.r.TypeError("not enough arguments for format string")
	return nil
}

// cur is the byte of the format that comes next.
func (p *percenter) cur() byte {
	if p.at >= len(p.format) {
		p.r.Fail("ValueError", "incomplete format")
	}
	return p.format[p.at]
}

// spec reads one specification behind its "%"; value gives what it formats.
func (p *percenter) spec() (f spec, value func() Value) {
	f, value = spec{precision: -1}, p.next
	if p.cur() == '(' {
		value = p.named()
	}
	left := p.flags(&f)
	if f.width = p.number(); f.width < 0 {
		left, f.width = true, -f.width
	}
	if left {
		f.fill, f.align = "", '<'
	}
	if p.cur() == '.' {
		p.at++
		f.precision = max(p.number(), 0)
	}
	for strings.IndexByte("hlL", p.cur()) >= 0 {
		p.at++
	}
	f.verb = p.cur()
	p.at++
	return f, value
}

// named reads "(name)"; the value is then that of a mapping.
func (p *percenter) named() func() Value {
	end := strings.IndexByte(p.format[p.at:], ')')
	d, ok := p.arg.(*Dict)
	if end < 0 || !ok {
		p.r.TypeError("format requires a mapping")
	}
	name := p.format[p.at+1 : p.at+end]
	p.at += end + 1
	return func() Value {
		p.used = 1
		v, ok := d.Get(name)
		if !ok {
			p.r.Fail("KeyError", "'%s'", name)
		}
		return v
	}
}

// flags reads the flags of a specification; left is set by "-".
func (p *percenter) flags(f *spec) (left bool) {
	for ; strings.IndexByte("-+ #0", p.cur()) >= 0; p.at++ {
		switch c := p.format[p.at]; c {
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
	}
	return left
}

// number reads a width or a precision: digits, or "*" for an argument.
func (p *percenter) number() int {
	if p.cur() == '*' {
		p.at++
		return p.r.IntArg(p.next())
	}
	n := 0
	for p.cur() >= '0' && p.cur() <= '9' && n < 1<<40 {
		n = n*10 + int(p.cur()-'0')
		p.at++
	}
	return n
}

// percentOne formats one value.
func (r *Run) percentOne(like Value, f spec, v Value) string {
	switch f.verb {
	case 's', 'r', 'a':
		return r.percentText(like, f, v)
	case 'c':
		f.fill = ""
		if s, ok := r.Text(v); ok && pystr.RuneCount(s) == 1 {
			return r.pad(f, "", s, '>')
		}
		r.Touched++ // a character by its number could be any
		n, ok := exactInt(v)
		if !ok || n < 0 || !utf8.ValidRune(rune(n)) || n > utf8.MaxRune {
			r.TypeError("%%c requires int or char")
		}
		return r.pad(f, "", string(rune(n)), '>')
	case 'd', 'i', 'u', 'o', 'x', 'X':
		return r.percentInt(f, v)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		return r.floating(f, r.Float(v))
	}
	r.Fail("ValueError", "unsupported format character '%c'", f.verb)
	return ""
}

func (r *Run) percentText(like Value, f spec, v Value) string {
	s := ""
	if f.verb == 's' {
		s = r.Str(v)
	} else {
		s = r.Repr(v)
	}
	if IsMarkup(like) && !(IsMarkup(v) && f.verb == 's') {
		s = r.Escape(s)
	}
	if f.verb == 'a' {
		s = pystr.ASCIIEscape(s)
	}
	if f.precision >= 0 {
		s = s[:pystr.Offset(s, f.precision)]
	}
	if f.align == '=' {
		f.fill, f.align = "", 0
	}
	return r.pad(f, "", s, '>')
}

func (r *Run) percentInt(f spec, v Value) string {
	r.Need(v)
	n, ok := Number(v)
	if x, isFloat := n.(float64); isFloat && f.verb != 'o' && f.verb|0x20 != 'x' {
		n = r.Truncate(x)
	} else if isFloat || !ok {
		r.TypeError("%%%c format: a number is required, not %s", f.verb, TypeName(v))
	}
	if f.precision > 0 { // least number of digits
		digits := r.integer(spec{verb: f.verb, precision: -1}, r.Absolute(n))
		zeros := r.Repeat("0", f.precision-len(digits))
		sign, _ := f.signed(strings.Repeat("-", BoolInt(compareNumbers(n, 0) < 0)))
		return r.pad(f, sign, zeros+digits, '>')
	}
	return r.integer(f, n)
}

// filled is a format as it is filled in.
type filled struct {
	Blend
	r     *Run
	alien bool // the format is from outside
}

// NewFilled begins the result of a format.
func (r *Run) NewFilled(format Value) *filled {
	_, alien := format.(*Mixed)
	return &filled{r: r, alien: alien}
}

// Literal adds a stretch of the format.
func (f *filled) Literal(s string) {
	if f.alien {
		f.Add(&Mixed{S: s})
	} else {
		f.addOwn(s)
	}
}

// Fill adds what s makes of a value and returns its length in bytes. It is from outside if such a text was read.
func (f *filled) Fill(s func() string) int {
	n := f.r.Touched
	text := s()
	if f.r.Touched != n || f.alien {
		f.Add(&Mixed{S: text})
	} else {
		f.addOwn(text)
	}
	return len(text)
}
