package cli

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress shows how far long work is: a bar where stderr is a terminal, else one line every ten seconds. It shows nothing in its first
// second, nor with -q.
type Progress struct {
	app   *App
	what  string
	unit  string
	total int64
	bar   *progressbar.ProgressBar
	start time.Time
	next  time.Time
	quiet bool
	lines bool
}

const (
	progressBarAfter = time.Second
	progressLineEach = 10 * time.Second
)

// NewProgress starts the progress of total units of work.
func (a *App) NewProgress(what, unit string, total int64) *Progress {
	now := time.Now()
	p := &Progress{app: a, what: Escape(what), unit: unit, total: total, start: now, quiet: a.Common.Quiet, lines: !Color(a.Err)}
	p.next = now.Add(progressBarAfter)
	if p.lines {
		p.next = now.Add(progressLineEach)
	}
	return p
}

// At says how much is done.
func (p *Progress) At(done int64) {
	if p == nil || p.quiet {
		return
	}
	now := time.Now()
	if p.bar != nil {
		p.bar.Set64(done)
		return
	}
	if now.Before(p.next) {
		return
	}
	if !p.lines {
		p.bar = progressbar.NewOptions64(p.total, progressbar.OptionSetWriter(p.app.Err), progressbar.OptionSetDescription(p.what),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(p.unit),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(24))
		p.bar.Set64(done)
		return
	}
	p.next = now.Add(progressLineEach)
	line := fmt.Sprintf("%s: %d of %d %s", p.what, done, p.total, p.unit)
	if rate := float64(done) / now.Sub(p.start).Seconds(); done > 0 {
		left := time.Duration(float64(p.total-done) / rate * float64(time.Second))
		line += fmt.Sprintf(", %.3g %s/s, %s left", rate, p.unit, left.Round(time.Second))
	}
	fmt.Fprintf(p.app.Err, "%s: %s\n", p.app.Name, line)
}

// Done removes the bar.
func (p *Progress) Done() {
	if p != nil && p.bar != nil {
		p.bar.Finish()
		p.bar = nil
	}
}
