package main

import (
	"regexp"

	"ck/internal/cli"
	"ck/internal/inspect"
	"ck/internal/plaintext"
	"ck/internal/topo"
)

// tensorOptions choose tensors.
type tensorOptions struct {
	expr string
}

func (p *program) tensorFlags(g cli.Group, o *tensorOptions) {
	g.Text(&o.expr, "tensors", "", "", "REGEX", "only tensors whose names match")
}

// match is the expression; nil: all tensors.
func (o *tensorOptions) match() (*regexp.Regexp, error) {
	if o.expr == "" {
		return nil, nil
	}
	re, err := regexp.Compile(o.expr)
	if err != nil {
		return nil, cli.Usage("--tensors: %v", err)
	}
	return re, nil
}

// openModel opens the model that a command's words name.
func (p *program) openModel(command string, args []string) (*inspect.Model, error) {
	path, ok := p.modelWord(args)
	if !ok {
		return nil, cli.Usage("%s: takes MODEL; see ckinspect %[1]s --help", command)
	}
	return p.openPath(path)
}

func (p *program) openPath(path string) (*inspect.Model, error) {
	m, err := inspect.Open(path)
	if err != nil {
		return nil, err
	}
	for _, n := range m.Notes {
		p.app.Info("%s", n)
	}
	return m, nil
}

// matrices lists the matrices that --tensors chooses. What is left out is said with -v.
func (p *program) matrices(m *inspect.Model, o *tensorOptions) ([]inspect.Matrix, []inspect.Left, error) {
	match, err := o.match()
	if err != nil {
		return nil, nil, err
	}
	list, left, err := m.Matrices(match)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range left {
		p.app.Info("left out: %s %s", plaintext.Escape(l.Name), l.Why)
	}
	if len(list) == 0 && o.expr == "" {
		return nil, nil, cli.Input("%s: has no matrix; show lists what it has", m.Path)
	}
	if len(list) == 0 {
		return nil, nil, cli.Usage("--tensors: none of the %d tensors chosen is a matrix; -v lists them", len(left))
	}
	return list, left, nil
}

// workers is how many goroutines compute: -t, or one a core.
func (p *program) workers() (int, error) {
	if n := p.app.Common.Threads; n > 0 {
		return n, nil
	}
	m, err := topo.Live()
	if err != nil {
		return 0, err
	}
	cpus, why := m.Workers()
	p.app.Info("%s", why)
	return len(cpus), nil
}
