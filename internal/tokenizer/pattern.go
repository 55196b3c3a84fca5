package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The expressions of pre-tokenizers, as the Oniguruma syntax of tokenizer.json has them: alternation, groups (all of them are
// read as non-capturing), (?i:), lookahead of any length, classes with && and nesting, \p{..}, \s \d \w \b, greedy and lazy
// repetition, and possessive repetition of one class. Back-references, lookbehind and conditionals are errors.

type nodeKind uint8

const (
	nodeEmpty  nodeKind = iota
	nodeSet             // one code point of set
	nodeCat             // subs one after another
	nodeAlt             // the first of subs that matches
	nodeRepeat          // subs[0], min to max times (max < 0: no end)
	nodeLook            // subs[0] matches here (neg: does not), nothing consumed
	nodeAssert          // assert holds here
)

type node struct {
	kind     nodeKind
	set      runeSet
	subs     []*node
	min, max int
	lazy     bool
	neg      bool
	assert   assertion
}

type assertion uint8

const (
	assertWordB    assertion = iota // \b
	assertNotWordB                  // \B
	assertBegin                     // \A: start of the text
	assertLine                      // ^: start of a line
	assertEnd                       // \z: end of the text
	assertLineEnd                   // $: end of the text or before \n
)

const (
	maxPatternDepth  = 100  // nested groups and classes
	maxPatternInsts  = 4096 // size of the compiled program
	maxPatternRepeat = 1000 // a bound of {m,n}
)

type patternParser struct {
	src   string
	pos   int
	depth int
	fold  bool
}

func (p *patternParser) errorf(format string, args ...any) error {
	return fmt.Errorf("pattern offset %d: %s", p.pos, fmt.Sprintf(format, args...))
}

func (p *patternParser) more() bool { return p.pos < len(p.src) }

func (p *patternParser) accept(s string) bool {
	if len(p.src)-p.pos < len(s) || p.src[p.pos:p.pos+len(s)] != s {
		return false
	}
	p.pos += len(s)
	return true
}

// parsePattern parses the whole of src.
func parsePattern(src string) (*node, error) {
	p := &patternParser{src: src}
	if !utf8.ValidString(src) {
		return nil, p.errorf("not valid UTF-8")
	}
	n, err := p.alternation()
	if err == nil && p.more() {
		err = p.errorf("unmatched )")
	}
	return n, err
}

func (p *patternParser) alternation() (*node, error) {
	if p.depth++; p.depth > maxPatternDepth {
		return nil, p.errorf("groups nested deeper than %d", maxPatternDepth)
	}
	defer func() { p.depth-- }()
	alt := &node{kind: nodeAlt}
	for {
		cat := &node{kind: nodeCat}
		for p.more() && p.src[p.pos] != '|' && p.src[p.pos] != ')' {
			n, err := p.repetition()
			if err != nil {
				return nil, err
			}
			cat.subs = append(cat.subs, n)
		}
		alt.subs = append(alt.subs, cat)
		if !p.accept("|") {
			break
		}
	}
	if len(alt.subs) == 1 {
		return alt.subs[0], nil
	}
	return alt, nil
}

func (p *patternParser) repetition() (*node, error) {
	n, err := p.atom()
	if err != nil {
		return nil, err
	}
	for p.more() {
		lo, hi, counted := 0, -1, false
		switch p.src[p.pos] {
		case '*':
		case '+':
			lo = 1
		case '?':
			hi = 1
		case '{':
			var ok bool
			if lo, hi, ok, err = p.counts(); err != nil {
				return nil, err
			} else if !ok {
				return n, nil // a literal brace, read as the next atom
			}
			counted = true
		default:
			return n, nil
		}
		if !counted {
			p.pos++
		}
		if n.kind == nodeLook || n.kind == nodeAssert {
			return nil, p.errorf("repetition of an assertion")
		}
		if hi < 0 && nullable(n) {
			return nil, p.errorf("endless repetition of what may be empty")
		}
		r := &node{kind: nodeRepeat, subs: []*node{n}, min: lo, max: hi}
		switch {
		case p.accept("?"):
			r.lazy = true
		case p.more() && p.src[p.pos] == '+':
			// X*+ never gives back: for one class X it is X*(?!X), with a bound (X|(?!X)) for each copy; {m,n}+ means
			// something else in each dialect.
			if counted || n.kind != nodeSet {
				return nil, p.errorf("possessive repetition of more than one class is not supported")
			}
			p.pos++
			stop := &node{kind: nodeLook, neg: true, subs: []*node{n}}
			if hi == 1 {
				r = &node{kind: nodeAlt, subs: []*node{n, stop}}
			} else {
				r = &node{kind: nodeCat, subs: []*node{r, stop}}
			}
		}
		n = r
	}
	return n, nil
}

// counts reads {m}, {m,}, {,n} or {m,n}; ok is false for a brace that begins none of them.
func (p *patternParser) counts() (lo, hi int, ok bool, err error) {
	i := p.pos + 1
	number := func() (int, bool) {
		start := i
		for i < len(p.src) && p.src[i] >= '0' && p.src[i] <= '9' {
			i++
		}
		n, err := strconv.Atoi(p.src[start:i])
		return n, err == nil
	}
	lo, okLo := number()
	hi = lo
	if i < len(p.src) && p.src[i] == ',' {
		i++
		var okHi bool
		if hi, okHi = number(); !okHi {
			hi = -1
		}
		if !okLo && !okHi {
			return 0, 0, false, nil
		}
	} else if !okLo {
		return 0, 0, false, nil
	}
	if i >= len(p.src) || p.src[i] != '}' {
		return 0, 0, false, nil
	}
	if lo > maxPatternRepeat || hi > maxPatternRepeat || hi >= 0 && lo > hi {
		return 0, 0, false, p.errorf("repetition bounds %s, limit is %d", p.src[p.pos:i+1], maxPatternRepeat)
	}
	p.pos = i + 1
	return lo, hi, true, nil
}

// nullable reports whether n can match without consuming.
func nullable(n *node) bool {
	switch n.kind {
	case nodeSet:
		return false
	case nodeCat:
		for _, s := range n.subs {
			if !nullable(s) {
				return false
			}
		}
		return true
	case nodeAlt:
		for _, s := range n.subs {
			if nullable(s) {
				return true
			}
		}
		return false
	case nodeRepeat:
		return n.min == 0 || nullable(n.subs[0])
	}
	return true
}

// quotePattern is the expression that matches s alone.
func quotePattern(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (p *patternParser) set(s runeSet) *node {
	if p.fold {
		s = s.fold()
	}
	return &node{kind: nodeSet, set: s}
}

func (p *patternParser) atom() (*node, error) {
	switch {
	case p.accept("(?i)"):
		p.fold = true // to the end of the enclosing group, which restores it
		return &node{kind: nodeEmpty}, nil
	case p.accept("("):
		return p.group()
	case p.accept("."):
		return p.set(runeSet{'\n', '\n'}.negate()), nil
	case p.accept("^"):
		return &node{kind: nodeAssert, assert: assertLine}, nil
	case p.accept("$"):
		return &node{kind: nodeAssert, assert: assertLineEnd}, nil
	case p.accept("["):
		s, err := p.class()
		return p.set(s), err
	case p.accept("\\"):
		return p.escape()
	}
	switch p.src[p.pos] {
	case '*', '+', '?':
		return nil, p.errorf("nothing to repeat")
	}
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += n
	return p.set(runeSet{r, r}), nil
}

func (p *patternParser) group() (*node, error) {
	outer := p.fold
	kind, neg := nodeEmpty, false
	switch {
	case p.accept("?:"):
	case p.accept("?i:"):
		p.fold = true
	case p.accept("?-i:"):
		p.fold = false
	case p.accept("?="):
		kind = nodeLook
	case p.accept("?!"):
		kind, neg = nodeLook, true
	case p.more() && p.src[p.pos] == '?':
		return nil, p.errorf("group (%.3s is not supported", p.src[p.pos:])
	}
	n, err := p.alternation()
	if err != nil {
		return nil, err
	}
	if !p.accept(")") {
		return nil, p.errorf("missing )")
	}
	p.fold = outer
	if kind == nodeLook {
		n = &node{kind: nodeLook, neg: neg, subs: []*node{n}}
	}
	return n, nil
}

// escape parses what follows a backslash outside a class.
func (p *patternParser) escape() (*node, error) {
	if !p.more() {
		return nil, p.errorf("backslash at the end")
	}
	switch p.src[p.pos] {
	case 'b':
		p.pos++
		return &node{kind: nodeAssert, assert: assertWordB}, nil
	case 'B':
		p.pos++
		return &node{kind: nodeAssert, assert: assertNotWordB}, nil
	case 'A':
		p.pos++
		return &node{kind: nodeAssert, assert: assertBegin}, nil
	case 'z':
		p.pos++
		return &node{kind: nodeAssert, assert: assertEnd}, nil
	}
	s, _, err := p.escapedSet()
	if err != nil {
		return nil, err
	}
	return p.set(s), nil
}

// escapedSet parses what follows a backslash, in a class or outside; single says that it stands for one code point.
func (p *patternParser) escapedSet() (s runeSet, single bool, err error) {
	if !p.more() {
		return nil, false, p.errorf("backslash at the end")
	}
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += n
	switch r {
	case 's':
		return setSpace, false, nil
	case 'S':
		return setSpace.negate(), false, nil
	case 'd':
		return setDigit, false, nil
	case 'D':
		return setDigit.negate(), false, nil
	case 'w':
		return setWord, false, nil
	case 'W':
		return setWord.negate(), false, nil
	case 'p', 'P':
		s, err := p.property()
		if r == 'P' {
			s = s.negate()
		}
		return s, false, err
	case 'n':
		r = '\n'
	case 'r':
		r = '\r'
	case 't':
		r = '\t'
	case 'f':
		r = '\f'
	case 'v':
		r = '\v'
	case 'x':
		r, err = p.hex(2)
	case 'u':
		r, err = p.hex(4)
	default:
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return nil, false, p.errorf("escape \\%c is not supported", r)
		}
	}
	return runeSet{r, r}, true, err
}

func (p *patternParser) property() (runeSet, error) {
	if !p.more() {
		return nil, p.errorf("\\p at the end")
	}
	name := p.src[p.pos : p.pos+1]
	if name != "{" {
		p.pos++
	} else {
		end := p.pos
		for end < len(p.src) && p.src[end] != '}' {
			end++
		}
		if end == len(p.src) {
			return nil, p.errorf("missing }")
		}
		name = p.src[p.pos+1 : end]
		p.pos = end + 1
	}
	neg := len(name) > 0 && name[0] == '^'
	if neg {
		name = name[1:]
	}
	s, ok := propertySet(name)
	if !ok {
		return nil, p.errorf("unknown class \\p{%.40s}", name)
	}
	if neg {
		s = s.negate()
	}
	return s, nil
}

// hex reads {digits} or exactly n hexadecimal digits.
func (p *patternParser) hex(n int) (rune, error) {
	digits := p.src[p.pos:min(p.pos+n, len(p.src))]
	skip, short := len(digits), len(digits) < n
	if len(digits) > 0 && digits[0] == '{' {
		end := p.pos
		for end < len(p.src) && p.src[end] != '}' {
			end++
		}
		digits, skip, short = p.src[p.pos+1:end], end+1-p.pos, end == len(p.src)
	}
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || short || v > unicode.MaxRune {
		return 0, p.errorf("bad hexadecimal escape")
	}
	p.pos += skip
	return rune(v), nil
}

// class parses a bracket expression after its [, with nested classes and && as intersection.
func (p *patternParser) class() (runeSet, error) {
	if p.depth++; p.depth > maxPatternDepth {
		return nil, p.errorf("classes nested deeper than %d", maxPatternDepth)
	}
	defer func() { p.depth-- }()
	neg := p.accept("^")
	var cur, all runeSet
	intersect := false
	join := func() {
		cur = cur.normal()
		if intersect {
			cur = all.intersect(cur)
		}
		all, cur, intersect = cur, nil, true
	}
	for first := true; ; first = false {
		switch {
		case !p.more():
			return nil, p.errorf("missing ]")
		case !first && p.accept("]"):
			join()
			if neg {
				all = all.negate()
			}
			return all, nil
		case p.accept("&&"):
			join()
			continue
		case p.accept("[:"):
			return nil, p.errorf("POSIX brackets are not supported")
		case p.accept("["):
			s, err := p.class()
			if err != nil {
				return nil, err
			}
			cur = append(cur, s...)
			continue
		}
		lo, single, err := p.classItem()
		if err != nil {
			return nil, err
		}
		if !single || p.pos+1 >= len(p.src) || p.src[p.pos] != '-' || p.src[p.pos+1] == ']' {
			cur = append(cur, lo...)
			continue
		}
		p.pos++
		hi, single, err := p.classItem()
		if err != nil {
			return nil, err
		}
		if !single || hi[0] < lo[0] {
			return nil, p.errorf("bad range in a class")
		}
		cur.add(lo[0], hi[0])
	}
}

func (p *patternParser) classItem() (s runeSet, single bool, err error) {
	if p.accept("\\") {
		return p.escapedSet()
	}
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += n
	return runeSet{r, r}, true, nil
}
