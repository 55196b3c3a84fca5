package topo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ck/internal/testkit"
)

// fake is a tree of these files.
func fake(files map[string]string) tree {
	m := newMemStore()
	for name, text := range files {
		if err := m.add(name, entry{data: text + "\n"}); err != nil {
			panic(err)
		}
	}
	m.finish()
	return tree{FS: linked{m}}
}

// must reads a saved tree.
func must(t *testing.T, r tree) Machine {
	t.Helper()
	m, ok := read(r, false)
	if !ok {
		t.Fatal("no CPUs found")
	}
	return m
}

// with joins maps of files; later ones win, and an entry "-" deletes.
func with(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			if v == "-" {
				delete(all, k)
			} else {
				all[k] = v
			}
		}
	}
	return all
}

// box is a machine of two nodes with two cores of two threads each: CPUs 0-3 on node 0, 4-7 on node 1, siblings are n and n+1.
func box() map[string]string {
	f := map[string]string{
		"proc/meminfo":                          "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nMemAvailable: 8388608 kB",
		"proc/self/status":                      "Name:\tx\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0-1",
		"sys/devices/system/cpu/online":         "0-7",
		"sys/devices/system/node/has_cpu":       "0-1",
		"sys/devices/system/node/node0/cpulist": "0-3",
		"sys/devices/system/node/node1/cpulist": "4-7",
	}
	for cpu := range 8 {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", cpu)
		f[dir+"topology/physical_package_id"] = fmt.Sprint(cpu / 4)
		f[dir+"topology/core_id"] = fmt.Sprint(cpu % 4 / 2)
		f[dir+"topology/thread_siblings_list"] = fmt.Sprintf("%d-%d", cpu&^1, cpu|1)
		for i, c := range []struct{ level, typ, size, shared string }{
			{"1", "Data", "48K", fmt.Sprintf("%d-%d", cpu&^1, cpu|1)},
			{"1", "Instruction", "32K", fmt.Sprintf("%d-%d", cpu&^1, cpu|1)},
			{"2", "Unified", "2M", fmt.Sprintf("%d-%d", cpu&^1, cpu|1)},
			{"3", "Unified", "32768K", fmt.Sprintf("%d-%d", cpu&^3, cpu|3)},
		} {
			index := fmt.Sprintf("%scache/index%d/", dir, i)
			f[index+"level"], f[index+"type"], f[index+"size"], f[index+"shared_cpu_list"] = c.level, c.typ, c.size, c.shared
		}
	}
	return f
}

const (
	v2mount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
	v1mount = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs cgroup rw,mode=755\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
		"33 31 0:30 / /sys/fs/cgroup/memory rw,relatime shared:10 - cgroup cgroup rw,memory"
	cg = "sys/fs/cgroup"
)

func TestWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		cpus  []int
		why   string
	}{
		"all": {nil, []int{0, 2, 4, 6}, "4 workers: 4 cores (8 CPUs with SMT) in affinity, no quota"},
		"affinity": {map[string]string{"proc/self/status": "Cpus_allowed_list:\t1,4-6"},
			[]int{4, 6, 1}, "3 workers: 3 cores (4 CPUs with SMT) in affinity, no quota"},
		"one thread of each core": {map[string]string{"proc/self/status": "Cpus_allowed_list:\t1,3,4,6"},
			[]int{1, 3, 4, 6}, "4 workers: 4 cores in affinity, no quota"},
		"one CPU": {map[string]string{"proc/self/status": "Cpus_allowed_list:\t5"}, []int{5}, "1 worker: 1 core in affinity, no quota"},
		"offline": {map[string]string{"sys/devices/system/cpu/online": "1-5"},
			[]int{1, 2, 4}, "3 workers: 3 cores (5 CPUs with SMT) in affinity, no quota"},
		"v2 quota": {map[string]string{"proc/self/cgroup": "0::/a/b", "proc/self/mountinfo": v2mount, cg + "/a/b/cpu.max": "250000 100000"},
			[]int{0, 2}, "2 workers: quota of 2.5 CPUs in cgroup /a/b, 4 cores (8 CPUs with SMT) in affinity"},
		"v2 no quota": {map[string]string{"proc/self/cgroup": "0::/a/b", "proc/self/mountinfo": v2mount, cg + "/a/b/cpu.max": "max 100000"},
			[]int{0, 2, 4, 6}, "4 workers: 4 cores (8 CPUs with SMT) in affinity, no quota"},
		"v2 quota of the grandparent": {map[string]string{"proc/self/cgroup": "0::/a/b/c", "proc/self/mountinfo": v2mount,
			cg + "/a/cpu.max": "300000 100000", cg + "/a/b/cpu.max": "max 100000", cg + "/a/b/c/cpu.max": "7 1"},
			[]int{0, 2, 4}, "3 workers: quota of 3 CPUs in cgroup /a, 4 cores (8 CPUs with SMT) in affinity"},
		"v2 quota tighter than the parent's": {map[string]string{"proc/self/cgroup": "0::/a/b", "proc/self/mountinfo": v2mount,
			cg + "/a/cpu.max": "300000 100000", cg + "/a/b/cpu.max": "20000 10000"},
			[]int{0, 2}, "2 workers: quota of 2 CPUs in cgroup /a/b, 4 cores (8 CPUs with SMT) in affinity"},
		"quota below one CPU": {map[string]string{"proc/self/cgroup": "0::/", "proc/self/mountinfo": v2mount, cg + "/cpu.max": "50000 100000"},
			[]int{0}, "1 worker: quota of 0.5 CPUs in cgroup /, 4 cores (8 CPUs with SMT) in affinity"},
		"quota above the cores": {map[string]string{"proc/self/cgroup": "0::/x", "proc/self/mountinfo": v2mount, cg + "/x/cpu.max": "600000 100000"},
			[]int{0, 2, 4, 6}, "4 workers: 4 cores (8 CPUs with SMT) in affinity, quota of 6 CPUs in cgroup /x"},
		"v1 quota": {map[string]string{"proc/self/cgroup": "3:memory:/m\n1:cpu,cpuacct:/c/d", "proc/self/mountinfo": v1mount,
			cg + "/cpu,cpuacct/c/d/cpu.cfs_quota_us": "200000", cg + "/cpu,cpuacct/c/d/cpu.cfs_period_us": "100000"},
			[]int{0, 2}, "2 workers: quota of 2 CPUs in cgroup /c/d, 4 cores (8 CPUs with SMT) in affinity"},
		"v1 quota of the parent": {map[string]string{"proc/self/cgroup": "1:cpu,cpuacct:/c/d", "proc/self/mountinfo": v1mount,
			cg + "/cpu,cpuacct/c/cpu.cfs_quota_us": "100000", cg + "/cpu,cpuacct/c/cpu.cfs_period_us": "100000",
			cg + "/cpu,cpuacct/c/d/cpu.cfs_quota_us": "-1", cg + "/cpu,cpuacct/c/d/cpu.cfs_period_us": "100000"},
			[]int{0}, "1 worker: quota of 1 CPUs in cgroup /c, 4 cores (8 CPUs with SMT) in affinity"},
		"v1 in a container: the mount shows the container's group only": {map[string]string{
			"proc/self/cgroup":                   "1:cpu,cpuacct:/docker/abc/sub",
			"proc/self/mountinfo":                strings.ReplaceAll(v1mount, "0:29 /", "0:29 /docker/abc"),
			cg + "/cpu,cpuacct/cpu.cfs_quota_us": "200000", cg + "/cpu,cpuacct/cpu.cfs_period_us": "100000"},
			[]int{0, 2}, "2 workers: quota of 2 CPUs in cgroup /docker/abc, 4 cores (8 CPUs with SMT) in affinity"},
		"the group is outside of the mount": {map[string]string{"proc/self/cgroup": "0::/other/x",
			"proc/self/mountinfo": strings.ReplaceAll(v2mount, "0:26 /", "0:26 /docker/abc"), cg + "/cpu.max": "200000 100000", cg + "/x/cpu.max": "1 1"},
			[]int{0, 2}, "2 workers: quota of 2 CPUs in cgroup /other/x, 4 cores (8 CPUs with SMT) in affinity"},
		"a path above the namespace": {map[string]string{"proc/self/cgroup": "0::/../../etc", "proc/self/mountinfo": v2mount,
			cg + "/cpu.max": "200000 100000", "etc/cpu.max": "1 1", cg + "/etc/cpu.max": "1 1"},
			[]int{0, 2}, "2 workers: quota of 2 CPUs in cgroup /etc, 4 cores (8 CPUs with SMT) in affinity"},
		"v1 and v2 together": {map[string]string{"proc/self/cgroup": "1:cpu,cpuacct:/c\n0::/u", "proc/self/mountinfo": v1mount + "\n" +
			"40 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
			cg + "/cpu,cpuacct/c/cpu.cfs_quota_us": "300000", cg + "/cpu,cpuacct/c/cpu.cfs_period_us": "100000",
			cg + "/unified/u/cpu.max": "200000 100000"},
			[]int{0, 2}, "2 workers: quota of 2 CPUs in cgroup /u, 4 cores (8 CPUs with SMT) in affinity"},
		"a mount point with a blank": {map[string]string{"proc/self/cgroup": "0::/a",
			"proc/self/mountinfo": `30 23 0:26 / /my\040groups rw - cgroup2 x rw`, "my groups/a/cpu.max": "200000 100000"},
			[]int{0, 2}, "2 workers: quota of 2 CPUs in cgroup /a, 4 cores (8 CPUs with SMT) in affinity"},
		"nonsense in the limits": {map[string]string{"proc/self/cgroup": "0::/a\n::\n7\nx:y:z", "proc/self/mountinfo": v2mount + "\n- -\n1 2 3 - a b c",
			cg + "/a/cpu.max": "-5 0", cg + "/cpu.max": "1e9 ten"},
			[]int{0, 2, 4, 6}, "4 workers: 4 cores (8 CPUs with SMT) in affinity, no quota"},
		"cpuset": {map[string]string{"proc/self/cgroup": "0::/a/b", "proc/self/mountinfo": v2mount, cg + "/a/cpuset.cpus.effective": "2-3,6", cg + "/a/b/cpuset.cpus": ""},
			[]int{2, 6}, "2 workers: 2 cores (3 CPUs with SMT) in affinity, no quota"},
		"no affinity in common with what is online": {map[string]string{"proc/self/status": "Cpus_allowed_list:\t90"},
			[]int{0, 2, 4, 6}, "4 workers: 4 cores (8 CPUs with SMT) in affinity, no quota"},
	} {
		m := must(t, fake(with(box(), c.files)))
		cpus, why := m.Workers()
		if !slices.Equal(cpus, c.cpus) || why != c.why {
			t.Errorf("%s:\n got %v %s\nwant %v %s", name, cpus, why, c.cpus, c.why)
		}
	}
}

func TestMachine(t *testing.T) {
	m := must(t, fake(with(box(), map[string]string{"proc/self/status": "Cpus_allowed_list:\t2-7\nMems_allowed_list:\t1",
		"sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:       2048 kB\nNode 1 MemFree: 1024 kB"})))
	if want := (CPU{ID: 5, Package: 1, Core: 0, Lead: 4, Node: 1}); m.CPUs[5] != want {
		t.Errorf("CPU 5 is %+v, want %+v", m.CPUs[5], want)
	}
	wantNodes := []Node{{ID: 0, CPUs: []int{0, 1, 2, 3}}, {ID: 1, CPUs: []int{4, 5, 6, 7}, MemTotal: 2 << 20, MemFree: 1 << 20, Allowed: true}}
	if !reflect.DeepEqual(m.Nodes, wantNodes) {
		t.Errorf("nodes are %+v", m.Nodes)
	}
	if m.L1d != (Cache{48 << 10, 2}) || m.L2 != (Cache{2 << 20, 2}) || m.L3 != (Cache{32 << 20, 4}) {
		t.Errorf("caches are %v %v %v", m.L1d, m.L2, m.L3)
	}
	if m.MemTotal != 16<<30 || m.MemFree != 8<<30 {
		t.Errorf("memory %d, available %d", m.MemTotal, m.MemFree)
	}
	for n, want := range [][]int{nil, {4}, {4, 6}, {4, 6, 2}, {4, 6, 2, 3}, {4, 6, 2, 3, 5}, {4, 6, 2, 3, 5, 7}, {4, 6, 2, 3, 5, 7, 4}} {
		if got := m.CPUsFor(n); !slices.Equal(got, want) {
			t.Errorf("%d workers on CPUs %v, want %v", n, got, want)
		}
	}
	for quota, want := range map[float64]int{0: 0, 0.01: 1, 1: 1, 1.99: 1, 2: 2, 1e30: 1<<31 - 1} {
		if got := (Machine{Quota: Quota{CPUs: quota}}).QuotaWorkers(); got != want {
			t.Errorf("a quota of %v CPUs pays for %d workers, want %d", quota, got, want)
		}
	}
	if (m.cpu(99) != CPU{ID: 99, Package: -1, Core: -1, Lead: 99}) {
		t.Errorf("an unknown CPU is %+v", m.cpu(99))
	}
}

func TestMemory(t *testing.T) {
	v2 := map[string]string{"proc/self/cgroup": "0::/a/b", "proc/self/mountinfo": v2mount}
	for name, c := range map[string]struct {
		files map[string]string
		bytes int64
		why   string
	}{
		"no limit":        {nil, 8 << 30, "8 GiB of 16 GiB available"},
		"no MemAvailable": {map[string]string{"proc/meminfo": "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nBuffers: 1024 kB\nCached: 1048576 kB"}, 2<<30 + 1<<20, "2 GiB of 16 GiB available"},
		"v2": {with(v2, map[string]string{cg + "/a/b/memory.max": "4294967296", cg + "/a/b/memory.current": "1073741824"}),
			3 << 30, "3 GiB left of the limit of 4 GiB of cgroup /a/b"},
		"v2 page cache is not used": {with(v2, map[string]string{cg + "/a/b/memory.max": "4294967296", cg + "/a/b/memory.current": "1073741824",
			cg + "/a/b/memory.stat": "anon 1\nactive_file 500000000\ninactive_file 36870912\nfile 1000000000"}),
			3<<30 + 1<<29, "3.5 GiB left of the limit of 4 GiB of cgroup /a/b"},
		"v2 above": {with(v2, map[string]string{cg + "/a/b/memory.max": "max", cg + "/a/memory.max": "1073741824", cg + "/a/memory.current": "536870912"}),
			1 << 29, "512 MiB left of the limit of 1 GiB of cgroup /a"},
		"v2 high": {with(v2, map[string]string{cg + "/a/b/memory.max": "max", cg + "/a/b/memory.high": "1073741824"}),
			1 << 30, "1 GiB left of the limit of 1 GiB of cgroup /a/b"},
		"v2 overdrawn": {with(v2, map[string]string{cg + "/a/b/memory.max": "1048576", cg + "/a/b/memory.current": "2097152"}),
			0, "0 MiB left of the limit of 1 MiB of cgroup /a/b"},
		"v2 limit above what is there": {with(v2, map[string]string{cg + "/a/b/memory.max": "1099511627776"}), 8 << 30, "8 GiB of 16 GiB available"},
		"v1": {map[string]string{"proc/self/cgroup": "3:memory:/m", "proc/self/mountinfo": v1mount,
			cg + "/memory/m/memory.limit_in_bytes": "1073741824", cg + "/memory/m/memory.usage_in_bytes": "536870912",
			cg + "/memory/m/memory.stat": "total_active_file 134217728\ntotal_inactive_file 134217728"},
			3 << 28, "768 MiB left of the limit of 1 GiB of cgroup /m"},
		"v1 unlimited": {map[string]string{"proc/self/cgroup": "3:memory:/m", "proc/self/mountinfo": v1mount,
			cg + "/memory/m/memory.limit_in_bytes": "9223372036854771712"}, 8 << 30, "8 GiB of 16 GiB available"},
	} {
		m := must(t, fake(with(box(), c.files)))
		if bytes, why := m.Memory(); bytes != c.bytes || why != c.why {
			t.Errorf("%s:\n got %d %s\nwant %d %s", name, bytes, why, c.bytes, c.why)
		}
	}
}

func TestLittleIsThere(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "proc/self"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/self/status"), []byte("Cpus_allowed_list: 3,5\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if cpus, _ := m.Workers(); !slices.Equal(cpus, []int{3, 5}) || len(m.Nodes) != 1 || !m.Nodes[0].Allowed {
		t.Errorf("with a status alone: workers on %v, nodes %+v", cpus, m.Nodes)
	}
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "names no CPUs") {
		t.Errorf("an empty tree: %v", err)
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no tree: %v", err)
	}
	if _, err := Read(os.Args[0]); err == nil || !strings.Contains(err.Error(), "is neither a folder that holds proc and sys") {
		t.Errorf("a file as tree: %v", err)
	}
}

// The live system, against other witnesses: the runtime, nproc, sysinfo.
func TestLive(t *testing.T) {
	m, err := Read("")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Affinity) != runtime.NumCPU() {
		t.Errorf("affinity %v, but the runtime sees %d CPUs", m.Affinity, runtime.NumCPU())
	}
	if out, err := exec.Command("nproc").Output(); err == nil && strings.TrimSpace(string(out)) != fmt.Sprint(len(m.Affinity)) {
		t.Errorf("affinity %v, but nproc says %s", m.Affinity, out)
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	if total := int64(info.Totalram) * int64(info.Unit); m.MemTotal != total {
		t.Errorf("MemTotal %d, sysinfo says %d", m.MemTotal, total)
	}
	cpus, why := m.Workers()
	mem, memWhy := m.Memory()
	if len(cpus) == 0 || mem <= 0 {
		t.Errorf("workers %v, memory %d", cpus, mem)
	}
	t.Logf("%v %s; %s; caches %v %v %v; %+v", cpus, why, memWhy, m.L1d, m.L2, m.L3, m.Nodes)
}

func TestAffinityFollowsTaskset(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		t.Fatal(err)
	}
	all := affinity()
	last := all[len(all)-1]
	one.Set(last)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Skip(err)
	}
	defer unix.SchedSetaffinity(0, &old)
	m, err := Read("")
	if err != nil {
		t.Fatal(err)
	}
	if cpus, why := m.Workers(); !slices.Equal(cpus, []int{last}) || !strings.HasPrefix(why, "1 worker: 1 core in affinity") {
		t.Errorf("on CPU %d alone: %v %s", last, cpus, why)
	}
}

func TestParseList(t *testing.T) {
	for s, want := range map[string][]int{"": nil, "0": {0}, "0-3,8,10-11": {0, 1, 2, 3, 8, 10, 11}, "5,1-2,2": {1, 2, 5}, "16383": {16383}} {
		if got, err := parseList(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("parseList(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"-", "a", "3-1", "0-", "1,,2", "16384", "0-99999999999", "0-999999999", " 1", "0-16383,0-16383,0-16383", "+1"} {
		if got, err := parseList(s); err == nil {
			t.Errorf("parseList(%q) = %v", s, got)
		}
	}
	for s, want := range map[string][]int{"f": {0, 1, 2, 3}, "80000000": {31}, "00000001,00000000,00000003": {0, 1, 64}, "0": nil} {
		if got, err := parseMap(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("parseMap(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", ",", "g", "100000000", "1,", strings.Repeat("0,", 5000) + "0"} {
		if got, err := parseMap(s); err == nil {
			t.Errorf("parseMap(%q) = %v", s, got)
		}
	}
}

func FuzzText(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add("0-3,8", "0::/a/b\n1:cpu:/x", v2mount+"\n"+v1mount)
	f.Add("ffffffff,00000000", "0::/../..", `1 1 0:1 /a /b\040c rw - cgroup2 x rw`)
	f.Add("", "0::/..0", `1 1 0:1 / 0 rw - cgroup2 x rw`) // a name may begin with two dots
	f.Fuzz(func(t *testing.T, list, membership, mounts string) {
		if ids, err := parseList(list); err == nil && (!slices.IsSorted(ids) || len(ids) > maxCPU) {
			t.Errorf("parseList(%q) gives %d numbers", list, len(ids))
		}
		if ids, err := parseMap(list); err == nil && len(ids) > maxCPU {
			t.Errorf("parseMap(%q) gives %d numbers", list, len(ids))
		}
		for _, m := range append(parseMountInfo(mounts), parseMounts(mounts)...) {
			for _, p := range parseMembership(membership) {
				for _, g := range m.upward(p) {
					if rel, err := filepath.Rel(filepath.Join("/", m.dir), filepath.Join("/", g.dir)); err != nil || !filepath.IsLocal(rel) {
						t.Errorf("group %q of %q leaves the mount %q", g.dir, p, m.dir)
					}
				}
			}
		}
		parseSize(list)
		kilobytes(list, "x")
		statSum(membership, "a")
	})
}

// Where two files tell of one thing, both count: the affinity and the cpuset, nodes that name the same CPUs, rows of distances of which one
// does not fit.
func TestTwoWitnesses(t *testing.T) {
	set := map[string]string{"proc/self/cgroup": "0::/a", "proc/self/mountinfo": v2mount, cg + "/a/cpuset.cpus.effective": "2-5", cg + "/a/cpuset.mems.effective": "0-1"}
	m := must(t, fake(with(box(), set, map[string]string{"proc/self/status": "Cpus_allowed_list:\t4-7\nMems_allowed_list:\t1"})))
	if !slices.Equal(m.Affinity, []int{4, 5}) || m.Nodes[0].Allowed || !m.Nodes[1].Allowed {
		t.Errorf("affinity %v, nodes %+v", m.Affinity, m.Nodes)
	}
	m = must(t, fake(with(box(), set, map[string]string{"proc/self/status": "Cpus_allowed_list:\t0-7\nMems_allowed_list:\t0-1", cg + "/a/cpuset.mems.effective": "0"})))
	if !slices.Equal(m.Affinity, []int{2, 3, 4, 5}) || !m.Nodes[0].Allowed || m.Nodes[1].Allowed {
		t.Errorf("affinity %v, nodes %+v", m.Affinity, m.Nodes)
	}
	m = must(t, fake(with(box(), map[string]string{nodeDir + "/node0/cpulist": "1-6", nodeDir + "/node1/cpulist": "0-6"})))
	for i, want := range []int{1, 0, 0, 0, 0, 0, 0, 0} { // CPU 7 is in none
		if m.CPUs[i].Node != want {
			t.Errorf("CPU %d is on node %d, want %d", i, m.CPUs[i].Node, want)
		}
	}
	m = must(t, fake(with(box(), map[string]string{nodeDir + "/node0/cpulist": "-", nodeDir + "/node3/cpulist": "0-6"})))
	if m.CPUs[7].Node != 1 {
		t.Errorf("CPU 7 is on node %d, which is not there", m.CPUs[7].Node)
	}
	for _, row := range []string{"21", "21 10 30", "21 x", "21 -1", "21 65536", ""} {
		r := fake(with(box(), map[string]string{nodeDir + "/node0/distance": "10 21", nodeDir + "/node1/distance": row}))
		r.notes = &notes{}
		if got := r.distances([]Node{{ID: 0}, {ID: 1}}); got != nil || row != "" && len(r.notes.all()) != 1 {
			t.Errorf("row %q: %v, %q", row, got, r.notes.all())
		}
	}
}
