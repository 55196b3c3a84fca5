package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/topo"
)

// sweepOptions are the flags of ckbench sweep.
type sweepOptions struct {
	engineFlags
	prompt, gen, depth int
	reps               int
}

const sweepLong = `Measures a prompt and generation with growing numbers of threads and says of each phase where the knee is: the smallest number of threads within 5 % of the best rate. S is the serial share, fitted to time = t1 * (S + (1-S)/threads) (Amdahl 1967); 1/S is the speed-up that no number of threads exceeds. The interval behind S is that of the rates' intervals; where it is wider than 0.25, or a rate's wider than half of it, there is neither S nor knee. Rates whose interval is wider than 10 % are repeated up to four times as often as asked for. A phase that is bound by memory looks serial once the memory is saturated: compare its GB/s with ckbench bandwidth.`

func (p *program) sweepCommand() {
	o := &p.sweep
	c := p.app.NewCommand("sweep [flags]", "speed by number of threads", sweepLong, p.runSweep)
	g := cli.NewGroup(c.Flags(), "Tests")
	g.Int(&o.prompt, "prompt", "p", 512, 0, maxTokens, "N", "rows of the prompt; 0: none")
	g.Int(&o.gen, "gen", "n", 32, 0, maxTokens, "N", "generated tokens; 0: none")
	g.Int(&o.depth, "depth", "d", 0, 0, maxTokens, "N", "tokens in the context before")
	g.Int(&o.reps, "repetitions", "r", 3, 1, 10000, "N", "repetitions of each test")
	o.engineFlags.flags(c)
}

// sweepPoint is a number of threads.
type sweepPoint struct {
	Threads int     `json:"threads"`
	TS      float64 `json:"tokens_per_s"` // median
	Lo      float64 `json:"lo"`
	Hi      float64 `json:"hi"`
	N       int     `json:"n"`        // repetitions
	SpeedUp float64 `json:"speed_up"` // over the first point
	GBps    float64 `json:"gb_per_s"`
	GOPs    float64 `json:"gop_per_s"`
}

// sweepPhase is a phase with what was fitted.
type sweepPhase struct {
	Test   string       `json:"test"`
	Points []sweepPoint `json:"points"`
	Knee   int          `json:"knee"`         // 0: refused
	Serial *float64     `json:"serial_share"` // null: too few numbers of threads, or refused
	Lo     float64      `json:"serial_lo"`    // as far as the rates' intervals let it be; lo and hi 0: not known, one repetition each
	Hi     float64      `json:"serial_hi"`
	Why    string       `json:"refused"` // why there is neither knee nor serial share; "": there is
}

// sweepMost is how many times as many repetitions as asked for there may be until a rate is known well enough.
const sweepMost = 4

// kneeShare is how near to the best rate a number of threads is good enough.
const kneeShare = 0.95

// What a phase is refused for: an interval of the serial share that is wider, or one of a rate that is wider than this share of it. Where
// more threads are slower S is 1 whatever the rates are, and its interval tells nothing.
const (
	serialApart = 0.25
	rateApart   = 0.5
)

// fit fills in what follows from the points.
func (s *sweepPhase) fit() {
	var workers []int
	var rates, times, fast, slow []float64
	known := true
	wide := &s.Points[0]
	for i := range s.Points {
		x := &s.Points[i]
		x.SpeedUp = x.TS / s.Points[0].TS
		workers, rates, times = append(workers, x.Threads), append(rates, x.TS), append(times, 1/x.TS)
		fast, slow = append(fast, 1/x.Hi), append(slow, 1/x.Lo)
		known = known && x.N > 1
		if x.Hi*wide.Lo > wide.Hi*x.Lo {
			wide = x
		}
	}
	serial, _, ok := measure.Amdahl(workers, times)
	if ok && known {
		s.Lo, s.Hi, _ = measure.AmdahlRange(workers, fast, slow)
		if s.Hi-s.Lo > serialApart || wide.Hi-wide.Lo > rateApart*wide.TS {
			s.Why = fmt.Sprintf("%s to %s tokens/s with %s, S between %.3f and %.3f; measure again when nothing else runs",
				measure.Digits(wide.Lo), measure.Digits(wide.Hi), measure.ThreadsText(wide.Threads), s.Lo, s.Hi)
			return
		}
	}
	s.Knee = measure.Knee(workers, rates, kneeShare)
	if ok {
		s.Serial = &serial
	}
}

// summary is the phase in a line.
func (s *sweepPhase) summary() string {
	if s.Why != "" {
		return s.Test + ": neither knee nor S: " + s.Why
	}
	text := fmt.Sprintf("%s: knee at %s", s.Test, measure.ThreadsText(s.Knee))
	if s.Serial == nil {
		return text + "; one number of threads is no fit"
	}
	spread := fmt.Sprintf(" (%.3f–%.3f)", s.Lo, s.Hi)
	if s.Lo == 0 && s.Hi == 0 {
		spread = ""
		for _, x := range s.Points {
			if x.N < 2 {
				spread = " (one repetition: nobody knows how far off)"
			}
		}
	}
	text += fmt.Sprintf("; S = %.3f%s", *s.Serial, spread)
	switch {
	case *s.Serial < 0.001:
		return text + ": no limit to be seen"
	case *s.Serial > 0.999:
		return text + ": more threads gain nothing"
	}
	return text + fmt.Sprintf(", at most %.3g times the speed of one thread", 1 / *s.Serial)
}

// runSweep is ckbench sweep.
func (p *program) runSweep(c *cobra.Command, args []string) error {
	o := &p.sweep
	if len(args) > 0 {
		return cli.Usage("sweep: takes no words; see ckbench sweep --help")
	}
	threads, err := o.threadList()
	if err != nil {
		return err
	}
	if o.threads == "" {
		m, err := topo.Read("")
		if err != nil {
			return err
		}
		threads = sweepThreads(m)
	}
	var tests []test
	if o.prompt > 0 {
		tests = append(tests, test{prompt: o.prompt, depth: o.depth, rows: 1})
	}
	if o.gen > 0 {
		tests = append(tests, test{gen: o.gen, depth: o.depth, rows: 1})
	}
	if len(tests) == 0 {
		return cli.Usage("-p 0 -n 0: nothing to measure; ask for at least one test")
	}
	m, err := generate.Open(p.app.Common.Model)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := fits(tests, m.Context); err != nil {
		return err
	}
	p.run.noRoof, p.run.reps, p.run.most = true, o.reps, sweepMost*o.reps // the bench's settings
	phases := make([]sweepPhase, len(tests))
	bar := p.app.NewProgress("measuring", "repetitions", int64(len(threads)*len(tests)*o.reps))
	defer bar.Done()
	done := int64(0)
	for _, n := range threads {
		err := p.withBench(c.Context(), m, &o.engineFlags, n, func(b *bench) error {
			for i, t := range tests {
				r, err := b.measure(t, func() { done++; bar.At(done) })
				if err != nil {
					return err
				}
				p.explain(r)
				phases[i].Test = r.Test
				phases[i].Points = append(phases[i].Points, sweepPoint{Threads: n, TS: r.TS.Median, Lo: r.TS.Lo, Hi: r.TS.Hi, N: r.TS.N, GBps: r.GBps, GOPs: r.GOPs})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	bar.Done()
	for i := range phases {
		phases[i].fit()
	}
	return p.printSweep(phases)
}

// sweepThreads are all numbers up to 16, then each an eighth more than the one before, up to all CPUs with SMT siblings.
func sweepThreads(m topo.Machine) []int {
	var list []int
	limit := len(m.Affinity)
	if q := m.QuotaWorkers(); q > 0 {
		limit = min(limit, q)
	}
	for n := 1; n < limit; n += max(1, n/8) {
		list = append(list, n)
	}
	return append(list, limit)
}

func (p *program) printSweep(phases []sweepPhase) error {
	switch c := &p.app.Common; {
	case c.JSONL:
		return cli.PrintLines(p.app, "ck.bench.sweep.phase/1", phases)
	case c.JSON:
		return p.app.PrintJSON(struct {
			Schema   string       `json:"schema"`
			Phases   []sweepPhase `json:"phases"`
			Warnings []string     `json:"warnings"`
		}{"ck.bench.sweep/1", phases, p.app.Warnings()})
	}
	t := cli.Table{Head: []string{"test", "threads", "t/s", "interval", "speed-up", "GB/s", "GOP/s"}, Right: []bool{false, true, true, true, true, true, true}}
	for _, s := range phases {
		for _, x := range s.Points {
			t.Rows = append(t.Rows, []string{s.Test, strconv.Itoa(x.Threads), measure.Digits(x.TS), measure.Digits(x.Lo) + "–" + measure.Digits(x.Hi), fmt.Sprintf("%.2f", x.SpeedUp), measure.Digits(x.GBps),
				measure.Digits(x.GOPs)})
		}
	}
	if err := writeTable(&t, p.app.Out, p.app.Common.Plain, 2); err != nil {
		return cli.OutError(err)
	}
	if p.app.Common.Plain {
		fits := cli.Table{Head: []string{"test", "knee", "serial share"}}
		for _, s := range phases {
			serial := "–"
			if s.Serial != nil {
				serial = fmt.Sprintf("%.3f", *s.Serial)
			}
			knee := "–"
			if s.Why == "" {
				knee = strconv.Itoa(s.Knee)
			}
			fits.Rows = append(fits.Rows, []string{s.Test, knee, serial})
		}
		return cli.OutError(fits.Write(p.app.Out, true))
	}
	for _, s := range phases {
		if _, err := fmt.Fprintln(p.app.Text(), s.summary()); err != nil {
			return cli.OutError(err)
		}
	}
	return nil
}
