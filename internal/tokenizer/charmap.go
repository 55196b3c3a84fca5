package tokenizer

import (
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// charMap is sentencepiece's precompiled_charsmap: a trie of byte strings (a double array as darts-clone writes it) whose
// values are offsets of NUL-terminated replacements.
type charMap struct {
	trie  []uint32
	texts string
}

// parseCharMap reads the size of the trie in bytes (uint32, little endian), the trie and the replacements; nil for an empty one.
func parseCharMap(b []byte) (*charMap, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if len(b) < 8 {
		return nil, errors.New("character map: shorter than its header")
	}
	size := binary.LittleEndian.Uint32(b)
	if size%4 != 0 || size < 4 || uint64(size) > uint64(len(b)-4) {
		return nil, errors.New("character map: its trie does not fit")
	}
	m := &charMap{trie: make([]uint32, size/4), texts: string(b[4+size:])}
	for i := range m.trie {
		m.trie[i] = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	return m, nil
}

func darts(unit uint32) (offset uint32) { return unit >> 10 << (unit & (1 << 9) >> 6) }

// longest is the replacement of the longest key that text begins with, and the key's length; 0 if there is none.
func (m *charMap) longest(text string) (string, int) {
	node := darts(m.trie[0])
	best, length := uint32(0), 0
	for i := range len(text) {
		node ^= uint32(text[i])
		if node >= uint32(len(m.trie)) {
			break
		}
		unit := m.trie[node]
		if unit&(1<<31|0xFF) != uint32(text[i]) {
			break
		}
		node ^= darts(unit)
		if node >= uint32(len(m.trie)) {
			break
		}
		if unit>>8&1 != 0 {
			best, length = m.trie[node]&(1<<31-1), i+1
		}
	}
	if length == 0 || best >= uint32(len(m.texts)) {
		return "", 0
	}
	end := int(best)
	for end < len(m.texts) && m.texts[end] != 0 {
		end++
	}
	if end-int(best) > maxReplacement {
		return "", 0
	}
	return m.texts[best:end], length
}

func (m *charMap) apply(text string) string {
	out := make([]byte, 0, len(text)+16)
	for i := 0; i < len(text); {
		if to, n := m.longest(text[i:]); n > 0 {
			out = append(out, to...)
			i += n
			continue
		}
		_, n := utf8.DecodeRuneInString(text[i:])
		out = append(out, text[i:i+n]...)
		i += n
	}
	return string(out)
}
