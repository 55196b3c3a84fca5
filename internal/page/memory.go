package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ck/internal/humanize"
	"ck/internal/plaintext"
	"ck/internal/topo"
)

// memory is the nodes, then what HMAT says of them, then their memory-side caches.
func (p maker) memory() section {
	s, sec := p.s, section{name: "memory"}
	t := table("node", ">memory", ">free", "kind", ">package", ">CPUs", "numbers", "may be used")
	access := table("access", "from nodes", ">read ns", ">write ns", ">read GB/s", ">write GB/s")
	side := table("memory-side cache", ">size", ">line", "mapping", "writes")
	tiers := slices.ContainsFunc(s.Memory, func(m topo.NodeMemory) bool { return m.Tier >= 0 })
	if tiers {
		t.Head, t.Right = append(t.Head, "tier"), append(t.Right, false)
	}
	for i, n := range s.Nodes {
		m := topo.NodeMemory{Tier: -1, Package: -1}
		if i < len(s.Memory) {
			m = s.Memory[i]
		}
		name := fmt.Sprintf("node %d", n.ID)
		total, free, kind := "-", "-", "-"
		if n.MemTotal > 0 {
			total, free = humanize.IBytes(n.MemTotal), humanize.IBytes(n.MemFree)
		}
		if m.Kind != topo.None {
			kind = string(m.Kind)
		}
		row := []string{name, total, free, kind, humanize.DashNegative(m.Package), strconv.Itoa(len(n.CPUs)), p.numbers(n.CPUs), humanize.YesNo(n.Allowed)}
		if tiers {
			row = append(row, humanize.DashNegative(m.Tier))
		}
		t.Rows = append(t.Rows, row)
		for class, a := range m.Access {
			if a != nil && (p.full || a.ReadLatency+a.WriteLatency+a.ReadBandwidth+a.WriteBandwidth > 0) {
				access.Rows = append(access.Rows, []string{fmt.Sprintf("%s, class %d", name, class), p.numbers(a.Initiators),
					humanize.Dash(a.ReadLatency), humanize.Dash(a.WriteLatency), gbps(a.ReadBandwidth), gbps(a.WriteBandwidth)})
			}
		}
		for _, c := range m.Caches {
			mapping, writes := "indexed", "through"
			if c.Direct {
				mapping = "direct"
			}
			if c.WriteBack {
				writes = "back"
			}
			side.Rows = append(side.Rows, []string{fmt.Sprintf("%s, cache %d", name, c.Index), humanize.IBytesTold(c.Bytes), humanize.IBytesTold(int64(c.LineBytes)), mapping, writes})
		}
	}
	p.kinds(&sec)
	homes := p.homes(&sec)
	sec.addTable(t)
	sec.addTable(homes)
	sec.addTable(access)
	sec.addTable(side)
	return sec
}

// homes says which cores and memory belong together for the engine, where there is more than one node: a table if that is not what the nodes say.
func (p maker) homes(sec *section) plaintext.Table {
	t := table("home", "memory of nodes", ">cores", "numbers")
	homes, notes := p.s.Homes()
	own := len(notes) == 0
	for i, h := range homes {
		own = own && len(h.Nodes) == 1
		t.Rows = append(t.Rows, []string{fmt.Sprintf("home %d", i), numberList(h.Nodes), strconv.Itoa(len(h.Cores)), p.numbers(h.Cores)})
	}
	for _, n := range notes {
		sec.add("homes", n)
	}
	if !own {
		return t
	}
	if len(homes) > 1 {
		sec.add("homes", fmt.Sprintf("%d, a node with its cores each", len(homes)))
	}
	return plaintext.Table{}
}

// numberList is numbers in their order.
func numberList(of []int) string {
	var words []string
	for _, n := range of {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, " ")
}

// kinds says why memory is taken for something else than DRAM: of nodes in a row that are alike in one line.
func (p maker) kinds(sec *section) {
	s := p.s
	for i := 0; i < min(len(s.Nodes), len(s.Memory)); {
		j := i + 1
		for !p.full && j < min(len(s.Nodes), len(s.Memory)) && s.Memory[j].Kind == s.Memory[i].Kind && s.Memory[j].Why == s.Memory[i].Why {
			j++
		}
		if m := s.Memory[i]; m.Why != "" && m.Kind != topo.DRAM {
			kind := string(m.Kind)
			if m.Kind == topo.None {
				kind = "unknown"
			}
			name := fmt.Sprintf("node %d is %s", s.Nodes[i].ID, kind)
			if j > i+1 {
				name = fmt.Sprintf("nodes %d to %d are %s", s.Nodes[i].ID, s.Nodes[j-1].ID, kind)
			}
			sec.add(name, m.Why)
		}
		i = j
	}
}

// gbps turns MiB/s into GB/s.
func gbps(mib int) string {
	if mib <= 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(mib)*(1<<20)/1e9, 'f', 1, 64)
}

// maxMatrix is how many nodes' distances are shown as a matrix.
const maxMatrix = 16

func (p maker) distances() section {
	s := p.s
	if len(s.Distance) < 2 {
		return section{}
	}
	sec := section{name: "distances"}
	if len(s.Nodes) > maxMatrix && !p.full {
		// Which distances there are, and how many of the ordered pairs have them.
		pairs := map[int]int{}
		for i, row := range s.Distance {
			for j, d := range row {
				if i != j {
					pairs[d]++
				}
			}
		}
		var ds []int
		for d := range pairs {
			ds = append(ds, d)
		}
		slices.Sort(ds)
		for k, d := range ds {
			if k == 20 {
				sec.add("more", humanize.Plural(len(ds)-k, "value")+"; --plain has all")
				break
			}
			sec.add(strconv.Itoa(d), humanize.Plural(pairs[d], "ordered pair")+" of nodes")
		}
		return sec
	}
	t, to := table("from \\ to"), ""
	if p.full {
		t, to = table("from"), "to " // each fact says all
	}
	for _, n := range s.Nodes {
		t.Head = append(t.Head, to+strconv.Itoa(n.ID))
		t.Right = append(t.Right, true)
	}
	for i, row := range s.Distance {
		if i >= len(s.Nodes) {
			break
		}
		cells := []string{fmt.Sprintf("node %d", s.Nodes[i].ID)}
		for j := range s.Nodes {
			cell := "-"
			if j < len(row) {
				cell = strconv.Itoa(row[j])
			}
			cells = append(cells, cell)
		}
		t.Rows = append(t.Rows, cells)
	}
	sec.addTable(t)
	return sec
}

func (p maker) huge() section {
	t := table("pool", ">pages", ">free", ">in all")
	for _, h := range p.s.HugePages {
		if h.Total == 0 && !p.full {
			continue
		}
		name := humanize.IBytes(h.PageBytes) + " pages"
		if h.Node >= 0 {
			name += fmt.Sprintf(", node %d", h.Node)
		}
		t.Rows = append(t.Rows, []string{name, strconv.FormatInt(h.Total, 10), strconv.FormatInt(h.Free, 10), humanize.IBytes(h.Total * h.PageBytes)})
	}
	switch {
	case len(t.Rows) > 0:
		return tableSection("huge page pools", t)
	case len(p.s.HugePages) > 0:
		var sizes []string
		for _, h := range p.s.HugePages {
			if s := humanize.IBytes(h.PageBytes); !slices.Contains(sizes, s) {
				sizes = append(sizes, s)
			}
		}
		return section{name: "huge page pools", facts: []fact{{name: "pools", value: "empty (" + strings.Join(sizes, ", ") + ")"}}}
	}
	return section{}
}
