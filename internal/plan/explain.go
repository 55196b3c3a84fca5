package plan

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Explain prints the plan, one item a line: what is done, how it is cut over the workers, the weights' form, the buffers.
func (p *Plan) Explain(w io.Writer) error {
	meetings := p.Meetings()
	barriers := 0
	for _, n := range meetings {
		barriers += n
	}
	fmt.Fprintf(w, "plan %s: up to %d rows, %d workers, %d items, %d barriers, buffers %.1f MiB\n", p.Class, p.MaxRows, p.Workers,
		len(p.Items)-barriers, barriers, float64(p.Arena*p.Homes.Members+p.Common)/(1<<20))
	if p.Tokens {
		fmt.Fprintln(w, "rows are dealt to members")
	}
	if p.Homes != OneHome {
		fmt.Fprintf(w, "%d members of %d places; barriers of all %d, of a member %d, of a home %d\n", p.Homes.Members,
			p.Homes.Places, meetings[All], meetings[Member], meetings[Home])
	}
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	fmt.Fprintln(t, "item\tdoes\tname\tcut\tweight\treads\twrites")
	for i := range p.Items {
		it := &p.Items[i]
		if it.Do == Barrier {
			scope := ""
			if p.Homes != OneHome {
				scope = it.Scope.String()
			}
			fmt.Fprintf(t, "%d\t---- barrier\t%s\t\t\t\t\n", i, scope)
			continue
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", i, it.Do, it.Name, p.cutText(it), p.weightText(it), p.operands(it.In), p.operands(it.Out))
	}
	return t.Flush()
}

// Meetings is the number of barriers of each scope.
func (p *Plan) Meetings() (n [All + 1]int) {
	for i := range p.Items {
		if p.Items[i].Do == Barrier {
			n[p.Items[i].Scope]++
		}
	}
	return n
}

// cutText says how an item is cut, "56 x 256 cols".
func (p *Plan) cutText(it *Item) string {
	s := "rows"
	switch it.Cut.By {
	case Cols:
		s = fmt.Sprintf("%d x %d cols", it.Cut.N, it.Out[0].Unit)
		if it.Cut.Shared {
			s += ", shared"
		}
	case Tiles:
		s = fmt.Sprintf("%d heads x %d rows", it.Cut.N, TileRows)
	case Split:
		s = fmt.Sprintf("%d heads x chunks", it.Cut.N)
	}
	if p.Homes.Members > 1 {
		s += [...]string{Alike: "", Dealt: ", dealt", Shares: ", own cols"}[it.Cut.Over]
	}
	return s
}

// weightText names the weights with their shapes, types and forms.
func (p *Plan) weightText(it *Item) string {
	var t []string
	for _, id := range it.W {
		w := p.G.Weights[id]
		s := fmt.Sprintf("[%d,%d]", w.Rows, w.Cols)
		if w.Rows == 1 {
			s = fmt.Sprintf("[%d]", w.Cols)
		}
		if f := p.Formats[id]; f != nil && it.Do.Group == Products && id == it.W[0] {
			form := "panels"
			if f.Direct {
				form = "decoded"
			}
			s += fmt.Sprintf(" %s %s x %s", f.Type, form, f.Act)
			if m, ok := it.Op.(interface{ SliceCount() int }); ok && m.SliceCount() > 1 {
				s += fmt.Sprintf(" %d slices", m.SliceCount())
			}
		}
		t = append(t, s)
	}
	return strings.Join(t, " + ")
}

// operands lists buffers with their place in the arena.
func (p *Plan) operands(ops []Operand) string {
	var t []string
	for _, o := range ops {
		b := &p.Bufs[o.Buf]
		if b.Bytes == 0 {
			t = append(t, b.Name)
			continue
		}
		t = append(t, fmt.Sprintf("%s@%d", b.Name, b.Offset))
	}
	return strings.Join(t, ", ")
}
