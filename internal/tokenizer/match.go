package tokenizer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"unicode"
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

type instOp uint8

const (
	opMatch   instOp = iota
	opChar           // consume a code point of set arg, then x
	opSplit          // x, else y
	opLook           // x must match here, then y
	opLookNeg        // x must not match here, then y
	opAssert         // assertion arg holds, then x
)

type inst struct {
	op   instOp
	arg  int32
	x, y int32
}

// What stands before a position, for \b, ^ and \A: the planes of a state.
const (
	ctxStart = iota
	ctxLine
	ctxWord
	ctxOther
	ctxCount
)

// pattern is a compiled expression, immutable.
type pattern struct {
	prog    []inst
	order   []int32 // instructions, those reached without consuming before those that reach them
	start   int32
	sets    [][4]uint64 // by set: bit c says that class c is in it
	classes int
	planes  int       // 1, or ctxCount if the program asserts something about the code point before
	context []byte    // by class: the plane of a position after it
	word    []bool    // by class
	newline int       // class of \n
	starts  [256]bool // first bytes that a match may have
	ascii   [utf8.RuneSelf]uint8
	page    [(unicode.MaxRune + 1) / 256]uint16 // by code point / 256: which of pages
	pages   [][256]uint8
}

var errPatternSize = errors.New("pattern is too large")

// compilePattern parses and compiles src.
func compilePattern(src string) (*pattern, error) {
	root, err := parsePattern(src)
	if err != nil {
		return nil, err
	}
	c := compiler{p: &pattern{planes: 1}}
	match, err := c.emit(inst{op: opMatch})
	if err != nil {
		return nil, err
	}
	if c.p.start, err = c.node(root, match); err != nil {
		return nil, err
	}
	c.orderAll()
	return c.p, c.classify()
}

type compiler struct {
	p    *pattern
	sets []runeSet
}

func (c *compiler) emit(in inst) (int32, error) {
	if len(c.p.prog) >= maxPatternInsts {
		return 0, errPatternSize
	}
	c.p.prog = append(c.p.prog, in)
	return int32(len(c.p.prog) - 1), nil
}

func (c *compiler) setIndex(s runeSet) int32 {
	for i, t := range c.sets {
		if slices.Equal(s, t) {
			return int32(i)
		}
	}
	c.sets = append(c.sets, s)
	return int32(len(c.sets) - 1)
}

// node compiles n so that it continues at next, and returns its first instruction.
func (c *compiler) node(n *node, next int32) (int32, error) {
	var err error
	switch n.kind {
	case nodeSet:
		return c.emit(inst{op: opChar, arg: c.setIndex(n.set), x: next})
	case nodeCat:
		for i := len(n.subs) - 1; i >= 0 && err == nil; i-- {
			next, err = c.node(n.subs[i], next)
		}
		return next, err
	case nodeAlt:
		first, err := c.node(n.subs[len(n.subs)-1], next)
		for i := len(n.subs) - 2; i >= 0 && err == nil; i-- {
			var x int32
			if x, err = c.node(n.subs[i], next); err == nil {
				first, err = c.emit(inst{op: opSplit, x: x, y: first})
			}
		}
		return first, err
	case nodeRepeat:
		return c.repeat(n, next)
	case nodeLook:
		end, err := c.emit(inst{op: opMatch})
		if err != nil {
			return 0, err
		}
		sub, err := c.node(n.subs[0], end)
		if err != nil {
			return 0, err
		}
		op := opLook
		if n.neg {
			op = opLookNeg
		}
		return c.emit(inst{op: op, x: sub, y: next})
	case nodeAssert:
		if n.assert < assertEnd {
			c.p.planes = ctxCount
		}
		return c.emit(inst{op: opAssert, arg: int32(n.assert), x: next})
	}
	return next, nil
}

func (c *compiler) repeat(n *node, next int32) (int32, error) {
	split := func(body, out int32) inst {
		if n.lazy {
			body, out = out, body
		}
		return inst{op: opSplit, x: body, y: out}
	}
	out, copies := next, n.min
	if n.max < 0 {
		loop, err := c.emit(inst{op: opSplit})
		if err != nil {
			return 0, err
		}
		body, err := c.node(n.subs[0], loop)
		if err != nil {
			return 0, err
		}
		c.p.prog[loop] = split(body, out)
		next = loop
		if n.min > 0 { // x+ enters at its body
			next, copies = body, n.min-1
		}
	}
	for i := n.min; i < n.max; i++ {
		body, err := c.node(n.subs[0], next)
		if err != nil {
			return 0, err
		}
		if next, err = c.emit(split(body, out)); err != nil {
			return 0, err
		}
	}
	for range copies {
		body, err := c.node(n.subs[0], next)
		if err != nil {
			return 0, err
		}
		next = body
	}
	return next, nil
}

// orderAll sorts the instructions by what they reach without consuming; there are no such cycles, since the parser refuses
// endless repetition of what may be empty.
func (c *compiler) orderAll() {
	prog := c.p.prog
	seen := make([]bool, len(prog))
	var visit func(i int32)
	visit = func(i int32) {
		if seen[i] {
			return
		}
		seen[i] = true
		switch in := prog[i]; in.op {
		case opSplit, opLook, opLookNeg:
			visit(in.x)
			visit(in.y)
		case opAssert:
			visit(in.x)
		}
		c.p.order = append(c.p.order, i)
	}
	for i := range prog {
		visit(int32(i))
	}
}

// classify numbers the classes of code points that no set of the pattern tells apart.
func (c *compiler) classify() error {
	p := c.p
	sets := append(slices.Clone(c.sets), setWord, runeSet{'\n', '\n'})
	cuts := []rune{0}
	for _, s := range sets {
		for i := 0; i < len(s); i += 2 {
			cuts = append(cuts, s[i], s[i+1]+1)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	if cuts[len(cuts)-1] > unicode.MaxRune {
		cuts = cuts[:len(cuts)-1]
	}
	p.sets = make([][4]uint64, len(c.sets))
	ids := map[string]int{}
	next := make([]int, len(sets)) // by set: its first range that does not end before the cut
	sig := make([]byte, (len(sets)+7)/8)
	var uniform [256]int // by class: its page plus 1, of those that hold nothing else
	var cur [256]uint8
	for i, lo := range cuts {
		clear(sig)
		for k, s := range sets {
			for next[k] < len(s) && s[next[k]+1] < lo {
				next[k] += 2
			}
			if next[k] < len(s) && s[next[k]] <= lo {
				sig[k/8] |= 1 << (k % 8)
			}
		}
		id, ok := ids[string(sig)]
		if !ok {
			if id = len(ids); id > 255 {
				return fmt.Errorf("%w: more than 256 classes of code points", errPatternSize)
			}
			ids[string(sig)] = id
			p.addClass(id, sig, len(c.sets))
		}
		end := rune(unicode.MaxRune + 1)
		if i+1 < len(cuts) {
			end = cuts[i+1]
		}
		for r := lo; r < end; {
			if r%256 == 0 && end-r >= 256 { // whole pages of one class are shared
				if uniform[id] == 0 {
					p.pages = append(p.pages, [256]uint8(bytes.Repeat([]byte{uint8(id)}, 256)))
					uniform[id] = len(p.pages)
				}
				p.page[r/256] = uint16(uniform[id] - 1)
				r += 256
				continue
			}
			cur[r%256] = uint8(id)
			if r%256 == 255 {
				p.page[r/256] = uint16(len(p.pages))
				p.pages = append(p.pages, cur)
			}
			r++
		}
	}
	p.classes = len(ids)
	for r := range p.ascii {
		p.ascii[r] = p.class(rune(r))
	}
	p.newline = int(p.ascii['\n'])
	p.setStarts(p.start, make([]bool, len(p.prog)))
	return nil
}

// setStarts notes the first bytes of what pc can match; lookahead is taken to hold.
func (p *pattern) setStarts(pc int32, seen []bool) {
	if seen[pc] {
		return
	}
	seen[pc] = true
	switch in := &p.prog[pc]; in.op {
	case opMatch:
		for i := range p.starts {
			p.starts[i] = true
		}
	case opChar:
		for i := range p.starts {
			if c := p.ascii[i%utf8.RuneSelf]; i >= utf8.RuneSelf || p.sets[in.arg][c/64]>>(c%64)&1 != 0 {
				p.starts[i] = true
			}
		}
	case opSplit:
		p.setStarts(in.x, seen)
		p.setStarts(in.y, seen)
	case opLook, opLookNeg:
		p.setStarts(in.y, seen)
	case opAssert:
		p.setStarts(in.x, seen)
	}
}

// addClass notes which sets hold class id, from its signature over the sets, \w and \n.
func (p *pattern) addClass(id int, sig []byte, sets int) {
	has := func(k int) bool { return sig[k/8]>>(k%8)&1 != 0 }
	for k := range sets {
		if has(k) {
			p.sets[k][id/64] |= 1 << (id % 64)
		}
	}
	ctx := byte(ctxOther)
	switch {
	case p.planes == 1:
		ctx = 0
	case has(sets):
		ctx = ctxWord
	case has(sets + 1):
		ctx = ctxLine
	}
	p.context = append(p.context, ctx)
	p.word = append(p.word, has(sets))
}

// readSpaceAs makes the pattern take a space for r.
func (p *pattern) readSpaceAs(r rune) {
	p.ascii[' '] = p.class(r)
	p.pages = append(p.pages, p.pages[p.page[0]])
	p.page[0] = uint16(len(p.pages) - 1)
	p.pages[p.page[0]][' '] = p.ascii[' ']
	p.starts[' '] = p.starts[utf8.RuneSelf]
}

func (p *pattern) class(r rune) uint8 { return p.pages[p.page[r>>8]][r&255] }

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
