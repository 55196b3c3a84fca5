package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/panelfile"
	"ck/internal/plaintext"
)

const packLong = `Writes the weights as kernels read them: panels. ckrun and ckbench map such a file and pack nothing: no memory is taken for panels, processes share them, and walks are fast from the second token on. OUT is MODEL.panels unless it is named; there ckrun finds it.

The model's file is still needed: for embeddings, norms, keys. A file of panels fits one model and the layouts of this build; ckrun says where it does not, and goes on without. Every tier of CPUs reads the same panels.`

func (p *program) packCommand() {
	c := p.app.NewCommand("pack [flags] MODEL [OUT]", "write weights as ckrun maps them", packLong, p.runPack)
	g := cli.NewGroup(c.Flags(), "Output")
	g.Bool(&p.out.force, "force", "", "overwrite OUT")
	g.Bool(&p.out.dryRun, "dry-run", "", "say what would be written, to the byte; -v names every matrix")
}

// packWords are the model and the output.
func (p *program) packWords(args []string) (model, out string, err error) {
	if m := p.app.Common.Model; m != "" && (len(args) == 0 || len(args) == 1) {
		args = append([]string{m}, args...)
	}
	switch len(args) {
	case 1:
		return args[0], filepath.Clean(args[0]) + engine.PanelsSuffix, nil
	case 2:
		return args[0], args[1], nil
	}
	return "", "", cli.Usage("pack: takes MODEL and OUT; see ckquant pack --help")
}

// runPack is ckquant pack.
func (p *program) runPack(c *cobra.Command, args []string) error {
	path, out, err := p.packWords(args)
	if err != nil {
		return err
	}
	if out == "-" {
		return cli.Usage("pack: panels are mapped, and a pipe cannot be; name a file")
	}
	m, err := convert.Open(path, false)
	if err != nil {
		return err
	}
	defer m.Close()
	if isOneOf(out, m.Files()) {
		return cli.Usage("%s: is a file of the model itself; name another", out)
	}
	plan, pack, err := engine.PlanPanels(m, p.app.Common.CPU)
	if err != nil {
		return err
	}
	if p.out.dryRun {
		return p.printPanels(m, plan, out, false)
	}
	workers, err := p.workers()
	if err != nil {
		return err
	}
	f, err := p.app.Create(out, p.out.force)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := convert.CheckRoom(filepath.Dir(out), plan.Size); err != nil {
		return err
	}
	bar := p.app.NewProgress("packing", "MB", max(1, plan.Size/1e6))
	defer bar.Done()
	err = plan.Write(c.Context(), f, workers, pack, func(n int64) { bar.Reach(float64(n) / 1e6) })
	bar.Done()
	if err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	return p.printPanels(m, plan, out, true)
}

// isOneOf reports whether path is one of some files, whatever its name.
func isOneOf(path string, files []string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(files, func(name string) bool {
		other, err := os.Stat(name)
		return err == nil && os.SameFile(info, other)
	})
}

// layoutRow is a layout of the output.
type layoutRow struct {
	Layout   string  `json:"layout"`
	Version  int     `json:"version"`
	Type     string  `json:"type"`
	Matrices int     `json:"matrices"`
	Weights  int64   `json:"weights"`
	Bytes    int64   `json:"bytes"`
	Bits     float64 `json:"bits_per_weight"`
}

// matrixRow is a matrix in JSON.
type matrixRow struct {
	Name   string `json:"name"`
	Rows   int    `json:"rows"`
	Cols   int    `json:"columns"`
	Type   string `json:"type"`
	Layout string `json:"layout"`
	Bytes  int64  `json:"bytes"`
}

// layoutRows sums the matrices of each type up, in the order of their first ones.
func layoutRows(list []*panelfile.Matrix) []layoutRow {
	var rows []layoutRow
	for _, m := range list {
		i := slices.IndexFunc(rows, func(r layoutRow) bool { return r.Type == m.Type })
		if i < 0 {
			i = len(rows)
			rows = append(rows, layoutRow{Layout: m.Layout, Version: m.Version, Type: m.Type})
		}
		r := &rows[i]
		r.Matrices, r.Weights, r.Bytes = r.Matrices+1, r.Weights+int64(m.Rows)*int64(m.Cols), r.Bytes+m.Bytes()
		r.Bits = float64(8*r.Bytes) / float64(r.Weights)
	}
	return rows
}

// printPanels prints the layouts of the output: before, as --dry-run asks, or behind.
func (p *program) printPanels(m *gguf.Model, plan *panelfile.Plan, path string, written bool) error {
	rows, c := layoutRows(plan.Matrices), &p.app.Common
	if c.JSONL {
		return cli.PrintLines(p.app, "ck.quant.panels.layout/1", rows)
	}
	var list []matrixRow
	for _, x := range plan.Matrices {
		list = append(list, matrixRow{x.Name, x.Rows, x.Cols, x.Type, x.Layout, x.Bytes()})
	}
	if c.JSON {
		return p.app.PrintJSON(struct {
			Schema   string      `json:"schema"`
			Written  bool        `json:"written"`
			Model    string      `json:"model"`
			Path     string      `json:"path"`
			Bytes    int64       `json:"bytes"`
			Layouts  []layoutRow `json:"layouts"`
			Matrices []matrixRow `json:"matrices"`
			Warnings []string    `json:"warnings"`
		}{"ck.quant.panels/1", written, m.Path, path, plan.Size, rows, list, p.app.Warnings()})
	}
	for _, x := range list {
		p.app.Info("%s %d×%d %s → %s: %d bytes", x.Name, x.Rows, x.Cols, x.Type, x.Layout, x.Bytes)
	}
	t := plaintext.Table{Head: []string{"type", "layout", "version", "matrices", "bytes", "bits/weight"},
		Right: []bool{false, false, true, true, true, true}}
	for _, r := range rows {
		t.Rows = append(t.Rows, []string{r.Type, r.Layout, fmt.Sprint(r.Version), fmt.Sprint(r.Matrices),
			fmt.Sprint(r.Bytes), fmt.Sprintf("%.2f", r.Bits)})
	}
	t.Rows = append(t.Rows, []string{filepath.Base(path), "", "", fmt.Sprint(len(list)), fmt.Sprint(plan.Size), ""})
	return cli.OutError(t.Write(p.app.Out, c.Plain))
}
