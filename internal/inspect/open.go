// Package inspect opens models of any form to be looked at, and lists their matrices by class and layer with their rows
// in floats. It needs no graph: a model that no engine here can run has matrices too.
package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/mapfile"
	"ck/internal/npy"
	"ck/internal/quant"
	"ck/internal/safetensors"
	"ck/internal/tokenizer"
)

// InputError says that an input cannot be used. Damaged tells a file that is not what its format promises from one that
// is missing or of a form that is not read.
type InputError struct {
	Err     error
	Damaged bool
}

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// Form is how a model lies on the disk.
type Form string

const (
	GGUF        Form = "GGUF"
	Folder      Form = "Hugging Face folder"
	Safetensors Form = "safetensors"
	Numpy       Form = "npy"
)

// Model is an open model. Tensors have GGUF's names where the form's own names are known, and the file's names elsewhere.
type Model struct {
	*gguf.Model
	Form Form
	Left []Left // tensors of the files that no type here can hold
}

// Left is a tensor that is not looked at.
type Left struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Open opens a GGUF file or the first part of a split one, a Hugging Face folder with the keys of its tokenizer, a
// safetensors file, or a matrix in numpy's form. Errors are *InputError, but for missing permission.
func Open(path string) (*Model, error) {
	info, err := os.Stat(path)
	if err != nil {
		if e := (*fs.PathError)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return nil, inputError(fmt.Errorf("%s: %w; give a GGUF or safetensors file or a model folder", path, err), false)
	}
	var m *Model
	switch {
	case info.IsDir():
		m, err = openFolder(path)
	case strings.HasSuffix(path, ".npy"):
		m, err = openArray(path)
	case strings.HasSuffix(path, ".safetensors"):
		m, err = openFile(path)
	default:
		var g *gguf.Model
		if g, err = gguf.Open(path); err == nil {
			m = &Model{Model: g, Form: GGUF}
		}
	}
	if err != nil {
		return nil, inputError(err, true) // a part that is missing, too
	}
	return m, nil
}

func inputError(err error, damaged bool) error {
	if errors.Is(err, fs.ErrPermission) || errors.As(err, new(*InputError)) {
		return err
	}
	return &InputError{err, damaged}
}

// openFolder opens a folder as the GGUF file that it would be; one of a class that is not known as it lies there.
func openFolder(dir string) (*Model, error) {
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
		return nil, &InputError{Err: fmt.Errorf("%s: no config.json; give a GGUF or safetensors file or a folder as Hugging Face lays it out", dir)}
	}
	m := &Model{Form: Folder}
	var err error
	var class *hf.ClassError
	m.Model, err = hf.Open(dir)
	switch {
	case errors.As(err, &class):
		if err := m.openRaw(dir, class); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	default:
		if err := hf.Describe(m.Model, dir); err != nil {
			m.Close()
			return nil, err
		}
	}
	vocab := 0
	if t := m.Tensor("token_embd.weight"); t != nil {
		vocab = t.Rows()
	}
	keys, notes, err := tokenizer.Keys(dir, vocab)
	if err != nil {
		m.Notes = append(m.Notes, fmt.Sprintf("no tokenizer: %v", err))
		return m, nil
	}
	for _, k := range keys {
		m.KV.Set(k.Name, k.Value)
	}
	m.Notes = append(m.Notes, notes...)
	return m, nil
}

// openRaw opens the files of a folder whose class is not known, under their own names.
func (m *Model) openRaw(dir string, class *hf.ClassError) error {
	m.Model = gguf.NewModel(dir)
	m.KV.Set("general.architecture", class.Name)
	m.Notes = append(m.Notes, fmt.Sprintf("class %s is not known: tensors have the files' names", class.Name))
	files, err := safetensors.OpenDir(dir)
	if err == nil {
		err = m.addFiles(files)
	}
	if err != nil {
		m.Close()
	}
	return err
}

// openFile opens one safetensors file.
func openFile(path string) (*Model, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	m := &Model{Model: gguf.NewModel(path), Form: Safetensors}
	for _, k := range slices.Sorted(keysOf(f.Metadata)) {
		m.KV.Set(k, f.Metadata[k])
	}
	if err := m.addFiles([]*safetensors.File{f}); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func keysOf(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// addFiles makes the tensors of files the model's own.
func (m *Model) addFiles(files []*safetensors.File) error {
	index := make([]int, len(files))
	for i, f := range files { // all of them first: from here on m closes them
		index[i] = m.AddFile(f.Map)
	}
	for i, f := range files {
		for _, t := range f.Tensors {
			typ, known := t.Type()
			shape := slices.Clone(t.Shape)
			slices.Reverse(shape)
			why := ""
			switch {
			case !known:
				why = fmt.Sprintf("elements of type %s are not read", t.DType)
			case len(shape) == 0:
				shape = []int{1}
			case slices.Contains(shape, 0):
				why = "is empty"
			}
			if why == "" {
				if err := m.Add(&gguf.Tensor{Name: t.Name, Type: typ, Shape: shape, Data: t.Data, File: index[i], Offset: t.Offset}); err != nil {
					if m.Tensor(t.Name) != nil {
						return fmt.Errorf("%s: tensor %.100q: %w", f.Map.Path, t.Name, err)
					}
					why = err.Error()
				}
			}
			if why != "" {
				m.Left = append(m.Left, Left{t.Name, why})
			}
		}
	}
	return nil
}

// openArray opens a matrix of numpy's as a model with one tensor, named as the file.
func openArray(path string) (*Model, error) {
	f, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	m := &Model{Model: gguf.NewModel(path), Form: Numpy}
	index := m.AddFile(f)
	var a *npy.Array
	err = f.Guard(func() error {
		a, err = npy.Parse(f.Data)
		return err
	})
	if err == nil {
		t := &gguf.Tensor{Name: strings.TrimSuffix(filepath.Base(path), ".npy"), Type: quant.F32, Shape: slices.Clone(a.Shape), Data: a.Data(), File: index}
		if a.Double {
			t.Type = quant.F64
		}
		slices.Reverse(t.Shape)
		if len(t.Shape) == 0 {
			t.Shape = []int{1}
		}
		t.Offset = int64(len(f.Data) - len(t.Data))
		if slices.Contains(t.Shape, 0) {
			m.Left = append(m.Left, Left{t.Name, "is empty"})
		} else {
			err = m.Add(t)
		}
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}
