package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ck/internal/cli"
	"ck/internal/humanize"
	"ck/internal/measure"
	"ck/internal/picture"
	"ck/internal/plaintext"
	"ck/internal/quant"
	"ck/internal/train/curve"
)

const (
	paceSteps    = 20                     // of the rate that is shown, the last ones
	peakWithin   = 100 * time.Millisecond // for samples of the peak
	sparkColumns = 40
)

// curveFormat is the form of the picture that --curve names.
func (o *runOptions) curveFormat() (picture.Format, error) {
	switch ext := strings.ToLower(filepath.Ext(o.curve)); ext {
	case ".svg":
		return picture.SVG, nil
	case ".png":
		return picture.PNG, nil
	}
	return "", cli.Usage("--curve: %q ends in neither .svg nor .png", o.curve)
}

// checkCurve says before all work what would keep the curve from being written.
func (o *runOptions) checkCurve() error {
	if o.curve == "" {
		return nil
	}
	if _, err := o.curveFormat(); err != nil {
		return err
	}
	if _, err := os.Stat(o.curve); err == nil && !o.force && !o.resume {
		return cli.Usage("%s: exists; --force overwrites it", o.curve)
	}
	return nil
}

// openLog opens the log, whose steps behind the checkpoint are made again: they are cut off.
func (s *session) openLog() error {
	o := &s.p.run
	if o.log == "" {
		if o.curve != "" && s.t.Done > 0 {
			s.p.app.Note("the curve begins behind step %d: what was before only a --log has", s.t.Done)
		}
		return nil
	}
	f, err := os.OpenFile(o.log, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o666)
	if err != nil {
		return cli.Resource("%w", err)
	}
	s.log = f
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return err
	}
	size := int64(0)
	if o.resume {
		c, n, err := curve.Read(f, s.t.Done)
		if err != nil {
			return cli.Input("%s: %w", o.log, err)
		}
		s.curve, size = c, n
	}
	if err := f.Truncate(size); err != nil {
		return cli.Resource("%w", err)
	}
	return nil
}

// samplePeaks takes the peaks of arithmetic by which steps are judged, of the CPUs of all replicas.
func (s *session) samplePeaks() error {
	crew, err := s.p.crew()
	if err != nil {
		return err
	}
	defer crew.Close()
	kinds := []string{peakKind(s.p.typ())}
	if s.p.run.times && kinds[0] != measure.F32 { // of what is no product
		kinds = append(kinds, measure.F32)
	}
	s.peaks = map[string]float64{}
	for _, kind := range kinds {
		peak, err := measure.SamplePeak(crew, kind, peakWithin)
		if err != nil {
			return err
		}
		s.peaks[kind] = peak
	}
	return nil
}

// peakKind is the arithmetic of products of a type.
func peakKind(t quant.Type) string {
	if t == quant.BF16 {
		return measure.BF16
	}
	return measure.F32
}

// operations are those of a step, of all replicas.
func (s *session) operations() float64 {
	return s.t.Net.Operations() * float64(s.p.net.batch/s.p.leaves())
}

// share is the share of the peak that a step of so many tokens a second has; 0: there is no peak.
func (s *session) share(speed float64) float64 {
	peak := s.peaks[peakKind(s.p.typ())]
	if peak <= 0 {
		return 0
	}
	return speed / float64(s.p.net.batch*s.p.data.tokens) * s.operations() / peak
}

// speed is the tokens a second of the last steps of this session.
func (s *session) speed() float64 {
	if s.made == 0 {
		return 0
	}
	return s.curve.Speed(min(paceSteps, s.made))
}

// words is what the progress says: what matters most first, for narrow terminals.
func (s *session) words() string {
	p := s.curve.Last()
	w := fmt.Sprintf("loss %.4f", p.Loss)
	if len(s.curve.Points) > 1 {
		w += fmt.Sprintf(", smoothed %.4f", p.Smoothed)
	}
	if !math.IsNaN(s.valLoss) {
		w += fmt.Sprintf(", held out %.4f", s.valLoss)
	}
	speed := s.speed()
	w += fmt.Sprintf(", %s tokens/s", humanize.TokenRate(speed))
	if x := s.share(speed); x > 0 {
		w += fmt.Sprintf(", %.0f %% of peak", 100*x)
	}
	return w + fmt.Sprintf(", norm %.3g, lr %.3g", p.Norm, p.Rate)
}

// draw writes the curve as far as it is.
func (s *session) draw() error {
	o := &s.p.run
	if o.curve == "" || len(s.curve.Points) == 0 {
		return nil
	}
	format, err := o.curveFormat()
	if err != nil {
		return err
	}
	f, err := s.p.app.Create(o.curve, true)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := s.curve.Chart("Training of "+plaintext.Escape(filepath.Base(s.p.app.Common.Model))).Draw(f, format); err != nil {
		return err
	}
	return f.Commit()
}

// drawOnTheWay draws what a later picture replaces: that it cannot is said once.
func (s *session) drawOnTheWay() {
	err := s.draw()
	if err != nil && !s.undrawn {
		s.undrawn = true
		s.p.app.Warn("no curve: %v; the run goes on", err)
	}
}

// held is the memory that training took at most, with what was read of the mapped file; 0: not known.
func (s *session) held() int64 {
	now, err := measure.HeldMemory()
	if err != nil || s.before == 0 {
		return 0
	}
	return now - s.before
}

// spark is the loss as a line of text, for terminals.
func (s *session) spark() string {
	if !cli.IsTerminal(s.p.app.Out) || s.p.app.Common.Plain || len(s.curve.Points) < 2 {
		return ""
	}
	return s.curve.Sparkline(sparkColumns, !cli.UTF8())
}

// A stepTime is what items with one name take of a step.
type stepTime struct {
	Name    string  `json:"step"`
	Items   int     `json:"items,omitempty"`
	Seconds float64 `json:"seconds_of_a_step"`
	Share   float64 `json:"share"`
	Rate    float64 `json:"ops_per_s,omitempty"`
	Peak    float64 `json:"peak_share,omitempty"`
}

// times are where the time of steps went: of the walks by item, and what is around them. Seconds are the mean of the replicas, rates those of all together.
func (s *session) times() (out []stepTime) {
	if len(s.profiles) == 0 || s.made == 0 {
		return nil
	}
	each, n := s.inSteps.Seconds()/float64(s.made), float64(len(s.profiles))
	walks := float64(s.p.net.batch/s.p.leaves()) / n // of a replica; replicas walk side by side
	at, kinds := map[string]int{}, []string{}
	for r, x := range s.profiles {
		for _, x := range x.Steps(s.nets.Nets[r].Load()) {
			i, ok := at[x.Name]
			if !ok {
				i = len(out)
				at[x.Name], out, kinds = i, append(out, stepTime{Name: x.Name, Items: x.Items}), append(kinds, x.Work.Kind)
			}
			out[i].Seconds += x.Time * walks / n
			out[i].Rate += x.OpsRate()
		}
	}
	rest := each
	for i := range out {
		x := &out[i]
		x.Share = x.Seconds / each
		if peak := s.peaks[kinds[i]]; peak > 0 {
			x.Peak = x.Rate / peak
		}
		rest -= x.Seconds
	}
	return append(out, stepTime{Name: "sums, update, panels", Seconds: rest, Share: rest / each})
}

// printTimes writes the times as a table.
func (s *session) printTimes(w io.Writer, list []stepTime) error {
	if len(list) == 0 {
		return nil
	}
	t := plaintext.Table{Head: []string{"item", "items", "ms a step", "% time", "GOP/s", "% peak"}, Right: []bool{false, true, true, true, true, true}}
	for _, x := range list {
		row := []string{x.Name, "", fmt.Sprintf("%.2f", 1e3*x.Seconds), fmt.Sprintf("%.1f", 100*x.Share), "", ""}
		if x.Items > 0 {
			row[1] = fmt.Sprint(x.Items)
		}
		if x.Rate > 0 {
			row[4] = measure.Digits(x.Rate / 1e9)
		}
		if x.Peak > 0 {
			row[5] = fmt.Sprintf("%.1f", 100*x.Peak)
		}
		t.Rows = append(t.Rows, row)
	}
	if !s.p.app.Common.Plain {
		fmt.Fprintln(w)
	}
	return t.Write(w, s.p.app.Common.Plain)
}
