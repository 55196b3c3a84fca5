package demotext

import (
	"maps"
	"slices"
	"strings"
	"unicode"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// sentences puts one space between words, capitals at the beginnings of sentences and of quotes, and "an" before vowels.
func sentences(s string) string {
	s = articles(strings.Join(strings.Fields(s), " "))
	out := []rune(s)
	begin := true // the next letter begins a sentence
	inside := false
	for i, r := range out {
		switch {
		case r == '"':
			inside = !inside
			begin = begin || inside
		case r == ' ':
			begin = begin || (i > 0 && ends(out[:i]))
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			if begin {
				out[i] = unicode.ToUpper(r)
			}
			begin = false
		case r == rune(bound[0]):
			begin = false
		}
	}
	return string(out)
}

// ends reports whether a sentence ends at the end of s.
func ends(s []rune) bool {
	i := len(s) - 1
	if s[i] == '"' && i > 0 {
		i--
	}
	return s[i] == '.' || s[i] == '!' || s[i] == '?'
}

// finish makes a text of what a grammar gave.
func finish(s string) string { return strings.ReplaceAll(sentences(s), bound, " ") }

// articles writes "an" where the next word is spoken with a vowel.
func articles(s string) string {
	words := strings.Split(s, " ")
	for i := 0; i+1 < len(words); i++ {
		w := strings.TrimLeft(words[i], `"`)
		if (w == "a" || w == "A") && vowel(words[i+1]) {
			words[i] += "n"
		}
	}
	return strings.Join(words, " ")
}

// vowel reports whether a word is spoken with a vowel at its beginning, as far as the words of the grammars go.
func vowel(w string) bool {
	w = strings.ToLower(w)
	for _, p := range []string{"one", "use", "uni", "eu"} {
		if strings.HasPrefix(w, p) {
			return false
		}
	}
	for _, p := range []string{"hour", "honest"} {
		if strings.HasPrefix(w, p) {
			return true
		}
	}
	return w != "" && strings.ContainsRune("aeiou8", rune(w[0]))
}
