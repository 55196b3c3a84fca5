package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ck/internal/numa"
	"ck/internal/topo"
)

// NodeError says that the nodes of Options.NUMA cannot be had.
type NodeError struct{ Err error }

func (e *NodeError) Error() string { return "--numa: " + e.Err.Error() }
func (e *NodeError) Unwrap() error { return e.Err }

// bound is the machine as Options.NUMA leaves it, with the homes that are to have parts of the weights, and sets where memory is taken.
func (e *Engine) bound() (m topo.Machine, homes []home, err error) {
	mode, err := numa.ParseMode(e.opt.NUMA)
	if err != nil {
		return m, nil, &NodeError{err}
	}
	e.mirror = mode.Mirror
	if e.opt.Link != "" {
		if _, _, err := ParseLink(e.opt.Link); err != nil {
			return m, nil, &NodeError{fmt.Errorf("--link: %w", err)}
		}
		if e.opt.AsNodes == "" {
			return m, nil, &NodeError{errors.New("--link: says how far the nodes of --as-nodes are from each other; name those too")}
		}
	}
	if e.opt.AsNodes != "" {
		if m, err = topo.Live(); err == nil {
			homes, err = asNodes(e.opt.AsNodes, m)
		}
		switch {
		case err != nil:
			return m, nil, &NodeError{fmt.Errorf("--as-nodes: %w", err)}
		case mode.Policy != numa.FirstTouch:
			return m, nil, &NodeError{fmt.Errorf("%q with --as-nodes: its nodes have no memory of their own", e.opt.NUMA)}
		}
		if e.linked = homes; !mode.TensorParallel {
			homes = nil
		}
		return m, homes, nil
	}
	if mode.Policy == numa.FirstTouch && !mode.TensorParallel {
		if m, err = topo.Live(); err != nil || !mode.Auto || e.opt.Judge == nil || !m.HasHomes() {
			return m, nil, err
		}
	}
	s, err := topo.Nodes()
	if err != nil {
		return m, nil, err
	}
	m = s.Machine
	if mode.Auto {
		homes, notes := homesOf(&s)
		if len(homes) < 2 {
			return m, nil, nil
		}
		e.Notes = append(e.Notes, notes...)
		if e.prefersHomes(m, homes) {
			e.tryPlace(e.options(&shelf{nodes: homes[0].nodes[:1]}))
			return m, homes, nil
		}
		most := homes[0] // one home does all
		for _, h := range homes {
			if len(h.cpus) > len(most.cpus) {
				most = h
			}
		}
		m.Affinity = append(slices.Clone(most.cpus), most.siblings...)
		slices.Sort(m.Affinity)
		return m, nil, nil
	}
	if mode.Policy == numa.Bind {
		if m, err = s.Bound(mode.Nodes); err != nil {
			return m, nil, &NodeError{err}
		}
		homes, _ := homesOf(&s)
		all := mode.Nodes
		mode.Nodes = slices.DeleteFunc(slices.Clone(all), func(id int) bool {
			return !slices.ContainsFunc(homes, func(h home) bool { return slices.Contains(h.nodes, id) })
		})
		for _, id := range all {
			if !slices.Contains(mode.Nodes, id) {
				e.slow = append(e.slow, id)
			}
		}
		e.setPlace(mode)
		e.note("memory of %s alone, and the cores that work there", nodeList(all))
		return m, nil, nil
	}
	homes, notes := homesOf(&s)
	if mode.TensorParallel {
		if len(homes) < 2 {
			e.warn("--numa %s: this machine has one home, a memory node with cores of this process; it does all", e.opt.NUMA)
			e.mirror = false
			return m, nil, nil
		}
		e.Notes = append(e.Notes, notes...)
		e.tryPlace(e.options(&shelf{nodes: homes[0].nodes[:1]}))
		return m, homes, nil
	}
	for _, h := range homes {
		mode.Nodes = append(mode.Nodes, h.nodes...)
	}
	if len(mode.Nodes) < 2 {
		e.warn("--numa interleave: there is one memory node to take memory of; it stays where it is touched first")
		return m, nil, nil
	}
	e.setPlace(mode)
	e.note("memory of %s in turns", nodeList(mode.Nodes))
	return m, nil, nil
}

// setPlace has memory taken so from now on.
func (e *Engine) setPlace(mode numa.Mode) {
	e.place = mode
	e.tryPlace(e.pages())
}

// tryPlace tries with a page whether the system lets memory be placed: most is taken later, when nobody looks at warnings any more.
func (e *Engine) tryPlace(opt numa.Options) {
	if r, err := numa.Alloc(1, opt); err == nil {
		if err := r.Misplaced(); err != nil {
			e.warn("--numa: %v", err)
		}
		r.Free()
	}
}

func nodeList(nodes []int) string {
	name := "nodes "
	if len(nodes) == 1 {
		name = "node "
	}
	return name + strings.ReplaceAll(strings.Trim(fmt.Sprint(nodes), "[]"), " ", ", ")
}

// held is memory that the engine keeps until it is closed.
type held struct {
	*numa.Region
	what string // "panels", "KV cache"
	at   []int  // nodes of the home that reads it; none: no one in particular
}

// Placed says on which nodes the memory of one kind lies.
type Placed struct {
	What string // "panels", "KV cache", "buffers"
	numa.Placement
	Homed, Home int   // pages that one home reads; those of them that lie on its nodes
	Err         error // nothing could be found out
}

// Placement looks at all pages of the memory that the engine has taken, which takes 2 ms for each 64 MiB. Mapped files are the page cache's.
func (e *Engine) Placement() []Placed {
	var list []Placed
	add := func(what string, r *numa.Region, at []int) {
		pl, err := r.Where(0, len(r.Bytes()))
		i := slices.IndexFunc(list, func(p Placed) bool { return p.What == what })
		if i < 0 {
			i = len(list)
			list = append(list, Placed{What: what})
		}
		if err != nil {
			list[i].Err = err
			return
		}
		list[i].Add(pl)
		for node, n := range pl.OnNode {
			if len(at) > 0 {
				list[i].Homed += n
				if slices.Contains(at, node) {
					list[i].Home += n
				}
			}
		}
	}
	for _, r := range e.regions {
		add(r.what, r.Region, r.at)
	}
	for m, r := range e.arenas {
		var at []int
		if m < e.layout.Members {
			at = e.nodesOf(m*e.layout.Places, (m+1)*e.layout.Places)
		}
		add("buffers", r, at)
	}
	return list
}
