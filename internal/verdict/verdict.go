// Package verdict settles what is claimed about the weights and the attention of models: a row for each claim, with
// what was measured and whether it holds. It knows claims and figures; who measures is elsewhere.
package verdict

import (
	"fmt"

	"ck/internal/attention"
)

// Answer says whether a claim holds.
type Answer string

const (
	Yes    Answer = "yes"
	No     Answer = "no"
	Untold Answer = "cannot be told from this model"
	Open   Answer = "open" // something was not measured
)

// Row is a claim with its verdict on a model.
type Row struct {
	ID       string   `json:"id"`
	Claim    string   `json:"claim"`
	Source   string   `json:"source"`
	Measured string   `json:"measured"`         // the figure that decides, as people read it
	Detail   string   `json:"detail,omitempty"` // what it is of
	Value    *float64 `json:"value,omitempty"`  // the figure that decides
	Holds    Answer   `json:"holds"`
	Why      string   `json:"why,omitempty"` // what is missing, or why it cannot be told
	Command  string   `json:"command"`       // that reproduces or closes it; MODEL and TEXT stand for files
	Means    string   `json:"means"`         // for the engine
}

// Figures are what claims are judged by. What is nil was not measured.
type Figures struct {
	Matrices  []Matrix          // of the layers
	Pairs     []Pair            // of layers that follow each other
	Sample    string            // what of the model Matrices are; empty: all of its layers
	Attention *attention.Report // on a text
	Dropped   []attention.Dropped
	Unseen    string // why attention was not looked at; empty: no text was given
	Pruned    *Pruned
	Unpruned  string // why Pruned is nil; empty: as Unseen
	Others    Others
}

// Matrix is a weight matrix.
type Matrix struct {
	Name, Class string
	Rows, Cols  int
	Bits        float64 // entropy of a histogram of 256 bins from the smallest to the largest value
	Energy      float64 // share of the energy that the largest 5 % of the singular values carry
	Outliers    float64 // share of the energy that these and the largest 1 % of what is left carry
}

// short is the shorter side.
func (m *Matrix) short() int { return min(m.Rows, m.Cols) }

// Pair is two matrices of one class in layers that follow each other.
type Pair struct {
	Class       string
	Layer       int     // the second of them
	Layers      int     // of the model
	Correlation float64 // of their elements
	Left        float64 // share of the second one's energy behind the best multiple of the first
	Between     float64 // share of its energy behind the best mix of both neighbours; negative: it has not both
}

// Pruned is what a model loses with half of the weights of each row left out: the mean KL divergence from the whole
// model, on text that the activations were not taken from.
type Pruned struct {
	BySize    float64 // the smallest left out
	ByProduct float64 // those of the smallest product of size and root mean square of what they are multiplied with
}

// Claim is one row before it is judged.
type Claim struct {
	ID, Claim, Source, Command, Means string
	judge                             func(f *Figures) finding
}

// finding is what a rule says.
type finding struct {
	holds    Answer
	measured string
	detail   string
	value    float64
	valued   bool
	why      string
}

// Claims lists the claims.
func Claims() []Claim {
	var list []Claim
	for _, part := range [][]Claim{weightClaims, attentionClaims, arithmeticClaims, otherClaims} {
		list = append(list, part...)
	}
	return list
}

// Judge gives every claim its verdict.
func Judge(f *Figures) []Row {
	var rows []Row
	for _, c := range Claims() {
		x := c.judge(f)
		r := Row{ID: c.ID, Claim: c.Claim, Source: c.Source, Command: c.Command, Means: c.Means,
			Measured: x.measured, Detail: x.detail, Holds: x.holds, Why: x.why}
		if x.valued {
			r.Value = &x.value
		}
		rows = append(rows, r)
	}
	return rows
}

// open is a claim whose figures are missing.
func open(format string, a ...any) finding {
	return finding{holds: Open, why: fmt.Sprintf(format, a...)}
}

// told is a claim that holds or not, by a figure.
func told(holds bool, value float64, format string, a ...any) finding {
	f := finding{holds: No, value: value, valued: true, measured: fmt.Sprintf(format, a...)}
	if holds {
		f.holds = Yes
	}
	return f
}

// of says what a figure is of.
func (f finding) of(format string, a ...any) finding {
	f.detail = fmt.Sprintf(format, a...)
	return f
}

// untold takes the answer back: the figure says nothing about the claim, for a reason.
func (f finding) untold(format string, a ...any) finding {
	f.holds, f.why = Untold, fmt.Sprintf(format, a...)
	return f
}
