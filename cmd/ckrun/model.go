package main

import (
	"fmt"
	"os"
	"time"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/output"
	"ck/internal/template"
	"ck/internal/topo"
)

// vocabularyBytes is what may be mapped for the Go heap while a model is opened: two pieces of 64 MiB hold a vocabulary of 150,000 words.
const vocabularyBytes = 128 << 20

// openModel opens what -m names. What a ulimit has no room for is refused before: the Go runtime ends the process where it finds none.
func (p *program) openModel() (*generate.Model, error) {
	path := p.app.Common.Model
	for _, u := range topo.Ulimits() {
		need := int64(vocabularyBytes)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && u.Flag == "-v" {
			need += info.Size()
		}
		if u.Left < need {
			return nil, cli.Resource("memory: %s left of ulimit %s %d KiB; the model's file and vocabulary take up to %s; raise it", output.MiB(u.Left), u.Flag, u.Max>>10, output.MiB(need))
		}
	}
	return generate.Open(path)
}

// useTemplate is the template for the prompt, nil if the text goes to the model as it is.
func (p *program) useTemplate(m *generate.Model) (*template.Template, error) {
	o := &p.o
	if o.raw || o.template == "" && (m.Raw || m.Template == "") {
		return nil, p.noSystem(m)
	}
	return p.findTemplate(m)
}

// findTemplate is the template that --template names, else the model's.
func (p *program) findTemplate(m *generate.Model) (*template.Template, error) {
	t, err := m.FindTemplate(p.o.template)
	if err != nil && p.o.template != "" {
		return nil, fmt.Errorf("--template: %w", err)
	}
	return t, err
}

// noSystem refuses a system message that no template would place. One of the settings is meant for models that have a template.
func (p *program) noSystem(m *generate.Model) error {
	if p.o.system == "" || !p.app.Given("system") {
		return nil
	}
	why := "the model has no chat template"
	if m.Template != "" {
		why = "the model takes text as it is"
	}
	return cli.Usage("--system: %s; name a template with --template", why)
}

// openEngine opens the engine and says with -v what it decided.
func (p *program) openEngine(m *generate.Model) (*engine.Engine, time.Duration, error) {
	e, err := engine.Open(m.Weights, p.engineOptions(m.Path))
	if err != nil {
		return nil, 0, err
	}
	for _, n := range e.Notes {
		p.app.Info("%s", n)
	}
	for _, n := range e.Warnings {
		p.app.Warn("%s", n)
	}
	return e, time.Since(p.start), nil
}

// contextOf is the context in force: -c, else what the model was made for; 0 if neither is known.
func (p *program) contextOf(m *generate.Model) int {
	n := p.o.context
	if n == 0 {
		return m.Context
	}
	if m.Context > 0 && n > m.Context {
		p.app.Warn("-c %d is larger than the model's context of %d; text beyond that may make no sense", n, m.Context)
	}
	return n
}
