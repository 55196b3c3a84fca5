package bpe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"ck/internal/tokenizer"
)

// Types of tokens in tokenizer.ggml.token_type.
const (
	typeNormal  = 1
	typeControl = 3
)

// Keys are the keys of a GGUF file for the vocabulary, as tokenizer.Keys reads them from a folder with Files.
func (v *Vocabulary) Keys() []tokenizer.Key {
	var keys []tokenizer.Key
	set := func(name string, value any) {
		keys = append(keys, tokenizer.Key{Name: "tokenizer.ggml." + name, Value: value})
	}
	var types []int32
	var tokens []string
	merges := []string{}
	for _, t := range v.tokens {
		tokens, types = append(tokens, tokenizer.ByteText(t)), append(types, typeNormal)
	}
	for _, t := range v.opt.Control {
		tokens, types = append(tokens, t), append(types, typeControl)
	}
	for _, m := range v.merges {
		merges = append(merges, tokens[m.left]+" "+tokens[m.right])
	}
	set("model", "gpt2")
	set("pre", v.opt.Pre)
	set("tokens", tokens)
	set("token_type", types)
	set("merges", merges)
	for _, s := range []struct{ name, text string }{{"bos", v.opt.BOS}, {"eos", v.opt.EOS}, {"padding", v.opt.Pad}} {
		if s.text != "" {
			set(s.name+"_token_id", uint32(v.id(s.text)))
		}
	}
	set("add_bos_token", v.opt.AddBOS)
	set("add_eos_token", false)
	if v.opt.Template != "" {
		keys = append(keys, tokenizer.Key{Name: "tokenizer.chat_template", Value: v.opt.Template})
	}
	return keys
}

// File is a file of a folder.
type File struct {
	Name string
	Data []byte
}

// Files are tokenizer.json and tokenizer_config.json, as Hugging Face's libraries read them.
func (v *Vocabulary) Files() ([]File, error) {
	var files []File
	for _, f := range []struct {
		name  string
		value any
	}{{"tokenizer.json", v.tokenizerJSON()}, {"tokenizer_config.json", v.configJSON()}} {
		b, err := encode(f.value, "  ")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		files = append(files, File{f.name, b})
	}
	return files, nil
}

// encode writes JSON in which < and > stay as they are.
func encode(value any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(value)
	return b.Bytes(), err
}

// object is a JSON object of which nothing depends on the order.
type object map[string]any

// vocab is an object from tokens to ids, in the order of the ids.
type vocab []string

func (v vocab) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for id, text := range v {
		key, err := encode(text, "")
		if err != nil {
			return nil, err
		}
		if id > 0 {
			b = append(b, ',')
		}
		b = append(append(b, bytes.TrimSpace(key)...), ':')
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return append(b, '}'), nil
}

// added are the control tokens as an added token is described.
func (v *Vocabulary) added() []object {
	list := []object{}
	for _, c := range v.opt.Control {
		list = append(list, object{"content": c, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
	}
	return list
}

func (v *Vocabulary) tokenizerJSON() any {
	tokens, merges := vocab{}, []string{}
	for _, t := range v.tokens {
		tokens = append(tokens, tokenizer.ByteText(t))
	}
	for _, m := range v.merges {
		merges = append(merges, tokens[m.left]+" "+tokens[m.right])
	}
	added := v.added()
	for i, a := range added {
		a["id"] = len(v.tokens) + i
	}
	steps := []object{}
	for _, e := range v.words.Exprs {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": e}, "behavior": "Isolated", "invert": false})
	}
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	return struct {
		Version    string   `json:"version"`
		Truncation any      `json:"truncation"`
		Padding    any      `json:"padding"`
		Added      []object `json:"added_tokens"`
		Normalizer any      `json:"normalizer"`
		Pre        object   `json:"pre_tokenizer"`
		Post       object   `json:"post_processor"`
		Decoder    object   `json:"decoder"`
		Model      any      `json:"model"`
	}{
		Version: "1.0", Added: added, Decoder: byteLevel,
		Pre:  object{"type": "Sequence", "pretokenizers": append(steps, byteLevel)},
		Post: v.post(byteLevel),
		Model: struct {
			Type    string   `json:"type"`
			Dropout any      `json:"dropout"`
			Unknown any      `json:"unk_token"`
			Prefix  any      `json:"continuing_subword_prefix"`
			Suffix  any      `json:"end_of_word_suffix"`
			Fuse    bool     `json:"fuse_unk"`
			Bytes   bool     `json:"byte_fallback"`
			Ignore  bool     `json:"ignore_merges"`
			Vocab   vocab    `json:"vocab"`
			Merges  []string `json:"merges"`
		}{Type: "BPE", Ignore: v.words.IgnoreMerges, Vocab: tokens, Merges: merges},
	}
}

// post is what puts BOS before a text; without that it is byteLevel, which adds nothing.
func (v *Vocabulary) post(byteLevel object) object {
	if !v.opt.AddBOS {
		return byteLevel
	}
	bos := object{"SpecialToken": object{"id": v.opt.BOS, "type_id": 0}}
	text := func(name string, kind int) object { return object{"Sequence": object{"id": name, "type_id": kind}} }
	return object{
		"type": "TemplateProcessing", "single": []object{bos, text("A", 0)},
		"pair":           []object{bos, text("A", 0), text("B", 1)},
		"special_tokens": object{v.opt.BOS: object{"id": v.opt.BOS, "ids": []int{v.id(v.opt.BOS)}, "tokens": []string{v.opt.BOS}}},
	}
}

func (v *Vocabulary) configJSON() any {
	decoder := object{}
	for i, a := range v.added() {
		decoder[strconv.Itoa(len(v.tokens)+i)] = a
	}
	c := object{
		"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false,
		"add_bos_token": v.opt.AddBOS, "add_eos_token": false, "added_tokens_decoder": decoder,
	}
	for key, text := range map[string]string{"bos_token": v.opt.BOS, "eos_token": v.opt.EOS, "pad_token": v.opt.Pad, "chat_template": v.opt.Template} {
		if text != "" {
			c[key] = text
		}
	}
	return c
}

// readBack opens what is written, in both forms, and compares what they say about special tokens: a folder has BOS and EOS by the look of
// control tokens where it names none.
func (v *Vocabulary) readBack() (err error) {
	if v.read, err = tokenizer.FromKeys(v.Keys()); err != nil {
		return err
	}
	files, err := v.Files()
	if err != nil {
		return err
	}
	folder, err := tokenizer.FromJSON(files[0].Data, files[1].Data)
	if err != nil {
		return err
	}
	if n, m := v.read.VocabSize(), folder.VocabSize(); n != v.Size() || m != v.Size() {
		return fmt.Errorf("the vocabulary has %d tokens, its keys %d and its files %d: that is an error of this program", v.Size(), n, m)
	}
	for _, s := range []struct {
		name string
		id   func(t *tokenizer.Tokenizer) (int32, bool)
	}{{"BOS", (*tokenizer.Tokenizer).BOS}, {"EOS", (*tokenizer.Tokenizer).EOS}} {
		a, _ := s.id(v.read)
		b, _ := s.id(folder)
		if i := int(b) - len(v.tokens); a != b && i >= 0 {
			return fmt.Errorf("control token %q: readers of folders take it for %s by its name; name it as %s", v.opt.Control[i], s.name, s.name)
		} else if a != b {
			return fmt.Errorf("%s is token %d of the keys and %d of the files: that is an error of this program", s.name, a, b)
		}
	}
	return nil
}
