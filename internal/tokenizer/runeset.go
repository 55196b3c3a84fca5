package tokenizer

import (
	"slices"
	"strings"
	"unicode"
)

// runeSet is a set of code points: sorted, disjoint, non-adjacent ranges, lo and hi inclusive, as pairs.
type runeSet []rune

// add appends the range lo..hi; normal restores the order.
func (s *runeSet) add(lo, hi rune) { *s = append(*s, lo, hi) }

// normal sorts the ranges and joins those that touch.
func (s runeSet) normal() runeSet {
	type span struct{ lo, hi rune }
	spans := make([]span, 0, len(s)/2)
	for i := 0; i < len(s); i += 2 {
		spans = append(spans, span{s[i], s[i+1]})
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.lo) - int(b.lo) })
	out := make(runeSet, 0, len(s))
	for _, p := range spans {
		if n := len(out); n > 0 && p.lo <= out[n-1]+1 {
			out[n-1] = max(out[n-1], p.hi)
			continue
		}
		out.add(p.lo, p.hi)
	}
	return out
}

// negate is the complement in 0..MaxRune of a normal set.
func (s runeSet) negate() runeSet {
	var out runeSet
	next := rune(0)
	for i := 0; i < len(s); i += 2 {
		if s[i] > next {
			out.add(next, s[i]-1)
		}
		next = s[i+1] + 1
	}
	if next <= unicode.MaxRune {
		out.add(next, unicode.MaxRune)
	}
	return out
}

// intersect of two normal sets.
func (s runeSet) intersect(t runeSet) runeSet {
	var out runeSet
	for i, j := 0, 0; i < len(s) && j < len(t); {
		if lo, hi := max(s[i], t[j]), min(s[i+1], t[j+1]); lo <= hi {
			out.add(lo, hi)
		}
		if s[i+1] < t[j+1] {
			i += 2
		} else {
			j += 2
		}
	}
	return out
}

// has reports whether r is in the normal set.
func (s runeSet) has(r rune) bool {
	for i := 0; i < len(s); i += 2 {
		if r <= s[i+1] {
			return r >= s[i]
		}
	}
	return false
}

// fold adds to the set every code point that differs from a member in case only (simple case folding).
func (s runeSet) fold() runeSet {
	out := slices.Clone(s)
	for i := 0; i < len(s); i += 2 {
		for r := s[i]; r <= s[i+1] && r <= 0x1E943; r++ { // no cased letter lies above
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				out.add(f, f)
			}
		}
	}
	return out.normal()
}

func tableSet(tabs ...*unicode.RangeTable) runeSet {
	var s runeSet
	for _, t := range tabs {
		for _, r := range t.R16 {
			if r.Stride == 1 {
				s.add(rune(r.Lo), rune(r.Hi))
				continue
			}
			for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
				s.add(c, c)
			}
		}
		for _, r := range t.R32 {
			if r.Stride == 1 {
				s.add(rune(r.Lo), rune(r.Hi))
				continue
			}
			for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
				s.add(c, c)
			}
		}
	}
	return s.normal()
}

var (
	setSpace = tableSet(unicode.White_Space)
	setDigit = tableSet(unicode.Nd)
	// \w as Oniguruma has it: Alphabetic, marks, decimal digits, connectors (its file UNICODE_PROPERTIES, CR_Word).
	setWord = tableSet(unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd, unicode.Pc)
)

// propertySet is the set named inside \p{...}: a general category, a script, or Any.
func propertySet(name string) (runeSet, bool) {
	if name == "Any" {
		return runeSet{0, unicode.MaxRune}, true
	}
	if t, ok := unicode.Categories[name]; ok {
		return tableSet(t), true
	}
	if t, ok := unicode.Scripts[name]; ok {
		return tableSet(t), true
	}
	switch strings.ToLower(name) {
	case "letter":
		return tableSet(unicode.L), true
	case "number":
		return tableSet(unicode.N), true
	case "punctuation", "punct":
		return tableSet(unicode.P), true
	case "space", "white_space":
		return setSpace, true
	case "digit":
		return setDigit, true
	}
	return nil, false
}
