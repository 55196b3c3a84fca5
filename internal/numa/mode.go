package numa

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Mode is where a program works and takes memory.
type Mode struct {
	Policy Policy // FirstTouch, Interleave or Bind
	Nodes  []int  // of Bind

	// Auto: the program chooses.
	Auto bool

	// TensorParallel: every home has a part of each weight.
	TensorParallel bool

	// Mirror: beside that every member has a copy of the parts of the others, which prompts read.
	Mirror bool
}

// Modes are the words of ParseMode.
const Modes = "auto, off, tp, interleave, mirror or bind=N[,M]"

// ParseMode reads a mode: "auto" lets the program choose, "off" leaves memory where it is touched first, "tp" gives every home a part of each weight,
// "mirror" does that and gives every member copies of all other parts, "interleave" spreads memory over the nodes of all homes, "bind=0,1" works at the
// homes of these nodes and takes memory there alone.
func ParseMode(s string) (Mode, error) {
	list, bind := strings.CutPrefix(s, "bind=")
	switch {
	case s == "" || s == "auto":
		return Mode{Auto: true}, nil
	case s == "off":
		return Mode{}, nil
	case s == "interleave":
		return Mode{Policy: Interleave}, nil
	case s == "tp":
		return Mode{TensorParallel: true}, nil
	case s == "mirror":
		return Mode{TensorParallel: true, Mirror: true}, nil
	case !bind:
		return Mode{}, fmt.Errorf("%q is no placement of memory; expected %s", s, Modes)
	}
	m := Mode{Policy: Bind}
	for _, word := range strings.Split(list, ",") {
		n, err := strconv.ParseUint(word, 10, 31)
		if err != nil || n >= maxNodes {
			return Mode{}, fmt.Errorf("%q: %q is no number of a memory node, 0 to %d", s, word, maxNodes-1)
		}
		if slices.Contains(m.Nodes, int(n)) {
			return Mode{}, fmt.Errorf("%q names node %d twice", s, n)
		}
		m.Nodes = append(m.Nodes, int(n))
	}
	return m, nil
}
