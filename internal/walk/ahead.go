package walk

import "ck/internal/plan"

// While a worker ends its part of a matmul it fetches the beginning of its part of the next one, which then is there behind the barrier (kernel.Matmul.Next).

// followers is for each item the next one whose weights a worker reads without a choice of experts; -1: there is none before the choice or the end.
func followers(items []plan.Item) []int {
	next := make([]int, len(items))
	after := -1
	for i := len(items) - 1; i >= 0; i-- {
		next[i] = after
		if it := &items[i]; it.Do.Shared {
			if after = i; it.Space.Used > 0 {
				after = -1
			}
		}
	}
	return next
}

// look prepares worker w for item i: up to which column panels of the item that it begins are its own, and where the next item's lie, if they are packed.
func (x *Walker) look(i int, wk *Worker, w int) {
	wk.upTo, wk.next = 0, nil
	j := x.followers[i]
	if j < 0 {
		return
	}
	it := &x.Plan.Items[j]
	s := wk.Slot(it.W[0])
	if s.Format.Direct || s.mem == nil {
		return
	}
	wk.part = x.Plan.Part(wk.part[:0], it, it.Out[0], w, x.crew(wk.member))
	if len(wk.part) == 0 || wk.part[0].Empty() || wk.part[0].C0 < s.R0 {
		return
	}
	if p := (wk.part[0].C0 - s.R0) / s.Format.PanelRows; p < s.panels() && s.state[p].Load() == packed {
		wk.next = s.mem[p*s.pb:]
	}
}

// reach is panels from p on of a slot, whose capacity reaches up to panel end if they lie where they stay.
func (s *Slot) reach(panels []byte, p, end int) []byte {
	n := len(panels)
	if s.mem != nil && n > 0 && &panels[0] == &s.mem[p*s.pb] {
		return s.mem[p*s.pb:][:n:max(n, (end-p)*s.pb)]
	}
	return panels[:n:n]
}
