package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/measure"
	"ck/internal/team"
	"ck/internal/topo"
)

// machineOptions are the flags of the commands that look at the machine alone.
type machineOptions struct {
	threads string
	samples int
	file    string
}

const settleLong = ` Samples are taken until the best three agree to 3 %, at most four times as many as usual. "median in" is the interval of their median: where the best sample is far above it, something disturbed, and stderr says what was seen: other processes, steal time, pages read from disk.`

func (p *program) machineCommands() {
	o := &p.machine
	add := func(name, short, long string, run func(context.Context, topo.Machine, []int) error, threads string) *cobra.Command {
		c := p.app.NewCommand(name+" [flags]", short, long, func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usage("%s: takes no words; see ckbench %s --help", name, name)
			}
			m, err := topo.Read("")
			if err != nil {
				return err
			}
			list, err := o.threadList(m)
			if err != nil {
				return err
			}
			return run(c.Context(), m, list)
		})
		if threads != "" {
			cli.NewGroup(c.Flags(), "Measurement").Text(&o.threads, "threads", "t", "", "LIST", threads)
		}
		return c
	}
	const oneAndAll = "numbers of threads; default: one, and all cores"
	c := add("bandwidth", "read bandwidth of caches and memory", `Measures how fast threads read each level of the memory hierarchy, each its own working set: the best of several samples, each with all read loops (256-bit and 512-bit loads, 1, 2 and 4 streams). GB/s is 1e9 bytes per second, of all threads together.`+settleLong+` A level that is slower than one further from the core, or than with fewer threads, is measured again, and if it stays so it is marked: it is no roof.`+fileLong, p.runBandwidth, oneAndAll)
	g := cli.NewGroup(c.Flags(), "Measurement")
	g.Int(&o.samples, "samples", "", 5, 1, 1000, "N", "samples of each level at least, or readings of the file in each way")
	g.Text(&o.file, "file", "", "", "FILE", "measure reading this file instead")
	add("latency", "latency of caches and memory", `Measures the time from one load to the next where each needs the one before: a random walk over the cache lines of working sets of growing size, on one thread. Huge pages keep address translation out of it, where the system gives them.`+settleLong, p.runLatency, "")
	add("barrier", "time of a barrier of threads", `Measures how long pinned threads take to wait for each other, over and over, as between the steps of a walk.`+settleLong, p.runBarrier,
		"numbers of threads; default: 2 up to all cores")
	add("allreduce", "time to add up vectors of threads", `Measures how long threads take to add up a vector of each, until all can read the sum.`+settleLong, p.runAllReduce,
		"numbers of threads; default: 2 up to all cores")
}

// threadList is the list of -t, else one and all cores.
func (o *machineOptions) threadList(m topo.Machine) ([]int, error) {
	if o.threads != "" {
		return parseList("-t/--threads", o.threads, 1, 4096)
	}
	cpus, _ := m.Workers()
	if len(cpus) == 1 {
		return []int{1}, nil
	}
	return []int{1, len(cpus)}, nil
}

// withTeam runs f with a team of n pinned threads; where pinning is refused, they are not.
func withTeam(m topo.Machine, n int, f func(*team.Team) error) error {
	cpus := m.CPUsFor(n)
	own, _ := m.Workers()
	t, err := team.New(cpus, team.Options{Pin: n <= len(own), Quota: len(own)})
	if err != nil {
		if t, err = team.New(cpus, team.Options{Quota: len(own)}); err != nil {
			return err
		}
	}
	defer t.Close()
	return f(t)
}

// bandwidthRow is a line of the bandwidth table.
type bandwidthRow struct {
	Level      string         `json:"level"`
	Threads    int            `json:"threads"`
	Bytes      int            `json:"bytes_per_thread"`
	Loop       string         `json:"loop"`                  // that was best
	GBps       float64        `json:"gb_per_s"`              // the best sample
	SlowerThan string         `json:"slower_than,omitempty"` // what cannot be faster, and was: this is no roof
	Samples    measure.Series `json:"samples"`               // GB/s
}

func (r *bandwidthRow) name() string { return r.Level + " with " + threadsText(r.Threads) }

func threadsText(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}

// again is how often a figure that others contradict is measured once more.
const again = 2

// bandwidths measures all levels with n threads.
func bandwidths(ctx context.Context, m topo.Machine, n, samples int) ([]bandwidthRow, error) {
	var out []bandwidthRow
	err := withTeam(m, n, func(t *team.Team) error {
		levels := measure.Levels(m, n)
		read := func(l measure.Level) (bandwidthRow, error) {
			r, err := measure.ReadLevel(ctx, t, l, samples)
			s := r.Series.Scale(1e-9)
			return bandwidthRow{Level: l.Name, Threads: n, Bytes: l.Bytes, Loop: r.Loop, GBps: s.Best, Samples: s}, err
		}
		for _, l := range levels {
			left, _, known := m.Budget()
			switch need := 2 * int64(l.Bytes) * int64(n); {
			case l.Bytes == 0:
				return cli.Resource("%s: the %d MiB of memory that are left are too few to tell it from the caches with %d threads; name fewer threads", l.Name, left>>20, n)
			case known && need > left:
				return cli.Resource("%s: %d threads take %d MiB of memory, half of which must stay free, and %d MiB are left; name fewer threads", l.Name, n, need>>20, left>>20)
			}
			r, err := read(l)
			if err != nil {
				return err
			}
			out = append(out, r)
		}
		for range again {
			if !contradict(out) {
				break
			}
			for i := range out {
				if out[i].SlowerThan == "" {
					continue
				}
				r, err := read(levels[i])
				if err != nil {
					return err
				}
				if r.GBps > out[i].GBps {
					out[i].GBps, out[i].Loop = r.GBps, r.Loop
				}
				out[i].Samples = measure.Better(out[i].Samples, r.Samples, measure.HighIsBest)
			}
		}
		contradict(out)
		return nil
	})
	return out, err
}

// contradict marks rows that cannot be roofs, since a level further from the core, or the same level with fewer threads, was faster. It
// reports whether there are any.
func contradict(rows []bandwidthRow) (any bool) {
	byThreads := map[int][]*bandwidthRow{}
	for i := range rows {
		r := &rows[i]
		r.SlowerThan = ""
		byThreads[r.Threads] = append(byThreads[r.Threads], r)
	}
	for _, list := range byThreads {
		rates := make([]float64, len(list))
		for i, r := range list {
			rates[i] = r.GBps
		}
		for i, j := range measure.Contradictions(rates, measure.RatesApart) {
			if j >= 0 {
				list[i].SlowerThan, any = list[j].Level, true
			}
		}
	}
	for i := range rows {
		for j := range rows {
			a, b := &rows[i], &rows[j]
			if a.SlowerThan == "" && a.Level == b.Level && b.Threads < a.Threads && measure.Contradictions([]float64{a.GBps, b.GBps}, measure.RatesApart)[0] >= 0 {
				a.SlowerThan, any = b.name(), true
			}
		}
	}
	return any
}

// figure is a series with its name, for warnings.
type figure struct {
	name, unit string
	measure.Series
}

// doubt says on stderr what disturbed the samples of figures and which of them did not settle. bound is what disturbed figures are: a
// lower or an upper bound.
func (p *program) doubt(list []figure, bound string) {
	var noise []measure.Noise
	var loose []string
	for _, f := range list {
		noise = append(noise, f.Noise)
		if !f.Stable {
			loose = append(loose, fmt.Sprintf("%s (%d samples, %s–%s %s)", f.name, f.N, fixed(f.Min), fixed(f.Max), f.unit))
		}
	}
	if why := measure.Together(noise).Reasons(); len(why) > 0 {
		p.app.Warn("all samples together: %s; what is measured is %s", strings.Join(why, ", "), bound)
	}
	if len(loose) > 3 {
		loose = append(loose[:3], fmt.Sprintf("%d more", len(loose)-3))
	}
	if len(loose) > 0 {
		p.app.Warn("the best samples do not agree to 3 %%: %s; measure again when nothing else runs", strings.Join(loose, ", "))
	}
}

const (
	lowerBound = "a lower bound"
	upperBound = "an upper bound"
)

// doubtBandwidth is doubt for the levels, and names those that others contradict.
func (p *program) doubtBandwidth(rows []bandwidthRow) {
	var list []figure
	for i := range rows {
		list = append(list, figure{rows[i].name(), "GB/s", rows[i].Samples})
	}
	p.doubt(list, lowerBound)
	for i := range rows {
		if r := &rows[i]; r.SlowerThan != "" {
			p.app.Warn("%s: was slower than %s, which cannot be; it is no roof: measure again when nothing else runs", r.name(), r.SlowerThan)
		}
	}
}

// interval is the cell of a series: the interval of its median.
func interval(s measure.Series) string {
	if s.N < 2 {
		return "–"
	}
	return fmt.Sprintf("%s–%s (%.0f%%)", fixed(s.Lo), fixed(s.Hi), 100*s.Level)
}

// rowsDoc says how a table's rows are written as JSON: a document ck.bench.NAME/1 with the rows below KEY, or lines of the schema
// ck.bench.NAME.ROW/1.
type rowsDoc struct{ name, key, row string }

// printRows prints rows as JSON, as JSON lines or as a table. names is how many of the first columns together tell one row from the others.
func printRows[T any](p *program, d rowsDoc, rows []T, head []string, cells [][]string, names int) error {
	switch c := &p.app.Common; {
	case c.JSONL:
		return cli.PrintLines(p.app, fmt.Sprintf("ck.bench.%s.%s/1", d.name, d.row), rows)
	case c.JSON:
		return p.app.PrintJSON(map[string]any{"schema": "ck.bench." + d.name + "/1", d.key: rows, "warnings": p.app.Warnings()})
	}
	right := make([]bool, len(head))
	for i := range right {
		right[i] = i > 0 && head[i] != "note"
	}
	t := cli.Table{Head: head, Right: right, Rows: cells}
	return cli.OutError(writeTable(&t, p.app.Out, p.app.Common.Plain, names))
}

// writeTable writes a table whose rows the first columns together name, names of them. The plain form names each row by all of them:
// "L1 (threads 2) GB/s<TAB>100".
func writeTable(t *cli.Table, w io.Writer, plain bool, names int) error {
	if !plain || names == 1 {
		return t.Write(w, plain)
	}
	named := cli.Table{Head: t.Head}
	for _, r := range t.Rows {
		var more []string
		for i := 1; i < names; i++ {
			more = append(more, t.Head[i]+" "+r[i])
		}
		row := slices.Clone(r)
		row[0] += " (" + strings.Join(more, ", ") + ")"
		named.Rows = append(named.Rows, row)
	}
	return named.Write(w, true)
}

func size(n int) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.4g KiB", float64(n)/(1<<10))
}

func (p *program) runBandwidth(ctx context.Context, m topo.Machine, threads []int) error {
	if p.machine.file != "" {
		return p.fileBandwidth(ctx, p.machine.file)
	}
	var rows []bandwidthRow
	for _, n := range threads {
		r, err := bandwidths(ctx, m, n, p.machine.samples)
		if err != nil {
			return err
		}
		rows = append(rows, r...)
	}
	contradict(rows)
	p.doubtBandwidth(rows)
	return printRows(p, rowsDoc{"bandwidth", "levels", "level"}, rows, bandwidthHead, bandwidthCells(rows), 2)
}

var bandwidthHead = []string{"level", "threads", "set of each", "best loop", "GB/s", "median in", "note"}

func bandwidthCells(rows []bandwidthRow) [][]string {
	var cells [][]string
	for _, r := range rows {
		note := ""
		if r.SlowerThan != "" {
			note = "no roof: slower than " + r.SlowerThan
		}
		cells = append(cells, []string{r.Level, strconv.Itoa(r.Threads), size(r.Bytes), r.Loop, fixed(r.GBps), interval(r.Samples), note})
	}
	return cells
}

// latencyRow is a line of the latency table.
type latencyRow struct {
	Bytes      int            `json:"bytes"`
	Ns         float64        `json:"ns"`
	SlowerThan string         `json:"slower_than,omitempty"` // a larger set, which cannot be faster, and was
	Samples    measure.Series `json:"samples"`               // ns
}

func (p *program) runLatency(ctx context.Context, m topo.Machine, _ []int) error {
	var rows []latencyRow
	err := withTeam(m, 1, func(t *team.Team) error {
		defer t.Hold()()
		limit := max(4*int(m.L3.Bytes), 256<<20)
		left, _, known := m.Budget()
		for n := 16 << 10; n <= limit; n *= 2 {
			if known && int64(n) > left/2 {
				p.app.Warn("sets of %s and more are left out: half of the memory must stay free, and %d MiB are left", size(n), left>>20)
				break
			}
			s, err := measure.LatencyNs(ctx, n)
			if err != nil {
				return err
			}
			rows = append(rows, latencyRow{Bytes: n, Ns: s.Best, Samples: s})
		}
		for range again {
			for i := range contradictLatency(rows) {
				s, err := measure.LatencyNs(ctx, rows[i].Bytes)
				if err != nil {
					return err
				}
				rows[i].Samples = measure.Better(rows[i].Samples, s, measure.LowIsBest)
				rows[i].Ns = rows[i].Samples.Best
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var list []figure
	for _, r := range rows {
		list = append(list, figure{size(r.Bytes), "ns", r.Samples})
	}
	p.doubt(list, upperBound)
	var cells [][]string
	wrong := contradictLatency(rows)
	for i := range rows {
		r, note := &rows[i], ""
		if wrong[i] {
			note = "slower than " + r.SlowerThan
			p.app.Warn("%s: was slower than %s, which cannot be; measure again when nothing else runs", size(r.Bytes), r.SlowerThan)
		}
		cells = append(cells, []string{size(r.Bytes), level(m, r.Bytes), fmt.Sprintf("%.2f", r.Ns), interval(r.Samples), note})
	}
	return printRows(p, rowsDoc{"latency", "sets", "set"}, rows, []string{"working set", "fits into", "ns", "median in", "note"}, cells, 1)
}

// contradictLatency marks sets for which a larger one was faster, and returns their indices.
func contradictLatency(rows []latencyRow) map[int]bool {
	rates := make([]float64, len(rows))
	for i, r := range rows {
		rates[i] = 1 / r.Ns
	}
	out := map[int]bool{}
	for i, j := range measure.Contradictions(rates, measure.LatenciesApart) {
		rows[i].SlowerThan = ""
		if j >= 0 {
			rows[i].SlowerThan, out[i] = size(rows[j].Bytes), true
		}
	}
	return out
}

// level is the smallest level that holds n bytes.
func level(m topo.Machine, n int) string {
	for _, l := range []struct {
		name  string
		bytes int64
	}{{"L1", m.L1d.Bytes}, {"L2", m.L2.Bytes}, {"L3", m.L3.Bytes}} {
		if int64(n) <= l.bytes {
			return l.name
		}
	}
	return "DRAM"
}

// several are the thread numbers of commands that need two threads at least.
func (p *program) several(m topo.Machine, list []int) ([]int, error) {
	if p.machine.threads == "" {
		list = nil
		cpus, _ := m.Workers()
		for n := 2; n < len(cpus); n *= 2 {
			list = append(list, n)
		}
		list = append(list, max(2, len(cpus)))
	}
	for _, n := range list {
		if n < 2 {
			return nil, cli.Usage("-t/--threads: %d thread has nobody to wait for; name two or more", n)
		}
	}
	return list, nil
}

func (p *program) runBarrier(ctx context.Context, m topo.Machine, list []int) error {
	type row struct {
		Threads int            `json:"threads"`
		Ns      float64        `json:"ns"`
		Samples measure.Series `json:"samples"` // ns
	}
	list, err := p.several(m, list)
	if err != nil {
		return err
	}
	var rows []row
	var cells [][]string
	var figures []figure
	for _, n := range list {
		err := withTeam(m, n, func(t *team.Team) error {
			s, err := measure.Barrier(ctx, t)
			rows = append(rows, row{n, s.Best, s})
			cells = append(cells, []string{strconv.Itoa(n), fmt.Sprintf("%.1f", s.Best), interval(s)})
			figures = append(figures, figure{threadsText(n), "ns", s})
			return err
		})
		if err != nil {
			return err
		}
	}
	p.doubt(figures, upperBound)
	return printRows(p, rowsDoc{"barrier", "teams", "team"}, rows, []string{"threads", "ns", "median in"}, cells, 1)
}

func (p *program) runAllReduce(ctx context.Context, m topo.Machine, list []int) error {
	type row struct {
		Threads int            `json:"threads"`
		Floats  int            `json:"floats"`
		Us      float64        `json:"us"`
		GBps    float64        `json:"gb_per_s"` // of vectors
		Samples measure.Series `json:"samples"`  // us
	}
	list, err := p.several(m, list)
	if err != nil {
		return err
	}
	f := isa.Detect()
	tbl := kernel.For(isa.Best(f), f)
	var rows []row
	var cells [][]string
	var figures []figure
	for _, n := range list {
		err := withTeam(m, n, func(t *team.Team) error {
			for _, floats := range []int{1 << 10, 1 << 12, 1 << 14, 1 << 17, 1 << 20} {
				s, err := measure.AllReduce(ctx, t, tbl, floats)
				if err != nil {
					return err
				}
				s = s.Scale(1e-3)
				r := row{n, floats, s.Best, float64(4*floats*n) / s.Best / 1e3, s}
				rows = append(rows, r)
				cells = append(cells, []string{strconv.Itoa(n), strconv.Itoa(floats), fmt.Sprintf("%.2f", r.Us), interval(s), fixed(r.GBps)})
				figures = append(figures, figure{fmt.Sprintf("%d floats with %s", floats, threadsText(n)), "us", s})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	p.doubt(figures, upperBound)
	return printRows(p, rowsDoc{"allreduce", "vectors", "vector"}, rows, []string{"threads", "floats", "us", "median in", "GB/s"}, cells, 2)
}
