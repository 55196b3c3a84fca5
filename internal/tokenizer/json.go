package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonScanner reads JSON from front to back without building anything: vocabularies have hundreds of thousands of strings, and
// those without escapes are slices of the file.
type jsonScanner struct {
	src string
	pos int
}

const maxJSONDepth = 1000

func (j *jsonScanner) errorf(format string, args ...any) error {
	return fmt.Errorf("offset %d: %s", j.pos, fmt.Sprintf(format, args...))
}

// peek is the next byte that is no white space, 0 at the end.
func (j *jsonScanner) peek() byte {
	for j.pos < len(j.src) {
		switch c := j.src[j.pos]; c {
		case ' ', '\t', '\n', '\r':
			j.pos++
		default:
			return c
		}
	}
	return 0
}

func (j *jsonScanner) expect(c byte) error {
	if got := j.peek(); got != c {
		if j.pos >= len(j.src) {
			return j.errorf("the file ends, want %q", c)
		}
		return j.errorf("%q, want %q", got, c)
	}
	j.pos++
	return nil
}

// list reads a list between open and end, calling item for each element.
func (j *jsonScanner) list(open, end byte, item func() error) error {
	if err := j.expect(open); err != nil {
		return err
	}
	if j.peek() == end {
		j.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if j.peek() == end {
			j.pos++
			return nil
		}
		if err := j.expect(','); err != nil {
			return err
		}
	}
}

func (j *jsonScanner) array(item func() error) error { return j.list('[', ']', item) }

func (j *jsonScanner) object(member func(key string) error) error {
	return j.list('{', '}', func() error {
		key, err := j.str()
		if err != nil {
			return err
		}
		if err := j.expect(':'); err != nil {
			return err
		}
		return member(key)
	})
}

// str reads a string.
func (j *jsonScanner) str() (string, error) {
	if err := j.expect('"'); err != nil {
		return "", err
	}
	end := strings.IndexByte(j.src[j.pos:], '"')
	if end < 0 {
		return "", j.errorf("a string without end")
	}
	s := j.src[j.pos : j.pos+end]
	if strings.IndexByte(s, '\\') < 0 {
		j.pos += end + 1
		return s, nil
	}
	return j.escapedStr()
}

func (j *jsonScanner) escapedStr() (string, error) {
	var b []byte
	for j.pos < len(j.src) {
		c := j.src[j.pos]
		j.pos++
		switch {
		case c == '"':
			return string(b), nil
		case c != '\\':
			b = append(b, c)
			continue
		case j.pos == len(j.src):
			return "", j.errorf("a string without end")
		}
		c = j.src[j.pos]
		j.pos++
		switch c {
		case '"', '\\', '/':
			b = append(b, c)
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			r, err := j.hex4()
			if err != nil {
				return "", err
			}
			if utf16.IsSurrogate(r) && strings.HasPrefix(j.src[j.pos:], `\u`) {
				back := j.pos
				j.pos += 2
				low, err := j.hex4()
				if err != nil {
					return "", err
				}
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					r = pair
				} else {
					j.pos = back
				}
			}
			b = utf8.AppendRune(b, r) // a lone surrogate becomes U+FFFD
		default:
			return "", j.errorf("escape \\%c is not JSON", c)
		}
	}
	return "", j.errorf("a string without end")
}

func (j *jsonScanner) hex4() (rune, error) {
	if len(j.src)-j.pos < 4 {
		return 0, j.errorf("a \\u escape without end")
	}
	v, err := strconv.ParseUint(j.src[j.pos:j.pos+4], 16, 16)
	if err != nil {
		return 0, j.errorf("a bad \\u escape")
	}
	j.pos += 4
	return rune(v), nil
}

// integer reads a number that must be one.
func (j *jsonScanner) integer() (int64, error) {
	j.peek()
	start := j.pos
	for j.pos < len(j.src) && (j.src[j.pos] == '-' || j.src[j.pos] >= '0' && j.src[j.pos] <= '9') {
		j.pos++
	}
	v, err := strconv.ParseInt(j.src[start:j.pos], 10, 64)
	if err != nil {
		j.pos = start
		return 0, j.errorf("want an integer")
	}
	return v, nil
}

// skip passes over one value and returns its text, which is not checked beyond its brackets and strings.
func (j *jsonScanner) skip() (string, error) {
	c := j.peek()
	start, depth := j.pos, 0
	for {
		switch c {
		case '"':
			if _, err := j.str(); err != nil {
				return "", err
			}
		case '{', '[':
			j.pos++
			if depth++; depth > maxJSONDepth {
				return "", j.errorf("nested deeper than %d", maxJSONDepth)
			}
		case '}', ']':
			if depth == 0 {
				return "", j.errorf("%q, want a value", c)
			}
			j.pos++
			depth--
		case ',', ':':
			if depth == 0 {
				return "", j.errorf("%q, want a value", c)
			}
			j.pos++
		case 0:
			return "", j.errorf("the file ends within a value")
		default:
			end := strings.IndexAny(j.src[j.pos:], " \t\r\n,:{}[]\"")
			if end < 0 {
				end = len(j.src) - j.pos
			}
			if end == 0 {
				return "", j.errorf("%q, want a value", c)
			}
			j.pos += end
		}
		if depth == 0 {
			return j.src[start:j.pos], nil
		}
		c = j.peek()
	}
}
