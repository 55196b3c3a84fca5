package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/plan"
	"ck/internal/team"
)

// printStat says on stderr how fast it was and where the memory is. load is 0 where it was said before; turn: res is of
// a chat's turn, which did not begin with the program.
func (p *program) printStat(e *engine.Engine, res generate.Result, load time.Duration, turn bool) {
	w := p.app.Err
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
	line("seed", "%d", res.Seed)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	bounded := e.PackedBytes() + e.CacheUsedBytes() + e.BufferBytes()
	bound := ""
	if l := e.MemLimit(); l > 0 {
		bound = " of --mem-limit " + mib(l)
	}
	line("memory", "panels %s, KV cache %s, buffers %s: %s%s", mib(e.PackedBytes()), mib(e.CacheUsedBytes()), mib(e.BufferBytes()), mib(bounded), bound)
	line("beside", "file %s mapped, Go heap %s; resident in all %s", mib(e.FileBytes()), mib(int64(mem.HeapSys)), mib(residentBytes()))
	if f, err := os.Open("/proc/self/numa_maps"); err == nil {
		line("nodes", "%s", nodePages(f))
		f.Close()
	}
}

// printRoof says how much of the workers' read bandwidth the decoding used. It is measured now: the engine must be closed, so that its
// memory and that of the measurement are not taken at the same time.
func (p *program) printRoof(e *engine.Engine, res generate.Result) {
	if res.Decode.Tokens == 0 {
		return
	}
	if roof, ok := readRoof(e); ok {
		fmt.Fprintf(p.app.Err, "%-9s %.1f GB/s read bandwidth of %d workers; decode used %.0f %%\n", "roof", roof/1e9, e.Threads(plan.One),
			weightRate(e, res.Decode)/roof*100)
	}
}

// weightRate is how fast the weights were read, in bytes per second: each once for a token.
func weightRate(e *engine.Engine, ph generate.Phase) float64 {
	return ph.Rate() * float64(e.WeightBytes())
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
	return fmt.Sprintf("%s in %.1f ms, %.1f tokens/s", fmtTokens(ph.Tokens), float64(ph.Ns)/1e6, ph.Rate())
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// residentBytes is the memory of the process that is in RAM, mapped files included; 0 if the kernel does not tell.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(f[1], 10, 64)
	return n * int64(os.Getpagesize())
}

// nodePages adds up /proc/PID/numa_maps: how much memory of the process lies on each node.
func nodePages(r io.Reader) string {
	bytes := map[string]int64{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		kib := int64(4)
		fields := strings.Fields(sc.Text())
		for _, f := range fields {
			if s, ok := strings.CutPrefix(f, "kernelpagesize_kB="); ok {
				kib, _ = strconv.ParseInt(s, 10, 64)
			}
		}
		for _, f := range fields {
			node, pages, ok := strings.Cut(f, "=")
			if n, err := strconv.ParseInt(pages, 10, 64); ok && err == nil && isNode(node) {
				bytes[node[1:]] += n * kib << 10
			}
		}
	}
	var nodes []string
	for n := range bytes {
		nodes = append(nodes, n)
	}
	slices.Sort(nodes)
	for i, n := range nodes {
		nodes[i] = n + ": " + mib(bytes[n])
	}
	if len(nodes) == 0 {
		return "unknown"
	}
	return strings.Join(nodes, ", ")
}

func isNode(s string) bool {
	_, err := strconv.ParseUint(strings.TrimPrefix(s, "N"), 10, 16)
	return strings.HasPrefix(s, "N") && err == nil
}
