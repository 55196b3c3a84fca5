package tokenizer

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The package norm makes the stream-safe form: it puts U+034F behind 30 combining marks in a row, which no tokenizer's normalizer does.
// It is right, and fast, about everything else.

const (
	joiner    = "\u034f" // combining grapheme joiner
	shortRuns = 8        // characters between two boundaries that never reach 30 marks: none is more than 3
)

// normalForm is text in form f (Unicode Standard Annex 15). Text that is in the form is returned as it is.
func normalForm(f norm.Form, text string) string {
	out := f.String(text)
	// No form adds or drops a joiner of the text.
	if !strings.Contains(out, joiner) || strings.Count(out, joiner) == strings.Count(text, joiner) {
		return out
	}
	n := newNormalizer(f)
	var b strings.Builder
	done, lo, count := 0, 0, 0 // text[lo:i] has count characters since a boundary; up to done all is written
	flush := func(hi int) {
		if count > shortRuns {
			b.WriteString(f.String(text[done:lo]))
			n.write(&b, text[lo:hi])
			done = hi
		}
		lo, count = hi, 0
	}
	for i, r := range text {
		if r < utf8.RuneSelf || n.boundary(r) {
			flush(i)
		}
		count++
	}
	flush(len(text))
	b.WriteString(f.String(text[done:]))
	return b.String()
}

// normalizer brings runs of any length into a form. The tables are those of norm, asked about one or two characters at a time.
type normalizer struct {
	decomposed norm.Form
	compose    bool
	full       map[rune][]mark  // decompositions
	pairs      map[[2]rune]rune // compositions, 0: none
	syms, tmp  []mark
}

// mark is a character with its canonical combining class.
type mark struct {
	r   rune
	ccc uint8
}

func newNormalizer(f norm.Form) *normalizer {
	n := &normalizer{decomposed: norm.NFD, compose: f == norm.NFC || f == norm.NFKC, full: map[rune][]mark{}, pairs: map[[2]rune]rune{}}
	if f == norm.NFKC || f == norm.NFKD {
		n.decomposed = norm.NFKD
	}
	return n
}

// decompose is the full decomposition of a character.
func (n *normalizer) decompose(r rune) []mark {
	d, ok := n.full[r]
	if !ok {
		for _, c := range n.decomposed.String(string(r)) {
			d = append(d, mark{c, norm.NFD.PropertiesString(string(c)).CCC()})
		}
		n.full[r] = d
	}
	return d
}

// boundary reports whether nothing before r changes with it.
func (n *normalizer) boundary(r rune) bool {
	first := n.decompose(r)[0]
	return first.ccc == 0 && norm.NFC.PropertiesString(string(first.r)).BoundaryBefore()
}

// write appends the normal form of text, which begins at a boundary.
func (n *normalizer) write(b *strings.Builder, text string) {
	if r, size := utf8.DecodeRuneInString(text); r == utf8.RuneError && size == 1 { // a byte that is no UTF-8 stays
		b.WriteByte(text[0])
		text = text[1:]
	}
	n.syms = n.syms[:0]
	for _, r := range text {
		n.syms = append(n.syms, n.decompose(r)...)
	}
	for lo := 0; lo < len(n.syms); lo++ {
		hi := lo
		for hi < len(n.syms) && n.syms[hi].ccc != 0 {
			hi++
		}
		n.order(n.syms[lo:hi])
		lo = hi
	}
	if n.compose {
		n.syms = n.composed(n.syms)
	}
	for _, s := range n.syms {
		b.WriteRune(s.r)
	}
}

// order sorts marks by class and keeps the order within a class, in linear time.
func (n *normalizer) order(marks []mark) {
	var at [257]int
	for _, m := range marks {
		at[int(m.ccc)+1]++
	}
	for i := 1; i < len(at); i++ {
		at[i] += at[i-1]
	}
	n.tmp = append(n.tmp[:0], marks...)
	for _, m := range n.tmp {
		marks[at[m.ccc]] = m
		at[m.ccc]++
	}
}

// composed joins what composes, in place: each mark with the starter before it, unless one of its class or a higher one lies between.
func (n *normalizer) composed(syms []mark) []mark {
	out := syms[:0]
	starter, last := -1, -1 // position of the last starter in out; class of what was kept behind it, -1: nothing
	for _, s := range syms {
		if starter >= 0 && last < int(s.ccc) {
			if r := n.pair(out[starter].r, s.r); r != 0 {
				out[starter].r = r
				continue
			}
		}
		last = int(s.ccc)
		if s.ccc == 0 {
			starter, last = len(out), -1
		}
		out = append(out, s)
	}
	return out
}

// pair is the character that a and b compose to, or 0.
func (n *normalizer) pair(a, b rune) rune {
	key := [2]rune{a, b}
	r, ok := n.pairs[key]
	if !ok {
		s := norm.NFC.String(string(a) + string(b))
		if c, size := utf8.DecodeRuneInString(s); size == len(s) {
			r = c
		}
		n.pairs[key] = r
	}
	return r
}
