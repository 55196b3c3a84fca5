package findings

import (
	"strings"
	"testing"

	"ck/internal/probe"
	"ck/internal/topo"
)

// A model whose pages lie on one of two nodes is found, with what cores of both reach; one that lies on both is not.
func TestModelOnOneNode(t *testing.T) {
	s := &Subject{Survey: healthy(), Here: &probe.Figures{Near: 40e9, Far: 25e9}, Model: &probe.FilePages{Bytes: 1 << 30, Pages: 100, Cached: 100, Nodes: map[int]int{0: 10, 1: 90}}}
	find := func() *Finding {
		r := Check(s)
		for i := range r.Findings {
			if r.Findings[i].ID == "page-cache-on-one-node" {
				return &r.Findings[i]
			}
		}
		return nil
	}
	f := find()
	if f == nil || !strings.Contains(f.What, "90 % of the model's pages in memory (1 GiB) lie on node 1") || f.Basis != Computed ||
		f.Measured != "a core of that node reads them at 40.0 GB/s, one of the farthest node at 25.0 GB/s" {
		t.Errorf("%+v", f)
	}
	s.Model.Nodes = map[int]int{0: 50, 1: 50}
	if f := find(); f != nil {
		t.Errorf("%+v", f)
	}
	s.Affinity = []int{0, 1}
	if f := find(); f == nil || !strings.Contains(f.What, "50 % of the model's pages in memory (1 GiB) lie on nodes where this process does not run") {
		t.Errorf("%+v", f)
	}
	s.Affinity = []int{0, 1, 2, 3, 4, 5, 6, 7}
	s.Model.Nodes, s.Model.Cached = map[int]int{}, 0 // nothing in memory
	if f := find(); f != nil {
		t.Errorf("%+v", f)
	}
}

// The effects of what was measured are said with the finding; without a figure nothing is.
func TestMeasuredEffects(t *testing.T) {
	all := &probe.Figures{Seconds: 1, Threads: 8, Clock: 3e9, ClockFirst: 1e9, Ramp: 0.02, Stated: 2.5e9, StatedBy: "base_frequency", ReadAll: 102.4e9, OpsOne: 1e12, OpsAll: 6e12,
		Alone: probe.Pair{Read: 20e9, Ops: 1e12}, Siblings: probe.Pair{Read: 22e9, Ops: 1.1e12}, Small: probe.PageRates{Read: 20e9, Jump: 30e-9, Touch: 0.5}, Huge: probe.PageRates{Read: 25e9, Jump: 10e-9, Touch: 0.1}, HugeShare: 1,
		Got: 1.5, Pause: 0.05, Syscall: 100e-9, Now: 1e-6, HintFaults: 70, Migrated: 7}
	for _, c := range []struct {
		id     string
		change func(*Subject)
		want   string
	}{
		{"quota", func(s *Subject) { s.Quota = topo.Quota{CPUs: 2, Group: "/a"} }, "8 workers got the time of 1.50 CPUs and stood still for up to 50 ms"},
		{"thp", func(s *Subject) { s.Settings.THP = "never" },
			"one core reads pages of 4 KiB at 20.0 GB/s, huge pages at 25.0 GB/s; a jump to another page takes 30 ns instead of 10 ns"},
		{"numa-balancing", func(s *Subject) { s.Settings.NUMABalancing = "1" }, "70 page faults for it and 7 pages moved in 1.0 s, by all processes"},
		{"swap-in-use", func(s *Subject) { s.Settings.SwapUsed = 1 << 30 }, "nothing was swapped in 1.0 s: what is there lies still"},
		{"governor-slow", func(s *Subject) { s.Settings.Governor = "schedutil" }, "a core that rested begins at 1.00 GHz and needs 20 ms to reach 3.00 GHz"},
		{"turbo", func(s *Subject) { s.Settings.Turbo = "off" }, "a busy core runs at 3.00 GHz; base_frequency says 2.50 GHz"},
		{"smt", func(s *Subject) { s.SMT = 2 }, "one thread of a core reads 20.0 GB/s and computes 1.00 TOP/s; two threads 22.0 GB/s and 1.10 TOP/s together"},
		{"memory-channels", func(*Subject) {},
			"8 cores read 102.4 GB/s, as much as 4.0 channels of DDR4-3200, 2.7 of DDR5-4800 or 2.0 of DDR5-6400 carry (published: 8 bytes a transfer)"},
		{"clock-source", func(s *Subject) { s.Settings.ClockSource = "hpet" }, "a look at the clock takes 1.0 us"},
		{"mitigations", func(s *Subject) { s.Settings.Mitigations = []string{"a: b"} }, "a system call takes 100 ns, the first use of a page of 4 KiB 1.9 us"},
		{"power-limit", func(s *Subject) {
			s.Power = []topo.PowerZone{{Limits: []topo.PowerLimit{{Watts: 100, MaxWatts: 200}}}}
		}, "8 cores compute 6.0 times as fast as one, for a few milliseconds"},
	} {
		for _, x := range []struct {
			here *probe.Figures
			want string
		}{{all, c.want}, {nil, ""}} {
			s := &Subject{Survey: healthy(), Here: x.here}
			c.change(s)
			got := "not found"
			for _, f := range Check(s).Findings {
				if f.ID == c.id {
					got = f.Measured
				}
			}
			if got != x.want {
				t.Errorf("%s: %q, want %q", c.id, got, x.want)
			}
		}
		// Nothing could be measured: every rule must bear it.
		s := &Subject{Survey: healthy(), Here: &probe.Figures{Locked: -1}}
		c.change(s)
		for _, f := range Check(s).Findings {
			if strings.Contains(f.Measured, "NaN") || strings.Contains(f.Measured, "Inf") {
				t.Errorf("%s: %q", f.ID, f.Measured)
			}
		}
	}
}

// With a measurement no rule is left out for want of one, whatever could be measured.
func TestNothingSkipped(t *testing.T) {
	if r := Check(&Subject{Survey: healthy(), Here: &probe.Figures{Locked: -1}}); len(r.Skipped) > 0 {
		t.Errorf("rules that were not measured: %v", r.Skipped)
	}
	if r := Check(&Subject{Survey: healthy()}); len(r.Skipped) == 0 {
		t.Error("nothing was measured, and no rule misses it")
	}
}
