package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Templates are the chat templates of a folder, Jinja sources.
type Templates struct {
	Default string // "" if there is none
	Named   map[string]string
}

const maxTemplateFile = 1 << 20 // bytes of a template, as internal/template reads

// ReadTemplates reads the chat templates of a folder: chat_template.jinja and additional_chat_templates/NAME.jinja,
// which newer folders have, else chat_template.json, else tokenizer_config.json. The one named default is taken where
// there is no other.
func ReadTemplates(dir string) (Templates, error) {
	t := Templates{Named: map[string]string{}}
	for _, name := range []string{"tokenizer_config.json", "chat_template.json"} {
		path := filepath.Join(dir, name)
		var c struct {
			ChatTemplate json.RawMessage `json:"chat_template"` // a string, or a list of {name, template}
		}
		if err := readJSON(path, &c); err != nil {
			return t, err
		}
		if err := t.take(c.ChatTemplate); err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
	}
	more, _ := filepath.Glob(filepath.Join(dir, "additional_chat_templates", "*.jinja"))
	for _, path := range slices.Concat(more, []string{filepath.Join(dir, "chat_template.jinja")}) {
		b, err := readOptional(path, maxTemplateFile)
		switch {
		case err != nil:
			return t, err
		case b == nil:
		case filepath.Dir(path) == filepath.Clean(dir):
			t.Default = string(b)
		default:
			t.Named[strings.TrimSuffix(filepath.Base(path), ".jinja")] = string(b)
		}
	}
	if t.Default == "" {
		t.Default = t.Named["default"]
	}
	return t, nil
}

// take adds what a file's chat_template says.
func (t *Templates) take(b json.RawMessage) error {
	if len(b) == 0 || string(b) == "null" || json.Unmarshal(b, &t.Default) == nil {
		return nil
	}
	var list []struct{ Name, Template string }
	if json.Unmarshal(b, &list) != nil {
		return errors.New("chat_template is neither a string nor a list of {name, template}")
	}
	for _, n := range list {
		t.Named[n.Name] = n.Template
	}
	return nil
}
