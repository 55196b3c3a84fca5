package topo

import (
	"fmt"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A mount is a place where a cgroup hierarchy is visible.
type mount struct {
	dir         string   // where
	root        string   // which cgroup of the hierarchy is seen there
	controllers []string // of a v1 hierarchy; none: the v2 hierarchy
}

// A group is one directory of limits.
type group struct {
	name string // path in its hierarchy, as the process sees it
	dir  string // where its files are
}

// cgroups lists for each controller ("" for all of v2) the group of the process and those above it, as far as they are visible. A
// controller may be in v1 while others are in v2, so both are looked at.
type cgroups map[string][]group

// of is the groups in which a controller's limits may stand.
func (g cgroups) of(controller string) []group {
	return slices.Concat(g[controller], g[""])
}

func (r tree) cgroups() cgroups {
	mounts := parseMountInfo(r.text("proc/self/mountinfo"))
	if len(mounts) == 0 {
		mounts = parseMounts(r.text("proc/mounts"))
	}
	paths := parseMembership(r.text("proc/self/cgroup"))
	if _, ok := paths["cpuset"]; !ok && len(paths) == 0 {
		// Old or saved without it: the cpuset's path is a file of its own, and on v2 it is the path of everything.
		if p := r.text("proc/self/cpuset"); p != "" {
			paths = map[string]string{"cpuset": p, "": p}
		}
	}
	g := cgroups{}
	for _, m := range mounts {
		controllers := m.controllers
		if controllers == nil {
			controllers = []string{""}
		}
		for _, c := range controllers {
			if p, ok := paths[c]; ok && g[c] == nil {
				g[c] = m.upward(p)
			}
		}
	}
	return g
}

// upward lists the group at path p and all above it that the mount shows. In a container the mount may begin at the container's own
// group: then p is relative to that, or outside of it, and the mount point is all there is to see.
func (m mount) upward(p string) []group {
	rel, ok := relative(p, m.root)
	if !ok || slices.Contains(strings.Split(p, "/"), "..") {
		rel = "/"
	}
	var gs []group
	for {
		gs = append(gs, group{name: path.Join("/", p), dir: path.Join(m.dir, rel)})
		if rel == "/" {
			return gs
		}
		rel, p = path.Dir(rel), path.Dir(path.Join("/", p))
	}
}

// relative cuts root off the front of p, at a slash.
func relative(p, root string) (string, bool) {
	p = path.Join("/", p)
	if root == "/" {
		return p, true
	}
	rest, ok := strings.CutPrefix(p, root)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return path.Join("/", rest), true
}

// parseMembership reads /proc/self/cgroup: "4:memory:/a/b", "1:cpu,cpuacct:/a/b", and for v2 "0::/a/b".
func parseMembership(text string) map[string]string {
	paths := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			paths[c] = f[2]
		}
	}
	return paths
}

// parseMountInfo finds the cgroup mounts in /proc/self/mountinfo (proc(5)): ID, parent, device, root, mount point, options, optional
// fields, "-", type, source, options of the superblock, among which the controllers of v1 are.
func parseMountInfo(text string) []mount {
	var ms []mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		ms = appendMount(ms, g[0], unescape(f[3]), unescape(f[4]), g[2])
	}
	return ms
}

// parseMounts finds them in /proc/mounts: source, mount point, type, options.
func parseMounts(text string) []mount {
	var ms []mount
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 4 {
			ms = appendMount(ms, f[2], "/", unescape(f[1]), f[3])
		}
	}
	return ms
}

func appendMount(ms []mount, fstype, root, dir, options string) []mount {
	switch fstype {
	case "cgroup2":
		ms = append(ms, mount{dir: dir, root: root})
	case "cgroup":
		ms = append(ms, mount{dir: dir, root: root, controllers: strings.Split(options, ",")})
	case "cpuset": // before cgroups
		ms = append(ms, mount{dir: dir, root: root, controllers: []string{"cpuset"}})
	}
	return ms
}

// unescape undoes the octal escapes of blanks and backslashes in mount tables.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// cpuset is the process's own set of "cpus" or "mems"; empty means that nothing is said.
func (r tree) cpuset(groups cgroups, what string) []int {
	for _, g := range groups.of("cpuset") {
		// v2, v1, v1 mounted with noprefix. A group that sets nothing has what the next one above has.
		ids, _ := r.list(path.Join(g.dir, "cpuset."+what+".effective"), path.Join(g.dir, "cpuset."+what), path.Join(g.dir, what))
		if len(ids) > 0 {
			return ids
		}
	}
	return nil
}

// quota is the tightest CPU quota: v2 cpu.max is "max 100000" or "150000 100000" (quota and period in us), v1 has a file for each and
// -1 for none.
func (r tree) quota(groups cgroups) Quota {
	var q Quota
	for _, g := range groups.of("cpu") {
		used, period, _ := strings.Cut(r.text(path.Join(g.dir, "cpu.max")), " ")
		if used == "" {
			used, period = r.text(path.Join(g.dir, "cpu.cfs_quota_us")), r.text(path.Join(g.dir, "cpu.cfs_period_us"))
		}
		u, err1 := strconv.ParseInt(used, 10, 64)
		p, err2 := strconv.ParseInt(period, 10, 64)
		if err1 != nil || err2 != nil || u <= 0 || p <= 0 {
			continue
		}
		if cpus := float64(u) / float64(p); q.CPUs == 0 || cpus < q.CPUs {
			q = Quota{CPUs: cpus, Group: g.name}
		}
	}
	return q
}

// memLimits lists the groups that limit memory. Page cache of files is not counted as used: the kernel drops it first.
func (r tree) memLimits(groups cgroups) []MemLimit {
	var ls []MemLimit
	for _, g := range groups.of("memory") {
		// Above memory.high a v2 group is slowed down until nothing moves, so it is a limit, too. v1 writes "unlimited" as a huge number.
		limit := min(r.limit(g, "memory.max"), r.limit(g, "memory.high"), r.limit(g, "memory.limit_in_bytes"))
		if limit >= 1<<60 {
			continue
		}
		used := max(r.number(path.Join(g.dir, "memory.current"), 0), r.number(path.Join(g.dir, "memory.usage_in_bytes"), 0))
		stat := r.text(path.Join(g.dir, "memory.stat"))
		files := max(statSum(stat, "active_file", "inactive_file"), statSum(stat, "total_active_file", "total_inactive_file"))
		left := limit - max(0, used-files)
		ls = append(ls, MemLimit{Group: g.name, Max: limit, Left: max(0, left)})
	}
	return ls
}

// limit is a limit in bytes; none is the largest number.
func (r tree) limit(g group, name string) int64 {
	n := r.number(path.Join(g.dir, name), math.MaxInt64)
	if n < 0 {
		return math.MaxInt64
	}
	return n
}

// statSum adds up lines "key value" of memory.stat.
func statSum(stat string, keys ...string) int64 {
	sum := int64(0)
	for line := range strings.Lines(stat) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains(keys, k) {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > 0 && n < 1<<60 {
				sum += n
			}
		}
	}
	return sum
}

// Budget is how many bytes this process may still make resident: Memory, or less where its cpuset leaves nodes out. It reads the live
// system once more. Not ok: nothing tells.
func (m Machine) Budget() (bytes int64, why string, ok bool) {
	if m.MemTotal <= 0 && len(m.Limits) == 0 {
		return 0, "", false
	}
	bytes, why = m.Memory()
	if m.MemTotal <= 0 { // limits alone: the tightest
		for i, l := range m.Limits {
			if i == 0 || l.Left < bytes {
				bytes, why = l.Left, fmt.Sprintf("%s left of the limit of %s of cgroup %s", gib(l.Left), gib(l.Max), l.Group)
			}
		}
	}
	if n, nodes := m.onAllowedNodes(tree{FS: os.DirFS("/")}); nodes != "" && n < bytes {
		bytes, why = n, fmt.Sprintf("%s available on node %s, where memory may be taken", gib(n), nodes)
	}
	return bytes, why, true
}

// onAllowedNodes is what is available on the nodes on which memory is allowed, if some are not: free pages and page cache of files, less
// what the kernel keeps to itself, of which the difference to its own estimate of the whole machine gives the share.
func (m Machine) onAllowedNodes(r tree) (available int64, nodes string) {
	var all, allowed int64
	var ids []string
	out := false
	for _, n := range m.Nodes {
		if n.MemTotal == 0 {
			continue
		}
		info, prefix := r.text(fmt.Sprintf("%s/node%d/meminfo", nodeDir, n.ID)), fmt.Sprintf("Node %d ", n.ID)
		sum := int64(0)
		for _, key := range []string{"MemFree", "Active(file)", "Inactive(file)"} {
			bytes, _ := kilobytes(info, prefix+key)
			sum += bytes
		}
		all += sum
		if n.Allowed {
			allowed += sum
			ids = append(ids, strconv.Itoa(n.ID))
		} else {
			out = true
		}
	}
	if !out || all == 0 {
		return 0, ""
	}
	return int64(float64(allowed) * min(1, float64(m.MemFree)/float64(all))), strings.Join(ids, ", ")
}

// NodeRoom is how many bytes can be bound to a memory node of the live system: free pages and page cache of files, less a reserve for others; an
// eighth of a small node, else 256 MiB or 2 %. Below zero: nothing tells. What is bound beyond what a node has ends the process.
func NodeRoom(id int) int64 {
	r := tree{FS: os.DirFS("/")}
	info, prefix := r.text(fmt.Sprintf("%s/node%d/meminfo", nodeDir, id)), fmt.Sprintf("Node %d ", id)
	total, ok := kilobytes(info, prefix+"MemTotal")
	if !ok {
		return -1
	}
	room := -max(min(256<<20, total/8), total/50)
	for _, key := range []string{"MemFree", "Active(file)", "Inactive(file)"} {
		bytes, _ := kilobytes(info, prefix+key)
		room += bytes
	}
	return max(room, 0)
}

// A Ulimit is a limit on what this process may map (setrlimit(2)).
type Ulimit struct {
	Flag string // of the shell's ulimit
	Max  int64  // bytes
	Left int64  // bytes: Max less what is mapped
}

// Ulimits are those of the live process that are set: -v, its address space, in which mapped files and reservations count as well, and
// -d, its private writable memory (since Linux 4.7).
func Ulimits() []Ulimit {
	r := tree{FS: os.DirFS("/")}
	return ulimits(r.text("proc/self/limits"), func() string { return r.text("proc/self/status") })
}

func ulimits(limits string, status func() string) []Ulimit {
	var set []Ulimit
	for _, l := range []struct{ flag, limit, used string }{{"-v", "Max address space", "VmSize"}, {"-d", "Max data size", "VmData"}} {
		if n := softLimit(limits, l.limit); n >= 0 {
			used, _ := kilobytes(status(), l.used)
			set = append(set, Ulimit{l.flag, n, max(0, n-used)})
		}
	}
	return set
}
