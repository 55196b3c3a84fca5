package page

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"ck/internal/humanize"
	"ck/internal/plaintext"
)

// A section is a part of the page: facts, then tables. People read it indented and wrapped, programs (--plain) as one fact a line.
type section struct {
	name   string
	facts  []fact
	tables []plaintext.Table
}

// A fact is a line of a section. One with parts is a thing with several properties: one line for people, one for each part with --plain.
type fact struct {
	name, value string
	parts       []fact
}

// add appends a fact, unless there is nothing to say.
func (sec *section) add(name, value string) {
	if value != "" {
		sec.facts = append(sec.facts, fact{name: name, value: value})
	}
}

// addTable appends a table, unless it is empty.
func (sec *section) addTable(t plaintext.Table) {
	if len(t.Rows) > 0 {
		sec.tables = append(sec.tables, t)
	}
}

// tableSection is a section of one table.
func tableSection(name string, t plaintext.Table) section {
	sec := section{name: name}
	sec.addTable(t)
	return sec
}

// addThing appends a thing with its properties.
func (sec *section) addThing(name string, properties ...any) *fact {
	sec.facts = append(sec.facts, fact{name: name})
	f := &sec.facts[len(sec.facts)-1]
	f.add(properties...)
	return f
}

// add appends properties, given as name, value, name, value. What is not told is left out: "" and negative numbers.
func (f *fact) add(properties ...any) {
	for i := 0; i < len(properties); i += 2 {
		text := ""
		switch v := properties[i+1].(type) {
		case string:
			text = v
		case bool:
			text = humanize.YesNo(v)
		case int:
			if v >= 0 {
				text = strconv.Itoa(v)
			}
		}
		if text != "" {
			f.parts = append(f.parts, fact{name: properties[i].(string), value: text})
		}
	}
}

// text is the value with all parts.
func (f *fact) text() string {
	text := f.value
	for i, part := range f.parts {
		if i > 0 || text != "" {
			text += ", "
		}
		text += part.name + " " + part.value
	}
	return text
}

// write is the section for people: its name, then everything indented by two.
func (sec *section) write(w io.Writer, columns int) error {
	var b strings.Builder
	b.WriteString(sec.name + "\n")
	label := 0
	for _, f := range sec.facts {
		label = max(label, min(24, plaintext.Width(f.name)))
	}
	for i := 0; i < len(sec.facts); {
		f := sec.facts[i]
		value := f.text()
		j := i + 1
		for j < len(sec.facts) && len(f.parts) > 0 && strings.ReplaceAll(sec.facts[j].text(), sec.facts[j].name, f.name) == value {
			j++ // a thing like the one before, but for its name
		}
		if j > i+1 {
			value = fmt.Sprintf("and %d more like it: %s", j-i-1, value)
		}
		i = j
		item(&b, 2, label+2, f.name, value, min(columns, Width))
	}
	for i := range sec.tables {
		if i > 0 || len(sec.facts) > 0 {
			b.WriteString("\n")
		}
		var text strings.Builder
		t := sec.tables[i]
		t.Columns = columns - 2
		if err := t.Write(&text, false); err != nil {
			return err
		}
		for line := range strings.Lines(text.String()) {
			b.WriteString("  " + line)
		}
	}
	_, err := w.Write(plaintext.Printable([]byte(b.String())))
	return err
}

// writePlain is the section as one fact a line: "section name<TAB>value".
func (sec *section) writePlain(w io.Writer) error {
	var b strings.Builder
	for _, f := range sec.facts {
		if f.value != "" {
			fmt.Fprintf(&b, "%s %s\t%s\n", sec.name, plaintext.Escape(f.name), plaintext.Escape(f.value))
		}
		for _, part := range f.parts {
			fmt.Fprintf(&b, "%s %s %s\t%s\n", sec.name, plaintext.Escape(f.name), plaintext.Escape(part.name), plaintext.Escape(part.value))
		}
	}
	for i := range sec.tables {
		if err := sec.tables[i].Write(&b, true); err != nil {
			return err
		}
	}
	_, err := w.Write(plaintext.Printable([]byte(b.String())))
	return err
}

// writeSections prints sections that have something to say, an empty line between two.
func writeSections(w io.Writer, all []section, plain bool, columns int) error {
	all = slices.DeleteFunc(all, func(sec section) bool { return len(sec.facts) == 0 && len(sec.tables) == 0 })
	for i := range all {
		var err error
		switch {
		case plain:
			err = all[i].writePlain(w)
		case i > 0:
			if _, err = io.WriteString(w, "\n"); err == nil {
				err = all[i].write(w, columns)
			}
		default:
			err = all[i].write(w, columns)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// item writes a label and, beside it, a text that is wrapped at words. The text begins in the column indent+label and ends before the
// column end.
func item(b *strings.Builder, indent, label int, name, text string, end int) {
	if plaintext.Width(name) >= label { // too long to stand beside it
		b.WriteString(strings.Repeat(" ", indent) + name + "\n")
		name = ""
	}
	for i, line := range plaintext.Wrap(text, end-indent-label) {
		if i > 0 {
			name = ""
		}
		b.WriteString(strings.Repeat(" ", indent) + pad(name, label) + line + "\n")
	}
}

// table makes a table of columns; those of numbers are marked with a leading ">".
func table(heads ...string) plaintext.Table {
	var t plaintext.Table
	for _, h := range heads {
		h, right := strings.CutPrefix(h, ">")
		t.Head, t.Right = append(t.Head, h), append(t.Right, right)
	}
	return t
}

// pad fills s with blanks to so many columns; one blank follows in any case.
func pad(s string, columns int) string {
	return s + strings.Repeat(" ", max(1, columns-plaintext.Width(s)))
}
