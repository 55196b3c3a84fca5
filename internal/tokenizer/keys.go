package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
)

// Key is a key of a GGUF file's metadata with its value, of a type that the format has.
type Key struct {
	Name  string
	Value any
}

// Keys reads the tokenizer of a folder, as Open does, and gives the keys that a GGUF file has for it: the vocabulary,
// the ids of special tokens, the chat templates. The vocabulary is padded to vocab tokens, the rows of the model's
// embedding; 0 leaves it as it is. Notes say what of the tokenizer the keys leave out. What they cannot hold at all
// is an error that wraps ErrUnsupported; that a folder has no tokenizer one that wraps ErrNoFiles.
//
// Where tokenizer.json is of the kind that SentencePiece makes, scores come from tokenizer.model, or without it from
// the order of the merges. The keys are read back before they are returned: they make the tokenizer that Open makes.
func Keys(dir string, vocab int) (keys []Key, notes []string, err error) {
	config, err := readConfig(dir)
	if err != nil {
		return nil, nil, err
	}
	x, err := openFirst(dir, config, []vocabFile[*export]{
		{"tokenizer.json", func(b []byte, c *hfConfig) (*export, error) { return exportJSON(b, dir, c) }},
		{"tekken.json", exportTekken},
		{"tokenizer.model", exportSentencePiece},
	})
	if err != nil {
		return nil, nil, err
	}
	ids, err := readModelIDs(dir)
	if err != nil {
		return nil, nil, err
	}
	templates, err := ReadTemplates(dir)
	if err != nil {
		return nil, nil, err
	}
	if err := x.fill(); err != nil {
		return nil, nil, fmt.Errorf("%s: %s: %w", dir, x.file, err)
	}
	err = x.fit(vocab)
	if err == nil {
		err = x.write(config, ids)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	x.writeTemplates(templates)
	return x.keys, x.notes, nil
}

// export is a tokenizer on its way into keys.
type export struct {
	t    *Tokenizer   // as Open makes it
	file string       // that it comes from
	fill func() error // sets what follows

	model  string // tokenizer.ggml.model
	pre    string
	tokens []string
	types  []int32
	scores []float32 // of model llama
	merges []string  // of model gpt2, "left right"

	charsMap []byte
	defaults hfConfig // texts of special tokens that no other file names
	collapse bool

	ids   map[string]int32 // of special tokens, by the key's name
	keys  []Key
	notes []string
}

// named is Tokenizer.named.
func (x *export) named(c *hfConfig) error { return x.t.named(c) }

const remedyFiles = "the files are of different models: download them again"

// Scores of tokens that no model scores, as llama.cpp's converter writes them.
const (
	addedScore   = -1000
	paddingScore = -10000
)

// take sets tokens and types from t. A token that is added and not special, but looks as control tokens do, becomes
// one: the text of users must not become it.
func (x *export) take(t *Tokenizer) {
	for id, text := range t.text {
		kind := int32(t.kind[id])
		switch {
		case kind == 0 || text == "" && kind != typeNormal: // no token has this id
			text, kind = paddingText(id), typeUnused
		case kind == typeUserDefined && looksControl(text):
			kind = typeControl
		case kind == typeUserDefined && x.model == "llama":
			text = strings.ReplaceAll(text, escapedSpace, " ")
		case kind == typeUnknown && x.model == "gpt2": // a word as others
			kind = typeNormal
		}
		x.tokens, x.types = append(x.tokens, text), append(x.types, kind)
	}
}

func paddingText(id int) string { return fmt.Sprintf("[PAD%d]", id) }

// looksControl reports whether an added token is a control token by its look, whatever its file says.
func looksControl(text string) bool {
	between := func(open, end string) bool {
		return len(text) >= len(open)+len(end) && strings.HasPrefix(text, open) && strings.HasSuffix(text, end)
	}
	return between("<|", "|>") || between("<｜", "｜>") || between("<unused", ">") ||
		slices.Contains([]string{"<pad>", "<mask>", "<2mass>", "[@BOS@]"}, text)
}

// fit pads the vocabulary to n tokens. Added tokens beyond them, for which the model has no rows, are left out.
func (x *export) fit(n int) error {
	if n <= 0 {
		return nil
	}
	if n > maxTokens {
		return fmt.Errorf("vocab_size is %d, limit is %d", n, maxTokens)
	}
	for id := n; id < len(x.tokens); id++ {
		if x.types[id] == typeNormal || x.types[id] == typeByte {
			return fmt.Errorf("the vocabulary has %d tokens, but the model's embedding %d rows; %s", len(x.tokens), n, remedyFiles)
		}
		if x.types[id] != typeUnused {
			x.note("token %.40q has the id %d, for which the model has no row; it is left out", x.tokens[id], id)
		}
	}
	if len(x.tokens) > n {
		x.tokens, x.types = x.tokens[:n], x.types[:n]
		x.scores = x.scores[:min(n, len(x.scores))]
	}
	for id := len(x.tokens); id < n; id++ {
		x.tokens, x.types = append(x.tokens, paddingText(id)), append(x.types, typeUnused)
	}
	for x.model == "llama" && len(x.scores) < n {
		x.scores = append(x.scores, paddingScore)
	}
	return nil
}

func (x *export) note(format string, args ...any) {
	x.notes = append(x.notes, fmt.Sprintf(format, args...))
}

func (x *export) set(name string, value any) { x.keys = append(x.keys, Key{ggml + name, value}) }

// write makes the keys, and reads them back.
func (x *export) write(c *hfConfig, model map[string]int64) error {
	addBOS, addEOS, err := x.pickIDs(c, model)
	if err != nil {
		return err
	}
	x.set("model", x.model)
	x.set("pre", x.pre)
	x.set("tokens", x.tokens)
	if x.model == "llama" {
		x.set("scores", x.scores)
	}
	x.set("token_type", x.types)
	if x.model == "gpt2" {
		x.set("merges", x.merges)
	}
	for _, name := range idNames {
		if id, ok := x.ids[name]; ok {
			x.set(name, uint32(id))
		}
	}
	x.set("add_bos_token", addBOS)
	x.set("add_eos_token", addEOS)
	if x.model == "llama" {
		x.set("add_space_prefix", x.t.prefix != prefixNever)
		if x.collapse {
			x.set("remove_extra_whitespaces", true)
		}
		if len(x.charsMap) > 0 {
			x.set("precompiled_charsmap", x.charsMap)
			x.note("precompiled_charsmap: llama.cpp does not normalize texts by it for tokenizers of this kind")
		}
	}
	back, err := fromGGUF(keyList(x.keys))
	if err != nil {
		return err
	}
	x.writeEnds(back)
	return x.compare(back)
}

// idNames are the keys for ids of special tokens that tokenizer_config.json and config.json can name.
var idNames = []string{"bos_token_id", "eos_token_id", "eot_token_id", "unknown_token_id", "seperator_token_id",
	"padding_token_id", "mask_token_id"}

// pickIDs sets ids. What stands around a text decides about its beginning and end: GGUF has one token for each.
func (x *export) pickIDs(c *hfConfig, model map[string]int64) (addBOS, addEOS bool, err error) {
	x.ids = map[string]int32{}
	put := func(name string, id int32) {
		if _, ok := x.ids[name]; !ok && id >= 0 {
			x.ids[name] = id
		}
	}
	t := x.t
	bos, eos := t.bos, t.eos
	if len(t.before) > 1 || len(t.after) > 1 {
		err = fmt.Errorf("post_processor: puts %d tokens before a text and %d behind it; GGUF knows one each: %w",
			len(t.before), len(t.after), ErrUnsupported)
		return false, false, err
	}
	if len(t.before) == 1 {
		bos = t.before[0]
	}
	if len(t.after) == 1 {
		eos = t.after[0]
		if eos != t.eos {
			put("eot_token_id", t.eos)
		}
	}
	put("bos_token_id", bos)
	put("eos_token_id", eos)
	if t.spans && t.chars {
		put("unknown_token_id", t.unknown)
	}
	for _, s := range []struct {
		name, key string
		text      hfTokenText
	}{
		{"bos_token_id", "bos_token", ""},
		{"eos_token_id", "eos_token", ""},
		{"unknown_token_id", "unk_token", cmp.Or(c.Unknown, x.defaults.Unknown)},
		{"seperator_token_id", "sep_token", c.Separator},
		{"padding_token_id", "pad_token", cmp.Or(c.Padding, x.defaults.Padding)},
		{"mask_token_id", "mask_token", c.Mask},
	} {
		if s.text != "" {
			put(s.name, x.idOf(string(s.text)))
		}
		if id, ok := model[s.key+"_id"]; ok && id < int64(len(x.tokens)) {
			put(s.name, int32(id))
		}
	}
	for _, name := range idNames {
		if id := x.ids[name]; int(id) >= len(x.tokens) {
			err = fmt.Errorf("%s is %d, but the model's embedding has %d rows; %s", name, id, len(x.tokens), remedyFiles)
			return false, false, err
		}
	}
	return len(t.before) == 1, len(t.after) == 1, nil
}

// idOf is the id of a special token, -1 if there is none with this text.
func (x *export) idOf(text string) int32 {
	for id, s := range x.tokens {
		if s == text && x.types[id] != typeNormal && x.types[id] != typeUnused {
			return int32(id)
		}
	}
	return -1
}

// writeEnds adds the keys for tokens that end a generation and that a reader of GGUF would not know by their names.
func (x *export) writeEnds(back *Tokenizer) {
	free := []string{"eot_token_id", "eom_token_id"}
	if _, taken := x.ids["eot_token_id"]; taken {
		free = free[1:]
	}
	for _, id := range slices.Sorted(maps.Keys(x.t.eog)) {
		switch {
		case back.eog[id] || int(id) >= len(x.tokens):
		case x.types[id] == typeNormal:
			x.note("generation_config.json: eos_token_id: token %d, %.40q, is an ordinary word, which GGUF cannot have "+
				"as the end of a generation; it is left out", id, x.tokens[id])
		case len(free) == 0:
			x.note("generation_config.json: eos_token_id: GGUF has no key left for token %d, %.40q; it is left out",
				id, x.tokens[id])
		default:
			x.set(free[0], uint32(id))
			free = free[1:]
		}
	}
}

// sampleText is what a tokenizer and its keys must give the same ids for. It is in normal form C, which GGUF has no
// key for.
const sampleText = "Hello world, it's 3.14 o'clock! I'LL pay $1,234,567.89.\n\n" +
	"\tfunc main() { return a_b[0] != 'x' }  // TODO   spaces\r\n" +
	"Ein schöner Tag: façade, naïve, Straße. Привет, мир! 你好,世界。 こんにちは 안녕하세요 مرحبا ١٢٣ שלום 😀👍🏽 \u00a0x\n \n    y"

// compare is an error if the keys do not make the tokenizer that they were made of.
func (x *export) compare(back *Tokenizer) error {
	for _, id := range []struct {
		name string
		back int32
	}{{"bos_token_id", back.bos}, {"eos_token_id", back.eos}} {
		if want, ok := x.ids[id.name]; id.back >= 0 && (!ok || want != id.back) {
			return fmt.Errorf("the tokenizer has no %s, and GGUF would take token %d: %w", id.name, id.back,
				ErrUnsupported)
		}
	}
	opt := EncodeOptions{AddSpecial: true}
	for line := range strings.Lines(sampleText) {
		for _, text := range []string{line, " " + line} {
			want, got := x.t.Encode(nil, text, opt), back.Encode(nil, text, opt)
			if !slices.Equal(got, want) {
				return fmt.Errorf("GGUF has no keys for this tokenizer: %q becomes %v, and would become %v: %w", text,
					want, got, ErrUnsupported)
			}
		}
	}
	return nil
}

// readModelIDs reads the ids of special tokens that config.json names; those that are no ids are no matter of the
// tokenizer.
func readModelIDs(dir string) (map[string]int64, error) {
	var c map[string]any
	if err := readJSON(filepath.Join(dir, "config.json"), &c); err != nil {
		return nil, err
	}
	ids := map[string]int64{}
	for key, v := range c {
		if id, ok := v.(float64); ok && strings.HasSuffix(key, "_token_id") && id == math.Trunc(id) && id >= 0 &&
			id < maxTokens {
			ids[key] = int64(id)
		}
	}
	return ids, nil
}

func (x *export) writeTemplates(t Templates) {
	const key = "tokenizer.chat_template"
	names := []string{}
	for _, name := range slices.Sorted(maps.Keys(t.Named)) {
		safe := strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
				return r
			}
			return '_'
		}, name)
		if name == "default" || safe == "" || slices.Contains(names, safe) {
			continue
		}
		names = append(names, safe)
		x.keys = append(x.keys, Key{key + "." + safe, t.Named[name]})
	}
	if len(names) > 0 {
		x.keys = append(x.keys, Key{key + "s", names})
	}
	if t.Default != "" {
		x.keys = append(x.keys, Key{key, t.Default})
	}
}

// keyList reads keys as FromGGUF does those of a file.
type keyList []Key

var errKeyType = errors.New("a value of another type")

func keyAs[T any](l keyList, key string) (v T, ok bool, err error) {
	for _, k := range l {
		if k.Name == key {
			if v, ok = k.Value.(T); !ok {
				return v, false, fmt.Errorf("%s: %w", key, errKeyType)
			}
			return v, true, nil
		}
	}
	return v, false, nil
}

func (l keyList) String(key string) (string, bool, error)      { return keyAs[string](l, key) }
func (l keyList) Strings(key string) ([]string, bool, error)   { return keyAs[[]string](l, key) }
func (l keyList) Float32s(key string) ([]float32, bool, error) { return keyAs[[]float32](l, key) }
func (l keyList) Bool(key string) (bool, bool, error)          { return keyAs[bool](l, key) }

func (l keyList) Int(key string) (int64, bool, error) {
	v, ok, err := keyAs[uint32](l, key)
	return int64(v), ok, err
}

func (l keyList) Ints(key string) ([]int64, bool, error) {
	if b, ok, err := keyAs[[]uint8](l, key); err == nil {
		return widen(b), ok, nil
	}
	v, ok, err := keyAs[[]int32](l, key)
	return widen(v), ok, err
}

func widen[T uint8 | int32](v []T) []int64 {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(x)
	}
	return out
}
