package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
func (p *program) columns(def int) int {
	if p.width > 0 {
		return p.width
	}
	if w, _, err := term.GetSize(int(p.app.Out.Fd())); err == nil && w > 0 {
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
	if width(name) >= label { // too long to stand beside it
		b.WriteString(strings.Repeat(" ", indent) + name + "\n")
		name = ""
	}
	for i, line := range wrap(text, end-indent-label) {
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

// fit wraps heads, then the cells of the widest columns, at words until the table has at most so many columns of characters, or no
// column can give more. The first column names the row and stays, as numbers do. Cells of several lines have line feeds in them.
func fit(t cli.Table, columns int) cli.Table {
	n := len(t.Head)
	longest := func(row []string, f func(string) int, of []int) {
		for i := range min(n, len(row)) {
			of[i] = max(of[i], f(row[i]))
		}
	}
	word := func(s string) (w int) {
		for x := range strings.FieldsSeq(s) {
			w = max(w, width(x))
		}
		return w
	}
	whole, cells, least := make([]int, n), make([]int, n), make([]int, n)
	longest(t.Head, width, whole)
	longest(t.Head, word, least)
	for _, r := range t.Rows {
		longest(r, width, cells)
		longest(r, word, least)
	}
	for i := range n {
		if i < len(t.Right) && t.Right[i] { // a number keeps its unit
			least[i] = max(least[i], cells[i])
		}
	}
	over := 2*(n-1) - columns
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
			row[i] = strings.Join(wrap(row[i], whole[i]), "\n")
		}
		return row
	}
	out := cli.Table{Head: wrapped(t.Head), Right: t.Right}
	for _, r := range t.Rows {
		out.Rows = append(out.Rows, wrapped(r))
	}
	return out
}

// printable replaces what a file of the system should not have said: control characters, and bytes that are not UTF-8.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && (r < 0x80 || r >= 0xa0) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

// width is the number of columns of a text.
func width(s string) int { return utf8.RuneCountInString(s) }

// pad fills s with blanks to so many columns; one blank follows in any case.
func pad(s string, columns int) string {
	return s + strings.Repeat(" ", max(1, columns-width(s)))
}

// wrap cuts text at blanks into lines of at most so many columns, where words allow it; a number and its unit are one word. There is
// always a first line.
func wrap(text string, columns int) []string {
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
		case width(line)+1+width(word) > columns:
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
		if len(text)+1+len(r)+width(tail) > columns {
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
