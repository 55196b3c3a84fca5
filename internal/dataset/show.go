package dataset

import (
	"fmt"
	"io"
	"strings"

	"ck/internal/plaintext"
	"ck/internal/tokenizer"
)

// lineTokens is how many tokens Show writes in a line.
const lineTokens = 16

// What terminals are told: green for what counts, grey for what does not, faint for what Show itself says.
const (
	green = "\x1b[32m"
	grey  = "\x1b[90m"
	faint = "\x1b[2m"
	plain = "\x1b[0m"
)

// Show writes the slot as people read it. Each sequence has a head, then lines: the position of the first token, a sign (+ these tokens count, - they
// do not), and the tokens with | between them, escaped: text of others cannot reach a terminal as anything but text.
//
//	sequence 0: tokens 0 to 8, 3 count
//	     0 - <s>|user|:|\n|Hi|.
//	     6 + Hello|.|</s>
//	padding: tokens 9 to 31
func (s *Slot) Show(w io.Writer, tok *tokenizer.Tokenizer, colour bool) error {
	var b strings.Builder
	paint := func(code, text string) {
		if colour {
			text = code + text + plain
		}
		b.WriteString(text)
	}
	for i := 0; i < len(s.IDs); {
		j, targets := i, 0
		for ; j < len(s.IDs) && s.Seq[j] == s.Seq[i]; j++ {
			if s.Loss[j] {
				targets++
			}
		}
		if s.Seq[i] < 0 {
			paint(faint, fmt.Sprintf("padding: tokens %d to %d", i, j-1))
			b.WriteString("\n")
			i = j
			continue
		}
		paint(faint, fmt.Sprintf("sequence %d: tokens %d to %d, %d count", s.Seq[i], i, j-1, targets))
		b.WriteString("\n")
		for i < j {
			k := i + 1
			for k < j && k < i+lineTokens && s.Loss[k] == s.Loss[i] {
				k++
			}
			sign, code := "-", grey
			if s.Loss[i] {
				sign, code = "+", green
			}
			paint(faint, fmt.Sprintf("%6d %s ", s.Pos[i], sign))
			for n, id := range s.IDs[i:k] {
				if n > 0 {
					paint(faint, "|")
				}
				paint(code, plaintext.Escape(strings.ReplaceAll(string(tok.Bytes(id)), "\n", `\n`)))
			}
			b.WriteString("\n")
			i = k
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
