// Package findings says what is wrong with a machine for a model, or worth knowing about it: rules, a row each.
//
// A rule takes the survey of a machine, and what was measured on it if anything was, and returns a value. The package measures nothing
// itself and prints nothing.
package findings

import (
	"fmt"
	"slices"

	"ck/internal/humanize"
	"ck/internal/probe"
)

// Report is the result of all rules.
type Report struct {
	Schema   string           `json:"schema"`
	Matters  int              `json:"matters"` // serious findings
	Findings []Finding        `json:"findings"`
	LookedAt int              `json:"looked_at"`  // rules, less those below
	Unknown  []string         `json:"unknown"`    // rules whose facts are not there
	Skipped  []string         `json:"unmeasured"` // rules that need a measurement
	Measured *probe.Figures   `json:"measured"`   // null: nothing was
	Model    *probe.FilePages `json:"model"`      // null: none was named
}

// Finding is what a rule found.
type Finding struct {
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
	Computed = "computed" // from this machine's own numbers
	Stated   = "stated"   // known from elsewhere
)

// Check applies all rules; serious findings come first.
func Check(s *Subject) Report {
	r := Report{Schema: "ck.topo.check/1", Findings: []Finding{}, Unknown: []string{}, Skipped: []string{}, Measured: s.Here, Model: s.Model}
	for _, severity := range []string{Serious, Minor, Note} {
		for i := range rules {
			if rules[i].Severity == severity {
				r.apply(&rules[i], s)
			}
		}
	}
	slices.Sort(r.Unknown)
	slices.Sort(r.Skipped)
	return r
}

// apply adds what a rule finds.
func (r *Report) apply(x *Rule, s *Subject) {
	switch {
	case x.Measures && s.Here == nil:
		r.Skipped = append(r.Skipped, x.ID)
		return
	case x.told != nil && !x.told(s):
		r.Unknown = append(r.Unknown, x.ID)
		return
	}
	r.LookedAt++
	f := Finding{ID: x.ID, Severity: x.Severity, What: x.what(s), Effect: x.effect, Basis: Stated, Mend: x.mend}
	if f.What == "" {
		return
	}
	if x.figure != nil {
		if text := x.figure(s); text != "" {
			f.Effect, f.Basis = text, Computed
		}
	}
	if x.measured != nil && s.Here != nil {
		f.Measured = x.measured(s)
	}
	r.Findings = append(r.Findings, f)
	if f.Severity == Serious {
		r.Matters++
	}
}

// Summary is the count of what was looked at and found: the same on the page and in the report, but for what only check measures, which it
// names apart.
func (r *Report) Summary() string {
	found := humanize.Plural(len(r.Findings), "finding")
	if n := r.ByMeasuring(); n > 0 {
		found += fmt.Sprintf(" (%d by measuring)", n)
	}
	return fmt.Sprintf("%s looked at, %s, %d serious", humanize.Plural(r.LookedAt, "thing"), found, r.Matters)
}

// ByMeasuring is how many findings rest on a measurement, which the page does not make.
func (r *Report) ByMeasuring() (n int) {
	for _, f := range r.Findings {
		if slices.ContainsFunc(rules, func(x Rule) bool { return x.ID == f.ID && x.Measures }) {
			n++
		}
	}
	return n
}
