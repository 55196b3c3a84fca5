package tokenizer

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// special is a token that is cut from the text before anything else.
type special struct {
	text       string
	id         int32
	control    bool // cut only where special tokens are asked for; the others are cut always
	lstrip     bool // takes the white space on its left with it
	rstrip     bool // and on its right
	singleWord bool // not inside a word
}

// specials finds the leftmost, longest of them.
type specials struct {
	list  []special  // sorted by text, each text once
	first [256]int32 // by first byte: where its texts begin in list
}

func newSpecials(list []special) specials {
	list = slices.DeleteFunc(list, func(s special) bool { return s.text == "" })
	slices.SortStableFunc(list, func(a, b special) int { return cmp.Compare(a.text, b.text) })
	s := specials{list: slices.CompactFunc(list, func(a, b special) bool { return a.text == b.text })}
	for i := range s.first {
		s.first[i] = int32(sort.Search(len(s.list), func(k int) bool { return int(s.list[k].text[0]) >= i }))
	}
	return s
}

// at is the longest one that text begins with, nil if there is none. Non-empty text only.
func (s *specials) at(text string) *special {
	lo := int(s.first[text[0]])
	hi := len(s.list)
	if text[0] < 255 {
		hi = int(s.first[text[0]+1])
	}
	var found *special
	for k := 1; lo < hi; k++ {
		if len(s.list[lo].text) == k {
			found = &s.list[lo]
			lo++
		}
		if k == len(text) {
			break
		}
		c := text[k]
		n := hi - lo
		list := s.list[lo:hi]
		lo += sort.Search(n, func(i int) bool { return list[i].text[k] >= c })
		hi -= n - sort.Search(n, func(i int) bool { return list[i].text[k] > c })
	}
	return found
}

// next is the first one in text at or after pos that may be cut there, with its span, stripped white space included; the
// span begins at pos or later. Control tokens are cut only where trusted says that all of the text is.
func (s *specials) next(text string, pos int, trusted func(lo, hi int) bool) (sp *special, lo, hi int) {
	if len(s.list) == 0 {
		return nil, 0, 0
	}
	for i := pos; i < len(text); i++ {
		c := text[i]
		if c < 255 && s.first[c] == s.first[c+1] {
			continue
		}
		sp := s.at(text[i:])
		if sp == nil {
			continue
		}
		lo, hi := i, i+len(sp.text)
		if sp.control && !trusted(lo, hi) || sp.singleWord && insideWord(text, lo, hi) {
			// HF's matcher goes on behind it. Where it reaches into text that is trusted, that must not hide what begins there.
			if !sp.control || !trusted(hi-1, hi) {
				i = hi - 1
			}
			continue
		}
		if sp.lstrip {
			lo = pos + len(strings.TrimRightFunc(text[pos:lo], unicode.IsSpace))
		}
		if sp.rstrip {
			hi = len(text) - len(strings.TrimLeftFunc(text[hi:], unicode.IsSpace))
		}
		return sp, lo, hi
	}
	return nil, 0, 0
}

func insideWord(text string, lo, hi int) bool {
	before, n := utf8.DecodeLastRuneInString(text[:lo])
	after, k := utf8.DecodeRuneInString(text[hi:])
	return n > 0 && setWord.has(before) || k > 0 && setWord.has(after)
}
