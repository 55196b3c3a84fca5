package probe

import (
	"fmt"
	"slices"
	"strings"

	"ck/internal/measure"
)

// Named is a figure with its name, for warnings.
type Named struct {
	Name, Unit string
	measure.Series
}

// What disturbed figures are.
const (
	LowerBound = "a lower bound"
	UpperBound = "an upper bound"
)

// Doubts says what disturbed the samples of figures and which of them did not settle. bound is what disturbed figures are: LowerBound or
// UpperBound.
func Doubts(list []Named, bound string) (out []string) {
	var noise []measure.Noise
	var loose []string
	for _, f := range list {
		noise = append(noise, f.Noise)
		if !f.Stable {
			loose = append(loose, fmt.Sprintf("%s (%d samples, %s–%s %s)", f.Name, f.N, measure.Digits(f.Min), measure.Digits(f.Max), f.Unit))
		}
	}
	if why := measure.Together(noise).Reasons(); len(why) > 0 {
		out = append(out, fmt.Sprintf("all samples together: %s; what is measured is %s", strings.Join(why, ", "), bound))
	}
	if len(loose) > 3 {
		loose = append(loose[:3], fmt.Sprintf("%d more", len(loose)-3))
	}
	if len(loose) > 0 {
		out = append(out, fmt.Sprintf("the best samples do not agree to 3 %%: %s; measure again when nothing else runs", strings.Join(loose, ", ")))
	}
	return out
}

// DoubtBandwidths is Doubts for levels, and names those that others contradict.
func DoubtBandwidths(rows []Bandwidth) []string {
	var list []Named
	for i := range rows {
		list = append(list, Named{rows[i].Name(), "GB/s", rows[i].Samples})
	}
	out := Doubts(list, LowerBound)
	for i := range rows {
		if r := &rows[i]; r.SlowerThan != "" {
			out = append(out, fmt.Sprintf("%s: was slower than %s, which cannot be; it is no roof: measure again when nothing else runs", r.Name(), r.SlowerThan))
		}
	}
	return out
}

// Doubts says what disturbed the roofs, which of them did not settle and which others contradict.
func (d *Roofs) Doubts() (out []string) {
	var peaks []Named
	best := map[string]*PeakRate{}
	for i := range d.Peaks {
		r := &d.Peaks[i]
		name := r.Instruction + " with " + measure.ThreadsText(r.Threads)
		peaks = append(peaks, Named{name, "GOP/s", r.Samples})
		fewer := best[r.Instruction]
		if fewer != nil && measure.Contradictions([]float64{r.GOPs, fewer.GOPs}, measure.RatesApart)[0] >= 0 {
			out = append(out, fmt.Sprintf("%s: was slower than with %s, which cannot be; measure again when nothing else runs", name, measure.ThreadsText(fewer.Threads)))
		}
		if fewer == nil || r.GOPs > fewer.GOPs {
			best[r.Instruction] = r
		}
	}
	return slices.Concat(out, Doubts(peaks, LowerBound), DoubtBandwidths(d.Bandwidth))
}
