package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/jsonfile"
	"ck/internal/tokenizer"
)

// Model is an open model with all that text needs: weights, tokenizer, chat templates.
type Model struct {
	Weights *gguf.Model
	Tok     *tokenizer.Tokenizer
	Name    string // general.name, else the last element of the path
	Path    string // as opened; "" for the built-in model
	Raw     bool   // prompts are sent as they are unless a template is asked for (metadata ck.prompt.default = raw)
	Context int    // positions that the model was trained for; 0 if the file does not say

	// Template is the model's chat template, Jinja source; "" if it has none.
	Template string

	named    map[string]string // further templates of the model
	bos, eos string            // texts that templates see
	saidLost bool
}

// InputError says that an input cannot be used: it is missing, damaged, unsupported or too long.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

func inputf(format string, args ...any) error { return &InputError{fmt.Errorf(format, args...)} }

const (
	promptKey       = "ck.prompt.default" // raw or chat: what prompts are without flags
	maxTemplateFile = 1 << 20             // bytes of a template, as internal/template reads
	maxJSONFile     = 1 << 26             // bytes of tokenizer_config.json
)

// Open opens a model: a GGUF file, the first part of a split one, a folder as Hugging Face lays it out, or the built-in model for
// "". Errors are *InputError, but for a file that may not be read: that is fs.ErrPermission, without an *InputError around it.
func Open(path string) (*Model, error) {
	m, err := open(path)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		if in := (*InputError)(nil); !errors.As(err, &in) {
			err = &InputError{err}
		}
	}
	return m, err
}

func open(path string) (*Model, error) {
	if path == "" {
		return openBuiltin()
	}
	info, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w; give a GGUF file or a model folder with -m", path, fs.ErrNotExist)
		}
		if e := (*fs.PathError)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if info.IsDir() {
		return openFolder(path)
	}
	if base := filepath.Base(path); base == "config.json" || strings.HasSuffix(base, ".safetensors") {
		return nil, fmt.Errorf("%s: this is one file of a model folder; open the folder %s", path, filepath.Dir(path))
	}
	w, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	var m *Model
	err = w.Guard(func() error { // the metadata is read where the file is mapped
		m, err = fromGGUF(w, path)
		return err
	})
	if err != nil {
		w.Close()
		return nil, err
	}
	return m, nil
}

// fromGGUF makes the Model of a GGUF file, which stays the caller's if it fails.
func fromGGUF(w *gguf.Model, path string) (*Model, error) {
	name := path
	if name == "" {
		name = w.Path
	}
	tok, err := tokenizer.FromGGUF(w.KV)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m, err := newModel(w, tok, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m.named = map[string]string{}
	for _, k := range w.KV.Keys() {
		n, named := strings.CutPrefix(k, "tokenizer.chat_template.")
		if !named && k != "tokenizer.chat_template" {
			continue
		}
		text, _, err := w.KV.String(k)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if named {
			m.named[n] = text
		} else {
			m.Template = text
		}
	}
	m.defaultTemplate()
	return m, nil
}

// openFolder opens a folder with config.json and safetensors.
func openFolder(dir string) (*Model, error) {
	if _, err := os.Stat(filepath.Join(dir, "config.json")); errors.Is(err, fs.ErrNotExist) {
		return nil, noModel(dir)
	}
	w, err := hf.Open(dir)
	if err != nil {
		return nil, err
	}
	m, err := fromFolder(w, dir)
	if err != nil {
		w.Close()
		return nil, err
	}
	return m, nil
}

func fromFolder(w *gguf.Model, dir string) (*Model, error) {
	tok, err := tokenizer.Open(dir)
	if err != nil {
		return nil, err
	}
	m, err := newModel(w, tok, dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return m, m.folderTemplates(dir)
}

// noModel says what was looked for in a folder without config.json.
func noModel(dir string) error {
	files, _ := filepath.Glob(filepath.Join(dir, "*.gguf"))
	switch {
	case len(files) == 1:
		return fmt.Errorf("%s: no model folder (no config.json), but it holds a GGUF file; open %s", dir, files[0])
	case len(files) > 1:
		return fmt.Errorf("%s: no model folder (no config.json), but it holds %d GGUF files; open one of them, as %s", dir, len(files), files[0])
	}
	return fmt.Errorf("%s: a folder without a model: looked for config.json with *.safetensors, and for *.gguf; name a model file or folder", dir)
}

// newModel fills in what the metadata and the tokenizer say. Errors name the key or the tensor.
func newModel(w *gguf.Model, tok *tokenizer.Tokenizer, path string) (*Model, error) {
	m := &Model{Weights: w, Tok: tok, Path: path}
	var err error
	if m.Name, _, err = w.KV.String("general.name"); err != nil {
		return nil, err
	}
	if m.Name == "" {
		m.Name = filepath.Base(filepath.Clean(path))
	}
	arch, _, err := w.KV.String("general.architecture")
	if err != nil {
		return nil, err
	}
	context, _, err := w.KV.Int(arch + ".context_length")
	if err != nil {
		return nil, err
	}
	m.Context = int(max(context, 0)) // the engine judges the value
	mode, said, err := w.KV.String(promptKey)
	switch {
	case err != nil:
		return nil, err
	case said && mode != "raw" && mode != "chat":
		return nil, fmt.Errorf("%s: is %.100q, wanted raw or chat; mend the key or remove it", promptKey, mode)
	}
	m.Raw = mode == "raw"
	if embd, n := w.Tensor("token_embd.weight"), tok.VocabSize(); embd != nil && embd.Rows() < n { // more are padding
		return nil, fmt.Errorf("tensor token_embd.weight: has %d rows, but the vocabulary has %d tokens; tokenizer and weights are of different models: "+
			"download or convert them again", embd.Rows(), n)
	}
	if id, ok := tok.BOS(); ok {
		m.bos = tok.Piece(id)
	}
	if id, ok := tok.EOS(); ok {
		m.eos = tok.Piece(id)
	}
	return m, nil
}

// Close unmaps the model's files.
func (m *Model) Close() error { return m.Weights.Close() }

// folderTemplates reads the chat templates of a folder, and what tokenizer_config.json writes for bos_token and eos_token: templates see
// these.
func (m *Model) folderTemplates(dir string) error {
	t, err := tokenizer.ReadTemplates(dir)
	if err != nil {
		return err
	}
	m.Template, m.named = t.Default, t.Named
	path := filepath.Join(dir, "tokenizer_config.json")
	b, err := readFile(path, maxJSONFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var c struct {
		BOS json.RawMessage `json:"bos_token"` // a string, or {content}
		EOS json.RawMessage `json:"eos_token"`
	}
	if err := jsonfile.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if s, ok := tokenText(c.BOS); ok {
		m.bos = s
	}
	if s, ok := tokenText(c.EOS); ok {
		m.eos = s
	}
	return nil
}

// defaultTemplate takes the template named default where there is no other.
func (m *Model) defaultTemplate() {
	if m.Template == "" {
		m.Template = m.named["default"]
	}
}

// tokenText is the text of a special token as tokenizer_config.json writes it.
func tokenText(b json.RawMessage) (string, bool) {
	var s *string
	if len(b) > 0 && json.Unmarshal(b, &s) == nil && s != nil {
		return *s, true
	}
	var token struct{ Content *string }
	if len(b) > 0 && json.Unmarshal(b, &token) == nil && token.Content != nil {
		return *token.Content, true
	}
	return "", false
}

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is not a regular file", path)
	}
	if err == nil && info.Size() > limit {
		return nil, fmt.Errorf("%s: has %d bytes, limit is %d", path, info.Size(), limit)
	}
	if err == nil {
		var b []byte
		if b, err = os.ReadFile(path); err == nil {
			return b, nil
		}
	}
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return nil, fmt.Errorf("%s: %w", path, err)
}

// TemplateNames lists the names that FindTemplate knows: the model's own first.
func (m *Model) TemplateNames() []string {
	own := []string{}
	for n := range m.named {
		own = append(own, n)
	}
	slices.Sort(own)
	return append(own, builtinTemplates()...)
}
