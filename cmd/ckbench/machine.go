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
	c := add("bandwidth", "read bandwidth of caches and memory", `Measures how fast threads read each level of the memory hierarchy, each its own working set: the best of several samples of each read loop (256-bit and 512-bit loads, 1, 2 and 4 streams). GB/s is 1e9 bytes per second, of all threads together.`+fileLong, p.runBandwidth, oneAndAll)
	g := cli.NewGroup(c.Flags(), "Measurement")
	g.Int(&o.samples, "samples", "", 5, 1, 1000, "N", "samples of each loop, or readings of the file in each way")
	g.Text(&o.file, "file", "", "", "FILE", "measure reading this file instead")
	add("latency", "latency of caches and memory", `Measures the time from one load to the next where each needs the one before: a random walk over the cache lines of working sets of growing size, on one thread. Huge pages keep address translation out of it, where the system gives them.`, p.runLatency, "")
	add("barrier", "time of a barrier of threads", `Measures how long pinned threads take to wait for each other, over and over, as between the steps of a walk.`, p.runBarrier,
		"numbers of threads; default: 2 up to all cores")
	add("allreduce", "time to add up vectors of threads", `Measures how long threads take to add up a vector of each, until all can read the sum.`, p.runAllReduce,
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
	Level   string  `json:"level"`
	Threads int     `json:"threads"`
	Bytes   int     `json:"bytes_per_thread"`
	Loop    string  `json:"loop"` // that was best
	GBps    float64 `json:"gb_per_s"`
}

// bandwidths measures all levels with n threads.
func bandwidths(ctx context.Context, m topo.Machine, n, samples int) ([]bandwidthRow, error) {
	var out []bandwidthRow
	err := withTeam(m, n, func(t *team.Team) error {
		for _, l := range measure.Levels(m, n) {
			left, _, known := m.Budget()
			switch need := 2 * int64(l.Bytes) * int64(n); {
			case l.Bytes == 0:
				return cli.Resource("%s: the %d MiB of memory that are left are too few to tell it from the caches with %d threads; name fewer threads", l.Name, left>>20, n)
			case known && need > left:
				return cli.Resource("%s: %d threads take %d MiB of memory, half of which must stay free, and %d MiB are left; name fewer threads", l.Name, n, need>>20, left>>20)
			}
			rates, err := measure.ReadLevel(ctx, t, l, samples)
			if err != nil {
				return err
			}
			best := slices.MaxFunc(rates, func(a, b measure.Rate) int { return compareFloats(a.Rate, b.Rate) })
			out = append(out, bandwidthRow{l.Name, n, l.Bytes, best.Loop, best.Rate / 1e9})
		}
		return nil
	})
	return out, err
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// table prints rows as JSON or as a table.
//
// names is how many of the first columns together tell one row from the others.
func (p *program) table(schema, key string, rows any, head []string, cells [][]string, names int) error {
	if p.app.Common.JSON {
		return p.app.PrintJSON(map[string]any{"schema": schema, key: rows})
	}
	right := make([]bool, len(head))
	for i := range right {
		right[i] = i > 0
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
	return p.table("ck.bench.bandwidth/1", "levels", rows, []string{"level", "threads", "set of each", "best loop", "GB/s"}, bandwidthCells(rows), 2)
}

func bandwidthCells(rows []bandwidthRow) [][]string {
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{r.Level, strconv.Itoa(r.Threads), size(r.Bytes), r.Loop, fixed(r.GBps)})
	}
	return cells
}

func (p *program) runLatency(ctx context.Context, m topo.Machine, _ []int) error {
	type row struct {
		Bytes int     `json:"bytes"`
		Ns    float64 `json:"ns"`
	}
	var rows []row
	var cells [][]string
	err := withTeam(m, 1, func(t *team.Team) error {
		defer t.Hold()()
		limit := max(4*int(m.L3.Bytes), 256<<20)
		left, _, known := m.Budget()
		for n := 16 << 10; n <= limit; n *= 2 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if known && int64(n) > left/2 {
				p.app.Warn("sets of %s and more are left out: half of the memory must stay free, and %d MiB are left", size(n), left>>20)
				break
			}
			ns, err := measure.LatencyNs(n)
			if err != nil {
				return err
			}
			rows = append(rows, row{n, ns})
			cells = append(cells, []string{size(n), level(m, n), fmt.Sprintf("%.2f", ns)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.table("ck.bench.latency/1", "sets", rows, []string{"working set", "fits into", "ns"}, cells, 1)
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
		Threads int     `json:"threads"`
		Ns      float64 `json:"ns"`
	}
	list, err := p.several(m, list)
	if err != nil {
		return err
	}
	var rows []row
	var cells [][]string
	for _, n := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := withTeam(m, n, func(t *team.Team) error {
			s, err := measure.Barrier(t)
			rows = append(rows, row{n, s * 1e9})
			cells = append(cells, []string{strconv.Itoa(n), fmt.Sprintf("%.1f", s*1e9)})
			return err
		})
		if err != nil {
			return err
		}
	}
	return p.table("ck.bench.barrier/1", "teams", rows, []string{"threads", "ns"}, cells, 1)
}

func (p *program) runAllReduce(ctx context.Context, m topo.Machine, list []int) error {
	type row struct {
		Threads int     `json:"threads"`
		Floats  int     `json:"floats"`
		Us      float64 `json:"us"`
		GBps    float64 `json:"gb_per_s"` // of vectors
	}
	list, err := p.several(m, list)
	if err != nil {
		return err
	}
	f := isa.Detect()
	tbl := kernel.For(isa.Best(f), f)
	var rows []row
	var cells [][]string
	for _, n := range list {
		err := withTeam(m, n, func(t *team.Team) error {
			for _, floats := range []int{1 << 10, 1 << 12, 1 << 14, 1 << 17, 1 << 20} {
				if err := ctx.Err(); err != nil {
					return err
				}
				s, err := measure.AllReduce(t, tbl, floats)
				if err != nil {
					return err
				}
				r := row{n, floats, s * 1e6, float64(4*floats*n) / s / 1e9}
				rows = append(rows, r)
				cells = append(cells, []string{strconv.Itoa(n), strconv.Itoa(floats), fmt.Sprintf("%.2f", r.Us), fixed(r.GBps)})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return p.table("ck.bench.allreduce/1", "vectors", rows, []string{"threads", "floats", "us", "GB/s"}, cells, 2)
}
