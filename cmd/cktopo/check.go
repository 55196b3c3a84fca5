package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/humanize"
	"ck/internal/probe"
)

func (p *program) checkCommand() {
	c := p.app.NewCommand("check [flags]", "say what is wrong with the machine for a model, and the command that mends it",
		`Looks at what slows models down or stops them: each finding has its effect and the command that mends it. Where a program can measure the effect on this machine without being root, it does, in a second or two with all cores busy ("measured here"); other effects follow from this machine's own numbers ("computed"), or are known from elsewhere ("stated"). A saved tree is not measured.

With --model it looks where the pages of that file lie: on which memory nodes, and how fast cores of a near and of a far node read them. It does not read the file from the disk.

serious: costs a model much of its speed, or stops it. minor: costs a little, or only at times. note: good to know. Exits with 1 if anything is serious.`,
		func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usage("check: takes no words; see cktopo check --help")
			}
			return p.check()
		})
	g := cli.NewGroup(c.Flags(), "Measuring")
	g.Bool(&p.noMeasure, "no-measure", "", "look at settings only")
	p.widthFlag(cli.NewGroup(c.Flags(), "Showing"))
}

// check prints the findings; a serious one is exit code 1.
func (p *program) check() error {
	if p.root != "" && p.app.Given("model") {
		return cli.Usage("check: --model looks where a file lies in this machine's memory; leave out --root")
	}
	survey, err := p.survey()
	if err != nil {
		return err
	}
	s := &subject{Survey: &survey}
	if p.root == "" {
		if s.model, err = p.modelPages(); err != nil {
			return err
		}
		if !p.noMeasure {
			s.here = probe.Here(&survey, p.app.Common.Threads, s.model)
		}
	}
	r := check(s)
	switch c := &p.app.Common; {
	case c.JSONL:
		err = cli.PrintLines(p.app, "ck.topo.check.finding/1", r.Findings)
	case c.JSON:
		err = p.app.PrintJSON(r)
	default:
		err = cli.OutError(r.write(p.app.Text(), c.Plain, p.columns(pageWidth)))
	}
	if err == nil && r.Matters > 0 {
		err = &cli.Error{Code: cli.ExitCheck}
	}
	return err
}

// modelPages looks at the files of --model; nil if none is named.
func (p *program) modelPages() (*probe.FilePages, error) {
	name := p.app.Common.Model
	if name == "" {
		return nil, nil
	}
	files, err := probe.ModelFiles(name)
	if err != nil {
		return nil, cli.Input("%w", err)
	}
	pages, err := probe.LookAtFiles(files)
	if err != nil {
		return nil, cli.Input("%w", err)
	}
	return pages, nil
}

// report is the result of all rules.
type report struct {
	Schema   string           `json:"schema"`
	Matters  int              `json:"matters"` // serious findings
	Findings []finding        `json:"findings"`
	LookedAt int              `json:"looked_at"`  // rules, less those below
	Unknown  []string         `json:"unknown"`    // rules whose facts are not there
	Skipped  []string         `json:"unmeasured"` // rules that need a measurement
	Measured *probe.Figures   `json:"measured"`   // null: nothing was
	Model    *probe.FilePages `json:"model"`      // null: none was named
}

type finding struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	What     string `json:"what"`
	Effect   string `json:"effect"`
	Basis    string `json:"basis"`    // of the effect
	Measured string `json:"measured"` // the effect as it was measured; "": it was not
	Mend     string `json:"mend"`     // one command a line
}

// What an effect rests on.
const (
	computed = "computed" // from this machine's own numbers
	stated   = "stated"   // known from elsewhere
)

// check applies all rules; serious findings come first.
func check(s *subject) report {
	r := report{Schema: "ck.topo.check/1", Findings: []finding{}, Unknown: []string{}, Skipped: []string{}, Measured: s.here, Model: s.model}
	for _, severity := range []string{serious, minor, note} {
		for i := range rules {
			if rules[i].severity == severity {
				r.apply(&rules[i], s)
			}
		}
	}
	slices.Sort(r.Unknown)
	slices.Sort(r.Skipped)
	return r
}

// apply adds what a rule finds.
func (r *report) apply(x *rule, s *subject) {
	switch {
	case x.measures && s.here == nil:
		r.Skipped = append(r.Skipped, x.id)
		return
	case x.told != nil && !x.told(s):
		r.Unknown = append(r.Unknown, x.id)
		return
	}
	r.LookedAt++
	f := finding{ID: x.id, Severity: x.severity, What: x.what(s), Effect: x.effect, Basis: stated, Mend: x.mend}
	if f.What == "" {
		return
	}
	if x.figure != nil {
		if text := x.figure(s); text != "" {
			f.Effect, f.Basis = text, computed
		}
	}
	if x.measured != nil && s.here != nil {
		f.Measured = x.measured(s)
	}
	r.Findings = append(r.Findings, f)
	if f.Severity == serious {
		r.Matters++
	}
}

// write prints the findings, then what was measured, then the counts.
func (r *report) write(w io.Writer, plain bool, columns int) error {
	sections := r.measuredSections()
	if plain {
		sections = append(r.plainSections(), sections...)
		return writeSections(w, append(sections, r.counts()), true, columns)
	}
	var b strings.Builder
	end := min(columns, pageWidth)
	for _, f := range r.Findings {
		item(&b, 0, 10, f.Severity, f.What, end)
		item(&b, 2, 8, "effect", f.Effect+" ("+f.Basis+")", end)
		if f.Measured != "" {
			item(&b, 2, 8, "", "measured here: "+f.Measured, end)
		}
		name := "mend"
		for line := range strings.SplitSeq(f.Mend, "\n") { // commands stay whole, so that they can be copied
			b.WriteString("  " + pad(name, 8) + line + "\n")
			name = ""
		}
		b.WriteString("\n")
	}
	if _, err := w.Write(cli.Printable([]byte(b.String()))); err != nil {
		return err
	}
	if err := writeSections(w, sections, false, columns); err != nil {
		return err
	}
	b.Reset()
	if len(sections) > 0 {
		b.WriteString("\n")
	}
	b.WriteString(r.summary() + "\n")
	for _, x := range []struct {
		what string
		ids  []string
	}{{"not told here: ", r.Unknown}, {"not measured: ", r.Skipped}} {
		if len(x.ids) > 0 {
			b.WriteString(strings.Join(cli.Wrap(x.what+strings.Join(x.ids, ", "), end), "\n") + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// summary is the count of what was looked at and found: the same on the page and in the report, but for what only check measures, which it
// names apart.
func (r *report) summary() string {
	found := humanize.Plural(len(r.Findings), "finding")
	if n := r.byMeasuring(); n > 0 {
		found += fmt.Sprintf(" (%d by measuring)", n)
	}
	return fmt.Sprintf("%s looked at, %s, %d serious", humanize.Plural(r.LookedAt, "thing"), found, r.Matters)
}

// byMeasuring is how many findings rest on a measurement, which the page does not make.
func (r *report) byMeasuring() (n int) {
	for _, f := range r.Findings {
		if slices.ContainsFunc(rules, func(x rule) bool { return x.id == f.ID && x.measures }) {
			n++
		}
	}
	return n
}

// plainSections are the findings as facts.
func (r *report) plainSections() []section {
	var all []section
	for _, f := range r.Findings {
		sec := section{name: f.ID}
		sec.add("severity", f.Severity)
		sec.add("what", f.What)
		sec.add("effect", f.Effect)
		sec.add("basis", f.Basis)
		sec.add("measured", f.Measured)
		sec.add("mend", strings.ReplaceAll(f.Mend, "\n", "; "))
		all = append(all, sec)
	}
	return all
}

// counts is the end of a report.
func (r *report) counts() section {
	sec := section{name: "check"}
	sec.add("looked at", fmt.Sprint(r.LookedAt))
	sec.add("findings", fmt.Sprint(len(r.Findings)))
	sec.add("by measuring", fmt.Sprint(r.byMeasuring()))
	sec.add("serious", fmt.Sprint(r.Matters))
	sec.add("unknown", strings.Join(r.Unknown, " "))
	sec.add("unmeasured", strings.Join(r.Skipped, " "))
	return sec
}

// measuredSections are the figures, and where the model's pages lie.
func (r *report) measuredSections() []section {
	var all []section
	if r.Measured != nil {
		all = append(all, measuredSection(r.Measured))
	}
	if r.Model != nil {
		all = append(all, modelSection(r.Model))
	}
	return all
}
