package findings

import (
	"fmt"
	"slices"
	"strings"

	"ck/internal/humanize"
	"ck/internal/topo"
)

// speedRules look at how fast the cores run.
var speedRules = []Rule{
	{
		ID: "governor", Severity: Serious, Reads: "cpufreq/scaling_governor and scaling_driver",
		told: setting(func(s *topo.Settings) string { return s.Governor }),
		what: func(s *Subject) string {
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
		ID: "governor-slow", Severity: Minor, Reads: "cpufreq/scaling_governor",
		told: setting(func(s *topo.Settings) string { return s.Governor }),
		what: func(s *Subject) string {
			slow := slices.DeleteFunc(strings.Split(s.Settings.Governor, ","), func(g string) bool { return g == "performance" || g == "" })
			if len(slow) == 0 {
				return ""
			}
			return "the frequency governor is " + strings.Join(slow, ", ")
		},
		measured: func(s *Subject) string {
			h := s.Here
			if h.Clock == 0 {
				return ""
			}
			return fmt.Sprintf("a core that rested begins at %s and needs %s to reach %s", humanize.Hertz(h.ClockFirst), humanize.Milliseconds(h.Ramp), humanize.Hertz(h.Clock))
		},
		effect: "frequencies rise only after a while of load: the first tokens are slower, and figures differ from run to run",
		mend:   "cpupower frequency-set -g performance",
	},
	{
		ID: "turbo", Severity: Serious, Reads: "intel_pstate/no_turbo, cpufreq/boost",
		told: setting(func(s *topo.Settings) string { return s.Turbo }),
		what: func(s *Subject) string {
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
		ID: "clock-low", Severity: Minor, Reads: "a measurement: a loop of dependent additions",
		Measures: true,
		what: func(s *Subject) string {
			if s.Here.Clock == 0 || s.Here.Clock >= 0.9*s.Here.Stated {
				return ""
			}
			return fmt.Sprintf("a busy core runs at %s, %s says %s", humanize.Hertz(s.Here.Clock), s.Here.StatedBy, humanize.Hertz(s.Here.Stated))
		},
		measured: func(s *Subject) string {
			return fmt.Sprintf("all that computes takes %.2g times as long", s.Here.Stated/s.Here.Clock)
		},
		effect: "a limit of power or temperature, a governor, or a host that shares its CPUs",
		mend:   "cpupower frequency-info; turbostat (for root)",
	},
	{
		ID: "temperature", Severity: Minor, Reads: "thermal_zone*/temp, hwmon",
		told: func(s *Subject) bool {
			return slices.ContainsFunc(s.Thermal, func(z topo.ThermalZone) bool { return z.Readable })
		},
		what: func(s *Subject) string {
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
		ID: "power-limit", Severity: Minor, Reads: "powercap/*/constraint_*",
		told: func(s *Subject) bool { return len(s.Power) > 0 },
		what: func(s *Subject) string {
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
}

// coreRules look at what the cores are.
var coreRules = []Rule{
	{
		ID: "smt", Severity: Note, Reads: "topology/thread_siblings",
		what: func(s *Subject) string {
			if s.SMT < 2 {
				return ""
			}
			return fmt.Sprintf("cores have %d threads", s.SMT)
		},
		measured: func(s *Subject) string {
			a, b := s.Here.Alone, s.Here.Siblings
			if a.Read == 0 || b.Read == 0 {
				return ""
			}
			return fmt.Sprintf("one thread of a core reads %s and computes %s; two threads %s and %s together", humanize.GBps(a.Read), humanize.Ops(a.Ops), humanize.GBps(b.Read), humanize.Ops(b.Ops))
		},
		effect: "ck runs one worker on each core, since a second one adds nothing to a loop that keeps the core's units or the memory busy; other programs on the sibling threads take their half",
		mend:   "nothing for ck alone; beside other programs:\necho off > /sys/devices/system/cpu/smt/control",
	},
	{
		ID: "tier", Severity: Serious, Reads: "CPUID, or /proc/cpuinfo",
		told: func(s *Subject) bool { return len(s.ISA.Tiers) > 0 },
		what: func(s *Subject) string {
			if len(s.ISA.Tiers) > 1 || s.Arch != "x86_64" && s.Arch != "" {
				return ""
			}
			return "this CPU may not run AVX2 kernels (AVX2, FMA, F16C, BMI1 and BMI2 are needed)"
		},
		effect: "portable kernels: a tenth of the speed or less",
		mend:   "in a virtual machine show the guest the host's CPU:\n-cpu host (QEMU)\n<cpu mode='host-passthrough'/> (libvirt)",
	},
	{
		ID: "architecture", Severity: Minor, Reads: "/proc/cpuinfo",
		told: func(s *Subject) bool { return s.Arch != "" },
		what: func(s *Subject) string {
			if s.Arch == "x86_64" {
				return ""
			}
			return "ck has no kernels for " + s.Arch + " yet"
		},
		effect: "portable kernels: right results, at a tenth of the speed or less",
		mend:   "nothing to set",
	},
	{
		ID: "caches-not-told", Severity: Note, Reads: "cpu*/cache",
		what: func(s *Subject) string {
			if len(s.Caches) > 0 {
				return ""
			}
			return "nothing tells the sizes of caches"
		},
		effect: "plan cannot say what fits into them",
		mend:   "in a virtual machine:\n-cpu host,host-cache-info=on (QEMU)\n<cache mode='passthrough'/> (libvirt)",
	},
	{
		ID: "accelerators", Severity: Note, Reads: "/sys/bus/dsa, /dev/dsa",
		what: func(s *Subject) string {
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
}
