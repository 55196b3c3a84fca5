package plaintext

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Table is what programs print as columns. The first column names the row. Cells may hold text of others: Write escapes all of them.
type Table struct {
	Head    []string
	Right   []bool // columns of numbers
	Rows    [][]string
	Columns int // of characters, at most, if words allow it; 0: as many as it takes
}

// Write prints the table aligned for people, or plain: one fact a line, "row column<TAB>value".
func (t *Table) Write(w io.Writer, plain bool) error {
	t = t.escaped()
	if plain {
		return t.writePlain(w)
	}
	if t.Columns > 0 {
		t = t.fit()
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

// escaped is the table with every cell on one line, without what a terminal would obey.
func (t *Table) escaped() *Table {
	line := func(row []string) []string {
		out := make([]string, len(row))
		for i, s := range row {
			out[i] = Escape(s)
		}
		return out
	}
	out := *t
	out.Head, out.Rows = line(t.Head), make([][]string, len(t.Rows))
	for i, r := range t.Rows {
		out.Rows[i] = line(r)
	}
	return &out
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

// fit wraps heads, then the cells of the widest columns, at words until the table has at most t.Columns columns of characters, or no
// column can give more. The first column names the row and stays, as numbers do. Cells of several lines have line feeds in them.
func (t *Table) fit() *Table {
	n := len(t.Head)
	longest := func(row []string, f func(string) int, of []int) {
		for i := range min(n, len(row)) {
			of[i] = max(of[i], f(row[i]))
		}
	}
	word := func(s string) (w int) {
		for x := range strings.FieldsSeq(s) {
			w = max(w, Width(x))
		}
		return w
	}
	whole, cells, least := make([]int, n), make([]int, n), make([]int, n)
	longest(t.Head, Width, whole)
	longest(t.Head, word, least)
	for _, r := range t.Rows {
		longest(r, Width, cells)
		longest(r, word, least)
	}
	for i := range n {
		if i < len(t.Right) && t.Right[i] { // a number keeps its unit
			least[i] = max(least[i], cells[i])
		}
	}
	over := 2*(n-1) - t.Columns
	for i := range n {
		whole[i] = max(whole[i], cells[i])
		over += whole[i]
	}
	if over <= 0 {
		return t
	}
	least[0] = whole[0]
	for _, bound := range [2][]int{cells, least} { // heads first
		for ; over > 0; over-- {
			widest := -1
			for i := range n {
				if whole[i] > max(bound[i], least[i]) && (widest < 0 || whole[i] > whole[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			whole[widest]--
		}
	}
	wrapped := func(row []string) []string {
		row = slices.Clone(row)
		for i := range min(n, len(row)) {
			row[i] = strings.Join(Wrap(row[i], whole[i]), "\n")
		}
		return row
	}
	out := &Table{Head: wrapped(t.Head), Right: t.Right}
	for _, r := range t.Rows {
		out.Rows = append(out.Rows, wrapped(r))
	}
	return out
}

// Width is the number of columns of a text.
func Width(s string) int { return utf8.RuneCountInString(s) }

// Wrap cuts text at blanks into lines of at most so many columns, where words allow it; a number and its unit are one word. There is
// always a first line.
func Wrap(text string, columns int) []string {
	var lines []string
	line := ""
	words := strings.Fields(text)
	for i := 0; i < len(words); i++ {
		word := words[i]
		if i+1 < len(words) && strings.ContainsAny(word[:1], "0123456789") && slices.Contains(units, strings.TrimRight(words[i+1], ",.:;)")) {
			i++
			word += " " + words[i]
		}
		switch {
		case line == "":
			line = word
		case Width(line)+1+Width(word) > columns:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// units are what stays with its number.
var units = []string{"bytes", "KiB", "MiB", "GiB", "TiB", "GB/s", "MiB/s", "GOP/s", "TOP/s", "Hz", "MHz", "GHz", "ns", "us", "ms", "s", "W", "J", "°C", "%", "CPUs"}
