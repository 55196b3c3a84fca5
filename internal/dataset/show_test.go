package dataset

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

const shown = `sequence 0: tokens 0 to 22, 22 count
     0 - <s>
     1 +  The| c|at|\n|s|at| on| the| m|at|.| The| c|at| s|at
    17 +  on| the| m|at|.|</s>
sequence 1: tokens 23 to 28, 3 count
     0 - <s>| Once| upon
     3 +  a| time|</s>
padding: tokens 29 to 47
`

// What people see of a slot: where sequences begin and end, positions, what counts, the padding; in colour it is the same text.
func TestShow(t *testing.T) {
	m := builtin(t)
	opt := options(48)
	opt.Pack = true
	s := open(t, m, opt, write(t, "a.jsonl",
		`{"prompt": "Once upon", "completion": " a time"}`+"\n"+`{"text": "The cat\nsat on the mat. The cat sat on the mat."}`))
	var text, colour bytes.Buffer
	slot := s.Slot(0)
	for w, c := range map[*bytes.Buffer]bool{&text: false, &colour: true} {
		if err := slot.Show(w, m.Tok, c); err != nil {
			t.Fatal(err)
		}
	}
	if got := text.String(); got != shown {
		t.Errorf("\n%s", got)
	}
	if bare := regexp.MustCompile(`\x1b\[[0-9]*m`).ReplaceAllString(colour.String(), ""); bare != text.String() {
		t.Errorf("in colour:\n%s", bare)
	}
	if !strings.Contains(colour.String(), green+" time"+plain) || !strings.Contains(colour.String(), grey+"<s>"+plain) {
		t.Errorf("%q", colour.String())
	}
}

// Text of others is shown, and nothing of it is obeyed.
func TestShowEscapes(t *testing.T) {
	m := builtin(t)
	opt := options(64)
	s := open(t, m, opt, write(t, "a.jsonl", `{"text": "a\u001b[31m\u0007b\r\n\u202ec\u009bd\u2028"}`))
	for _, colour := range []bool{false, true} {
		var b bytes.Buffer
		slot := s.Slot(0)
		if err := slot.Show(&b, m.Tok, colour); err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile(`\x1b\[(32|90|2|0)m`).ReplaceAllString(b.String(), "")
		if i := strings.IndexFunc(text, func(r rune) bool {
			return r != '\n' && (r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x202e || r == 0x2028 || r == 0xfffd)
		}); i >= 0 {
			t.Errorf("%q", text[i:])
		}
	}
}
