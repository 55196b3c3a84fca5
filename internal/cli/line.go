package cli

import (
	"strings"
	"unicode/utf8"
)

// lineBytes is the most that an error or a warning is long, with the program's name and without the line end.
const lineBytes = 399

// cutLine cuts a line that is too long, at a character. What to do, behind the last "; ", is kept where it is short.
func cutLine(s string, limit int) string {
	const dots, remedyBytes = " … ", 120
	if len(s) <= limit {
		return s
	}
	tail := ""
	if i := strings.LastIndex(s, "; "); i > 0 && len(s)-i <= remedyBytes && len(s)-i+len(dots) < limit {
		tail = s[i:]
	}
	n := limit - len(dots) - len(tail)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimRight(s[:n]+dots, " ") + tail
}
