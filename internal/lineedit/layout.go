package lineedit

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
)

// row is one row of the screen.
type row struct {
	text  string
	cells int
}

// layout puts text into rows of the screen.
type layout struct {
	width int
	rows  []row
	// the cursor: its row, and what stands left of it
	row  int
	left row
}

const (
	widthMin = 12 // cells; narrower terminals cut rows off
	tabCells = 8
	lineEnd  = "⏎" // of a line within a message that is shown on one line
)

// put adds a text. Line ends begin a row with more before it; if flat, they are shown as a sign. The cursor stands before byte pos, or
// behind the text; below 0 it is elsewhere.
func (l *layout) put(text, more string, flat bool, pos int) {
	if len(l.rows) == 0 {
		l.rows = append(l.rows, row{})
	}
	state := -1
	for at := 0; at < len(text); {
		var c string
		var cells int
		c, _, cells, state = uniseg.FirstGraphemeClusterInString(text[at:], state)
		here := at == pos
		at += len(c)
		switch {
		case c != "\n":
			l.cluster(c, cells, here)
		case flat:
			l.cluster(lineEnd, 1, here)
		default:
			if here {
				l.room(1)
				l.mark()
			}
			l.rows = append(l.rows, row{})
			l.put(more, "", true, -1)
		}
	}
	if pos == len(text) {
		l.room(1)
		l.mark()
	}
}

// cluster adds one character as people count them, with the cursor on it if here.
func (l *layout) cluster(c string, cells int, here bool) {
	s, w := show(c, cells, l.rows[len(l.rows)-1].cells)
	if l.room(w) {
		s, w = show(c, cells, 0)
	}
	if here {
		l.mark()
	}
	last := &l.rows[len(l.rows)-1]
	last.text += s
	last.cells += w
}

// room begins a row if so many cells do not fit into the last one.
func (l *layout) room(cells int) bool {
	last := l.rows[len(l.rows)-1]
	if last.cells == 0 || last.cells+cells <= l.width {
		return false
	}
	l.rows = append(l.rows, row{})
	return true
}

func (l *layout) mark() {
	l.row = len(l.rows) - 1
	l.left = l.rows[l.row]
}

// show is what a grapheme cluster looks like, and its width. Nothing that a terminal obeys comes out: control characters are ^X, and those
// that have no width, or turn the direction of text, are \uXXXX.
func show(c string, cells, column int) (string, int) {
	if len(c) == 1 && c[0] >= ' ' && c[0] < 0x7f {
		return c, 1
	}
	if c == "\t" {
		n := tabCells - column%tabCells
		return strings.Repeat(" ", n), n
	}
	hidden, first := false, rune(0)
	for i, r := range c {
		if i == 0 {
			first = r
		}
		hidden = hidden || obeyed(r)
	}
	switch {
	case !hidden && cells > 0:
		return c, cells
	case !hidden && unicode.Is(unicode.M, first):
		return "◌" + c, 1
	}
	var b strings.Builder
	for _, r := range c {
		switch {
		case r < ' ' || r == 0x7f:
			b.WriteString("^" + string(r^0x40))
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case r < 0x7f:
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String(), b.Len()
}

// obeyed reports whether a terminal, or the eye, may take r for more than a sign. Joiners and tags are parts of emoji and of scripts.
func obeyed(r rune) bool {
	if r == 0x200c || r == 0x200d || r >= 0xe0020 && r <= 0xe007f {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
