package topo

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// memories tells what kind of memory each node has, and what HMAT and memory tiering say of it.
func (r tree) memories(s *Survey, cpuinfo string) {
	s.Memory = make([]NodeMemory, len(s.Nodes))
	tiers := r.tiers()
	for i, n := range s.Nodes {
		m := &s.Memory[i]
		dir := fmt.Sprintf("%s/node%d/", nodeDir, n.ID)
		m.Access = [2]*Access{r.access(dir + "access0/initiators"), r.access(dir + "access1/initiators")}
		m.Caches = r.sideCaches(dir + "memory_side_cache")
		m.Tier = -1
		if t, ok := tiers[n.ID]; ok {
			m.Tier = t
		}
	}
	owners := s.owners()
	for i := range s.Nodes {
		s.Memory[i].Package = s.packageOf(i, owners)
	}
	gpus := r.gpuNodes()
	for i, n := range s.Nodes {
		m := &s.Memory[i]
		if n.MemTotal > 0 {
			m.Kind, m.Why = s.kindOf(i, gpus[n.ID], cpuinfo)
		}
	}
}

// tiers reads the memory tiers, /sys/devices/virtual/memory_tiering/memory_tierN/nodelist (Linux 6.1).
func (r tree) tiers() map[int]int {
	tiers := map[int]int{}
	const dir = "sys/devices/virtual/memory_tiering"
	for _, t := range r.numbered(dir, "memory_tier") {
		ids, _ := r.list(fmt.Sprintf("%s/memory_tier%d/nodelist", dir, t))
		for _, id := range ids {
			if _, ok := tiers[id]; !ok {
				tiers[id] = t
			}
		}
	}
	return tiers
}

// access reads one class of HMAT numbers (Documentation/admin-guide/mm/numaperf.rst).
func (r tree) access(dir string) *Access {
	ids := r.numbered(dir, "node")
	number := func(name string) int {
		n := r.number(dir+"/"+name, 0)
		if n < 0 || n > 1<<31-1 {
			return 0
		}
		return int(n)
	}
	a := Access{ids, number("read_latency"), number("write_latency"), number("read_bandwidth"), number("write_bandwidth")}
	if len(ids) == 0 && a.ReadLatency == 0 && a.WriteLatency == 0 && a.ReadBandwidth == 0 && a.WriteBandwidth == 0 {
		return nil
	}
	return &a
}

func (r tree) sideCaches(dir string) []SideCache {
	var cs []SideCache
	for _, i := range r.numbered(dir, "index") {
		d := fmt.Sprintf("%s/index%d/", dir, i)
		cs = append(cs, SideCache{Index: i, Bytes: max(0, r.number(d+"size", 0)), LineBytes: int(min(max(0, r.number(d+"line_size", 0)), 1<<30)),
			Direct: r.number(d+"indexing", -1) == 0, WriteBack: r.number(d+"write_policy", -1) == 0})
	}
	return cs
}

// gpuNodes are the nodes that NVIDIA's driver says are a GPU's memory.
func (r tree) gpuNodes() map[int]string {
	nodes := map[int]string{}
	const dir = "proc/driver/nvidia/gpus"
	for _, name := range r.entries(dir) {
		if v, ok := field(r.text(path.Join(dir, name, "numa_status")), "Node"); ok {
			if ids, err := parseList(v); err == nil && len(ids) == 1 {
				nodes[ids[0]] = name
			}
		}
	}
	return nodes
}

// owners is the package of each node's CPUs; -1: none, or several.
func (s *Survey) owners() []int {
	of, owners := s.packageOfCPU(), make([]int, len(s.Nodes))
	for i, n := range s.Nodes {
		owners[i] = -1
		for _, id := range n.CPUs {
			p, ok := of[id]
			if !ok {
				continue
			}
			if owners[i] >= 0 && owners[i] != s.Packages[p].ID {
				owners[i] = -1
				break
			}
			owners[i] = s.Packages[p].ID
		}
	}
	return owners
}

// packageOf is the package of a node's CPUs, or for one without CPUs that of the nodes with CPUs that are nearest; -1 if that is none
// or not one.
func (s *Survey) packageOf(i int, owners []int) int {
	if len(s.Nodes[i].CPUs) > 0 {
		return owners[i]
	}
	if s.Distance == nil {
		return -1
	}
	least, found := 255, -1 // 255: no way from here to there
	for j, n := range s.Nodes {
		if len(n.CPUs) == 0 || s.Distance[j][i] > least {
			continue
		}
		switch {
		case s.Distance[j][i] < least:
			least, found = s.Distance[j][i], owners[j]
		case owners[j] != found:
			found = -1
		}
	}
	return found
}

// kindOf is what memory a node with memory has, and what says so. Drivers come first, then HMAT, then what is known of the CPU. Where
// nothing speaks, the kind is None.
func (s *Survey) kindOf(i int, gpu, cpuinfo string) (MemoryKind, string) {
	n := s.Nodes[i]
	if gpu != "" {
		return GPU, "NVIDIA's driver says that it is the memory of GPU " + gpu
	}
	for _, d := range s.CXL.DAX {
		if d.TargetNode != n.ID || d.Driver == "device_dax" {
			continue
		}
		switch {
		case strings.Contains(d.path, "/ndbus"):
			return PMEM, d.Name + " on the bus of persistent memory targets this node"
		case strings.Contains(d.path, "/dax_region") && strings.Contains(d.path, "/region"):
			return CXLm, d.Name + " on a CXL region targets this node"
		}
	}
	vendor, family, model := identity(cpuinfo)
	intel := vendor == "GenuineIntel" && family == 6
	if len(n.CPUs) > 0 {
		if intel && strings.Contains(s.Model, "CPU Max") && n.MemTotal > 0 && !s.hasBare() && s.packageMemory(s.Memory[i].Package) <= 64<<30 {
			return HBM, "a Xeon Max whose packages have no more memory than their 64 GiB of HBM"
		}
		return DRAM, "has CPUs"
	}
	// Memory without CPUs. A machine of which HMAT tells compares it with the memory of nodes with CPUs.
	if kind, why := s.kindByHMAT(i); kind != None {
		return kind, why
	}
	// What the CPU can have tells a node's kind only where ordinary memory is beside the CPUs.
	if !slices.ContainsFunc(s.Nodes, func(n Node) bool { return len(n.CPUs) > 0 && n.MemTotal > 0 }) {
		return None, "no CPUs, as all nodes with memory, and nothing says what it is"
	}
	switch part, _ := field(cpuinfo, "CPU part"); {
	case intel && strings.Contains(s.Model, "CPU Max") && n.MemTotal <= 64<<30:
		return HBM, "no CPUs, no more than 64 GiB, and the CPU is a Xeon Max in flat mode"
	case intel && (model == 87 || model == 133) && n.MemTotal <= 16<<30:
		return HBM, "no CPUs, no more than 16 GiB, and the CPU is a Xeon Phi with MCDRAM in flat or hybrid mode"
	case intel && (model == 85 || model == 106) && s.Arch == "x86_64":
		return PMEM, "no CPUs, and a Xeon of this generation can have no other memory of its own than DRAM and persistent memory"
	case strings.HasPrefix(s.Model, "POWER9") && n.ID >= 240 && n.ID <= 255:
		return GPU, "no CPUs, and the firmware of POWER9 numbers the memory of GPUs from 255 downward"
	case part == "0xd4f" && s.Distance != nil && slices.Contains(s.Distance[i], 80):
		return GPU, "no CPUs, at distance 80 from a Neoverse V2: the memory of the GPU of a Grace Hopper"
	}
	return None, "no CPUs, and nothing says what it is"
}

// hasBare tells whether there is a node with memory and no CPUs.
func (s *Survey) hasBare() bool {
	return slices.ContainsFunc(s.Nodes, func(n Node) bool { return len(n.CPUs) == 0 && n.MemTotal > 0 })
}

func (s *Survey) packageMemory(id int) int64 {
	sum := int64(0)
	for i, n := range s.Nodes {
		if s.Memory[i].Package == id {
			sum += n.MemTotal
		}
	}
	return sum
}

// told is what HMAT says of a node's rates: class 0, from the nearest initiator of any kind, or where it has none class 1, from the nearest
// CPUs. Firmware may fill either. nil if neither has a rate.
func (m *NodeMemory) told() *Access {
	for _, a := range m.Access {
		if a != nil && a.ReadBandwidth > 0 {
			return a
		}
	}
	return nil
}

// kindByHMAT compares a node without CPUs with the memory beside CPUs: HBM has a multiple of its bandwidth, CXL and persistent memory
// are slower, and persistent memory is written at a fraction of the rate at which it is read.
func (s *Survey) kindByHMAT(i int) (MemoryKind, string) {
	a := s.Memory[i].told()
	if a == nil {
		return None, ""
	}
	var dram *Access
	for j, n := range s.Nodes {
		if b := s.Memory[j].told(); len(n.CPUs) > 0 && n.MemTotal > 0 && b != nil && (dram == nil || b.ReadBandwidth > dram.ReadBandwidth) {
			dram = b
		}
	}
	numbers := fmt.Sprintf("no CPUs; HMAT gives %d MiB/s", a.ReadBandwidth)
	if dram != nil {
		numbers += fmt.Sprintf(" where DRAM has %d", dram.ReadBandwidth)
	}
	switch {
	case dram != nil && a.ReadBandwidth >= 2*dram.ReadBandwidth:
		return HBM, numbers
	case (dram == nil || 2*a.ReadBandwidth < dram.ReadBandwidth) && a.ReadLatency >= 200 && 2*a.WriteBandwidth > a.ReadBandwidth:
		return CXLm, fmt.Sprintf("%s and %d ns, for writing alike: memory behind CXL; no dax device says so", numbers, a.ReadLatency)
	case dram != nil && 2*a.ReadBandwidth < dram.ReadBandwidth && a.WriteBandwidth > 0 && 2*a.WriteBandwidth <= a.ReadBandwidth:
		return PMEM, fmt.Sprintf("%s, and %d for writing: persistent memory", numbers, a.WriteBandwidth)
	}
	return None, ""
}
