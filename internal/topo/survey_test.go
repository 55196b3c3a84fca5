package topo

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// disagreements are the facts that a Survey gives otherwise than the tree's description, on purpose, each with its reason.
var disagreements = map[string]string{
	"disallowed-4n arch":            "the tree has no /proc/cpuinfo, and nothing else tells the architecture",
	"clx-2s-snc2-2pmem memory kind": "nothing in the tree says that nodes 4 and 5 are persistent memory: no dax device, no HMAT, no name of the CPU",
	"disallowed-4n packages":        "physical_package_id and core_siblings are there and tell one package; the description has none because cores are not told",
	"xeon-cod-badsiblings packages": "physical_package_id tells the two real packages; the description counts the sets of core_siblings, which that kernel got wrong",
}

// subNUMAs are what the vendors call the nodes of these trees; all others have one node per package.
var subNUMAs = map[string]string{"clx-2s-snc2-2pmem": "2 nodes per package", "disallowed-4n": "4 nodes per package",
	"hmat-gi": "SNC-2", "hmat-initiators": "2 nodes per package", "opteron-8n-cgroup2": "2 nodes per package", "opteron-8n-sparse": "2 nodes per package",
	"rv64-64core": "4 nodes per package", "vmware-vm-4n": "2 nodes per package",
	"hm-spr-2s-snc4": "SNC-4", "hm-gnr-2s-snc3": "SNC-3", "clx-2s-pmem-memorymode": "SNC-2", "hm-xeonmax-2s-snc4-flat": "SNC-4",
	"hm-xeonmax-2s-quad-flat": "", "hm-epyc9654-2s-nps4": "NPS4", "hm-tr3960x-nps4-memless": "NPS4", "hm-epyc9375f-2s-nps1-nosmt": "",
	"xeon-cod-badsiblings": "CoD", "knl-snc4-hybrid": "SNC-4", "knl-cache": "", "epyc7451-2s-8n": "4 nodes per package",
	"opteron-4s-8n": "2 nodes per package", "arm-kunpeng920-2s": "2 nodes per package", "xeon-buggy-numa": "", "power9-gpu-nodes": "",
	"qemu-4s-dies": "4 nodes per package", "hm-gh200-9nodes": "", "tigerlake-1s": "",
}

// treeFacts is the description of a saved tree, made by an independent reader.
type treeFacts struct {
	Arch                string
	Model               *string
	Packages, Dies      *int
	Clusters, Books     *int
	Drawers, Cores, Smt *int
	Pus                 int
	Cpus                map[string]*string
	Disallowed          *string    `json:"disallowed_nodes"`
	Nodes               []nodeFact `json:"numa_nodes"`
	MemTotalKB          *int64     `json:"mem_total_kb"`
	Distances           *struct {
		Nodes  []int
		Matrix [][]int
	}
	Caches []struct {
		Level  int
		Type   string
		SizeKB int64 `json:"size_kb"`
		Shared int   `json:"shared_cpus"`
		Count  int
	}
	Kinds    map[string]string `json:"cpu_kinds"`
	Capacity map[int]string    `json:"cpu_capacity"`
	Cgroup   *struct {
		Path       string
		Cpus, Mems string  `json:"-"`
		CPUSet     string  `json:"cpuset_cpus"`
		MemSet     string  `json:"cpuset_mems"`
		CPULimit   float64 `json:"cpu_limit"`
		MemLimit   int64   `json:"memory_limit_bytes"`
	}
	Devices *deviceFacts
}

type nodeFact struct {
	ID     int
	Cpus   string
	MemKB  *int64 `json:"mem_kb"`
	Kind   MemoryKind
	Access map[string]struct {
		ReadLatency    int `json:"read_latency"`
		WriteLatency   int `json:"write_latency"`
		ReadBandwidth  int `json:"read_bandwidth"`
		WriteBandwidth int `json:"write_bandwidth"`
		Initiators     []int
	}
	Side []struct {
		SizeKB int64 `json:"size_kb"`
		Line   int
	} `json:"memory_side_cache"`
}

type deviceFacts struct {
	DSA []struct {
		Name, State string
		Node        int `json:"numa_node"`
		WQs         []struct {
			Name, Mode, Type, State, Label, Cdev string
			Size, Threshold, Priority            int
			BlockOnFault                         bool `json:"block_on_fault"`
		}
	}
	Usable []string `json:"usable_user_wqs"`
	CXL    struct {
		Memdevs []struct {
			Name string
			RAM  int64 `json:"ram_bytes"`
			PMEM int64 `json:"pmem_bytes"`
			Node int   `json:"numa_node"`
		}
		Regions []struct {
			Name, Mode, Dax string
			Bytes           int64 `json:"size_bytes"`
			Resource        int64
			Ways            int `json:"interleave_ways"`
			Target          int `json:"target_node"`
		}
	}
	RAPL []struct {
		Zone, Name string
		Energy     int64 `json:"energy_uj"`
		Range      int64 `json:"max_energy_range_uj"`
	}
	Thermal []struct {
		Zone, Type string
		Temp       int `json:"temp_mc"`
	}
	Infiniband []struct {
		Name, State string
		Port        int
		Rate        float64 `json:"rate_gbps"`
		Link        string  `json:"link_layer"`
		Node        int     `json:"numa_node"`
	}
	Resctrl *struct {
		MBM     bool
		Domains []int
	}
}

// surveyOf reads a saved tree.
func surveyOf(t testing.TB, archive string) Survey {
	t.Helper()
	fsys, err := Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Inspect(fsys, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Saved machines against what independent readers found in them.
func TestSavedTrees(t *testing.T) {
	dir := testkit.Data(t, "topology/trees")
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(names) < testkit.Least(t, 49, 10) {
		t.Fatalf("%d trees, %v", len(names), err)
	}
	agreed, differ, stale, says := map[string]int{}, map[string]int{}, map[string]bool{}, map[string]string{}
	for _, name := range names {
		base := strings.TrimSuffix(name, ".json")
		for key := range disagreements {
			if strings.HasPrefix(key, filepath.Base(base)+" ") {
				stale[key] = true
			}
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var want treeFacts
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := surveyOf(t, base+".tar.gz")
		checkMachine(t, filepath.Base(base), s.Machine, want)
		if sub := subNUMAs[filepath.Base(base)]; s.SubNUMA != sub {
			t.Errorf("%s: nodes within packages are %q, want %q", filepath.Base(base), s.SubNUMA, sub)
		}
		for _, m := range s.Missing {
			says[filepath.Base(base)] += m + "; "
		}
		c := comparison{}
		c.survey(s, want)
		if want.Devices != nil {
			c.devices(s, want.Devices)
		}
		for _, f := range c {
			key := filepath.Base(base) + " " + f.name
			same := reflect.DeepEqual(f.got, f.want)
			switch reason := disagreements[key]; {
			case same:
				agreed[f.name]++
			case reason != "":
				differ[f.name]++
				stale[key] = false
			default:
				t.Errorf("%s:\n got %v\nwant %v", key, f.got, f.want)
			}
		}
	}
	// What is wrong in these trees, and in no other.
	const contradicts = " name different CPUs: the list is believed"
	_, err = os.Stat(filepath.Join(dir, "xeon-e7-4s-conflicts.json"))
	for _, want := range []string{"cpu2/cache/index3/shared_cpu_list and shared_cpu_map" + contradicts, "cpu3/topology/core_siblings_list and core_siblings" + contradicts} {
		if err == nil && !strings.Contains(says["xeon-e7-4s-conflicts"], want) {
			t.Errorf("xeon-e7-4s-conflicts: %q, want %q in it", says["xeon-e7-4s-conflicts"], want)
		}
	}
	delete(says, "xeon-e7-4s-conflicts")
	for name, text := range says {
		if strings.Contains(text, contradicts) || strings.Contains(text, "cannot be read") || strings.Contains(text, "left out") && name != "xeon-offline-cpu0-node0" {
			t.Errorf("%s: %s", name, text)
		}
	}
	for key, reason := range disagreements {
		if stale[key] {
			t.Errorf("%s is listed as a disagreement (%s), but there is none", key, reason)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(agreed)) {
		t.Logf("%-14s %3d of %d", f, agreed[f], agreed[f]+differ[f])
	}
}

// A fact is one thing that a Survey and a description both say.
type fact struct {
	name      string
	got, want any
}

type comparison []fact

func (c *comparison) add(name string, got, want any) { *c = append(*c, fact{name, got, want}) }

// count adds a number if the description has one; null is 0, which is how a Survey says that it is not told.
func (c *comparison) count(name string, got int, want *int) {
	n := 0
	if want != nil {
		n = *want
	}
	c.add(name, got, n)
}

func mustList(s string) []int {
	ids, err := parseList(s)
	if err != nil {
		panic(err)
	}
	return ids
}

func (c *comparison) survey(s Survey, want treeFacts) {
	c.add("arch", s.Arch, strings.Replace(want.Arch, "arm64", "aarch64", 1))
	if want.Model != nil {
		c.add("model", strings.Join(strings.Fields(s.Model), " "), strings.Join(strings.Fields(*want.Model), " "))
	}
	c.count("packages", len(s.Packages), want.Packages)
	c.count("dies", s.Dies, want.Dies)
	c.count("clusters", s.Clusters, want.Clusters)
	c.count("books", s.Books, want.Books)
	c.count("drawers", s.Drawers, want.Drawers)
	c.count("cores", s.Cores, want.Cores)
	c.count("smt", s.SMT, want.Smt)
	c.add("pus", len(s.CPUs), want.Pus)
	for name, got := range map[string][]int{"possible": s.Possible, "present": s.Present, "offline": s.Offline, "disallowed": s.Disallowed} {
		if w := want.Cpus[name]; w != nil {
			c.add("cpus "+name, fmt.Sprint(got), fmt.Sprint(mustList(*w)))
		}
	}
	if want.Disallowed != nil {
		c.add("disallowed nodes", fmt.Sprint(s.DisallowedNodes), fmt.Sprint(mustList(*want.Disallowed)))
	}
	for i, n := range want.Nodes {
		if i >= len(s.Nodes) || s.Nodes[i].ID != n.ID {
			c.add("nodes", s.Nodes, want.Nodes)
			break
		}
		m := s.Memory[i]
		if n.Kind != "" {
			c.add("memory kind", m.Kind, n.Kind)
		} else {
			c.add("memory kind", m.Kind == DRAM || m.Kind == None, true)
		}
		c.add("memory kind why", m.Why != "", s.Nodes[i].MemTotal > 0)
		for class, name := range []string{"access0", "access1"} {
			a, ok := n.Access[name]
			if !ok {
				c.add("access", m.Access[class], (*Access)(nil))
				continue
			}
			c.add("access", m.Access[class], &Access{a.Initiators, a.ReadLatency, a.WriteLatency, a.ReadBandwidth, a.WriteBandwidth})
		}
		var side [][2]int64
		for _, x := range m.Caches {
			side = append(side, [2]int64{x.Bytes, int64(x.LineBytes)})
		}
		var wantSide [][2]int64
		for _, x := range n.Side {
			wantSide = append(wantSide, [2]int64{x.SizeKB << 10, int64(x.Line)})
		}
		c.add("side caches", side, wantSide)
	}
	if want.Distances == nil {
		c.add("distances", s.Distance, [][]int(nil))
	} else {
		var order []int
		for _, n := range s.Nodes {
			order = append(order, n.ID)
		}
		c.add("distances", fmt.Sprint(order, s.Distance), fmt.Sprint(want.Distances.Nodes, want.Distances.Matrix))
	}
	counts := map[Shape]int{}
	for _, w := range want.Caches {
		counts[Shape{Level: w.Level, Type: strings.ToLower(w.Type), Bytes: w.SizeKB << 10, CPUs: w.Shared}] += w.Count
	}
	got := map[Shape]int{}
	for _, x := range s.Caches {
		n := x.Count
		x.Count = 0
		got[x] = n
	}
	c.add("caches", got, counts)
	if want.Kinds != nil {
		kinds := map[string]string{}
		for _, k := range s.Kinds {
			kinds[map[string]string{"P-core": "cpu_core", "E-core": "cpu_atom"}[k.Name]] = fmt.Sprint(k.CPUs)
		}
		wanted := map[string]string{}
		for k, v := range want.Kinds {
			wanted[k] = fmt.Sprint(mustList(v))
		}
		c.add("kinds", kinds, wanted)
	}
	if len(want.Capacity) == 1 { // all alike
		c.add("capacity", s.Kinds, []Kind(nil))
	} else if len(want.Capacity) > 1 {
		capacity := map[int]string{}
		for _, k := range s.Kinds {
			capacity[k.Capacity] = fmt.Sprint(k.CPUs)
		}
		wanted := map[int]string{}
		for k, v := range want.Capacity {
			wanted[k] = fmt.Sprint(mustList(v))
		}
		c.add("capacity", capacity, wanted)
	}
	if g := want.Cgroup; g != nil {
		var online []int
		for _, x := range s.CPUs {
			online = append(online, x.ID)
		}
		c.add("cpuset", fmt.Sprint(s.Affinity), fmt.Sprint(intersect(mustList(g.CPUSet), online)))
		var mems []int
		for _, n := range s.Nodes {
			if n.Allowed {
				mems = append(mems, n.ID)
			}
		}
		c.add("cpuset mems", fmt.Sprint(mems), fmt.Sprint(mustList(g.MemSet)))
		c.add("quota", s.Quota.CPUs, g.CPULimit)
		if g.CPULimit > 0 {
			c.add("quota group", s.Quota.Group, g.Path)
		}
		limit := int64(0)
		for _, l := range s.Limits {
			limit = l.Max
		}
		c.add("memory limit", limit, g.MemLimit)
	}
}

func (c *comparison) devices(s Survey, want *deviceFacts) {
	c.add("dsa", len(s.DSA), len(want.DSA))
	var usable []string
	for i, a := range s.DSA {
		w := want.DSA[i]
		c.add("dsa", fmt.Sprint(a.Name, a.State, a.Node), fmt.Sprint(w.Name, w.State, w.Node))
		var queues []string // the description leaves out queues that were never configured
		for _, q := range a.Queues {
			if q.Usable {
				usable = append(usable, q.Name)
			}
			if q.Type != "none" {
				queues = append(queues, fmt.Sprint(q.Name, q.Mode, q.Type, q.State, q.Size, q.Threshold, q.Priority, q.BlockOnFault, q.Label, q.Device))
			}
			if q.Usable == false && q.Why == "" {
				c.add("queue "+q.Name, "no reason why it is not usable", "one")
			}
		}
		var wanted []string
		for _, q := range w.WQs {
			wanted = append(wanted, fmt.Sprint(q.Name, q.Mode, q.Type, q.State, q.Size, q.Threshold, q.Priority, q.BlockOnFault, q.Label, q.Cdev))
		}
		c.add("dsa queues", queues, wanted)
	}
	c.add("dsa usable", usable, want.Usable)
	c.add("cxl", len(s.CXL.Memories)*100+len(s.CXL.Regions), len(want.CXL.Memdevs)*100+len(want.CXL.Regions))
	for i, w := range want.CXL.Memdevs {
		m := s.CXL.Memories[i]
		c.add("cxl memory", fmt.Sprint(m.Name, m.RAMBytes, m.PMEMBytes, m.Node), fmt.Sprint(w.Name, w.RAM, w.PMEM, w.Node))
	}
	for i, w := range want.CXL.Regions {
		g := s.CXL.Regions[i]
		c.add("cxl region", fmt.Sprint(g.Name, g.Mode, g.DAX, g.Bytes, g.Resource, g.Ways, g.TargetNode), fmt.Sprint(w.Name, w.Mode, w.Dax, w.Bytes, w.Resource, w.Ways, w.Target))
	}
	c.add("rapl", len(s.Power), len(want.RAPL))
	for i, w := range want.RAPL {
		z := s.Power[i]
		c.add("rapl", fmt.Sprint(z.Zone, z.Name, z.Energy, z.Range), fmt.Sprint(w.Zone, w.Name, w.Energy, w.Range))
	}
	c.add("thermal", len(s.Thermal), len(want.Thermal))
	for i, w := range want.Thermal {
		z := s.Thermal[i]
		c.add("thermal", fmt.Sprint(z.Zone, z.Type, z.Celsius, z.Readable), fmt.Sprint(w.Zone, w.Type, float64(w.Temp)/1000, true))
	}
	c.add("infiniband", len(s.RDMA), len(want.Infiniband))
	for i, w := range want.Infiniband {
		p := s.RDMA[i]
		c.add("infiniband", fmt.Sprint(p.Device, p.Port, p.State, p.RateGbps, p.Link, p.Node), fmt.Sprint(w.Name, w.Port, w.State, w.Rate, w.Link, w.Node))
	}
	c.add("resctrl", s.Resctrl != nil, want.Resctrl != nil)
	if want.Resctrl != nil {
		var domains []int
		for _, d := range s.Resctrl.Domains {
			domains = append(domains, d.L3)
		}
		c.add("resctrl", fmt.Sprint(slices.Contains(s.Resctrl.Features, "mbm_total_bytes"), domains), fmt.Sprint(want.Resctrl.MBM, want.Resctrl.Domains))
	}
}

// checkMachine holds what the engine reads against a description.
func checkMachine(t *testing.T, name string, m Machine, want treeFacts) {
	t.Helper()
	online, disallowed := mustList(*want.Cpus["online"]), mustList(*want.Cpus["disallowed"])
	var ids, not []int
	leads, packages, allowedLeads := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, c := range m.CPUs {
		ids = append(ids, c.ID)
		leads[c.Lead], packages[c.Package] = true, true
		if !slices.Contains(m.Affinity, c.ID) {
			not = append(not, c.ID)
		} else {
			allowedLeads[c.Lead] = true
		}
	}
	if !slices.Equal(ids, online) {
		t.Errorf("%s: CPUs online %v, want %v", name, ids, online)
	}
	if !slices.Equal(not, disallowed) {
		t.Errorf("%s: not in affinity are %v, want %v", name, not, disallowed)
	}
	if want.Cores != nil && len(leads) != *want.Cores {
		t.Errorf("%s: %d cores, want %d", name, len(leads), *want.Cores)
	}
	// physical_package_id is -1 in the one and right in the other, where the expectation counts sets of core_siblings.
	special := name == "s390-books" || name == "xeon-cod-badsiblings"
	if want.Packages != nil && !special && len(packages) != *want.Packages {
		t.Errorf("%s: %d packages, want %d", name, len(packages), *want.Packages)
	}
	if cpus, why := m.Workers(); m.Quota.CPUs == 0 && len(cpus) != len(allowedLeads) {
		t.Errorf("%s: %d workers (%s) for %d cores", name, len(cpus), why, len(allowedLeads))
	}
	if want.MemTotalKB != nil && m.MemTotal != *want.MemTotalKB<<10 {
		t.Errorf("%s: memory %d, want %d kB", name, m.MemTotal, *want.MemTotalKB)
	}
	if len(want.Nodes) > 0 && len(m.Nodes) != len(want.Nodes) || len(want.Nodes) == 0 && len(m.Nodes) != 1 {
		t.Fatalf("%s: nodes %+v, want %+v", name, m.Nodes, want.Nodes)
	}
	for i, n := range want.Nodes {
		got := m.Nodes[i]
		if got.ID != n.ID || !slices.Equal(got.CPUs, mustList(n.Cpus)) || n.MemKB != nil && got.MemTotal != *n.MemKB<<10 {
			t.Errorf("%s: node %+v, want %+v", name, got, n)
		}
	}
	for level, got := range map[int]Cache{1: m.L1d, 2: m.L2, 3: m.L3} {
		found, any := false, false
		for _, c := range want.Caches {
			if c.Level == level && c.Type != "Instruction" {
				any = true
				found = found || c.SizeKB<<10 == got.Bytes && c.Shared == got.CPUs
			}
		}
		if any != found || !any && got != (Cache{}) {
			t.Errorf("%s: L%d %+v is none of %+v", name, level, got, want.Caches)
		}
	}
	if want.Cgroup == nil && (m.Quota.CPUs != 0 || len(m.Limits) != 0) {
		t.Errorf("%s: quota %+v and limits %+v, want none", name, m.Quota, m.Limits)
	}
	if len(m.Limits) > 1 {
		t.Errorf("%s: memory limits %+v, want one at most", name, m.Limits)
	}
}

// A folder gives the same Survey as the archive of it, with its top folder and without.
func TestFolder(t *testing.T) {
	for _, name := range []string{"dev-cxl", "hmat-gi", "vm-1s-smt-offline-cgroup1"} {
		t.Run(name, func(t *testing.T) { asFolder(t, testkit.Data(t, "topology/trees/"+name+".tar.gz")) })
	}
}

func asFolder(t *testing.T, archive string) {
	fsys, err := Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Inspect(fsys, false)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		to := filepath.Join(out, "top", name)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(to, 0o777)
		case d.Type()&fs.ModeSymlink != 0:
			link, err := fs.ReadLink(fsys, name)
			if err != nil {
				return err
			}
			return os.Symlink(link, to)
		}
		b, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o666)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{out, filepath.Join(out, "top")} {
		fsys, err := Open(root)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Inspect(fsys, false)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", root, got, want)
		}
	}
}
