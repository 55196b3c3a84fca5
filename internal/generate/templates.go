package generate

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"ck/internal/template"
)

// templateFiles are the formats that --template knows by name, for models whose file has no template: the formats' documented
// turns, in Jinja of our own. Each is named after the family that made it common.
//
//go:embed templates/*.jinja
var templateFiles embed.FS

// builtinTemplate is the source of a built-in template, "" if there is none of that name.
func builtinTemplate(name string) string {
	b, err := templateFiles.ReadFile("templates/" + name + ".jinja")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n") // the file's line end is no part of the template
}

// builtinTemplates lists the names of the built-in templates, sorted.
func builtinTemplates() []string {
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(f.Name(), ".jinja")
	}
	return names
}

// ErrNoTemplate says that the model has no chat template and none was named.
var ErrNoTemplate = errors.New("the model has no chat template; name one with --template")

// ErrTemplateName says that a template's name means nothing.
var ErrTemplateName = errors.New("neither a template's name nor a file")

// FindTemplate parses the template that name means: "" the model's own, else one of the model's named ones, a built-in one, or a
// file. ErrNoTemplate (for "") and ErrTemplateName say that there is none; a file that may not be read is fs.ErrPermission; errors
// in a template or file are *InputError.
func (m *Model) FindTemplate(name string) (*template.Template, error) {
	label := name
	source, ok := m.named[name]
	switch {
	case name == "":
		if m.Template == "" {
			return nil, ErrNoTemplate
		}
		label, source = "of the model", m.Template
	case ok:
	case builtinTemplate(name) != "":
		source = builtinTemplate(name)
	default:
		var err error
		if source, err = templateFile(name); errors.Is(err, fs.ErrNotExist) {
			return nil, unknownTemplate(name, m.TemplateNames())
		} else if err != nil {
			return nil, err
		}
	}
	t, err := template.Parse(label, source)
	if err != nil {
		return nil, &InputError{err}
	}
	return t, nil
}

// TemplateSource is the source of a built-in template or of a file, for a new model. It parses; errors are those of FindTemplate.
func TemplateSource(name string) (string, error) {
	source := builtinTemplate(name)
	if source == "" {
		var err error
		if source, err = templateFile(name); errors.Is(err, fs.ErrNotExist) {
			return "", unknownTemplate(name, builtinTemplates())
		} else if err != nil {
			return "", err
		}
	}
	if _, err := template.Parse(name, source); err != nil {
		return "", &InputError{err}
	}
	return source, nil
}

func unknownTemplate(name string, names []string) error {
	return fmt.Errorf("%q: %w; the names are %s", name, ErrTemplateName, strings.Join(names, ", "))
}

// templateFile reads a template.
func templateFile(path string) (string, error) {
	b, err := readFile(path, maxTemplateFile)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "", err
	case err != nil:
		return "", &InputError{err}
	case !utf8.Valid(b):
		return "", inputf("%s: is not UTF-8; convert it, with iconv for example", path)
	}
	return string(b), nil
}
