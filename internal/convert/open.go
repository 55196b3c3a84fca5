package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ck/internal/gguf"
	"ck/internal/hf"
)

// InputError says that an input cannot be used.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// Open opens what is converted: a GGUF file, the first part of a split one, or a Hugging Face folder, with the keys of its tokenizer.
func Open(path string) (*gguf.Model, error) {
	m, err := open(path)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return nil, &InputError{err}
	}
	return m, err
}

func open(path string) (*gguf.Model, error) {
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
	return hf.Open(path)
}
