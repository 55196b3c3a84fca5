package topo

import (
	"fmt"
	"slices"
	"strings"
)

// A Home is memory and the cores that work there: where parts of a model are placed.
type Home struct {
	Nodes    []int `json:"nodes"`    // where its memory is taken, in this order: faster memory without CPUs, then that beside the cores
	Cores    []int `json:"cores"`    // CPUs on which this process may run, the first of each physical core
	Siblings []int `json:"siblings"` // the others of these cores
}

// Homes are those of this process, by their first core's node; at least one. Cores of a node without memory, or whose memory is forbidden, join the
// nearest home. Memory without CPUs belongs to the nearest home where it is faster than memory beside CPUs (HBM), else to none. notes say what was
// joined or left out, a line each.
func (s *Survey) Homes() (homes []Home, notes []string) {
	at := map[int]int{} // home by index of a node
	var joins []int     // nodes with cores and no memory
	cores, siblings := s.coresOf()
	for i := range s.Nodes {
		switch {
		case len(cores[i]) == 0:
		case s.holds(i):
			at[i] = len(homes)
			homes = append(homes, Home{Nodes: []int{s.Nodes[i].ID}})
		default:
			joins = append(joins, i)
		}
	}
	if len(homes) == 0 { // no node has both: the memory that there is is nobody's in particular
		homes = []Home{{}}
		for i := range s.Nodes {
			if s.holds(i) && s.kind(i) != GPU {
				homes[0].Nodes = append(homes[0].Nodes, s.Nodes[i].ID)
			}
		}
		for _, i := range joins {
			homes[0].Cores, homes[0].Siblings = append(homes[0].Cores, cores[i]...), append(homes[0].Siblings, siblings[i]...)
		}
		slices.Sort(homes[0].Cores)
		slices.Sort(homes[0].Siblings)
		return homes, []string{"no node has both cores and memory for this process: all of them are one home"}
	}
	for i, h := range at {
		homes[h].Cores, homes[h].Siblings = cores[i], siblings[i]
	}
	for _, i := range joins {
		h := s.nearest(i, at, func(h int) int { return len(homes[h].Cores) })
		why := "has no memory"
		if s.Nodes[i].MemTotal > 0 {
			why = "has memory that this process may not use"
		}
		notes = append(notes, fmt.Sprintf("node %d %s: its %s join node %d", s.Nodes[i].ID, why, count(len(cores[i]), "core"), homes[h].Nodes[len(homes[h].Nodes)-1]))
		homes[h].Cores, homes[h].Siblings = append(homes[h].Cores, cores[i]...), append(homes[h].Siblings, siblings[i]...)
		slices.Sort(homes[h].Cores)
		slices.Sort(homes[h].Siblings)
	}
	for i := len(s.Nodes) - 1; i >= 0; i-- { // so that of several in front of a home the first comes first
		if n := s.Nodes[i]; len(n.CPUs) == 0 && s.holds(i) && s.kind(i) == HBM {
			h := s.nearest(i, at, func(h int) int { return len(homes[h].Nodes) })
			homes[h].Nodes = slices.Insert(homes[h].Nodes, 0, n.ID)
		}
	}
	for i, n := range s.Nodes {
		if len(n.CPUs) > 0 || !s.holds(i) {
			continue
		}
		switch kind := s.kind(i); kind {
		case HBM, GPU:
		case None:
			notes = append(notes, fmt.Sprintf("node %d has memory of an unknown kind and no CPUs: no home takes any of it", n.ID))
		default:
			notes = append(notes, fmt.Sprintf("node %d is %s: no home takes any of it", n.ID, kind))
		}
	}
	return homes, notes
}

// holds reports whether this process may take memory of node i. A machine that tells no sizes has some beside its CPUs.
func (s *Survey) holds(i int) bool {
	n := s.Nodes[i]
	told := slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.MemTotal > 0 })
	return n.Allowed && (n.MemTotal > 0 || !told && len(n.CPUs) > 0)
}

func (s *Survey) kind(i int) MemoryKind {
	if i < len(s.Memory) {
		return s.Memory[i].Kind
	}
	return None
}

// coresOf lists by index of a node the first allowed CPU of each physical core, and the other allowed ones.
func (s *Survey) coresOf() (cores, siblings [][]int) {
	cores, siblings = make([][]int, len(s.Nodes)), make([][]int, len(s.Nodes))
	taken := map[int]bool{}
	for _, id := range s.Affinity {
		c := s.cpu(id)
		i := max(0, slices.IndexFunc(s.Nodes, func(n Node) bool { return n.ID == c.Node }))
		if taken[c.Lead] {
			siblings[i] = append(siblings[i], id)
		} else {
			taken[c.Lead] = true
			cores[i] = append(cores[i], id)
		}
	}
	return cores, siblings
}

// nearest is the home that is nearest to node i: by distance, then one of the same package, then the one that has least, then the first. at is the
// home of nodes by index.
func (s *Survey) nearest(i int, at map[int]int, has func(home int) int) int {
	best, home := []int{1 << 30}, 0
	for j := range s.Nodes {
		h, ok := at[j]
		if !ok {
			continue
		}
		rank := []int{0, 1, has(h), h}
		if s.Distance != nil {
			rank[0] = s.Distance[j][i]
		}
		if i < len(s.Memory) && j < len(s.Memory) && s.Memory[i].Package >= 0 && s.Memory[i].Package == s.Memory[j].Package {
			rank[1] = 0
		}
		if slices.Compare(rank, best) < 0 {
			best, home = rank, h
		}
	}
	return home
}

// Bound is the machine as a process sees it that works at the homes of some memory nodes and takes memory there alone. Nodes without cores may be
// among them, not by themselves. Errors say which node cannot be had.
func (s *Survey) Bound(nodes []int) (Machine, error) {
	m := s.Machine
	m.Nodes, m.Affinity = slices.Clone(m.Nodes), nil
	for i := range m.Nodes {
		m.Nodes[i].Allowed = false
	}
	for _, id := range nodes {
		i := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.ID == id })
		switch {
		case i < 0:
			var ids []string
			for _, n := range m.Nodes {
				ids = append(ids, fmt.Sprint(n.ID))
			}
			return Machine{}, fmt.Errorf("there is no memory node %d here; there are %s", id, strings.Join(ids, ", "))
		case !s.Nodes[i].Allowed:
			return Machine{}, fmt.Errorf("this process may not take memory of node %d (cpuset)", id)
		case !s.holds(i):
			return Machine{}, fmt.Errorf("node %d has no memory", id)
		}
		m.Nodes[i].Allowed = true
	}
	homes, _ := s.Homes()
	for _, h := range homes {
		if slices.ContainsFunc(h.Nodes, func(id int) bool { return slices.Contains(nodes, id) }) {
			m.Affinity = append(append(m.Affinity, h.Cores...), h.Siblings...)
		}
	}
	if len(m.Affinity) == 0 {
		return Machine{}, fmt.Errorf("no core works at %s %s; name a node with cores as well", map[bool]string{true: "node", false: "nodes"}[len(nodes) == 1],
			strings.Trim(fmt.Sprint(nodes), "[]"))
	}
	slices.Sort(m.Affinity)
	return m, nil
}
