package findings

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ck/internal/measure"
	"ck/internal/plaintext"
	"ck/internal/probe"
	"ck/internal/topo"
)

// healthy is a machine of two nodes of four cores with nothing to find but notes.
func healthy() *topo.Survey {
	s := &topo.Survey{Arch: "x86_64", Cores: 8, SMT: 1, Caches: []topo.Shape{{Level: 1, Type: "data", Bytes: 32 << 10, CPUs: 1, Count: 8}},
		Distance: [][]int{{10, 21}, {21, 10}}}
	for i := range 8 {
		s.CPUs = append(s.CPUs, topo.CPU{ID: i, Package: i / 4, Core: i, Lead: i, Node: i / 4})
		s.Affinity = append(s.Affinity, i)
		s.Present = append(s.Present, i)
	}
	for i := range 2 {
		s.Packages = append(s.Packages, topo.Package{ID: i, CPUs: s.Affinity[4*i : 4*i+4], Cores: 4, Nodes: []int{i}})
		s.Nodes = append(s.Nodes, topo.Node{ID: i, CPUs: s.Affinity[4*i : 4*i+4], MemTotal: 32 << 30, MemFree: 30 << 30, Allowed: true})
		s.Memory = append(s.Memory, topo.NodeMemory{Kind: topo.DRAM, Tier: -1, Package: i})
	}
	s.MemTotal, s.MemFree = 64<<30, 60<<30
	s.ISA.Tiers = []string{"go", "avx2"}
	s.Settings = topo.Settings{THP: "madvise", THPDefrag: "madvise", NUMABalancing: "0", Governor: "performance", Driver: "acpi-cpufreq", Turbo: "on",
		Swappiness: "60", Overcommit: "0", ZoneReclaim: "0", Memlock: -1, AddressSpace: -1, Mitigations: []string{}, ClockSource: "tsc",
		PageCacheByNode: []int64{8 << 30, 8 << 30}}
	return s
}

func ids(r Report) []string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, f.ID)
	}
	return out
}

func TestHealthy(t *testing.T) {
	if r := Check(&Subject{Survey: healthy()}); r.Matters != 0 || !slices.Equal(ids(r), []string{"memory-channels"}) {
		t.Errorf("findings %v", ids(r))
	}
}

// Each rule finds what it is for, with an effect and a command, and nothing else finds it too.
func TestRules(t *testing.T) {
	cases := map[string]struct {
		change func(*Subject)
		what   string // part of the text
		also   []string
	}{
		"quota":                  {func(s *Subject) { s.Quota = topo.Quota{CPUs: 2, Group: "/a"} }, "2 workers instead of 8: a prompt is processed at 25 %", nil},
		"quota-fraction":         {func(s *Subject) { s.Quota = topo.Quota{CPUs: 8.5, Group: "/a"} }, "8.5 CPUs", nil},
		"cpus-not-allowed":       {func(s *Subject) { s.Affinity = []int{0, 1} }, "2 of 8 cores", nil},
		"cpus-offline":           {func(s *Subject) { s.Offline = []int{8, 9} }, "2 CPUs offline: 8-9", nil},
		"nodes-not-allowed":      {func(s *Subject) { s.DisallowedNodes = []int{1} }, "50 % of the memory", nil},
		"memory-limit":           {func(s *Subject) { s.Limits = []topo.MemLimit{{Group: "/a", Max: 1 << 30, Left: 1 << 29}} }, "1 GiB in cgroup /a", nil},
		"memory-taken":           {func(s *Subject) { s.MemFree = 1 << 30 }, "1 GiB of 64 GiB", nil},
		"swap-in-use":            {func(s *Subject) { s.Settings.SwapUsed = 1 << 30 }, "1 GiB of swap", nil},
		"swappiness":             {func(s *Subject) { s.Settings.SwapTotal = 1 << 30 }, "swappiness 60", nil},
		"numa-balancing":         {func(s *Subject) { s.Settings.NUMABalancing = "1" }, "is on", nil},
		"zone-reclaim":           {func(s *Subject) { s.Settings.ZoneReclaim = "1" }, "vm.zone_reclaim_mode=1", nil},
		"page-cache-on-one-node": {func(s *Subject) { s.Settings.PageCacheByNode = []int64{1 << 30, 20 << 30} }, "distance up to 21 instead of 10", nil},
		"nodes-without-memory":   {func(s *Subject) { s.Nodes[1].MemTotal, s.Memory[1].Kind = 0, topo.None }, "node 1 has CPUs and no memory", nil},
		"nodes-uneven":           {func(s *Subject) { s.Nodes[1].MemTotal = 64 << 30 }, "between 32 GiB and 64 GiB", nil},
		"distances":              {func(s *Subject) { s.Distance = [][]int{{10, 10}, {10, 10}} }, "equal", nil},
		"far-memory": {func(s *Subject) {
			s.Nodes = append(s.Nodes, topo.Node{ID: 2, MemTotal: 16 << 30, Allowed: true})
			s.Memory = append(s.Memory, topo.NodeMemory{Kind: topo.HBM})
			s.Settings.PageCacheByNode = []int64{0, 0, 0}
		}, "16 GiB HBM", nil},
		"thp":                  {func(s *Subject) { s.Settings.THP = "never" }, "are off", nil},
		"thp-defrag":           {func(s *Subject) { s.Settings.THPDefrag = "always" }, "at once", nil},
		"huge-pages-set-aside": {func(s *Subject) { s.HugePages = []topo.HugePool{{PageBytes: 1 << 30, Total: 32, Free: 32}} }, "32 GiB", nil},
		"huge-pages-empty":     {func(s *Subject) { s.HugePages = []topo.HugePool{{PageBytes: 2 << 20}} }, "empty", nil},
		"governor":             {func(s *Subject) { s.Settings.Governor = "powersave" }, "powersave of driver acpi-cpufreq", []string{"governor-slow"}},
		"governor-slow":        {func(s *Subject) { s.Settings.Governor = "performance,schedutil" }, "schedutil", nil},
		"turbo":                {func(s *Subject) { s.Settings.Turbo = "off" }, "are off", nil},
		"temperature": {func(s *Subject) {
			s.Thermal = []topo.ThermalZone{{Zone: "z0", Type: "x86_pkg_temp", Celsius: 97, Readable: true}}
		}, "z0 x86_pkg_temp 97 °C", nil},
		"power-limit": {func(s *Subject) {
			s.Power = []topo.PowerZone{{Zone: "intel-rapl:0", Limits: []topo.PowerLimit{{Name: "long_term", Watts: 150, MaxWatts: 350}}}}
		}, "150 W of 350 W", nil},
		"smt":          {func(s *Subject) { s.SMT = 2 }, "2 threads", nil},
		"tier":         {func(s *Subject) { s.ISA.Tiers = []string{"go"} }, "AVX2", nil},
		"architecture": {func(s *Subject) { s.Arch, s.ISA.Tiers = "aarch64", []string{"go"} }, "aarch64", nil},
		"flat-guest": {func(s *Subject) {
			s.Settings.Hypervisor = true
			s.Packages = make([]topo.Package, 8)
		}, "8 packages of one CPU each", []string{"hypervisor"}},
		"hypervisor":      {func(s *Subject) { s.Settings.Hypervisor = true }, "virtual machine", nil},
		"caches-not-told": {func(s *Subject) { s.Caches = nil }, "caches", nil},
		"memory-channels": {func(*Subject) {}, "channels", nil},
		"mitigations":     {func(s *Subject) { s.Settings.Mitigations = []string{"spectre_v2: Mitigation: Retpolines"} }, "1 mitigation", nil},
		"gather":          {func(s *Subject) { s.Settings.Mitigations = []string{"gather_data_sampling: Mitigation: Microcode"} }, "gather", []string{"mitigations"}},
		"address-space":   {func(s *Subject) { s.Settings.AddressSpace = 1 << 30 }, "ulimit -v is 1 GiB", nil},
		"locked-memory":   {func(s *Subject) { s.Settings.Memlock = 8 << 20 }, "ulimit -l is 8 MiB", nil},
		"overcommit":      {func(s *Subject) { s.Settings.Overcommit = "2" }, "overcommit_memory=2", nil},
		"clock-source":    {func(s *Subject) { s.Settings.ClockSource = "hpet" }, "hpet", nil},
		"isolated":        {func(s *Subject) { s.Settings.Isolated = []int{2, 3} }, "2-3", nil},
		"accelerators": {func(s *Subject) {
			s.DSA = []topo.Accelerator{{Name: "dsa0", Queues: []topo.Queue{{Name: "wq0.0", State: "enabled", Type: "user", Why: "no"}}}}
		}, "wq0.0: no", nil},
		"huge-pages-not-given": {func(s *Subject) {
			s.Here = &probe.Figures{Small: probe.PageRates{Read: 20e9, Jump: 20e-9}, Huge: probe.PageRates{Read: 25e9, Jump: 10e-9}, HugeShare: 0.3}
		}, "huge pages for 30 % of memory", nil},
		"clock-low": {func(s *Subject) {
			s.Here = &probe.Figures{Clock: 1.3e9, Stated: 2.6e9, StatedBy: "/proc/cpuinfo"}
		}, "1.30 GHz, /proc/cpuinfo says 2.60 GHz", nil},
		"stolen-time": {func(s *Subject) { s.Here = &probe.Figures{Noise: measure.Noise{Steal: 0.12}} }, "12 %", nil},
		"busy":        {func(s *Subject) { s.Here = &probe.Figures{Noise: measure.Noise{OtherLoad: 1.5}} }, "1.5 of 8 CPUs", nil},
		"missing":     {func(s *Subject) { s.Missing = []string{"a", "b"} }, "2 things", nil},
	}
	for _, r := range rules {
		c, ok := cases[r.ID]
		if !ok {
			t.Errorf("rule %s has no case", r.ID)
			continue
		}
		s := &Subject{Survey: healthy()}
		c.change(s)
		rep := Check(s)
		i := slices.IndexFunc(rep.Findings, func(f Finding) bool { return f.ID == r.ID })
		if i < 0 {
			t.Errorf("%s: not found among %v", r.ID, ids(rep))
			continue
		}
		f := rep.Findings[i]
		if r.Reads == "" {
			t.Errorf("%s: does not say what it reads", r.ID)
		}
		for line := range strings.SplitSeq(f.Mend, "\n") {
			if plaintext.Width(line) > 70 {
				t.Errorf("%s: %q has %d columns; 80 less the indent are 70", r.ID, line, plaintext.Width(line))
			}
		}
		if f.Effect == "" || f.Mend == "" || f.Severity != r.Severity || !strings.Contains(f.What+"; "+f.Effect, c.what) {
			t.Errorf("%s: %+v, want %q", r.ID, f, c.what)
		}
		if wantMatters := r.Severity == Serious; (rep.Matters > 0) != wantMatters {
			t.Errorf("%s: %d findings matter", r.ID, rep.Matters)
		}
		for _, id := range ids(rep) {
			if id != r.ID && id != "memory-channels" && !slices.Contains(c.also, id) {
				t.Errorf("%s: also found %s", r.ID, id)
			}
		}
	}
	if len(cases) != len(rules) {
		t.Errorf("%d cases for %d rules", len(cases), len(rules))
	}
}

// A tree that tells nothing has few findings, and says which tests could not be made.
func TestUnknown(t *testing.T) {
	r := Check(&Subject{Survey: &topo.Survey{Settings: topo.Settings{Memlock: -2, AddressSpace: -2}, Machine: topo.Machine{CPUs: []topo.CPU{{}}, Affinity: []int{0}, Nodes: []topo.Node{{CPUs: []int{0}, Allowed: true}}}}})
	for _, id := range []string{"thp", "governor", "turbo", "numa-balancing", "tier", "mitigations", "power-limit", "address-space", "locked-memory"} {
		if !slices.Contains(r.Unknown, id) {
			t.Errorf("%s is not among the unknown %v", id, r.Unknown)
		}
	}
	if r.Matters > 0 {
		t.Errorf("findings %v", ids(r))
	}
}

// What only a measurement finds is named apart.
func TestSummary(t *testing.T) {
	s := healthy()
	s.Affinity = s.Affinity[:1]
	r := Check(&Subject{Survey: s})
	measuring := slices.IndexFunc(rules, func(x Rule) bool { return x.Measures })
	r.Findings = append(r.Findings, Finding{ID: rules[measuring].ID})
	r.LookedAt++
	if want := fmt.Sprintf("%d findings (1 by measuring)", len(r.Findings)); !strings.Contains(r.Summary(), want) && !strings.Contains(r.Summary(), "1 finding (1 by measuring)") {
		t.Errorf("%q lacks %q", r.Summary(), want)
	}
}
