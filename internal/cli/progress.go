package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"ck/internal/plaintext"
)

// Progress shows how far long work is: a bar with rate and time left where stderr is a terminal, else one line every ten seconds. It shows
// nothing with -q. What moves it is a clock of its own: work tells how far it is as often as it likes, at the cost of a store.
type Progress struct {
	what, unit string
	name       string // of the program
	total      int64
	start      time.Time
	from       float64       // what was done before
	done       atomic.Uint64 // bits of a float64
	says       atomic.Pointer[string]

	drawing sync.Mutex // while the bar is drawn, or something else has its line

	w     io.Writer
	lines bool
	bar   *progressbar.ProgressBar
	next  time.Time // of the next line

	stop  func()
	ended sync.WaitGroup
}

const (
	progressEach     = 250 * time.Millisecond // of the bar; work that is done before never shows one
	progressLineEach = 10 * time.Second
	progressWidth    = 12                 // of the bar: with its text it stays below 80 columns
	progressBeside   = progressWidth + 10 // columns: the bar with its ends, the share in percent, blanks
)

// NewProgress starts the progress of total units of work. Done must be called.
func (a *App) NewProgress(what, unit string, total int64) *Progress {
	p := newProgress(a.Err, a.Name, plaintext.Escape(what), unit, total, !Color(a.Err), time.Now())
	if a.Common.Quiet {
		return p
	}
	tick, end := time.NewTicker(progressEach), make(chan struct{})
	p.stop = sync.OnceFunc(func() { tick.Stop(); close(end) })
	p.ended.Add(1)
	go func() {
		defer p.ended.Done()
		for {
			select {
			case <-end:
				return
			case now := <-tick.C:
				p.show(now)
			}
		}
	}()
	return p
}

func newProgress(w io.Writer, name, what, unit string, total int64, lines bool, start time.Time) *Progress {
	return &Progress{w: w, name: name, what: what, unit: unit, total: total, lines: lines, start: start, next: start.Add(progressLineEach)}
}

// From says how much was done before the work began: the rate is of what comes after. It is called before anything is told by At.
func (p *Progress) From(done int64) {
	if p != nil {
		p.drawing.Lock()
		defer p.drawing.Unlock()
		p.from = float64(done)
		p.At(done)
	}
}

// At says how much is done.
func (p *Progress) At(done int64) { p.Reach(float64(done)) }

// Reach is At for work that knows parts of a unit. Any goroutine may call it; it costs a store.
func (p *Progress) Reach(done float64) {
	if p != nil {
		p.done.Store(math.Float64bits(done))
	}
}

// Say adds a word on what the work waits for. Any goroutine may call it.
func (p *Progress) Say(word string) {
	if p != nil {
		p.says.Store(&word)
	}
}

// show draws the bar, or writes a line where it is time for one.
func (p *Progress) show(now time.Time) {
	p.drawing.Lock()
	defer p.drawing.Unlock()
	done := math.Float64frombits(p.done.Load())
	if p.lines {
		if !now.Before(p.next) {
			p.next = now.Add(progressLineEach)
			fmt.Fprintf(p.w, "%s: %s\n", p.name, p.text(done, now, 0))
		}
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(p.total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(progressWidth))
	}
	p.bar.Describe(p.text(done, now, p.columns()-progressBeside))
	p.bar.Set64(min(int64(done), p.total-1)) // the last unit would end the bar: Done does
}

// Aside prints while the work goes on: the bar leaves its line for what f prints and comes back with the next moment of
// the clock. f must not end the progress.
func (p *Progress) Aside(f func() error) error {
	if p == nil {
		return f()
	}
	p.drawing.Lock()
	defer p.drawing.Unlock()
	if p.bar != nil {
		p.bar.Clear()
	}
	return f()
}

// columns is the width of the terminal, 80 where nobody tells.
func (p *Progress) columns() int {
	if f, ok := p.w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

// text is what is done, how fast, how long the rest takes, and the words that were added. On a line of so many columns it leaves the rate out, then the last
// words, so that a bar keeps its line; 0: any.
func (p *Progress) text(done float64, now time.Time, columns int) string {
	text, rate, left := fmt.Sprintf("%s: %d of %d %s", p.what, int64(done), p.total, p.unit), "", ""
	if s := now.Sub(p.start).Seconds(); done > p.from && s > 0 {
		each := (done - p.from) / s
		rate = fmt.Sprintf(", %s %s/s", rateText(each), p.unit)
		left = fmt.Sprintf(", %s left", time.Duration(max(float64(p.total)-done, 0)/each*float64(time.Second)).Round(time.Second))
	}
	word := ""
	if w := p.says.Load(); w != nil {
		word = ", " + *w
	}
	if whole := text + rate + left + word; columns <= 0 || word == "" || plaintext.Width(whole) <= columns {
		return whole
	}
	text += left + word
	for plaintext.Width(text) > columns {
		i := strings.LastIndex(text, ", ")
		if i < 0 {
			break
		}
		text = text[:i]
	}
	return text
}

// rateText has three digits, and no exponent below a million.
func rateText(x float64) string {
	if x >= 100 && x < 1e6 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// Done ends the progress and removes the bar. A second call does nothing.
func (p *Progress) Done() {
	if p == nil {
		return
	}
	if p.stop != nil {
		p.stop()
	}
	p.ended.Wait()
	if p.bar != nil {
		p.bar.Finish()
		p.bar = nil
	}
}
