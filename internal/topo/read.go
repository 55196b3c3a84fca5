package topo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const (
	maxCPU  = 1 << 14 // twice the largest NR_CPUS of Linux
	maxNode = 1 << 10 // MAX_NUMNODES of Linux, at its largest NODES_SHIFT of 10
	maxText = 4 << 20 // bytes of a file; the longest, a mount table of a host with many containers, can have a megabyte

	// maxShared bounds the CPU lists of all nodes, and of all caches, together; no machine comes near.
	maxShared = 1 << 20
)

// maxSteps bounds what a survey reads, since a small tree of a stranger can have links that make it endless. A step is a file that is
// opened, an entry of a folder, 64 bytes or 32 numbers. 1,792 CPUs take 220,000. (A variable for fuzz targets, whose machines are small.)
var maxSteps = 1 << 19

var errSteps = errors.New("too much was read")

// tree is the files to read, below /, and what was found wrong with them if anybody wants to know.
type tree struct {
	fs.FS
	notes *notes
	steps *int // that were taken; nil: nobody counts
}

// quiet is the tree for reading what often cannot be read.
func (r tree) quiet() tree {
	r.notes = nil
	return r
}

// afford takes n steps, if there are so many left. Now and then it collects garbage: Go would let it grow to as much as the tree of a stranger
// that is in memory. A machine of less than 300 CPUs does not come that far.
func (r tree) afford(n int) bool {
	if r.steps == nil {
		return true
	}
	const collect = 1 << 14
	before := *r.steps
	*r.steps += n
	if before/collect < *r.steps/collect {
		runtime.GC()
	}
	return *r.steps <= maxSteps
}

// open opens a file by its path from the root, with or without a slash before it.
func (r tree) open(name string) (fs.File, error) {
	if !r.afford(1) {
		return nil, errSteps
	}
	return r.Open(strings.TrimPrefix(path.Join("/", name), "/"))
}

// text is a file's content without blanks at its end; "" if it is absent, unreadable or empty.
func (r tree) text(name string) string {
	s, whole := r.head(name, maxText)
	if !whole {
		r.notes.add("%s is longer than %d KiB and was not read", name, maxText>>10)
		return ""
	}
	return strings.Trim(s, " \t\n\x00") // some old kernels end a list with a zero byte
}

// head is the first n bytes of a file, and whether that is all of it.
func (r tree) head(name string, n int64) (string, bool) {
	f, err := r.open(name)
	if err != nil {
		r.notes.unreadable(name, err)
		return "", true
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, n+1))
	if err != nil {
		r.notes.unreadable(name, err)
		return "", true
	}
	r.afford(len(b) / 64)
	if int64(len(b)) > n {
		return string(b[:n]), false
	}
	return string(b), true
}

// readDir is the entries of a folder; none if it is absent.
func (r tree) readDir(name string) []fs.DirEntry {
	if !r.afford(1) {
		return nil
	}
	es, err := fs.ReadDir(r.FS, name)
	if err != nil {
		r.notes.unreadable(name, err)
		return nil
	}
	if !r.afford(len(es)) {
		return nil
	}
	return es
}

// number is a file's content as a number, or def.
func (r tree) number(name string, def int64) int64 {
	s := r.text(name)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		if s != "" && s != "max" {
			r.notes.add("%s is %.40q, which is no number", name, s)
		}
		return def
	}
	return n
}

// list is a set of numbers from the first of the files that is there and right; by its name a file holds a bit map or a list.
func (r tree) list(names ...string) ([]int, bool) {
	for _, name := range names {
		f, err := r.open(name)
		if err != nil {
			r.notes.unreadable(name, err)
			continue
		}
		f.Close()
		parse := parseList
		if isMap(name) {
			parse = parseMap
		}
		ids, err := parse(r.text(name))
		if err == nil && r.afford(len(ids)/32) {
			return ids, true
		}
		if err == nil {
			return nil, false
		}
		r.notes.add("%s: %v", name, err)
	}
	return nil, false
}

// isMap tells by a file's name whether it holds a bit map (Documentation/admin-guide/cputopology.rst).
func isMap(name string) bool {
	switch path.Base(name) {
	case "cpumap", "shared_cpu_map", "thread_siblings", "core_cpus", "core_siblings", "package_cpus", "die_cpus", "cluster_cpus",
		"book_siblings", "drawer_siblings":
		return true
	}
	return false
}

// ParseCPUs reads a list of CPUs as Linux writes it: "0-3,8".
func ParseCPUs(s string) ([]int, error) { return parseList(s) }

// parseList reads the kernel's list format: "0-3,8,10-11"; "" is empty.
func parseList(s string) ([]int, error) {
	var ids []int
	sorted := true
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		a, b, isRange := strings.Cut(part, "-")
		lo, err := strconv.ParseUint(a, 10, 31)
		hi := lo
		if err == nil && isRange {
			hi, err = strconv.ParseUint(b, 10, 31)
		}
		if err != nil || hi < lo || hi >= maxCPU {
			return nil, fmt.Errorf("bad list of numbers %.60q", s)
		}
		sorted = sorted && (len(ids) == 0 || ids[len(ids)-1] < int(lo))
		ids = slices.Grow(ids, int(hi-lo+1))
		for id := lo; id <= hi; id++ {
			ids = append(ids, int(id))
		}
		if len(ids) > 2*maxCPU {
			return nil, fmt.Errorf("list of numbers %.60q is too long", s)
		}
	}
	if !sorted {
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	return ids, nil
}

// parseMap reads the kernel's bit map format: groups of 32 bits in hex, the highest first: "00000000,0000000f".
func parseMap(s string) ([]int, error) {
	var ids []int
	if strings.Count(s, ",") >= maxCPU/32 {
		return nil, fmt.Errorf("bit map %.60q is too long", s)
	}
	groups := strings.Split(s, ",")
	for i, g := range groups {
		bits, err := strconv.ParseUint(g, 16, 32)
		if err != nil {
			return nil, fmt.Errorf("bad bit map %.60q", s)
		}
		for b := range 32 {
			if bits>>b&1 == 1 {
				ids = append(ids, (len(groups)-1-i)*32+b)
			}
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// field finds "Key: value" in text such as /proc/meminfo and /proc/self/status.
func field(text, key string) (string, bool) {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

// kilobytes is a field of the form "123 kB", in bytes.
func kilobytes(text, key string) (int64, bool) {
	v, ok := field(text, key)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(v, "kB")), 10, 64)
	if err != nil || n < 0 || n > 1<<50 {
		return 0, false
	}
	return n << 10, true
}

// Read reads the live system if root is "", else a saved tree as Open does. Files that are missing are no error; a root that does not
// exist, or one that names no CPU at all, is.
func Read(root string) (Machine, error) {
	if root == "" {
		return Live()
	}
	fsys, err := Open(root)
	if err != nil {
		return Machine{}, err
	}
	m, ok := read(tree{FS: fsys}, false)
	if !ok {
		return Machine{}, fmt.Errorf("%w; %s is none", errNoCPUs, root)
	}
	return m, nil
}

// Live is Read of the live system: programs that read no saved trees do without what opens archives.
func Live() (Machine, error) {
	m, ok := read(tree{FS: os.DirFS("/")}, true)
	if !ok {
		return Machine{}, fmt.Errorf("%w; / is none", errNoCPUs)
	}
	return m, nil
}

// WorkQueues are the names of the work queues of DSA and IAA devices that programs may open, "wq0.0".
func WorkQueues() (names []string) {
	entries, _ := os.ReadDir("/dev/dsa") // none without the driver
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// read is Read for any tree; not ok means that no CPUs were found.
func read(r tree, live bool) (m Machine, ok bool) {
	groups := cgroups{}
	if r.plausibleGroups() {
		groups = r.cgroups()
	}
	var allowed []int
	if live {
		allowed = affinity()
	} else {
		allowed = r.savedAffinity(groups)
	}
	online := r.online()
	if len(online) == 0 {
		online = allowed // no /sys: believe the scheduler
	}
	if len(online) == 0 {
		return m, false
	}
	m = Machine{Affinity: intersect(allowed, online)}
	if len(m.Affinity) == 0 {
		m.Affinity = online
	}
	m.MemTotal, m.MemFree = r.memory()
	m.Nodes = r.nodes(online, m.MemTotal, m.MemFree, groups)
	m.CPUs = r.cpus(online, m.Nodes)
	m.L1d, m.L2, m.L3 = r.caches(m.Affinity[0], online)
	m.Quota = r.quota(groups)
	m.Limits = r.memLimits(groups)
	return m, true
}

// plausibleGroups tells whether /proc speaks of cgroups as Linux can have them. All groups above one count for each controller, so that what a
// stranger writes could take any memory.
func (r tree) plausibleGroups() bool {
	const (
		maxLevels      = 128
		maxControllers = 32       // Linux has less than 20
		maxLine        = 2 * 4096 // of two paths and options; PATH_MAX is 4096
		maxOther       = 64 << 10 // of a mount of another kind; those of containers list their layers
	)
	controllers := 0
	for _, name := range []string{"proc/self/cgroup", "proc/self/cpuset", "proc/self/mountinfo", "proc/mounts"} {
		membership := name == "proc/self/cgroup" || name == "proc/self/cpuset"
		for line := range strings.Lines(r.text(name)) {
			if !membership && len(line) <= maxOther && !strings.Contains(line, "cgroup") && !strings.Contains(line, "cpuset") {
				continue
			}
			if membership {
				controllers += 1 + strings.Count(line, ",")
			}
			if len(line) > maxLine || membership && (len(line) > maxName+maxWord || strings.Count(line, "/") > maxLevels || controllers > maxControllers) {
				r.notes.add("%s speaks of a cgroup that Linux cannot have: limits of cgroups are not told", name)
				return false
			}
		}
	}
	return true
}

// affinity asks the kernel for the CPUs of the calling thread; the cpuset is in it.
func affinity() []int {
	var mask [maxCPU / 64]uint64
	n, _, e := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
	if e != 0 {
		return nil
	}
	var ids []int
	for i := range int(n) * 8 {
		if mask[i/64]>>(i%64)&1 == 1 {
			ids = append(ids, i)
		}
	}
	return ids
}

// savedAffinity is what a saved copy tells of the affinity of the process that saved it: its status, and its cpuset.
func (r tree) savedAffinity(groups cgroups) []int {
	var allowed []int
	if s, ok := field(r.text("proc/self/status"), "Cpus_allowed_list"); ok {
		allowed, _ = parseList(s)
	}
	if set := r.cpuset(groups, "cpus"); len(set) > 0 {
		if len(allowed) == 0 {
			return set
		}
		return intersect(allowed, set)
	}
	return allowed
}

const cpuDir = "sys/devices/system/cpu"

// online lists the CPUs that run. Kernels before 2.6.26 have no list: there a CPU's folder says it.
func (r tree) online() []int {
	if ids, ok := r.list(cpuDir + "/online"); ok && len(ids) > 0 {
		return ids
	}
	var ids []int
	for _, id := range r.numbered(cpuDir, "cpu") {
		if r.text(fmt.Sprintf("%s/cpu%d/online", cpuDir, id)) != "0" {
			ids = append(ids, id)
		}
	}
	return ids
}

// numbered lists the numbers of a folder's entries prefix0, prefix1, …
func (r tree) numbered(dir, prefix string) []int {
	var ids []int
	for _, e := range r.readDir(dir) {
		digits, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || strings.Trim(digits, "0123456789") != "" || digits == "" {
			continue
		}
		// The kernel writes no zeros before a number: cpu07 would be CPU 7 once more.
		n, err := strconv.ParseUint(digits, 10, 31)
		if err != nil || n >= maxCPU || digits[0] == '0' && len(digits) > 1 {
			r.notes.add("%s/%.40s is no number that a machine has, and was left out", dir, e.Name())
			continue
		}
		ids = append(ids, int(n))
	}
	slices.Sort(ids)
	return ids
}

func (r tree) cpus(online []int, nodes []Node) []CPU {
	nodeOf := map[int]int{}
	for _, id := range online {
		nodeOf[id] = nodes[0].ID // if nothing tells
	}
	for _, n := range slices.Backward(nodes) { // the first node wins where the firmware puts a CPU into several
		for _, id := range n.CPUs {
			nodeOf[id] = n.ID
		}
	}
	cpus := make([]CPU, len(online))
	for i, id := range online {
		dir := fmt.Sprintf("%s/cpu%d/topology/", cpuDir, id)
		cpus[i] = CPU{
			ID:      id,
			Package: int(r.number(dir+"physical_package_id", -1)),
			Core:    int(r.number(dir+"core_id", -1)),
			Lead:    id,
			Node:    nodeOf[id],
		}
		// core_cpus is the name since Linux 5.3, thread_siblings the older one.
		siblings, _ := r.list(dir+"core_cpus_list", dir+"thread_siblings_list", dir+"core_cpus", dir+"thread_siblings")
		if siblings = intersect(siblings, online); slices.Contains(siblings, id) {
			cpus[i].Lead = siblings[0]
		}
	}
	return cpus
}

const nodeDir = "sys/devices/system/node"

func (r tree) nodes(online []int, memTotal, memFree int64, groups cgroups) []Node {
	ids := r.numbered(nodeDir, "node")
	if n, _ := slices.BinarySearch(ids, maxNode); n < len(ids) {
		r.notes.add("%s/node%d is beyond what Linux can have; the nodes from there on were left out", nodeDir, ids[n])
		ids = ids[:n]
	}
	if len(ids) == 0 {
		return []Node{{CPUs: online, MemTotal: memTotal, MemFree: memFree, Allowed: true}}
	}
	var mems []int
	if s, ok := field(r.text("proc/self/status"), "Mems_allowed_list"); ok {
		mems, _ = parseList(s)
	}
	if set := r.cpuset(groups, "mems"); len(set) > 0 {
		if len(mems) == 0 {
			mems = set
		} else {
			mems = intersect(mems, set)
		}
	}
	var nodes []Node
	shared := 0
	for _, id := range ids {
		dir := fmt.Sprintf("%s/node%d/", nodeDir, id)
		cpus, _ := r.list(dir+"cpulist", dir+"cpumap")
		if shared += len(cpus); shared > maxShared {
			r.notes.add("the nodes name more CPUs than any machine has; node %d has none here", id)
			cpus = nil
		}
		info := r.text(dir + "meminfo")
		prefix := fmt.Sprintf("Node %d ", id)
		total, _ := kilobytes(info, prefix+"MemTotal")
		free, _ := kilobytes(info, prefix+"MemFree")
		nodes = append(nodes, Node{ID: id, CPUs: intersect(cpus, online), MemTotal: total, MemFree: free,
			Allowed: len(mems) == 0 || slices.Contains(mems, id)})
	}
	return nodes
}

// memory is the machine's total, and what can be used without swapping. Kernels before 3.14 do not tell the latter; free memory and
// page cache come near.
func (r tree) memory() (total, available int64) {
	info := r.text("proc/meminfo")
	total, _ = kilobytes(info, "MemTotal")
	available, ok := kilobytes(info, "MemAvailable")
	if !ok {
		for _, key := range []string{"MemFree", "Buffers", "Cached"} {
			n, _ := kilobytes(info, key)
			available += n
		}
	}
	return total, available
}

func (r tree) caches(cpu int, online []int) (l1d, l2, l3 Cache) {
	dir := fmt.Sprintf("%s/cpu%d/cache", cpuDir, cpu)
	for _, i := range r.numbered(dir, "index") {
		index := fmt.Sprintf("%s/index%d/", dir, i)
		if i >= maxTargets {
			break
		}
		if r.text(index+"type") == "Instruction" {
			continue
		}
		sharers, _ := r.list(index+"shared_cpu_list", index+"shared_cpu_map")
		c := Cache{Bytes: parseSize(r.text(index + "size")), CPUs: max(1, len(intersect(sharers, online)))}
		switch r.number(index+"level", 0) {
		case 1:
			l1d = c
		case 2:
			l2 = c
		case 3:
			l3 = c
		}
	}
	return l1d, l2, l3
}

// parseSize reads "32K", "16384K", "32M"; 0 if it is none.
func parseSize(s string) int64 {
	shift := 0
	switch {
	case strings.HasSuffix(s, "K"):
		shift = 10
	case strings.HasSuffix(s, "M"):
		shift = 20
	case strings.HasSuffix(s, "G"):
		shift = 30
	}
	if shift > 0 {
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<40>>shift {
		return 0
	}
	return n << shift
}

// intersect is what is in both ascending lists.
func intersect(a, b []int) []int {
	if len(a) == 0 || len(b) == 0 || a[len(a)-1] < b[0] || b[len(b)-1] < a[0] {
		return nil
	}
	both := make([]int, 0, min(len(a), len(b)))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			both = append(both, a[0])
			a, b = a[1:], b[1:]
		}
	}
	if len(both) == 0 {
		return nil
	}
	return both
}
