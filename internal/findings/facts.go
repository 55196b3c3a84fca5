package findings

import (
	"fmt"
	"slices"

	"ck/internal/humanize"
	"ck/internal/topo"
)

// several reports whether the machine has more than one node with CPUs or memory.
func several(s *topo.Survey) bool {
	n := 0
	for _, node := range s.Nodes {
		if len(node.CPUs) > 0 || node.MemTotal > 0 {
			n++
		}
	}
	return n > 1
}

// online are the numbers of all CPUs.
func online(s *topo.Survey) []int {
	ids := make([]int, len(s.CPUs))
	for i, c := range s.CPUs {
		ids[i] = c.ID
	}
	return ids
}

// coresOf counts the physical cores of CPUs.
func coresOf(s *topo.Survey, cpus []int) int {
	among := map[int]bool{}
	for _, id := range cpus {
		among[id] = true
	}
	leads := map[int]bool{}
	for _, c := range s.CPUs {
		if among[c.ID] {
			leads[c.Lead] = true
		}
	}
	return len(leads)
}

// tightest is the lowest memory limit, if it is below what the machine has.
func tightest(s *topo.Survey) (worst topo.MemLimit, ok bool) {
	for _, l := range s.Limits {
		if (!ok || l.Max < worst.Max) && (s.MemTotal == 0 || l.Max < s.MemTotal) {
			worst, ok = l, true
		}
	}
	return worst, ok
}

// bareNodes are nodes with CPUs and no memory, where others have some, and how many cores they have.
func bareNodes(s *topo.Survey) (nodes []int, cores int) {
	some := false
	for i, n := range s.Nodes {
		switch {
		case n.MemTotal > 0:
			some = true
		case len(n.CPUs) > 0 && (i >= len(s.Memory) || s.Memory[i].Kind == topo.None):
			nodes = append(nodes, n.ID)
			cores += coresOf(s, n.CPUs)
		}
	}
	if !some {
		return nil, 0
	}
	return nodes, cores
}

// nodesWith names nodes with a verb for one or several.
func nodesWith(ids []int, one, more string) string {
	if len(ids) == 1 {
		return fmt.Sprintf("node %d %s", ids[0], one)
	}
	return fmt.Sprintf("nodes %s %s", humanize.ShortList(ids, humanize.ListColumns), more)
}

// setAside is the memory in free pages of the pools.
func setAside(s *topo.Survey) (bytes int64) {
	for _, h := range s.HugePages {
		bytes += h.Free * h.PageBytes
	}
	return bytes
}

// pageCacheOnOneNode finds page cache that lies on one node although several have CPUs: that of a model if one is named, else all. A
// model's pages may also lie where the process does not run.
func pageCacheOnOneNode(s *Subject) (what, effect string) {
	cached, whose := s.Settings.PageCacheByNode, "the page cache"
	own := s.Model != nil && s.Model.Unknown == ""
	if own {
		cached, whose = make([]int64, len(s.Nodes)), "the model's pages in memory"
		for i, n := range s.Nodes {
			cached[i] = s.Model.OnNode(n.ID)
		}
	}
	withCPUs, most := 0, 0
	var all, away int64
	for i, n := range s.Nodes {
		if len(n.CPUs) > 0 {
			withCPUs++
		}
		if i < len(cached) {
			all += cached[i]
			if cached[i] > cached[most] {
				most = i
			}
			if !slices.ContainsFunc(n.CPUs, func(id int) bool { return slices.Contains(s.Affinity, id) }) {
				away += cached[i]
			}
		}
	}
	if own && all > 0 && away > all/10*3 {
		return fmt.Sprintf("%s of %s (%s) lie on nodes where this process does not run", humanize.Percent(away, all), whose, humanize.IBytes(all)),
			"they are read over links between nodes"
	}
	if withCPUs < 2 || all < 4<<30 && !own || all == 0 || cached[most] < all/10*7 {
		return "", ""
	}
	effect = "a model in it is read over links between nodes by all other cores"
	if far, near := farthest(s.Survey, most); far > near && near > 0 {
		effect += fmt.Sprintf(" (distance up to %d instead of %d), and from one node's memory channels", far, near)
	}
	return fmt.Sprintf("%s of %s (%s) lie on node %d", humanize.Percent(cached[most], all), whose, humanize.IBytes(all), s.Nodes[most].ID), effect
}

// farthest is the largest distance to the node at index i from nodes with CPUs, and its own.
func farthest(s *topo.Survey, i int) (far, near int) {
	for j, row := range s.Distance {
		if j >= len(s.Nodes) || i >= len(row) {
			break
		}
		if j == i {
			near = row[i]
		}
		if len(s.Nodes[j].CPUs) > 0 {
			far = max(far, row[i])
		}
	}
	return far, near
}

// badDistances finds tables that cannot be true: a node that is not its own nearest, or several nodes without any distance.
func badDistances(s *topo.Survey) (what, effect string) {
	if len(s.Distance) < 2 {
		return "", ""
	}
	flat := true
	for i, row := range s.Distance {
		if i >= len(row) {
			return "the table of distances between nodes has rows of different lengths", "who places memory by it places it wrongly"
		}
		for j, d := range row {
			if i != j && d < row[i] {
				return "the table of distances says that a node is nearer to another one than to itself",
					"who places memory by it places it wrongly"
			}
			flat = flat && d == s.Distance[0][0]
		}
	}
	if flat {
		return "all distances between nodes are equal", "nothing tells which memory is near"
	}
	return "", ""
}
