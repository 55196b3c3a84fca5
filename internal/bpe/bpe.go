// Package bpe learns byte-level BPE vocabularies from text: the pair of neighbouring tokens that is seen most often becomes a token, again and
// again (Sennrich et al., Neural Machine Translation of Rare Words with Subword Units, 2016, on bytes as GPT-2 does it). What is learned is
// written as the keys of a GGUF file and as the JSON files of a folder.
//
// The result depends on the texts and the options alone: on no order of files and no number of goroutines. Of pairs seen equally often the
// one with the smaller bytes comes first: of its left token, then of its right one. Texts are cut as they were when the last pair was joined.
// A text becomes a token once: nothing is ever joined across the ends of a token, so inside of them bytes are joined as in a word of their own,
// and that is the same way everywhere.
//
// Ids: a token for each byte, 0 to 255; the learned tokens in order; the control tokens as given.
package bpe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"ck/internal/tokenizer"
)

// ErrTooSmall is wrapped by the errors about texts that have too few pairs for the vocabulary.
var ErrTooSmall = errors.New("the text is too small for the vocabulary")

// Border is a line that ends a document, whether or not it is a control token.
const Border = "<|endoftext|>"

// MaxVocab is the largest number of tokens.
const MaxVocab = 1 << 20

// Limits of the options and of texts.
const (
	maxToken    = 1 << 10 // bytes of a token, learned or control
	maxFile     = 1 << 30 // bytes of a file
	maxDistinct = 1 << 27 // bytes of all words, each counted once; training takes some 40 bytes for each
	maxTemplate = 1 << 20 // bytes, what readers of folders take
	byteTokens  = 256
)

// Options says what to learn.
type Options struct {
	Vocab      int      // tokens in all: 256 bytes, control tokens, learned tokens
	Pre        string   // how texts are cut into words: a byte-level name of tokenizer.ggml.pre, as gpt-2 or llama-bpe
	Control    []string // control tokens; where one stands in the text, the text is cut
	LeastCount int64    // a pair seen less often is not learned; 1 or more
	Longest    int      // bytes of the longest learned token, 2 to 1024

	BOS, EOS, Pad string // control tokens; "": none
	AddBOS        bool   // BOS is put before a text
	Template      string // chat template, Jinja; "": none

	Progress func(learned int) // is told the number of learned tokens, if not nil
}

// check is an error for options that no text can satisfy.
func (o *Options) check() error {
	least := byteTokens + len(o.Control)
	switch {
	case o.Vocab < least:
		return fmt.Errorf("vocabulary: %d tokens are too few: %d are bytes and %d control tokens; ask for more", o.Vocab, byteTokens, len(o.Control))
	case o.Vocab > MaxVocab:
		return fmt.Errorf("vocabulary: %d tokens, limit is %d; ask for fewer", o.Vocab, MaxVocab)
	case o.LeastCount < 1:
		return fmt.Errorf("least count: is %d, wanted 1 or more", o.LeastCount)
	case o.Longest < 2 || o.Longest > maxToken:
		return fmt.Errorf("longest token: is %d bytes, wanted 2 to %d", o.Longest, maxToken)
	case len(o.Template) > maxTemplate:
		return fmt.Errorf("chat template: %d bytes, limit is %d", len(o.Template), maxTemplate)
	case !utf8.ValidString(o.Template):
		return errors.New("chat template: is not UTF-8; convert it")
	case o.AddBOS && o.BOS == "":
		return errors.New("BOS is to be put before texts, but none is named; name one of the control tokens")
	}
	for i, c := range o.Control {
		if err := checkControl(c); err != nil {
			return err
		}
		if slices.Contains(o.Control[:i], c) {
			return fmt.Errorf("control token %q: is given twice", c)
		}
	}
	for _, s := range []struct{ name, text string }{{"BOS", o.BOS}, {"EOS", o.EOS}, {"padding", o.Pad}} {
		if s.text != "" && !slices.Contains(o.Control, s.text) {
			return fmt.Errorf("%s is %.100q, which is no control token; add it to them", s.name, s.text)
		}
	}
	return nil
}

// checkControl is an error for a text that a control token cannot have: every reader of vocabularies must know it from words and bytes.
func checkControl(text string) error {
	const want = "wanted 3 characters or more of ASCII without spaces, in <> or []"
	if len(text) > maxToken {
		return fmt.Errorf("control token %.40q: has %d bytes, limit is %d", text, len(text), maxToken)
	}
	inside := len(text) >= 3 && (text[0] == '<' && strings.HasSuffix(text, ">") || text[0] == '[' && strings.HasSuffix(text, "]"))
	if !inside || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("control token %.100q: %s", text, want)
	}
	return nil
}

// Vocabulary is what was learned.
type Vocabulary struct {
	opt    Options
	words  *tokenizer.Words
	tokens []string // by id: bytes, then learned ones; control tokens follow
	merges []pair   // by rank
	read   *tokenizer.Tokenizer

	fromBytes, fromTokens int64
}

// Size is the number of tokens.
func (v *Vocabulary) Size() int { return len(v.tokens) + len(v.opt.Control) }

// From is the size of the texts that the vocabulary was learned from: in bytes, control tokens left out, and in its tokens.
func (v *Vocabulary) From() (bytes, tokens int64) { return v.fromBytes, v.fromTokens }

// Tokenizer is the tokenizer that readers of the keys and of the files get.
func (v *Vocabulary) Tokenizer() *tokenizer.Tokenizer { return v.read }

// id is the id of a control token.
func (v *Vocabulary) id(control string) int {
	return len(v.tokens) + slices.Index(v.opt.Control, control)
}
