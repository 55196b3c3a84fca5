// Package tokenizer turns text into token ids and back: SentencePiece (BPE by score, byte fallback) and byte-level BPE, from
// GGUF metadata, tokenizer.json, tokenizer.model and tekken.json. Encoding never fails; it is linear in the length of the text
// up to the logarithm of the longest word.
package tokenizer

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrUnsupported is wrapped by the errors about kinds of vocabulary that this package does not read (WordPiece, Unigram, ...).
var ErrUnsupported = errors.New("not supported")

// Tokenizer is one vocabulary with its rules. But for what Lost says it does not change after construction; it serves any number of
// goroutines.
type Tokenizer struct {
	vocab
	form form

	// How words become tokens.
	chars        bool // symbols are characters, with byte fallback; else bytes
	spans        bool // pairs join if their text is a token, by priority; else by merges
	ignoreMerges bool // a word that is a token is that token
	unused       bool // there are unused tokens that may be joined on the way
	fuseUnknown  bool
	unknown      int32 // for text that no token covers; -1: nothing
	merges       mergeTable
	priority     []uint32 // by id, for spans: smallest first

	// How text becomes words.
	normal      []normStep
	steps       []splitStep
	escape      bool      // U+2581 in the text is a space, as a space is
	prefix      prefixing // when a space is put before the text
	prefixOnce  bool      // not before one that is there already
	collapse    bool      // white space at the ends goes, runs of spaces become one
	joinsSpace  [256]bool // last bytes of what stands before a space inside a token
	specials    specials
	before      []int32 // what AddSpecial puts before the text
	after       []int32
	bos, eos    int32 // -1: none
	eog         map[int32]bool
	trimDecoded bool // decoding drops the first space of a text
	covers      int  // bytes of a text that a token can stand for, see AtLeast

	pool pool
	lost [4]atomic.Uint64 // bit set of the bytes that became nothing
}

// prefixing says when a space is put before a stretch of text between special tokens.
type prefixing uint8

const (
	prefixNever   prefixing = iota
	prefixFirst             // at the start of the text
	prefixControl           // and after control tokens
	prefixAlways            // and after every special token
)

// EncodeOptions says how text is cut.
type EncodeOptions struct {
	AddSpecial   bool // BOS, EOS and what else the file puts around a text
	ParseSpecial bool // the text of control tokens becomes these tokens
}

// Part is a piece of a text; Special says that it is trusted: control tokens in it are cut as such.
type Part struct {
	Text    string
	Special bool
}

// maxText bounds the text of one call; positions take 31 bits.
const maxText = math.MaxInt32 - 16

// Encode appends the ids of text to dst. Text that is not UTF-8 is encoded byte for byte as far as the vocabulary can.
func (t *Tokenizer) Encode(dst []int32, text string, opt EncodeOptions) []int32 {
	return t.encode(dst, text, func(lo, hi int) bool { return opt.ParseSpecial }, opt)
}

// EncodeParts appends the ids of the parts' joined text. Control tokens are cut only inside neighbouring parts that are
// Special; ParseSpecial is not looked at. Words and merges cross the seams of parts, as they do in the joined text.
func (t *Tokenizer) EncodeParts(dst []int32, parts []Part, opt EncodeOptions) []int32 {
	if len(parts) == 1 {
		return t.Encode(dst, parts[0].Text, EncodeOptions{AddSpecial: opt.AddSpecial, ParseSpecial: parts[0].Special})
	}
	var b strings.Builder
	var runs [][2]int // trusted stretches
	for _, p := range parts {
		lo := b.Len()
		b.WriteString(p.Text)
		if n := len(runs); p.Special && n > 0 && runs[n-1][1] == lo {
			runs[n-1][1] = b.Len()
		} else if p.Special {
			runs = append(runs, [2]int{lo, b.Len()})
		}
	}
	return t.encode(dst, b.String(), func(lo, hi int) bool {
		i, _ := slices.BinarySearchFunc(runs, lo, func(r [2]int, lo int) int {
			if r[1] <= lo {
				return -1
			}
			return 1
		})
		return i < len(runs) && runs[i][0] <= lo && hi <= runs[i][1]
	}, opt)
}

func (t *Tokenizer) encode(dst []int32, text string, trusted func(lo, hi int) bool, opt EncodeOptions) []int32 {
	if opt.AddSpecial {
		dst = append(dst, t.before...)
	}
	s := t.pool.get(t)
	prev := typeNormal // of the special token before; the start of the text counts as a control token
	for pos := 0; pos < len(text); {
		sp, lo, hi := t.specials.next(text, pos, trusted)
		if sp == nil {
			lo, hi = len(text), len(text)
		}
		if lo > pos {
			dst = t.stretches(dst, s, text[pos:lo], t.wantsPrefix(prev, pos == 0))
		}
		if sp != nil {
			dst = append(dst, sp.id)
			prev = typeUserDefined
			if sp.control {
				prev = typeControl
			}
		}
		pos = hi
	}
	t.pool.put(s)
	if opt.AddSpecial {
		dst = append(dst, t.after...)
	}
	return dst
}

func (t *Tokenizer) wantsPrefix(prev int, start bool) bool {
	switch t.prefix {
	case prefixNever:
		return false
	case prefixFirst:
		return start
	case prefixControl:
		return start || prev == typeControl
	}
	return true
}

// stretches encodes a stretch of text between special tokens, in blocks if it is beyond what 31 bits can count.
func (t *Tokenizer) stretches(dst []int32, s *scratch, text string, prefix bool) []int32 {
	block := maxText
	if len(t.normal) > 0 {
		block /= maxGrowth + 1
	}
	for len(text) > block {
		dst = t.stretch(dst, s, text[:block], prefix)
		text, prefix = text[block:], false
	}
	return t.stretch(dst, s, text, prefix)
}

// stretch normalizes text, cuts it into words and appends their ids.
func (t *Tokenizer) stretch(dst []int32, s *scratch, text string, prefix bool) []int32 {
	text = t.normalize(s, text)
	if t.escape && strings.Contains(text, escapedSpace) {
		text = strings.ReplaceAll(text, escapedSpace, " ")
	}
	if t.collapse {
		text = collapseSpaces(text)
	}
	if text == "" {
		return dst
	}
	if prefix && !(t.prefixOnce && text[0] == ' ') {
		text = " " + text
	}
	s.pieces = append(s.pieces[:0], span{0, int32(len(text)), false})
	for i := range t.steps {
		s.pieces, s.spare = t.steps[i].run(s.matchers[i], s.spare[:0], s.pieces, text), s.pieces
	}
	for _, p := range s.pieces {
		piece := text[p.lo:p.hi]
		if !t.chars {
			dst = t.word(dst, s, piece)
			continue
		}
		// Tokens that have a space behind something else are rare, most vocabularies have none: where no token can
		// cross, the text is cut before a space, so that words come from the cache.
		from := 0
		for i := 1; i < len(piece); i++ {
			if c := piece[i-1]; piece[i] == ' ' && c != ' ' && !t.joinsSpace[c] {
				dst = t.word(dst, s, piece[from:i])
				from = i
			}
		}
		dst = t.word(dst, s, piece[from:])
	}
	return dst
}

// collapseSpaces is what sentencepiece calls remove_extra_whitespaces.
func collapseSpaces(text string) string {
	text = strings.Trim(text, " ")
	if !strings.Contains(text, "  ") {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := range len(text) {
		if text[i] != ' ' || text[i-1] != ' ' {
			b = append(b, text[i])
		}
	}
	return string(b)
}

// setJoins notes before which bytes a space may be joined to what precedes it.
func (t *Tokenizer) setJoins() {
	for id := range t.text {
		if k := t.kind[id]; k == typeNormal || k == typeUserDefined || k == typeUnused {
			b := t.rawOf(int32(id))
			for i := 1; i < len(b); i++ {
				if b[i] == ' ' && b[i-1] != ' ' {
					t.joinsSpace[b[i-1]] = true
				}
			}
		}
	}
}

// The cache of a scratch: words up to cacheWordMax bytes, two for each hash, forgotten when their bytes and ids are too many.
const (
	cacheSlots   = 1 << 15
	cacheWordMax = 40
	cacheBytes   = 1 << 20
)

type cached struct {
	hash uint64
	word uint32 // offset in words
	ids  uint32 // offset in ids
	n    uint16 // bytes of the word, 0: free
	k    uint16 // ids
}

// scratch is the memory of one call: it is used by one goroutine at a time and kept for the next call.
type scratch struct {
	matchers []*matcher
	norms    map[*pattern]*matcher
	pieces   []span
	spare    []span
	merger   merger
	slots    []cached
	words    []byte
	ids      []int32
}

// word appends the ids of a word, from the cache if it was met before.
func (t *Tokenizer) word(dst []int32, s *scratch, word string) []int32 {
	if len(word) > cacheWordMax {
		return t.encodeWord(dst, &s.merger, word)
	}
	hash := maphash.String(t.index.seed, word)
	c := &s.slots[hash%cacheSlots]
	for range 2 {
		if c.hash == hash && int(c.n) == len(word) && string(s.words[c.word:c.word+uint32(c.n)]) == word {
			return append(dst, s.ids[c.ids:c.ids+uint32(c.k)]...)
		}
		c = &s.slots[hash%cacheSlots^1]
	}
	if c.n > 0 { // the neighbour is taken
		c = &s.slots[hash%cacheSlots]
	}
	n := len(dst)
	dst = t.encodeWord(dst, &s.merger, word)
	if len(s.words) > cacheBytes || len(s.ids) > cacheBytes {
		s.words, s.ids = s.words[:0], s.ids[:0]
		clear(s.slots)
	}
	*c = cached{hash, uint32(len(s.words)), uint32(len(s.ids)), uint16(len(word)), uint16(len(dst) - n)}
	s.words = append(s.words, word...)
	s.ids = append(s.ids, dst[n:]...)
	return dst
}

// pool keeps scratches, as many as there are threads that can use them at once.
type pool struct {
	mu   sync.Mutex
	free []*scratch
}

func (p *pool) get(t *Tokenizer) *scratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		return s
	}
	s := &scratch{slots: make([]cached, cacheSlots), matchers: make([]*matcher, len(t.steps)), norms: map[*pattern]*matcher{}}
	for i := range t.steps {
		if t.steps[i].pattern != nil {
			s.matchers[i] = newMatcher(t.steps[i].pattern)
		}
	}
	return s
}

func (p *pool) put(s *scratch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < runtime.GOMAXPROCS(0) {
		p.free = append(p.free, s)
	}
}

// Kind is "spm" or "bpe".
func (t *Tokenizer) Kind() string {
	if t.spans && t.chars {
		return "spm"
	}
	return "bpe"
}

// VocabSize is the number of ids, holes included; the model's embedding may have more rows.
func (t *Tokenizer) VocabSize() int { return len(t.text) }

func (t *Tokenizer) valid(id int32) bool { return id >= 0 && int(id) < len(t.text) }

// BOS is the token of a text's beginning, if the file names one.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.bos, t.bos >= 0 }

// EOS is the token of a text's end, if the file names one.
func (t *Tokenizer) EOS() (id int32, ok bool) { return t.eos, t.eos >= 0 }

// AddBOS reports whether AddSpecial puts BOS before a text.
func (t *Tokenizer) AddBOS() bool { return t.bos >= 0 && slices.Contains(t.before, t.bos) }

// AddEOS reports whether AddSpecial puts EOS behind a text.
func (t *Tokenizer) AddEOS() bool { return t.eos >= 0 && slices.Contains(t.after, t.eos) }

// IsEOG reports whether id ends a generation: EOS, end of turn, end of message.
func (t *Tokenizer) IsEOG(id int32) bool { return t.eog[id] }

// IsControl reports whether id is a control or unknown token, which has no text of its own.
func (t *Tokenizer) IsControl(id int32) bool {
	return t.valid(id) && (t.kind[id] == typeControl || t.kind[id] == typeUnknown)
}

// TokenID is the id of a token: a special or byte token by its name, any other by the text that it stands for.
func (t *Tokenizer) TokenID(text string) (int32, bool) {
	if text == "" {
		return -1, false
	}
	if s := t.specials.at(text); s != nil && s.text == text {
		return s.id, true
	}
	if b, ok := byteToken(text); ok && t.form == formEscaped && t.bytes[b] >= 0 {
		return t.bytes[b], true
	}
	if t.escape {
		text = strings.ReplaceAll(text, escapedSpace, " ")
	}
	id := t.findString(text)
	return id, id >= 0
}

// finish sets what follows from the rest: the special tokens' finder and what AddSpecial adds. list may lack tokens that are control
// tokens only because the file names their ids.
func (t *Tokenizer) finish(list []special, addBOS, addEOS bool) {
	listed := map[int32]bool{}
	for i := range list {
		listed[list[i].id] = true
		list[i].control = list[i].control || t.IsControl(list[i].id)
	}
	for id := range t.eog {
		if !listed[id] && t.IsControl(id) {
			list = append(list, special{text: t.text[id], id: id, control: true})
		}
	}
	t.specials = newSpecials(list)
	if addBOS && t.bos >= 0 && !slices.Contains(t.before, t.bos) {
		t.before = append([]int32{t.bos}, t.before...)
	}
	if addEOS && t.eos >= 0 && !slices.Contains(t.after, t.eos) {
		t.after = append(t.after, t.eos)
	}
	if t.chars {
		t.setJoins()
	}
	for _, k := range t.kind {
		t.unused = t.unused || k == typeUnused
	}
	t.setCovers()
}

// checkID is an error unless id is a token; what names it.
func (t *Tokenizer) checkID(id int64, what string) (int32, error) {
	if id < 0 || id >= int64(len(t.text)) {
		return -1, fmt.Errorf("%s is %d, but there are %d tokens", what, id, len(t.text))
	}
	return int32(id), nil
}
