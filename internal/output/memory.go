package output

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"ck/internal/engine"
)

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
		nodes[i] = n + ": " + MiB(bytes[n])
	}
	if len(nodes) == 0 {
		return "unknown"
	}
	return strings.Join(nodes, ", ")
}

// placed says where memory of one kind lies.
func placed(p engine.Placed) string {
	if p.Err != nil {
		return fmt.Sprintf("%s: not verified (%v)", p.What, p.Err)
	}
	var nodes []string
	for _, id := range slices.Sorted(maps.Keys(p.OnNode)) {
		nodes = append(nodes, fmt.Sprintf("%d: %s", id, MiB(int64(p.OnNode[id])*int64(os.Getpagesize()))))
	}
	if nodes == nil {
		nodes = []string{"none touched"}
	}
	home := ""
	if p.Homed > 0 {
		home = fmt.Sprintf(", %.4g %% at home", 100*float64(p.Home)/float64(p.Homed))
	}
	return fmt.Sprintf("%s %s (%s, all pages)%s", p.What, strings.Join(nodes, ", "), p.By, home)
}

func isNode(s string) bool {
	_, err := strconv.ParseUint(strings.TrimPrefix(s, "N"), 10, 16)
	return strings.HasPrefix(s, "N") && err == nil
}
