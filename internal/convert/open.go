package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/tokenizer"
)

// InputError says that an input cannot be used.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// Open opens what is converted: a GGUF file, the first part of a split one, or a Hugging Face folder, with the keys
// of its tokenizer unless tokenizers is false.
func Open(path string, tokenizers bool) (*gguf.Model, error) {
	m, err := open(path, tokenizers)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return nil, &InputError{err}
	}
	return m, err
}

func open(path string, tokenizers bool) (*gguf.Model, error) {
	info, err := os.Stat(path)
	if err != nil {
		if e := (*fs.PathError)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return nil, fmt.Errorf("%s: %w; give a GGUF file or a model folder", path, err)
	}
	if !info.IsDir() {
		return gguf.Open(path)
	}
	if _, err := os.Stat(filepath.Join(path, "config.json")); err != nil {
		return nil, fmt.Errorf("%s: no config.json; give a GGUF file or a folder as Hugging Face lays it out", path)
	}
	m, err := hf.Open(path)
	if err != nil {
		return nil, err
	}
	if err := addKeys(m, path, tokenizers); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// addKeys gives a folder's model the keys that GGUF files have beside those of the architecture: general ones and the
// tokenizer's.
func addKeys(m *gguf.Model, dir string, tokenizers bool) error {
	if err := hf.Describe(m, dir); err != nil {
		return err
	}
	if !tokenizers {
		m.Notes = append(m.Notes, "without a tokenizer, as asked for")
		return nil
	}
	vocab := 0
	if embd := m.Tensor("token_embd.weight"); embd != nil {
		vocab = embd.Rows()
	}
	keys, notes, err := tokenizer.Keys(dir, vocab)
	if errors.Is(err, tokenizer.ErrNoFiles) {
		return fmt.Errorf("%w; --no-tokenizer goes without", err)
	}
	if err != nil {
		return err
	}
	for _, k := range keys {
		m.KV.Set(k.Name, k.Value)
	}
	m.Notes = append(m.Notes, notes...)
	return nil
}
