package topo

import (
	"fmt"
	"slices"
	"strings"

	"ck/internal/isa"
)

// maxDumps is how many CPUID dumps of a tree are read; those of one kind of core are alike.
const maxDumps = 256

// isa finds the instruction sets: by asking the live CPU, else in the CPUID dumps of a saved tree, else in the flags of /proc/cpuinfo.
func (r tree) isa(s *Survey, cpuinfo string, live bool) {
	s.ISA.Vendor, _ = field(cpuinfo, "vendor_id")
	flagText, _ := field(cpuinfo, "flags")
	flags := strings.Fields(flagText)
	var f isa.Features
	var dump isa.Dump
	var from string
	if !live {
		dump, from = r.dumps()
	}
	switch {
	case live:
		s.ISA.Source, f = "this CPU", isa.Detect()
		s.ISA.Features = union(f.Names(), isa.Known(flags))
	case from != "":
		s.ISA.Source, s.ISA.Vendor, s.ISA.Features, s.ISA.Tiles, f = from, dump.Vendor, dump.Names, dump.Tiles, dump.Features()
		if f.Has(isa.FeatAMXTile) {
			if slices.Contains(flags, "amx_tile") && newer(s.Kernel, 5, 16) {
				f |= isa.FeatAMXState
			} else {
				s.ISA.AMX = "the CPU has AMX; whether the system lends the tiles (Linux 5.16 or later, XCR0 bits 17 and 18) is not in a CPUID dump"
			}
		}
	case len(flags) > 0:
		s.ISA.Source, f, s.ISA.Features = "/proc/cpuinfo", isa.FromNames(flags), isa.Known(flags)
		if f.Has(isa.FeatAMXTile) && newer(s.Kernel, 5, 16) {
			f |= isa.FeatAMXState
		}
	}
	// Features speaks of the kernel's state for tiles in a sentence; as a feature of the CPU it is none.
	s.ISA.Features = slices.DeleteFunc(s.ISA.Features, func(n string) bool { return strings.Contains(n, " ") })
	switch {
	case s.ISA.AMX != "":
	case f.Has(isa.FeatAMXTile | isa.FeatAMXState):
		s.ISA.AMX = "the system lends the tiles to a process that asks (arch_prctl); ck has no kernels for them yet"
	case live && slices.Contains(flags, "amx_tile"):
		s.ISA.AMX = "the CPU has AMX, but the system does not lend the tiles: Linux 5.16 or later and XCR0 bits 17 and 18 are needed"
	case f.Has(isa.FeatAMXTile) && s.Kernel == "":
		s.ISA.AMX = "the CPU has AMX; whether the kernel lends the tiles (Linux 5.16 or later) is not told"
	case f.Has(isa.FeatAMXTile):
		s.ISA.AMX = fmt.Sprintf("the CPU has AMX, but Linux %.40s does not lend the tiles: 5.16 or later is needed", s.Kernel)
	}
	if s.ISA.Source == "" && s.Arch == "" {
		return
	}
	for _, t := range isa.Available(f) {
		s.ISA.Tiers = append(s.ISA.Tiers, t.String())
	}
}

// dumps reads the CPUID dumps in the folder cpuid of a saved tree. Cores may differ: what all of them have counts.
func (r tree) dumps() (all isa.Dump, from string) {
	for i, name := range r.entries("cpuid") {
		if strings.Contains(name, "info") { // hwloc-cpuid-info: about the dumps
			continue
		}
		if i >= maxDumps {
			r.notes.add("cpuid has more than %d dumps, of which no more were read", maxDumps)
			break
		}
		name = "cpuid/" + name
		d, err := isa.ParseDump(r.text(name))
		if err != nil {
			r.notes.add("%s: %v", name, err)
			continue
		}
		if from == "" {
			all, from = d, "CPUID dump "+name
			continue
		}
		all.XCR0 &= d.XCR0
		all.Names = slices.DeleteFunc(all.Names, func(n string) bool { return !slices.Contains(d.Names, n) })
	}
	return all, from
}

// union is both lists, sorted, each name once.
func union(a, b []string) []string {
	u := slices.Concat(a, b)
	slices.Sort(u)
	return slices.Compact(u)
}

// newer tells whether a release such as "6.1.0-13-amd64" is at least major.minor.
func newer(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a > major || a == major && b >= minor
}
