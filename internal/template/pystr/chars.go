// Package pystr is what Python's str knows of characters and does with whole texts: white space, lines, splitting,
// cases, digits. Source and values of templates are both read by it.
package pystr

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsSpace is str.isspace of one code point, the set that strip() and split() use.
func IsSpace(c rune) bool {
	return c == ' ' || c >= '\t' && c <= '\r' || c >= 0x1c && c <= 0x1f || c > 0x7f && unicode.IsSpace(c)
}

// RuneCount is the number of characters of s.
func RuneCount(s string) int { return utf8.RuneCountInString(s) }

// RuneLen is the length in bytes of the first code point.
func RuneLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// Offset is the position in bytes of the i-th code point, len(s) beyond the end.
func Offset(s string, i int) int {
	at := 0
	for ; i > 0 && at < len(s); i-- {
		at += RuneLen(s[at:])
	}
	return at
}

// ASCIIRune is a code point as Python's escape \xHH, \uHHHH or \UHHHHHHHH without the backslash doubled.
func ASCIIRune(c rune) string {
	switch {
	case c < 0x100:
		return fmt.Sprintf("\\x%02x", c)
	case c < 0x10000:
		return fmt.Sprintf("\\u%04x", c)
	}
	return fmt.Sprintf("\\U%08x", c)
}

// ASCIIEscape writes what is beyond ASCII as Python's ascii() does.
func ASCIIEscape(s string) string {
	var b strings.Builder
	for _, c := range s {
		if c < 0x80 {
			b.WriteRune(c)
		} else {
			b.WriteString(ASCIIRune(c))
		}
	}
	return b.String()
}

// BasePrefix is the base of an integer that begins with 0x, 0o or 0b, else 0.
func BasePrefix(s string) int {
	if len(s) < 2 || s[0] != '0' {
		return 0
	}
	switch s[1] | 0x20 {
	case 'x':
		return 16
	case 'o':
		return 8
	case 'b':
		return 2
	}
	return 0
}

// DecimalDigits replaces the decimal digits of other scripts by ASCII's.
func DecimalDigits(s string) string {
	return strings.Map(func(c rune) rune {
		if c > 0x7f && unicode.Is(unicode.Nd, c) {
			return '0' + digitValue(c)
		}
		return c
	}, s)
}

// digitValue is the value of a decimal digit: each script has its ten in a row, 0 first.
func digitValue(c rune) rune {
	n := rune(0)
	for n < 9 && unicode.Is(unicode.Nd, c-n-1) {
		n++
	}
	if c >= 0x1d7ce && c <= 0x1d7ff { // mathematical digits: five rows without a gap
		n = (c - 0x1d7ce) % 10
	}
	return n
}

// IsLineEnd reports whether c ends a line, as str.splitlines sees it.
func IsLineEnd(c rune) bool {
	return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

// SplitLines is str.splitlines.
func SplitLines(s string, keepEnds bool) (lines []string) {
	for s != "" {
		i := strings.IndexFunc(s, IsLineEnd)
		if i < 0 {
			return append(lines, s)
		}
		end := i + RuneLen(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			end++
		}
		if keepEnds {
			i = end
		}
		lines = append(lines, s[:i])
		s = s[end:]
	}
	return lines
}

// SplitSpace is str.split() without a separator; n < 0 for no limit.
func SplitSpace(s string, n int) (parts []string) {
	for {
		s = strings.TrimLeftFunc(s, IsSpace)
		if s == "" {
			return parts
		}
		i := strings.IndexFunc(s, IsSpace)
		if i < 0 || n == 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:i])
		s = s[i:]
		n--
	}
}

// RsplitSpace is str.rsplit() without a separator.
func RsplitSpace(s string, n int) (parts []string) {
	for {
		s = strings.TrimRightFunc(s, IsSpace)
		if s == "" {
			break
		}
		i := strings.LastIndexFunc(s, IsSpace)
		if i < 0 || n == 0 {
			parts = append(parts, s)
			break
		}
		at := i + RuneLen(s[i:])
		parts = append(parts, s[at:])
		s = s[:at]
		n--
	}
	slices.Reverse(parts)
	return parts
}

// Rsplit is str.rsplit with a separator.
func Rsplit(s, sep string, n int) (parts []string) {
	if n < 0 {
		return strings.Split(s, sep)
	}
	end := len(s)
	for ; n > 0; n-- {
		i := strings.LastIndex(s[:end], sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):end])
		end = i
	}
	parts = append(parts, s[:end])
	slices.Reverse(parts)
	return parts
}

// All reports whether s is not empty and ok for each code point.
func All(s string, ok func(c rune) bool) bool {
	for _, c := range s {
		if !ok(c) {
			return false
		}
	}
	return s != ""
}

// IsIdentifier is str.isidentifier.
func IsIdentifier(s string) bool {
	for i, c := range s {
		if c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c) && !unicode.IsMark(c)) {
			return false
		}
	}
	return s != ""
}
