package corpus

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"ck/internal/generate"
	"ck/internal/plaintext"
)

// A Slot is so many tokens: sequences, one behind the other, each from position 0 on, and padding.
type Slot struct {
	IDs, Pos []int32
	Seq      []int32 // of the slot; -1: padding
	Loss     []bool  // the token is to be predicted from those before it
}

// epoch is the examples of each slot of a pass over the data.
type epoch struct {
	slots [][]int32
	first int // slot of the run
}

// openSlots is how many slots examples are put into at once: the first that has room.
const openSlots = 64

// pack deals examples to slots in an order: a function of the seed and the number of the epoch.
func (c *Corpus) pack(l *List, order []int) (slots [][]int32) {
	var open []int // slots with room
	room := map[int]int{}
	for _, i := range order {
		ids, _ := l.at(i)
		at := -1
		if c.opt.Pack {
			for k, s := range open {
				if room[s] >= len(ids) {
					if at = s; room[s]-len(ids) < 2 {
						open = append(open[:k], open[k+1:]...)
					}
					break
				}
			}
		}
		if at < 0 {
			at = len(slots)
			slots = append(slots, nil)
			if room[at] = c.opt.Tokens; c.opt.Pack {
				if open = append(open, at); len(open) > openSlots {
					open = open[1:]
				}
			}
		}
		slots[at] = append(slots[at], int32(i))
		room[at] -= len(ids)
	}
	return slots
}

// epochAt is the epoch that slot n of the run is of.
func (c *Corpus) epochAt(n int) *epoch {
	for {
		for i := range c.epochs {
			if e := &c.epochs[i]; n >= e.first && n < e.first+len(e.slots) {
				return e
			}
		}
		number, first := 0, 0
		if k := len(c.epochs); k > 0 {
			number, first = k, c.epochs[k-1].first+len(c.epochs[k-1].slots)
		}
		rng := rand.New(rand.NewPCG(c.opt.Seed, uint64(number)))
		c.epochs = append(c.epochs, epoch{c.pack(&c.Train, rng.Perm(c.Train.Len())), first})
	}
}

// Epoch is the pass over the data that slot n of the run is of, counted from 0, and the share of it that lies before the slot.
func (c *Corpus) Epoch(n int) float64 {
	e := c.epochAt(n)
	for i := range c.epochs {
		if &c.epochs[i] == e {
			return float64(i) + float64(n-e.first)/float64(len(e.slots))
		}
	}
	return 0
}

// Slot is slot n of the run, counted from 0: a function of the seed, the data and n alone.
func (c *Corpus) Slot(n int) Slot {
	e := c.epochAt(n)
	return c.fill(&c.Train, e.slots[n-e.first])
}

// ValSlots are the slots of what is held out, at most so many.
func (c *Corpus) ValSlots(most int) (slots []Slot) {
	order := make([]int, c.Val.Len())
	for i := range order {
		order[i] = i
	}
	for _, s := range c.pack(&c.Val, order) {
		if len(slots) == most {
			break
		}
		slots = append(slots, c.fill(&c.Val, s))
	}
	return slots
}

// Empty is a slot of padding.
func (c *Corpus) Empty() Slot { return c.fill(&c.Train, nil) }

func (c *Corpus) fill(l *List, examples []int32) Slot {
	n := c.opt.Tokens
	s := Slot{make([]int32, 0, n), make([]int32, 0, n), make([]int32, 0, n), make([]bool, 0, n)}
	for seq, i := range examples {
		ids, loss := l.at(int(i))
		for pos, id := range ids {
			s.IDs, s.Pos, s.Seq, s.Loss = append(s.IDs, id), append(s.Pos, int32(pos)), append(s.Seq, int32(seq)), append(s.Loss, loss[pos])
		}
	}
	for pos := int32(0); len(s.IDs) < n; pos++ {
		s.IDs, s.Pos, s.Seq, s.Loss = append(s.IDs, 0), append(s.Pos, pos), append(s.Seq, -1), append(s.Loss, false)
	}
	return s
}

// Show writes a slot as people read it: a line for each sequence with its number and tokens, then the text, in which what counts in the loss is
// marked: in colour, or with «».
func (s *Slot) Show(w io.Writer, m *generate.Model, colour bool) error {
	var b strings.Builder
	for i := 0; i < len(s.IDs); {
		j, counts := i, 0
		for ; j < len(s.IDs) && s.Seq[j] == s.Seq[i]; j++ {
			if s.Loss[j] {
				counts++
			}
		}
		if s.Seq[i] < 0 {
			fmt.Fprintf(&b, "padding: %d tokens\n", j-i)
			break
		}
		fmt.Fprintf(&b, "sequence %d: %d tokens, %d to predict\n", s.Seq[i], j-i, counts)
		on := false
		mark := func(loss bool) {
			switch {
			case loss == on:
			case colour && loss:
				b.WriteString("\x1b[32m")
			case colour:
				b.WriteString("\x1b[0m")
			case loss:
				b.WriteString("«")
			default:
				b.WriteString("»")
			}
			on = loss
		}
		for from := i; from < j; {
			to := from
			for to < j && s.Loss[to] == s.Loss[from] {
				to++
			}
			mark(s.Loss[from])
			for _, id := range s.IDs[from:to] {
				b.WriteString(plaintext.Escape(m.Tok.Piece(id)))
			}
			from = to
		}
		mark(false)
		b.WriteString("\n")
		i = j
	}
	_, err := io.WriteString(w, b.String())
	return err
}
