package topo

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const (
	maxCPU  = 1 << 14 // twice the largest NR_CPUS of Linux
	maxText = 1 << 20 // bytes; no file that is read as a whole is longer
)

// tree is the files to read, below /, and what was found wrong with them if anybody wants to know.
type tree struct {
	fs.FS
	notes *notes
}

// open opens a file by its path from the root, with or without a slash before it.
func (r tree) open(name string) (fs.File, error) {
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
	if int64(len(b)) > n {
		return string(b[:n]), false
	}
	return string(b), true
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
			continue
		}
		f.Close()
		parse := parseList
		if isMap(name) {
			parse = parseMap
		}
		ids, err := parse(r.text(name))
		if err == nil {
			return ids, true
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

// parseList reads the kernel's list format: "0-3,8,10-11"; "" is empty.
func parseList(s string) ([]int, error) {
	var ids []int
	sorted := true
	if s == "" {
		return nil, nil
	}
	for _, part := range strings.Split(s, ",") {
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
	groups := strings.Split(s, ",")
	if len(groups)*32 > maxCPU {
		return nil, fmt.Errorf("bit map %.60q is too long", s)
	}
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

// Read reads the live system if root is "", else a saved copy of its /proc and /sys (and what else the cgroups were mounted on). Files
// that are missing are no error; a root that does not exist, or one that names no CPU at all, is.
func Read(root string) (Machine, error) {
	live := root == ""
	if live {
		root = "/"
	}
	if st, err := os.Stat(root); err != nil {
		return Machine{}, fmt.Errorf("topology: %w", err)
	} else if !st.IsDir() {
		return Machine{}, fmt.Errorf("topology: %s is not a directory that holds proc and sys", root)
	}
	m, ok := read(tree{FS: os.DirFS(root)}, live)
	if !ok {
		return Machine{}, fmt.Errorf("topology: %s names no CPUs (looked for sys/devices/system/cpu and proc/self/status)", root)
	}
	return m, nil
}

// read is Read for any tree; not ok means that no CPUs were found.
func read(r tree, live bool) (m Machine, ok bool) {
	groups := r.cgroups()

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
	entries, err := fs.ReadDir(r.FS, dir)
	if err != nil {
		return nil
	}
	var ids []int
	for _, e := range entries {
		if s, ok := strings.CutPrefix(e.Name(), prefix); ok {
			if n, err := strconv.ParseUint(s, 10, 31); err == nil && n < maxCPU {
				ids = append(ids, int(n))
			}
		}
	}
	slices.Sort(ids)
	return ids
}

func (r tree) cpus(online []int, nodes []Node) []CPU {
	nodeOf := map[int]int{}
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
	for _, id := range ids {
		dir := fmt.Sprintf("%s/node%d/", nodeDir, id)
		cpus, _ := r.list(dir+"cpulist", dir+"cpumap")
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
	var both []int
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
	return both
}
