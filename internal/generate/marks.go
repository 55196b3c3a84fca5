package generate

import (
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"ck/internal/template"
	"ck/internal/tokenizer"
)

// Text of a message that looks like a control token must stay text, while the same letters written by the template are the token.
// Before rendering, a mark (a private code point that occurs in no message) is put behind the first character of each such text. A
// template moves, trims and joins it like any other character. In the rendered text no look-alike is whole, so nothing that a
// template does can make it one; then the marks go, and the character before each of them is handed to the tokenizer as a part
// that is not trusted.

// controls finds the texts of control tokens. They are sorted, and none begins with another: what begins like the longer one begins like
// the shorter one too.
type controls []string

func newControls(tok *tokenizer.Tokenizer) controls {
	var c controls
	for id := range int32(tok.VocabSize()) {
		if tok.IsControl(id) && tok.Piece(id) != "" {
			c = append(c, tok.Piece(id))
		}
	}
	slices.Sort(c)
	short := c[:0]
	for _, s := range c {
		if n := len(short); n == 0 || !strings.HasPrefix(s, short[n-1]) {
			short = append(short, s)
		}
	}
	return short
}

// begins reports whether text begins with the text of a control token.
func (c controls) begins(text string) bool {
	i := sort.Search(len(c), func(i int) bool { return c[i] > text })
	return i > 0 && strings.HasPrefix(text, c[i-1])
}

const (
	noMark    = rune(-1)
	firstMark = rune(0xF0000) // supplementary private use area A
)

// mark is a code point that no message has.
func (c controls) mark(messages []Message) rune {
	has := func(mark rune) bool {
		return slices.ContainsFunc(messages, func(m Message) bool {
			return strings.ContainsRune(m.Content, mark) || strings.ContainsRune(m.Role, mark)
		})
	}
	mark := firstMark
	for has(mark) { // 65,534 of them: messages that have them all are no text
		mark++
	}
	return mark
}

// hide puts mark into all texts of control tokens, overlapping ones too.
func (c controls) hide(text string, mark rune) string {
	if mark == noMark || len(c) == 0 {
		return text
	}
	var first [256]bool
	for _, s := range c {
		first[s[0]] = true
	}
	var b strings.Builder
	from := 0
	for i := range len(text) {
		if first[text[i]] && c.begins(text[i:]) {
			_, n := utf8.DecodeRuneInString(text[i:])
			b.WriteString(text[from : i+n])
			b.WriteRune(mark)
			from = i + n
		}
	}
	if from == 0 {
		return text
	}
	b.WriteString(text[from:])
	return b.String()
}

// cut removes the marks: the character before a mark is not trusted, the rest is.
func cut(text string, mark rune) []tokenizer.Part {
	if mark == noMark {
		return []tokenizer.Part{{Text: text, Special: true}}
	}
	var parts []tokenizer.Part
	add := func(s string, trusted bool) {
		if s != "" {
			parts = append(parts, tokenizer.Part{Text: s, Special: trusted})
		}
	}
	pieces := strings.Split(text, string(mark))
	for i, p := range pieces {
		if i == len(pieces)-1 {
			add(p, true)
			break
		}
		_, n := utf8.DecodeLastRuneInString(p)
		add(p[:len(p)-n], true)
		add(p[len(p)-n:], false)
	}
	return parts
}

func joined(parts []tokenizer.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// keepMark keeps the mark as it is in repr and tojson.
func keepMark(mark rune, opt template.Options) template.Options {
	if mark != noMark {
		opt.Keep = string(mark)
	}
	return opt
}
