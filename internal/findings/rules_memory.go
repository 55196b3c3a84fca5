package findings

import (
	"fmt"
	"slices"
	"strings"

	"ck/internal/humanize"
	"ck/internal/topo"
)

// placeRules look at where memory is.
var placeRules = []Rule{
	{
		ID: "numa-balancing", Severity: Minor, Reads: "/proc/sys/kernel/numa_balancing",
		told: setting(func(s *topo.Settings) string { return s.NUMABalancing }),
		what: func(s *Subject) string {
			if s.Settings.NUMABalancing == "0" || !several(s.Survey) {
				return ""
			}
			return "NUMA balancing is on"
		},
		measured: func(s *Subject) string {
			return fmt.Sprintf("%d page faults for it and %d pages moved in %.1f s, by all processes", s.Here.HintFaults, s.Here.Migrated, s.Here.Seconds)
		},
		effect: "the kernel unmaps pages to see who uses them and moves them: page faults within matmuls, and speed that differs from run to run",
		mend:   "sysctl -w kernel.numa_balancing=0",
	},
	{
		ID: "zone-reclaim", Severity: Minor, Reads: "/proc/sys/vm/zone_reclaim_mode",
		told: setting(func(s *topo.Settings) string { return s.ZoneReclaim }),
		what: func(s *Subject) string {
			if s.Settings.ZoneReclaim == "0" || !several(s.Survey) {
				return ""
			}
			return "zone reclaim is on (vm.zone_reclaim_mode=" + s.Settings.ZoneReclaim + ")"
		},
		effect: "a full node drops its page cache, the model's file, although other nodes have room: it is read from the disk again",
		mend:   "sysctl -w vm.zone_reclaim_mode=0",
	},
	{
		ID: "page-cache-on-one-node", Severity: Minor, Reads: "FilePages in node*/meminfo; with --model the nodes of the file's pages (move_pages)",
		told: func(s *Subject) bool {
			return !several(s.Survey) || len(s.Settings.PageCacheByNode) == len(s.Nodes) || s.Model != nil
		},
		what:     func(s *Subject) string { what, _ := pageCacheOnOneNode(s); return what },
		figure:   func(s *Subject) string { _, effect := pageCacheOnOneNode(s); return effect },
		measured: nearAndFar,
		mend:     "echo 1 > /proc/sys/vm/drop_caches\nthen start with: numactl --interleave=all",
	},
	{
		ID: "nodes-without-memory", Severity: Serious, Reads: "node*/meminfo, node*/cpulist",
		what: func(s *Subject) string {
			if nodes, _ := bareNodes(s.Survey); len(nodes) > 0 {
				return nodesWith(nodes, "has", "have") + " CPUs and no memory"
			}
			return ""
		},
		figure: func(s *Subject) string {
			_, cores := bareNodes(s.Survey)
			return fmt.Sprintf("%s read everything over links between nodes, and the memory channels of their nodes are idle", humanize.Plural(cores, "core"))
		},
		mend: "put memory into every channel\nor choose fewer nodes per package in the firmware (NPS1, SNC off)",
	},
	{
		ID: "nodes-uneven", Severity: Minor, Reads: "node*/meminfo",
		what: func(s *Subject) string {
			var lo, hi int64
			for _, n := range s.Nodes {
				if len(n.CPUs) == 0 || n.MemTotal == 0 {
					continue
				}
				if lo == 0 || n.MemTotal < lo {
					lo = n.MemTotal
				}
				hi = max(hi, n.MemTotal)
			}
			if lo == 0 || hi < lo*3/2 {
				return ""
			}
			return fmt.Sprintf("nodes with CPUs have between %s and %s of memory", humanize.IBytes(lo), humanize.IBytes(hi))
		},
		effect: "memory channels are probably filled unevenly: all nodes wait for the one with the least bandwidth",
		mend:   "dmidecode -t memory | grep -E 'Locator|Size|Speed'",
	},
	{
		ID: "distances", Severity: Note, Reads: "node*/distance",
		what:   func(s *Subject) string { what, _ := badDistances(s.Survey); return what },
		figure: func(s *Subject) string { _, effect := badDistances(s.Survey); return effect },
		mend:   "update the firmware; numactl --hardware shows the table",
	},
	{
		ID: "far-memory", Severity: Note, Reads: "node*/meminfo, node*/cpulist, HMAT, dax, the CPU's name",
		what: func(s *Subject) string {
			kinds := map[topo.MemoryKind]int64{}
			for i, n := range s.Nodes {
				if len(n.CPUs) == 0 && n.MemTotal > 0 && i < len(s.Memory) {
					kinds[s.Memory[i].Kind] += n.MemTotal
				}
			}
			var parts []string
			for _, k := range []topo.MemoryKind{topo.HBM, topo.DRAM, topo.CXLm, topo.PMEM, topo.GPU, topo.None} {
				if kinds[k] > 0 {
					name := string(k)
					if k == topo.None {
						name = "of a kind that is not told"
					}
					parts = append(parts, humanize.IBytes(kinds[k])+" "+name)
				}
			}
			if len(parts) == 0 {
				return ""
			}
			return "memory on nodes without CPUs: " + strings.Join(parts, ", ")
		},
		effect: "the kernel gives it out after that of the CPUs' own nodes: a small model does not use HBM, a large one may land on slow memory",
		mend:   "numactl --preferred-many=NODES (HBM that the model fits into)\nnumactl --membind=NODES (to keep off slow memory)",
	},
	{
		ID: "memory-channels", Severity: Note, Reads: "nothing: only firmware tables, for root, tell them",
		what: func(s *Subject) string {
			if s.Settings.Hypervisor || s.MemTotal == 0 {
				return ""
			}
			return "the kernel does not tell how many memory channels are in use"
		},
		measured: func(s *Subject) string {
			if s.Here.ReadAll == 0 {
				return ""
			}
			return fmt.Sprintf("%s read %s, as much as %.1f channels of DDR4-3200, %.1f of DDR5-4800 or %.1f of DDR5-6400 carry (published: 8 bytes a transfer)",
				humanize.Plural(s.Here.Threads, "core"), humanize.GBps(s.Here.ReadAll), s.Here.ReadAll/(8*3200e6), s.Here.ReadAll/(8*4800e6), s.Here.ReadAll/(8*6400e6))
		},
		effect: "decode is as fast as memory: with half of the channels empty it takes twice the time",
		mend:   "dmidecode -t memory | grep -E 'Locator|Size|Speed'",
	},
}

// pageRules look at the pages of memory.
var pageRules = []Rule{
	{
		ID: "thp", Severity: Serious, Reads: "/sys/kernel/mm/transparent_hugepage/enabled",
		told: setting(func(s *topo.Settings) string { return s.THP }),
		what: func(s *Subject) string {
			if s.Settings.THP != "never" {
				return ""
			}
			return "transparent huge pages are off"
		},
		measured: smallAndHuge,
		effect:   "weights lie in pages of 4 KiB: every few kilobytes wait for a walk through page tables; ckbench run --ablate huge measures what it costs",
		mend:     "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
	},
	{
		ID: "huge-pages-not-given", Severity: Minor, Reads: "a measurement: memory that asks for huge pages (madvise)",
		Measures: true,
		what: func(s *Subject) string {
			h := s.Here
			if s.Settings.THP == "never" || h.Huge.Read == 0 || h.HugeShare >= 0.9 {
				return ""
			}
			return fmt.Sprintf("the kernel gave huge pages for %.0f %% of memory that asked for them", 100*h.HugeShare)
		},
		measured: smallAndHuge,
		effect:   "free memory is in small pieces: a part of the weights lies in pages of 4 KiB",
		mend:     "echo 1 > /proc/sys/vm/compact_memory",
	},
	{
		ID: "thp-defrag", Severity: Note, Reads: "/sys/kernel/mm/transparent_hugepage/defrag",
		told: setting(func(s *topo.Settings) string { return s.THPDefrag }),
		what: func(s *Subject) string {
			if s.Settings.THPDefrag != "always" {
				return ""
			}
			return "the kernel makes room for huge pages at once, whoever asks"
		},
		measured: func(s *Subject) string {
			if s.Here.Huge.Touch == 0 {
				return ""
			}
			return fmt.Sprintf("the first use of 1 GiB in huge pages takes %s", humanize.Milliseconds(s.Here.Huge.Touch))
		},
		effect: "the first use of memory may stall for milliseconds while pages are moved",
		mend:   "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag",
	},
	{
		ID: "huge-pages-set-aside", Severity: Minor, Reads: "hugepages-*/free_hugepages",
		what: func(s *Subject) string {
			if n := setAside(s.Survey); n > 0 && n >= s.MemTotal/50 {
				return humanize.IBytes(n) + " of memory are set aside in pools of huge pages, unused"
			}
			return ""
		},
		figure: func(s *Subject) string {
			return fmt.Sprintf("ck uses transparent huge pages: %s of the memory are not there for models", humanize.Percent(setAside(s.Survey), s.MemTotal))
		},
		mend: "sysctl -w vm.nr_hugepages=0\ncd /sys/kernel/mm/hugepages; echo 0 > hugepages-1048576kB/nr_hugepages",
	},
	{
		ID: "huge-pages-empty", Severity: Note, Reads: "hugepages-*/nr_hugepages",
		told: func(s *Subject) bool { return len(s.HugePages) > 0 },
		what: func(s *Subject) string {
			if slices.ContainsFunc(s.HugePages, func(h topo.HugePool) bool { return h.Total > 0 }) {
				return ""
			}
			return "the pools of huge pages are empty"
		},
		measured: func(s *Subject) string {
			if s.Settings.THP == "never" {
				return ""
			}
			return smallAndHuge(s)
		},
		effect: "none for ck, which uses transparent huge pages; programs that ask for pages of the pools get none",
		mend:   "sysctl -w vm.nr_hugepages=N (pages of 2 MiB), for those programs only",
	},
}
