package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ck/internal/humanize"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/quant"
	"ck/internal/topo"
)

func (p maker) machine() section {
	s, sec := p.s, section{name: "machine"}
	sec.add("CPU", humanize.OrNot(s.Model))
	sec.add("architecture", humanize.OrNot(s.Arch))
	sec.add("kernel", humanize.OrNot(s.Kernel))
	if s.Settings.Hypervisor {
		sec.add("hypervisor", "yes: a virtual machine, which sees what the hypervisor shows")
	}
	for _, x := range []struct {
		name string
		n    int
	}{{"drawers", s.Drawers}, {"books", s.Books}, {"packages", len(s.Packages)}, {"dies", s.Dies}, {"clusters", s.Clusters}} {
		if x.n > 0 {
			sec.add(x.name, strconv.Itoa(x.n))
		}
	}
	if s.Cores > 0 {
		text := strconv.Itoa(s.Cores)
		if s.SMT > 1 {
			text += fmt.Sprintf(", at most %d threads each", s.SMT)
		}
		sec.add("cores", text)
	}
	var online []int
	for _, c := range s.CPUs {
		online = append(online, c.ID)
	}
	sec.add("CPUs", fmt.Sprintf("%d online: %s", len(online), p.numbers(online)))
	if len(s.Offline) > 0 {
		sec.add("offline", humanize.Plural(len(s.Offline), "CPU")+": "+p.numbers(s.Offline))
	}
	if n := len(s.Possible); n > len(s.Present) && len(s.Present) > 0 {
		sec.add("could be added", humanize.Plural(n-len(s.Present), "CPU"))
	}
	sec.add("nodes", nodesText(s))
	sec.add("cut", s.SubNUMA)
	text := humanize.IBytesTold(s.MemTotal)
	if s.MemFree > 0 {
		text += ", " + humanize.IBytes(s.MemFree) + " available"
	}
	sec.add("memory", text)
	return sec
}

// nodesText counts memory nodes by what is on them.
func nodesText(s *topo.Survey) string {
	var both, cpus, memory, empty int
	for i, n := range s.Nodes {
		has := n.MemTotal > 0 || i < len(s.Memory) && s.Memory[i].Kind != topo.None
		switch {
		case len(n.CPUs) > 0 && has:
			both++
		case len(n.CPUs) > 0:
			cpus++
		case has:
			memory++
		default:
			empty++
		}
	}
	if both == len(s.Nodes) {
		return strconv.Itoa(both)
	}
	var parts []string
	for _, x := range []struct {
		n    int
		what string
	}{{both, "with CPUs and memory"}, {memory, "with memory only"}, {cpus, "with CPUs and no memory told"}, {empty, "empty"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return fmt.Sprintf("%d: %s", len(s.Nodes), strings.Join(parts, ", "))
}

func (p maker) limits() section {
	s, sec := p.s, section{name: "limits"}
	allowed := humanize.Plural(len(s.Affinity), "CPU") + ": " + p.numbers(s.Affinity)
	if len(s.Affinity) == len(s.CPUs) {
		allowed = "all CPUs"
	}
	sec.add("allowed", allowed)
	if len(s.Disallowed) > 0 {
		sec.add("not allowed", humanize.Plural(len(s.Disallowed), "CPU")+": "+p.numbers(s.Disallowed))
	}
	if len(s.DisallowedNodes) > 0 {
		sec.add("nodes not allowed", p.numbers(s.DisallowedNodes))
	}
	quota := "none"
	if s.Quota.CPUs > 0 {
		quota = fmt.Sprintf("%.4g CPUs, set by cgroup %s", s.Quota.CPUs, s.Quota.Group)
	}
	sec.add("CPU quota", quota)
	if len(s.Limits) == 0 {
		sec.add("memory limit", "none")
	}
	for _, l := range s.Limits {
		sec.add("memory limit", fmt.Sprintf("%s in cgroup %s, %s left", humanize.IBytes(l.Max), l.Group, humanize.IBytes(l.Left)))
	}
	sec.add("locked memory", ulimit(s.Settings.Memlock))
	sec.add("address space", ulimit(s.Settings.AddressSpace))
	_, why := s.Workers()
	sec.add("workers", why)
	if s.MemFree > 0 {
		_, why = s.Machine.Memory()
		sec.add("memory for models", why)
	}
	return sec
}

// ulimit is a limit of the process.
func ulimit(n int64) string {
	switch {
	case n == -1:
		return "unlimited"
	case n < 0:
		return ""
	}
	return "at most " + humanize.IBytes(n)
}

func (p maker) packages() section {
	s := p.s
	t := table("package", ">cores", ">CPUs", "numbers", "nodes")
	for _, k := range s.Packages {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("package %d", k.ID), strconv.Itoa(k.Cores), strconv.Itoa(len(k.CPUs)), p.numbers(k.CPUs), p.numbers(k.Nodes)})
	}
	return tableSection("packages", t)
}

func (p maker) caches() section {
	s := p.s
	t := table("cache", ">each", ">CPUs of one", ">count", ">in all")
	seen := map[string]int{}
	for _, c := range s.Caches {
		name := c.Name()
		if seen[name]++; p.full && seen[name] > 1 { // one fact a line needs names of its own
			name += fmt.Sprintf(", shape %d", seen[name])
		}
		t.Rows = append(t.Rows, []string{name, humanize.IBytesTold(c.Bytes), strconv.Itoa(c.CPUs), strconv.Itoa(c.Count), humanize.IBytesTold(c.Bytes * int64(c.Count))})
	}
	if len(t.Rows) == 0 {
		return section{name: "caches", facts: []fact{{name: "caches", value: "not told"}}}
	}
	return tableSection("caches", t)
}

func (p maker) cores() section {
	t := table("cores", ">CPUs", "numbers", ">capacity")
	for _, k := range p.s.Kinds {
		t.Rows = append(t.Rows, []string{k.Name, strconv.Itoa(len(k.CPUs)), p.numbers(k.CPUs), humanize.Dash(k.Capacity)})
	}
	return tableSection("kinds of cores", t)
}

// activations says what a kernel reads beside the weights.
var activations = map[kernel.ActKind]string{
	kernel.ActF32:  "float32",
	kernel.ActBF16: "bfloat16",
	kernel.ActQ8:   "8 bits, a scale per 32",
	kernel.ActQ8K:  "8 bits, a scale per 256",
}

func (p maker) isa() section {
	s, sec := p.s, section{name: "instruction sets"}
	// Where the flags of the CPU come from is worth a line only if it is neither the CPU nor the kernel's list of them, which agree.
	if strings.Contains(s.ISA.Source, "dump") {
		sec.add("source", s.ISA.Source)
	}
	sec.add("vendor", s.ISA.Vendor)
	sec.add("features", humanize.OrNot(strings.Join(s.ISA.Features, " ")))
	sec.add("AMX", s.ISA.AMX)
	if t := s.ISA.Tiles; t != nil {
		sec.add("AMX tiles", fmt.Sprintf("%d of %d rows of %d bytes", t.Count, t.MaxRows, t.RowBytes))
	}
	if len(s.ISA.Tiers) == 0 {
		return sec
	}
	best := s.ISA.Best().String()
	sec.add("tiers", strings.Join(s.ISA.Tiers, " ")+"; "+best+" would be chosen")
	t := table("activations", "kernels", "weights")
	for _, k := range kernelRows() {
		tier := best
		if k.act == kernel.ActBF16 && s.ISA.Uses(isa.FeatAVX512BF16) {
			tier += " with AVX-512 BF16"
		}
		t.Rows = append(t.Rows, []string{activations[k.act], tier, k.types})
	}
	sec.addTable(t)
	return sec
}

// kernelRow is weight types that are multiplied in the same way.
type kernelRow struct {
	types string
	act   kernel.ActKind
}

// kernelRows groups the weight types that have kernels by their activations, which depend on nothing but the type.
func kernelRows() []kernelRow {
	var rows []kernelRow
	tab := kernel.For(isa.Go, 0)
	for t := quant.Type(0); int(t) < quant.Types; t++ {
		if !t.Known() {
			continue
		}
		f := tab.Format(t, false)
		if f.Direct {
			continue
		}
		i := slices.IndexFunc(rows, func(r kernelRow) bool { return r.act == f.Act })
		if i < 0 {
			rows = append(rows, kernelRow{t.String(), f.Act})
		} else {
			rows[i].types += " " + t.String()
		}
	}
	slices.SortStableFunc(rows, func(a, b kernelRow) int { return int(a.act) - int(b.act) })
	return rows
}
