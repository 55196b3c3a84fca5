package findings

import (
	"slices"

	"ck/internal/probe"
	"ck/internal/topo"
)

// A Rule is one thing that is looked at.
type Rule struct {
	ID, Severity string
	Reads        string                // where the facts come from
	Measures     bool                  // looks at what was measured
	told         func(s *Subject) bool // these facts are there; nil: always
	what         func(*Subject) string // what was found, "" if nothing
	figure       func(*Subject) string // the effect as it follows from this machine's facts; nil or "": they do not say it
	measured     func(*Subject) string // the effect as it was measured just now; nil or "": it was not
	effect       string                // as stated
	mend         string                // the command, or several, one a line
}

// A Subject is what rules look at.
type Subject struct {
	*topo.Survey
	Here  *probe.Figures   // nil: nothing was measured
	Model *probe.FilePages // nil: no model was named
}

// Severities of findings.
const (
	Serious = "serious"
	Minor   = "minor"
	Note    = "note"
)

// hot is the temperature from which CPUs are near the point where they slow down.
const hot = 90

// setting makes the told function of a rule about one setting.
func setting(get func(*topo.Settings) string) func(*Subject) bool {
	return func(s *Subject) bool { return get(&s.Settings) != "" }
}

// rules is everything that is looked at. To add one is to add a row to one of the lists.
var rules = slices.Concat(processRules, amountRules, placeRules, pageRules, speedRules, coreRules, neighbourRules, kernelRules)

// Rules are all rules, in the order in which they are looked at.
func Rules() []Rule { return slices.Clone(rules) }
