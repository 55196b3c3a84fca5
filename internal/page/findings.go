package page

import (
	"fmt"
	"io"
	"strings"

	"ck/internal/findings"
	"ck/internal/plaintext"
)

// WriteReport prints the findings, then what was measured, then the counts.
func WriteReport(w io.Writer, r *findings.Report, plain bool, columns int) error {
	sections := measuredSections(r)
	if plain {
		sections = append(plainSections(r), sections...)
		return writeSections(w, append(sections, counts(r)), true, columns)
	}
	var b strings.Builder
	end := min(columns, Width)
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
	if _, err := w.Write(plaintext.Printable([]byte(b.String()))); err != nil {
		return err
	}
	if err := writeSections(w, sections, false, columns); err != nil {
		return err
	}
	b.Reset()
	if len(sections) > 0 {
		b.WriteString("\n")
	}
	b.WriteString(r.Summary() + "\n")
	for _, x := range []struct {
		what string
		ids  []string
	}{{"not told here: ", r.Unknown}, {"not measured: ", r.Skipped}} {
		if len(x.ids) > 0 {
			b.WriteString(strings.Join(plaintext.Wrap(x.what+strings.Join(x.ids, ", "), end), "\n") + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// plainSections are the findings as facts.
func plainSections(r *findings.Report) []section {
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
func counts(r *findings.Report) section {
	sec := section{name: "check"}
	sec.add("looked at", fmt.Sprint(r.LookedAt))
	sec.add("findings", fmt.Sprint(len(r.Findings)))
	sec.add("by measuring", fmt.Sprint(r.ByMeasuring()))
	sec.add("serious", fmt.Sprint(r.Matters))
	sec.add("unknown", strings.Join(r.Unknown, " "))
	sec.add("unmeasured", strings.Join(r.Skipped, " "))
	return sec
}

// measuredSections are the figures, and where the model's pages lie.
func measuredSections(r *findings.Report) []section {
	var all []section
	if r.Measured != nil {
		all = append(all, measuredSection(r.Measured))
	}
	if r.Model != nil {
		all = append(all, modelSection(r.Model))
	}
	return all
}
