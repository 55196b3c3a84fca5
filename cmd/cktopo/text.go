package main

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"ck/internal/cli"
)

// Columns of what is printed where neither a flag nor a terminal nor the environment says it.
const (
	pageWidth = 110 // of the page and of findings; prose is never wider
	drawWidth = 100
	minWidth  = 40
)

// columns is how wide the output may be: --width, else the terminal's, else COLUMNS, else def.
func (p *program) columns(def int) int { return columns(p.app, p.width, def) }

// columns is a width that was asked for, unless 0, else as program.columns says.
func columns(app *cli.App, width, def int) int {
	if width > 0 {
		return width
	}
	if w, _, err := term.GetSize(int(app.Out.Fd())); err == nil && w > 0 {
		return max(w, minWidth)
	}
	if w, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && w > 0 && w < 10000 {
		return max(w, minWidth)
	}
	return def
}

// item writes a label and, beside it, a text that is wrapped at words. The text begins in the column indent+label and ends before the
// column end.
func item(b *strings.Builder, indent, label int, name, text string, end int) {
	if cli.Width(name) >= label { // too long to stand beside it
		b.WriteString(strings.Repeat(" ", indent) + name + "\n")
		name = ""
	}
	for i, line := range cli.Wrap(text, end-indent-label) {
		if i > 0 {
			name = ""
		}
		b.WriteString(strings.Repeat(" ", indent) + pad(name, label) + line + "\n")
	}
}

// table makes a table of columns; those of numbers are marked with a leading ">".
func table(heads ...string) cli.Table {
	var t cli.Table
	for _, h := range heads {
		h, right := strings.CutPrefix(h, ">")
		t.Head, t.Right = append(t.Head, h), append(t.Right, right)
	}
	return t
}

// pad fills s with blanks to so many columns; one blank follows in any case.
func pad(s string, columns int) string {
	return s + strings.Repeat(" ", max(1, columns-cli.Width(s)))
}
