package syntax

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"ck/internal/template/pystr"
)

// digits is the length of the longest run of digits of the base in s, with single underscores between them.
func digits(s string, base int) int {
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] == '_' && i > 0 && n == i {
			continue
		}
		d := 99
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			d = int(c - '0')
		case c >= 'a' && c <= 'f':
			d = int(c-'a') + 10
		case c >= 'A' && c <= 'F':
			d = int(c-'A') + 10
		}
		if d >= base {
			break
		}
		n = i + 1
	}
	return n
}

// number reads an integer or a float; rest starts with a digit.
func (l *lexer) number(rest string) token {
	t := token{kind: tNumber, line: l.line}
	n := 0
	if n = l.floatLen(rest); n > 0 {
		t.num, _ = strconv.ParseFloat(strings.ReplaceAll(rest[:n], "_", ""), 64) // out of range is infinite, as in Python
	} else {
		t.num, n = l.integer(rest)
	}
	l.advance(l.pos + n)
	return t
}

// floatLen is the length of the float at the start of rest, 0 if an integer stands there.
func (l *lexer) floatLen(rest string) int {
	if l.pos > 0 && l.src[l.pos-1] == '.' { // x.0.1 is two subscripts
		return 0
	}
	n, isFloat := digits(rest, 10), false
	if n < len(rest) && rest[n] == '.' {
		if d := digits(rest[n+1:], 10); d > 0 {
			n, isFloat = n+1+d, true
		}
	}
	if m := n; m < len(rest) && rest[m]|0x20 == 'e' {
		m++
		if m < len(rest) && (rest[m] == '+' || rest[m] == '-') {
			m++
		}
		if d := digits(rest[m:], 10); d > 0 {
			n, isFloat = m+d, true
		}
	}
	if !isFloat {
		return 0
	}
	return n
}

// integer reads an integer; n is its length in rest.
func (l *lexer) integer(rest string) (v any, n int) {
	base, skip, n := 10, 0, digits(rest, 10)
	if rest[0] == '0' {
		if b := pystr.BasePrefix(rest); b > 0 {
			start := 2
			if len(rest) > 2 && rest[2] == '_' {
				start = 3
			}
			if d := digits(rest[start:], b); d > 0 {
				base, skip, n = b, start, start+d
			}
		}
		if skip == 0 {
			// A zero is followed by zeros only: 0123 is no number.
			for n = 1; n < len(rest) && (rest[n] == '0' || rest[n] == '_' && n+1 < len(rest) && rest[n+1] == '0'); n++ {
			}
		}
	}
	text := strings.ReplaceAll(rest[skip:n], "_", "")
	if len(text) > maxLiteral {
		l.fail("integer of %d digits, more than %d", len(text), maxLiteral)
	}
	if v, err := strconv.ParseInt(text, base, strconv.IntSize); err == nil {
		return int(v), n
	}
	b, ok := new(big.Int).SetString(text, base)
	if !ok {
		l.fail("invalid number %q", rest[:n])
	}
	return b, n
}

// str reads a quoted string; rest starts with the quote.
func (l *lexer) str(rest string) token {
	t := token{kind: tString, line: l.line}
	end := 1
	for end < len(rest) && rest[end] != rest[0] {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		l.fail("string without an end")
	}
	s := rest[1:end]
	if strings.IndexByte(s, '\\') >= 0 {
		s = l.unescape(s)
	}
	t.text = s
	l.advance(l.pos + end + 1)
	return t
}

const simpleEscapes = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v"

// unescape resolves the escapes of Python's string literals; unknown ones stay as they are.
func (l *lexer) unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1]
		i += 2
		if c == '\n' {
			continue
		}
		if k := strings.IndexByte(simpleEscapes, c); k >= 0 && k%2 == 0 {
			b.WriteByte(simpleEscapes[k+1])
			continue
		}
		if n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; n > 0 {
			i += l.hexEscape(&b, s, i, n)
			continue
		}
		switch {
		case c >= '0' && c <= '7':
			v := rune(c - '0')
			for k := 0; k < 2 && i < len(s) && s[i] >= '0' && s[i] <= '7'; k++ {
				v = v*8 + rune(s[i]-'0')
				i++
			}
			b.WriteRune(v)
		case c == 'N':
			l.fail("\\N{name} escapes are not supported; write the character itself")
		case c >= utf8.RuneSelf:
			// jinja2 writes characters beyond ASCII as escapes before it resolves escapes, so that the backslash before one
			// swallows that escape's own.
			r, n := utf8.DecodeRuneInString(s[i-1:])
			b.WriteString(pystr.ASCIIRune(r))
			i += n - 1
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String()
}

// hexEscape writes the character of an escape whose n digits start at i, and returns the length of what it read.
func (l *lexer) hexEscape(b *strings.Builder, s string, i, n int) int {
	c := s[i-1]
	v, ok := hexRune(s, i, n)
	if !ok {
		l.fail("truncated \\%cXXXX escape", c)
	}
	if rest := s[i+n:]; v >= 0xd800 && v < 0xdc00 && strings.HasPrefix(rest, "\\u") {
		if low, ok := hexRune(rest, 2, 4); ok && low >= 0xdc00 && low < 0xe000 {
			v = 0x10000 + (v-0xd800)<<10 + (low - 0xdc00)
			n += 6
		}
	}
	if !utf8.ValidRune(v) {
		l.fail("\\%c escape is no character", c)
	}
	b.WriteRune(v)
	return n
}

// hexRune reads n hexadecimal digits at i.
func hexRune(s string, i, n int) (rune, bool) {
	if i+n > len(s) {
		return 0, false
	}
	v, err := strconv.ParseUint(s[i:i+n], 16, 32)
	return rune(v), err == nil && v <= unicode.MaxRune
}
