package main

import (
	"fmt"
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
	listWidth = 44 // of a list of numbers in a table of pageWidth columns
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

// ranges writes ascending numbers in the kernel's list format, one range each.
func ranges(ids []int) []string {
	var out []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if r := strconv.Itoa(ids[i]); j > i {
			out = append(out, r+"-"+strconv.Itoa(ids[j]))
		} else {
			out = append(out, r)
		}
		i = j + 1
	}
	return out
}

// shortList is a list of numbers in at most so many columns: what does not fit is counted.
func shortList(ids []int, columns int) string {
	parts := ranges(ids)
	if len(parts) == 0 {
		return "none"
	}
	if all := strings.Join(parts, ","); len(all) <= columns {
		return all
	}
	tail := fmt.Sprintf(",… (%d in all)", len(ids))
	text := parts[0]
	for _, r := range parts[1:] {
		if len(text)+1+len(r)+cli.Width(tail) > columns {
			break
		}
		text += "," + r
	}
	return text + tail
}

// size writes bytes with the unit that leaves one to four digits before the point.
func size(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for i+1 < len(units) && (v >= 10240 || v >= 1024 && (v == float64(int64(v/1024))*1024 || i > 0)) {
		v, i = v/1024, i+1
	}
	text := strconv.FormatFloat(v, 'f', 0, 64)
	if v < 100 && v != float64(int64(v)) {
		text = strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	return text + " " + units[i]
}

// told is a size, or that it is not told.
func told(n int64) string {
	if n <= 0 {
		return "not told"
	}
	return size(n)
}

func orNot(s string) string {
	if s == "" {
		return "not told"
	}
	return s
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// dash is a number that may not be told.
func dash(n int) string {
	if n <= 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// percent is a share in words.
func percent(part, all int64) string {
	if all <= 0 {
		return "0 %"
	}
	return strconv.FormatFloat(100*float64(part)/float64(all), 'f', 0, 64) + " %"
}
