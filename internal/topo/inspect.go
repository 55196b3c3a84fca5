package topo

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

var errNoCPUs = errors.New("topology: the tree names no CPUs (looked for sys/devices/system/cpu and proc/self/status)")

// Inspect reads all of a Survey from a file system rooted at /, as Open gives it; live says that it is this system, so that affinity,
// permissions and instruction sets may be asked for directly. A tree that names no CPUs is an error, all else that is missing is in
// Survey.Missing.
func Inspect(fsys fs.FS, live bool) (Survey, error) {
	r := tree{fsys, &notes{}, new(int)}
	s, cpuinfo, ok := r.begin(live)
	if !ok {
		return Survey{}, errNoCPUs
	}
	m := s.Machine
	s.Kernel = r.word("proc/sys/kernel/osrelease")
	version, _ := r.head("proc/version", 1<<10)
	if f := strings.Fields(version); s.Kernel == "" && len(f) > 2 {
		s.Kernel = f[2]
	}
	online := s.online()
	s.Possible, _ = r.list(cpuDir + "/possible")
	if s.Present, ok = r.list(cpuDir + "/present"); !ok {
		s.Present = r.numbered(cpuDir, "cpu")
	}
	s.Offline = without(s.Present, online)
	s.Disallowed = without(online, m.Affinity)
	for _, n := range m.Nodes {
		if n.MemTotal > 0 && !n.Allowed {
			s.DisallowedNodes = append(s.DisallowedNodes, n.ID)
		}
	}
	r.levels(&s, online)
	r.kinds(&s, online)
	r.cacheSets(&s, online)
	s.Distance = r.distances(m.Nodes)
	s.SubNUMA = subNUMA(&s, cpuinfo)
	r.cxl(&s, live)
	r.memories(&s, cpuinfo)
	r.hugePages(&s)
	r.settings(&s, cpuinfo)
	r.isa(&s, cpuinfo, live)
	r.accelerators(&s, live)
	r.rdma(&s)
	r.power(&s)
	r.thermal(&s)
	r.resctrl(&s, cpuinfo)
	if *r.steps > maxSteps {
		s.Missing = []string{"more is there than any machine has to tell: reading was given up half-way, so that this page is not whole"}
	} else {
		r.absent(&s, cpuinfo)
	}
	s.Missing = append(s.Missing, r.notes.all()...)
	return s, nil
}

// Nodes is a Survey of this system with what Homes look at alone: CPUs, packages, memory nodes, their distances and kinds of memory.
func Nodes() (Survey, error) {
	r := tree{os.DirFS("/"), &notes{}, new(int)}
	s, cpuinfo, ok := r.begin(true)
	if !ok {
		return Survey{}, errNoCPUs
	}
	r.levels(&s, s.online())
	s.Distance = r.distances(s.Nodes)
	s.CXL.DAX = r.dax()
	r.memories(&s, cpuinfo)
	return s, nil
}

// begin is a Survey with the machine, and what the kernel says of its first CPU; not ok means that no CPUs were found.
func (r tree) begin(live bool) (s Survey, cpuinfo string, ok bool) {
	m, ok := read(r, live)
	if !ok {
		return s, "", false
	}
	s = Survey{Machine: m}
	cpuinfo, _ = r.head("proc/cpuinfo", 1<<16) // the first CPU is enough
	s.Arch, s.Model = r.archOf(cpuinfo), modelOf(cpuinfo)
	if live && s.Arch == "" {
		s.Arch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	}
	return s, cpuinfo, true
}

// online is the numbers of online CPUs.
func (s *Survey) online() (ids []int) {
	for _, c := range s.CPUs {
		ids = append(ids, c.ID)
	}
	return ids
}

// without is what is in the ascending list a and not in b.
func without(a, b []int) []int {
	both := intersect(a, b)
	var rest []int
	for _, id := range a {
		if len(both) > 0 && both[0] == id {
			both = both[1:]
		} else {
			rest = append(rest, id)
		}
	}
	return rest
}

// absent notes the files without which a page says little.
func (r tree) absent(s *Survey, cpuinfo string) {
	if cpuinfo == "" {
		r.notes.add("proc/cpuinfo is missing: the CPU's name is not told")
	}
	if s.MemTotal == 0 {
		r.notes.add("proc/meminfo is missing or says nothing: the size of memory is not told")
	}
	if len(r.numbered(nodeDir, "node")) == 0 {
		r.notes.add("%s is missing: all memory is shown as one node", nodeDir)
	} else {
		for _, n := range s.Nodes {
			if r.text(fmt.Sprintf("%s/node%d/meminfo", nodeDir, n.ID)) == "" {
				r.notes.add("%s/node*/meminfo is missing: the memory of a node is not told", nodeDir)
				break
			}
		}
	}
	if len(s.Packages) == 0 {
		r.notes.add("%s/cpu*/topology does not tell packages", cpuDir)
	}
	if s.Cores == 0 {
		r.notes.add("%s/cpu*/topology does not tell cores: every CPU is taken for one", cpuDir)
	}
	if len(s.CacheSets) == 0 {
		r.notes.add("%s/cpu*/cache is missing: caches are not told", cpuDir)
	}
}

// archOf tells the architecture by the keys of /proc/cpuinfo, else by drivers and devices that only x86 has. No file names it.
func (r tree) archOf(cpuinfo string) string {
	has := func(key string) string { v, _ := field(cpuinfo, key); return v }
	switch {
	case has("arch") == "IA-64":
		return "ia64"
	case has("vendor_id") == "IBM/S390":
		return "s390x"
	case has("CPU implementer") != "":
		return "aarch64"
	case strings.HasPrefix(has("isa"), "rv64"):
		return "riscv64"
	case strings.HasPrefix(has("cpu"), "POWER"):
		return "ppc64"
	case has("vendor_id") != "" || has("cpuid level") != "":
		return "x86_64"
	case cpuinfo != "":
		return ""
	case r.has("sys/devices/cpu_core") || r.has("sys/devices/system/cpu/microcode") || r.has("sys/devices/system/cpu/intel_pstate"):
		return "x86_64"
	}
	switch driver := r.word(cpuDir + "/cpufreq/policy0/scaling_driver"); driver {
	case "intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp":
		return "x86_64"
	}
	return ""
}

// armParts are ARM's and others' part numbers (MIDR_EL1; arch/arm64/include/asm/cputype.h) of server cores.
var armParts = map[string]string{
	"0x41 0xd0c": "Neoverse-N1", "0x41 0xd40": "Neoverse-V1", "0x41 0xd49": "Neoverse-N2", "0x41 0xd4f": "Neoverse-V2",
	"0x41 0xd84": "Neoverse-V3", "0x41 0xd8e": "Neoverse-N3", "0x48 0xd01": "Kunpeng 920", "0xc0 0xac3": "AmpereOne", "0x46 0x001": "A64FX",
}

func modelOf(cpuinfo string) string {
	for _, key := range []string{"model name", "cpu"} {
		if v, ok := field(cpuinfo, key); ok {
			return v
		}
	}
	implementer, _ := field(cpuinfo, "CPU implementer")
	part, _ := field(cpuinfo, "CPU part")
	return armParts[implementer+" "+part]
}

// set is the online CPUs of the first of a CPU's maps or lists that is there.
func (r tree) set(online []int, dir string, names ...string) []int {
	for _, name := range names {
		ids, ok := r.list(dir + name)
		if !ok {
			continue
		}
		ids = intersect(ids, online)
		r.agree(online, dir, name, ids)
		return ids
	}
	return nil
}

// agree notes a list of online CPUs that says otherwise than the map beside it. The kernel writes both from one set, but saved trees are
// edited.
func (r tree) agree(online []int, dir, name string, ids []int) {
	of, ok := strings.CutSuffix(name, "list")
	if !ok {
		return
	}
	beside := map[string]string{"shared_cpu_": "shared_cpu_map", "cpu": "cpumap"}[of]
	if beside == "" {
		beside = strings.TrimSuffix(of, "_")
	}
	if same, ok := r.list(dir + beside); ok && !slices.Equal(intersect(same, online), ids) {
		r.notes.add("%s%s and %s name different CPUs: the list is believed", dir, name, beside)
	}
}

// levels counts what the kernel tells above threads: cores, clusters, dies, packages, books, drawers.
func (r tree) levels(s *Survey, online []int) {
	dies, clusters, books, drawers := map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]bool{}
	byID, bySet := map[int]*Package{}, map[int]*Package{}
	cores := map[int]int{}
	told := false
	count := func(m map[int]bool, set []int) {
		if len(set) > 0 {
			m[set[0]] = true
		}
	}
	for _, c := range s.CPUs {
		dir := fmt.Sprintf("%s/cpu%d/topology/", cpuDir, c.ID)
		siblings := r.set(online, dir, "package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
		threads := r.set(online, dir, "core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
		told = told || c.Core >= 0 || len(threads) > 0
		cores[c.Lead]++
		if r.number(dir+"die_id", -1) >= 0 {
			count(dies, r.set(online, dir, "die_cpus_list", "die_cpus"))
		}
		count(clusters, r.set(online, dir, "cluster_cpus_list", "cluster_cpus"))
		count(books, r.set(online, dir, "book_siblings_list", "book_siblings"))
		count(drawers, r.set(online, dir, "drawer_siblings_list", "drawer_siblings"))
		switch {
		case c.Package >= 0:
			if len(siblings) > 0 && !slices.Contains(siblings, c.ID) {
				r.notes.add("CPU %d is in package %d, but not in its own map of that package's CPUs: the number is believed", c.ID, c.Package)
			}
			p := byID[c.Package]
			if p == nil {
				p = &Package{ID: c.Package}
				byID[c.Package] = p
			}
			p.CPUs = append(p.CPUs, c.ID)
		case len(siblings) > 0:
			p := bySet[siblings[0]]
			if p == nil {
				p = &Package{}
				bySet[siblings[0]] = p
			}
			p.CPUs = append(p.CPUs, c.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		s.Packages = append(s.Packages, *byID[id])
	}
	next := 0
	for _, first := range slices.Sorted(maps.Keys(bySet)) { // packages without a number get the next free ones
		for byID[next] != nil {
			next++
		}
		p := bySet[first]
		p.ID = next
		next++
		s.Packages = append(s.Packages, *p)
	}
	for i := range s.Packages {
		p := &s.Packages[i]
		for _, id := range p.CPUs {
			if s.cpu(id).Lead == id {
				p.Cores++
			}
		}
	}
	of := s.packageOfCPU()
	for _, n := range s.Nodes {
		r.set(online, fmt.Sprintf("%s/node%d/", nodeDir, n.ID), "cpulist", "cpumap")
		for _, id := range n.CPUs {
			if i, ok := of[id]; ok {
				if p := &s.Packages[i]; len(p.Nodes) == 0 || p.Nodes[len(p.Nodes)-1] != n.ID {
					p.Nodes = append(p.Nodes, n.ID)
				}
			}
		}
	}
	s.Dies, s.Clusters, s.Books, s.Drawers = len(dies), len(clusters), len(books), len(drawers)
	if told {
		s.Cores, s.SMT = len(cores), slices.Max(slices.Collect(maps.Values(cores)))
	}
}

// packageOfCPU is the index of each CPU's package, for those that have one.
func (s *Survey) packageOfCPU() map[int]int {
	of := make(map[int]int, len(s.CPUs))
	for i, p := range s.Packages {
		for _, id := range p.CPUs {
			of[id] = i
		}
	}
	return of
}

// kinds tells the cores of hybrid machines apart: by Intel's PMUs, else by capacity (ARM, and Intel on new kernels).
func (r tree) kinds(s *Survey, online []int) {
	capacity := map[int]int{}
	for _, id := range online {
		if n := r.number(fmt.Sprintf("%s/cpu%d/cpu_capacity", cpuDir, id), 0); n > 0 && n < 1<<20 {
			capacity[id] = int(n)
		}
	}
	for _, k := range []struct{ pmu, name string }{{"cpu_core", "P-core"}, {"cpu_atom", "E-core"}, {"cpu_lowpower", "LP E-core"}} {
		cpus := r.set(online, "sys/", "devices/"+k.pmu+"/cpus", "bus/event_source/devices/"+k.pmu+"/cpus")
		if len(cpus) == 0 {
			continue
		}
		kind := Kind{Name: k.name, CPUs: cpus}
		for _, id := range cpus {
			kind.Capacity = max(kind.Capacity, capacity[id])
		}
		s.Kinds = append(s.Kinds, kind)
	}
	if len(s.Kinds) == 0 {
		byCapacity := map[int][]int{}
		for _, id := range online {
			if c := capacity[id]; c > 0 {
				byCapacity[c] = append(byCapacity[c], id)
			}
		}
		for _, c := range slices.Backward(slices.Sorted(maps.Keys(byCapacity))) {
			s.Kinds = append(s.Kinds, Kind{Name: fmt.Sprintf("capacity %d", c), CPUs: byCapacity[c], Capacity: c})
		}
	}
	if len(s.Kinds) < 2 {
		s.Kinds = nil
	}
}

// cacheSets finds every cache once, by the first CPU that it names.
func (r tree) cacheSets(s *Survey, online []int) {
	type key struct {
		level, cpu int
		kind       string
	}
	seen, shared := map[key]bool{}, 0
	for _, id := range online {
		dir := fmt.Sprintf("%s/cpu%d/cache", cpuDir, id)
		for _, i := range r.numbered(dir, "index") {
			index := fmt.Sprintf("%s/index%d/", dir, i)
			if i >= maxTargets {
				r.notes.add("%s is beyond the number of caches that a CPU has, and was left out with those behind it", strings.TrimSuffix(index, "/"))
				break
			}
			c := CacheSet{Level: int(r.number(index+"level", 0)), Type: strings.ToLower(r.text(index + "type"))}
			if c.Level < 1 || c.Level > 9 || c.Type != "data" && c.Type != "instruction" && c.Type != "unified" {
				r.notes.add("%s makes no sense (level %d, type %.20q) and was left out", strings.TrimSuffix(index, "/"), c.Level, c.Type)
				continue
			}
			c.CPUs = r.set(online, index, "shared_cpu_list", "shared_cpu_map")
			if !slices.Contains(c.CPUs, id) {
				if len(c.CPUs) > 0 {
					r.notes.add("CPU %d is not among those that share its own L%d", id, c.Level)
				}
				c.CPUs = []int{id}
			}
			k := key{c.Level, c.CPUs[0], c.Type}
			if seen[k] {
				continue
			}
			seen[k] = true
			if shared += len(c.CPUs); shared > maxShared {
				r.notes.add("the caches name more CPUs than any machine has; those from CPU %d on were left out", id)
				return
			}
			c.Bytes = parseSize(r.text(index + "size"))
			s.CacheSets = append(s.CacheSets, c)
		}
	}
	slices.SortStableFunc(s.CacheSets, func(a, b CacheSet) int {
		return cmp.Or(a.Level-b.Level, strings.Compare(a.Type, b.Type), a.CPUs[0]-b.CPUs[0])
	})
	counts := map[Shape]int{}
	for _, c := range s.CacheSets {
		counts[Shape{Level: c.Level, Type: c.Type, Bytes: c.Bytes, CPUs: len(c.CPUs)}]++
	}
	for shape, n := range counts {
		shape.Count = n
		s.Caches = append(s.Caches, shape)
	}
	slices.SortFunc(s.Caches, func(a, b Shape) int {
		return cmp.Or(a.Level-b.Level, strings.Compare(a.Type, b.Type), cmp.Compare(a.Bytes, b.Bytes), a.CPUs-b.CPUs)
	})
}

// distances reads the SLIT. The kernel gives a row per online node, its columns are the online nodes in order.
func (r tree) distances(nodes []Node) [][]int {
	var rows [][]int
	for _, n := range nodes {
		name := fmt.Sprintf("%s/node%d/distance", nodeDir, n.ID)
		text := r.text(name)
		if text == "" {
			return nil
		}
		var row []int
		for f := range strings.FieldsSeq(text) {
			d, err := strconv.ParseUint(f, 10, 16)
			if err != nil || len(row) == len(nodes) {
				r.notes.add("%s is no row of %d distances: distances are left out", name, len(nodes))
				return nil
			}
			row = append(row, int(d))
		}
		if len(row) != len(nodes) {
			r.notes.add("%s has %d distances for %d nodes: distances are left out", name, len(row), len(nodes))
			return nil
		}
		rows = append(rows, row)
	}
	return rows
}

// subNUMA names the division of packages into nodes as the vendor does, by family and model of the CPU.
func subNUMA(s *Survey, cpuinfo string) string {
	n, of, own := 0, s.packageOfCPU(), map[int]int{}
	for _, node := range s.Nodes {
		if len(node.CPUs) == 0 {
			continue
		}
		p, ok := of[node.CPUs[0]]
		if ok && !slices.ContainsFunc(node.CPUs, func(id int) bool { q, ok := of[id]; return !ok || q != p }) {
			own[p]++
			n = max(n, own[p])
		}
	}
	if n < 2 {
		return ""
	}
	vendor, family, model := identity(cpuinfo)
	flags, _ := field(cpuinfo, "flags")
	switch virtual := slices.Contains(strings.Fields(flags), "hypervisor"); {
	case virtual:
	case vendor == "GenuineIntel" && family == 6 && (model == 63 || model == 79): // Haswell-EP, Broadwell-EP
		return "CoD"
	case vendor == "GenuineIntel" && family == 6 && (model == 85 || model == 87 || model == 133 || model >= 106):
		return fmt.Sprintf("SNC-%d", n) // Skylake-SP and later, Xeon Phi
	case vendor == "AuthenticAMD" && (family > 23 || family == 23 && model >= 48) && n <= 4: // Rome and later
		return fmt.Sprintf("NPS%d", n)
	case vendor == "AuthenticAMD" && (family > 23 || family == 23 && model >= 48):
		return fmt.Sprintf("L3 as NUMA, %d nodes per package", n)
	}
	return fmt.Sprintf("%d nodes per package", n)
}

// identity is vendor, family and model of an x86 CPU.
func identity(cpuinfo string) (vendor string, family, model int) {
	vendor, _ = field(cpuinfo, "vendor_id")
	f, _ := field(cpuinfo, "cpu family")
	m, _ := field(cpuinfo, "model")
	family, _ = strconv.Atoi(f)
	model, _ = strconv.Atoi(m)
	return vendor, family, model
}

// hugePages reads the pools of every node, else those of the machine.
func (r tree) hugePages(s *Survey) {
	pools := func(node int, dir string) {
		for _, name := range r.entries(dir) {
			size, ok := strings.CutPrefix(name, "hugepages-")
			kb, err := strconv.ParseInt(strings.TrimSuffix(size, "kB"), 10, 64)
			if !ok || err != nil || kb <= 0 || kb > 1<<40 {
				r.notes.add("%s/%.40s is no pool of huge pages that makes sense, and was left out", dir, name)
				continue
			}
			p := path.Join(dir, name)
			s.HugePages = append(s.HugePages, HugePool{Node: node, PageBytes: kb << 10,
				Total: max(0, r.number(p+"/nr_hugepages", 0)), Free: max(0, r.number(p+"/free_hugepages", 0))})
		}
	}
	for _, n := range s.Nodes {
		pools(n.ID, fmt.Sprintf("%s/node%d/hugepages", nodeDir, n.ID))
	}
	if len(s.HugePages) == 0 {
		pools(-1, "sys/kernel/mm/hugepages")
	}
	slices.SortStableFunc(s.HugePages, func(a, b HugePool) int { return cmp.Or(a.Node-b.Node, cmp.Compare(a.PageBytes, b.PageBytes)) })
}

// chosen is the word in brackets: "always [madvise] never".
func chosen(text string) string {
	_, rest, ok := strings.Cut(text, "[")
	word, _, ok2 := strings.Cut(rest, "]")
	if !ok || !ok2 {
		return ""
	}
	return word
}

func (r tree) settings(s *Survey, cpuinfo string) {
	t := &s.Settings
	t.THP = chosen(r.word("sys/kernel/mm/transparent_hugepage/enabled"))
	t.THPDefrag = chosen(r.word("sys/kernel/mm/transparent_hugepage/defrag"))
	t.NUMABalancing = r.word("proc/sys/kernel/numa_balancing")
	var governors []string
	for _, id := range s.Affinity {
		dir := fmt.Sprintf("%s/cpu%d/cpufreq/", cpuDir, id)
		if g := r.word(dir + "scaling_governor"); g != "" && !slices.Contains(governors, g) && len(governors) < 8 {
			governors = append(governors, g)
		}
		if t.Driver == "" {
			t.Driver = r.word(dir + "scaling_driver")
		}
	}
	slices.Sort(governors)
	t.Governor = strings.Join(governors, ",")
	switch boost, noTurbo := r.text(cpuDir+"/cpufreq/boost"), r.text(cpuDir+"/intel_pstate/no_turbo"); {
	case noTurbo == "0" || noTurbo == "" && boost == "1":
		t.Turbo = "on"
	case noTurbo == "1" || boost == "0":
		t.Turbo = "off"
	}
	t.SMTControl = r.word(cpuDir + "/smt/control")
	t.UMWaitMax = r.word(cpuDir + "/umwait_control/max_time")
	t.Swappiness = r.word("proc/sys/vm/swappiness")
	info := r.text("proc/meminfo")
	t.SwapTotal, _ = kilobytes(info, "SwapTotal")
	free, _ := kilobytes(info, "SwapFree")
	t.SwapUsed = max(0, t.SwapTotal-free)
	t.Overcommit = r.word("proc/sys/vm/overcommit_memory")
	t.ZoneReclaim = r.word("proc/sys/vm/zone_reclaim_mode")
	limits := r.text("proc/self/limits")
	t.Memlock, t.AddressSpace = softLimit(limits, "Max locked memory"), softLimit(limits, "Max address space")
	const vulnerabilities = cpuDir + "/vulnerabilities"
	for _, e := range r.readDir(vulnerabilities) {
		v, ok := strings.CutPrefix(r.word(vulnerabilities+"/"+e.Name()), "Mitigation: ")
		if !ok {
			continue
		}
		if len(t.Mitigations) == maxTargets {
			r.notes.add("%s has more than %d vulnerabilities, of which no more were read", vulnerabilities, maxTargets)
			break
		}
		t.Mitigations = append(t.Mitigations, e.Name()+": "+v)
	}
	t.ClockSource = r.word("sys/devices/system/clocksource/clocksource0/current_clocksource")
	flags, _ := field(cpuinfo, "flags")
	t.Hypervisor = slices.Contains(strings.Fields(flags), "hypervisor") || r.text("sys/hypervisor/type") != ""
	t.Isolated, _ = r.list(cpuDir + "/isolated")
	if text := r.text(cpuDir + "/nohz_full"); text != "(null)" { // as it says on kernels without a set
		t.NoHzFull, _ = parseList(text)
	}
	for i, n := range s.Nodes {
		if pages, ok := kilobytes(r.text(fmt.Sprintf("%s/node%d/meminfo", nodeDir, n.ID)), fmt.Sprintf("Node %d FilePages", n.ID)); ok {
			if t.PageCacheByNode == nil {
				t.PageCacheByNode = make([]int64, len(s.Nodes))
			}
			t.PageCacheByNode[i] = pages
		}
	}
}

// softLimit reads a line of /proc/self/limits: name, soft limit, hard limit, unit in columns; -1 unlimited, -2 not told.
func softLimit(text, name string) int64 {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		soft, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
		if soft == "unlimited" {
			return -1
		}
		if n, err := strconv.ParseInt(soft, 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return -2
}
