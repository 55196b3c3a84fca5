package lineedit

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// Event is what a key came to, beyond a change of the text.
type Event int

const (
	None      Event = iota
	Sent            // the message is complete: Editor.Message
	End             // Ctrl-D in an empty line
	Interrupt       // Ctrl-C in an empty line
	Suspend         // Ctrl-Z
	Clear           // Ctrl-L: the screen is drawn anew
)

// Editor is one message while it is typed: keys change it, Rows show it. It knows no terminal.
type Editor struct {
	Prompt, More string                       // before the first line, and before further ones
	Complete     func(before string) []string // what could stand in place of the text before the cursor; nil: nothing
	Past         []string                     // messages, oldest first

	text   string
	pos    int    // byte offset of the cursor, at the beginning of a grapheme cluster
	flat   bool   // line ends are shown as ⏎, and Up leads to older messages: one came back
	at     int    // which of Past is shown; len(Past): none
	draft  string // what was typed before Past was looked at
	note   string // below the text until the next key
	killed string
	chain  bool // the last key killed: the next kill adds to it
	full   bool // the rest of a paste is left out
	find   *find
}

// find is a search in Past for what is typed.
type find struct {
	query string
	at    int  // of the match
	miss  bool // nothing matches
	// as it was before
	text string
	pos  int
	flat bool
}

// textMax bounds a message; larger texts come from files.
const textMax = 1 << 20

// Begin starts a new message.
func (e *Editor) Begin() {
	*e = Editor{Prompt: e.Prompt, More: e.More, Complete: e.Complete, Past: e.Past, killed: e.killed, at: len(e.Past)}
}

// Message is the text so far.
func (e *Editor) Message() string { return e.text }

// Remember adds a message to Past, unless it is blank or the last one again. It reports whether it did.
func (e *Editor) Remember(text string) bool {
	if strings.TrimSpace(text) == "" || len(e.Past) > 0 && e.Past[len(e.Past)-1] == text {
		return false
	}
	e.Past = append(e.Past, text)
	e.Past = e.Past[max(len(e.Past)-HistoryMax, 0):]
	return true
}

// bindings are the keys that do one thing. Those of readline's emacs mode, as shells have them.
var bindings = map[string]func(*Editor){
	"left": (*Editor).left, "ctrl-b": (*Editor).left,
	"right": (*Editor).right, "ctrl-f": (*Editor).right,
	"home": (*Editor).home, "ctrl-a": (*Editor).home,
	"end": (*Editor).end, "ctrl-e": (*Editor).end,
	"word-left": (*Editor).wordLeft, "alt-b": (*Editor).wordLeft,
	"word-right": (*Editor).wordRight, "alt-f": (*Editor).wordRight,
	"up": (*Editor).up, "ctrl-p": (*Editor).up,
	"down": (*Editor).down, "ctrl-n": (*Editor).down,
	"delete":    func(e *Editor) { e.cut(e.pos, e.next(e.pos)) },
	"backspace": func(e *Editor) { e.cut(e.prev(e.pos), e.pos) },
	"ctrl-t":    (*Editor).transpose,
	"ctrl-y":    func(e *Editor) { e.insert(e.killed) },
	"tab":       (*Editor).complete,
	"ctrl-r":    (*Editor).search,
	"alt-enter": func(e *Editor) { e.insert("\n") },
}

// kills are the keys that cut text which Ctrl-Y brings back: from, to.
var kills = map[string]func(*Editor) (int, int){
	"ctrl-k": func(e *Editor) (int, int) {
		if end := e.lineEnd(e.pos); end > e.pos {
			return e.pos, end
		}
		return e.pos, min(e.pos+1, len(e.text)) // the line's end itself
	},
	"ctrl-u": func(e *Editor) (int, int) { return e.lineStart(e.pos), e.pos },
	"ctrl-w": func(e *Editor) (int, int) {
		return e.back(e.pos, func(c string) bool { return strings.TrimSpace(c) != "" }), e.pos
	},
	"alt-backspace": func(e *Editor) (int, int) { return e.back(e.pos, inWord), e.pos },
	"alt-d":         func(e *Editor) (int, int) { return e.pos, e.forth(e.pos, inWord) },
	"word-delete":   func(e *Editor) (int, int) { return e.pos, e.forth(e.pos, inWord) },
}

// press handles one key.
func (e *Editor) press(k key) Event {
	switch full := e.full && k.name == "paste"; {
	case k.name == "", full:
		return None
	case k.name == "paste-end":
		e.full = false
		return None
	}
	e.note, e.full = "", false
	if e.find != nil && e.searching(k) {
		return None
	}
	chain := e.chain
	e.chain = false
	if f, ok := kills[k.name]; ok {
		from, to := f(e)
		e.kill(from, to, chain)
		return None
	}
	if f, ok := bindings[k.name]; ok {
		f(e)
		return None
	}
	switch k.name {
	case "text", "paste":
		e.insert(k.text)
	case "enter":
		return e.enter()
	case "ctrl-c":
		if !e.Drop() {
			return Interrupt
		}
	case "ctrl-d":
		if e.text == "" {
			return End
		}
		e.cut(e.pos, e.next(e.pos))
	case "ctrl-l":
		return Clear
	case "ctrl-z":
		return Suspend
	}
	return None
}

// Drop empties the message, for Ctrl-Y to bring back. It is false if there was none.
func (e *Editor) Drop() bool {
	if e.find != nil {
		e.stopSearch(false)
	}
	if e.text == "" {
		return false
	}
	text := e.text
	e.Begin()
	e.killed = text
	return true
}

// enter sends the message, unless a backslash at its end says that it goes on.
func (e *Editor) enter() Event {
	e.pos = len(e.text)
	if head, goesOn := strings.CutSuffix(e.text, `\`); goesOn {
		e.text, e.pos = head, len(head)
		e.insert("\n")
		return None
	}
	return Sent
}

func (e *Editor) insert(s string) {
	if len(e.text)+len(s) > textMax {
		e.note, e.full = "[a message has at most 1 MiB; what does not fit is left out]", true
		return
	}
	e.text = e.text[:e.pos] + s + e.text[e.pos:]
	e.pos += len(s)
	e.snap()
}

// cut removes text[from:to] and leaves the cursor there.
func (e *Editor) cut(from, to int) {
	e.text = e.text[:from] + e.text[to:]
	e.pos = from
	e.snap()
}

// snap moves the cursor to the end of the cluster that it is in: what was typed may have joined what stood beside it.
func (e *Editor) snap() {
	i := e.apart(e.pos)
	for i < e.pos {
		i = e.next(i)
	}
	e.pos = i
}

func (e *Editor) kill(from, to int, chain bool) {
	piece := e.text[from:to]
	switch {
	case piece == "":
		e.chain = chain
		return
	case !chain:
		e.killed = piece
	case from < e.pos:
		e.killed = piece + e.killed
	default:
		e.killed += piece
	}
	e.chain = true
	e.cut(from, to)
}

// apart is a place at or before i where a cluster begins, whatever stands around: between two characters of ASCII, or a line's beginning.
func (e *Editor) apart(i int) int {
	ascii := func(c byte) bool { return c >= ' ' && c < 0x7f }
	start := e.lineStart(i)
	for i > start && (i == len(e.text) || !ascii(e.text[i-1]) || !ascii(e.text[i])) {
		i--
	}
	return i
}

// next is where the cluster behind i ends, prev where the one before i begins.
func (e *Editor) next(i int) int {
	c, _, _, _ := uniseg.FirstGraphemeClusterInString(e.text[i:], -1)
	return i + len(c)
}

func (e *Editor) prev(i int) int {
	if i == e.lineStart(i) {
		return max(i-1, 0)
	}
	at := e.apart(i - 1)
	for {
		n := e.next(at)
		if n >= i {
			return at
		}
		at = n
	}
}

// lineStart and lineEnd are those of the line with i; of the whole message where it is shown as one.
func (e *Editor) lineStart(i int) int {
	if e.flat {
		return 0
	}
	return strings.LastIndexByte(e.text[:i], '\n') + 1
}

func (e *Editor) lineEnd(i int) int {
	if n := strings.IndexByte(e.text[i:], '\n'); n >= 0 && !e.flat {
		return i + n
	}
	return len(e.text)
}

func (e *Editor) left()  { e.pos = e.prev(e.pos) }
func (e *Editor) right() { e.pos = e.next(e.pos) }

func (e *Editor) home() { e.pos = e.lineStart(e.pos) }
func (e *Editor) end()  { e.pos = e.lineEnd(e.pos) }

func (e *Editor) wordLeft()  { e.pos = e.back(e.pos, inWord) }
func (e *Editor) wordRight() { e.pos = e.forth(e.pos, inWord) }

func inWord(c string) bool {
	return strings.IndexFunc(c, func(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.M) }) == 0
}

// back is where the word before i begins, forth where the one behind i ends.
func (e *Editor) back(i int, word func(string) bool) int {
	starts := e.clusters(0, i)
	n := len(starts) - 1
	is := func(n int) bool { return word(e.text[starts[n-1]:starts[n]]) }
	for n > 0 && !is(n) {
		n--
	}
	for n > 0 && is(n) {
		n--
	}
	return starts[n]
}

func (e *Editor) forth(i int, word func(string) bool) int {
	is := func() bool { return word(e.text[i:e.next(i)]) }
	for i < len(e.text) && !is() {
		i = e.next(i)
	}
	for i < len(e.text) && is() {
		i = e.next(i)
	}
	return i
}

// clusters is where clusters begin in text[from:to], and to.
func (e *Editor) clusters(from, to int) []int {
	var at []int
	for ; from < to; from = e.next(from) {
		at = append(at, from)
	}
	return append(at, to)
}

// transpose swaps the clusters around the cursor, at the line's end the two before it.
func (e *Editor) transpose() {
	i := e.pos
	if i == e.lineEnd(i) && i > 0 {
		i = e.prev(i)
	}
	if i <= e.lineStart(i) {
		return
	}
	from, to := e.prev(i), e.next(i)
	e.text = e.text[:from] + e.text[i:to] + e.text[from:i] + e.text[to:]
	e.pos = to
	e.snap()
}

// up and down move between the lines of a message, and beyond its first and last one to older and newer messages.
func (e *Editor) up() {
	if start := e.lineStart(e.pos); !e.flat && start > 0 {
		e.line(e.lineStart(start-1), e.cellsBefore())
		return
	}
	e.recall(e.at - 1)
}

func (e *Editor) down() {
	if end := e.lineEnd(e.pos); !e.flat && end < len(e.text) {
		e.line(end+1, e.cellsBefore())
		return
	}
	e.recall(e.at + 1)
}

// cellsBefore is how far the cursor stands from its line's beginning.
func (e *Editor) cellsBefore() int {
	return uniseg.StringWidth(e.text[e.lineStart(e.pos):e.pos])
}

// line moves the cursor into the line that begins at start, so many cells from there or to its end.
func (e *Editor) line(start, cells int) {
	e.pos = start
	for end := e.lineEnd(start); e.pos < end; {
		n := e.next(e.pos)
		if uniseg.StringWidth(e.text[start:n]) > cells {
			return
		}
		e.pos = n
	}
}

// recall shows a message of Past, or again what was typed before.
func (e *Editor) recall(at int) {
	if at < 0 || at > len(e.Past) {
		return
	}
	if e.at == len(e.Past) {
		e.draft = e.text
	}
	e.at = at
	if at == len(e.Past) {
		e.show(e.draft, len(e.draft))
		e.flat = false
		return
	}
	e.show(e.Past[at], len(e.Past[at]))
}

// show takes a message of Past over.
func (e *Editor) show(text string, pos int) {
	e.text, e.pos, e.flat = text, pos, true
	e.snap()
}

// complete replaces what stands before the cursor with what all candidates begin with; if that is nothing new, it lists them.
func (e *Editor) complete() {
	if e.Complete == nil {
		return
	}
	list := e.Complete(e.text[:e.pos])
	if len(list) == 0 {
		return
	}
	common := list[0]
	for _, s := range list {
		for !strings.HasPrefix(s, common) {
			_, n := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-n]
		}
	}
	if len(list) > 1 && len(common) <= e.pos {
		e.note = "[" + strings.Join(strings.Fields(strings.Join(list, " ")), "  ") + "]"
		return
	}
	e.text, e.pos = common+e.text[e.pos:], len(common)
	e.snap()
}

// search starts looking for older messages.
func (e *Editor) search() {
	e.find = &find{at: len(e.Past), text: e.text, pos: e.pos, flat: e.flat}
}

// searching handles a key of a search. It is false for keys that end the search and do what they always do.
func (e *Editor) searching(k key) bool {
	f := e.find
	switch k.name {
	case "text", "paste":
		f.query += strings.ReplaceAll(k.text, "\n", " ")
		e.match(min(f.at, len(e.Past)-1), -1)
	case "backspace":
		if f.query != "" {
			edit := Editor{text: f.query}
			f.query = f.query[:edit.prev(len(f.query))]
			e.match(len(e.Past)-1, -1)
		}
	case "ctrl-r":
		e.match(f.at-1, -1)
	case "ctrl-s":
		e.match(f.at+1, 1)
	case "ctrl-g", "ctrl-c":
		e.stopSearch(false)
	case "esc":
		e.stopSearch(true)
	case "tab", "ctrl-l", "ctrl-z":
		return k.name == "tab"
	default:
		e.stopSearch(true)
		return false
	}
	return true
}

// match looks for the query from Past[at] on, in steps of step.
func (e *Editor) match(at, step int) {
	f := e.find
	if f.query == "" {
		return
	}
	for ; at >= 0 && at < len(e.Past); at += step {
		if i := strings.LastIndex(e.Past[at], f.query); i >= 0 {
			f.at, f.miss = at, false
			e.show(e.Past[at], i)
			return
		}
	}
	f.miss = true
}

// stopSearch goes on with the match, or with what was there before.
func (e *Editor) stopSearch(take bool) {
	f := e.find
	e.find = nil
	if !take || f.at == len(e.Past) {
		e.text, e.pos, e.flat = f.text, f.pos, f.flat
		return
	}
	if e.at == len(e.Past) {
		e.draft = f.text
	}
	e.at = f.at
}

// rows lay the message out for a screen of so many cells.
func (e *Editor) rows(width int) *layout {
	l := &layout{width: max(width, widthMin)}
	prompt := e.Prompt
	if f := e.find; f != nil {
		prompt = "(search: " + f.query + ") "
		if f.miss {
			prompt = "(not found: " + f.query + ") "
		}
	}
	l.put(prompt, "", true, -1)
	l.put(e.text, e.More, e.flat || e.find != nil, e.pos)
	if e.note != "" {
		l.rows = append(l.rows, row{})
		l.put(e.note, "", true, -1)
	}
	return l
}
