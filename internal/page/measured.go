package page

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ck/internal/humanize"
	"ck/internal/probe"
)

// section is the figures as a part of the report.
func measuredSection(h *probe.Figures) section {
	sec := section{name: "measured here"}
	parts := func(name string, properties ...any) {
		if f := sec.addThing(name, properties...); len(f.parts) == 0 {
			sec.facts = sec.facts[:len(sec.facts)-1]
		}
	}
	// or leaves a text out where its figure is not there.
	or := func(v float64, text func(float64) string) string {
		if v <= 0 {
			return ""
		}
		return text(v)
	}
	parts("clock", "one busy core", or(h.Clock, humanize.Hertz), "after a rest", or(h.ClockFirst, humanize.Hertz), h.StatedBy+" says", or(h.Stated, humanize.Hertz))
	all := humanize.Plural(h.Threads, "core")
	if h.Threads < 2 {
		all = "all cores"
	}
	channel := func(float64) string { return "38.4 GB/s (published)" }
	parts("memory", "one core reads", or(h.ReadOne, humanize.GBps), all+" read", or(h.ReadAll, humanize.GBps), "a channel of DDR5-4800 carries", or(h.ReadAll, channel))
	parts("8-bit integers", "one core", or(h.OpsOne, humanize.Ops), all, or(h.OpsAll, humanize.Ops))
	parts("threads of a core", "one reads", or(h.Alone.Read, humanize.GBps), "two read", or(h.Siblings.Read, humanize.GBps), "one computes", or(h.Alone.Ops, humanize.Ops),
		"two compute", or(h.Siblings.Ops, humanize.Ops))
	parts("pages of 4 KiB", "read at", or(h.Small.Read, humanize.GBps), "a jump", or(h.Small.Jump, humanize.Nanoseconds), "first use of 1 GiB", or(h.Small.Touch, humanize.Milliseconds))
	parts("huge pages", "read at", or(h.Huge.Read, humanize.GBps), "a jump", or(h.Huge.Jump, humanize.Nanoseconds), "first use of 1 GiB", or(h.Huge.Touch, humanize.Milliseconds),
		"given", or(h.HugeShare, func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }))
	parts("quota", "time got", or(h.Got, func(v float64) string { return fmt.Sprintf("%.2f CPUs", v) }), "longest pause", or(h.Pause, humanize.Milliseconds))
	parts("kernel", "a system call", or(h.Syscall, humanize.Nanoseconds), "a look at the clock", or(h.Now, humanize.Nanoseconds))
	parts("model's pages", "a near core reads", or(h.Near, humanize.GBps), "a far core reads", or(h.Far, humanize.GBps))
	parts("meanwhile", "stolen", fmt.Sprintf("%.1f %%", 100*h.Noise.Steal), "other processes on", fmt.Sprintf("%.1f CPUs", h.Noise.OtherLoad),
		"took", fmt.Sprintf("%.1f s", h.Seconds))
	for i, why := range h.Why {
		sec.add(fmt.Sprintf("not measured %d", i+1), why)
	}
	return sec
}

// section is the pages as a part of the report.
func modelSection(p *probe.FilePages) section {
	sec := section{name: "model"}
	sec.add("files", fmt.Sprintf("%s, %s", humanize.Plural(len(p.Files), "file"), humanize.IBytes(p.Bytes)))
	if p.Pages > 0 {
		sec.add("in memory", fmt.Sprintf("%s, by a sample of %s", humanize.Percent(int64(p.Cached), int64(p.Pages)), humanize.Plural(p.Pages, "page")))
	}
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(p.Nodes)) {
		parts = append(parts, "node "+strconv.Itoa(node)+" "+humanize.Percent(int64(p.Nodes[node]), int64(p.Cached)))
	}
	sec.add("on", strings.Join(parts, ", "))
	sec.add("not told", p.Unknown)
	return sec
}
