package view

import (
	"fmt"
	"io"
	"math"
	"strings"

	"ck/internal/advice"
	"ck/internal/humanize"
	"ck/internal/plaintext"
)

// notYet says plainly what the plan is not.
func (r outline) notYet() string {
	return fmt.Sprintf("there is no shape of it (%s): what follows is its memory and what no program can pass; give a GGUF file for a plan", r.Lacks)
}

func (r outline) modelLine() string {
	p := plan{&advice.Plan{Model: r.Model}}
	line := p.modelLine()
	if r.ActiveParams < 0.75*r.Model.Params {
		line += fmt.Sprintf("; a token uses %s parameters", humanize.Count(r.ActiveParams))
	}
	return line
}

// write prints the outline for people, or as one fact a line.
func (r outline) write(w io.Writer, plain bool, columns int) error {
	if !plain {
		p := plan{&advice.Plan{Machine: r.Machine}}
		for _, line := range []string{r.modelLine(), p.machineLine(), r.notYet()} {
			if _, err := fmt.Fprintln(w, strings.Join(plaintext.Wrap(plaintext.Escape(line), columns), "\n")); err != nil {
				return err
			}
		}
	}
	for _, t := range r.tables(plain) {
		if !plain {
			if _, err := fmt.Fprintf(w, "\n%s\n", t.title); err != nil {
				return err
			}
		}
		t.Columns = columns
		if err := t.Write(w, plain); err != nil {
			return err
		}
	}
	return nil
}

func (r outline) tables(plain bool) []planTable {
	atRate := func(x float64) string {
		if x == 0 || math.IsNaN(x) {
			return "not told"
		}
		return humanize.TokenRate(x)
	}
	memory := plaintext.Table{Head: []string{"memory", "bytes", "of"}, Right: []bool{false, true, false}, Rows: [][]string{
		{"weights", humanize.Bytes(r.File), humanize.Count(r.Model.Params) + " parameters as " + r.Model.Type},
		{"KV cache", humanize.Bytes(r.KV), fmt.Sprintf("%s of %s in %s, windows counted as such", humanize.Plural(r.Use.Rows, "sequence"), humanize.Plural(r.Use.Context, "position"), r.Use.KV)},
		{"needed", humanize.Bytes(r.Need), fitsText(r.Fits, "fits", "does not fit") + capText(r.Machine.MemoryCap) + "; buffers come on top"}}}
	speed := plaintext.Table{Head: []string{"phase", "at the read rate", "no program above", "rests on"}, Right: []bool{false, true, true, false}, Rows: [][]string{
		{"decode, " + humanize.Plural(r.Use.Rows, "row"), atRate(r.AtRate), atRate(r.DecodeBound), fmt.Sprintf("each walk reads %s", humanize.Bytes(int64(r.Read)))},
		{fmt.Sprintf("prefill %d", r.Use.Prompt), "-", atRate(r.PromptBound), fmt.Sprintf("%.3g operations, attention and logits left out", r.Ops)}}}
	out := []planTable{{"Memory", memory}, {"Tokens/s at most", speed}}
	if plain {
		out = append([]planTable{{"", plaintext.Table{Head: []string{"model", "runs", "lacks"}, Rows: [][]string{{r.Model.Name + ", " + r.Model.Type, "no", r.Lacks}}}}}, out...)
	}
	return out
}

// WriteOutlines prints all outlines. short is one comment for each, or with quiet nothing: there is no line to type.
func WriteOutlines(w io.Writer, d *advice.Document, short, quiet, plain bool, columns int) error {
	for i := range d.Outlines {
		r := outline{&d.Outlines[i]}
		var err error
		switch {
		case short && quiet:
		case short:
			text := fmt.Sprintf("# %s, %s on %s: %s, %s", r.Model.Name, r.Model.Type, r.Machine.Name, humanize.Bytes(r.Need), fitsText(r.Fits, "fits", "does not fit")+capText(r.Machine.MemoryCap))
			_, err = fmt.Fprintln(w, plaintext.Escape(text))
		default:
			if i > 0 && !plain {
				_, err = fmt.Fprintln(w)
			}
			if err == nil {
				err = r.write(w, plain, columns)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
