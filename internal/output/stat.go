package output

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/plan"
	"ck/internal/team"
)

// PrintStat writes how fast a generation was and where the memory is. load is 0 where it was said before; turn: res is of
// a chat's turn, which did not begin with the program.
func PrintStat(w io.Writer, e *engine.Engine, res generate.Result, load time.Duration, turn bool) {
	line := func(name, format string, a ...any) { fmt.Fprintf(w, "%-9s "+format+"\n", append([]any{name}, a...)...) }
	if load > 0 {
		line("load", "%.1f ms", float64(load.Microseconds())/1e3)
	}
	line("prefill", "%s", phase(res.Prefill))
	decode := phase(res.Decode)
	if res.Decode.Tokens > 0 {
		decode += fmt.Sprintf(", %.2f GB/s of weights", weightRate(e, res.Decode)/1e9)
	}
	line("decode", "%s", decode)
	if res.FirstNs > 0 {
		from, first := "program's start", load+time.Duration(res.FirstNs)
		if turn {
			from, first = "end of the message", time.Duration(res.FirstNs)
		}
		line("first", "%.1f ms from the %s to the first token", float64(first.Microseconds())/1e3, from)
	}
	if c := e.Choices(); len(c) > 0 {
		line("experts", "%s", Experts(c))
	}
	line("seed", "%d", res.Seed)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	bounded := e.PackedBytes() + e.CacheUsedBytes() + e.BufferBytes()
	bound := ""
	if l := e.MemLimit(); l > 0 {
		bound = " of --mem-limit " + MiB(l)
	}
	line("memory", "panels %s, KV cache %s, buffers %s: %s%s", MiB(e.PackedBytes()), MiB(e.CacheUsedBytes()), MiB(e.BufferBytes()), MiB(bounded), bound)
	files := "file " + MiB(e.FileBytes())
	if n := e.MappedBytes(); n > 0 {
		files += ", panels " + MiB(n)
	}
	line("beside", "%s mapped, Go heap %s; resident in all %s", files, MiB(int64(mem.HeapSys)), MiB(residentBytes()))
	if m := moved(e.Moves()); m != "" {
		line("packed", "%s", m)
	}
	if f, err := os.Open("/proc/self/numa_maps"); err == nil {
		line("nodes", "%s", nodePages(f))
		f.Close()
	}
	if len(e.Machine.Nodes) > 1 {
		for _, p := range e.Placement() {
			line("", "%s", placed(p))
		}
	}
}

// moved says how panels came to their place; "" where they were there.
func moved(m engine.Moves) string {
	var by []string
	add := func(n int64, took time.Duration, who string) {
		if n > 0 {
			rate := ""
			if took > 0 {
				rate = fmt.Sprintf(" at %.3g GB/s", float64(n)/took.Seconds()/1e9)
			}
			by = append(by, MiB(n)+" by "+who+rate)
		}
	}
	add(m.Kept, m.Took, "workers beside their work")
	threads := "a thread beside them"
	if m.Movers > 1 {
		threads = fmt.Sprintf("%d threads beside them", m.Movers)
	}
	add(m.Copied+m.Filled, m.Busy, threads)
	add(m.Waiting, m.WaitTook, "all while nothing else was to do")
	if m.Decode.Unplaced > 0 {
		by = append(by, fmt.Sprintf("decode found %d panels in the file's form", m.Decode.Unplaced))
	}
	if all := m.Decode.Near + m.Decode.Far; m.Decode.Far > 0 || m.Homes > 1 {
		by = append(by, fmt.Sprintf("decode read %.4g %% of the weights at the reader's home", 100*float64(m.Decode.Near)/float64(max(1, all))))
	}
	if all := m.Prompts.Near + m.Prompts.Far; all > 0 && m.Homes > 1 {
		by = append(by, fmt.Sprintf("prompts %.4g %%", 100*float64(m.Prompts.Near)/float64(all)))
	}
	return strings.Join(by, "; ")
}

// Experts says how evenly experts were used: in how many layers, how many of them anybody chose, and what share of a layer's choices its busiest
// expert had.
func Experts(layers []engine.Choice) string {
	least, most, busiest, even, where := math.MaxInt, 0, 0.0, 0.0, ""
	for _, l := range layers {
		sum, chosen := uint64(0), 0
		for _, n := range l.Counts {
			if sum += n; n > 0 {
				chosen++
			}
		}
		if sum == 0 {
			continue
		}
		least, most = min(least, chosen), max(most, chosen)
		if x := float64(slices.Max(l.Counts)) / float64(sum) * float64(l.Used); x > busiest {
			busiest, even, where = x, float64(l.Used)/float64(len(l.Counts)), l.Name
		}
	}
	if most == 0 {
		return "none was chosen"
	}
	chosen := fmt.Sprint(least)
	if most > least {
		chosen += fmt.Sprintf(" to %d", most)
	}
	layer, _, _ := strings.Cut(strings.TrimPrefix(where, "blk."), ".")
	return fmt.Sprintf("%d of %d a token, %s of a layer chosen in all; the busiest, in layer %s, by %.1f %% of the tokens, where %.1f %% would be even",
		layers[0].Used, len(layers[0].Counts), chosen, layer, 100*busiest, 100*even)
}

// PrintRoof writes how much of the workers' read bandwidth the decoding used. It is measured now: the engine must be closed, so that its
// memory and that of the measurement are not taken at the same time.
func PrintRoof(w io.Writer, e *engine.Engine, res generate.Result) {
	if res.Decode.Tokens == 0 {
		return
	}
	if roof, ok := readRoof(e); ok {
		fmt.Fprintf(w, "%-9s %.1f GB/s read bandwidth of %d workers; decode used %.0f %%\n", "roof", roof/1e9, e.Threads(plan.One),
			weightRate(e, res.Decode)/roof*100)
	}
}

// weightRate is how fast the weights were read, in bytes per second: each once for a token.
func weightRate(e *engine.Engine, ph generate.Phase) float64 {
	return ph.Rate() * float64(e.TokenBytes())
}

// readRoof measures the read bandwidth of the workers in bytes per second. It takes a second or two; it is left out where the
// weights fit into a cache, which is faster, and where its memory is not to spare.
func readRoof(e *engine.Engine) (float64, bool) {
	workers := e.Threads(plan.One)
	bytes := measure.RoofBytesBeside(e.Machine, workers, e.PackedBytes()+e.CacheUsedBytes())
	if e.WeightBytes() < 2*e.Machine.L3.Bytes || e.WeightBytes() < 64<<20 || bytes == 0 {
		return 0, false
	}
	t, err := team.New(e.Machine.CPUsFor(workers), team.Options{Pin: true})
	if err != nil {
		return 0, false
	}
	defer t.Close()
	r, err := measure.NewRoofsOf(t, bytes)
	if err != nil {
		return 0, false
	}
	defer r.Close()
	best := 0.0
	for range 16 { // several loops take turns; a busy machine needs more than one try
		if best, err = r.Read(); err != nil {
			return 0, false
		}
	}
	return best, true
}

func phase(ph generate.Phase) string {
	if ph.Tokens == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s in %.1f ms, %.1f tokens/s", Tokens(ph.Tokens), float64(ph.Ns)/1e6, ph.Rate())
}

// MiB is a number of bytes in MiB, 1<<20 bytes.
func MiB(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
