package findings

import (
	"fmt"
	"slices"
	"strings"

	"ck/internal/humanize"
	"ck/internal/topo"
)

// neighbourRules look at who else is there.
var neighbourRules = []Rule{
	{
		ID: "flat-guest", Severity: Minor, Reads: "topology, node*/cpulist",
		what: func(s *Subject) string {
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
		ID: "hypervisor", Severity: Note, Reads: "flags in /proc/cpuinfo, /sys/hypervisor",
		what: func(s *Subject) string {
			if !s.Settings.Hypervisor {
				return ""
			}
			return "this is a virtual machine"
		},
		measured: func(s *Subject) string {
			return fmt.Sprintf("%.1f %% of the CPUs' time was stolen in %.1f s", 100*s.Here.Noise.Steal, s.Here.Seconds)
		},
		effect: "other guests share memory bandwidth and last cache, and time is stolen where CPUs are shared: every measured speed is a lower bound",
		mend:   "pin the guest's CPUs to the host's\ngrep ^cpu /proc/stat shows stolen time in column 9",
	},
	{
		ID: "stolen-time", Severity: Minor, Reads: "/proc/stat, while measuring",
		Measures: true,
		what: func(s *Subject) string {
			if s.Here.Noise.Steal < 0.02 {
				return ""
			}
			return fmt.Sprintf("the hypervisor took %.0f %% of the CPUs' time away", 100*s.Here.Noise.Steal)
		},
		effect: "workers meet after every matmul: one that stands still stops all",
		mend:   "pin the guest's CPUs to the host's, or ckrun -t with fewer workers",
	},
	{
		ID: "busy", Severity: Minor, Reads: "/proc/stat, while measuring",
		Measures: true,
		what: func(s *Subject) string {
			if s.Here.Noise.OtherLoad < 0.25 {
				return ""
			}
			return fmt.Sprintf("other processes keep %.1f of %s busy", s.Here.Noise.OtherLoad, humanize.Plural(len(s.CPUs), "CPU"))
		},
		effect: "workers meet after every matmul: one that shares its core stops all; and the figures below are too low",
		mend:   "ps aux --sort=-pcpu | head",
	},
}

// kernelRules look at the kernel.
var kernelRules = []Rule{
	{
		ID: "mitigations", Severity: Note, Reads: "cpu/vulnerabilities",
		told: func(s *Subject) bool { return s.Settings.Mitigations != nil },
		what: func(s *Subject) string {
			if len(s.Settings.Mitigations) == 0 {
				return ""
			}
			return humanize.Plural(len(s.Settings.Mitigations), "mitigation") + " of CPU vulnerabilities active"
		},
		measured: func(s *Subject) string {
			if s.Here.Small.Touch == 0 {
				return "a system call takes " + humanize.Nanoseconds(s.Here.Syscall)
			}
			return fmt.Sprintf("a system call takes %s, the first use of a page of 4 KiB %s", humanize.Nanoseconds(s.Here.Syscall), humanize.Nanoseconds(s.Here.Small.Touch*4096/(1<<30)))
		},
		effect: "system calls and page faults cost more; matmuls make none. Seen when a model is loaded, hardly after",
		mend:   "mitigations=off on the kernel's command line,\nonly where nobody else's code runs",
	},
	{
		ID: "gather", Severity: Note, Reads: "cpu/vulnerabilities/gather_data_sampling",
		told: func(s *Subject) bool { return s.Settings.Mitigations != nil },
		what: func(s *Subject) string {
			if slices.ContainsFunc(s.Settings.Mitigations, func(m string) bool { return strings.HasPrefix(m, "gather_data_sampling") }) {
				return "the mitigation of gather data sampling slows vector gathers"
			}
			return ""
		},
		effect: "none for the matmuls of ck, which do not gather; other programs' tables do",
		mend:   "gather_data_sampling=off on the kernel's command line,\nonly where nobody else's code runs",
	},
	{
		ID: "clock-source", Severity: Minor, Reads: "clocksource0/current_clocksource",
		told: setting(func(s *topo.Settings) string { return s.ClockSource }),
		what: func(s *Subject) string {
			if !slices.Contains([]string{"hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"}, s.Settings.ClockSource) {
				return ""
			}
			return "the clock source is " + s.Settings.ClockSource
		},
		measured: func(s *Subject) string { return "a look at the clock takes " + humanize.Nanoseconds(s.Here.Now) },
		effect:   "every look at the clock is a system call: measured steps are slower and less exact",
		mend:     "cd /sys/devices/system/clocksource/clocksource0\necho tsc > current_clocksource (if dmesg does not call it unstable)",
	},
	{
		ID: "missing", Severity: Note, Reads: "all files of the page",
		what: func(s *Subject) string {
			if len(s.Missing) == 0 {
				return ""
			}
			return humanize.Plural(len(s.Missing), "thing") + " could not be read or made no sense; the page lists them"
		},
		effect: "what this page says may be incomplete",
		mend:   "cktopo --plain | grep ^missing",
	},
}
