package train

import (
	"fmt"
	"slices"
	"strconv"

	"ck/internal/topo"
)

// A Place is where a replica works.
type Place struct {
	CPUs   []int // of its workers; several may be the same one
	Nodes  []int // where its memory lies; none: where it is touched first
	Shared bool  // another replica has workers on its CPUs
}

// maxReplicas is more than any machine has sockets.
const maxReplicas = 1024

// Places deals the CPUs of workers to replicas: "socket" and "node" have one at each, a number so many. A home of a machine is cores and the memory beside
// them; a replica has memory of the homes of its CPUs, unless there is one for all. threads is how many workers all replicas have together, at least one
// each; 0: as many as the machine grants. Where there are fewer CPUs than replicas these share them. notes say what of the machine is left out.
func Places(s *topo.Survey, how string, threads int) (places []Place, notes []string, err error) {
	cpus, _ := s.Workers()
	if threads > 0 {
		cpus = s.CPUsFor(threads)
	}
	homes, notes := s.Homes()
	switch how {
	case "node":
		places = dealt(homes, len(cpus))
	case "socket":
		places = dealt(sockets(s, homes), len(cpus))
	default:
		n, err := strconv.Atoi(how)
		if err != nil || n < 1 || n > maxReplicas {
			return nil, nil, fmt.Errorf("%q: expected socket, node or a number of replicas from 1 to %d", how, maxReplicas)
		}
		for r := range n {
			p := Place{CPUs: cpus[len(cpus)*r/n : len(cpus)*(r+1)/n]}
			if len(cpus) < n {
				p.CPUs = cpus[len(cpus)*r/n:][:1]
			}
			places = append(places, p)
		}
	}
	users := map[int]int{}
	for i := range places {
		p := &places[i]
		for _, h := range homes {
			works := func(id int) bool { return slices.Contains(h.Cores, id) || slices.Contains(h.Siblings, id) }
			if len(homes) > 1 && len(places) > 1 && slices.ContainsFunc(p.CPUs, works) {
				p.Nodes = append(p.Nodes, h.Nodes...)
			}
		}
		for _, id := range slices.Compact(slices.Sorted(slices.Values(p.CPUs))) {
			users[id]++
		}
	}
	for i := range places {
		places[i].Shared = slices.ContainsFunc(places[i].CPUs, func(id int) bool { return users[id] > 1 })
	}
	return places, notes, nil
}

// Lacks says, a line each, which nodes have no room for the replicas there, which take so much each; values and moments are there once, in even shares.
func Lacks(places []Place, each Memory) []string { return lacks(places, each, roomOf) }

// lacks is Lacks where nodes have room for so many bytes; below zero: nothing tells.
func lacks(places []Place, each Memory, room func(nodes []int) int64) (lines []string) {
	all := each.Times(len(places))
	own := (all.Total() - all.Decode - all.Rest) / int64(len(places)) // these two lie anywhere
	for i, p := range places {
		if len(p.Nodes) == 0 || slices.ContainsFunc(places[:i], func(o Place) bool { return slices.Equal(o.Nodes, p.Nodes) }) {
			continue
		}
		there := int64(0)
		for _, o := range places {
			if len(o.Nodes) > 0 && !slices.ContainsFunc(o.Nodes, func(node int) bool { return !slices.Contains(p.Nodes, node) }) {
				there++
			}
		}
		if left := room(p.Nodes); left >= 0 && there*own > left {
			lines = append(lines, fmt.Sprintf("replicas take %s at nodes %s, which have room for %s", size(there*own), list(p.Nodes), size(left)))
		}
	}
	return lines
}

// size is a number of bytes in words.
func size(n int64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%.0f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// dealt gives each home an even share of so many workers, at least one: on its cores first, then on their siblings, then all over again.
func dealt(homes []topo.Home, workers int) (places []Place) {
	for h, home := range homes {
		on := append(slices.Clone(home.Cores), home.Siblings...)
		p := Place{}
		for i := range max(1, workers*(h+1)/len(homes)-workers*h/len(homes)) {
			p.CPUs = append(p.CPUs, on[i%len(on)])
		}
		places = append(places, p)
	}
	return places
}

// sockets puts homes of one package together. One whose package is not told is a socket of its own.
func sockets(s *topo.Survey, homes []topo.Home) (list []topo.Home) {
	at := map[int]int{}
	for _, h := range homes {
		pack := -1
		for _, c := range s.CPUs {
			if c.ID == h.Cores[0] {
				pack = c.Package
			}
		}
		i, ok := at[pack]
		if !ok || pack < 0 {
			at[pack] = len(list)
			list = append(list, topo.Home{})
			i = len(list) - 1
		}
		x := &list[i]
		x.Nodes, x.Cores, x.Siblings = append(x.Nodes, h.Nodes...), append(x.Cores, h.Cores...), append(x.Siblings, h.Siblings...)
	}
	return list
}
