package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// shrinkMax is by how much a normal form can shorten a text in bytes: ten letters like U+1D7CE, of four bytes, become one of one byte
// in NFKC; a letter with two marks becomes one of 2 bytes for 7 in NFC (Unicode 14, all characters tried).
const shrinkMax = 4

// AtLeast is a number of ids than which text, which must be UTF-8, has no fewer; 0: nothing is known but by encoding it. It is for
// refusing a text that is far too long. It takes a pass over the text at the speed of memory.
func (t *Tokenizer) AtLeast(text string) int {
	n := len(text)
	if t.covers == 0 || n == 0 {
		return 0
	}
	if t.escape {
		n -= (len(escapedSpace) - 1) * strings.Count(text, escapedSpace)
	}
	if len(t.normal) > 0 && !isASCII(text) {
		n /= shrinkMax
	}
	return (n + t.covers - 1) / t.covers
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// setCovers sets the most bytes of a text, normalized, that become one token; 0 where some bytes may become none.
func (t *Tokenizer) setCovers() {
	n := max(t.max, utf8.UTFMax) // an unknown token stands for a character
	for _, s := range t.specials.list {
		if s.lstrip || s.rstrip {
			return
		}
		n = max(n, len(s.text))
	}
	for _, s := range t.normal {
		if s.form == nil {
			return
		}
	}
	for _, s := range t.steps {
		if s.behavior == removed {
			return
		}
	}
	if t.collapse {
		return
	}
	for b, id := range t.bytes {
		if id < 0 && inUTF8(byte(b)) && (t.unknown < 0 || t.fuseUnknown || !t.chars) {
			return
		}
	}
	t.covers = n
}

// inUTF8 reports whether UTF-8 has the byte.
func inUTF8(b byte) bool { return b < 0xC0 || b > 0xC1 && b < 0xF5 }

// Lost are the bytes, in ascending order, that texts encoded so far had and that became nothing: the vocabulary has neither a token for
// them nor an unknown token.
func (t *Tokenizer) Lost() []byte {
	var lost []byte
	for b := range 256 {
		if t.lost[b/64].Load()>>(b%64)&1 != 0 {
			lost = append(lost, byte(b))
		}
	}
	return lost
}
