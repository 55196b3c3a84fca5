package lineedit

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rivo/uniseg"

	"ck/internal/testkit"
)

// emulator is a terminal that knows what an editor may send, and nothing else.
type emulator struct {
	t             testing.TB
	width, height int
	cells         [][]string // a wide character and, behind it, an empty cell
	x, y          int
	wrap          bool
}

func newEmulator(t testing.TB, width, height int) *emulator {
	m := &emulator{t: t, width: width, height: height, wrap: true}
	for range height {
		m.cells = append(m.cells, m.blank())
	}
	return m
}

func (m *emulator) blank() []string {
	r := make([]string, m.width)
	for i := range r {
		r[i] = " "
	}
	return r
}

func (m *emulator) write(s string) {
	for s != "" {
		n := 1
		switch {
		case s[0] == '\r':
			m.x = 0
		case s[0] == '\n':
			if m.y++; m.y == m.height {
				m.cells = append(m.cells[1:], m.blank())
				m.y--
			}
		case s[0] == 0x1b:
			n = m.sequence(s)
		default:
			if n = strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }); n < 0 {
				n = len(s)
			}
			if n == 0 {
				m.t.Fatalf("a control character is printed: %q", s)
			}
			m.print(s[:n])
		}
		s = s[n:]
	}
}

func (m *emulator) print(s string) {
	for g := uniseg.NewGraphemes(s); g.Next(); {
		w := g.Width()
		if w == 0 {
			m.t.Fatalf("%q has no width", g.Str())
		}
		if m.x+w > m.width {
			if m.wrap {
				m.t.Fatalf("the terminal would wrap at %q", g.Str())
			}
			m.x = m.width - w
		}
		m.cells[m.y][m.x] = g.Str()
		for i := 1; i < w; i++ {
			m.cells[m.y][m.x+i] = ""
		}
		m.x += w
	}
}

func (m *emulator) sequence(s string) int {
	end := strings.IndexFunc(s[2:], func(r rune) bool { return r >= 0x40 && r < 0x7f }) + 2
	if s[1] != '[' || end < 2 {
		m.t.Fatalf("sequence %q", s)
	}
	n, _ := strconv.Atoi(s[2:end])
	switch s[2 : end+1] {
	case "?7l", "?7h":
		m.wrap = s[end] == 'h'
		return end + 1
	case "J":
		m.cells[m.y] = append(m.cells[m.y][:min(m.x, m.width)], m.blank()[min(m.x, m.width):]...)
		for y := m.y + 1; y < m.height; y++ {
			m.cells[y] = m.blank()
		}
		return end + 1
	case "2J":
		for y := range m.cells {
			m.cells[y] = m.blank()
		}
		return end + 1
	case "H":
		m.x, m.y = 0, 0
		return end + 1
	}
	switch s[end] {
	case 'A':
		m.y -= n
	case 'B':
		m.y += n
	default:
		m.t.Fatalf("sequence %q", s[:end+1])
	}
	if m.y < 0 || m.y >= m.height {
		m.t.Fatalf("the cursor leaves the screen: row %d of %d", m.y, m.height)
	}
	return end + 1
}

// String is the screen without blanks behind and below the text, with | where the cursor is.
func (m *emulator) String() string {
	var b strings.Builder
	for y, r := range m.cells {
		for x, c := range r {
			if y == m.y && x == min(m.x, m.width-1) {
				b.WriteString("|")
			}
			b.WriteString(c)
		}
		b.WriteString("\n")
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// machine is an editor with an emulator in the place of a terminal.
type machine struct {
	Terminal
	term  *emulator
	sent  []string
	event Event // the last one that is not Sent
}

func newMachine(t testing.TB, width, height int) *machine {
	m := &machine{term: newEmulator(t, width, height)}
	m.Prompt, m.More = "> ", "… "
	m.screen.width, m.screen.height = width, height
	m.Begin()
	m.show(false)
	return m
}

// keys types pieces, with a silence behind the last one.
func (m *machine) keys(pieces ...string) {
	for i, s := range pieces {
		m.Terminal.keys.feed([]byte(s))
		m.pump(false)
		if i == len(pieces)-1 {
			m.pump(true)
		}
	}
}

func (m *machine) pump(silent bool) {
	for {
		event := m.process(silent)
		m.show(event == Sent)
		if event == None {
			return
		}
		if event != Sent {
			m.event = event
			continue
		}
		m.sent = append(m.sent, m.Message())
		m.Remember(m.Message())
		m.Begin()
		m.show(false)
	}
}

func (m *machine) show(last bool) {
	if last {
		m.pos = len(m.text)
	}
	m.screen.draw(&m.out, m.rows(m.screen.width), last)
	if last {
		m.out.WriteString("\r\n")
		m.screen.forget()
	}
	m.term.write(m.out.String())
	m.out.Reset()
}

const (
	left, right, up, down, home, end = "\x1b[D", "\x1b[C", "\x1b[A", "\x1b[B", "\x1b[H", "\x1b[F"
	pasteStart                       = "\x1b[200~"
)

func TestKeys(t *testing.T) {
	tests := []struct{ name, keys, want string }{
		{"text", "hello", "> hello|"},
		{"insert", "helo" + left + "l", "> hell|o"},
		{"wide", "日本語" + left + left + "X", "> 日X|本語"},
		{"wide at home", "日本語" + home + "a" + right + right, "> a日本|語"},
		{"wide backspace", "日本語\x7f\x7f!", "> 日!|"},
		{"combining marks", "e\u0301a\u0308x" + left + left, "> e\u0301|a\u0308x"},
		{"combining mark typed later", "e", "> e|"},
		{"combining mark joins", "ab" + left + "\u0301", "> a\u0301|b"},
		{"mark alone", "\u0301x", "> ◌\u0301x|"},
		{"emoji", "👩‍👩‍👧z" + left + left + "a", "> a|👩‍👩‍👧z"},
		{"flags", "🇩🇪🇫🇷" + left, "> 🇩🇪|🇫🇷"},
		{"hangul", "한국" + left + "\x7f", "> |국"},
		{"ctrl-a ctrl-e", "abc\x01x\x05y", "> xabcy|"},
		{"ctrl-b ctrl-f", "abc\x02\x02\x06x", "> abx|c"},
		{"ctrl-k ctrl-y", "one two\x01\x06\x0b\x01\x19-", "> ne two-|o"},
		{"ctrl-u", "one two" + left + "\x15", "> |o"},
		{"ctrl-w", "one two.three  \x17", "> one |"},
		{"ctrl-w twice is one kill", "one two\x17\x17\x19", "> one two|"},
		{"ctrl-k forth", "ab" + home + "\x1bd\x19\x19", "> abab|"},
		{"alt-backspace", "one two.three\x1b\x7f", "> one two.|"},
		{"alt-b alt-f", "one two three\x1bb\x1bbX\x1bfY", "> one XtwoY| three"},
		{"alt-d", "one two\x1bb\x1bb\x1bd", "> | two"},
		{"ctrl-left", "one two\x1b[1;5DX\x1b[1;5D\x1b[1;5DY", "> Y|one Xtwo"},
		{"ctrl-right", "one two" + home + "\x1b[1;5CX", "> oneX| two"},
		{"rxvt, putty", "one two" + home + "\x1bOcX\x1bOd\x1b[5C", "> oneX| two"},
		{"ctrl-t", "abc\x14", "> acb|"},
		{"ctrl-t inside", "abc" + home + right + "\x14", "> ba|c"},
		{"delete", "abc" + home + "\x1b[3~\x04", "> |c"},
		{"home and end of tmux, screen", "abc\x1b[1~x\x1b[4~y", "> xabcy|"},
		{"home and end of rxvt", "abc\x1b[7~x\x1b[8~y", "> xabcy|"},
		{"home and end of SS3", "abc\x1bOHx\x1bOFy", "> xabcy|"},
		{"arrows of SS3", "abc\x1bODx", "> abx|c"},
		{"unknown sequences", "a\x1b[99;9Qb\x1b[?25$pc\x1bOPd\x1b[[Ae\x1b[<0;1;2Mf", "> abcdef|"},
		{"reports", "a\x1b]11;rgb:0/0/0\x07b\x1bP1$r0m\x1b\\c", "> abc|"},
		{"broken sequence", "a\x1b[1;\x7fb\x1b[\x01c", "> c|b"},
		{"no UTF-8", "\xff\xfe\xc3(\xe6\x97", "> ���(��|"},
		{"other controls", "a\x00\x0f\x1cb", "> ab|"},
		{"300 Esc", strings.Repeat("\x1b", 300), "> |"},
		{"ctrl-c", "abc\x03d", "> d|"},
		{"ctrl-c brought back", "abc\x03\x19", "> abc|"},
		{"ctrl-l", "a\r\x0cb", "> b|"},
		{"goes on", "one\\\rtwo", "> one\n… two|"},
		{"alt-enter", "one\x1b\rtwo" + up + "x", "> onex|\n… two"},
		{"lines up and down", "one\\\rtwo" + up + home + "x" + down + "y", "> xone\n… ty|wo"},
		{"paste", pasteStart + "a\r\nb\nc\rd\re" + pasteEnd + "!", "> a\n… b\n… c\n… d\n… e!|"},
		{"paste of keys", pasteStart + "a\tb\x1b[Ac\u202e\u009b1m\x00" + pasteEnd, "> a     b^[[Ac\\u202e\n\\u009b1m^@|"},
		{"paste into a line", "xy" + left + pasteStart + "日\n本" + pasteEnd, "> x日\n… 本|y"},
		{"paste that does not end", pasteStart + "abc\x03d", "> d|"},
		{"wrap", "abcdefghijklmnopqrstuvwxyz", "> abcdefghijklmnopqr\nstuvwxyz|"},
		{"wrap at the edge", "abcdefghijklmnopqr", "> abcdefghijklmnopqr\n|"},
		{"wrap, back", "abcdefghijklmnopqrstu" + home + "X", "> X|abcdefghijklmnopq\nrstu"},
		{"wrap of wide characters", "a日本語日本語日本語" + left, "> a日本語日本語日本\n|語"},
		{"history", "one\rtwo\r" + up + up + down, "> one\n> two\n> two|"},
		{"history keeps what is typed", "one\rtw" + up + down + "o", "> one\n> two|"},
		{"history of lines", "one\\\rtwo\r" + up, "> one\n… two\n> one⏎two|"},
		{"history of lines, home", "one\\\rtwo\r" + up + home + "x", "> one\n… two\n> x|one⏎two"},
		{"search", "first one\rsecond\r\x12fir", "> first one\n> second\n(search: fir) |first\none"},
		{"search taken", "a one\rab\r\x12one" + end + "!", "> a one\n> ab\n> a one!|"},
		{"search older, newer", "ax\ray\r\x12a\x12", "> ax\n> ay\n(search: a) |ax"},
		{"search newer", "ax\ray\r\x12a\x12\x13", "> ax\n> ay\n(search: a) |ay"},
		{"search finds nothing", "ax\r\x12b", "> ax\n(not found: b) |"},
		{"search given up", "ax\rq\x12a\x07", "> ax\n> q|"},
		{"search, Esc", "ax\r\x12a\x1b", "> ax\n> |ax"},
		{"search, shorter", "ax\rb\r\x12bz\x7f\x7fa", "> ax\n> b\n(search: a) |ax"},
	}
	for _, c := range tests {
		for _, size := range []int{len(c.keys), 1} { // at once, and byte by byte
			m := newMachine(t, 20, 8)
			m.keys(slices.Collect(func(yield func(string) bool) {
				for i := 0; i < len(c.keys); i += size {
					if !yield(c.keys[i:min(i+size, len(c.keys))]) {
						return
					}
				}
			})...)
			if got := m.term.String(); got != c.want {
				t.Errorf("%s, %d bytes at a time:\n%s\nwant\n%s", c.name, size, got, c.want)
			}
		}
	}
}

func TestSent(t *testing.T) {
	tests := []struct {
		name, keys string
		want       []string
	}{
		{"lines", "a\rb\r", []string{"a", "b"}},
		{"paste", pasteStart + "1\r2\r3\n4\r\n5" + pasteEnd + "\r", []string{"1\n2\n3\n4\n5"}},
		{"paste keeps its last line end", pasteStart + "1\n" + pasteEnd + "\r", []string{"1\n"}},
		{"goes on", "a\\\r\\\rb\r", []string{"a\n\nb"}},
		{"backslash behind the cursor", "a\\" + home + "\rb\r", []string{"a\nb"}},
		{"the sign of a line end is a character too", "a⏎b\r" + up + "c\r", []string{"a⏎b", "a⏎bc"}},
		{"lines from the history", "a\\\rb\r" + up + "c\r", []string{"a\nb", "a\nbc"}},
		{"search", "one\rtwo\r\x12on\r", []string{"one", "two", "one"}},
		{"no UTF-8", "\xc3\r", []string{"\ufffd"}},
		{"300 Esc", strings.Repeat("\x1b", 300) + "\r" + "x\r", []string{"\nx"}}, // the last Esc with Enter is Alt-Enter
	}
	for _, c := range tests {
		m := newMachine(t, 30, 12)
		m.keys(c.keys)
		if !slices.Equal(m.sent, c.want) {
			t.Errorf("%s: %q, want %q", c.name, m.sent, c.want)
		}
	}
}

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		keys string
		want Event
	}{{"\x03", Interrupt}, {"a\x03", None}, {"a\x03\x03", Interrupt}, {"\x04", End}, {"a\x04", None}, {"\x12\x03", None}, {"\x12\x03\x03", Interrupt},
		{"\x12\x04", End}, {pasteStart + "a\x03\x03", Interrupt}} {
		m := newMachine(t, 20, 4)
		m.keys(c.keys)
		if m.event != c.want {
			t.Errorf("%q: event %d, want %d", c.keys, m.event, c.want)
		}
	}
}

// An Esc key alone is one after a silence; what is typed then is text.
func TestEscThenText(t *testing.T) {
	m := newMachine(t, 20, 4)
	m.keys(strings.Repeat("\x1b", 300))
	m.keys("hello")
	if got := m.term.String(); got != "> hello|" {
		t.Errorf("%s", got)
	}
}

func TestComplete(t *testing.T) {
	m := newMachine(t, 40, 4)
	m.Complete = func(before string) (list []string) {
		for _, s := range []string{"/save ", "/set ", "/quit "} {
			if strings.HasPrefix(s, before) {
				list = append(list, s)
			}
		}
		return list
	}
	for _, c := range []struct{ keys, want string }{
		{"/q\t", "> /quit |"},
		{"\x15/s\t", "> /s|\n[/save  /set]"},
		{"e\t!", "> /set !|"},
		{"\x15x\t", "> x|"},
	} {
		m.keys(c.keys)
		if got := m.term.String(); got != c.want {
			t.Errorf("%q:\n%s\nwant\n%s", c.keys, got, c.want)
		}
	}
}

// A message higher than the screen is shown around its cursor while it is typed, and whole when it is sent.
func TestHighMessage(t *testing.T) {
	m := newMachine(t, 20, 4)
	m.keys(pasteStart + "1\n2\n3\n4\n5\n6" + pasteEnd)
	if got, want := m.term.String(), "… 3\n… 4\n… 5\n… 6|"; got != want {
		t.Errorf("at the end:\n%s\nwant\n%s", got, want)
	}
	m.keys(strings.Repeat(up, 5) + "x")
	if got, want := m.term.String(), "> 1x|\n… 2\n… 3\n… 4"; got != want {
		t.Errorf("at the beginning:\n%s\nwant\n%s", got, want)
	}
	m.keys("\r")
	if got, want := m.term.String(), "… 4\n… 5\n… 6\n> |"; got != want {
		t.Errorf("sent:\n%s\nwant\n%s", got, want)
	}
}

// A terminal that became narrower has broken the rows; the message is removed and drawn anew, what stands above it stays.
func TestResize(t *testing.T) {
	m := newMachine(t, 40, 8)
	m.keys("before\r" + "abcdefghijklmnopqrstuvwxyz日本" + left)
	// as tmux does
	narrow := newEmulator(t, 20, 8)
	narrow.write("> before\r\n> abcdefghijklmnopqr\r\nstuvwxyz日本\r\x1b[0B" + "stuvwxyz日")
	m.term = narrow
	m.screen.resize(&m.out, 20, 8)
	m.show(false)
	if got, want := m.term.String(), "> before\n> abcdefghijklmnopqr\nstuvwxyz日|本"; got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

func TestTooLong(t *testing.T) {
	m := newMachine(t, 70, 4)
	m.keys("x", pasteStart+strings.Repeat("y", textMax), "z"+pasteEnd)
	if got, want := m.term.String(), "> x|\n[a message has at most 1 MiB; what does not fit is left out]"; got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	m.keys("y\x12", pasteStart+"x"+pasteEnd)
	if got, want := m.term.String(), "(not found: x) xy|"; got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

// Many bytes that are no keys cost steps in proportion, not more.
func TestManyBytes(t *testing.T) {
	for _, s := range []string{"\x1b", "\x1b[", "\x1b[1;", "\x1bO", "\x1b]", "\xe6", "\x00", "\x1b[200~\x1b"} {
		m := newMachine(t, 20, 4)
		start := time.Now()
		m.Terminal.keys.feed([]byte(strings.Repeat(s, 100_000)))
		steps := 0
		for _, ok := m.Terminal.keys.next(true); ok; _, ok = m.Terminal.keys.next(true) {
			steps++
		}
		if left := len(m.Terminal.keys.buf); left >= len(pasteEnd) || steps > 200_000 {
			t.Errorf("%q: %d bytes left after %d steps in %v", s, left, steps, time.Since(start))
		}
	}
}

func FuzzEditor(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for _, s := range []string{"hello\r" + up, "日本語" + left + left + "X\x7f", pasteStart + "a\nb\r\nc" + pasteEnd + "\r\x12b\x12\r", "e\u0301\x1b[1;5D\x1bb\x14",
		strings.Repeat("\x1b", 5) + "[A\xff\xfe", "\U0001f468\u200d\U0001f469\u200d\U0001f467\x01\x0b\x19\x19", "a\\\rb\\\rc" + up + home + down + "\x0b"} {
		f.Add([]byte(s), uint8(20), uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, width, piece uint8) {
		if len(b) > 300 {
			t.Skip()
		}
		w := max(int(width)%80, widthMin)
		m := newMachine(t, w, 6)
		for chunk := range slices.Chunk(b, max(int(piece), 1)) {
			m.Terminal.keys.feed(chunk)
			m.pump(false)
			m.check(t)
		}
		m.pump(true)
		if len(m.Terminal.keys.buf) > 0 && !m.Terminal.keys.pasting {
			t.Fatalf("%q stays undecided", m.Terminal.keys.buf)
		}
		m.check(t)
	})
}

// check compares what the terminal shows with the message, drawn at once on an empty screen; and the message's text with the rows.
func (m *machine) check(t *testing.T) {
	if m.pos < 0 || m.pos > len(m.text) {
		t.Fatalf("cursor %d in %d bytes", m.pos, len(m.text))
	}
	l := m.rows(m.screen.width)
	fresh := newEmulator(t, m.screen.width, m.screen.height)
	s := screen{width: m.screen.width, height: m.screen.height, top: m.screen.top}
	var out bytes.Buffer
	s.draw(&out, l, false)
	fresh.write(out.String())
	top := m.term.y - fresh.y
	if top < 0 {
		t.Fatalf("the message begins above the screen:\n%s\nwant\n%s", m.term, fresh)
	}
	for y := range len(s.rows) {
		if !slices.Equal(m.term.cells[top+y], fresh.cells[y]) {
			t.Fatalf("row %d:\n%s\nwant\n%s", y, m.term, fresh)
		}
	}
	if m.term.x != fresh.x || !m.term.wrap {
		t.Fatalf("cursor in column %d, want %d; wrap %v", m.term.x, fresh.x, m.term.wrap)
	}
	if m.find == nil && m.note == "" && strings.IndexFunc(m.text, func(r rune) bool { return r < ' ' || r >= 0x7f }) < 0 {
		var b strings.Builder
		for _, r := range l.rows {
			b.WriteString(r.text)
		}
		if b.String() != m.Prompt+m.text {
			t.Fatalf("rows %q for %q", b.String(), m.text)
		}
		if at := len(m.Prompt) + m.pos; l.row*l.width+l.left.cells != at {
			t.Fatalf("cursor in row %d, column %d for byte %d", l.row, l.left.cells, at)
		}
	}
	for _, r := range l.rows {
		if w := uniseg.StringWidth(r.text); w != r.cells || w > l.width {
			t.Fatalf("row %q has %d cells, not %d; %d are there", r.text, w, r.cells, l.width)
		}
	}
}

// A slow line may pause within a paste, even within a character or the paste's end.
func TestSlowPaste(t *testing.T) {
	for _, c := range []struct{ first, second string }{{pasteStart + "日\xe6\x9c", "\xac" + pasteEnd + "!"}, {pasteStart + "日本\x1b[20", "1~!"}} {
		m := newMachine(t, 20, 4)
		m.keys(c.first)
		m.keys(c.second)
		if got := m.term.String(); got != "> 日本!|" {
			t.Errorf("%q: %s", c.first, got)
		}
	}
}
