// Package view writes advice as text: tables for people, one fact a line for programs, or the line to type alone.
package view

import (
	"fmt"
	"io"
	"strings"

	"ck/internal/advice"
	"ck/internal/humanize"
	"ck/internal/plaintext"
)

// plan is a plan that is written.
type plan struct{ *advice.Plan }

// claim is a claim that is written.
type claim struct{ advice.ClaimFacts }

func fitsText(b *bool, yes, no string) string {
	switch {
	case b == nil:
		return "memory not told"
	case *b:
		return yes
	}
	return no
}

// planTable is a table with its title.
type planTable struct {
	title string
	plaintext.Table
}

// Write prints the plans: what they say in short where there are several, then each in full. Tables that say what the same table said for
// the plan before are left out. plain prints all facts, one a line, after the name of the plan.
func Write(w io.Writer, d *advice.Document, plain bool, columns int) error {
	if len(d.Plans) > 1 && !plain {
		if err := compare(w, d, columns); err != nil {
			return err
		}
	}
	said := map[string]string{}
	for i := range d.Plans {
		p := plan{&d.Plans[i]}
		var again []string
		if !plain {
			if len(d.Plans) > 1 {
				fmt.Fprintln(w)
			}
			for _, line := range []string{p.modelLine(), p.machineLine()} {
				if _, err := fmt.Fprintln(w, strings.Join(plaintext.Wrap(plaintext.Escape(line), columns), "\n")); err != nil {
					return err
				}
			}
		}
		for _, s := range p.sections(plain || len(d.Plans) == 1) {
			if plain && len(d.Plans) > 1 {
				for j := range s.Rows {
					s.Rows[j][0] = fmt.Sprintf("%s, %s: %s", p.Machine.Name, p.Model.Type, s.Rows[j][0])
				}
			}
			if !plain {
				text := fmt.Sprint(s.Rows)
				if said[s.title] == text {
					again = append(again, s.title)
					continue
				}
				said[s.title] = text
				fmt.Fprintf(w, "\n%s\n", strings.Join(plaintext.Wrap(s.title, columns), "\n"))
			}
			if s.title != toType { // lines to paste stay whole
				s.Columns = columns
			}
			if err := s.Write(w, plain); err != nil {
				return err
			}
		}
		for j, title := range again {
			if j == 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "As above: %s\n", title)
		}
	}
	return nil
}

// toType is the title of the lines to paste.
const toType = "To type"

// WriteShort prints what each plan takes in a comment, and the line to type. Both can be pasted into a shell. A
// model that fits nowhere has no line.
func WriteShort(w io.Writer, d *advice.Document, quiet bool) error {
	for i := range d.Plans {
		p := plan{&d.Plans[i]}
		m := p.Memory
		nowhere := p.FitsNowhere()
		if !quiet {
			takes := humanize.Bytes(m.Need) + ", " + fitsText(m.Fits, "fits", "does not fit") + capText(p.Machine.MemoryCap)
			if m.Fits != nil && !*m.Fits {
				takes += fmt.Sprintf("; without panels %s, %s", humanize.Bytes(m.NeedFile), fitsText(m.FileFits, "fits", "does not fit"))
			}
			text := fmt.Sprintf("# %s, %s on %s: %s", p.Model.Name, p.Model.Type, p.Machine.Name, takes)
			if p.Decode != nil && !nowhere {
				text += fmt.Sprintf("; %s tokens/s (%s to %s), a prompt of %d tokens in %s", humanize.TokenRate(p.Decode.Expected), humanize.TokenRate(p.Decode.Low), humanize.TokenRate(p.Decode.High),
					p.Use.Prompt, humanize.Seconds(p.Prefill.Seconds))
			}
			if _, err := fmt.Fprintln(w, plaintext.Escape(text)); err != nil {
				return err
			}
		}
		if nowhere {
			continue
		}
		if _, err := fmt.Fprintln(w, p.best()); err != nil {
			return err
		}
	}
	return nil
}

// best is the line for all threads: over all memory nodes, if there are several.
func (p plan) best() string {
	line := ""
	for _, c := range p.Commands {
		if c.All {
			line = c.Line
		}
	}
	return line
}

// compare is the table of all plans, and that of all claims.
func compare(w io.Writer, d *advice.Document, columns int) error {
	use := d.Plans[0].Use
	t := plaintext.Table{Head: []string{"machine", "type", "memory", "fits", "prompt", "no program below", "decode tokens/s", "low", "high", "no program above"},
		Right: []bool{false, false, true, false, true, true, true, true, true, true}}
	c := plaintext.Table{Head: []string{"claim", "needs", "machine", "type", "there is", "verdict"}, Right: []bool{false, true, false, false, true}}
	for i := range d.Plans {
		p := plan{&d.Plans[i]}
		row := []string{p.Machine.Name, p.Model.Type, humanize.Bytes(p.Memory.Need), fits(&p.Memory), "-", "-", "-", "-", "-", "-"}
		if p.Prefill != nil {
			copy(row[4:], []string{humanize.Seconds(p.Prefill.Seconds), humanize.Seconds(float64(p.Use.Prompt) / p.Prefill.Bound),
				humanize.TokenRate(p.Decode.Expected), humanize.TokenRate(p.Decode.Low), humanize.TokenRate(p.Decode.High), humanize.TokenRate(p.Decode.Bound)})
		}
		t.Rows = append(t.Rows, row)
	}
	for i := range d.Plans[0].Claims { // all plans are asked the same
		for j := range d.Plans {
			p := plan{&d.Plans[j]}
			x := claim{p.Claims[i]}
			c.Rows = append(c.Rows, []string{x.Claim, x.needText(), p.Machine.Name, p.Model.Type, x.hasText(), x.verdict()})
		}
	}
	fmt.Fprintf(w, "All together: a prompt of %d tokens, decode after %d positions\n", use.Prompt, use.Context)
	t.Columns, c.Columns = columns, columns
	if err := t.Write(w, false); err != nil || c.Rows == nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", claimsTitle)
	return c.Write(w, false)
}

func (p plan) modelLine() string {
	m := p.Model
	return fmt.Sprintf("%s, %s: %s parameters, %d layers, hidden size %d, %d heads, %d KV heads, vocabulary %d", m.Name, m.Type,
		humanize.Count(m.Params), m.Layers, m.Hidden, m.Heads, m.KVHeads, m.Vocab)
}

func (p plan) machineLine() string {
	m := p.Machine
	s := fmt.Sprintf("on %s: %s, %s, %s, %s", m.Name, humanize.Plural(m.Sockets, "socket"), humanize.Plural(m.Nodes, "memory node"), humanize.Plural(m.Cores, "core"), m.ISA)
	if m.Tier != m.ISA {
		s += fmt.Sprintf(" (kernels: %s)", m.Tier)
	}
	if m.Read > 0 {
		s += fmt.Sprintf(", reads %s (%s)", humanize.Scaled(m.Read, "B/s"), m.Why)
	}
	if m.Theory > 0 {
		s += fmt.Sprintf(", theory %s", humanize.Scaled(m.Theory, "B/s"))
	}
	return s
}

// sections are the tables of a plan, with its claims or without.
func (p plan) sections(claims bool) []planTable {
	out := []planTable{p.speed()}
	if claims && len(p.Claims) > 0 {
		out = append(out, p.claims())
	}
	if p.Prefill != nil {
		out = append(out, p.times())
	}
	out = append(out, p.memory(), p.weights(), p.layouts())
	if len(p.Placement) > 1 {
		out = append(out, p.placement())
	}
	out = append(out, p.training(), p.networks())
	t := plaintext.Table{Head: []string{"for", "line"}}
	for _, c := range p.Commands {
		t.Rows = append(t.Rows, []string{c.For, c.Line})
	}
	return append(out, planTable{toType, t})
}
