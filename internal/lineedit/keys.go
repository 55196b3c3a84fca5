package lineedit

import (
	"strings"
	"unicode/utf8"
)

// key is one key as the editor knows it, or a piece of text.
type key struct {
	name string // "left", "ctrl-a", "alt-b"; "text" and "paste" carry text, a paste comes in pieces up to "paste-end"; "" is a sequence that means nothing here
	text string
}

// decoder turns a terminal's bytes into keys. Whatever comes, each call of next takes bytes away or waits for more.
type decoder struct {
	buf     []byte
	pasting bool
	cr      bool // the last byte of the paste was a carriage return
}

const (
	pasteEnd    = "\x1b[201~"
	sequenceMax = 4096 // bytes of a sequence that does not end; what follows is looked at anew
)

// feed adds bytes.
func (d *decoder) feed(b []byte) { d.buf = append(d.buf, b...) }

// waiting reports whether the bytes so far may be the beginning of something: the Esc key of a sequence, a character's first byte. After a
// silence they are what they are, and next(true) says so.
func (d *decoder) waiting() bool { return len(d.buf) > 0 }

// next takes the next key. It is false if more bytes are needed; with silent, only
// in a paste or if there are none.
func (d *decoder) next(silent bool) (key, bool) {
	if len(d.buf) == 0 {
		return key{}, false
	}
	parse := d.typed
	if d.pasting {
		parse = d.pasted
	}
	k, n := parse(d.buf, silent)
	d.buf = d.buf[n:]
	if len(d.buf) == 0 {
		d.buf = nil
	}
	return k, n > 0
}

// pasted takes text up to the paste's end, however long that takes to come. Line ends become line feeds. Ctrl-C ends a paste too: its end may
// have been lost.
func (d *decoder) pasted(b []byte, _ bool) (key, int) {
	switch {
	case strings.HasPrefix(string(b[:min(len(b), len(pasteEnd))]), pasteEnd):
		d.pasting = false
		return key{name: "paste-end"}, len(pasteEnd)
	case b[0] == 3:
		d.pasting = false
		return key{name: "ctrl-c"}, 1
	}
	var text strings.Builder
	n := 0
	for n < len(b) && b[n] != 3 {
		rest := b[n:]
		if rest[0] == 0x1b {
			head := string(rest[:min(len(rest), len(pasteEnd))])
			if head == pasteEnd || strings.HasPrefix(pasteEnd, head) {
				break
			}
		}
		if !utf8.FullRune(rest) {
			break
		}
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == '\r':
			text.WriteByte('\n')
		case r != '\n' || !d.cr:
			text.WriteRune(r)
		}
		d.cr = r == '\r'
		n += size
	}
	return key{"paste", text.String()}, n
}

// typed takes a key.
func (d *decoder) typed(b []byte, silent bool) (key, int) {
	switch c := b[0]; {
	case c == 0x1b:
		return d.escape(b, silent)
	case c < ' ' || c == 0x7f:
		return key{name: controlName(c)}, 1
	}
	var text strings.Builder
	n := 0
	for n < len(b) && b[n] >= ' ' && b[n] != 0x7f {
		if !utf8.FullRune(b[n:]) && !silent {
			break
		}
		r, size := utf8.DecodeRune(b[n:])
		text.WriteRune(r) // U+FFFD for what is no UTF-8: it is seen before it is sent
		n += size
	}
	return key{"text", text.String()}, n
}

func controlName(c byte) string {
	switch c {
	case '\r', '\n':
		return "enter"
	case '\t':
		return "tab"
	case 0x7f, 8:
		return "backspace"
	}
	return "ctrl-" + string(rune(c|0x60))
}

// escape takes a sequence that begins with Esc, or the Esc key.
func (d *decoder) escape(b []byte, silent bool) (key, int) {
	if len(b) == 1 {
		if silent {
			return key{name: "esc"}, 1
		}
		return key{}, 0
	}
	switch c := b[1]; {
	case c == '[' || c == 'O':
		return d.sequence(b, silent)
	case c == ']' || c == 'P' || c == '_' || c == '^' || c == 'X':
		return report(b, silent)
	case c == '\r' || c == '\n' || c == 0x7f || c == 8:
		return key{name: "alt-" + controlName(c)}, 2
	case c < ' ':
		return key{name: "esc"}, 1
	}
	if !utf8.FullRune(b[1:]) && !silent {
		return key{}, 0
	}
	r, size := utf8.DecodeRune(b[1:])
	if r == utf8.RuneError {
		return key{name: "esc"}, 1
	}
	return key{name: "alt-" + strings.ToLower(string(r))}, 1 + size
}

// sequence takes CSI (Esc [) and SS3 (Esc O): parameters 0x20 to 0x3f, then one final byte. One that is broken off is dropped up to the
// byte that does not belong to it. ECMA-48, 5th edition, 5.4.
func (d *decoder) sequence(b []byte, silent bool) (key, int) {
	if len(b) > 2 && b[1] == '[' && b[2] == '[' { // F1 to F5 of the Linux console: Esc [ [ A
		if len(b) > 3 || silent {
			return key{}, min(len(b), 4)
		}
		return key{}, 0
	}
	for n := 2; n < len(b); n++ {
		switch c := b[n]; {
		case n == sequenceMax:
			return key{}, n
		case c >= ' ' && c < 0x40:
		case c < 0x7f && c >= 0x40:
			name := sequenceName(b[1], string(b[2:n]), c)
			d.pasting, d.cr = name == "paste", false
			if d.pasting {
				name = ""
			}
			return key{name: name}, n + 1
		default:
			return key{}, n
		}
	}
	if silent {
		return key{}, len(b)
	}
	return key{}, 0
}

// sequenceName names the keys of xterm, tmux, screen, rxvt, the Linux console and their kin.
func sequenceName(kind byte, params string, final byte) string {
	first, rest, _ := strings.Cut(params, ";")
	modifier, _, _ := strings.Cut(rest, ";")
	if modifier == "" && final != '~' { // Esc O 5 C, Esc [ 5 C
		modifier = first
	}
	word := strings.Contains(" 3 4 5 6 7 8 ", " "+modifier+" ") && modifier != "" // with Alt or Ctrl
	name := ""
	switch final {
	case 'A':
		name = "up"
	case 'B':
		name = "down"
	case 'C':
		name = "right"
	case 'D':
		name = "left"
	case 'H':
		name = "home"
	case 'F':
		name = "end"
	case 'M':
		if kind == 'O' { // Enter of the number pad
			return "enter"
		}
	case 'c', 'd': // rxvt: Ctrl with an arrow
		if kind == 'O' && params == "" {
			return map[byte]string{'c': "word-right", 'd': "word-left"}[final]
		}
	case '~':
		name = map[string]string{"1": "home", "7": "home", "4": "end", "8": "end", "3": "delete", "200": "paste"}[first]
	}
	if word {
		switch name {
		case "left", "right", "delete":
			return "word-" + name
		}
	}
	return name
}

// report takes what a terminal answers: OSC, DCS and the like, up to BEL or Esc \.
func report(b []byte, silent bool) (key, int) {
	for n := 2; n < len(b); n++ {
		switch {
		case b[n] == 7:
			return key{}, n + 1
		case b[n] == 0x1b && n+1 < len(b) && b[n+1] == '\\':
			return key{}, n + 2
		case b[n] == 0x1b && n+1 < len(b), b[n] < ' ' && b[n] != 0x1b, n == sequenceMax:
			return key{}, n
		}
	}
	if silent {
		return key{}, len(b)
	}
	return key{}, 0
}
