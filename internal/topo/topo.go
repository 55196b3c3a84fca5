// Package topo reads what the machine is and what of it this process may use: CPUs, cores, memory nodes, caches, affinity, cgroup limits.
//
// It reads /proc and /sys, of the live system or of a saved copy: Read what the engine needs, Open and Inspect all that is worth showing
// (a Survey), with devices, kinds of memory and instruction sets, also from an archive of a stranger. What a kernel does not tell is filled in as on a machine without it:
// every CPU is a core, there is one node, a cache size of 0 means unknown.
package topo

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Machine is what was found. All lists are in ascending order.
type Machine struct {
	CPUs     []CPU  // online
	Nodes    []Node // memory nodes; at least one
	Affinity []int  // online CPUs on which this process may run; never empty

	L1d, L2, L3 Cache // of the first CPU in Affinity

	Quota    Quota      // the tightest CPU quota of all cgroups above this process
	MemTotal int64      // bytes of the machine
	MemFree  int64      // bytes that the kernel thinks can be used without swapping (MemAvailable)
	Limits   []MemLimit // memory limits of all cgroups above this process, its own first
}

// A CPU is one hardware thread.
type CPU struct {
	ID      int
	Package int // physical package, -1 if not told
	Core    int // the kernel's core_id, unique within a package at best; -1 if not told
	Lead    int // the lowest online CPU of the same physical core: equal for SMT siblings
	Node    int // memory node
}

// A Node is a memory node. It may have no CPUs, no memory, or neither.
type Node struct {
	ID       int
	CPUs     []int // online
	MemTotal int64 // bytes; 0: none, or not told
	MemFree  int64
	Allowed  bool // this process may take memory there (cpuset)
}

// A Cache is one level as a CPU sees it; Bytes is 0 where unknown.
type Cache struct {
	Bytes int64
	CPUs  int // online CPUs that share it
}

// A Quota is CPU time per time. CPUs is 0 without a quota.
type Quota struct {
	CPUs  float64
	Group string // the cgroup that sets it
}

// A MemLimit is what one cgroup may still take.
type MemLimit struct {
	Group string
	Max   int64 // bytes
	Left  int64 // bytes: Max less what is used, page cache not counted
}

// cores lists the first allowed CPU of each physical core in the order in which workers take them: the node with the most allowed
// cores first, so that few workers stay on few nodes.
func (m Machine) cores() []int {
	type core struct{ cpu, node int }
	var cores []core
	taken := map[int]bool{}
	onNode := map[int]int{}
	for _, id := range m.Affinity {
		c := m.cpu(id)
		if !taken[c.Lead] {
			taken[c.Lead] = true
			onNode[c.Node]++
			cores = append(cores, core{id, c.Node})
		}
	}
	slices.SortStableFunc(cores, func(a, b core) int {
		if d := onNode[b.node] - onNode[a.node]; d != 0 {
			return d
		}
		if a.node != b.node {
			return a.node - b.node
		}
		return a.cpu - b.cpu
	})
	cpus := make([]int, len(cores))
	for i, c := range cores {
		cpus[i] = c.cpu
	}
	return cpus
}

// cpu is the CPU of that number; one that has vanished or never showed up in /sys is a core of its own.
func (m Machine) cpu(id int) CPU {
	if i, ok := slices.BinarySearchFunc(m.CPUs, id, func(c CPU, id int) int { return c.ID - id }); ok {
		return m.CPUs[i]
	}
	return CPU{ID: id, Package: -1, Core: -1, Lead: id}
}

// QuotaWorkers is how many workers the CPU quota lets run all the time: rounded down, because one worker too many makes all of them wait
// at barriers for a throttled one; at least 1. It is 0 without a quota.
func (m Machine) QuotaWorkers() int {
	if m.Quota.CPUs <= 0 {
		return 0
	}
	return int(max(1, math.Floor(min(m.Quota.CPUs, math.MaxInt32))))
}

// Workers lists the CPUs for the workers of a team, one for each physical core in the affinity mask, and no more than the quota pays
// for. why says it in one line.
func (m Machine) Workers() (cpus []int, why string) {
	cpus = m.cores()
	in := count(len(cpus), "core") + " in affinity"
	if len(m.Affinity) > len(cpus) {
		in = fmt.Sprintf("%s (%s with SMT) in affinity", count(len(cpus), "core"), count(len(m.Affinity), "CPU"))
	}
	q := m.QuotaWorkers()
	switch {
	case q == 0:
		why = in + ", no quota"
	case q < len(cpus):
		cpus = cpus[:q]
		why = fmt.Sprintf("quota of %.4g CPUs in cgroup %s, %s", m.Quota.CPUs, m.Quota.Group, in)
	default:
		why = fmt.Sprintf("%s, quota of %.4g CPUs in cgroup %s", in, m.Quota.CPUs, m.Quota.Group)
	}
	return cpus, count(len(cpus), "worker") + ": " + why
}

// CPUsFor lists CPUs for n workers, whatever the quota: cores first, then their SMT siblings, then all over again.
func (m Machine) CPUsFor(n int) []int {
	order := m.cores()
	for _, id := range m.Affinity {
		if !slices.Contains(order, id) {
			order = append(order, id)
		}
	}
	cpus := make([]int, n)
	for i := range cpus {
		cpus[i] = order[i%len(order)]
	}
	return cpus
}

// HasHomes reports whether several nodes have memory and CPUs for this process, so that it is worth to look closely (Survey.Homes).
func (m Machine) HasHomes() bool {
	n := 0
	for _, node := range m.Nodes {
		if node.Allowed && slices.ContainsFunc(node.CPUs, m.Allows) {
			n++
		}
	}
	return n > 1
}

// Allows reports whether this process may run on a CPU.
func (m Machine) Allows(cpu int) bool { return slices.Contains(m.Affinity, cpu) }

// Memory is how many bytes can still be taken: what the machine has available, or less where a cgroup limits it.
func (m Machine) Memory() (bytes int64, why string) {
	bytes, why = m.MemFree, fmt.Sprintf("%s of %s available", gib(m.MemFree), gib(m.MemTotal))
	for _, l := range m.Limits {
		if l.Left < bytes {
			bytes, why = l.Left, fmt.Sprintf("%s left of the limit of %s of cgroup %s", gib(l.Left), gib(l.Max), l.Group)
		}
	}
	return bytes, why
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// gib writes bytes in the unit that leaves one to four digits before the point.
func gib(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%.0f GiB", float64(n)/(1<<30))
	case n >= 1<<30:
		return strings.Replace(fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)), ".0 ", " ", 1)
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}
