package facts

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"ck/internal/gguf"
	"ck/internal/tokenizer"
)

// Token is one token of a vocabulary.
type Token struct {
	ID    int32    `json:"id"`
	Type  string   `json:"type"`
	Piece string   `json:"piece"` // as the file has it
	Text  string   `json:"text"`  // what it decodes to, with U+FFFD for bytes that are no UTF-8 alone
	Bytes []byte   `json:"bytes"`
	Score *float32 `json:"score,omitempty"`
}

// Vocabulary is the tokens of a model.
type Vocabulary struct {
	tok    *tokenizer.Tokenizer // nil: of a kind that is not read
	Why    error                // why tok is nil
	pieces []string
	kinds  []int64
	scores []float32
}

// ErrNoVocabulary says that a model has none.
var ErrNoVocabulary = errors.New("the file has no vocabulary")

// VocabularyOf reads the vocabulary of a model.
func VocabularyOf(kv *gguf.Metadata) (*Vocabulary, error) {
	pieces, ok, err := kv.Strings("tokenizer.ggml.tokens")
	if err != nil {
		return nil, err
	}
	if !ok || len(pieces) == 0 {
		return nil, ErrNoVocabulary
	}
	v := &Vocabulary{pieces: pieces}
	if v.kinds, _, err = kv.Ints("tokenizer.ggml.token_type"); err != nil {
		return nil, err
	}
	if v.scores, _, err = kv.Float32s("tokenizer.ggml.scores"); err != nil {
		return nil, err
	}
	v.tok, v.Why = tokenizer.FromGGUF(kv)
	return v, nil
}

// Len is the number of tokens.
func (v *Vocabulary) Len() int { return len(v.pieces) }

// Token is the token of an id.
func (v *Vocabulary) Token(id int32) Token {
	t := Token{ID: id, Type: "normal", Piece: v.pieces[id]}
	if int(id) < len(v.kinds) {
		if t.Type = TokenTypes[v.kinds[id]]; t.Type == "" {
			t.Type = fmt.Sprintf("type %d", v.kinds[id])
		}
	}
	if int(id) < len(v.scores) && v.scores[id]-v.scores[id] == 0 {
		t.Score = &v.scores[id]
	}
	t.Bytes = []byte(t.Piece)
	if v.tok != nil {
		t.Bytes = v.tok.Bytes(id)
		if v.tok.IsControl(id) {
			t.Bytes = []byte(t.Piece)
		}
	}
	t.Text = toText(t.Bytes)
	return t
}

// toText is bytes as text.
func toText(b []byte) string {
	var s []rune
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		s, b = append(s, r), b[n:]
	}
	return string(s)
}

// LookupError says that a word names no token.
type LookupError struct {
	Word string
	Len  int
}

func (e *LookupError) Error() string {
	return fmt.Sprintf("%q: is no id of the %d tokens", e.Word, e.Len)
}

// Lookup finds what a word names: an id, or a text, which is a token or is cut into some. Only texts are looked for if
// text is set. Ids beyond the vocabulary are a *LookupError.
func (v *Vocabulary) Lookup(word string, text bool) ([]Token, error) {
	if id, err := strconv.Atoi(word); err == nil && !text {
		if id < 0 || id >= len(v.pieces) {
			return nil, &LookupError{word, len(v.pieces)}
		}
		return []Token{v.Token(int32(id))}, nil
	}
	for id, p := range v.pieces {
		if p == word {
			return []Token{v.Token(int32(id))}, nil
		}
	}
	if v.tok == nil {
		return nil, fmt.Errorf("%q: is no token, and texts cannot be cut: %w", word, v.Why)
	}
	var list []Token
	for _, id := range v.tok.Encode(nil, word, tokenizer.EncodeOptions{}) {
		list = append(list, v.Token(id))
	}
	return list, nil
}
