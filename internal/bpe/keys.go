package bpe

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"ck/internal/tokenizer"
)

// ErrForeign is wrapped by the error about keys that are not those of a vocabulary of this package.
var ErrForeign = errors.New("the vocabulary is none that was learned here")

// Names of keys that are read one by one.
const (
	ggml        = "tokenizer.ggml."
	templateKey = "tokenizer.chat_template"
	turnKey     = ggml + "eot_token_id" // said beside the vocabulary; the token is known by its name
)

// FromKeys is the vocabulary whose Keys were given, in any order, so that its Files can be written again. Of other keys tokenizer.ggml.eot_token_id is left
// out. Everything else that it could not write back is an error, ErrForeign.
func FromKeys(keys []tokenizer.Key) (*Vocabulary, error) {
	values := map[string]any{}
	for _, k := range keys {
		values[k.Name] = k.Value
	}
	delete(values, turnKey)
	tokens, _ := values[ggml+"tokens"].([]string)
	merges, _ := values[ggml+"merges"].([]string)
	learned := byteTokens + len(merges)
	if len(tokens) < learned {
		return nil, foreign("%d tokens, %d merges", len(tokens), len(merges))
	}
	v := &Vocabulary{opt: Options{Vocab: len(tokens), LeastCount: 1, Longest: maxToken, Control: tokens[learned:]}}
	v.opt.Pre, _ = values[ggml+"pre"].(string)
	v.opt.AddBOS, _ = values[ggml+"add_bos_token"].(bool)
	v.opt.Template, _ = values[templateKey].(string)
	for name, text := range map[string]*string{"bos": &v.opt.BOS, "eos": &v.opt.EOS, "padding": &v.opt.Pad} {
		if id, ok := values[ggml+name+"_token_id"].(uint32); ok && int(id) < len(tokens) {
			*text = tokens[id]
		}
	}
	ids := map[string]int32{}
	add := func(text string) {
		ids[tokenizer.ByteText(text)] = int32(len(v.tokens))
		v.tokens = append(v.tokens, text)
	}
	for b := range byteTokens {
		add(string([]byte{byte(b)}))
	}
	for _, m := range merges {
		left, right, _ := strings.Cut(m, " ")
		a, ok1 := ids[left]
		b, ok2 := ids[right]
		if !ok1 || !ok2 {
			return nil, foreign("merge %.40q is of tokens that are not learned before it", m)
		}
		v.merges = append(v.merges, pair{a, b})
		add(v.tokens[a] + v.tokens[b])
	}
	var err error
	if v.words, err = tokenizer.NewWords(v.opt.Pre); err != nil {
		return nil, foreign("%v", err)
	}
	if err := v.opt.check(); err != nil {
		return nil, foreign("%v", err)
	}
	back := v.Keys()
	for _, k := range back {
		if !reflect.DeepEqual(values[k.Name], k.Value) {
			return nil, foreign("key %s has another value", k.Name)
		}
		delete(values, k.Name)
	}
	for name := range values {
		return nil, foreign("key %.100s", name)
	}
	if err := v.readBack(); err != nil {
		return nil, err
	}
	return v, nil
}

func foreign(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrForeign, fmt.Sprintf(format, args...))
}
