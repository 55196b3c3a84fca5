package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"
)

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
