package tokenizer

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Matching in linear time, with the priorities of a backtracking matcher.
//
// A first pass runs over the text from its end and knows, at each position, which instructions of the program can still reach
// a match from here: that is a function of the answers one code point further and of the class of the code point between, so it
// is a deterministic automaton, made as it is needed. Lookahead of any length is one more such answer. A second pass walks
// forward and, at each choice, takes the first branch that can succeed: what a backtracking matcher would end with, without
// going back (the idea of A. Frisch and L. Cardelli, Greedy Regular Expression Matching, ICALP 2004). Both passes
// together look at each code point a constant number of times, whatever the pattern, also when all matches are wanted.

// state is the set of instructions, in each plane, from which a match can be reached: bit plane*len(prog)+i.
type state []uint64

func (s state) has(i int) bool { return s[i>>6]>>(i&63)&1 != 0 }

const (
	segmentBytes = 1 << 14 // of text, for which positions are kept
	statesMax    = 1 << 12 // kept over segments; one segment adds at most one for each position
	choicesMax   = 1 << 10 // planes*instructions up to which choices are kept
)

// What advance gives besides an instruction that consumes.
const (
	choiceMatch = -1
	choiceNone  = -2
	choiceKnown = 3 // added to what is kept, so that 0 is free
)

// matcher runs one pattern. It holds the automaton as far as it is known, so it serves one goroutine at a time.
type matcher struct {
	p      *pattern
	states []state
	choice [][]int16 // by state, plane and instruction: what advance gives, plus choiceKnown; nil or 0: not known yet
	next   []int32   // by state and class: the state before the code point; -1 unknown
	ids    map[string]int32
	key    []byte
	at     []int32 // by position in the segment: the state's number
	steps  int     // code points looked at and instructions walked, for the test of linearity
	marks  []segmentMark
}

// segmentMark is a segment of a long text and the state at its end.
type segmentMark struct {
	lo, hi int
	state  state
}

func newMatcher(p *pattern) *matcher {
	m := &matcher{p: p}
	m.flush()
	return m
}

// flush forgets all states but that of the end of a text, which is number 0.
func (m *matcher) flush() {
	m.states, m.choice, m.next, m.ids = m.states[:0], m.choice[:0], m.next[:0], map[string]int32{}
	m.intern(m.p.before(nil, -1))
}

// intern gives the number of s.
func (m *matcher) intern(s state) int32 {
	m.key = m.key[:0]
	for _, w := range s {
		m.key = binary.LittleEndian.AppendUint64(m.key, w)
	}
	if id, ok := m.ids[string(m.key)]; ok {
		return id
	}
	id := int32(len(m.states))
	m.ids[string(m.key)] = id
	m.states = append(m.states, s)
	m.choice = append(m.choice, nil)
	for range m.p.classes {
		m.next = append(m.next, -1)
	}
	return id
}

// before is the state at a position followed by a code point of class c, after which the state is after; c < 0 is the end.
func (p *pattern) before(after state, c int) state {
	n := len(p.prog)
	s := make(state, (n*p.planes+63)/64)
	for plane := range p.planes {
		bit := func(i int32) bool { return s.has(plane*n + int(i)) }
		for _, i := range p.order {
			var can bool
			switch in := &p.prog[i]; in.op {
			case opMatch:
				can = true
			case opChar:
				can = c >= 0 && p.sets[in.arg][c/64]>>(c%64)&1 != 0 && after.has(int(p.context[c])*n+int(in.x))
			case opSplit:
				can = bit(in.x) || bit(in.y)
			case opLook:
				can = bit(in.x) && bit(in.y)
			case opLookNeg:
				can = !bit(in.x) && bit(in.y)
			case opAssert:
				can = p.holds(assertion(in.arg), plane, c) && bit(in.x)
			}
			if can {
				s[(plane*n+int(i))>>6] |= 1 << ((plane*n + int(i)) & 63)
			}
		}
	}
	return s
}

func (p *pattern) holds(a assertion, plane, c int) bool {
	switch a {
	case assertWordB:
		return (plane == ctxWord) != (c >= 0 && p.word[c])
	case assertNotWordB:
		return (plane == ctxWord) == (c >= 0 && p.word[c])
	case assertBegin:
		return plane == ctxStart
	case assertLine:
		return plane <= ctxLine
	case assertEnd:
		return c < 0
	}
	return c < 0 || c == p.newline
}

// backward fills m.at for positions lo..hi, where the state at hi is id; lo is the first position of a code point at or below
// floor. It returns lo and the state there.
func (m *matcher) backward(text string, floor, hi int, id int32) (int, int32) {
	if cap(m.at) < hi-floor+utf8.UTFMax {
		m.at = make([]int32, hi-floor+utf8.UTFMax)
	}
	// lo is not known yet: position i lies at i-floor+UTFMax-1 until the end, so that there is room for lo < floor.
	base := floor - utf8.UTFMax + 1
	at := m.at[:hi-base+1]
	at[hi-base] = id
	p, next, classes := m.p, m.next, m.p.classes
	i := hi
	for i > floor {
		m.steps++
		r, n := rune(text[i-1]), 1
		var c int
		if r < utf8.RuneSelf {
			c = int(p.ascii[r])
		} else {
			r, n = utf8.DecodeLastRuneInString(text[:i])
			c = int(p.class(r))
		}
		i -= n
		to := next[int(id)*classes+c]
		if to < 0 {
			to = m.intern(p.before(m.states[id], c))
			next = m.next
			next[int(id)*classes+c] = to
		}
		id = to
		at[i-base] = id
	}
	m.at = m.at[:cap(m.at)]
	return i, id
}

// span is a piece of a text, lo to hi; match says that the pattern matched it, and not that it lies between matches.
type span struct {
	lo, hi int32
	match  bool
}

// split appends to dst the pieces into which the matches in text[lo:hi] cut it: the matches, leftmost first, each by the
// priorities of the pattern, and what lies between. An empty match cuts and is no piece. Texts are shorter than 2 GiB.
func (m *matcher) split(dst []span, text string, lo, hi int) []span {
	text = text[lo:hi]
	if text == "" {
		return dst
	}
	if !m.p.mayMatch(text) {
		return append(dst, span{int32(lo), int32(hi), false})
	}
	// Segments from the end, until the first is at hand; a text of one segment leaves no marks.
	m.marks = m.marks[:0]
	segLo, segHi, id := 0, len(text), int32(0)
	for {
		floor := max(0, segHi-segmentBytes)
		if len(m.states) > statesMax {
			keep := slices.Clone(m.states[id])
			m.flush()
			id = m.intern(keep)
		}
		m.marks = append(m.marks, segmentMark{hi: segHi, state: m.states[id]})
		segLo, id = m.backward(text, floor, segHi, id)
		m.marks[len(m.marks)-1].lo = segLo
		if segLo <= 0 {
			break
		}
		segHi = segLo
	}
	w := walk{m: m, text: text}
	w.load(m.marks[len(m.marks)-1].hi, max(0, m.marks[len(m.marks)-1].hi-segmentBytes))
	gap, plane := 0, ctxStart
	for pos := 0; pos <= len(text); {
		if pos < len(text) && m.p.planes == 1 && !m.p.starts[text[pos]] {
			pos++ // an ASCII byte with which nothing begins
			continue
		}
		end, endPlane := w.match(pos, plane)
		if end < 0 || end == pos {
			if end == pos && pos > gap {
				dst = append(dst, span{int32(lo + gap), int32(lo + pos), false})
				gap = pos
			}
			if pos == len(text) {
				break
			}
			pos, plane = w.step(pos)
			continue
		}
		if pos > gap {
			dst = append(dst, span{int32(lo + gap), int32(lo + pos), false})
		}
		dst = append(dst, span{int32(lo + pos), int32(lo + end), true})
		pos, plane, gap = end, endPlane, end
	}
	if gap < len(text) {
		dst = append(dst, span{int32(lo + gap), int32(hi), false})
	}
	return dst
}

// mayMatch is false if no match can begin in text; it saves the passes over pieces that an earlier step has cut already.
func (p *pattern) mayMatch(text string) bool {
	for i := range len(text) {
		if p.starts[text[i]] {
			return true
		}
	}
	return false
}

// walk goes forward over a text whose states are known for the segment that ends at hi.
type walk struct {
	m    *matcher
	text string
	base int // position of m.at[0]
	hi   int
}

func (w *walk) load(hi, floor int) { w.hi, w.base = hi, floor-utf8.UTFMax+1 }

// stateAt is the number of the state at pos; beyond the segment it loads the next one.
func (w *walk) stateAt(pos int) int32 {
	for pos > w.hi || pos == w.hi && len(w.m.marks) > 1 {
		m := w.m
		m.marks = m.marks[:len(m.marks)-1]
		k := m.marks[len(m.marks)-1]
		if len(m.states) > statesMax {
			m.flush()
		}
		m.backward(w.text, k.lo, k.hi, m.intern(k.state))
		w.load(k.hi, k.lo)
	}
	return w.m.at[pos-w.base]
}

// step goes over the code point at pos.
func (w *walk) step(pos int) (int, int) {
	c := w.text[pos]
	if c < utf8.RuneSelf {
		return pos + 1, int(w.m.p.context[w.m.p.ascii[c]])
	}
	r, n := utf8.DecodeRuneInString(w.text[pos:])
	return pos + n, int(w.m.p.context[w.m.p.class(r)])
}

// match is the end of the match at pos and the plane there, -1 if there is none.
func (w *walk) match(pos, plane int) (int, int) {
	m, p, text := w.m, w.m.p, w.text
	first, n := pos, len(p.prog)
	pc := m.choose(w.stateAt(pos), plane*n+int(p.start))
	for pc >= 0 {
		if c := text[pos]; c < utf8.RuneSelf && p.planes == 1 {
			pos++
		} else {
			pos, plane = w.step(pos)
		}
		id := int32(0)
		if pos < w.hi {
			id = m.at[pos-w.base]
		} else {
			id = w.stateAt(pos)
		}
		i := plane*n + int(p.prog[pc].x)
		if row := m.choice[id]; row != nil && row[i] != 0 {
			pc = int(row[i]) - choiceKnown
		} else {
			pc = m.choose(id, i)
		}
	}
	m.steps += pos - first
	if pc == choiceNone {
		return -1, 0
	}
	return pos, plane
}

// choose is advance in state id from i, a plane and an instruction, kept for the next time.
func (m *matcher) choose(id int32, i int) int {
	n := len(m.p.prog)
	if n*m.p.planes > choicesMax {
		return m.p.advance(m.states[id], i/n*n, i%n)
	}
	row := m.choice[id]
	if row == nil {
		row = make([]int16, n*m.p.planes)
		m.choice[id] = row
	}
	if row[i] == 0 {
		row[i] = int16(m.p.advance(m.states[id], i/n*n, i%n) + choiceKnown)
	}
	return int(row[i]) - choiceKnown
}

// advance follows the choices at one position from pc to an instruction that consumes or to the end of a match.
func (p *pattern) advance(s state, plane, pc int) int {
	if !s.has(plane + pc) {
		return choiceNone
	}
	for {
		switch in := &p.prog[pc]; in.op {
		case opSplit:
			pc = int(in.y)
			if s.has(plane + int(in.x)) {
				pc = int(in.x)
			}
		case opLook, opLookNeg:
			pc = int(in.y)
		case opAssert:
			pc = int(in.x)
		case opMatch:
			return choiceMatch
		default:
			return pc
		}
	}
}

// bytesHeld is the memory of the automaton, for the test that it is bounded.
func (m *matcher) bytesHeld() int {
	words := 0
	for _, s := range m.states {
		words += len(s)
	}
	for _, row := range m.choice {
		words += len(row) / 4
	}
	return words*bits.UintSize/8 + 4*(len(m.next)+len(m.at))
}
