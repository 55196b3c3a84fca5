package demotext

import "strings"

// hashText is FNV-1a (64 bits) of a text, through a finalizer.
func hashText(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

// wordsOf are the words of a text in lower case, without marks; an apostrophe within a word stays.
func wordsOf(s string) []string {
	out := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '\'' || r > 127)
	})
	words := out[:0]
	for _, w := range out {
		if w = strings.Trim(w, "'"); w != "" {
			words = append(words, w)
		}
	}
	return words
}
