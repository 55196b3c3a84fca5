package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"ck/internal/jsonfile"
)

// Limits of the files that Open reads whole.
const (
	maxVocabFile  = 256 << 20
	maxConfigFile = 16 << 20
)

// ErrNoFiles is wrapped by the errors about folders that hold none of the files of a tokenizer; it is fs.ErrNotExist
// too.
var ErrNoFiles = fmt.Errorf("the folder has no tokenizer: %w", fs.ErrNotExist)

// Open reads the tokenizer of a folder as Hugging Face lays it out: tokenizer.json, else tekken.json, else
// tokenizer.model, with tokenizer_config.json and the files that older folders have beside it, and the end tokens of
// generation_config.json. A tokenizer.json of a kind that is not supported gives way to a tokenizer.model beside it.
func Open(dir string) (*Tokenizer, error) {
	config, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	return openFirst(dir, config, []vocabFile[*Tokenizer]{
		{"tokenizer.json", openJSON},
		{"tekken.json", openTekken},
		{"tokenizer.model", openSentencePiece},
	})
}

// vocabFile is a file that a folder's tokenizer may come from, and what is made of it.
type vocabFile[T interface{ named(c *hfConfig) error }] struct {
	name string
	open func(b []byte, c *hfConfig) (T, error)
}

// openFirst opens the first of files that the folder has. One of a kind that is not supported gives way to those
// behind it.
func openFirst[T interface{ named(c *hfConfig) error }](dir string, c *hfConfig, files []vocabFile[T]) (none T,
	err error) {
	var unsupported error
	for _, f := range files {
		b, err := readOptional(filepath.Join(dir, f.name), maxVocabFile)
		if err != nil {
			return none, err
		}
		if b == nil {
			continue
		}
		t, err := f.open(b, c)
		if err == nil {
			err = t.named(c)
		}
		switch {
		case err == nil:
			return t, nil
		case !errors.Is(err, ErrUnsupported):
			return none, fmt.Errorf("%s: %w", dir, err)
		case unsupported == nil:
			unsupported = fmt.Errorf("%s: %w", dir, err)
		}
	}
	if unsupported != nil {
		return none, unsupported
	}
	return none, fmt.Errorf("%s: no tokenizer.json, tekken.json or tokenizer.model: %w", dir, ErrNoFiles)
}

// readConfig reads what the files beside the vocabulary say: tokenizer_config.json; special_tokens_map.json, for
// texts that it lacks; added_tokens.json, for tokens that it lacks; the end tokens of generation_config.json.
func readConfig(dir string) (*hfConfig, error) {
	b, err := readOptional(filepath.Join(dir, "tokenizer_config.json"), maxConfigFile)
	if err != nil {
		return nil, err
	}
	config, err := parseConfig(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	var older hfConfig
	if err := readJSON(filepath.Join(dir, "special_tokens_map.json"), &older); err != nil {
		return nil, err
	}
	config.BOS, config.EOS = cmp.Or(config.BOS, older.BOS), cmp.Or(config.EOS, older.EOS)
	config.Unknown, config.Separator = cmp.Or(config.Unknown, older.Unknown), cmp.Or(config.Separator,
		older.Separator)
	config.Padding, config.Mask = cmp.Or(config.Padding, older.Padding), cmp.Or(config.Mask, older.Mask)
	var added map[string]int64
	if err := readJSON(filepath.Join(dir, "added_tokens.json"), &added); err != nil {
		return nil, err
	}
	for _, text := range slices.Sorted(maps.Keys(added)) {
		config.more = append(config.more, hfToken{ID: added[text], Content: text})
	}
	config.ends, err = generationEnds(dir)
	return config, err
}

// readJSON reads a JSON file, if it is there.
func readJSON(name string, v any) error {
	b, err := readOptional(name, maxConfigFile)
	if err != nil || len(b) == 0 {
		return err
	}
	if err := jsonfile.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readOptional is the content of a file, nil if there is none.
func readOptional(name string, limit int64) ([]byte, error) {
	st, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", name)
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("%s: %d bytes, limit is %d", name, st.Size(), limit)
	}
	b, err := os.ReadFile(name)
	if b == nil {
		b = []byte{}
	}
	return b, err
}

// generationEnds is eos_token_id of generation_config.json, a number or a list.
func generationEnds(dir string) (ids []int64, err error) {
	name := filepath.Join(dir, "generation_config.json")
	var c struct {
		EOS any `json:"eos_token_id"`
	}
	if err := readJSON(name, &c); err != nil {
		return nil, err
	}
	list, ok := c.EOS.([]any)
	if !ok {
		list = []any{c.EOS}
	}
	for _, e := range list {
		if e == nil {
			continue
		}
		id, ok := e.(float64)
		if !ok || id != math.Trunc(id) || id < 0 || id >= maxTokens {
			return nil, fmt.Errorf("%s: eos_token_id: %.100v is no id of a token; the file is damaged: download it again", name, e)
		}
		ids = append(ids, int64(id))
	}
	return ids, nil
}
