package engine

import (
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

// bound is the machine as Options.NUMA leaves it, and sets where memory is taken.
func (e *Engine) bound() (topo.Machine, error) {
	mode, err := numa.ParseMode(e.opt.NUMA)
	if err != nil {
		return topo.Machine{}, &NodeError{err}
	}
	if mode.Policy == numa.FirstTouch {
		return topo.Live()
	}
	s, err := topo.Nodes()
	if err != nil {
		return topo.Machine{}, err
	}
	if mode.Policy == numa.Bind {
		m, err := s.Bound(mode.Nodes)
		if err != nil {
			return topo.Machine{}, &NodeError{err}
		}
		e.setPlace(mode)
		e.note("memory of %s alone, and the cores that work there", nodeList(mode.Nodes))
		return m, nil
	}
	homes, _ := s.Homes()
	for _, h := range homes {
		mode.Nodes = append(mode.Nodes, h.Nodes...)
	}
	if len(mode.Nodes) < 2 {
		e.warn("--numa interleave: there is one memory node to take memory of; it stays where it is touched first")
		return s.Machine, nil
	}
	e.setPlace(mode)
	e.note("memory of %s in turns", nodeList(mode.Nodes))
	return s.Machine, nil
}

// setPlace has memory taken so from now on. Whether the system lets it be placed is tried with a page: most memory is taken later, when nobody looks at
// warnings any more.
func (e *Engine) setPlace(mode numa.Mode) {
	e.place = mode
	if r, err := numa.Alloc(1, e.pages()); err == nil {
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
}

// Placed says on which nodes the memory of one kind lies.
type Placed struct {
	What string // "panels", "KV cache", "buffers"
	numa.Placement
	Err error // nothing could be found out
}

// Placement looks at all pages of the memory that the engine has taken, which takes 2 ms for each 64 MiB. Mapped files are the page cache's.
func (e *Engine) Placement() []Placed {
	var list []Placed
	add := func(what string, r *numa.Region) {
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
	}
	for _, r := range e.regions {
		add(r.what, r.Region)
	}
	if e.arena != nil {
		add("buffers", e.arena)
	}
	return list
}
