package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/entropy"
	"ck/internal/entropy/view"
	"ck/internal/gguf"
	"ck/internal/inspect"
	"ck/internal/plaintext"
)

// entropyOptions are the flags of "entropy".
type entropyOptions struct {
	tensorOptions
	pictureOptions
}

const entropyLong = `Says how many bits the weights carry, by class and in total; -v says it of each tensor and of its parts (sign, exponent and mantissa of floats, codes and scales of quantized types).

bits: stored, of a weight. entropy: of the symbols of the parts, of order 0: what a coder that knows their frequencies can reach. coded: what a real one makes of them (that of ckquant --compress). 256 bins: the entropy of the values in 256 bins from the smallest to the largest, as published figures have it; the largest value decides how wide the bins are.

  ckinspect entropy model.gguf -v
  ckinspect entropy model.gguf --png entropy.png`

func (p *program) entropyCommand() {
	o := &p.entropy
	c := p.app.NewCommand("entropy [flags] MODEL", "how many bits the weights carry", entropyLong, p.runEntropy)
	g := cli.NewGroup(c.Flags(), "Tensors")
	p.tensorFlags(g, &o.tensorOptions)
	g = cli.NewGroup(c.Flags(), "Result")
	p.pictureFlags(g, &o.pictureOptions)
}

// runEntropy is ckinspect entropy.
func (p *program) runEntropy(c *cobra.Command, args []string) error {
	o := &p.entropy
	match, err := o.match()
	if err != nil {
		return err
	}
	pictures, err := p.openPictures(&o.pictureOptions)
	if err != nil {
		return err
	}
	defer pictures.abort()
	m, err := p.openModel("entropy", args)
	if err != nil {
		return err
	}
	defer m.Close()
	tensors, err := m.Chosen(match)
	if err != nil {
		return err
	}
	rows, err := p.measureEntropy(c.Context(), m, tensors)
	if err != nil {
		return err
	}
	if len(pictures) > 0 {
		if err := pictures.draw(view.Chart(plaintext.Escape(filepath.Base(m.Path)), rows).Draw); err != nil {
			return err
		}
	}
	return p.printEntropy(m, rows)
}

func (p *program) measureEntropy(ctx context.Context, m *inspect.Model, tensors []*gguf.Tensor) ([]view.Row, error) {
	workers, err := p.workers()
	if err != nil {
		return nil, err
	}
	total, done := 0.0, 0.0
	for _, t := range tensors {
		total += float64(t.Rows()) * float64(t.Cols())
	}
	bar := p.app.NewProgress("counting", "M weights", max(1, int64(total/1e6)))
	defer bar.Done()
	var rows []view.Row
	for _, t := range tensors {
		class, layer := inspect.ClassOf(t.Name)
		n := int64(t.Rows()) * int64(t.Cols())
		x, err := entropy.FullOf(ctx, m.Model, t, workers)
		switch {
		case ctx.Err() != nil:
			return nil, err
		case err != nil && t.Make != nil: // bits of this form are not counted
			rows = append(rows, view.Row{Name: t.Name, Class: class, Type: t.Type.String(), Weights: n, Failed: err.Error()})
		case err != nil:
			return nil, err
		default:
			rows = append(rows, view.RowOf(&x, class, layer))
		}
		done += float64(n)
		bar.Reach(done / 1e6)
	}
	return rows, nil
}

func (p *program) printEntropy(m *inspect.Model, rows []view.Row) error {
	c, all := &p.app.Common, view.Sum("all", rows)
	classes := view.Classes(rows)
	switch {
	case c.JSONL:
		if err := cli.PrintLines(p.app, "ck.inspect.entropy.tensor/1", rows); err != nil {
			return err
		}
	case c.JSON:
		if err := p.app.PrintJSON(struct {
			Schema  string     `json:"schema"`
			Model   string     `json:"model"`
			All     view.Row   `json:"all"`
			Classes []view.Row `json:"classes"`
			Tensors []view.Row `json:"tensors"`
		}{"ck.inspect.entropy/1", m.Path, all, classes, rows}); err != nil {
			return err
		}
	default:
		if err := p.printEntropyTables(rows, append(classes, all)); err != nil {
			return err
		}
	}
	bad := 0
	for i := range rows {
		if r := &rows[i]; r.Failed == "" && r.Histogram == nil {
			bad++
			p.app.Warn("tensor %s: %s", plaintext.Escape(r.Name), notFinite(m, r.Name))
		}
	}
	p.app.Note("%s", view.Summary(all))
	if bad > 0 {
		return cli.Check("%d of %d tensors have values that are not finite", bad, len(rows))
	}
	return nil
}

func (p *program) printEntropyTables(rows, sums []view.Row) error {
	c := &p.app.Common
	if c.Verbose {
		t := view.Table("tensor", rows, true)
		if err := t.Write(p.app.Out, c.Plain); err != nil {
			return cli.OutError(err)
		}
		if !c.Plain {
			fmt.Fprintln(p.app.Text())
		}
	}
	t := view.Table("class", sums, false)
	return cli.OutError(t.Write(p.app.Out, c.Plain))
}

// notFinite says where a tensor has a value that is NaN or infinite.
func notFinite(m *inspect.Model, name string) (where string) {
	t := m.Tensor(name)
	x := inspect.Matrix{Name: name, Rows: t.Rows(), Cols: t.Cols(), Tensor: t}
	if err := m.Guard(func() error {
		where = inspect.WhereNotFinite(&x)
		return nil
	}); err != nil {
		return err.Error()
	}
	return where
}
