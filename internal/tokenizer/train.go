package tokenizer

import "fmt"

// Words cuts texts into the words that merges do not cross, as a value of tokenizer.ggml.pre says. It serves one goroutine at a time.
type Words struct {
	own          *splitter
	Exprs        []string // the regular expressions, each cutting what the one before left
	IgnoreMerges bool     // a word that is a token is that token
}

// NewWords is the cutter that a byte-level tokenizer with this pre has.
func NewWords(pre string) (*Words, error) {
	p, ok := findPreType(pre)
	if !ok || p.chars {
		return nil, fmt.Errorf("%spre is %q, which is no name of a byte-level tokenizer", ggml, pre)
	}
	steps, err := splitAtAll(p.exprs)
	if err != nil {
		return nil, err
	}
	return &Words{newSplitter(steps), p.exprs, p.ignoreMerges}, nil
}

// Each calls use with each word of text, in order; together they are the text. Text is one stretch between special tokens, of less than 2 GiB.
func (w *Words) Each(text string, use func(word string)) {
	for _, p := range w.own.cut(text) {
		use(text[p.lo:p.hi])
	}
}

// ByteText writes bytes as the tokens of byte-level vocabularies are written: a character for each byte.
func ByteText(bytes string) string { return byteEncoded(bytes) }

// FromKeys makes the tokenizer that keys describe, as FromGGUF does of a file that has them.
func FromKeys(keys []Key) (*Tokenizer, error) { return FromGGUF(keyList(keys)) }
