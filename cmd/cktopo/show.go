package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ck/internal/cli"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/quant"
	"ck/internal/topo"
)

// show prints the page, or what the flags ask for instead.
func (p *program) show() error {
	if p.draw && (p.app.Common.JSON || p.app.Common.Plain) {
		return cli.Usage("--draw: is for people; leave out --json and --plain")
	}
	s, err := p.survey()
	if err != nil {
		return err
	}
	if p.svg != "" {
		if err := p.writeSVG(&s); err != nil {
			return err
		}
		if p.svg == "-" {
			return nil
		}
	}
	switch {
	case p.app.Common.JSON:
		return writeJSON(p.app.Out, &s, p.root)
	case p.draw:
		return p.drawText(&s)
	}
	return writePage(p.app.Out, &s, p.app.Common.Plain)
}

// A section is a part of the page.
type section struct {
	name   string
	facts  []fact
	tables []cli.Table
}

// A fact is a line of a section. One with parts is a thing with several properties: one line for people, one for each part with --plain.
type fact struct {
	name, value string
	parts       []fact
}

// page makes the sections of a survey.
type page struct {
	s    *topo.Survey
	full bool // lists are not shortened
}

const (
	pageWidth = 110 // columns of facts
	listWidth = 44  // columns of a list of numbers in a table
)

func writePage(w io.Writer, s *topo.Survey, plain bool) error {
	for i, sec := range (page{s, plain}).sections() {
		var err error
		if plain {
			err = sec.writePlain(w)
		} else {
			err = sec.write(w, i == 0)
		}
		if err != nil {
			return cli.OutError(err)
		}
	}
	return nil
}

// write is the section for people: its name, then everything indented by two.
func (sec *section) write(w io.Writer, first bool) error {
	var b strings.Builder
	if !first {
		b.WriteString("\n")
	}
	b.WriteString(sec.name + "\n")
	width := 0
	for _, f := range sec.facts {
		width = max(width, min(24, utf8.RuneCountInString(f.name)))
	}
	for i := 0; i < len(sec.facts); {
		f := sec.facts[i]
		value := f.text()
		j := i + 1
		for j < len(sec.facts) && len(f.parts) > 0 && strings.ReplaceAll(sec.facts[j].text(), sec.facts[j].name, f.name) == value {
			j++ // a thing like the one before, but for its name
		}
		if j > i+1 {
			value = fmt.Sprintf("and %d more like it: %s", j-i-1, value)
		}
		i = j
		indent := width + 4
		lines := wrap(value, pageWidth-indent)
		fmt.Fprintf(&b, "  %s%s\n", pad(f.name, width+2), lines[0])
		for _, l := range lines[1:] {
			fmt.Fprintf(&b, "%*s%s\n", indent, "", l)
		}
	}
	for i := range sec.tables {
		if i > 0 || len(sec.facts) > 0 {
			b.WriteString("\n")
		}
		var t strings.Builder
		if err := sec.tables[i].Write(&t, false); err != nil {
			return err
		}
		for line := range strings.Lines(t.String()) {
			b.WriteString("  " + line)
		}
	}
	_, err := io.WriteString(w, printable(b.String()))
	return err
}

// text is the value with all parts.
func (f *fact) text() string {
	text := f.value
	for i, part := range f.parts {
		if i > 0 || text != "" {
			text += ", "
		}
		text += part.name + " " + part.value
	}
	return text
}

// writePlain is the section as one fact a line: "section name<TAB>value".
func (sec *section) writePlain(w io.Writer) error {
	var b strings.Builder
	for _, f := range sec.facts {
		if f.value != "" {
			fmt.Fprintf(&b, "%s %s\t%s\n", sec.name, f.name, f.value)
		}
		for _, part := range f.parts {
			fmt.Fprintf(&b, "%s %s %s\t%s\n", sec.name, f.name, part.name, part.value)
		}
	}
	for i := range sec.tables {
		if err := sec.tables[i].Write(&b, true); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, printable(b.String()))
	return err
}

// printable replaces what a file of the system should not have said: control characters, and bytes that are not UTF-8.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && (r < 0x80 || r >= 0xa0) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

// pad fills s with blanks to width columns.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(1, width-utf8.RuneCountInString(s)))
}

// wrap cuts text at blanks into lines of at most width columns, where words allow it. There is always a first line.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// ranges writes ascending numbers in the kernel's list format, one range each.
func ranges(ids []int) []string {
	var out []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if r := strconv.Itoa(ids[i]); j > i {
			out = append(out, r+"-"+strconv.Itoa(ids[j]))
		} else {
			out = append(out, r)
		}
		i = j + 1
	}
	return out
}

// shortList is a list of numbers in at most width columns: what does not fit is counted.
func shortList(ids []int, width int) string {
	parts := ranges(ids)
	if len(parts) == 0 {
		return "none"
	}
	if all := strings.Join(parts, ","); len(all) <= width {
		return all
	}
	tail := fmt.Sprintf(",… (%d in all)", len(ids))
	text := parts[0]
	for _, r := range parts[1:] {
		if len(text)+1+len(r)+utf8.RuneCountInString(tail) > width {
			break
		}
		text += "," + r
	}
	return text + tail
}

func (p page) list(ids []int) string {
	if p.full && len(ids) > 0 {
		return strings.Join(ranges(ids), ",")
	}
	return shortList(ids, listWidth)
}

// size writes bytes with the unit that leaves one to four digits before the point.
func size(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for i+1 < len(units) && (v >= 10240 || v >= 1024 && (v == float64(int64(v/1024))*1024 || i > 0)) {
		v, i = v/1024, i+1
	}
	text := strconv.FormatFloat(v, 'f', 0, 64)
	if v < 100 && v != float64(int64(v)) {
		text = strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	return text + " " + units[i]
}

// told is a size, or that it is not told.
func told(n int64) string {
	if n <= 0 {
		return "not told"
	}
	return size(n)
}

func orNot(s string) string {
	if s == "" {
		return "not told"
	}
	return s
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// add appends a fact, unless there is nothing to say.
func (sec *section) add(name, value string) {
	if value != "" {
		sec.facts = append(sec.facts, fact{name: name, value: value})
	}
}

// part appends a property of a thing, unless there is nothing to say.
func (f *fact) part(name, value string) {
	if value != "" {
		f.parts = append(f.parts, fact{name: name, value: value})
	}
}

// number appends a property that is a number, unless it is negative: not told.
func (f *fact) number(name string, n int) {
	if n >= 0 {
		f.part(name, strconv.Itoa(n))
	}
}

// sections are the parts of the page that have something to say.
func (p page) sections() []section {
	all := []section{p.machine(), p.limits(), p.packages(), p.memory(), p.distances(), p.caches(), p.cores(), p.isa(), p.huge(),
		p.settings(), p.accelerators(), p.cxl(), p.rdma(), p.power(), p.thermal(), p.resctrl(), p.missing(), p.findings()}
	return slices.DeleteFunc(all, func(sec section) bool { return len(sec.facts) == 0 && len(sec.tables) == 0 })
}

func (p page) machine() section {
	s, sec := p.s, section{name: "machine"}
	sec.add("CPU", orNot(s.Model))
	sec.add("architecture", orNot(s.Arch))
	sec.add("kernel", orNot(s.Kernel))
	if s.Settings.Hypervisor {
		sec.add("hypervisor", "yes: a virtual machine, which sees what the hypervisor shows")
	}
	for _, x := range []struct {
		name string
		n    int
	}{{"drawers", s.Drawers}, {"books", s.Books}, {"packages", len(s.Packages)}, {"dies", s.Dies}, {"clusters", s.Clusters}} {
		if x.n > 0 {
			sec.add(x.name, strconv.Itoa(x.n))
		}
	}
	if s.Cores > 0 {
		text := strconv.Itoa(s.Cores)
		if s.SMT > 1 {
			text += fmt.Sprintf(", at most %d threads each", s.SMT)
		}
		sec.add("cores", text)
	}
	var online []int
	for _, c := range s.CPUs {
		online = append(online, c.ID)
	}
	sec.add("CPUs", fmt.Sprintf("%d online: %s", len(online), p.list(online)))
	if len(s.Offline) > 0 {
		sec.add("offline", plural(len(s.Offline), "CPU")+": "+p.list(s.Offline))
	}
	if n := len(s.Possible); n > len(s.Present) && len(s.Present) > 0 {
		sec.add("could be added", plural(n-len(s.Present), "CPU"))
	}
	sec.add("nodes", nodesText(s))
	sec.add("cut", s.SubNUMA)
	text := told(s.MemTotal)
	if s.MemFree > 0 {
		text += ", " + size(s.MemFree) + " available"
	}
	sec.add("memory", text)
	return sec
}

// nodesText counts memory nodes by what is on them.
func nodesText(s *topo.Survey) string {
	var both, cpus, memory, empty int
	for i, n := range s.Nodes {
		has := n.MemTotal > 0 || i < len(s.Memory) && s.Memory[i].Kind != topo.None
		switch {
		case len(n.CPUs) > 0 && has:
			both++
		case len(n.CPUs) > 0:
			cpus++
		case has:
			memory++
		default:
			empty++
		}
	}
	if both == len(s.Nodes) {
		return strconv.Itoa(both)
	}
	var parts []string
	for _, x := range []struct {
		n    int
		what string
	}{{both, "with CPUs and memory"}, {memory, "with memory only"}, {cpus, "with CPUs and no memory told"}, {empty, "empty"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return fmt.Sprintf("%d: %s", len(s.Nodes), strings.Join(parts, ", "))
}

func (p page) limits() section {
	s, sec := p.s, section{name: "limits"}
	allowed := plural(len(s.Affinity), "CPU") + ": " + p.list(s.Affinity)
	if len(s.Affinity) == len(s.CPUs) {
		allowed = "all CPUs"
	}
	sec.add("allowed", allowed)
	if len(s.Disallowed) > 0 {
		sec.add("not allowed", plural(len(s.Disallowed), "CPU")+": "+p.list(s.Disallowed))
	}
	if len(s.DisallowedNodes) > 0 {
		sec.add("nodes not allowed", p.list(s.DisallowedNodes))
	}
	quota := "none"
	if s.Quota.CPUs > 0 {
		quota = fmt.Sprintf("%.4g CPUs, set by cgroup %s", s.Quota.CPUs, s.Quota.Group)
	}
	sec.add("CPU quota", quota)
	if len(s.Limits) == 0 {
		sec.add("memory limit", "none")
	}
	for _, l := range s.Limits {
		sec.add("memory limit", fmt.Sprintf("%s in cgroup %s, %s left", size(l.Max), l.Group, size(l.Left)))
	}
	sec.add("locked memory", ulimit(s.Settings.Memlock))
	sec.add("address space", ulimit(s.Settings.AddressSpace))
	_, why := s.Workers()
	sec.add("workers", why)
	if s.MemFree > 0 {
		_, why = s.Machine.Memory()
		sec.add("memory for models", why)
	}
	return sec
}

// ulimit is a limit of the process.
func ulimit(n int64) string {
	switch {
	case n == -1:
		return "unlimited"
	case n < 0:
		return ""
	}
	return "at most " + size(n)
}

func (p page) packages() section {
	s := p.s
	t := cli.Table{Head: []string{"package", "cores", "CPUs", "numbers", "nodes"}, Right: []bool{false, true, true}}
	for _, k := range s.Packages {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("package %d", k.ID), strconv.Itoa(k.Cores), strconv.Itoa(len(k.CPUs)), p.list(k.CPUs), p.list(k.Nodes)})
	}
	if len(s.Packages) == 0 {
		return section{}
	}
	return section{name: "packages", tables: []cli.Table{t}}
}

// memory is the nodes, then what HMAT says of them, then their memory-side caches.
func (p page) memory() section {
	s, sec := p.s, section{name: "memory"}
	t := cli.Table{Head: []string{"node", "memory", "free", "kind", "package", "CPUs", "numbers", "may be used"}, Right: []bool{false, true, true, false, true, true}}
	access := cli.Table{Head: []string{"access", "from nodes", "read ns", "write ns", "read GB/s", "write GB/s"}, Right: []bool{false, false, true, true, true, true}}
	side := cli.Table{Head: []string{"memory-side cache", "size", "line", "mapping", "writes"}, Right: []bool{false, true, true}}
	tiers := false
	for i, n := range s.Nodes {
		var m topo.NodeMemory
		m.Tier, m.Package = -1, -1
		if i < len(s.Memory) {
			m = s.Memory[i]
		}
		tiers = tiers || m.Tier >= 0
		name := fmt.Sprintf("node %d", n.ID)
		total, free := "-", "-"
		if n.MemTotal > 0 {
			total, free = size(n.MemTotal), size(n.MemFree)
		}
		kind, pkg := "-", "-"
		if m.Kind != topo.None {
			kind = string(m.Kind)
		}
		if m.Package >= 0 {
			pkg = strconv.Itoa(m.Package)
		}
		t.Rows = append(t.Rows, []string{name, total, free, kind, pkg, strconv.Itoa(len(n.CPUs)), p.list(n.CPUs), yesNo(n.Allowed)})
		for class, a := range m.Access {
			if a != nil {
				from := p.list(a.Initiators)
				access.Rows = append(access.Rows, []string{fmt.Sprintf("%s, class %d", name, class), from,
					dash(a.ReadLatency), dash(a.WriteLatency), gbps(a.ReadBandwidth), gbps(a.WriteBandwidth)})
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
			side.Rows = append(side.Rows, []string{fmt.Sprintf("%s, cache %d", name, c.Index), told(c.Bytes), told(int64(c.LineBytes)), mapping, writes})
		}
		if m.Why != "" && m.Kind != topo.DRAM {
			sec.add(name+" is "+kind, m.Why)
		}
	}
	if tiers {
		t.Head = append(t.Head, "tier")
		for i := range t.Rows {
			tier := "-"
			if i < len(s.Memory) && s.Memory[i].Tier >= 0 {
				tier = strconv.Itoa(s.Memory[i].Tier)
			}
			t.Rows[i] = append(t.Rows[i], tier)
		}
	}
	for _, x := range []cli.Table{t, access, side} {
		if len(x.Rows) > 0 {
			sec.tables = append(sec.tables, x)
		}
	}
	return sec
}

// dash is a number that may not be told.
func dash(n int) string {
	if n <= 0 {
		return "-"
	}
	return strconv.Itoa(n)
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

func (p page) distances() section {
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
				sec.add("more", plural(len(ds)-k, "value")+"; --plain has all")
				break
			}
			sec.add(strconv.Itoa(d), plural(pairs[d], "ordered pair")+" of nodes")
		}
		return sec
	}
	t := cli.Table{Head: []string{"from"}, Right: []bool{false}}
	for _, n := range s.Nodes {
		t.Head = append(t.Head, "to "+strconv.Itoa(n.ID))
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
	sec.tables = []cli.Table{t}
	return sec
}

// cacheName is "L1d", "L1i", "L2".
func cacheName(c topo.Shape) string {
	name := "L" + strconv.Itoa(c.Level)
	switch c.Type {
	case "data":
		if c.Level == 1 {
			name += "d"
		}
	case "instruction":
		name += "i"
	}
	return name
}

func (p page) caches() section {
	s := p.s
	t := cli.Table{Head: []string{"cache", "each", "CPUs of one", "count", "in all"}, Right: []bool{false, true, true, true, true}}
	seen := map[string]int{}
	for _, c := range s.Caches {
		name := cacheName(c)
		if seen[name]++; p.full && seen[name] > 1 { // one fact a line needs names of its own
			name += fmt.Sprintf(", shape %d", seen[name])
		}
		t.Rows = append(t.Rows, []string{name, told(c.Bytes), strconv.Itoa(c.CPUs), strconv.Itoa(c.Count), told(c.Bytes * int64(c.Count))})
	}
	if len(t.Rows) == 0 {
		return section{name: "caches", facts: []fact{{name: "caches", value: "not told"}}}
	}
	return section{name: "caches", tables: []cli.Table{t}}
}

func (p page) cores() section {
	t := cli.Table{Head: []string{"cores", "CPUs", "numbers", "capacity"}, Right: []bool{false, true, false, true}}
	for _, k := range p.s.Kinds {
		t.Rows = append(t.Rows, []string{k.Name, strconv.Itoa(len(k.CPUs)), p.list(k.CPUs), dash(k.Capacity)})
	}
	if len(t.Rows) == 0 {
		return section{}
	}
	return section{name: "kinds of cores", tables: []cli.Table{t}}
}

// activations says what a kernel reads beside the weights.
var activations = map[kernel.ActKind]string{
	kernel.ActF32:  "float32",
	kernel.ActBF16: "bfloat16",
	kernel.ActQ8:   "8 bits, a scale per 32",
	kernel.ActQ8K:  "8 bits, a scale per 256",
}

func (p page) isa() section {
	s, sec := p.s, section{name: "instruction sets"}
	// Where the flags of the CPU come from is worth a line only if it is neither the CPU nor the kernel's list of them, which agree.
	if strings.Contains(s.ISA.Source, "dump") {
		sec.add("source", s.ISA.Source)
	}
	sec.add("vendor", s.ISA.Vendor)
	sec.add("features", orNot(strings.Join(s.ISA.Features, " ")))
	sec.add("AMX", s.ISA.AMX)
	if len(s.ISA.Tiers) == 0 {
		return sec
	}
	best := s.ISA.Tiers[len(s.ISA.Tiers)-1]
	sec.add("tiers", strings.Join(s.ISA.Tiers, " ")+"; "+best+" would be chosen")
	t := cli.Table{Head: []string{"weights", "kernels", "activations"}}
	for _, k := range kernelRows() {
		tier := best
		switch {
		case k.direct:
			tier += ", decoded to float32 first"
		case k.act == kernel.ActBF16 && best == isa.VNNI.String() && slices.Contains(s.ISA.Features, isa.FeatAVX512BF16.String()):
			tier += " with AVX-512 BF16"
		}
		t.Rows = append(t.Rows, []string{k.types, tier, activations[k.act]})
	}
	sec.tables = []cli.Table{t}
	return sec
}

// kernelRow is weight types that are multiplied in the same way.
type kernelRow struct {
	types  string
	act    kernel.ActKind
	direct bool
}

// kernelRows groups the weight types by their activations, which depend on nothing but the type. All that have no kernel of their own
// are one row.
func kernelRows() []kernelRow {
	var rows []kernelRow
	tab := kernel.For(isa.Go, 0)
	for t := quant.Type(0); t <= quant.Q2_0; t++ {
		if !t.Known() {
			continue
		}
		f := tab.Format(t, false)
		i := slices.IndexFunc(rows, func(r kernelRow) bool { return r.act == f.Act && r.direct == f.Direct })
		switch {
		case i < 0 && f.Direct:
			rows = append(rows, kernelRow{"all others", f.Act, true})
		case i < 0:
			rows = append(rows, kernelRow{t.String(), f.Act, false})
		case !f.Direct:
			rows[i].types += " " + t.String()
		}
	}
	slices.SortStableFunc(rows, func(a, b kernelRow) int {
		if a.direct != b.direct {
			if a.direct {
				return 1
			}
			return -1
		}
		return int(a.act) - int(b.act)
	})
	return rows
}

func (p page) huge() section {
	t := cli.Table{Head: []string{"pool", "pages", "free", "in all"}, Right: []bool{false, true, true, true}}
	for _, h := range p.s.HugePages {
		if h.Total == 0 && !p.full {
			continue
		}
		name := size(h.PageBytes) + " pages"
		if h.Node >= 0 {
			name += fmt.Sprintf(", node %d", h.Node)
		}
		t.Rows = append(t.Rows, []string{name, strconv.FormatInt(h.Total, 10), strconv.FormatInt(h.Free, 10), size(h.Total * h.PageBytes)})
	}
	switch {
	case len(t.Rows) > 0:
		return section{name: "huge page pools", tables: []cli.Table{t}}
	case len(p.s.HugePages) > 0:
		var sizes []string
		for _, h := range p.s.HugePages {
			if s := size(h.PageBytes); !slices.Contains(sizes, s) {
				sizes = append(sizes, s)
			}
		}
		return section{name: "huge page pools", facts: []fact{{name: "pools", value: "empty (" + strings.Join(sizes, ", ") + ")"}}}
	}
	return section{}
}

func (p page) settings() section {
	s, sec := &p.s.Settings, section{name: "settings"}
	sec.add("transparent huge pages", s.THP)
	sec.add("their defragmentation", s.THPDefrag)
	sec.add("NUMA balancing", s.NUMABalancing)
	sec.add("governor", s.Governor)
	sec.add("frequency driver", s.Driver)
	sec.add("turbo", s.Turbo)
	sec.add("SMT control", s.SMTControl)
	sec.add("swappiness", s.Swappiness)
	swap := "none"
	if s.SwapTotal > 0 {
		swap = fmt.Sprintf("%s, %s in use", size(s.SwapTotal), size(s.SwapUsed))
	}
	sec.add("swap", swap)
	sec.add("overcommit", s.Overcommit)
	sec.add("zone reclaim", s.ZoneReclaim)
	sec.add("clock source", s.ClockSource)
	if len(s.Isolated) > 0 {
		sec.add("isolated CPUs", p.list(s.Isolated))
	}
	if len(s.NoHzFull) > 0 {
		sec.add("CPUs without ticks", p.list(s.NoHzFull))
	}
	for i, n := range s.PageCacheByNode {
		if i < len(p.s.Nodes) && n > 0 {
			sec.add(fmt.Sprintf("page cache of node %d", p.s.Nodes[i].ID), size(n))
		}
	}
	for _, m := range s.Mitigations {
		name, value, ok := strings.Cut(m, ": ")
		if !ok {
			name, value = "mitigation", m
		}
		sec.add(name, value)
	}
	return sec
}

func (p page) accelerators() section {
	sec := section{name: "accelerators"}
	for _, a := range p.s.DSA {
		f := fact{name: a.Name}
		f.part("type", a.Type)
		f.part("state", a.State)
		f.part("version", a.Version)
		f.number("node", a.Node)
		f.number("groups", a.MaxGroups)
		f.number("queues", a.MaxQueues)
		f.number("engines", a.MaxEngines)
		f.number("engines in groups", a.Engines)
		f.number("entries", a.QueueSizes)
		f.part("transfer", told(a.MaxTransfer))
		batch := "none"
		if a.MaxBatch > 0 {
			batch = strconv.Itoa(a.MaxBatch)
		}
		f.part("batch", batch)
		f.number("read buffers", a.ReadBuffers)
		f.number("read buffer limit", a.ReadBufferLimit)
		f.part("shared virtual memory", yesNo(a.PASID))
		f.part("configurable", yesNo(a.Configurable))
		f.number("clients", a.Clients)
		f.number("major", a.Major)
		f.part("operations", a.OpCap)
		f.part("capabilities", a.GenCap)
		f.part("command status", a.CmdStatus)
		f.part("errors", a.Errors)
		sec.facts = append(sec.facts, f)
		for _, g := range a.Groups {
			sec.facts = append(sec.facts, groupFact(g))
		}
		for _, q := range a.Queues {
			f := fact{name: q.Name}
			f.part("state", q.State)
			f.part("mode", q.Mode)
			f.part("type", q.Type)
			f.part("label", q.Label)
			f.part("driver", q.Driver)
			f.number("group", q.Group)
			f.number("entries", q.Size)
			f.number("threshold", q.Threshold)
			f.number("priority", q.Priority)
			f.number("minor", q.Minor)
			f.number("in use", q.Occupancy)
			f.part("block on fault", yesNo(q.BlockOnFault))
			f.part("address translation", yesNo(!q.ATSDisable))
			f.number("retries", q.EnqcmdsRetries)
			f.part("transfer", told(q.MaxTransfer))
			f.number("batch", q.MaxBatch)
			f.number("clients", q.Clients)
			f.part("operations", q.OpConfig)
			f.part("device", q.Device)
			f.part("usable", yesNo(q.Usable))
			if q.Usable {
				f.part("but", q.Why)
			} else {
				f.part("because", q.Why)
			}
			sec.facts = append(sec.facts, f)
		}
	}
	return sec
}

func groupFact(g topo.Group) fact {
	f := fact{name: g.Name}
	f.part("engines", orNone(strings.Join(g.Engines, " ")))
	f.part("queues", orNone(strings.Join(g.Queues, " ")))
	f.number("traffic class A", g.TrafficClassA)
	f.number("traffic class B", g.TrafficClassB)
	f.part("uses the read buffer limit", yesNo(g.UseReadBufferLimit))
	f.number("read buffers allowed", g.ReadBuffersAllowed)
	f.number("reserved", g.ReadBuffersReserved)
	f.number("descriptors in progress", g.DescProgressLimit)
	f.number("batches in progress", g.BatchProgressLimit)
	return f
}

// cxl leaves serial numbers and UUIDs out: pages are pasted into public places.
func (p page) cxl() section {
	sec := section{name: "CXL and DAX"}
	for _, m := range p.s.CXL.Memories {
		f := fact{name: m.Name}
		f.part("volatile", size(m.RAMBytes))
		f.part("persistent", size(m.PMEMBytes))
		f.part("firmware", m.Firmware)
		f.number("node", m.Node)
		if m.LabelBytes > 0 {
			f.part("labels", size(m.LabelBytes))
		}
		if m.PayloadMax > 0 {
			f.part("mailbox", size(m.PayloadMax))
		}
		sec.facts = append(sec.facts, f)
	}
	for _, t := range p.s.CXL.Ports {
		f := fact{name: t.Name}
		f.part("type", t.Type)
		f.part("below", t.Parent)
		if len(f.parts) == 0 {
			f.value = "a root of the bus"
		}
		sec.facts = append(sec.facts, f)
	}
	for _, d := range p.s.CXL.Decoders {
		f := fact{name: d.Name}
		f.part("type", d.Type)
		f.part("address", fmt.Sprintf("%#x", d.Start))
		f.part("size", told(d.Bytes))
		f.part("locked", yesNo(d.Locked))
		f.part("for", d.TargetType)
		f.part("targets", strings.Join(ranges(d.Targets), " "))
		f.number("ways", d.Ways)
		f.part("granularity", told(int64(d.Granularity)))
		f.part("can", strings.Join(d.Capabilities, " "))
		f.part("mode", d.Mode)
		if d.DPAStart >= 0 && d.DPASize > 0 {
			f.part("on the device", fmt.Sprintf("%#x, %s", d.DPAStart, size(d.DPASize)))
		}
		f.part("region", d.Region)
		sec.facts = append(sec.facts, f)
	}
	for _, r := range p.s.CXL.Regions {
		f := fact{name: r.Name}
		f.part("size", told(r.Bytes))
		f.part("address", fmt.Sprintf("%#x", r.Resource))
		f.number("ways", r.Ways)
		f.part("granularity", told(int64(r.Granularity)))
		f.part("mode", r.Mode)
		f.part("committed", yesNo(r.Committed))
		f.part("targets", strings.Join(r.Targets, " "))
		f.part("dax device", r.DAX)
		f.number("as node", r.TargetNode)
		sec.facts = append(sec.facts, f)
	}
	for _, d := range p.s.CXL.DAX {
		f := fact{name: d.Name}
		f.part("size", told(d.Bytes))
		f.part("alignment", told(d.Align))
		if d.Resource >= 0 {
			f.part("address", fmt.Sprintf("%#x", d.Resource))
		}
		f.part("driver", d.Driver)
		f.number("node", d.Node)
		f.number("target node", d.TargetNode)
		sec.facts = append(sec.facts, f)
	}
	return sec
}

func (p page) rdma() section {
	sec := section{name: "RDMA"}
	for _, r := range p.s.RDMA {
		f := fact{name: fmt.Sprintf("%s port %d", r.Device, r.Port)}
		f.part("state", r.State)
		f.part("physical", r.Physical)
		f.part("link", r.Link)
		f.part("rate", r.Rate)
		f.number("node", r.Node)
		f.part("near CPUs", strings.Join(ranges(r.LocalCPUs), ","))
		f.part("type", r.Type)
		f.part("node type", r.NodeType)
		f.part("hardware", r.Hardware)
		f.part("board", r.Board)
		f.part("PCI", strings.TrimSpace(r.PCIVendor+" "+r.PCIDevice))
		f.part("firmware", r.Firmware)
		f.part("verbs", r.Verbs)
		f.part("network devices", strings.Join(r.NetDevices, " "))
		f.part("LID", r.LID)
		f.number("LID mask", r.LIDMask)
		f.part("manager's LID", r.SMLID)
		f.number("service level", r.SMSL)
		f.part("capabilities", r.Capabilities)
		f.part("GID types", strings.Join(r.GIDTypes, " and "))
		for _, name := range slices.Sorted(maps.Keys(r.Counters)) {
			f.part(name, strconv.FormatInt(r.Counters[name], 10))
		}
		sec.facts = append(sec.facts, f)
	}
	return sec
}

func (p page) power() section {
	sec := section{name: "power"}
	for _, z := range p.s.Power {
		f := fact{name: z.Zone}
		f.part("name", z.Name)
		f.part("enabled", yesNo(z.Enabled))
		energy := "may not be read"
		if z.Energy >= 0 {
			energy = fmt.Sprintf("%.1f J", float64(z.Energy)/1e6)
		}
		f.part("energy", energy)
		if z.Range > 0 {
			f.part("wraps at", fmt.Sprintf("%.1f J", float64(z.Range)/1e6))
		}
		for _, l := range z.Limits {
			text := watts(l.Watts)
			if l.Seconds > 0 {
				text += fmt.Sprintf(" over %.4g s", l.Seconds)
			}
			if l.MaxWatts > 0 {
				text += ", at most " + watts(l.MaxWatts)
			}
			f.part("limit "+l.Name, text)
		}
		sec.facts = append(sec.facts, f)
	}
	return sec
}

func watts(w float64) string {
	if w <= 0 {
		return "not told"
	}
	return fmt.Sprintf("%.4g W", w)
}

func (p page) thermal() section {
	sec := section{name: "temperatures"}
	for _, z := range p.s.Thermal {
		text := "may not be read"
		if z.Readable {
			text = fmt.Sprintf("%.1f °C", z.Celsius)
		}
		f := fact{name: z.Zone}
		f.part("type", z.Type)
		f.part("is", text)
		f.part("mode", z.Mode)
		f.part("policy", z.Policy)
		for i, t := range z.Trips {
			f.part(fmt.Sprintf("trip %d", i), fmt.Sprintf("%s at %.1f °C", t.Type, t.Celsius))
		}
		sec.facts = append(sec.facts, f)
	}
	return sec
}

func (p page) resctrl() section {
	r, sec := p.s.Resctrl, section{name: "resctrl"}
	if r == nil {
		return sec
	}
	sec.add("counters", orNot(strings.Join(r.Features, " ")))
	for _, d := range r.Domains {
		f := fact{name: fmt.Sprintf("L3 %d", d.L3)}
		if d.Node >= 0 {
			f.name += fmt.Sprintf(" node %d", d.Node)
		}
		for _, x := range []struct {
			name string
			n    int64
		}{{"total", d.Total}, {"local", d.Local}, {"occupancy", d.Occupancy}} {
			text := "unavailable"
			if x.n >= 0 {
				text = size(x.n)
			}
			f.part(x.name, text)
		}
		sec.facts = append(sec.facts, f)
	}
	return sec
}

// shownMissing is how many sentences of what is missing people are shown.
const shownMissing = 10

func (p page) missing() section {
	sec := section{name: "missing"}
	for i, m := range p.s.Missing {
		if i == shownMissing && !p.full {
			sec.add("more", plural(len(p.s.Missing)-i, "sentence")+"; --plain has all")
			break
		}
		sec.add(strconv.Itoa(i+1), m)
	}
	return sec
}

// findings says how many there are; the check command says which.
func (p page) findings() section {
	r := check(p.s)
	text := "nothing found"
	if n := len(r.Findings); n > 0 {
		text = fmt.Sprintf("%d, of which %d serious; cktopo check lists them", n, r.Matters)
	}
	return section{name: "check", facts: []fact{{name: "findings", value: text}}}
}
