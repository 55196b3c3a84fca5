package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"ck/internal/bench/format"
	"ck/internal/cli"
	"ck/internal/measure"
	"ck/internal/plaintext"
	"ck/internal/probe"
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
			m, err := topo.Live()
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
	t := plaintext.Table{Head: head, Right: right, Rows: cells}
	return cli.OutError(format.Table(&t, p.app.Out, p.app.Common.Plain, names))
}

func (p *program) runBandwidth(ctx context.Context, m topo.Machine, threads []int) error {
	if p.machine.file != "" {
		return p.fileBandwidth(ctx, p.machine.file)
	}
	var rows []probe.Bandwidth
	for _, n := range threads {
		r, err := probe.Bandwidths(ctx, m, n, p.machine.samples)
		if err != nil {
			return err
		}
		rows = append(rows, r...)
	}
	probe.Contradict(rows)
	p.warn(probe.DoubtBandwidths(rows))
	return printRows(p, rowsDoc{"bandwidth", "levels", "level"}, rows, format.BandwidthHead, format.BandwidthCells(rows), 2)
}

func (p *program) runLatency(ctx context.Context, m topo.Machine, _ []int) error {
	rows, note, err := probe.Latencies(ctx, m)
	if note != "" {
		p.app.Warn("%s", note)
	}
	if err != nil {
		return err
	}
	p.warn(probe.DoubtLatencies(rows))
	var cells [][]string
	wrong := probe.ContradictLatency(rows)
	for i := range rows {
		r, note := &rows[i], ""
		if wrong[i] {
			note = "slower than " + r.SlowerThan
			p.app.Warn("%s: was slower than %s, which cannot be; measure again when nothing else runs", measure.SizeText(r.Bytes), r.SlowerThan)
		}
		cells = append(cells, []string{measure.SizeText(r.Bytes), level(m, r.Bytes), fmt.Sprintf("%.2f", r.Ns), format.Interval(r.Samples), note})
	}
	return printRows(p, rowsDoc{"latency", "sets", "set"}, rows, []string{"working set", "fits into", "ns", "median in", "note"}, cells, 1)
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
	list, err := p.several(m, list)
	if err != nil {
		return err
	}
	rows, err := probe.Barriers(ctx, m, list)
	if err != nil {
		return err
	}
	p.warn(probe.DoubtBarriers(rows))
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{strconv.Itoa(r.Threads), fmt.Sprintf("%.1f", r.Ns), format.Interval(r.Samples)})
	}
	return printRows(p, rowsDoc{"barrier", "teams", "team"}, rows, []string{"threads", "ns", "median in"}, cells, 1)
}

func (p *program) runAllReduce(ctx context.Context, m topo.Machine, list []int) error {
	list, err := p.several(m, list)
	if err != nil {
		return err
	}
	rows, err := probe.AllReduces(ctx, m, list)
	if err != nil {
		return err
	}
	p.warn(probe.DoubtAllReduces(rows))
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{strconv.Itoa(r.Threads), strconv.Itoa(r.Floats), fmt.Sprintf("%.2f", r.Us), format.Interval(r.Samples), measure.Digits(r.GBps)})
	}
	return printRows(p, rowsDoc{"allreduce", "vectors", "vector"}, rows, []string{"threads", "floats", "us", "median in", "GB/s"}, cells, 2)
}

// warn says on stderr what is doubtful.
func (p *program) warn(doubts []string) {
	for _, s := range doubts {
		p.app.Warn("%s", s)
	}
}
