package lineedit

import (
	"bytes"
	"fmt"
)

// screen is what the terminal shows of the message. It draws what changed.
//
// Rows are ours: each is written without the terminal's own wrapping, which is off meanwhile, and the cursor is placed by writing what stands
// left of it once more. So a terminal that takes a character for wider or narrower than we do shows it in its own way, and nothing else is
// corrupted.
type screen struct {
	width, height int
	top           int   // of the layout's rows, the first one that is shown
	rows          []row // as they are on the terminal
	row           int   // of the cursor, among them
	left          row   // what stands left of the cursor
}

const (
	wrapOff = "\x1b[?7l"
	wrapOn  = "\x1b[?7h"
)

// draw writes what changes the terminal from the last layout to l. Of a message that is higher than the screen it shows the part with
// the cursor, or, if all, everything.
func (s *screen) draw(w *bytes.Buffer, l *layout, all bool) {
	s.top = min(s.top, l.row)
	s.top = max(s.top, l.row-s.height+1, 0)
	rows := l.rows[s.top:min(s.top+s.height, len(l.rows))]
	if all {
		rows, s.top = l.rows, 0
	}
	same := 0
	for same < len(rows) && same < len(s.rows) && rows[same] == s.rows[same] {
		same++
	}
	at := l.row - s.top
	drawn := same < len(rows) || same < len(s.rows)
	if !drawn && at == s.row && l.left == s.left {
		return
	}
	fmt.Fprint(w, wrapOff)
	if drawn {
		same = min(same, max(len(s.rows)-1, 0), len(rows)-1)
		s.move(w, same)
		fmt.Fprint(w, "\r\x1b[J")
		for i, r := range rows[same:] {
			if i > 0 {
				fmt.Fprint(w, "\r\n")
			}
			fmt.Fprint(w, r.text)
		}
		s.row = len(rows) - 1
		s.rows = append(s.rows[:0], rows...)
	}
	if !drawn || at != s.row || l.left != rows[at] { // else the cursor is where the text ends
		s.move(w, at)
		fmt.Fprint(w, "\r", l.left.text)
	}
	fmt.Fprint(w, wrapOn)
	s.left = l.left
}

// move puts the cursor into another row.
func (s *screen) move(w *bytes.Buffer, to int) {
	switch d := to - s.row; {
	case d < 0:
		fmt.Fprintf(w, "\x1b[%dA", -d)
	case d > 0:
		fmt.Fprintf(w, "\x1b[%dB", d)
	}
	s.row = to
}

// resize removes the message from a terminal that has a new size. Terminals break rows that became too long for them; the cursor goes
// with its text.
func (s *screen) resize(w *bytes.Buffer, width, height int) {
	above := s.left.cells / max(width, 1)
	for _, r := range s.rows[:min(s.row, len(s.rows))] {
		above += max(r.cells-1, 0)/max(width, 1) + 1
	}
	s.row = min(above, max(height-1, 0))
	s.wipe(w)
	s.width, s.height = width, max(height, 1)
}

// wipe removes the message.
func (s *screen) wipe(w *bytes.Buffer) {
	s.move(w, 0)
	fmt.Fprint(w, "\r\x1b[J")
	s.forget()
}

// clear empties the whole screen.
func (s *screen) clear(w *bytes.Buffer) {
	fmt.Fprint(w, "\x1b[H\x1b[2J")
	s.forget()
}

func (s *screen) forget() { s.rows, s.row, s.left, s.top = s.rows[:0], 0, row{}, 0 }
