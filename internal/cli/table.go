package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Table is what programs print as columns. The first column names the row.
type Table struct {
	Head  []string
	Right []bool // columns of numbers
	Rows  [][]string
}

// Write prints the table aligned for people, or plain: one fact a line, "row column<TAB>value".
func (t *Table) Write(w io.Writer, plain bool) error {
	if plain {
		return t.writePlain(w)
	}
	off := tw.Rendition{Borders: tw.BorderNone, Settings: tw.Settings{Lines: tw.LinesNone, Separators: tw.SeparatorsNone}}
	pad := tw.CellPadding{Global: tw.Padding{Right: "  ", Overwrite: true}}
	align := make([]tw.Align, len(t.Head))
	for i := range align {
		align[i] = tw.AlignLeft
		if i < len(t.Right) && t.Right[i] {
			align[i] = tw.AlignRight
		}
	}
	cell := tw.CellConfig{Padding: pad, Alignment: tw.CellAlignment{PerColumn: align},
		Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off}}
	var b strings.Builder
	table := tablewriter.NewTable(&b, tablewriter.WithRenderer(renderer.NewBlueprint(off)),
		tablewriter.WithConfig(tablewriter.Config{Header: cell, Row: cell}), tablewriter.WithHeaderAutoFormat(tw.Off))
	table.Header(t.Head)
	if err := table.Bulk(t.Rows); err != nil {
		return err
	}
	if err := table.Render(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) writePlain(w io.Writer) error {
	for _, r := range t.Rows {
		for i := 1; i < len(r); i++ {
			if _, err := fmt.Fprintf(w, "%s %s\t%s\n", r[0], t.Head[i], r[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
