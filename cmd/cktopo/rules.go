package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ck/internal/humanize"
	"ck/internal/probe"
	"ck/internal/topo"
)

// A rule is one thing that is looked at.
type rule struct {
	id, severity string
	reads        string                // where the facts come from
	measures     bool                  // looks at what was measured
	told         func(s *subject) bool // these facts are there; nil: always
	what         func(*subject) string // what was found, "" if nothing
	figure       func(*subject) string // the effect as it follows from this machine's facts; nil or "": they do not say it
	measured     func(*subject) string // the effect as it was measured just now; nil or "": it was not
	effect       string                // as stated
	mend         string                // the command, or several, one a line
}

// A subject is what rules look at.
type subject struct {
	*topo.Survey
	here  *probe.Figures   // nil: nothing was measured
	model *probe.FilePages // nil: no model was named
}

// Severities of findings.
const (
	serious = "serious"
	minor   = "minor"
	note    = "note"
)

// hot is the temperature from which CPUs are near the point where they slow down.
const hot = 90

// setting makes the told function of a rule about one setting.
func setting(get func(*topo.Settings) string) func(*subject) bool {
	return func(s *subject) bool { return get(&s.Settings) != "" }
}

// rules is everything that is looked at. To add one is to add a row.
var rules = []rule{
	// What the process may use.
	{
		id: "quota", severity: serious, reads: "cpu.max or cpu.cfs_quota_us of the cgroups",
		what: func(s *subject) string {
			cores, n := coresOf(s.Survey, s.Affinity), s.QuotaWorkers()
			if n == 0 || n >= cores {
				return ""
			}
			return fmt.Sprintf("a quota of %.4g CPUs in cgroup %s, with %s allowed", s.Quota.CPUs, s.Quota.Group, humanize.Plural(cores, "core"))
		},
		figure: func(s *subject) string {
			cores, n := coresOf(s.Survey, s.Affinity), s.QuotaWorkers()
			return fmt.Sprintf("%s instead of %d: a prompt is processed at %s of the possible speed", humanize.Plural(n, "worker"), cores, humanize.Percent(int64(n), int64(cores)))
		},
		measured: throttling,
		mend:     "systemctl set-property UNIT CPUQuota= (systemd)\ndocker update --cpus 0 NAME (Docker)\nno resources.limits.cpu (Kubernetes)",
	},
	{
		id: "quota-fraction", severity: note, reads: "cpu.max or cpu.cfs_quota_us of the cgroups",
		what: func(s *subject) string {
			q := s.Quota.CPUs
			if q <= 0 || q >= 1024 || q == float64(int(q)) {
				return ""
			}
			return fmt.Sprintf("the quota of %.4g CPUs is no whole number", q)
		},
		measured: throttling,
		effect:   "workers are whole: what is above is not used, and below one CPU every worker is throttled",
		mend:     "docker update --cpus 2 NAME (Docker)\nresources.limits.cpu: 2 (Kubernetes)",
	},
	{
		id: "cpus-not-allowed", severity: minor, reads: "the affinity of the process, cpuset.cpus",
		what: func(s *subject) string {
			if have, may := coresOf(s.Survey, online(s.Survey)), coresOf(s.Survey, s.Affinity); may < have {
				return fmt.Sprintf("%d of %s are allowed to this process", may, humanize.Plural(have, "core"))
			}
			return ""
		},
		figure: func(s *subject) string {
			have, may := coresOf(s.Survey, online(s.Survey)), coresOf(s.Survey, s.Affinity)
			return fmt.Sprintf("a prompt is processed at %s of the possible speed", humanize.Percent(int64(may), int64(have)))
		},
		mend: "taskset -c and numactl -C set it\ncpuset.cpus of the cgroup\ndocker update --cpuset-cpus 0-N NAME (Docker)\nsrun --cpus-per-task (Slurm)",
	},
	{
		id: "cpus-offline", severity: minor, reads: "cpu/present and cpu/online",
		what: func(s *subject) string {
			if len(s.Offline) == 0 || s.Settings.SMTControl == "off" || s.Settings.SMTControl == "forceoff" {
				return ""
			}
			return fmt.Sprintf("%s offline: %s", humanize.Plural(len(s.Offline), "CPU"), humanize.ShortList(s.Offline, humanize.ListColumns))
		},
		effect: "cores that do not work, if their siblings are offline too; caches and memory of their node are far from the others",
		mend:   "chcpu -e LIST",
	},
	{
		id: "nodes-not-allowed", severity: minor, reads: "cpuset.mems",
		what: func(s *subject) string {
			if len(s.DisallowedNodes) == 0 {
				return ""
			}
			return "memory of " + nodesWith(s.DisallowedNodes, "is", "is") + " not allowed to this process"
		},
		figure: func(s *subject) string {
			var out, all int64
			for _, n := range s.Nodes {
				if all += n.MemTotal; slices.Contains(s.DisallowedNodes, n.ID) {
					out += n.MemTotal
				}
			}
			return fmt.Sprintf("%s of the memory, and its bandwidth, are out of reach", humanize.Percent(out, all))
		},
		mend: "cpuset.mems of the cgroup\ndocker update --cpuset-mems 0-N NAME (Docker)",
	},
	{
		id: "isolated", severity: note, reads: "cpu/isolated",
		what: func(s *subject) string {
			if len(s.Settings.Isolated) == 0 {
				return ""
			}
			return "the scheduler leaves CPUs " + humanize.ShortList(s.Settings.Isolated, humanize.ListColumns) + " alone (isolcpus)"
		},
		effect: "ck runs on them only if they are in its affinity: good when meant so, else these cores do not work",
		mend:   "taskset -c CPUS ckrun …",
	},
	{
		id: "address-space", severity: serious, reads: "/proc/self/limits",
		told: func(s *subject) bool { return s.Settings.AddressSpace != -2 },
		what: func(s *subject) string {
			if s.Settings.AddressSpace < 0 {
				return ""
			}
			return "ulimit -v is " + humanize.IBytes(s.Settings.AddressSpace)
		},
		effect: "model files are mapped whole and panels come beside: larger models cannot be opened, whatever memory is free",
		mend:   "ulimit -v unlimited",
	},
	{
		id: "locked-memory", severity: note, reads: "/proc/self/limits",
		told: func(s *subject) bool { return s.Settings.Memlock != -2 },
		what: func(s *subject) string {
			n := s.Settings.Memlock
			if n < 0 || s.MemTotal > 0 && n >= s.MemTotal/2 {
				return ""
			}
			return "ulimit -l is " + humanize.IBytes(n)
		},
		measured: func(s *subject) string {
			switch {
			case s.here.Locked > s.Settings.Memlock:
				return "it does not bind this process: more could be locked (CAP_IPC_LOCK)"
			case s.here.Locked >= 0:
				return "it binds: one page more could not be locked"
			}
			return ""
		},
		effect: "none for ck, which locks no memory; RDMA and mlock of other programs need more",
		mend:   "ulimit -l unlimited\nLimitMEMLOCK=infinity in a unit (systemd)\n* - memlock unlimited in limits.conf",
	},

	// Memory: how much there is.
	{
		id: "memory-limit", severity: minor, reads: "memory.max or memory.limit_in_bytes of the cgroups",
		what: func(s *subject) string {
			if l, ok := tightest(s.Survey); ok {
				return fmt.Sprintf("a memory limit of %s in cgroup %s", humanize.IBytes(l.Max), l.Group)
			}
			return ""
		},
		figure: func(s *subject) string {
			l, _ := tightest(s.Survey)
			return fmt.Sprintf("models that need more than %s (panels and cache, and the file's pages while they are in use) do not run well or at all", humanize.IBytes(l.Left))
		},
		mend: "memory.max of the cgroup\ndocker update --memory SIZE NAME (Docker)\nresources.limits.memory (Kubernetes)",
	},
	{
		id: "memory-taken", severity: minor, reads: "/proc/meminfo",
		told: func(s *subject) bool { return s.MemTotal > 0 && s.MemFree > 0 },
		what: func(s *subject) string {
			if s.MemFree > s.MemTotal/5 {
				return ""
			}
			return fmt.Sprintf("%s of %s of memory are available", humanize.IBytes(s.MemFree), humanize.IBytes(s.MemTotal))
		},
		effect: "larger models are read from the file again for every token",
		mend:   "ps aux --sort=-rss | head",
	},
	{
		id: "swap-in-use", severity: minor, reads: "/proc/meminfo",
		told: func(s *subject) bool { return s.MemTotal > 0 },
		what: func(s *subject) string {
			if s.Settings.SwapUsed < 64<<20 {
				return ""
			}
			return humanize.IBytes(s.Settings.SwapUsed) + " of swap are in use"
		},
		measured: func(s *subject) string {
			in, out := s.here.SwapIn, s.here.SwapOut
			if in+out == 0 {
				return fmt.Sprintf("nothing was swapped in %.1f s: what is there lies still", s.here.Seconds)
			}
			return fmt.Sprintf("%d pages came in and %d went out in %.1f s", in, out, s.here.Seconds)
		},
		effect: "weights and cache that were swapped out come back at the speed of the disk, a hundredth of the memory's",
		mend:   "swapoff -a && swapon -a (with that much memory free)\nsysctl -w vm.swappiness=1",
	},
	{
		id: "swappiness", severity: note, reads: "/proc/sys/vm/swappiness, /proc/meminfo",
		told: setting(func(s *topo.Settings) string { return s.Swappiness }),
		what: func(s *subject) string {
			if n, err := strconv.Atoi(s.Settings.Swappiness); err != nil || n <= 10 || s.Settings.SwapTotal == 0 {
				return ""
			}
			return "swap is on, with swappiness " + s.Settings.Swappiness
		},
		effect: "reading a large model file can push packed weights and cache out to the disk",
		mend:   "sysctl -w vm.swappiness=1",
	},
	{
		id: "overcommit", severity: minor, reads: "/proc/sys/vm/overcommit_memory",
		told: setting(func(s *topo.Settings) string { return s.Overcommit }),
		what: func(s *subject) string {
			if s.Settings.Overcommit != "2" {
				return ""
			}
			return "the kernel promises no memory that it does not have (vm.overcommit_memory=2)"
		},
		effect: "room that ck reserves for panels and cache counts before it is used: large contexts may be refused",
		mend:   "sysctl -w vm.overcommit_memory=0",
	},

	// Memory: where it is.
	{
		id: "numa-balancing", severity: minor, reads: "/proc/sys/kernel/numa_balancing",
		told: setting(func(s *topo.Settings) string { return s.NUMABalancing }),
		what: func(s *subject) string {
			if s.Settings.NUMABalancing == "0" || !several(s.Survey) {
				return ""
			}
			return "NUMA balancing is on"
		},
		measured: func(s *subject) string {
			return fmt.Sprintf("%d page faults for it and %d pages moved in %.1f s, by all processes", s.here.HintFaults, s.here.Migrated, s.here.Seconds)
		},
		effect: "the kernel unmaps pages to see who uses them and moves them: page faults within matmuls, and speed that differs from run to run",
		mend:   "sysctl -w kernel.numa_balancing=0",
	},
	{
		id: "zone-reclaim", severity: minor, reads: "/proc/sys/vm/zone_reclaim_mode",
		told: setting(func(s *topo.Settings) string { return s.ZoneReclaim }),
		what: func(s *subject) string {
			if s.Settings.ZoneReclaim == "0" || !several(s.Survey) {
				return ""
			}
			return "zone reclaim is on (vm.zone_reclaim_mode=" + s.Settings.ZoneReclaim + ")"
		},
		effect: "a full node drops its page cache, the model's file, although other nodes have room: it is read from the disk again",
		mend:   "sysctl -w vm.zone_reclaim_mode=0",
	},
	{
		id: "page-cache-on-one-node", severity: minor, reads: "FilePages in node*/meminfo; with --model the nodes of the file's pages (move_pages)",
		told: func(s *subject) bool {
			return !several(s.Survey) || len(s.Settings.PageCacheByNode) == len(s.Nodes) || s.model != nil
		},
		what:     func(s *subject) string { what, _ := pageCacheOnOneNode(s); return what },
		figure:   func(s *subject) string { _, effect := pageCacheOnOneNode(s); return effect },
		measured: nearAndFar,
		mend:     "echo 1 > /proc/sys/vm/drop_caches\nthen start with: numactl --interleave=all",
	},
	{
		id: "nodes-without-memory", severity: serious, reads: "node*/meminfo, node*/cpulist",
		what: func(s *subject) string {
			if nodes, _ := bareNodes(s.Survey); len(nodes) > 0 {
				return nodesWith(nodes, "has", "have") + " CPUs and no memory"
			}
			return ""
		},
		figure: func(s *subject) string {
			_, cores := bareNodes(s.Survey)
			return fmt.Sprintf("%s read everything over links between nodes, and the memory channels of their nodes are idle", humanize.Plural(cores, "core"))
		},
		mend: "put memory into every channel\nor choose fewer nodes per package in the firmware (NPS1, SNC off)",
	},
	{
		id: "nodes-uneven", severity: minor, reads: "node*/meminfo",
		what: func(s *subject) string {
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
		id: "distances", severity: note, reads: "node*/distance",
		what:   func(s *subject) string { what, _ := badDistances(s.Survey); return what },
		figure: func(s *subject) string { _, effect := badDistances(s.Survey); return effect },
		mend:   "update the firmware; numactl --hardware shows the table",
	},
	{
		id: "far-memory", severity: note, reads: "node*/meminfo, node*/cpulist, HMAT, dax, the CPU's name",
		what: func(s *subject) string {
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
		id: "memory-channels", severity: note, reads: "nothing: only firmware tables, for root, tell them",
		what: func(s *subject) string {
			if s.Settings.Hypervisor || s.MemTotal == 0 {
				return ""
			}
			return "the kernel does not tell how many memory channels are in use"
		},
		measured: func(s *subject) string {
			if s.here.ReadAll == 0 {
				return ""
			}
			return fmt.Sprintf("%s read %s, as much as %.1f channels of DDR4-3200, %.1f of DDR5-4800 or %.1f of DDR5-6400 carry (published: 8 bytes a transfer)",
				humanize.Plural(s.here.Threads, "core"), humanize.GBps(s.here.ReadAll), s.here.ReadAll/(8*3200e6), s.here.ReadAll/(8*4800e6), s.here.ReadAll/(8*6400e6))
		},
		effect: "decode is as fast as memory: with half of the channels empty it takes twice the time",
		mend:   "dmidecode -t memory | grep -E 'Locator|Size|Speed'",
	},

	// Memory: its pages.
	{
		id: "thp", severity: serious, reads: "/sys/kernel/mm/transparent_hugepage/enabled",
		told: setting(func(s *topo.Settings) string { return s.THP }),
		what: func(s *subject) string {
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
		id: "huge-pages-not-given", severity: minor, reads: "a measurement: memory that asks for huge pages (madvise)",
		measures: true,
		what: func(s *subject) string {
			h := s.here
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
		id: "thp-defrag", severity: note, reads: "/sys/kernel/mm/transparent_hugepage/defrag",
		told: setting(func(s *topo.Settings) string { return s.THPDefrag }),
		what: func(s *subject) string {
			if s.Settings.THPDefrag != "always" {
				return ""
			}
			return "the kernel makes room for huge pages at once, whoever asks"
		},
		measured: func(s *subject) string {
			if s.here.Huge.Touch == 0 {
				return ""
			}
			return fmt.Sprintf("the first use of 1 GiB in huge pages takes %s", humanize.Milliseconds(s.here.Huge.Touch))
		},
		effect: "the first use of memory may stall for milliseconds while pages are moved",
		mend:   "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag",
	},
	{
		id: "huge-pages-set-aside", severity: minor, reads: "hugepages-*/free_hugepages",
		what: func(s *subject) string {
			if n := setAside(s.Survey); n > 0 && n >= s.MemTotal/50 {
				return humanize.IBytes(n) + " of memory are set aside in pools of huge pages, unused"
			}
			return ""
		},
		figure: func(s *subject) string {
			return fmt.Sprintf("ck uses transparent huge pages: %s of the memory are not there for models", humanize.Percent(setAside(s.Survey), s.MemTotal))
		},
		mend: "sysctl -w vm.nr_hugepages=0\ncd /sys/kernel/mm/hugepages; echo 0 > hugepages-1048576kB/nr_hugepages",
	},
	{
		id: "huge-pages-empty", severity: note, reads: "hugepages-*/nr_hugepages",
		told: func(s *subject) bool { return len(s.HugePages) > 0 },
		what: func(s *subject) string {
			if slices.ContainsFunc(s.HugePages, func(h topo.HugePool) bool { return h.Total > 0 }) {
				return ""
			}
			return "the pools of huge pages are empty"
		},
		measured: func(s *subject) string {
			if s.Settings.THP == "never" {
				return ""
			}
			return smallAndHuge(s)
		},
		effect: "none for ck, which uses transparent huge pages; programs that ask for pages of the pools get none",
		mend:   "sysctl -w vm.nr_hugepages=N (pages of 2 MiB), for those programs only",
	},

	// How fast the cores run.
	{
		id: "governor", severity: serious, reads: "cpufreq/scaling_governor and scaling_driver",
		told: setting(func(s *topo.Settings) string { return s.Governor }),
		what: func(s *subject) string {
			driver := s.Settings.Driver
			own := strings.HasPrefix(driver, "intel_pstate") || strings.HasPrefix(driver, "amd-pstate") || strings.HasPrefix(driver, "amd_pstate")
			if own || !slices.Contains(strings.Split(s.Settings.Governor, ","), "powersave") {
				return ""
			}
			return "the governor powersave of driver " + humanize.OrNot(driver)
		},
		measured: clockText,
		effect:   "CPUs stay at their lowest frequency: often a third of the speed",
		mend:     "cpupower frequency-set -g performance",
	},
	{
		id: "governor-slow", severity: minor, reads: "cpufreq/scaling_governor",
		told: setting(func(s *topo.Settings) string { return s.Governor }),
		what: func(s *subject) string {
			slow := slices.DeleteFunc(strings.Split(s.Settings.Governor, ","), func(g string) bool { return g == "performance" || g == "" })
			if len(slow) == 0 {
				return ""
			}
			return "the frequency governor is " + strings.Join(slow, ", ")
		},
		measured: func(s *subject) string {
			h := s.here
			if h.Clock == 0 {
				return ""
			}
			return fmt.Sprintf("a core that rested begins at %s and needs %s to reach %s", humanize.Hertz(h.ClockFirst), humanize.Milliseconds(h.Ramp), humanize.Hertz(h.Clock))
		},
		effect: "frequencies rise only after a while of load: the first tokens are slower, and figures differ from run to run",
		mend:   "cpupower frequency-set -g performance",
	},
	{
		id: "turbo", severity: serious, reads: "intel_pstate/no_turbo, cpufreq/boost",
		told: setting(func(s *topo.Settings) string { return s.Turbo }),
		what: func(s *subject) string {
			if s.Settings.Turbo != "off" {
				return ""
			}
			return "turbo frequencies are off"
		},
		measured: clockText,
		effect:   "prompts take longer by the ratio of the frequencies, often 1.3 to 1.5; decode less, since it waits for memory",
		mend:     "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo (Intel)\necho 1 > /sys/devices/system/cpu/cpufreq/boost (others)",
	},
	{
		id: "clock-low", severity: minor, reads: "a measurement: a loop of dependent additions",
		measures: true,
		what: func(s *subject) string {
			if s.here.Clock == 0 || s.here.Clock >= 0.9*s.here.Stated {
				return ""
			}
			return fmt.Sprintf("a busy core runs at %s, %s says %s", humanize.Hertz(s.here.Clock), s.here.StatedBy, humanize.Hertz(s.here.Stated))
		},
		measured: func(s *subject) string {
			return fmt.Sprintf("all that computes takes %.2g times as long", s.here.Stated/s.here.Clock)
		},
		effect: "a limit of power or temperature, a governor, or a host that shares its CPUs",
		mend:   "cpupower frequency-info; turbostat (for root)",
	},
	{
		id: "temperature", severity: minor, reads: "thermal_zone*/temp, hwmon",
		told: func(s *subject) bool {
			return slices.ContainsFunc(s.Thermal, func(z topo.ThermalZone) bool { return z.Readable })
		},
		what: func(s *subject) string {
			var parts []string
			for _, z := range s.Thermal {
				if z.Readable && z.Celsius >= hot {
					parts = append(parts, fmt.Sprintf("%s %.0f °C", strings.TrimSpace(z.Zone+" "+z.Type), z.Celsius))
				}
			}
			return strings.Join(parts, ", ")
		},
		measured: scaling,
		effect:   "near the point where the CPU lowers its frequency",
		mend:     "look after fans and filters; sensors, ipmitool sdr type fan",
	},
	{
		id: "power-limit", severity: minor, reads: "powercap/*/constraint_*",
		told: func(s *subject) bool { return len(s.Power) > 0 },
		what: func(s *subject) string {
			for _, z := range s.Power {
				for _, l := range z.Limits {
					if l.MaxWatts > 0 && l.Watts > 0 && l.Watts < 0.9*l.MaxWatts {
						return fmt.Sprintf("%s (%s) is limited to %.4g W of %.4g W", z.Zone, l.Name, l.Watts, l.MaxWatts)
					}
				}
			}
			return ""
		},
		measured: scaling,
		effect:   "under matmuls the frequency of all cores falls until the power fits: prompts take longer, decode hardly",
		mend:     "powercap-set, or the power limits (cTDP, PL1) of the firmware",
	},

	// What the cores are.
	{
		id: "smt", severity: note, reads: "topology/thread_siblings",
		what: func(s *subject) string {
			if s.SMT < 2 {
				return ""
			}
			return fmt.Sprintf("cores have %d threads", s.SMT)
		},
		measured: func(s *subject) string {
			a, b := s.here.Alone, s.here.Siblings
			if a.Read == 0 || b.Read == 0 {
				return ""
			}
			return fmt.Sprintf("one thread of a core reads %s and computes %s; two threads %s and %s together", humanize.GBps(a.Read), humanize.Ops(a.Ops), humanize.GBps(b.Read), humanize.Ops(b.Ops))
		},
		effect: "ck runs one worker on each core, since a second one adds nothing to a loop that keeps the core's units or the memory busy; other programs on the sibling threads take their half",
		mend:   "nothing for ck alone; beside other programs:\necho off > /sys/devices/system/cpu/smt/control",
	},
	{
		id: "tier", severity: serious, reads: "CPUID, or /proc/cpuinfo",
		told: func(s *subject) bool { return len(s.ISA.Tiers) > 0 },
		what: func(s *subject) string {
			if len(s.ISA.Tiers) > 1 || s.Arch != "x86_64" && s.Arch != "" {
				return ""
			}
			return "this CPU may not run AVX2 kernels (AVX2, FMA, F16C, BMI1 and BMI2 are needed)"
		},
		effect: "portable kernels: a tenth of the speed or less",
		mend:   "in a virtual machine show the guest the host's CPU:\n-cpu host (QEMU)\n<cpu mode='host-passthrough'/> (libvirt)",
	},
	{
		id: "architecture", severity: minor, reads: "/proc/cpuinfo",
		told: func(s *subject) bool { return s.Arch != "" },
		what: func(s *subject) string {
			if s.Arch == "x86_64" {
				return ""
			}
			return "ck has no kernels for " + s.Arch + " yet"
		},
		effect: "portable kernels: right results, at a tenth of the speed or less",
		mend:   "nothing to set",
	},
	{
		id: "caches-not-told", severity: note, reads: "cpu*/cache",
		what: func(s *subject) string {
			if len(s.Caches) > 0 {
				return ""
			}
			return "nothing tells the sizes of caches"
		},
		effect: "plan cannot say what fits into them",
		mend:   "in a virtual machine:\n-cpu host,host-cache-info=on (QEMU)\n<cache mode='passthrough'/> (libvirt)",
	},
	{
		id: "accelerators", severity: note, reads: "/sys/bus/dsa, /dev/dsa",
		what: func(s *subject) string {
			usable, why := 0, ""
			for _, a := range s.DSA {
				for _, q := range a.Queues {
					if q.Usable {
						usable++
					} else if why == "" && q.State == "enabled" && q.Type == "user" {
						why = " (" + q.Name + ": " + q.Why + ")"
					}
				}
			}
			if len(s.DSA) == 0 || usable > 0 {
				return ""
			}
			return humanize.Plural(len(s.DSA), "DSA or IAA device") + ", no queue of which this process may use" + why
		},
		effect: "none today: ck copies with its cores",
		mend:   "accel-config load-config -e -c FILE\nchmod g+rw /dev/dsa/wq0.0",
	},

	// Who else is there.
	{
		id: "flat-guest", severity: minor, reads: "topology, node*/cpulist",
		what: func(s *subject) string {
			switch {
			case !s.Settings.Hypervisor:
				return ""
			case len(s.Packages) > 1 && len(s.Packages) == len(s.CPUs):
				return fmt.Sprintf("the hypervisor shows %d packages of one CPU each", len(s.Packages))
			case !several(s.Survey) && s.Cores > 64:
				return fmt.Sprintf("the hypervisor shows %d cores on one node", s.Cores)
			}
			return ""
		},
		effect: "threads of one core look like cores of their own, and far memory like near memory: workers disturb each other",
		mend:   "-smp N,sockets=S,cores=C,threads=T, -numa node for each (QEMU)\n<topology> and <numa> (libvirt)\nvNUMA (others)",
	},
	{
		id: "hypervisor", severity: note, reads: "flags in /proc/cpuinfo, /sys/hypervisor",
		what: func(s *subject) string {
			if !s.Settings.Hypervisor {
				return ""
			}
			return "this is a virtual machine"
		},
		measured: func(s *subject) string {
			return fmt.Sprintf("%.1f %% of the CPUs' time was stolen in %.1f s", 100*s.here.Noise.Steal, s.here.Seconds)
		},
		effect: "other guests share memory bandwidth and last cache, and time is stolen where CPUs are shared: every measured speed is a lower bound",
		mend:   "pin the guest's CPUs to the host's\ngrep ^cpu /proc/stat shows stolen time in column 9",
	},
	{
		id: "stolen-time", severity: minor, reads: "/proc/stat, while measuring",
		measures: true,
		what: func(s *subject) string {
			if s.here.Noise.Steal < 0.02 {
				return ""
			}
			return fmt.Sprintf("the hypervisor took %.0f %% of the CPUs' time away", 100*s.here.Noise.Steal)
		},
		effect: "workers meet after every matmul: one that stands still stops all",
		mend:   "pin the guest's CPUs to the host's, or ckrun -t with fewer workers",
	},
	{
		id: "busy", severity: minor, reads: "/proc/stat, while measuring",
		measures: true,
		what: func(s *subject) string {
			if s.here.Noise.OtherLoad < 0.25 {
				return ""
			}
			return fmt.Sprintf("other processes keep %.1f of %s busy", s.here.Noise.OtherLoad, humanize.Plural(len(s.CPUs), "CPU"))
		},
		effect: "workers meet after every matmul: one that shares its core stops all; and the figures below are too low",
		mend:   "ps aux --sort=-pcpu | head",
	},

	// The kernel.
	{
		id: "mitigations", severity: note, reads: "cpu/vulnerabilities",
		told: func(s *subject) bool { return s.Settings.Mitigations != nil },
		what: func(s *subject) string {
			if len(s.Settings.Mitigations) == 0 {
				return ""
			}
			return humanize.Plural(len(s.Settings.Mitigations), "mitigation") + " of CPU vulnerabilities active"
		},
		measured: func(s *subject) string {
			if s.here.Small.Touch == 0 {
				return "a system call takes " + humanize.Nanoseconds(s.here.Syscall)
			}
			return fmt.Sprintf("a system call takes %s, the first use of a page of 4 KiB %s", humanize.Nanoseconds(s.here.Syscall), humanize.Nanoseconds(s.here.Small.Touch*4096/(1<<30)))
		},
		effect: "system calls and page faults cost more; matmuls make none. Seen when a model is loaded, hardly after",
		mend:   "mitigations=off on the kernel's command line,\nonly where nobody else's code runs",
	},
	{
		id: "gather", severity: note, reads: "cpu/vulnerabilities/gather_data_sampling",
		told: func(s *subject) bool { return s.Settings.Mitigations != nil },
		what: func(s *subject) string {
			if slices.ContainsFunc(s.Settings.Mitigations, func(m string) bool { return strings.HasPrefix(m, "gather_data_sampling") }) {
				return "the mitigation of gather data sampling slows vector gathers"
			}
			return ""
		},
		effect: "none for the matmuls of ck, which do not gather; other programs' tables do",
		mend:   "gather_data_sampling=off on the kernel's command line,\nonly where nobody else's code runs",
	},
	{
		id: "clock-source", severity: minor, reads: "clocksource0/current_clocksource",
		told: setting(func(s *topo.Settings) string { return s.ClockSource }),
		what: func(s *subject) string {
			if !slices.Contains([]string{"hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"}, s.Settings.ClockSource) {
				return ""
			}
			return "the clock source is " + s.Settings.ClockSource
		},
		measured: func(s *subject) string { return "a look at the clock takes " + humanize.Nanoseconds(s.here.Now) },
		effect:   "every look at the clock is a system call: measured steps are slower and less exact",
		mend:     "cd /sys/devices/system/clocksource/clocksource0\necho tsc > current_clocksource (if dmesg does not call it unstable)",
	},
	{
		id: "missing", severity: note, reads: "all files of the page",
		what: func(s *subject) string {
			if len(s.Missing) == 0 {
				return ""
			}
			return humanize.Plural(len(s.Missing), "thing") + " could not be read or made no sense; the page lists them"
		},
		effect: "what this page says may be incomplete",
		mend:   "cktopo --plain | grep ^missing",
	},
}

// several reports whether the machine has more than one node with CPUs or memory.
func several(s *topo.Survey) bool {
	n := 0
	for _, node := range s.Nodes {
		if len(node.CPUs) > 0 || node.MemTotal > 0 {
			n++
		}
	}
	return n > 1
}

// online are the numbers of all CPUs.
func online(s *topo.Survey) []int {
	ids := make([]int, len(s.CPUs))
	for i, c := range s.CPUs {
		ids[i] = c.ID
	}
	return ids
}

// coresOf counts the physical cores of CPUs.
func coresOf(s *topo.Survey, cpus []int) int {
	among := map[int]bool{}
	for _, id := range cpus {
		among[id] = true
	}
	leads := map[int]bool{}
	for _, c := range s.CPUs {
		if among[c.ID] {
			leads[c.Lead] = true
		}
	}
	return len(leads)
}

// tightest is the lowest memory limit, if it is below what the machine has.
func tightest(s *topo.Survey) (worst topo.MemLimit, ok bool) {
	for _, l := range s.Limits {
		if (!ok || l.Max < worst.Max) && (s.MemTotal == 0 || l.Max < s.MemTotal) {
			worst, ok = l, true
		}
	}
	return worst, ok
}

// bareNodes are nodes with CPUs and no memory, where others have some, and how many cores they have.
func bareNodes(s *topo.Survey) (nodes []int, cores int) {
	some := false
	for i, n := range s.Nodes {
		switch {
		case n.MemTotal > 0:
			some = true
		case len(n.CPUs) > 0 && (i >= len(s.Memory) || s.Memory[i].Kind == topo.None):
			nodes = append(nodes, n.ID)
			cores += coresOf(s, n.CPUs)
		}
	}
	if !some {
		return nil, 0
	}
	return nodes, cores
}

// nodesWith names nodes with a verb for one or several.
func nodesWith(ids []int, one, more string) string {
	if len(ids) == 1 {
		return fmt.Sprintf("node %d %s", ids[0], one)
	}
	return fmt.Sprintf("nodes %s %s", humanize.ShortList(ids, humanize.ListColumns), more)
}

// setAside is the memory in free pages of the pools.
func setAside(s *topo.Survey) (bytes int64) {
	for _, h := range s.HugePages {
		bytes += h.Free * h.PageBytes
	}
	return bytes
}

// pageCacheOnOneNode finds page cache that lies on one node although several have CPUs: that of a model if one is named, else all. A
// model's pages may also lie where the process does not run.
func pageCacheOnOneNode(s *subject) (what, effect string) {
	cached, whose := s.Settings.PageCacheByNode, "the page cache"
	own := s.model != nil && s.model.Unknown == ""
	if own {
		cached, whose = make([]int64, len(s.Nodes)), "the model's pages in memory"
		for i, n := range s.Nodes {
			cached[i] = s.model.OnNode(n.ID)
		}
	}
	withCPUs, most := 0, 0
	var all, away int64
	for i, n := range s.Nodes {
		if len(n.CPUs) > 0 {
			withCPUs++
		}
		if i < len(cached) {
			all += cached[i]
			if cached[i] > cached[most] {
				most = i
			}
			if !slices.ContainsFunc(n.CPUs, func(id int) bool { return slices.Contains(s.Affinity, id) }) {
				away += cached[i]
			}
		}
	}
	if own && all > 0 && away > all/10*3 {
		return fmt.Sprintf("%s of %s (%s) lie on nodes where this process does not run", humanize.Percent(away, all), whose, humanize.IBytes(all)),
			"they are read over links between nodes"
	}
	if withCPUs < 2 || all < 4<<30 && !own || all == 0 || cached[most] < all/10*7 {
		return "", ""
	}
	effect = "a model in it is read over links between nodes by all other cores"
	if far, near := farthest(s.Survey, most); far > near && near > 0 {
		effect += fmt.Sprintf(" (distance up to %d instead of %d), and from one node's memory channels", far, near)
	}
	return fmt.Sprintf("%s of %s (%s) lie on node %d", humanize.Percent(cached[most], all), whose, humanize.IBytes(all), s.Nodes[most].ID), effect
}

// farthest is the largest distance to the node at index i from nodes with CPUs, and its own.
func farthest(s *topo.Survey, i int) (far, near int) {
	for j, row := range s.Distance {
		if j >= len(s.Nodes) || i >= len(row) {
			break
		}
		if j == i {
			near = row[i]
		}
		if len(s.Nodes[j].CPUs) > 0 {
			far = max(far, row[i])
		}
	}
	return far, near
}

// badDistances finds tables that cannot be true: a node that is not its own nearest, or several nodes without any distance.
func badDistances(s *topo.Survey) (what, effect string) {
	if len(s.Distance) < 2 {
		return "", ""
	}
	flat := true
	for i, row := range s.Distance {
		if i >= len(row) {
			return "the table of distances between nodes has rows of different lengths", "who places memory by it places it wrongly"
		}
		for j, d := range row {
			if i != j && d < row[i] {
				return "the table of distances says that a node is nearer to another one than to itself",
					"who places memory by it places it wrongly"
			}
			flat = flat && d == s.Distance[0][0]
		}
	}
	if flat {
		return "all distances between nodes are equal", "nothing tells which memory is near"
	}
	return "", ""
}
