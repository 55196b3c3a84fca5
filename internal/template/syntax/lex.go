package syntax

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"ck/internal/template/pystr"
)

type kind uint8

const (
	tEOF kind = iota
	tData
	tVarBegin
	tVarEnd
	tBlockBegin
	tBlockEnd
	tName
	tString
	tNumber
	tOp
)

// token is one lexeme. text is the name, the operator or the (unescaped) text; num the value of a number.
type token struct {
	kind kind
	line int
	text string
	num  any // int, *big.Int or float64
}

func (t token) String() string {
	switch t.kind {
	case tEOF:
		return "end of template"
	case tData:
		return "template data"
	case tVarBegin:
		return "'{{'"
	case tVarEnd:
		return "'}}'"
	case tBlockBegin:
		return "'{%'"
	case tBlockEnd:
		return "'%}'"
	case tString:
		return "a string"
	case tNumber:
		return "a number"
	}
	return "'" + t.text + "'"
}

// lexer cuts a template into tokens as jinja2's lexer does with trim_blocks and lstrip_blocks: the newline after a
// block or a comment goes, and so do the blanks before one at the start of a line; "-" strips all white space on its
// side, "+" keeps it.
type lexer struct {
	src  string
	pos  int
	line int
	// mode is the kind of tag that pos lies in: tVarBegin, tBlockBegin, or tData outside of tags.
	mode kind
	// lineStart: the last match ended with a newline (or nothing was matched yet), so that blanks at pos start a line.
	lineStart bool
	// open holds the closing brackets that are due, innermost last. Within brackets "}}" is two operators.
	open  []byte
	queue []token
}

func newLexer(src string) *lexer {
	if strings.Contains(src, "\r") {
		src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	}
	return &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, mode: tData, lineStart: true}
}

func (l *lexer) fail(format string, args ...any) {
	failAt(l.line, "TemplateSyntaxError", format, args...)
}

// next is the next token; at the end it is tEOF for ever.
func (l *lexer) next() token {
	for {
		if len(l.queue) > 0 {
			t := l.queue[0]
			l.queue = l.queue[1:]
			return t
		}
		if l.mode != tData {
			if t, ok := l.inTag(); ok {
				return t
			}
			continue
		}
		if l.pos >= len(l.src) {
			return token{kind: tEOF, line: l.line}
		}
		l.data()
	}
}

// advance moves to end and keeps count of lines; the match that it ends counts for lineStart.
func (l *lexer) advance(end int) {
	l.line += strings.Count(l.src[l.pos:end], "\n")
	l.lineStart = end > 0 && l.src[end-1] == '\n'
	l.pos = end
}

func (l *lexer) spaceEnd(i int) int {
	return len(l.src) - len(strings.TrimLeftFunc(l.src[i:], pystr.IsSpace))
}

// data reads text up to and with the start of the next tag; comments and raw sections as a whole.
func (l *lexer) data() {
	i := l.pos
	for {
		j := strings.IndexByte(l.src[i:], '{')
		if j < 0 || i+j+1 >= len(l.src) {
			l.emit(tData, l.src[l.pos:])
			l.advance(len(l.src))
			return
		}
		i += j
		if c := l.src[i+1]; c == '{' || c == '%' || c == '#' {
			break
		}
		i++
	}
	tag, end := l.src[i+1], i+2
	sign := l.sign(&end)
	l.emit(tData, l.strip(l.src[l.pos:i], sign, tag == '{'))
	if tag == '%' {
		if rawEnd, ok := l.rawTag(i, "raw"); ok {
			l.advance(rawEnd)
			l.raw()
			return
		}
	}
	l.advance(end)
	switch tag {
	case '#':
		l.comment()
	case '{':
		l.mode = tVarBegin
		l.emit(tVarBegin, "")
	default:
		l.mode = tBlockBegin
		l.emit(tBlockBegin, "")
	}
}

func (l *lexer) emit(k kind, text string) {
	if k != tData || text != "" {
		l.queue = append(l.queue, token{kind: k, line: l.line, text: text})
	}
}

// sign reads the white space control at end, if there is one.
func (l *lexer) sign(end *int) byte {
	if *end < len(l.src) && (l.src[*end] == '-' || l.src[*end] == '+') {
		*end++
		return l.src[*end-1]
	}
	return 0
}

// strip cuts the end of the text before a tag.
func (l *lexer) strip(text string, sign byte, variable bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, pystr.IsSpace)
	}
	if sign == '+' || variable {
		return text
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if (start > 0 || l.lineStart) && strings.TrimLeftFunc(text[start:], pystr.IsSpace) == "" {
		return text[:start]
	}
	return text
}

// tagEnd is the position after the end of a block or comment whose two closing bytes start at i (white space control
// applied).
func (l *lexer) tagEnd(i int, minus, plus bool) int {
	i += 2
	switch {
	case minus:
		return l.spaceEnd(i)
	case !plus && i < len(l.src) && l.src[i] == '\n':
		return i + 1
	}
	return i
}

func (l *lexer) comment() {
	i := strings.Index(l.src[l.pos:], "#}")
	if i < 0 && l.pos == len(l.src) {
		return // jinja2 lets this pass
	}
	if i < 0 {
		l.fail("missing end of comment tag")
	}
	i += l.pos
	c := byte(0)
	if i > l.pos {
		c = l.src[i-1]
	}
	l.advance(l.tagEnd(i, c == '-', c == '+'))
}

// rawTag reports whether a tag "{% word %}" stands at i and where it ends.
func (l *lexer) rawTag(i int, word string) (int, bool) {
	i += 2
	l.sign(&i)
	i = l.spaceEnd(i)
	if !strings.HasPrefix(l.src[i:], word) {
		return 0, false
	}
	i = l.spaceEnd(i + len(word))
	minus := strings.HasPrefix(l.src[i:], "-%}")
	plus := word == "endraw" && strings.HasPrefix(l.src[i:], "+%}")
	if minus || plus {
		i++
	}
	if !strings.HasPrefix(l.src[i:], "%}") {
		return 0, false
	}
	// The newline after {% raw %} stays: it belongs to the raw text.
	return l.tagEnd(i, minus, plus || word == "raw"), true
}

// raw reads up to and with {% endraw %}.
func (l *lexer) raw() {
	for i := l.pos; ; i += 2 {
		j := strings.Index(l.src[i:], "{%")
		if j < 0 && l.pos == len(l.src) {
			return // jinja2 lets this pass
		}
		if j < 0 {
			l.fail("missing end of raw directive")
		}
		i += j
		if end, ok := l.rawTag(i, "endraw"); ok {
			at := i + 2
			l.emit(tData, l.strip(l.src[l.pos:i], l.sign(&at), false))
			l.advance(end)
			return
		}
	}
}

var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
	"(", ")", "{", "}", ">", "<", "=",
	".", ":", "|", ",", ";"}

// inTag reads one token inside of a tag; ok is false for white space and at the end of the source.
func (l *lexer) inTag() (t token, ok bool) {
	if t, ok := l.closing(); ok {
		return t, true
	}
	rest := l.src[l.pos:]
	t.line = l.line
	if rest == "" {
		l.mode = tData
		return t, false
	}
	if n := l.spaceEnd(l.pos) - l.pos; n > 0 {
		l.advance(l.pos + n)
		return t, false
	}
	c, _ := utf8.DecodeRuneInString(rest)
	switch {
	case c >= '0' && c <= '9':
		return l.number(rest), true
	case c == '_' || unicode.IsLetter(c):
		n := strings.IndexFunc(rest, func(c rune) bool {
			return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) && !unicode.IsMark(c)
		})
		if n < 0 {
			n = len(rest)
		}
		l.advance(l.pos + n)
		return token{kind: tName, line: t.line, text: rest[:n]}, true
	case c == '\'' || c == '"':
		return l.str(rest), true
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			l.balance(op[0])
			l.advance(l.pos + len(op))
			return token{kind: tOp, line: t.line, text: op}, true
		}
	}
	l.fail("unexpected character %q", c)
	return t, false
}

// closing reads the end of the tag, if it stands here and all brackets are closed.
func (l *lexer) closing() (t token, ok bool) {
	if len(l.open) > 0 {
		return t, false
	}
	rest := l.src[l.pos:]
	k, end := tVarEnd, "}}"
	if l.mode == tBlockBegin {
		k, end = tBlockEnd, "%}"
	}
	minus := strings.HasPrefix(rest, "-"+end)
	plus := k == tBlockEnd && strings.HasPrefix(rest, "+"+end)
	if !minus && !plus && !strings.HasPrefix(rest, end) {
		return t, false
	}
	t = token{kind: k, line: l.line}
	at := l.pos
	if minus || plus {
		at++
	}
	// The newline after an output stays, as after "+%}".
	l.advance(l.tagEnd(at, minus, plus || k == tVarEnd))
	l.mode = tData
	return t, true
}

// balance keeps the stack of open brackets.
func (l *lexer) balance(c byte) {
	switch c {
	case '(':
		l.open = append(l.open, ')')
	case '[':
		l.open = append(l.open, ']')
	case '{':
		l.open = append(l.open, '}')
	case ')', ']', '}':
		if len(l.open) == 0 {
			l.fail("unexpected '%c'", c)
		}
		if due := l.open[len(l.open)-1]; due != c {
			l.fail("unexpected '%c', expected '%c'", c, due)
		}
		l.open = l.open[:len(l.open)-1]
	}
}
