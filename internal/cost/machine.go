package cost

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"ck/internal/isa"
	"ck/internal/measure"
)

// A Machine is described by what decides the time of a walk. Names in files are those of the JSON tags; sizes of 0 are not told.
type Machine struct {
	Name        string  `json:"name"`
	Sockets     int     `json:"sockets"`
	Nodes       int     `json:"nodes"`    // memory nodes in all; default: one for each socket
	Cores       int     `json:"cores"`    // physical, in all
	GHz         float64 `json:"ghz"`      // of all cores while their vector units are busy
	ISA         string  `json:"isa"`      // tier: avx2, avxvnni, avx512, vnni, amx
	Channels    int     `json:"channels"` // memory channels in all
	MTs         float64 `json:"mts"`      // million transfers of 8 bytes a second of a channel: 6400 for DDR5-6400
	MemoryGiB   float64 `json:"memory_gib"`
	NetworkGbps float64 `json:"network_gbps"` // to other machines

	Bandwidth float64 `json:"bandwidth_gbs"`      // measured read bandwidth of all cores, GB/s; default: a share of the channels' theory
	CoreGBs   float64 `json:"core_bandwidth_gbs"` // of one core

	// OpsPerCycle and PeakGops, by kind (int8, bf16, f32), stand in for what the tier says of a core, and for cores x GHz x ops of the machine.
	OpsPerCycle map[string]float64 `json:"ops_per_cycle"`
	PeakGops    map[string]float64 `json:"peak_gops"`

	// ThreadsRead is what the planned workers together read, in bytes a second, where that was measured; it goes before all that is derived.
	ThreadsRead float64 `json:"-"`

	tier isa.Tier
}

// builtin machines; sockets, cores, channels and memory as sold, in all. The clock is the makers' base clock: no more is promised while all
// vector units are busy. Theory of channels: MT/s x 8 bytes (JEDEC).
var builtin = []Machine{
	{Name: "2s-72c-12ch", Sockets: 2, Cores: 72, GHz: 2.7, ISA: "amx", Channels: 12, MTs: 6400, MemoryGiB: 2048, OpsPerCycle: intel()},
	{Name: "2s-72c-24ch", Sockets: 2, Cores: 72, GHz: 2.7, ISA: "amx", Channels: 24, MTs: 6400, MemoryGiB: 2048, OpsPerCycle: intel()},
	{Name: "2s-144c-24ch", Sockets: 2, Cores: 144, GHz: 2.7, ISA: "amx", Channels: 24, MTs: 6400, MemoryGiB: 2048, OpsPerCycle: intel()},
	{Name: "xeon-8480-2s", Sockets: 2, Cores: 112, GHz: 2.0, ISA: "amx", Channels: 16, MTs: 4800, MemoryGiB: 1024, OpsPerCycle: intel()},
	{Name: "epyc-9654-2s", Sockets: 2, Cores: 192, GHz: 2.4, ISA: "vnni", Channels: 24, MTs: 4800, MemoryGiB: 1536,
		OpsPerCycle: kinds(128, 64, 32)}, // Zen 4: 512-bit operations in two halves
	{Name: "epyc-9755-2s", Sockets: 2, Cores: 256, GHz: 2.7, ISA: "vnni", Channels: 24, MTs: 6400, MemoryGiB: 1536},
	{Name: "desktop-16c", Sockets: 1, Cores: 16, GHz: 4.3, ISA: "vnni", Channels: 2, MTs: 5600, MemoryGiB: 64, CoreGBs: 40},
}

// intel is AMX beside AVX-512 whose BF16 dot products start once a cycle (published instruction tables).
func intel() map[string]float64 { return map[string]float64{"avx512_bf16": 64} }

// MachineNames lists the built-in machines.
func MachineNames() []string {
	var n []string
	for _, m := range builtin {
		n = append(n, m.Name)
	}
	sort.Strings(n)
	return n
}

// FindMachine is a built-in machine.
func FindMachine(name string) (Machine, bool) {
	for _, m := range builtin {
		if m.Name == name {
			return m, m.Check() == nil
		}
	}
	return Machine{}, false
}

// ParseMachine reads a machine from JSON. Unknown keys are errors: a misspelt one would be a default in silence.
func ParseMachine(b []byte) (Machine, error) {
	var m Machine
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return m, fmt.Errorf("there is something behind the description")
	}
	return m, m.Check()
}

// Check fills in what follows from the rest and finds what makes no sense.
func (m *Machine) Check() error {
	if m.Sockets == 0 {
		m.Sockets = 1
	}
	if m.Nodes == 0 {
		m.Nodes = m.Sockets
	}
	for _, e := range []struct {
		key    string
		x      float64
		lo, hi float64
	}{{"sockets", float64(m.Sockets), 1, 1024}, {"nodes", float64(m.Nodes), 1, 4096}, {"cores", float64(m.Cores), 1, 1 << 20}, {"ghz", m.GHz, 0, 20},
		{"channels", float64(m.Channels), 0, 1 << 16}, {"mts", m.MTs, 0, 1e6}, {"memory_gib", m.MemoryGiB, 0, 1 << 30}, {"network_gbps", m.NetworkGbps, 0, 1e6},
		{"bandwidth_gbs", m.Bandwidth, 0, 1e7}, {"core_bandwidth_gbs", m.CoreGBs, 0, 1e5}} {
		if !(e.x >= e.lo && e.x <= e.hi) {
			return fmt.Errorf("%s: %g is not in %g..%g", e.key, e.x, e.lo, e.hi)
		}
	}
	for key, x := range map[string]float64{"ghz": m.GHz, "mts": m.MTs, "bandwidth_gbs": m.Bandwidth, "core_bandwidth_gbs": m.CoreGBs} {
		if x > 0 && x < 0.01 {
			return fmt.Errorf("%s: %g is too little for any machine; 0 is not told", key, x)
		}
	}
	switch {
	case m.Cores < m.Sockets:
		return fmt.Errorf("cores: %d for %d sockets; they are counted in all", m.Cores, m.Sockets)
	case m.Nodes%m.Sockets != 0:
		return fmt.Errorf("nodes: %d memory nodes cannot be shared by %d sockets evenly", m.Nodes, m.Sockets)
	case (m.Channels == 0) != (m.MTs == 0):
		return fmt.Errorf("channels, mts: the bandwidth needs both")
	}
	if m.ISA == "" {
		m.ISA = isa.Go.String()
	}
	var err error
	if m.tier, err = isa.Parse(m.ISA); err != nil {
		return fmt.Errorf("isa: %w", err)
	}
	for key, l := range map[string]map[string]float64{"ops_per_cycle": m.OpsPerCycle, "peak_gops": m.PeakGops} {
		for k, x := range l {
			if k != measure.Int8 && k != measure.BF16 && k != measure.F32 && !(key == "ops_per_cycle" && k == avx512BF16) {
				return fmt.Errorf("%s: %q is no kind of arithmetic; there are int8, bf16 and f32", key, k)
			}
			if !(x >= 0.01 && x <= 1e12) {
				return fmt.Errorf("%s.%s: %g is no rate", key, k, x)
			}
		}
	}
	if m.GHz == 0 {
		m.FillPeaks()
	}
	return nil
}

// avx512BF16 is the key of ops_per_cycle for BF16 without tiles.
const avx512BF16 = "avx512_bf16"

// KernelTier is the tier of the kernels that would run: the machine's, or the best below it for which there are some.
func (m Machine) KernelTier() isa.Tier { return m.tier.WithKernels() }

// Limits are the roofs that the workers of a walk share.
type Limits struct {
	Workers, Sockets int
	Read             float64            // bytes a second of all together
	Core             float64            // bytes a second of one of them at most; 0: not told
	Peak             map[string]float64 // operations a second by kind, of all together
	Madd             bool               // integers are multiplied without VNNI

	// Homes is the number of memory nodes of which each has a part of every weight, with its share of the workers; 0: one has all.
	Homes int
	// Meeting is the time of a meeting of all homes, in seconds; 0: stated.
	Meeting float64
	// Link is what the workers of a home together read from others, bytes a second; 0: stated.
	Link float64
}

// TheoryBandwidth is that of the memory channels, bytes a second; 0 if not told.
func (m Machine) TheoryBandwidth() float64 { return float64(m.Channels) * m.MTs * 1e6 * 8 }

// ReadBandwidth is what all cores, or the planned workers if those were measured, read in bytes a second: measured, or a stated share of
// theory. 0 if neither is told. why says it.
func (m Machine) ReadBandwidth() (bw float64, why string) {
	switch {
	case m.ThreadsRead > 0:
		return m.ThreadsRead, "given"
	case m.Bandwidth > 0:
		return m.Bandwidth * 1e9, "described"
	case m.Channels > 0:
		return readShare * m.TheoryBandwidth(), fmt.Sprintf("stated: %.0f %% of the theory of %d channels at %.0f MT/s", readShare*100, m.Channels, m.MTs)
	}
	return 0, "not told"
}

// Stated reports whether the read bandwidth is an assumption, not a measurement.
func (m Machine) Stated() bool { return m.ThreadsRead == 0 && m.Bandwidth == 0 }

// opsPerCycle is how many operations of a kind a core does per cycle on a tier: the machine's own number, or the tier's.
func (m Machine) opsPerCycle(tier isa.Tier, kind string) float64 {
	key := kind
	if m.tier == isa.AMX && tier != isa.AMX { // the machine's int8 and bf16 are those of its tiles
		switch kind {
		case measure.Int8:
			return cycles[tier].ops[kind]
		case measure.BF16:
			key = avx512BF16
		}
	}
	if own := m.OpsPerCycle[key]; own > 0 {
		return own
	}
	return cycles[tier].ops[kind]
}

// Peak is the arithmetic peak of n cores for a kind on a tier, operations a second; 0 if the clock is not told.
func (m Machine) Peak(tier isa.Tier, kind string, n int) float64 {
	if p := m.PeakGops[kind]; p > 0 && tier <= m.KernelTier() { // of a lower tier by what that does per cycle
		return p * 1e9 * float64(n) / float64(m.Cores) * min(1, m.opsPerCycle(tier, kind)/m.opsPerCycle(m.KernelTier(), kind))
	}
	return m.opsPerCycle(tier, kind) * m.GHz * 1e9 * float64(n)
}

// Limits are those of n workers, one on a core, memory node after memory node, with kernels of a tier. Workers read the memory of their own
// nodes.
func (m Machine) Limits(tier isa.Tier, n int) Limits {
	cores := min(n, m.Cores)
	l := Limits{Workers: n, Sockets: blocks(cores*m.Sockets, m.Cores), Peak: map[string]float64{}, Madd: cycles[tier].madd}
	if m.ThreadsRead > 0 {
		l.Read, l.Core = m.ThreadsRead, m.ThreadsRead/float64(n)
	} else {
		all, _ := m.ReadBandwidth()
		l.Core = max(coreRead, all/float64(m.Cores))
		if m.CoreGBs > 0 {
			l.Core = m.CoreGBs * 1e9
		}
		l.Read = min(all*float64(blocks(cores*m.Nodes, m.Cores))/float64(m.Nodes), l.Core*float64(cores))
	}
	for _, k := range []string{measure.Int8, measure.BF16, measure.F32} {
		l.Peak[k] = m.Peak(tier, k, cores)
	}
	return l
}

// OneSocket is a socket of the machine by itself, with its memory.
func (m Machine) OneSocket() Machine {
	n := m.Sockets
	m.Sockets, m.Nodes, m.Cores, m.Channels = 1, m.Nodes/n, m.Cores/n, m.Channels/n
	m.MemoryGiB, m.Bandwidth, m.ThreadsRead = m.MemoryGiB/float64(n), m.Bandwidth/float64(n), m.ThreadsRead/float64(n)
	if m.PeakGops != nil {
		peaks := map[string]float64{}
		for k, x := range m.PeakGops {
			peaks[k] = x / float64(n)
		}
		m.PeakGops = peaks
	}
	return m
}

// Bound are the limits that no program passes: theory of the channels, the peak of the best tier of all cores.
func (m Machine) Bound() Limits {
	l := m.Limits(m.tier, m.Cores)
	l.Read = max(m.TheoryBandwidth(), m.Bandwidth*1e9, m.ThreadsRead)
	for _, k := range []string{measure.Int8, measure.BF16, measure.F32} {
		l.Peak[k] = max(l.Peak[k], m.Limits(m.KernelTier(), m.Cores).Peak[k])
	}
	return l
}

// Complete reports whether times can be told, or what is missing.
func (m Machine) Complete() error {
	var missing []string
	if bw, _ := m.ReadBandwidth(); bw == 0 {
		missing = append(missing, "the read bandwidth")
	}
	if m.GHz == 0 && !slices.ContainsFunc([]string{measure.Int8, measure.BF16, measure.F32}, func(k string) bool { return m.PeakGops[k] > 0 }) {
		missing = append(missing, "the arithmetic peak")
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("not told: %s", strings.Join(missing, ", "))
}

// FillPeaks derives the peaks that were not measured from one that was, by what the tier does per cycle.
func (m *Machine) FillPeaks() {
	for _, k := range []string{measure.Int8, measure.BF16, measure.F32} {
		if p := m.PeakGops[k]; p > 0 {
			for _, o := range []string{measure.Int8, measure.BF16, measure.F32} {
				if m.PeakGops[o] == 0 {
					m.PeakGops[o] = p * m.opsPerCycle(m.KernelTier(), o) / m.opsPerCycle(m.KernelTier(), k)
				}
			}
			return
		}
	}
}
