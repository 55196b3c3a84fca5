package findings

import (
	"fmt"
	"slices"
	"strconv"

	"ck/internal/humanize"
	"ck/internal/topo"
)

// processRules look at what the process may use.
var processRules = []Rule{
	{
		ID: "quota", Severity: Serious, Reads: "cpu.max or cpu.cfs_quota_us of the cgroups",
		what: func(s *Subject) string {
			cores, n := coresOf(s.Survey, s.Affinity), s.QuotaWorkers()
			if n == 0 || n >= cores {
				return ""
			}
			return fmt.Sprintf("a quota of %.4g CPUs in cgroup %s, with %s allowed", s.Quota.CPUs, s.Quota.Group, humanize.Plural(cores, "core"))
		},
		figure: func(s *Subject) string {
			cores, n := coresOf(s.Survey, s.Affinity), s.QuotaWorkers()
			return fmt.Sprintf("%s instead of %d: a prompt is processed at %s of the possible speed", humanize.Plural(n, "worker"), cores, humanize.Percent(int64(n), int64(cores)))
		},
		measured: throttling,
		mend:     "systemctl set-property UNIT CPUQuota= (systemd)\ndocker update --cpus 0 NAME (Docker)\nno resources.limits.cpu (Kubernetes)",
	},
	{
		ID: "quota-fraction", Severity: Note, Reads: "cpu.max or cpu.cfs_quota_us of the cgroups",
		what: func(s *Subject) string {
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
		ID: "cpus-not-allowed", Severity: Minor, Reads: "the affinity of the process, cpuset.cpus",
		what: func(s *Subject) string {
			if have, may := coresOf(s.Survey, online(s.Survey)), coresOf(s.Survey, s.Affinity); may < have {
				return fmt.Sprintf("%d of %s are allowed to this process", may, humanize.Plural(have, "core"))
			}
			return ""
		},
		figure: func(s *Subject) string {
			have, may := coresOf(s.Survey, online(s.Survey)), coresOf(s.Survey, s.Affinity)
			return fmt.Sprintf("a prompt is processed at %s of the possible speed", humanize.Percent(int64(may), int64(have)))
		},
		mend: "taskset -c and numactl -C set it\ncpuset.cpus of the cgroup\ndocker update --cpuset-cpus 0-N NAME (Docker)\nsrun --cpus-per-task (Slurm)",
	},
	{
		ID: "cpus-offline", Severity: Minor, Reads: "cpu/present and cpu/online",
		what: func(s *Subject) string {
			if len(s.Offline) == 0 || s.Settings.SMTControl == "off" || s.Settings.SMTControl == "forceoff" {
				return ""
			}
			return fmt.Sprintf("%s offline: %s", humanize.Plural(len(s.Offline), "CPU"), humanize.ShortList(s.Offline, humanize.ListColumns))
		},
		effect: "cores that do not work, if their siblings are offline too; caches and memory of their node are far from the others",
		mend:   "chcpu -e LIST",
	},
	{
		ID: "nodes-not-allowed", Severity: Minor, Reads: "cpuset.mems",
		what: func(s *Subject) string {
			if len(s.DisallowedNodes) == 0 {
				return ""
			}
			return "memory of " + nodesWith(s.DisallowedNodes, "is", "is") + " not allowed to this process"
		},
		figure: func(s *Subject) string {
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
		ID: "isolated", Severity: Note, Reads: "cpu/isolated",
		what: func(s *Subject) string {
			if len(s.Settings.Isolated) == 0 {
				return ""
			}
			return "the scheduler leaves CPUs " + humanize.ShortList(s.Settings.Isolated, humanize.ListColumns) + " alone (isolcpus)"
		},
		effect: "ck runs on them only if they are in its affinity: good when meant so, else these cores do not work",
		mend:   "taskset -c CPUS ckrun …",
	},
	{
		ID: "address-space", Severity: Serious, Reads: "/proc/self/limits",
		told: func(s *Subject) bool { return s.Settings.AddressSpace != -2 },
		what: func(s *Subject) string {
			if s.Settings.AddressSpace < 0 {
				return ""
			}
			return "ulimit -v is " + humanize.IBytes(s.Settings.AddressSpace)
		},
		effect: "model files are mapped whole and panels come beside: larger models cannot be opened, whatever memory is free",
		mend:   "ulimit -v unlimited",
	},
	{
		ID: "locked-memory", Severity: Note, Reads: "/proc/self/limits",
		told: func(s *Subject) bool { return s.Settings.Memlock != -2 },
		what: func(s *Subject) string {
			n := s.Settings.Memlock
			if n < 0 || s.MemTotal > 0 && n >= s.MemTotal/2 {
				return ""
			}
			return "ulimit -l is " + humanize.IBytes(n)
		},
		measured: func(s *Subject) string {
			switch {
			case s.Here.Locked > s.Settings.Memlock:
				return "it does not bind this process: more could be locked (CAP_IPC_LOCK)"
			case s.Here.Locked >= 0:
				return "it binds: one page more could not be locked"
			}
			return ""
		},
		effect: "none for ck, which locks no memory; RDMA and mlock of other programs need more",
		mend:   "ulimit -l unlimited\nLimitMEMLOCK=infinity in a unit (systemd)\n* - memlock unlimited in limits.conf",
	},
}

// amountRules look at how much memory there is.
var amountRules = []Rule{
	{
		ID: "memory-limit", Severity: Minor, Reads: "memory.max or memory.limit_in_bytes of the cgroups",
		what: func(s *Subject) string {
			if l, ok := tightest(s.Survey); ok {
				return fmt.Sprintf("a memory limit of %s in cgroup %s", humanize.IBytes(l.Max), l.Group)
			}
			return ""
		},
		figure: func(s *Subject) string {
			l, _ := tightest(s.Survey)
			return fmt.Sprintf("models that need more than %s (panels and cache, and the file's pages while they are in use) do not run well or at all", humanize.IBytes(l.Left))
		},
		mend: "memory.max of the cgroup\ndocker update --memory SIZE NAME (Docker)\nresources.limits.memory (Kubernetes)",
	},
	{
		ID: "memory-taken", Severity: Minor, Reads: "/proc/meminfo",
		told: func(s *Subject) bool { return s.MemTotal > 0 && s.MemFree > 0 },
		what: func(s *Subject) string {
			if s.MemFree > s.MemTotal/5 {
				return ""
			}
			return fmt.Sprintf("%s of %s of memory are available", humanize.IBytes(s.MemFree), humanize.IBytes(s.MemTotal))
		},
		effect: "larger models are read from the file again for every token",
		mend:   "ps aux --sort=-rss | head",
	},
	{
		ID: "swap-in-use", Severity: Minor, Reads: "/proc/meminfo",
		told: func(s *Subject) bool { return s.MemTotal > 0 },
		what: func(s *Subject) string {
			if s.Settings.SwapUsed < 64<<20 {
				return ""
			}
			return humanize.IBytes(s.Settings.SwapUsed) + " of swap are in use"
		},
		measured: func(s *Subject) string {
			in, out := s.Here.SwapIn, s.Here.SwapOut
			if in+out == 0 {
				return fmt.Sprintf("nothing was swapped in %.1f s: what is there lies still", s.Here.Seconds)
			}
			return fmt.Sprintf("%d pages came in and %d went out in %.1f s", in, out, s.Here.Seconds)
		},
		effect: "weights and cache that were swapped out come back at the speed of the disk, a hundredth of the memory's",
		mend:   "swapoff -a && swapon -a (with that much memory free)\nsysctl -w vm.swappiness=1",
	},
	{
		ID: "swappiness", Severity: Note, Reads: "/proc/sys/vm/swappiness, /proc/meminfo",
		told: setting(func(s *topo.Settings) string { return s.Swappiness }),
		what: func(s *Subject) string {
			if n, err := strconv.Atoi(s.Settings.Swappiness); err != nil || n <= 10 || s.Settings.SwapTotal == 0 {
				return ""
			}
			return "swap is on, with swappiness " + s.Settings.Swappiness
		},
		effect: "reading a large model file can push packed weights and cache out to the disk",
		mend:   "sysctl -w vm.swappiness=1",
	},
	{
		ID: "overcommit", Severity: Minor, Reads: "/proc/sys/vm/overcommit_memory",
		told: setting(func(s *topo.Settings) string { return s.Overcommit }),
		what: func(s *Subject) string {
			if s.Settings.Overcommit != "2" {
				return ""
			}
			return "the kernel promises no memory that it does not have (vm.overcommit_memory=2)"
		},
		effect: "room that ck reserves for panels and cache counts before it is used: large contexts may be refused",
		mend:   "sysctl -w vm.overcommit_memory=0",
	},
}
