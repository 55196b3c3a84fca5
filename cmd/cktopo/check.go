package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/topo"
)

func (p *program) checkCommand() {
	p.app.NewCommand("check [flags]", "say what is wrong with the machine for a model, and the command that mends it",
		`Looks at what slows models down or stops them: each finding has its effect and the command that mends it. Effects are computed from this machine's own numbers where these are told, else they are stated; "ckbench run" measures them.

serious: costs a model much of its speed, or stops it. minor: costs a little, or only at times. note: good to know. Exits with 1 if anything is serious.`,
		func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usage("check: takes no words; see cktopo check --help")
			}
			return p.check()
		})
}

// check prints the findings; a serious one is exit code 1.
func (p *program) check() error {
	s, err := p.survey()
	if err != nil {
		return err
	}
	r := check(&s)
	if p.app.Common.JSON {
		err = p.app.PrintJSON(r)
	} else {
		err = r.write(p.app.Out, p.app.Common.Plain)
	}
	if err == nil && r.Matters > 0 {
		err = &cli.Error{Code: cli.ExitCheck}
	}
	return err
}

// Severities of findings.
const (
	serious = "serious"
	minor   = "minor"
	note    = "note"
)

// report is the result of all rules.
type report struct {
	Schema   string    `json:"schema"`
	Matters  int       `json:"matters"` // serious findings
	Findings []finding `json:"findings"`
	LookedAt int       `json:"looked_at"`
	Unknown  []string  `json:"unknown"` // rules whose files are not there
}

type finding struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	What     string `json:"what"`
	Effect   string `json:"effect"`
	Mend     string `json:"mend"`
}

// A rule is a test of a survey. test says what was found, "" if nothing; and the effect where it follows from this machine's numbers,
// "" for the rule's own.
type rule struct {
	id, severity string
	told         func(*topo.Survey) bool // the files that the test needs are there; nil: always
	test         func(*topo.Survey) (what, effect string)
	effect, mend string
}

// check applies all rules; serious findings come first.
func check(s *topo.Survey) report {
	r := report{Schema: "ck.topo.check/1", LookedAt: len(rules), Findings: []finding{}, Unknown: []string{}}
	for _, severity := range []string{serious, minor, note} {
		for _, x := range rules {
			switch {
			case x.severity != severity:
				continue
			case x.told != nil && !x.told(s):
				r.Unknown = append(r.Unknown, x.id)
				continue
			}
			what, effect := x.test(s)
			if what == "" {
				continue
			}
			if effect == "" {
				effect = x.effect
			}
			r.Findings = append(r.Findings, finding{x.id, x.severity, what, effect, x.mend})
			if x.severity == serious {
				r.Matters++
			}
		}
	}
	slices.Sort(r.Unknown)
	return r
}

func (r *report) write(w io.Writer, plain bool) error {
	var b strings.Builder
	for i, f := range r.Findings {
		lines := [][2]string{{"effect", f.Effect}, {"mend", f.Mend}}
		if plain {
			fmt.Fprintf(&b, "%s severity\t%s\n%s what\t%s\n", f.ID, f.Severity, f.ID, f.What)
			for _, l := range lines {
				fmt.Fprintf(&b, "%s %s\t%s\n", f.ID, l[0], l[1])
			}
			continue
		}
		if i > 0 {
			b.WriteString("\n")
		}
		for j, text := range wrap(f.What, pageWidth-10) {
			head := ""
			if j == 0 {
				head = f.Severity
			}
			b.WriteString(pad(head, 10) + text + "\n")
		}
		for _, l := range lines {
			text := []string{l[1]}
			if l[0] == "effect" { // a command stays on one line, so that it can be copied
				text = wrap(l[1], pageWidth-18)
			}
			for j, t := range text {
				head := ""
				if j == 0 {
					head = l[0]
				}
				b.WriteString(strings.Repeat(" ", 10) + pad(head, 8) + t + "\n")
			}
		}
	}
	if !plain {
		if len(r.Findings) > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s looked at, %s, %d serious\n", plural(r.LookedAt, "thing"), plural(len(r.Findings), "finding"), r.Matters)
		if len(r.Unknown) > 0 {
			for _, l := range wrap("not told here: "+strings.Join(r.Unknown, ", "), pageWidth) {
				b.WriteString(l + "\n")
			}
		}
	} else {
		fmt.Fprintf(&b, "check looked at\t%d\ncheck findings\t%d\ncheck serious\t%d\n", r.LookedAt, len(r.Findings), r.Matters)
		if len(r.Unknown) > 0 {
			fmt.Fprintf(&b, "check unknown\t%s\n", strings.Join(r.Unknown, " "))
		}
	}
	_, err := io.WriteString(w, printable(b.String()))
	return cli.OutError(err)
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

// coresOf counts the physical cores of CPUs.
func coresOf(s *topo.Survey, cpus []int) int {
	allowed := map[int]bool{}
	for _, id := range cpus {
		allowed[id] = true
	}
	leads := map[int]bool{}
	for _, c := range s.CPUs {
		if allowed[c.ID] {
			leads[c.Lead] = true
		}
	}
	return len(leads)
}

// percent is a share in words.
func percent(part, all int64) string {
	if all <= 0 {
		return "0 %"
	}
	return strconv.FormatFloat(100*float64(part)/float64(all), 'f', 0, 64) + " %"
}

// sum of what can be read over all nodes.
func sum(list []int64) int64 {
	var n int64
	for _, v := range list {
		n += v
	}
	return n
}

// told makes the told function of a rule about one setting.
func setting(get func(*topo.Settings) string) func(*topo.Survey) bool {
	return func(s *topo.Survey) bool { return get(&s.Settings) != "" }
}

// hot is the temperature from which CPUs are near the point where they slow down.
const hot = 90

// rules is everything that is looked at. To add one is to add a row.
var rules = []rule{
	{
		id: "quota", severity: serious,
		test: func(s *topo.Survey) (string, string) {
			cores := coresOf(s, s.Affinity)
			n := s.QuotaWorkers()
			if n == 0 || n >= cores {
				return "", ""
			}
			return fmt.Sprintf("a quota of %.4g CPUs in cgroup %s, with %s allowed", s.Quota.CPUs, s.Quota.Group, plural(cores, "core")),
				fmt.Sprintf("%s instead of %d: a prompt is processed at %s of the possible speed", plural(n, "worker"), cores, percent(int64(n), int64(cores)))
		},
		mend: "systemctl set-property UNIT CPUQuota= (systemd), docker update --cpus 0 NAME (Docker), no resources.limits.cpu (Kubernetes)",
	},
	{
		id: "quota-fraction", severity: note,
		test: func(s *topo.Survey) (string, string) {
			q := s.Quota.CPUs
			if q <= 0 || q >= 1024 || q == float64(int(q)) {
				return "", ""
			}
			return fmt.Sprintf("the quota of %.4g CPUs is no whole number", q), ""
		},
		effect: "workers are whole: what is above is not used, and below one CPU every worker is throttled",
		mend:   "a quota of whole CPUs: docker update --cpus 2 NAME, resources.limits.cpu: 2",
	},
	{
		id: "cpus-not-allowed", severity: minor,
		test: func(s *topo.Survey) (string, string) {
			all := make([]int, len(s.CPUs))
			for i, c := range s.CPUs {
				all[i] = c.ID
			}
			have, may := coresOf(s, all), coresOf(s, s.Affinity)
			if may >= have {
				return "", ""
			}
			return fmt.Sprintf("%d of %s are allowed to this process", may, plural(have, "core")),
				fmt.Sprintf("a prompt is processed at %s of the possible speed", percent(int64(may), int64(have)))
		},
		mend: "taskset -c and numactl -C set it, cpuset.cpus of the cgroup, docker update --cpuset-cpus 0-N NAME, srun --cpus-per-task",
	},
	{
		id: "cpus-offline", severity: minor,
		test: func(s *topo.Survey) (string, string) {
			if len(s.Offline) == 0 || s.Settings.SMTControl == "off" || s.Settings.SMTControl == "forceoff" {
				return "", ""
			}
			return fmt.Sprintf("%s offline: %s", plural(len(s.Offline), "CPU"), shortList(s.Offline, listWidth)), ""
		},
		effect: "cores that do not work, if their siblings are offline too; caches and memory of their node are far from the others",
		mend:   "for f in /sys/devices/system/cpu/cpu*/online; do echo 1 > $f; done",
	},
	{
		id: "nodes-not-allowed", severity: minor,
		test: func(s *topo.Survey) (string, string) {
			if len(s.DisallowedNodes) == 0 {
				return "", ""
			}
			var out, all int64
			for _, n := range s.Nodes {
				if all += n.MemTotal; slices.Contains(s.DisallowedNodes, n.ID) {
					out += n.MemTotal
				}
			}
			return fmt.Sprintf("memory of nodes %s is not allowed to this process", shortList(s.DisallowedNodes, listWidth)),
				fmt.Sprintf("%s of the memory, and its bandwidth, are out of reach", percent(out, all))
		},
		mend: "cpuset.mems of the cgroup, docker update --cpuset-mems 0-N NAME",
	},
	{
		id: "memory-limit", severity: minor,
		test: func(s *topo.Survey) (string, string) {
			var worst topo.MemLimit
			for _, l := range s.Limits {
				if (worst.Max == 0 || l.Max < worst.Max) && (s.MemTotal == 0 || l.Max < s.MemTotal) {
					worst = l
				}
			}
			if worst.Max == 0 {
				return "", ""
			}
			return fmt.Sprintf("a memory limit of %s in cgroup %s", size(worst.Max), worst.Group),
				fmt.Sprintf("models that need more than %s (panels and cache, and the file's pages while they are in use) do not run well or at all", size(worst.Left))
		},
		mend: "memory.max of the cgroup, docker update --memory NAME, resources.limits.memory",
	},
	{
		id: "memory-taken", severity: minor,
		told: func(s *topo.Survey) bool { return s.MemTotal > 0 && s.MemFree > 0 },
		test: func(s *topo.Survey) (string, string) {
			if s.MemFree > s.MemTotal/5 {
				return "", ""
			}
			return fmt.Sprintf("%s of %s of memory are available", size(s.MemFree), size(s.MemTotal)), ""
		},
		effect: "larger models are read from the file again for every token",
		mend:   "ps aux --sort=-rss | head",
	},
	{
		id: "swap-in-use", severity: minor,
		told: func(s *topo.Survey) bool { return s.MemTotal > 0 },
		test: func(s *topo.Survey) (string, string) {
			if s.Settings.SwapUsed < 64<<20 {
				return "", ""
			}
			return fmt.Sprintf("%s of swap are in use", size(s.Settings.SwapUsed)), ""
		},
		effect: "weights and cache that were swapped out come back at the speed of the disk, a hundredth of the memory's",
		mend:   "swapoff -a && swapon -a (with that much memory free), sysctl -w vm.swappiness=1",
	},
	{
		id: "swappiness", severity: note,
		told: setting(func(s *topo.Settings) string { return s.Swappiness }),
		test: func(s *topo.Survey) (string, string) {
			if n, err := strconv.Atoi(s.Settings.Swappiness); err != nil || n <= 10 || s.Settings.SwapTotal == 0 {
				return "", ""
			}
			return fmt.Sprintf("swap is on, with swappiness %s", s.Settings.Swappiness), ""
		},
		effect: "reading a large model file can push packed weights and cache out to the disk",
		mend:   "sysctl -w vm.swappiness=1",
	},
	{
		id: "numa-balancing", severity: minor,
		told: setting(func(s *topo.Settings) string { return s.NUMABalancing }),
		test: func(s *topo.Survey) (string, string) {
			if s.Settings.NUMABalancing == "0" || !several(s) {
				return "", ""
			}
			return "NUMA balancing is on", ""
		},
		effect: "the kernel unmaps pages to see who uses them and moves them: page faults within matmuls, and speed that differs from run to run",
		mend:   "sysctl -w kernel.numa_balancing=0",
	},
	{
		id: "zone-reclaim", severity: minor,
		told: setting(func(s *topo.Settings) string { return s.ZoneReclaim }),
		test: func(s *topo.Survey) (string, string) {
			if s.Settings.ZoneReclaim == "0" || !several(s) {
				return "", ""
			}
			return "zone reclaim is on (vm.zone_reclaim_mode=" + s.Settings.ZoneReclaim + ")", ""
		},
		effect: "a full node drops its page cache, the model's file, although other nodes have room: it is read from the disk again",
		mend:   "sysctl -w vm.zone_reclaim_mode=0",
	},
	{
		id: "page-cache-on-one-node", severity: minor,
		told: func(s *topo.Survey) bool { return !several(s) || len(s.Settings.PageCacheByNode) == len(s.Nodes) },
		test: pageCacheOnOneNode,
		mend: "echo 1 > /proc/sys/vm/drop_caches, then start with: numactl --interleave=all",
	},
	{
		id: "nodes-without-memory", severity: serious,
		test: func(s *topo.Survey) (string, string) {
			var empty []int
			cores, with := 0, 0
			for i, n := range s.Nodes {
				switch {
				case n.MemTotal > 0:
					with++
				case len(n.CPUs) > 0 && (i >= len(s.Memory) || s.Memory[i].Kind == topo.None):
					empty = append(empty, n.ID)
					cores += coresOf(s, n.CPUs)
				}
			}
			if len(empty) == 0 || with == 0 {
				return "", ""
			}
			return fmt.Sprintf("nodes %s have CPUs and no memory", shortList(empty, listWidth)),
				fmt.Sprintf("%s read everything over links between nodes, and the memory channels of their nodes are idle", plural(cores, "core"))
		},
		mend: "put memory into every channel, or choose fewer nodes per package in the firmware (NPS1, SNC off)",
	},
	{
		id: "nodes-uneven", severity: minor,
		test: func(s *topo.Survey) (string, string) {
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
				return "", ""
			}
			return fmt.Sprintf("nodes with CPUs have between %s and %s of memory", size(lo), size(hi)), ""
		},
		effect: "memory channels are probably filled unevenly: all nodes wait for the one with the least bandwidth",
		mend:   "dmidecode -t memory | grep -E 'Locator|Size|Speed'",
	},
	{
		id: "distances", severity: note,
		test: badDistances,
		mend: "update the firmware; numactl --hardware shows the table",
	},
	{
		id: "far-memory", severity: note,
		test: func(s *topo.Survey) (string, string) {
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
					parts = append(parts, size(kinds[k])+" "+name)
				}
			}
			if len(parts) == 0 {
				return "", ""
			}
			return "memory on nodes without CPUs: " + strings.Join(parts, ", "), ""
		},
		effect: "the kernel gives it out after that of the CPUs' own nodes: a small model does not use HBM, a large one may land on slow memory",
		mend:   "numactl --preferred-many=NODES (HBM that the model fits into) or numactl --membind=NODES (to keep off slow memory)",
	},
	{
		id: "thp", severity: serious,
		told: setting(func(s *topo.Settings) string { return s.THP }),
		test: func(s *topo.Survey) (string, string) {
			if s.Settings.THP != "never" {
				return "", ""
			}
			return "transparent huge pages are off", ""
		},
		effect: "weights lie in pages of 4 KiB: every few kilobytes wait for a walk through page tables; ckbench run --ablate huge measures what it costs",
		mend:   "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
	},
	{
		id: "thp-defrag", severity: note,
		told: setting(func(s *topo.Settings) string { return s.THPDefrag }),
		test: func(s *topo.Survey) (string, string) {
			if s.Settings.THPDefrag != "always" {
				return "", ""
			}
			return "the kernel makes room for huge pages at once, whoever asks", ""
		},
		effect: "the first use of memory may stall for milliseconds while pages are moved",
		mend:   "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag",
	},
	{
		id: "huge-pages-set-aside", severity: minor,
		test: func(s *topo.Survey) (string, string) {
			var n int64
			for _, h := range s.HugePages {
				n += h.Free * h.PageBytes
			}
			if n == 0 || n < s.MemTotal/50 {
				return "", ""
			}
			return fmt.Sprintf("%s of memory are set aside in pools of huge pages, unused", size(n)),
				fmt.Sprintf("ck uses transparent huge pages: %s of the memory are not there for models", percent(n, s.MemTotal))
		},
		mend: "sysctl -w vm.nr_hugepages=0; for pages of 1 GiB: echo 0 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
	},
	{
		id: "huge-pages-empty", severity: note,
		told: func(s *topo.Survey) bool { return len(s.HugePages) > 0 },
		test: func(s *topo.Survey) (string, string) {
			for _, h := range s.HugePages {
				if h.Total > 0 {
					return "", ""
				}
			}
			return "the pools of huge pages are empty", ""
		},
		effect: "none for ck, which uses transparent huge pages; programs that ask for pages of the pools get none",
		mend:   "sysctl -w vm.nr_hugepages=N (pages of 2 MiB), for those programs only",
	},
	{
		id: "governor", severity: serious,
		told: setting(func(s *topo.Settings) string { return s.Governor }),
		test: func(s *topo.Survey) (string, string) {
			own := strings.HasPrefix(s.Settings.Driver, "intel_pstate") || strings.HasPrefix(s.Settings.Driver, "amd-pstate") || strings.HasPrefix(s.Settings.Driver, "amd_pstate")
			if own || !slices.Contains(strings.Split(s.Settings.Governor, ","), "powersave") {
				return "", ""
			}
			return fmt.Sprintf("the governor powersave of driver %s", orNot(s.Settings.Driver)), ""
		},
		effect: "CPUs stay at their lowest frequency: often a third of the speed",
		mend:   "cpupower frequency-set -g performance",
	},
	{
		id: "governor-slow", severity: minor,
		told: setting(func(s *topo.Settings) string { return s.Governor }),
		test: func(s *topo.Survey) (string, string) {
			var slow []string
			for g := range strings.SplitSeq(s.Settings.Governor, ",") {
				if g != "performance" && g != "" {
					slow = append(slow, g)
				}
			}
			if len(slow) == 0 {
				return "", ""
			}
			return "the frequency governor is " + strings.Join(slow, ", "), ""
		},
		effect: "frequencies rise only after a while of load: the first tokens are slower, and figures differ from run to run",
		mend:   "cpupower frequency-set -g performance",
	},
	{
		id: "turbo", severity: serious,
		told: setting(func(s *topo.Settings) string { return s.Turbo }),
		test: func(s *topo.Survey) (string, string) {
			if s.Settings.Turbo != "off" {
				return "", ""
			}
			return "turbo frequencies are off", ""
		},
		effect: "prompts take longer by the ratio of the frequencies, often 1.3 to 1.5; decode less, since it waits for memory",
		mend:   "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo, or echo 1 > /sys/devices/system/cpu/cpufreq/boost",
	},
	{
		id: "temperature", severity: minor,
		told: func(s *topo.Survey) bool {
			return slices.ContainsFunc(s.Thermal, func(z topo.ThermalZone) bool { return z.Readable })
		},
		test: func(s *topo.Survey) (string, string) {
			var parts []string
			for _, z := range s.Thermal {
				if z.Readable && z.Celsius >= hot {
					parts = append(parts, fmt.Sprintf("%s %.0f °C", strings.TrimSpace(z.Zone+" "+z.Type), z.Celsius))
				}
			}
			return strings.Join(parts, ", "), ""
		},
		effect: "near the point where the CPU lowers its frequency",
		mend:   "look after fans and filters; sensors, ipmitool sdr type fan",
	},
	{
		id: "power-limit", severity: minor,
		told: func(s *topo.Survey) bool { return len(s.Power) > 0 },
		test: func(s *topo.Survey) (string, string) {
			for _, z := range s.Power {
				for _, l := range z.Limits {
					if l.MaxWatts > 0 && l.Watts > 0 && l.Watts < 0.9*l.MaxWatts {
						return fmt.Sprintf("%s (%s) is limited to %.4g W of %.4g W", z.Zone, l.Name, l.Watts, l.MaxWatts), ""
					}
				}
			}
			return "", ""
		},
		effect: "under matmuls the frequency of all cores falls until the power fits: prompts take longer, decode hardly",
		mend:   "powercap-set, or the power limits (cTDP, PL1) of the firmware",
	},
	{
		id: "smt", severity: note,
		test: func(s *topo.Survey) (string, string) {
			if s.SMT < 2 {
				return "", ""
			}
			return fmt.Sprintf("cores have %d threads", s.SMT), ""
		},
		effect: "ck runs one worker on each core, since a second one adds nothing to a loop that keeps the core's units or the memory busy; other programs on the sibling threads take their half",
		mend:   "nothing for ck alone; beside other programs: echo off > /sys/devices/system/cpu/smt/control",
	},
	{
		id: "tier", severity: serious,
		told: func(s *topo.Survey) bool { return len(s.ISA.Tiers) > 0 },
		test: func(s *topo.Survey) (string, string) {
			if len(s.ISA.Tiers) > 1 || s.Arch != "x86_64" && s.Arch != "" {
				return "", ""
			}
			return "this CPU may not run AVX2 kernels (AVX2, FMA, F16C, BMI1 and BMI2 are needed)", ""
		},
		effect: "portable kernels: a tenth of the speed or less",
		mend:   "in a virtual machine show the guest the host's CPU: -cpu host (QEMU), <cpu mode='host-passthrough'/> (libvirt)",
	},
	{
		id: "architecture", severity: minor,
		told: func(s *topo.Survey) bool { return s.Arch != "" },
		test: func(s *topo.Survey) (string, string) {
			if s.Arch == "x86_64" {
				return "", ""
			}
			return "ck has no kernels for " + s.Arch + " yet", ""
		},
		effect: "portable kernels: right results, at a tenth of the speed or less",
		mend:   "nothing to set",
	},
	{
		id: "flat-guest", severity: minor,
		test: func(s *topo.Survey) (string, string) {
			switch {
			case !s.Settings.Hypervisor:
				return "", ""
			case len(s.Packages) > 1 && len(s.Packages) == len(s.CPUs):
				return fmt.Sprintf("the hypervisor shows %d packages of one CPU each", len(s.Packages)), ""
			case !several(s) && s.Cores > 64:
				return fmt.Sprintf("the hypervisor shows %d cores on one node", s.Cores), ""
			}
			return "", ""
		},
		effect: "threads of one core look like cores of their own, and far memory like near memory: workers disturb each other",
		mend:   "-smp N,sockets=S,cores=C,threads=T with -numa node for each (QEMU), <topology> and <numa> (libvirt), vNUMA (others)",
	},
	{
		id: "hypervisor", severity: note,
		test: func(s *topo.Survey) (string, string) {
			if !s.Settings.Hypervisor {
				return "", ""
			}
			return "this is a virtual machine", ""
		},
		effect: "other guests share memory bandwidth and last cache, and time is stolen where CPUs are shared: every measured speed is a lower bound",
		mend:   "pin the guest's CPUs to the host's; grep ^cpu /proc/stat shows stolen time in column 9",
	},
	{
		id: "caches-not-told", severity: note,
		test: func(s *topo.Survey) (string, string) {
			if len(s.Caches) > 0 {
				return "", ""
			}
			return "nothing tells the sizes of caches", ""
		},
		effect: "plan cannot say what fits into them",
		mend:   "in a virtual machine: -cpu host,host-cache-info=on (QEMU), <cache mode='passthrough'/> (libvirt)",
	},
	{
		id: "memory-channels", severity: note,
		test: func(s *topo.Survey) (string, string) {
			if s.Settings.Hypervisor || s.MemTotal == 0 {
				return "", ""
			}
			return "the kernel does not tell how many memory channels are in use", ""
		},
		effect: "decode is as fast as memory: with half of the channels empty it takes twice the time",
		mend:   "dmidecode -t memory | grep -E 'Locator|Size|Speed'; ckbench bandwidth measures them",
	},
	{
		id: "mitigations", severity: note,
		told: func(s *topo.Survey) bool { return s.Settings.Mitigations != nil },
		test: func(s *topo.Survey) (string, string) {
			n := len(s.Settings.Mitigations)
			if n == 0 {
				return "", ""
			}
			return plural(n, "mitigation") + " of CPU vulnerabilities active", ""
		},
		effect: "system calls and page faults cost more; matmuls make none. Seen when a model is loaded, hardly after",
		mend:   "mitigations=off on the kernel's command line, only where nobody else's code runs",
	},
	{
		id: "gather", severity: note,
		told: func(s *topo.Survey) bool { return s.Settings.Mitigations != nil },
		test: func(s *topo.Survey) (string, string) {
			for _, m := range s.Settings.Mitigations {
				if strings.HasPrefix(m, "gather_data_sampling") {
					return "the mitigation of gather data sampling slows vector gathers", ""
				}
			}
			return "", ""
		},
		effect: "none for the matmuls of ck, which do not gather; other programs' tables do",
		mend:   "gather_data_sampling=off on the kernel's command line, only where nobody else's code runs",
	},
	{
		id: "address-space", severity: serious,
		told: func(s *topo.Survey) bool { return s.Settings.AddressSpace != -2 },
		test: func(s *topo.Survey) (string, string) {
			n := s.Settings.AddressSpace
			if n < 0 {
				return "", ""
			}
			return fmt.Sprintf("ulimit -v is %s", size(n)), ""
		},
		effect: "model files are mapped whole and panels come beside: larger models cannot be opened, whatever memory is free",
		mend:   "ulimit -v unlimited",
	},
	{
		id: "locked-memory", severity: note,
		told: func(s *topo.Survey) bool { return s.Settings.Memlock != -2 },
		test: func(s *topo.Survey) (string, string) {
			n := s.Settings.Memlock
			if n < 0 || s.MemTotal > 0 && n >= s.MemTotal/2 {
				return "", ""
			}
			return fmt.Sprintf("ulimit -l is %s", size(n)), ""
		},
		effect: "none for ck, which locks no memory; RDMA and mlock of other programs need more",
		mend:   "ulimit -l unlimited (LimitMEMLOCK=infinity in a unit, * - memlock unlimited in limits.conf)",
	},
	{
		id: "overcommit", severity: minor,
		told: setting(func(s *topo.Settings) string { return s.Overcommit }),
		test: func(s *topo.Survey) (string, string) {
			if s.Settings.Overcommit != "2" {
				return "", ""
			}
			return "the kernel promises no memory that it does not have (vm.overcommit_memory=2)", ""
		},
		effect: "room that ck reserves for panels and cache counts before it is used: large contexts may be refused",
		mend:   "sysctl -w vm.overcommit_memory=0",
	},
	{
		id: "clock-source", severity: minor,
		told: setting(func(s *topo.Settings) string { return s.ClockSource }),
		test: func(s *topo.Survey) (string, string) {
			if !slices.Contains([]string{"hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"}, s.Settings.ClockSource) {
				return "", ""
			}
			return "the clock source is " + s.Settings.ClockSource, ""
		},
		effect: "every look at the clock is a system call: measured steps are slower and less exact",
		mend:   "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource (if dmesg does not call it unstable)",
	},
	{
		id: "isolated", severity: note,
		test: func(s *topo.Survey) (string, string) {
			if len(s.Settings.Isolated) == 0 {
				return "", ""
			}
			return "the scheduler leaves CPUs " + shortList(s.Settings.Isolated, listWidth) + " alone (isolcpus)", ""
		},
		effect: "ck runs on them only if they are in its affinity: good when meant so, else these cores do not work",
		mend:   "taskset -c CPUS ckrun …",
	},
	{
		id: "accelerators", severity: note,
		test: func(s *topo.Survey) (string, string) {
			usable, why := 0, ""
			for _, a := range s.DSA {
				for _, q := range a.Queues {
					if q.Usable {
						usable++
					} else if why == "" && q.State == "enabled" && q.Type == "user" {
						why = q.Name + ": " + q.Why
					}
				}
			}
			if len(s.DSA) == 0 || usable > 0 {
				return "", ""
			}
			text := plural(len(s.DSA), "DSA or IAA device") + ", no queue of which this process may use"
			if why != "" {
				text += " (" + why + ")"
			}
			return text, ""
		},
		effect: "none today: ck copies with its cores",
		mend:   "accel-config load-config -e -c FILE, and chmod g+rw /dev/dsa/wq0.0",
	},
	{
		id: "missing", severity: note,
		test: func(s *topo.Survey) (string, string) {
			if len(s.Missing) == 0 {
				return "", ""
			}
			return plural(len(s.Missing), "thing") + " could not be read or made no sense; the page lists them", ""
		},
		effect: "what this page says may be incomplete",
		mend:   "cktopo --plain | grep ^missing",
	},
}

// pageCacheOnOneNode finds page cache that lies on one node although several have CPUs.
func pageCacheOnOneNode(s *topo.Survey) (what, effect string) {
	cached := s.Settings.PageCacheByNode
	withCPUs, most := 0, 0
	for i, n := range s.Nodes {
		if len(n.CPUs) > 0 {
			withCPUs++
		}
		if i < len(cached) && cached[i] > cached[most] {
			most = i
		}
	}
	all := sum(cached)
	if withCPUs < 2 || all < 4<<30 || cached[most] < all/10*7 {
		return "", ""
	}
	effect = "a model in it is read over links between nodes by all other cores"
	if far, near := farthest(s, most); far > near && near > 0 {
		effect += fmt.Sprintf(" (distance up to %d instead of %d), and from one node's memory channels", far, near)
	}
	return fmt.Sprintf("%s of the page cache (%s) lie on node %d", percent(cached[most], all), size(all), s.Nodes[most].ID), effect
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
		for j, d := range row {
			if i >= len(s.Distance) || j >= len(s.Distance) {
				continue
			}
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

// width is the number of columns of a text.
func width(s string) int { return utf8.RuneCountInString(s) }
