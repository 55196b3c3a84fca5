package generate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/testkit"
)

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		path, name  string
		context     int
		raw, hasTpl bool
	}{
		{"", "stories260K", 512, true, true},
		{testkit.Data(t, "models/stories260K/model.gguf"), "stories260K", 512, false, false},
		{testkit.Data(t, "models/stories260K/hf"), "", 2048, false, false},
		{testkit.Data(t, "models/trained-qwen3/model.gguf"), "", 0, false, false},
	} {
		m, err := Open(c.path)
		if err != nil {
			t.Error(err)
			continue
		}
		if c.name != "" && m.Name != c.name || m.Name == "" || m.Raw != c.raw || (m.Template != "") != c.hasTpl || m.Path != c.path {
			t.Errorf("%q: %q, raw %t, template %q", c.path, m.Name, m.Raw, m.Template)
		}
		if c.context > 0 && m.Context != c.context && c.name != "" || m.Context <= 0 {
			t.Errorf("%q: context %d, expected %d", c.path, m.Context, c.context)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What is no model is an *InputError of one line that names the path and says what was looked for.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	one := filepath.Dir(write("one/m.gguf", "x"))
	write("two/a.gguf", "x")
	two := filepath.Dir(write("two/b.gguf", "x"))
	whole, err := os.ReadFile(filepath.Join("builtin", "stories260K.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "missing.gguf"), "does not exist"},
		{empty, "looked for config.json with *.safetensors, and for *.gguf"},
		{one, "m.gguf"},
		{two, "2 GGUF files"},
		{write("zero.gguf", ""), "file has 0 bytes"},
		{write("text.gguf", "Once upon a time"), `begins with "Once", expected "GGUF"`},
		{write("cut.gguf", string(whole[:len(whole)/2])), "incomplete"},
		{write("hf/model.safetensors", "x"), "open the folder"},
		{write("hf2/config.json", "{"), "open the folder"},
		{filepath.Join(dir, "hf2"), "config.json"},
		{write("file", "x") + "/m.gguf", "not a directory"},
	} {
		m, err := Open(c.path)
		if err == nil {
			m.Close()
			t.Errorf("%s was opened", c.path)
			continue
		}
		var in *InputError
		if !errors.As(err, &in) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, expected an input error with %q", c.path, err, c.want)
		}
	}
	if os.Getuid() != 0 {
		path := write("secret.gguf", "x")
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		var in *InputError
		if _, err := Open(path); !errors.Is(err, fs.ErrPermission) || errors.As(err, &in) {
			t.Errorf("no permission: %v", err)
		}
	}
}

func TestFindTemplate(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "own.jinja")
	bad := filepath.Join(dir, "bad.jinja")
	for path, text := range map[string]string{file: "[{{ messages[0].content }}]", bad: "{% if %}"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := builtin(t)
	m.named = map[string]string{"tool_use": "T{{ messages[0].content }}", "chatml": "mine"}
	for name, want := range map[string]string{file: "[x]", "tool_use": "Tx", "chatml": "mine", "": "x"} {
		tmpl, err := m.FindTemplate(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if r, err := m.RenderPrompt(tmpl, "", "x", RenderOptions{}); err != nil || r.Text != want {
			t.Errorf("template %q gives %q, %v, expected %q", name, r.Text, err, want)
		}
	}
	var in *InputError
	if _, err := m.FindTemplate(bad); !errors.As(err, &in) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a bad template: %v", err)
	}
	if _, err := m.FindTemplate(dir); !errors.As(err, &in) {
		t.Errorf("a folder as a template: %v", err)
	}
	if _, err := m.FindTemplate("nonesuch"); !errors.Is(err, ErrTemplateName) || !strings.Contains(err.Error(), "zephyr") || !strings.Contains(err.Error(), "tool_use") {
		t.Errorf("an unknown template: %v", err)
	}
	m.Template = ""
	if _, err := m.FindTemplate(""); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("no template: %v", err)
	}
}

// The source of a template for a new model: a built-in one or a file that parses.
func TestTemplateSource(t *testing.T) {
	dir := t.TempDir()
	file, bad, latin := filepath.Join(dir, "own.jinja"), filepath.Join(dir, "bad.jinja"), filepath.Join(dir, "latin.jinja")
	for path, text := range map[string]string{file: "[{{ messages[0].content }}]", bad: "{% if %}", latin: "\xe9"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := TemplateSource(file); err != nil || got != "[{{ messages[0].content }}]" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := TemplateSource("chatml"); err != nil || !strings.Contains(got, "<|im_end|>") || strings.HasSuffix(got, "\n") {
		t.Errorf("%q, %v", got, err)
	}
	var in *InputError
	for path, want := range map[string]string{bad: "line 1", latin: "is not UTF-8", dir: "is not a regular file"} {
		if _, err := TemplateSource(path); !errors.As(err, &in) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := TemplateSource("nonesuch"); !errors.Is(err, ErrTemplateName) || !strings.Contains(err.Error(), "zephyr") {
		t.Errorf("an unknown template: %v", err)
	}
}

// Every place where a folder may keep its templates.
func TestFolderTemplates(t *testing.T) {
	for _, c := range []struct {
		name     string
		files    map[string]string
		template string
		named    map[string]string
		bos      string
	}{
		{"config", map[string]string{"tokenizer_config.json": `{"chat_template": "A", "bos_token": "<b>"}`}, "A", nil, "<b>"},
		{"token as object", map[string]string{"tokenizer_config.json": `{"chat_template": null, "bos_token": {"content": "<c>"}}`}, "", nil, "<c>"},
		{"list", map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}], "bos_token": null}`},
			"D", map[string]string{"default": "D", "rag": "R"}, "<s>"},
		{"file first", map[string]string{"tokenizer_config.json": `{"chat_template": "A"}`, "chat_template.jinja": "J\n", "additional_chat_templates/x.jinja": "X"},
			"J\n", map[string]string{"x": "X"}, "<s>"},
		{"json file", map[string]string{"chat_template.json": `{"chat_template": "C"}`}, "C", nil, "<s>"},
		{"none", nil, "", nil, "<s>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			m := builtin(t)
			m.Template = ""
			if err := m.folderTemplates(dir); err != nil {
				t.Fatal(err)
			}
			if m.Template != c.template || len(m.named) != len(c.named) || m.bos != c.bos {
				t.Errorf("template %q, named %v, BOS %q", m.Template, m.named, m.bos)
			}
			for n, want := range c.named {
				if m.named[n] != want {
					t.Errorf("template %q is %q, expected %q", n, m.named[n], want)
				}
			}
		})
	}
	for _, bad := range []string{`{`, `{"chat_template": 5}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := builtin(t).folderTemplates(dir); err == nil || !strings.Contains(err.Error(), "tokenizer_config.json") {
			t.Errorf("%s: %v, expected an error that names the file", bad, err)
		}
	}
}
