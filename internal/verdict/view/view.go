// Package view writes verdicts as a table and as paragraphs.
package view

import (
	"fmt"
	"strings"

	"ck/internal/plaintext"
	"ck/internal/verdict"
)

// Model is the verdicts on a model. All models have the same claims.
type Model struct {
	Name string        `json:"model"`
	Rows []verdict.Row `json:"claims"`
}

// word is an answer as the table has it.
func word(a verdict.Answer) string {
	if a == verdict.Untold {
		return "can't tell"
	}
	return string(a)
}

// Table has a row for each claim: what was measured in a column each model, and what holds.
func Table(models []Model, columns int) plaintext.Table {
	t := plaintext.Table{Head: []string{"claim"}, Columns: columns}
	for _, m := range models {
		name := "measured"
		if len(models) > 1 {
			name = m.Name
		}
		t.Head = append(t.Head, name)
	}
	t.Head = append(t.Head, "holds")
	t.Right = make([]bool, len(t.Head))
	for i := range models {
		t.Right[1+i] = true
	}
	for i := range models[0].Rows {
		cells := []string{models[0].Rows[i].Claim}
		for _, m := range models {
			cells = append(cells, m.Rows[i].Measured)
		}
		t.Rows = append(t.Rows, append(cells, answers(models, i)))
	}
	return t
}

// answers are those on a claim: one, where all models have the same.
func answers(models []Model, i int) string {
	var list []string
	same := true
	for _, m := range models {
		list = append(list, word(m.Rows[i].Holds))
		same = same && list[0] == list[len(list)-1]
	}
	if same {
		return list[0]
	}
	return strings.Join(list, ", ")
}

// Facts is the table for programs: every fact of each claim, its name first.
func Facts(models []Model) plaintext.Table {
	t := plaintext.Table{Head: []string{"id"}}
	fields := []string{"measured", "holds", "why"}
	for _, m := range models {
		for _, f := range fields {
			if len(models) > 1 {
				f = m.Name + " " + f
			}
			t.Head = append(t.Head, f)
		}
	}
	t.Head = append(t.Head, "source", "command", "means")
	t.Right = make([]bool, len(t.Head))
	for i, r := range models[0].Rows {
		cells := []string{r.ID}
		for _, m := range models {
			x := &m.Rows[i]
			cells = append(cells, x.Measured, word(x.Holds), x.Why)
		}
		t.Rows = append(t.Rows, append(cells, r.Source, r.Command, r.Means))
	}
	return t
}

// Paragraphs tell of each claim what was measured, where it comes from, what reproduces or closes it and what it means.
func Paragraphs(models []Model, columns int) string {
	var b strings.Builder
	line := func(name, text string) {
		for i, s := range plaintext.Wrap(text, max(20, columns-11)) {
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(&b, "  %-9s%s\n", name, plaintext.Escape(s))
		}
	}
	for i, r := range models[0].Rows {
		fmt.Fprintf(&b, "\n%s\n", r.ID)
		for _, m := range models {
			x := &m.Rows[i]
			text := word(x.Holds)
			if len(models) > 1 {
				text = m.Name + ": " + text
			}
			for _, s := range []string{x.Measured, x.Detail, x.Why} {
				if s != "" {
					text += "; " + s
				}
			}
			line("holds", text)
		}
		line("source", r.Source)
		fmt.Fprintf(&b, "  %-9s%s\n", "command", r.Command) // whole: it is copied
		line("means", r.Means)
	}
	return b.String()
}

// Summary is the answers in a line.
func Summary(m *Model) string {
	count := map[verdict.Answer]int{}
	for i := range m.Rows {
		count[m.Rows[i].Holds]++
	}
	return fmt.Sprintf("%d claims: %d hold, %d do not, %d cannot be told from this model, %d are open", len(m.Rows),
		count[verdict.Yes], count[verdict.No], count[verdict.Untold], count[verdict.Open])
}
