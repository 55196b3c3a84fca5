package tokenizer

import (
	"fmt"
	"slices"
	"strings"
)

// How the name for tokenizer.ggml.pre is found. One expression is written in many ways, and one way of cutting in
// many expressions, so what is compared is where texts are cut: the file's pre-tokenizer and those of the table cut
// the same texts, and the name of one that differs nowhere is taken. Texts are short ones that tell the expressions
// apart, all sequences of three characters of different kinds, and every character of the basic plane.

// splitter cuts texts as a list of steps does.
type splitter struct {
	steps         []splitStep
	matchers      []*matcher
	pieces, spare []span
}

func newSplitter(steps []splitStep) *splitter {
	s := &splitter{steps: steps}
	for i := range steps {
		s.matchers = append(s.matchers, newMatcher(steps[i].pattern))
	}
	return s
}

// cut is the pieces of text, which are valid until the next call.
func (s *splitter) cut(text string) []span {
	s.pieces = append(s.pieces[:0], span{0, int32(len(text)), false})
	for i := range s.steps {
		s.pieces, s.spare = s.steps[i].run(s.matchers[i], s.spare[:0], s.pieces, text), s.pieces
	}
	return s.pieces
}

// equal reports whether both cut text at the same places.
func (s *splitter) equal(o *splitter, text string) bool {
	return slices.EqualFunc(s.cut(text), o.cut(text), func(a, b span) bool { return a.lo == b.lo && a.hi == b.hi })
}

// probes are texts that tell pre-tokenizers apart.
var probes = []string{
	"I've 'told you: we'Ve, it'S; they'LL 'Dare 'ſo don't 're'm 'T'RE", "ab-cd 3.3 3..3 3...3 «a» “b” ‘c’ a’s a'b'c",
	"a1 12 123 1234 12345 123456 1234567", "1,234.5 ١٢٣٤ ½ Ⅷ 1a2b3c 12 3 4", "ℵ ª º µ ß ſ K Å ﬁ ａｂ １２ ！？",
	"  x   y\n z\t\t q\n\n\n  w \r\n\r\n  ", "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n",
	"x" + strings.Repeat(" ", 700) + "y" + strings.Repeat("\n", 70) + "z",
	strings.Repeat("=", 40) + strings.Repeat("ab", 40) + strings.Repeat("7", 40),
	"a+b==c; //x/y/z\n!?\n\n...\r\n/home/a_b-c|d~e\x60f^g$h<i>j&k*l(m)n[o]{p}@q#r%",
	"A b C a B c 1A a1 _a _1 a_ 'a \"b\" .c ,d -e", "<sentinel:12> IMGIMGABCZ IMGIMGZ",
	"HelloWorld helloWORLD HTTPServer iPhone ÉCOLE éCole ǅungla ʰabc word\u0301s na\u0308ive",
	"ศาสนา हिन्दी বাংলা தமிழ் ខ្មែរ العَرَبِيَّة עִבְרִית ქართული ᏣᎳᎩ", "\u0e01\u0301 \u0301a \u0301",
	"我想在apple工作1314151天～ 日本語のテキスト、カタカナ。한국어 텍스트ㄱㄴ ㄅㄆ「引用」《书》——……，。！",
	"🚀 (normal) 😶\u200d🌫️ ✅ 🦙🦙 ©®™ €5 §7 °C",
	"\u00a0a\u3000b\u2003c\u2028d\u0085e\u200bf\ufefff", "\x00\x01a\x7f\u00adb",
}

// probeKinds has a character of each kind that expressions name.
const probeKinds = " \n\r\t'/.,$<_1٣½asTÉǅʰ中か한กา\u0301😀，\u3000A"

// blockRunes is how many characters of the basic plane one probe has.
const blockRunes = 64

// differ is a text that a and b cut at different places.
func differ(a, b *splitter) (text string, ok bool) {
	for _, text := range probes {
		if !a.equal(b, text) {
			return text, true
		}
	}
	kinds := []rune(probeKinds)
	for _, x := range kinds {
		for _, y := range kinds {
			for _, z := range kinds {
				if text := string([]rune{x, y, z}); !a.equal(b, text) {
					return text, true
				}
			}
		}
	}
	for lo := rune(1); lo < 1<<16; lo += blockRunes {
		var text []byte
		for r := lo; r < lo+blockRunes; r++ {
			if r < 0xD800 || r > 0xDFFF {
				text = fmt.Appendf(text, " %c%ca1%c", r, r, r)
			}
		}
		if text := string(text); !a.equal(b, text) {
			return text, true
		}
	}
	return "", false
}

// findPre is the value of tokenizer.ggml.pre for a byte-level tokenizer, and what that name does not say about it. Of several names
// that cut as it does, one with its very expressions comes first, then one that says the same about merges.
func (t *Tokenizer) findPre() (name, note string, err error) {
	count, example := t.unreachable()
	fits := func(p *preType) bool { return p.ignoreMerges == t.ignoreMerges || count == 0 }
	same := t.samePre()
	if i := slices.IndexFunc(same, fits); i >= 0 {
		return same[i].name(), "", nil
	}
	more, err := t.equalPre()
	if err != nil {
		return "", "", err
	}
	if i := slices.IndexFunc(more, fits); i >= 0 {
		return more[i].name(), "", nil
	}
	if same = append(same, more...); len(same) == 0 {
		var exprs []string
		for _, s := range t.steps {
			exprs = append(exprs, s.expr)
		}
		return "", "", fmt.Errorf("pre_tokenizer: %.400q cuts texts as no name of %spre does: %w", exprs, ggml, ErrUnsupported)
	}
	p := same[0]
	return p.name(), fmt.Sprintf("model.ignore_merges: is %v, but %spre %s stands for %v; it matters for %d tokens, %.40q for one, when they are whole words",
		t.ignoreMerges, ggml, p.name(), p.ignoreMerges, count, example), nil
}

// samePre lists what has the expressions of t.
func (t *Tokenizer) samePre() []*preType {
	return t.preTypes(func(p *preType) bool {
		return slices.EqualFunc(p.exprs, t.steps, func(expr string, s splitStep) bool {
			return s.expr == expr && s.behavior == isolated && !s.invert
		})
	})
}

// equalPre lists what cuts as t does.
func (t *Tokenizer) equalPre() (equal []*preType, err error) {
	own := newSplitter(t.steps)
	equal = t.preTypes(func(p *preType) bool {
		steps, e := splitAtAll(p.exprs)
		if e != nil {
			err = e
			return false
		}
		_, differs := differ(own, newSplitter(steps))
		return !differs
	})
	return equal, err
}

// preTypes lists what is true of byte-level tokenizers, first what says the same about merges as t.
func (t *Tokenizer) preTypes(is func(p *preType) bool) []*preType {
	var list, others []*preType
	for i := range preTypes {
		p := &preTypes[i]
		switch {
		case p.chars || !is(p):
		case p.ignoreMerges == t.ignoreMerges:
			list = append(list, p)
		default:
			others = append(others, p)
		}
	}
	return append(list, others...)
}

// name is the first name, which a converted model gets.
func (p *preType) name() string {
	name, _, _ := strings.Cut(p.names, " ")
	return name
}

// unreachable counts the tokens that can be whole words and that merges do not lead to, and gives the first: ignore_merges matters for them.
func (t *Tokenizer) unreachable() (n int, example string) {
	defer func(on bool) { t.ignoreMerges = on }(t.ignoreMerges)
	t.ignoreMerges = false
	own := newSplitter(t.steps)
	var m merger
	var ids []int32
	for id, kind := range t.kind {
		word := string(t.rawOf(int32(id)))
		if kind != typeNormal || word == "" {
			continue
		}
		if ids = t.encodeWord(ids[:0], &m, word); len(ids) == 1 || len(own.cut(word)) != 1 {
			continue
		}
		if n == 0 {
			example = word
		}
		n++
	}
	return n, example
}
