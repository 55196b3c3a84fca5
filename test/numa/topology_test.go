package numa

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A machine is what was asked for: a topology of numavm.
type machine struct {
	name            string
	packages, cores int
	smt             int
	subNUMA         bool // several nodes with CPUs in a package
	nodes           []node
	dist            [][]int
	cpu             string // model of QEMU; "": its own choice
	homes           string // nodes:cores of each; "": each node with its cores
}

// A node has CPUs from first to last (none: last < first) and share parts of the memory.
type node struct {
	first, last, share int
	pack               int // package
	kind               string
	hmat               *hmat
}

// hmat is what the firmware tells of reaching a node from its initiator.
type hmat struct{ initiator, ns, mbps int }

const memMiB = 1024

func seq(packages, perPackage, cpus int) []node {
	var ns []node
	for i := range packages * perPackage {
		ns = append(ns, node{i * cpus, (i+1)*cpus - 1, 1, i / perPackage, "DRAM", nil})
	}
	return ns
}

// dist is the matrix with 10 on its diagonal, near within a group of n nodes, far between groups.
func dist(nodes, n, near, far int) [][]int {
	d := make([][]int, nodes)
	for i := range d {
		for j := range nodes {
			switch {
			case i == j:
				d[i] = append(d[i], 10)
			case i/n == j/n:
				d[i] = append(d[i], near)
			default:
				d[i] = append(d[i], far)
			}
		}
	}
	return d
}

var machines = []machine{
	{name: "1s", packages: 1, cores: 4, smt: 1, nodes: seq(1, 1, 4), dist: dist(1, 1, 0, 0)},
	// An emulated CPU of AMD's does not tell threads of a core from cores: it has no leaf 8000001E.
	{name: "1s-smt", packages: 1, cores: 2, smt: 2, nodes: seq(1, 1, 4), dist: dist(1, 1, 0, 0), cpu: "max,vendor=GenuineIntel"},
	{name: "2s", packages: 2, cores: 4, smt: 1, nodes: seq(2, 1, 2), dist: dist(2, 1, 0, 21)},
	{name: "2s-snc2", packages: 2, cores: 8, smt: 1, subNUMA: true, nodes: seq(2, 2, 2), dist: dist(4, 2, 12, 21)},
	{name: "2s-cxl", packages: 2, cores: 4, smt: 1, nodes: []node{
		{0, 1, 1, 0, "DRAM", &hmat{0, 100, 200000}},
		{2, 3, 1, 1, "DRAM", &hmat{1, 100, 200000}},
		{0, -1, 2, 0, "CXL", &hmat{0, 250, 30000}},
	}, dist: [][]int{{10, 21, 14}, {21, 10, 24}, {14, 24, 10}}, homes: "[0]:[0 1] [1]:[2 3]"},
	{name: "2s-hbm", packages: 2, cores: 4, smt: 1, nodes: []node{
		{0, 1, 2, 0, "DRAM", &hmat{0, 100, 150000}},
		{2, 3, 2, 1, "DRAM", &hmat{1, 100, 150000}},
		{0, -1, 1, 0, "HBM", &hmat{0, 120, 400000}},
		{0, -1, 1, 1, "HBM", &hmat{1, 120, 400000}},
	}, dist: [][]int{{10, 21, 13, 23}, {21, 10, 23, 13}, {13, 23, 10, 23}, {23, 13, 23, 10}}, homes: "[2 0]:[0 1] [3 1]:[2 3]"},
	{name: "2s-memless", packages: 2, cores: 4, smt: 1, nodes: []node{
		{0, 1, 1, 0, "DRAM", nil},
		{2, 3, 0, 1, "", nil},
	}, dist: dist(2, 1, 0, 21), homes: "[0]:[0 1 2 3]"},
	{name: "4s", packages: 4, cores: 4, smt: 1, nodes: seq(4, 1, 1), dist: dist(4, 1, 0, 21)},
	{name: "8n", packages: 8, cores: 8, smt: 1, nodes: seq(8, 1, 1), dist: dist(8, 4, 16, 22)},
}

// found is the part of cktopo --json that is compared.
type found struct {
	CPUs  []struct{ ID, Package, Lead, Node int }
	Nodes []struct {
		ID       int
		CPUs     []int
		MemTotal int64 `json:"mem_total"`
		Allowed  bool
	}
	Packages []struct {
		ID    int
		CPUs  []int
		Nodes []int
	}
	Cores    int
	SMT      int
	SubNUMA  string `json:"sub_numa"`
	Distance [][]int
	Memory   []struct {
		Kind    string
		Package int
		Access  []*struct {
			Initiators []int
			ReadNs     int `json:"read_latency"`
			WriteNs    int `json:"write_latency"`
			ReadMBps   int `json:"read_bandwidth"`
			WriteMBps  int `json:"write_bandwidth"`
		}
	}
	Homes    []struct{ Nodes, Cores []int }
	Affinity []int
	Quota    struct{ CPUs float64 }
	Limits   []struct{ Max, Left int64 }
}

func (n node) cpus() []int {
	cpus := []int{}
	for c := n.first; c <= n.last; c++ {
		cpus = append(cpus, c)
	}
	return cpus
}

// homesText is what homes the machine has.
func (m machine) homesText() string {
	if m.homes != "" {
		return m.homes
	}
	var homes []string
	for i, n := range m.nodes {
		cores := n.cpus()
		if m.smt > 1 {
			cores = slices.DeleteFunc(cores, func(c int) bool { return c%m.smt > 0 })
		}
		homes = append(homes, fmt.Sprintf("%v:%v", []int{i}, cores))
	}
	return strings.Join(homes, " ")
}

// workersText is what -v says of the workers: the built-in model is so small that one home does all of it, unless that has one core.
func (m machine) workersText() string {
	homes := strings.Count(m.homesText(), ":")
	n := m.cores / homes
	if n == 1 {
		return fmt.Sprintf("%d workers for generation, %d for prompts; %d workers: %d cores ", homes, homes, homes, homes)
	}
	return fmt.Sprintf("%d workers: %d cores ", n, n)
}

// compare lists where what was found is not what was asked for; plain is what cktopo --plain says, by name.
func compare(m machine, f *found, plain map[string]string) []string {
	var bad []string
	is := func(got, want any, format string, a ...any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			bad = append(bad, fmt.Sprintf(format, a...)+fmt.Sprintf(": %v, asked for %v", got, want))
		}
	}
	says := func(key string, want any) { is(plain[key], want, "--plain: %s", key) }
	is(len(f.Packages), m.packages, "packages")
	says("machine packages", m.packages)
	is(f.Cores, m.cores, "cores")
	cores, _, _ := strings.Cut(plain["machine cores"], ",") // "2, at most 2 threads each"
	is(cores, m.cores, "--plain: machine cores")
	is(f.SMT, m.smt, "threads of a core")
	is(f.SubNUMA != "", m.subNUMA, "nodes within packages")
	is(f.Distance, m.dist, "distances")
	var homes []string
	for _, h := range f.Homes {
		homes = append(homes, fmt.Sprintf("%v:%v", h.Nodes, h.Cores))
	}
	is(strings.Join(homes, " "), m.homesText(), "homes")
	for i, row := range m.dist {
		for j, d := range row {
			if len(m.dist) > 1 {
				says(fmt.Sprintf("node %d to %d", i, j), d)
			}
		}
	}
	for _, c := range f.CPUs {
		is(c.Lead, c.ID/m.smt*m.smt, "CPU %d: first of its core", c.ID)
	}
	is(len(f.Nodes), len(m.nodes), "nodes")
	if len(f.Nodes) != len(m.nodes) || len(f.Memory) != len(m.nodes) {
		return bad
	}
	shares := 0
	for _, n := range m.nodes {
		shares += n.share
	}
	for i, n := range m.nodes {
		got, mem := f.Nodes[i], f.Memory[i]
		is(got.ID, i, "node %d: number", i)
		is(append([]int{}, got.CPUs...), n.cpus(), "node %d: CPUs", i)
		is(mem.Kind, n.kind, "node %d: kind of memory", i)
		is(mem.Package, n.pack, "node %d: package", i)
		if n.kind != "" {
			says(fmt.Sprintf("node %d kind", i), n.kind)
		}
		for _, c := range f.CPUs {
			if slices.Contains(n.cpus(), c.ID) {
				is([]int{c.Node, c.Package}, []int{i, n.pack}, "CPU %d: node and package", c.ID)
			}
		}
		// The kernel keeps some of the memory to itself, most of it on the first nodes.
		asked := float64(memMiB<<20) * float64(n.share) / float64(shares)
		if got := float64(got.MemTotal); got > asked || got < 0.6*asked {
			bad = append(bad, fmt.Sprintf("node %d: %.0f MiB of memory, asked for %.0f", i, got/(1<<20), asked/(1<<20)))
		}
		for class, a := range mem.Access {
			switch {
			case a == nil:
				is(nil, n.hmat, "node %d: class %d of HMAT", i, class)
			case n.hmat == nil:
				is(*a, nil, "node %d: class %d of HMAT", i, class)
			default:
				h := n.hmat
				is(*a, struct {
					I          []int
					a, b, c, d int
				}{[]int{h.initiator}, h.ns, h.ns, h.mbps, h.mbps}, "node %d: class %d of HMAT", i, class)
			}
		}
		if n.hmat != nil {
			is(len(mem.Access) == 2 && mem.Access[0] != nil && mem.Access[1] != nil, true, "node %d: HMAT told", i)
		}
	}
	return bad
}

// has reports whether a node has memory.
func (m machine) has(node int) bool { return node < len(m.nodes) && m.nodes[node].share > 0 }

var placedLine = regexp.MustCompile(`(?m)^ +(?:panels|KV cache|buffers) (.*) \(move_pages, all pages\)$`)

// checkPlaced looks at what --stat of a run with --numa says: memory lies on the nodes that were named, or on those of all homes.
func (m machine) checkPlaced(t *testing.T, s step) {
	t.Helper()
	if len(m.nodes) == 1 {
		return
	}
	lines := placedLine.FindAllStringSubmatch(s.err, -1)
	if len(lines) < 2 {
		t.Errorf("%s: --stat does not say where memory lies\n%s", s.command, s.err)
	}
	used := map[string]bool{}
	for _, l := range lines {
		for _, part := range strings.Split(l[1], ", ") {
			node, _, _ := strings.Cut(part, ":")
			used[node] = true
		}
	}
	_, mode, _ := strings.Cut(s.command, "--numa ")
	mode, _, _ = strings.Cut(mode, " ")
	want := map[string]bool{}
	if list, ok := strings.CutPrefix(mode, "bind="); ok {
		for _, n := range strings.Split(list, ",") {
			want[n] = true
		}
	} else {
		for _, home := range regexp.MustCompile(`\[([0-9 ]+)\]:`).FindAllStringSubmatch(m.homesText(), -1) {
			for _, n := range strings.Fields(home[1]) {
				want[n] = true
			}
		}
		if len(want) < 2 { // nothing to spread over
			return
		}
	}
	for n := range used {
		if !want[n] {
			t.Errorf("%s: memory on node %s, wanted %v\n%s", s.command, n, want, s.err)
		}
	}
	if mode == "interleave" && len(used) != len(want) {
		t.Errorf("%s: memory on nodes %v, wanted %v", s.command, used, want)
	}
}

// mutations are other machines than m, each in one thing.
func mutations(m machine) map[string]machine {
	last := len(m.nodes) - 1
	change := func(f func(*machine)) machine {
		c := m
		c.nodes = slices.Clone(m.nodes)
		c.dist = make([][]int, len(m.dist))
		for i := range m.dist {
			c.dist[i] = slices.Clone(m.dist[i])
		}
		f(&c)
		return c
	}
	all := map[string]machine{
		"packages":    change(func(c *machine) { c.packages++ }),
		"cores":       change(func(c *machine) { c.cores++ }),
		"threads":     change(func(c *machine) { c.smt = 3 - c.smt }),
		"sub-NUMA":    change(func(c *machine) { c.subNUMA = !c.subNUMA }),
		"distance":    change(func(c *machine) { c.dist[last][0]++ }),
		"CPUs":        change(func(c *machine) { c.nodes[last].last++ }),
		"package":     change(func(c *machine) { c.nodes[last].pack++ }),
		"kind":        change(func(c *machine) { c.nodes[last].kind = "PMEM" }),
		"homes":       change(func(c *machine) { c.homes = "[" + c.homesText() }),
		"fewer nodes": change(func(c *machine) { c.nodes = c.nodes[:last] }),
		"HMAT": change(func(c *machine) {
			h := hmat{0, 1, 1}
			if c.nodes[last].hmat != nil {
				h = *c.nodes[last].hmat
				h.mbps++
			}
			c.nodes[last].hmat = &h
		}),
	}
	if last > 0 {
		all["memory"] = change(func(c *machine) { c.nodes[last].share = 4*c.nodes[last].share + 1 })
	}
	return all
}

func plainFacts(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		m[k] = v
	}
	return m
}

// cktopo tells each topology as it was asked for, and the engine writes the same text on it. What would not be noticed is tried: every
// other expectation must fail.
func TestTopologies(t *testing.T) {
	numavm(t)
	want := wantStory(t)
	for _, m := range machines {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			v := vm{topology: m.name, cpu: m.cpu, carry: []string{program(t, "ckrun"), program(t, "cktopo")}}
			commands := []string{"./cktopo --json", "./cktopo --plain", strings.Replace(story, "-v", "-v --stat", 1)}
			for _, mode := range []string{"interleave", "bind=0", "bind=0,1"} {
				if m.has(0) && (m.has(1) || !strings.HasSuffix(mode, "1")) {
					commands = append(commands, strings.Replace(story, "-v", "-v --stat --numa "+mode, 1))
				}
			}
			s := v.run(t, commands...)
			var f found
			if err := json.Unmarshal([]byte(s[0].ok(t).out), &f); err != nil {
				t.Fatal(err)
			}
			plain := plainFacts(s[1].ok(t).out)
			for _, b := range compare(m, &f, plain) {
				t.Error(b)
			}
			for what, other := range mutations(m) {
				if len(compare(other, &f, plain)) == 0 {
					t.Errorf("another expectation (%s) would pass as well", what)
				}
			}
			if s[2].ok(t).out != want {
				t.Errorf("ckrun writes %q, here %q", s[2].out, want)
			}
			s[2].says(t, m.workersText())
			if len(m.nodes) > 1 && !regexp.MustCompile(`(?m)^ +(panels|buffers) \d+: [0-9.]+ MiB.* \(move_pages, all pages\)(, 100 % at home)?$`).MatchString(s[2].err) {
				t.Errorf("--stat does not say where memory lies:\n%s", s[2].err)
			}
			t.Log(s[2].err)
			for _, x := range s[3:] {
				if x.ok(t).out != want {
					t.Errorf("%s writes %q, here %q", x.command, x.out, want)
				}
				m.checkPlaced(t, x)
			}
		})
	}
}

// The tests of packages that place memory and pin workers pass where there are nodes to do it on. Those that judge times stay here: an
// emulated machine has eight CPUs in name only.
func TestPackages(t *testing.T) {
	numavm(t)
	v := vm{topology: "2s-snc2", mem: "2G", carry: []string{program(t, "numa.test"), program(t, "team.test")}}
	for _, s := range v.run(t, "./numa.test -test.short -test.v", "./team.test -test.short -test.v -test.skip 'BarrierWithGC|AsyncPreemption|WaitingParks'") {
		passed := strings.Count(s.ok(t).out, "--- PASS: ")
		if passed < 5 {
			t.Errorf("%s: only %d tests\n%s", s.command, passed, s.out)
		}
		slow := regexp.MustCompile(`(?m)^--- PASS: (\S+ \(\d*[1-9]\d*\.\d+s\))`).FindAllStringSubmatch(s.out, -1)
		t.Logf("%s: %d passed, %d skipped; a second or more: %q", s.command, passed, strings.Count(s.out, "--- SKIP: "), slow)
	}
}
