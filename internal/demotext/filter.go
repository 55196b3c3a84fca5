package demotext

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

//go:embed grammar/verbs.txt
var verbsText string

// Filter says which sampled stories are good enough to learn from: closed quotes, known words, a verb in every sentence, no phrase three times in a row,
// a full stop at the end, a length. It reads words exactly as the real texts have them. Judge, which is for the test of the finished model, is other
// code with other lists of words, so that a model is not praised for what it was fed by:
//
//	                Filter                                     Judge
//	words           those of the real texts, as they stand     its own list, with the endings -s -ed -ing -ly -er -est 's
//	verbs           a list, each with all its forms            -ed and -ing, irregular pasts, a list of presents
//	repetition      2 to 6 words three times in a row,         three words thrice in a sentence, a sentence of four
//	                a word four times                          or more thrice in the text, a word four times
//	quotes          a quote opens behind a space and closes    the number of marks in the text is even
//	a name          is known if the real texts have it         is known by its capital within a sentence
//	                a word that is no function word too often  none
//	speech          nobody calls himself by name               none
//	length          60 to 400 words                            none
type Filter struct {
	vocabulary map[string]bool
	verbs      map[string]bool
}

// Bounds of a sampled story, in words.
const (
	minWords = 60
	maxWords = 400
)

// NewFilter makes a filter of the words that are known, in lower case.
func NewFilter(vocabulary map[string]bool) *Filter {
	return &Filter{vocabulary, verbForms(verbsText)}
}

// verbForms has all forms of a list: a line with several words has them all, a word alone gets -s, -ed, -ing.
func verbForms(text string) map[string]bool {
	forms := map[string]bool{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		irregular, regular := words, []string(nil)
		if words[0] == "regular" {
			irregular, regular = nil, words[1:]
		}
		for _, w := range irregular {
			forms[w] = true
		}
		for _, w := range regular {
			for _, f := range regularForms(w) {
				forms[f] = true
			}
		}
	}
	return forms
}

// regularForms are a verb with -s, -ed, -ing, in both spellings where the last letter may double.
func regularForms(w string) []string {
	n := len(w)
	last := w[n-1]
	switch {
	case last == 'e':
		return []string{w, w + "s", w + "d", w[:n-1] + "ing"}
	case last == 'y' && !strings.ContainsRune("aeou", rune(w[n-2])):
		return []string{w, w[:n-1] + "ies", w[:n-1] + "ied", w + "ing"}
	}
	out := []string{w, w + "s", w + "es", w + "ed", w + "ing"}
	if strings.ContainsRune("bdgmnprtl", rune(last)) {
		out = append(out, w+string(last)+"ed", w+string(last)+"ing")
	}
	return out
}

// Check gives the reasons why a story is not fit, none if it is.
func (f *Filter) Check(text string) (reasons []string) {
	add := func(format string, a ...any) { reasons = append(reasons, fmt.Sprintf(format, a...)) }
	text = strings.TrimSpace(text)
	words := wordsOf(text)
	if len(words) < minWords || len(words) > maxWords {
		add("length: %d words, want %d to %d", len(words), minWords, maxWords)
	}
	if s := strings.TrimSuffix(text, `"`); s == "" || !strings.ContainsRune(".!?", rune(s[len(s)-1])) {
		add("end: the last sentence has no full stop")
	}
	if i := openQuote(text); i >= 0 {
		add("quote: the quote at byte %d is not closed, or closes nothing", i)
	}
	for _, w := range words {
		if !f.vocabulary[w] && !f.vocabulary[strings.TrimSuffix(w, "'s")] {
			add("word: %q is not known", w)
			break
		}
	}
	if p := tripled(words); p != "" {
		add("repetition: %q stands again and again", p)
	}
	if w := overused(text); w != "" {
		add("overuse: %q stands too often", w)
	}
	if n := callsItself(text); n != "" {
		add("speech: %q speaks to itself", n)
	}
	for _, s := range narration(text) {
		if !f.hasVerb(s) {
			add("verb: %q has none", s)
			break
		}
	}
	return reasons
}

// openQuote is where a quote is wrong, or -1: one opens at the beginning or behind a space, and closes behind a mark or a letter.
func openQuote(s string) int {
	at := -1
	for i, r := range s {
		if r != '"' {
			continue
		}
		opens := i == 0 || s[i-1] == ' ' || s[i-1] == '\n'
		switch {
		case opens && at >= 0, !opens && at < 0:
			return i
		case opens:
			at = i
		default:
			at = -1
		}
	}
	return at
}

// tripled is a phrase of 2 to 6 words that stands three times in a row, or a word four times, "" if there is none: "no, no, no" is natural.
func tripled(words []string) string {
	for i := 0; i+4 <= len(words); i++ {
		if w := words[i]; words[i+1] == w && words[i+2] == w && words[i+3] == w {
			return w
		}
	}
	for n := 2; n <= 6; n++ {
		for i := 0; i+3*n <= len(words); i++ {
			if slices.Equal(words[i:i+n], words[i+n:i+2*n]) && slices.Equal(words[i:i+n], words[i+2*n:i+3*n]) &&
				(n > 2 || words[i] != words[i+1]) {
				return strings.Join(words[i:i+n], " ")
			}
		}
	}
	return ""
}

// often is how many times a word of at least wordOften letters may stand, if that is more than one of oftenOf words too.
const (
	often     = 8
	oftenOf   = 18
	wordOften = 3
)

// functionWords are words of at least wordOften letters that stand in any text as often as they are needed.
var functionWords = strings.Fields("the and was she her his him they you that with for had but said not very all are were there then them have what " +
	"when who one out did too this from could would saw she's he's it's little")

// overused is a word in small letters that stands too often, "" if none does. Stories of small models go round and round about one thing.
func overused(text string) string {
	words := strings.Fields(text)
	count := map[string]int{}
	for _, w := range words {
		w = strings.Trim(w, `.,!?";:`)
		if len(w) < wordOften || !unicode.IsLower(rune(w[0])) || slices.Contains(functionWords, w) {
			continue
		}
		if count[w]++; count[w] > often && count[w]*oftenOf > len(words) {
			return w
		}
	}
	return ""
}

// speeches are a name, a verb of saying and what is said, in both orders.
var speeches = []*regexp.Regexp{
	regexp.MustCompile(`\b([A-Z][a-z]+) (?:said|asked|replied|cried|exclaimed|shouted), "([^"]*)"`),
	regexp.MustCompile(`"([^"]*)" (?:said|asked|replied|cried|exclaimed|shouted) ([A-Z][a-z]+)\b`),
	regexp.MustCompile(`"([^"]*)" ([A-Z][a-z]+) (?:said|asked|replied|cried|exclaimed|shouted)\b`),
}

// callsItself is a name that is spoken to by who has it, "" if there is none.
func callsItself(text string) string {
	for i, re := range speeches {
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			name, said := m[1], m[2]
			if i > 0 {
				name, said = said, name
			}
			if i == 2 && !strings.HasSuffix(said, ",") { // a new sentence: "Thank you, Amy." Amy said, "..."
				continue
			}
			if _, after, ok := strings.Cut(" "+said, ", "+name); strings.HasPrefix(said, name+",") ||
				ok && (after == "" || strings.ContainsRune(".,!?", rune(after[0]))) {
				return name
			}
		}
	}
	return ""
}

// narration is the sentences of a text without what is quoted in them. A sentence that is all quote, or a call of up to three words with "!", is left
// out: people say "No!", and stories say "Crash!" and "The end."
func narration(text string) (out []string) {
	var b strings.Builder
	quote, mark := false, rune(0)
	flush := func() {
		s := strings.TrimSpace(b.String())
		b.Reset()
		n := len(wordsOf(s))
		if n > 0 && !(mark == '!' && n <= 3) && !strings.EqualFold(s, "the end.") {
			out = append(out, s)
		}
	}
	list := []rune(text)
	for i, r := range list {
		if r == '"' {
			quote = !quote
			if !quote && i+2 < len(list) && !unicode.IsLower(list[i+2]) && i > 0 && strings.ContainsRune(".!?", list[i-1]) {
				flush()
			}
			continue
		}
		if quote {
			continue
		}
		b.WriteRune(r)
		if strings.ContainsRune(".!?", r) {
			mark = r
			flush()
		}
	}
	if mark = 0; strings.TrimSpace(b.String()) != "" {
		flush()
	}
	return out
}

// shortened are the words with which verbs are drawn together: he's, let's.
var shortened = []string{"i", "you", "he", "she", "it", "we", "they", "that", "there", "let"}

// hasVerb reports whether a word is a verb, or ends in n't or 'm, 's, 're, 'll, 'd, 've behind a pronoun.
func (f *Filter) hasVerb(s string) bool {
	for _, w := range wordsOf(s) {
		head, tail, cut := strings.Cut(w, "'")
		if f.verbs[w] || strings.HasSuffix(w, "n't") || (cut && tail != "" && slices.Contains(shortened, head)) {
			return true
		}
	}
	return false
}

// Vocabulary is the words that texts have at least least times.
func Vocabulary(texts []string, least int) map[string]bool {
	count := map[string]int{}
	for _, t := range texts {
		for _, w := range wordsOf(t) {
			count[w]++
		}
	}
	known := map[string]bool{}
	for w, n := range count {
		if n >= least {
			known[w] = true
		}
	}
	return known
}
