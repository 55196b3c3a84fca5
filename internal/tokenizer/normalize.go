package tokenizer

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// normStep is one step of a normalizer: the first of its fields that is set.
type normStep struct {
	form    *norm.Form
	lower   bool
	prepend string
	old     string   // replaced by new
	pattern *pattern // its matches are replaced by new
	new     string
	trimL   bool // white space at the start and the end goes
	trimR   bool
	charMap *charMap
}

// Limits on what a file can make of a text: NFKC makes one character into 18 at most.
const (
	maxReplacement = 128 // bytes that a replacement may have
	maxSteps       = 32  // of a normalizer, and of a pre-tokenizer
	maxGrowth      = 64  // by which a normalizer may lengthen a text
)

// normalize applies all steps. A step that makes the text more than maxGrowth times as long is left out.
func (t *Tokenizer) normalize(s *scratch, text string) string {
	limit := maxGrowth*len(text) + maxReplacement
	for i := range t.normal {
		if next := t.normal[i].apply(s, text); len(next) <= limit {
			text = next
		}
	}
	return text
}

func (n *normStep) apply(s *scratch, text string) string {
	switch {
	case n.form != nil:
		return normalForm(*n.form, text)
	case n.lower:
		return strings.ToLower(text)
	case n.prepend != "":
		if text == "" {
			return ""
		}
		return n.prepend + text
	case n.old != "":
		return strings.ReplaceAll(text, n.old, n.new)
	case n.pattern != nil:
		return n.replace(s, text)
	case n.charMap != nil:
		return n.charMap.apply(text)
	}
	if n.trimL {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
	}
	if n.trimR {
		text = strings.TrimRightFunc(text, unicode.IsSpace)
	}
	return text
}

func (n *normStep) replace(s *scratch, text string) string {
	m := s.norms[n.pattern]
	if m == nil {
		m = newMatcher(n.pattern)
		s.norms[n.pattern] = m
	}
	var b strings.Builder
	for _, p := range m.split(nil, text, 0, len(text)) {
		if p.match {
			b.WriteString(n.new)
		} else {
			b.WriteString(text[p.lo:p.hi])
		}
	}
	return b.String()
}
