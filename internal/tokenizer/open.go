package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"ck/internal/jsonfile"
)

// Limits of the files that Open reads whole.
const (
	maxVocabFile  = 256 << 20
	maxConfigFile = 16 << 20
)

// Open reads the tokenizer of a folder as Hugging Face lays it out: tokenizer.json, else tekken.json, else tokenizer.model, with
// tokenizer_config.json and the end tokens of generation_config.json where they are. A tokenizer.json of a kind that is not
// supported gives way to a tokenizer.model beside it.
func Open(dir string) (*Tokenizer, error) {
	b, err := readOptional(filepath.Join(dir, "tokenizer_config.json"), maxConfigFile)
	if err != nil {
		return nil, err
	}
	config, err := parseConfig(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if config.ends, err = generationEnds(dir); err != nil {
		return nil, err
	}
	var unsupported error
	for _, f := range []struct {
		name string
		make func(b []byte, c *hfConfig) (*Tokenizer, error)
	}{
		{"tokenizer.json", openJSON},
		{"tekken.json", openTekken},
		{"tokenizer.model", openSentencePiece},
	} {
		b, err := readOptional(filepath.Join(dir, f.name), maxVocabFile)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		t, err := f.make(b, config)
		switch {
		case err == nil:
			if err := t.named(config); err != nil {
				return nil, fmt.Errorf("%s: %w", dir, err)
			}
			return t, nil
		case !errors.Is(err, ErrUnsupported):
			return nil, fmt.Errorf("%s: %w", dir, err)
		case unsupported == nil:
			unsupported = fmt.Errorf("%s: %w", dir, err)
		}
	}
	if unsupported != nil {
		return nil, unsupported
	}
	return nil, fmt.Errorf("%s: no tokenizer.json, tekken.json or tokenizer.model: %w", dir, fs.ErrNotExist)
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
	b, err := readOptional(name, maxConfigFile)
	if err != nil || len(b) == 0 {
		return nil, err
	}
	var c struct {
		EOS any `json:"eos_token_id"`
	}
	if err := jsonfile.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
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
