package main

import (
	"context"

	"ck/internal/cli"
	"ck/internal/measure"
	"ck/internal/plaintext"
	"ck/internal/probe"
)

const fileLong = `

With --file, how fast one thread reads a file from its beginning: by read, mapped, past the page cache (O_DIRECT), and past it with several reads in flight (io_uring), which is what fast disks need. The ways take turns, half a second or 1 GiB each, and the table has medians with their interval. Before each reading the file is dropped from the page cache; where pages stay, because a process has mapped them or the file system is memory, the note says it. The last rows read what lies in the page cache. The host of a virtual machine may cache what the guest did not. A way that the system does not allow is named with the reason.`

// fileBandwidth is ckbench bandwidth --file.
func (p *program) fileBandwidth(ctx context.Context, name string) error {
	var bar *cli.Progress
	defer func() { bar.Done() }()
	ways, err := probe.ReadFile(ctx, name, p.machine.samples, func(done, of int64) {
		if bar == nil {
			bar = p.app.NewProgress("reading", "samples", of)
		}
		bar.At(done)
	})
	if err != nil {
		return err
	}
	bar.Done()
	return p.printFile(ways)
}

func (p *program) printFile(rows []*probe.FileWay) error {
	if p.app.Common.JSONL {
		return cli.PrintLines(p.app, "ck.bench.file.way/1", rows)
	}
	if p.app.Common.JSON {
		return p.app.PrintJSON(map[string]any{"schema": "ck.bench.file/2", "ways": rows})
	}
	t := plaintext.Table{Head: []string{"way", "page cache", "MB", "GB/s", "from", "to", "note"}, Right: []bool{false, false, true, true, true, true, false}}
	for _, w := range rows {
		cells := []string{w.Name(), w.Cache, "–", "–", "–", "–", w.Note}
		if w.GBps > 0 {
			cells[2], cells[3], cells[4], cells[5] = measure.Digits(w.MB), measure.Digits(w.GBps), measure.Digits(w.Samples.Lo), measure.Digits(w.Samples.Hi)
		}
		t.Rows = append(t.Rows, cells)
	}
	if p.app.Common.Plain { // the first column names the row
		for i, w := range rows {
			t.Rows[i][0] += ", " + w.Cache
		}
	}
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}
