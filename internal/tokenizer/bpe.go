package tokenizer

import (
	"fmt"
	"math/bits"
	"runtime"
	"strings"
	"sync"
	"unicode/utf8"
)

// Merging: a word is a list of symbols, of which the best pair of neighbours is joined until none is left. What may be joined,
// and which is best, comes from a list of merges (pairs of ids; byte-level BPE, Gemma 4, and SentencePiece as
// tokenizer.json writes it) or from the tokens themselves (any pair whose joined text is a token, best score first:
// SentencePiece, or lowest rank first: tekken). Equal pairs join from the left. A heap of candidates makes it O(n log n).

// mergeTable finds the rank of a pair of ids: a hash table of left<<43 | right<<22 | rank.
type mergeTable struct {
	keys  []uint64
	shift int
	ids   []int32 // by rank: the joined token
}

const (
	noMerge   = ^uint64(0)
	rankBits  = 22
	maxMerges = 1<<rankBits - 1
)

func newMergeTable(n int) mergeTable {
	size := bits.Len(uint(2*n + 1))
	t := mergeTable{keys: make([]uint64, 1<<size), shift: 64 - size, ids: make([]int32, 0, n)}
	for i := range t.keys {
		t.keys[i] = noMerge
	}
	return t
}

// add appends the next merge in order of rank; of equal ones the first counts.
func (t *mergeTable) add(left, right, joined int32) {
	pair := uint64(left)<<21 | uint64(right)
	i := pair * 0x9E3779B97F4A7C15 >> t.shift
	for t.keys[i] != noMerge {
		if t.keys[i]>>rankBits == pair {
			return
		}
		i = (i + 1) & uint64(len(t.keys)-1)
	}
	t.keys[i] = pair<<rankBits | uint64(len(t.ids))
	t.ids = append(t.ids, joined)
}

// find is the rank of the merge of left and right.
func (t *mergeTable) find(left, right int32) (rank uint32, ok bool) {
	if left < 0 || right < 0 {
		return 0, false
	}
	pair := uint64(left)<<21 | uint64(right)
	for i := pair * 0x9E3779B97F4A7C15 >> t.shift; t.keys[i] != noMerge; i = (i + 1) & uint64(len(t.keys)-1) {
		if t.keys[i]>>rankBits == pair {
			return uint32(t.keys[i] & maxMerges), true
		}
	}
	return 0, false
}

// addMerges builds the table from n merges of text as the file writes it. Merges whose parts or result are no tokens cannot
// take part. Looking up the ids takes most of the time of loading, so several goroutines share it.
func (t *Tokenizer) addMerges(n int, merge func(i int) (left, right string)) error {
	if n > maxMerges {
		return fmt.Errorf("%d merges, limit is %d", n, maxMerges)
	}
	found := make([][3]int32, n) // left, right, joined; -1 in the first: not to be used
	var wg sync.WaitGroup
	workers := min(4, runtime.GOMAXPROCS(0), n/10000+1)
	for w := range workers {
		wg.Go(func() { t.findMerges(found, n*w/workers, n*(w+1)/workers, merge) })
	}
	wg.Wait()
	t.merges = newMergeTable(n)
	for _, f := range found {
		if f[0] >= 0 {
			t.merges.add(f[0], f[1], f[2])
		}
	}
	return nil
}

// findMerges sets found[lo:hi].
func (t *Tokenizer) findMerges(found [][3]int32, lo, hi int, merge func(i int) (left, right string)) {
	var buf []byte
	for i := lo; i < hi; i++ {
		left, right := merge(i)
		buf = buf[:0]
		ok1, ok2 := true, true
		var cut int
		if t.form == formBytes {
			buf, ok1 = appendByteDecoded(buf, left)
			cut = len(buf)
			buf, ok2 = appendByteDecoded(buf, right)
		} else {
			buf = appendUnescaped(buf, left)
			cut = len(buf)
			buf = appendUnescaped(buf, right)
		}
		f := [3]int32{t.find(buf[:cut]), t.find(buf[cut:]), t.find(buf)}
		if !ok1 || !ok2 || min(f[0], f[1], f[2]) < 0 {
			f[0] = -1
		}
		found[i] = f
	}
}

// splitMerge cuts "left right" at the first space that is not its first byte.
func splitMerge(s string) (left, right string) {
	if len(s) > 1 {
		if i := strings.IndexByte(s[1:], ' '); i >= 0 {
			return s[:i+1], s[i+2:]
		}
	}
	return s, ""
}

type symbol struct {
	pos        int32 // where its text begins
	id         int32 // -1: no token
	prev, next int32 // -1: none; prev is -2 in one that was joined to its left neighbour
}

// merger is the working memory of merging one word.
type merger struct {
	syms []symbol
	heap []uint64           // pairs that can be joined, as priority<<32 | index of the left symbol
	work int                // candidates looked at, for the test that merging is O(n log n)
	undo map[[2]int32]int32 // unused tokens that were joined: their span, to where it was joined
}

// end is where the text of symbol i ends, in a word of n bytes.
func (m *merger) end(i int32, n int) int32 {
	if next := m.syms[i].next; next >= 0 {
		return m.syms[next].pos
	}
	return int32(n)
}

// encodeWord appends the ids of word, a piece that merges do not cross.
func (t *Tokenizer) encodeWord(dst []int32, m *merger, word string) []int32 {
	if t.ignoreMerges {
		if id := t.findString(word); id >= 0 {
			return append(dst, id)
		}
	}
	m.syms, m.heap = m.syms[:0], m.heap[:0]
	t.initial(m, word)
	for i := int32(1); int(i) < len(m.syms); i++ {
		if priority, _, ok := t.pair(m, word, i-1, i); ok {
			m.heap = append(m.heap, uint64(priority)<<32|uint64(i-1))
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		siftDown(m.heap, i)
	}
	for len(m.heap) > 0 {
		m.work++
		best := m.heap[0]
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
		siftDown(m.heap, 0)
		t.join(m, word, best)
	}
	for i := int32(0); i >= 0 && len(m.syms) > 0; i = m.syms[i].next {
		dst = t.emit(dst, m, word, m.syms[i].pos, m.end(i, len(word)), m.syms[i].id)
	}
	clear(m.undo)
	return dst
}

// initial makes the symbols of word: bytes or characters.
func (t *Tokenizer) initial(m *merger, word string) {
	push := func(pos int, id int32) {
		n := int32(len(m.syms))
		m.syms = append(m.syms, symbol{pos: int32(pos), id: id, prev: n - 1, next: n + 1})
	}
	for i := 0; i < len(word); {
		if !t.chars {
			push(i, t.bytes[word[i]])
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(word[i:])
		id := t.findString(word[i : i+n])
		switch {
		case id >= 0 || t.spans || !t.hasBytes(word[i:i+n]): // a character that bytes cannot stand for is one unknown token
			push(i, id)
		default:
			for j := i; j < i+n; j++ {
				push(j, t.bytes[word[j]])
			}
		}
		i += n
	}
	if n := len(m.syms); n > 0 {
		m.syms[n-1].next = -1
	}
}

// hasBytes reports whether there is a token for each byte of c.
func (t *Tokenizer) hasBytes(c string) bool {
	for i := range len(c) {
		if t.bytes[c[i]] < 0 {
			return false
		}
	}
	return true
}

// pair is the priority and the result of joining the neighbours l and r.
func (t *Tokenizer) pair(m *merger, word string, l, r int32) (priority uint32, id int32, ok bool) {
	if !t.spans {
		rank, ok := t.merges.find(m.syms[l].id, m.syms[r].id)
		if !ok {
			return 0, -1, false
		}
		return rank, t.merges.ids[rank], true
	}
	pos, end := m.syms[l].pos, m.end(r, len(word))
	if int(end-pos) > t.max {
		return 0, -1, false
	}
	if id = t.findString(word[pos:end]); id < 0 {
		return 0, -1, false
	}
	return t.priority[id], id, true
}

// join joins the pair that c stands for, unless one of its parts was joined to something else: then what stands there now
// has another priority (or the same, and may be joined as well).
func (t *Tokenizer) join(m *merger, word string, c uint64) {
	l := int32(uint32(c))
	r := m.syms[l].next
	if m.syms[l].prev == -2 || r < 0 {
		return
	}
	priority, id, ok := t.pair(m, word, l, r)
	if !ok || priority != uint32(c>>32) {
		return
	}
	if t.unused && t.kind[id] == typeUnused {
		if m.undo == nil {
			m.undo = map[[2]int32]int32{}
		}
		m.undo[[2]int32{m.syms[l].pos, m.end(r, len(word))}] = m.syms[r].pos
	}
	m.syms[l].id = id
	m.syms[l].next = m.syms[r].next
	if next := m.syms[r].next; next >= 0 {
		m.syms[next].prev = l
	}
	m.syms[r].prev = -2
	for _, left := range [2]int32{m.syms[l].prev, l} {
		if left < 0 || m.syms[left].next < 0 {
			continue
		}
		if priority, _, ok := t.pair(m, word, left, m.syms[left].next); ok {
			m.heap = append(m.heap, uint64(priority)<<32|uint64(left))
			siftUp(m.heap)
		}
	}
}

// emit appends the token of word[pos:end]; what is no token becomes bytes, or else the unknown token. An unused token is taken
// apart again, as sentencepiece's bpe_model.cc does.
func (t *Tokenizer) emit(dst []int32, m *merger, word string, pos, end, id int32) []int32 {
	if id >= 0 {
		if t.unused && t.kind[id] == typeUnused {
			if mid, ok := m.undo[[2]int32{pos, end}]; ok {
				dst = t.emit(dst, m, word, pos, mid, t.findString(word[pos:mid]))
				return t.emit(dst, m, word, mid, end, t.findString(word[mid:end]))
			}
		}
		return append(dst, id)
	}
	n := len(dst)
	for _, b := range []byte(word[pos:end]) {
		if t.bytes[b] >= 0 {
			dst = append(dst, t.bytes[b])
		}
	}
	switch {
	case len(dst) == n && t.unknown >= 0:
		if n == 0 || dst[n-1] != t.unknown || !t.fuseUnknown {
			dst = append(dst, t.unknown)
		}
	case len(dst)-n < int(end-pos):
		for _, b := range []byte(word[pos:end]) {
			if t.bytes[b] < 0 {
				t.lost[b/64].Or(1 << (b % 64))
			}
		}
	}
	return dst
}

func siftDown(h []uint64, i int) {
	if i >= len(h) {
		return
	}
	v := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if v <= h[c] {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = v
}

func siftUp(h []uint64) {
	i := len(h) - 1
	v := h[i]
	for i > 0 {
		up := (i - 1) / 2
		if h[up] <= v {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = v
}
