package template

import (
	"ck/internal/template/value"
)

// scope holds the variables of a template, loop body, macro or block; parent is the scope around it.
type scope struct {
	parent *scope
	names  []string
	vals   []value.Value
	index  map[string]int // of names, once there are many
}

func (s *scope) find(name string) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	for i, n := range s.names {
		if n == name {
			return i
		}
	}
	return -1
}

func (s *scope) set(name string, v value.Value) {
	if i := s.find(name); i >= 0 {
		s.vals[i] = v
		return
	}
	s.names, s.vals = append(s.names, name), append(s.vals, v)
	if s.index != nil {
		s.index[name] = len(s.names) - 1
	} else if len(s.names) > 12 {
		s.index = map[string]int{}
		for i, n := range s.names {
			s.index[n] = i
		}
	}
}

func (r *state) setVar(name string, v value.Value) {
	if len(r.scope.names) > 16 {
		r.Charge(value.CostItem)
	}
	r.scope.set(name, v)
}

// inScope runs f with a fresh scope inside of parent.
func (r *state) inScope(parent *scope, f func() flow) flow {
	saved := r.scope
	r.scope = &scope{parent: parent}
	fl := f()
	r.scope = saved
	return fl
}
