package tokenizer

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// Token types, numbered as GGUF (tokenizer.ggml.token_type) and sentencepiece_model.proto number them.
const (
	typeNormal      = 1
	typeUnknown     = 2
	typeControl     = 3
	typeUserDefined = 4
	typeUnused      = 5
	typeByte        = 6
)

const maxTokens = 1 << 21 // ids take 21 bits in the key of a merge

// form says how the text of tokens in a file stands for their bytes.
type form uint8

const (
	formBytes   form = iota // GPT-2's mapping: each byte is a printable character
	formEscaped             // UTF-8 with U+2581 for a space, <0xXX> for bytes
	formRaw                 // the bytes themselves (tekken)
)

const escapedSpace = "\u2581" // ▁, which SentencePiece writes for a space

// vocab holds the tokens: their text as in the file, their bytes, their types, and the way from bytes to the id.
type vocab struct {
	text  []string
	kind  []uint8 // type of each token, 0 for an id that has none
	raw   []byte  // bytes of all tokens, one after another
	off   []uint32
	index hashIndex // bytes of the tokens that text can become, to ids
	bytes [256]int32
	max   int // bytes of the longest token in index
}

// build sets everything from text and kind. Of tokens with the same bytes the first is found, a normal one before others.
func (v *vocab) build(f form) error {
	n := len(v.text)
	if n == 0 {
		return fmt.Errorf("the vocabulary is empty")
	}
	if n > maxTokens {
		return fmt.Errorf("%d tokens, limit is %d", n, maxTokens)
	}
	size := 0
	for _, s := range v.text {
		size += len(s)
	}
	if size > math.MaxInt32 {
		return fmt.Errorf("the text of the tokens takes %d bytes, limit is %d", size, math.MaxInt32)
	}
	for i := range v.bytes {
		v.bytes[i] = -1
	}
	v.raw = make([]byte, 0, size)
	v.off = make([]uint32, 1, n+1)
	v.index = newHashIndex(n)
	other := false
	for id, s := range v.text {
		ok := v.appendRaw(f, s, v.kind[id])
		v.off = append(v.off, uint32(len(v.raw)))
		switch k := v.kind[id]; {
		case k == typeByte:
			if b := v.rawOf(int32(id)); len(b) == 1 && v.bytes[b[0]] < 0 {
				v.bytes[b[0]] = int32(id)
			}
		case k == typeNormal && ok:
			v.insert(int32(id))
		case k == typeUserDefined || k == typeUnused:
			other = true
		}
	}
	if other {
		for id, k := range v.kind {
			if k != typeUserDefined && k != typeUnused {
				continue
			}
			// In GPT-2's mapping an added token's own text says nothing about bytes, unless it maps to itself.
			if b, ok := appendByteDecoded(nil, v.text[id]); f != formBytes || ok && string(b) == v.text[id] {
				v.insert(int32(id))
			}
		}
	}
	if f != formEscaped {
		for b := range v.bytes {
			v.bytes[b] = v.find([]byte{byte(b)})
		}
	}
	return nil
}

// insert adds id to the index, unless its bytes are there already.
func (v *vocab) insert(id int32) {
	key := v.rawOf(id)
	if len(key) == 0 {
		return
	}
	h := &v.index
	hash := maphash.Bytes(h.seed, key)
	i := int(hash) & (len(h.slots) - 1)
	for ; h.slots[i].id >= 0; i = (i + 1) & (len(h.slots) - 1) {
		if s := h.slots[i]; s.hash == uint32(hash>>32) && string(v.rawOf(s.id)) == string(key) {
			return
		}
	}
	h.slots[i] = hashSlot{uint32(hash >> 32), id}
	v.max = max(v.max, len(key))
}

// appendRaw appends the bytes that token s stands for; ok is false for one that text cannot become.
func (v *vocab) appendRaw(f form, s string, kind uint8) (ok bool) {
	switch {
	case kind != typeNormal && kind != typeUnused && kind != typeByte || f == formRaw:
		v.raw = append(v.raw, s...)
		return true
	case f == formBytes:
		var raw []byte
		if raw, ok = appendByteDecoded(v.raw, s); ok {
			v.raw = raw
		} else {
			v.raw = append(v.raw, s...)
		}
		return ok
	case kind == typeByte:
		if b, ok := byteToken(s); ok {
			v.raw = append(v.raw, b)
		}
		return true
	}
	v.raw = appendUnescaped(v.raw, s)
	return strings.IndexByte(s, ' ') < 0 // the text has no spaces when it is looked up
}

// appendUnescaped appends s with spaces for U+2581.
func appendUnescaped(dst []byte, s string) []byte {
	for {
		i := strings.Index(s, escapedSpace)
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(append(dst, s[:i]...), ' ')
		s = s[i+len(escapedSpace):]
	}
}

// rawOf is the bytes of id, which must be valid.
func (v *vocab) rawOf(id int32) []byte { return v.raw[v.off[id]:v.off[id+1]:v.off[id+1]] }

// find is the id of the token with these bytes, or -1.
func (v *vocab) find(b []byte) int32 {
	return v.index.find(v, maphash.Bytes(v.index.seed, b), string(b))
}

// findString is find for a string; the compiler makes no copy.
func (v *vocab) findString(s string) int32 {
	return v.index.find(v, maphash.String(v.index.seed, s), s)
}

// hashIndex is a hash table with open addressing from byte strings to ids; the strings lie in the vocabulary.
type hashIndex struct {
	seed  maphash.Seed
	slots []hashSlot
}

type hashSlot struct {
	hash uint32
	id   int32 // -1: free
}

func newHashIndex(n int) hashIndex {
	h := hashIndex{seed: maphash.MakeSeed(), slots: make([]hashSlot, 1<<bits.Len(uint(2*n)))}
	for i := range h.slots {
		h.slots[i].id = -1
	}
	return h
}

func (h *hashIndex) find(v *vocab, hash uint64, key string) int32 {
	for i := int(hash) & (len(h.slots) - 1); ; i = (i + 1) & (len(h.slots) - 1) {
		s := h.slots[i]
		if s.id < 0 {
			return -1
		}
		if s.hash == uint32(hash>>32) && string(v.rawOf(s.id)) == key {
			return s.id
		}
	}
}

// byteToken reads <0xXX>.
func byteToken(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	hi, ok1 := hexDigit(s[3])
	lo, ok2 := hexDigit(s[4])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// byteOf is the inverse of GPT-2's mapping of bytes to characters (bytes_to_unicode in its encoder.py): the printable ones of
// Latin-1 are themselves, the others follow from U+0100 on in order. -1: no byte.
var byteOf = func() (t [0x144]int16) {
	for i := range t {
		t[i] = -1
	}
	next := 0x100
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			t[b] = int16(b)
			continue
		}
		t[next] = int16(b)
		next++
	}
	return t
}()

// appendByteDecoded appends the bytes that s stands for in GPT-2's mapping; ok is false if a character has no byte.
func appendByteDecoded(dst []byte, s string) (_ []byte, ok bool) {
	for i := 0; i < len(s); {
		r, n := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(s[i:])
		}
		if int(r) >= len(byteOf) || byteOf[r] < 0 {
			return dst, false
		}
		dst = append(dst, byte(byteOf[r]))
		i += n
	}
	return dst, true
}
