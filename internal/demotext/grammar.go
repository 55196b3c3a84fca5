package demotext

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"unicode"
)

// A grammar is lists of words, rules and frames, read of a text:
//
//	list girl (he=she kind=girl): Lily, Mia, Sue; kind=queen   entries with their fields, behind the fields that all have
//	group child: girl boy                                      a draw takes a list first, then an entry
//	rule glad:                                                 a block of lines, each a way to say it
//	plot lost-toy: hero=child toy=toy                          a frame: its cast, then blocks that an empty line parts
//	kind sums: a=1..9 b=1..9 c=a+b                             the same with questions and answers
//
// A line may hold {hero} and {hero.he} (the word of a slot, a field of it), <glad> (a rule), [one|other|] (a choice) and @hero "..." (speech). A
// field that starts with @ is drawn from the list of that name. Sentences get their capitals, and "a" its "an", when all is put together.
type grammar struct {
	lists  map[string]*list
	groups map[string][]string
	rules  map[string]*block
	frames []*frame
	blocks []*block // all, in the order of the text
}

// list is words with fields.
type list struct {
	name    string
	fields  map[string]string
	entries []entry
}

type entry struct {
	word   string
	fields map[string]string
}

// frame is a plot of a story, or a kind of talk.
type frame struct {
	name   string
	cast   []slot
	blocks []*block
}

// slot is a name in a frame and what it is drawn from: a list or group, a range, or a sum of slots and numbers.
type slot struct{ name, from string }

// block is ways to say one thing. used counts how often each was taken: for tests.
type block struct {
	where string
	ways  [][]node
	used  []int
}

// node is a piece of a line.
type node struct {
	kind byte // 't' text, 's' slot, 'r' rule, 'c' choice, 'q' speech
	text string
	alt  [][]node
}

// isName reports whether s names a list, a rule or a field.
func isName(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && r != '-' && !unicode.IsDigit(r) }) < 0
}

// parseGrammar reads texts as one grammar. An error names the line.
func parseGrammar(texts ...string) (*grammar, error) {
	g := &grammar{lists: map[string]*list{}, groups: map[string][]string{}, rules: map[string]*block{}}
	for _, text := range texts {
		p := grammarParser{g: g}
		for i, s := range strings.Split(text, "\n") {
			if err := p.line(i+1, s); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
		}
	}
	return g, g.check()
}

// grammarParser knows in what it is.
type grammarParser struct {
	g     *grammar
	list  *list
	rule  *block
	frame *frame
	open  bool // the frame's last block goes on
}

func (p *grammarParser) line(n int, s string) error {
	body := strings.TrimSpace(s)
	switch {
	case strings.HasPrefix(body, "#"):
		return nil
	case body == "":
		p.open = false
		return nil
	case s[0] != ' ':
		return p.section(n, body)
	case p.list != nil:
		return p.list.add(body)
	case p.rule != nil:
		return p.rule.add(body)
	case p.frame != nil:
		if !p.open {
			b := &block{where: fmt.Sprintf("%s, line %d", p.frame.name, n)}
			p.frame.blocks, p.g.blocks = append(p.frame.blocks, b), append(p.g.blocks, b)
			p.open = true
		}
		return p.frame.blocks[len(p.frame.blocks)-1].add(body)
	}
	return fmt.Errorf("%q belongs to no section", body)
}

func (p *grammarParser) section(n int, s string) error {
	p.list, p.rule, p.frame, p.open = nil, nil, nil, false
	head, rest, ok := strings.Cut(s, ":")
	word, name, _ := strings.Cut(head, " ")
	name, fields, _ := strings.Cut(strings.TrimSuffix(name, ")"), " (")
	if !ok || !isName(name) {
		return fmt.Errorf("%q is no head of a section", s)
	}
	g := p.g
	if (word == "list" || word == "group") && (g.lists[name] != nil || g.groups[name] != nil) || word == "rule" && g.rules[name] != nil {
		return fmt.Errorf("%s %s is there twice", word, name)
	}
	switch word {
	case "list":
		p.list = &list{name: name, fields: map[string]string{}}
		g.lists[name] = p.list
		if err := setFields(p.list.fields, strings.Fields(fields)); err != nil {
			return err
		}
		return p.list.add(rest)
	case "group":
		g.groups[name] = strings.Fields(rest)
	case "rule":
		p.rule = &block{where: fmt.Sprintf("rule %s, line %d", name, n)}
		g.rules[name] = p.rule
		g.blocks = append(g.blocks, p.rule)
	case "plot", "kind":
		p.frame = &frame{name: name}
		for _, f := range strings.Fields(rest) {
			k, v, ok := strings.Cut(f, "=")
			if !ok {
				return fmt.Errorf("slot %q has no =", f)
			}
			p.frame.cast = append(p.frame.cast, slot{k, v})
		}
		g.frames = append(g.frames, p.frame)
	default:
		return fmt.Errorf("section %q: want list, group, rule, plot or kind", word)
	}
	return nil
}

// setFields sets key=value; an underscore of a value stands for a space.
func setFields(m map[string]string, list []string) error {
	for _, f := range list {
		k, v, ok := strings.Cut(f, "=")
		if !ok || !isName(k) {
			return fmt.Errorf("field %q: want key=value", f)
		}
		m[k] = strings.ReplaceAll(v, "_", " ")
	}
	return nil
}

func (l *list) add(s string) error {
	for e := range strings.SplitSeq(s, ",") {
		parts := strings.Split(e, ";")
		word := strings.TrimSpace(parts[0])
		if word == "" {
			continue
		}
		fields := map[string]string{}
		for k, v := range l.fields {
			fields[k] = v
		}
		for _, f := range parts[1:] {
			k, v, ok := strings.Cut(strings.TrimSpace(f), "=")
			if !ok {
				return fmt.Errorf("list %s: %q: field %q has no =", l.name, word, f)
			}
			fields[k] = v
		}
		l.entries = append(l.entries, entry{word, fields})
	}
	return nil
}

func (b *block) add(s string) error {
	if s == "-" { // nothing is said
		s = ""
	}
	nodes, rest, err := parseNodes(s, "")
	if err != nil {
		return err
	}
	if rest != "" {
		return fmt.Errorf("%q closes nothing", rest)
	}
	b.ways, b.used = append(b.ways, nodes), append(b.used, 0)
	return nil
}

// parseNodes reads until one of the bytes of stop, which it leaves.
func parseNodes(s, stop string) (out []node, rest string, err error) {
	for s != "" && !strings.ContainsRune(stop, rune(s[0])) {
		var n node
		switch s[0] {
		case '{', '<':
			end, kind := "}", byte('s')
			if s[0] == '<' {
				end, kind = ">", 'r'
			}
			name, rest, ok := strings.Cut(s[1:], end)
			if !ok {
				return nil, "", fmt.Errorf("%q is not closed", s)
			}
			n, s = node{kind: kind, text: name}, rest
		case '[':
			n.kind = 'c'
			for s[0] != ']' {
				var way []node
				if way, s, err = parseNodes(s[1:], "|]"); err != nil {
					return nil, "", err
				}
				if s == "" {
					return nil, "", fmt.Errorf("a choice is not closed")
				}
				n.alt = append(n.alt, way)
			}
			s = s[1:]
		case '@':
			who, said, ok := strings.Cut(s[1:], ` "`)
			if !ok {
				return nil, "", fmt.Errorf("%q: want @slot \"speech\"", s)
			}
			way, after, err := parseNodes(said, `"`)
			if err != nil || after == "" {
				return nil, "", fmt.Errorf("%q: the speech is not closed", s)
			}
			n, s = node{kind: 'q', text: who, alt: [][]node{way}}, after[1:]
		case '"', ']', '}', '>':
			return nil, "", fmt.Errorf("%q closes nothing", s)
		default:
			i := strings.IndexAny(s, "{<[@\"]}>"+stop)
			if i < 0 {
				i = len(s)
			}
			n, s = node{kind: 't', text: s[:i]}, s[i:]
		}
		out = append(out, n)
	}
	return out, s, nil
}

// check finds names that nothing has: lists of casts and fields, rules, slots of frames.
func (g *grammar) check() error {
	for _, b := range g.blocks {
		if len(b.ways) == 0 {
			return fmt.Errorf("%s: is empty", b.where)
		}
	}
	for name, of := range g.groups {
		if len(of) == 0 {
			return fmt.Errorf("group %s is empty", name)
		}
		for _, l := range of {
			if g.lists[l] == nil {
				return fmt.Errorf("group %s: there is no list %s", name, l)
			}
		}
	}
	for _, l := range g.lists {
		if len(l.entries) == 0 {
			return fmt.Errorf("list %s is empty", l.name)
		}
		for _, e := range l.entries {
			for k, v := range e.fields {
				if from, ok := strings.CutPrefix(v, "@"); ok && g.lists[from] == nil {
					return fmt.Errorf("list %s: field %s: there is no list %s", l.name, k, from)
				}
			}
		}
	}
	for _, f := range g.frames {
		for seed := range uint64(64) {
			if _, err := g.newCast(f, rand.New(rand.NewPCG(seed, 0))); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	return nil
}

// A cast is what the slots of one text hold; choices of the text come from the same generator.
type cast struct {
	g     *grammar
	r     *rand.Rand
	slots map[string]entry
	depth int
	said  int  // blocks so far
	count bool // note in blocks what was used
}

// newCast draws the slots in their order. Words differ, also from what others are (the bear that comes is not one of two bears), and a friend is rather not of the hero's sex: so pronouns say who is meant.
func (g *grammar) newCast(f *frame, r *rand.Rand) (*cast, error) {
	c := &cast{g: g, r: r, slots: map[string]entry{}}
	taken, kinds := map[string]bool{}, map[string]bool{}
	for _, s := range f.cast {
		var e entry
		for try := 0; ; try++ {
			var err error
			if e, err = c.draw(s.from); err != nil {
				return nil, err
			}
			alike := s.name == "friend" && e.fields["he"] == c.slots["hero"].fields["he"] && try < 2
			same := taken[e.word] || taken[e.fields["kind"]] || kinds[e.word]
			if (!same && !alike) || e.fields["number"] != "" {
				break
			}
			if try > 1000 {
				return nil, fmt.Errorf("slot %s: no word is left in %s", s.name, s.from)
			}
		}
		taken[e.word], kinds[e.fields["kind"]] = true, true
		c.slots[s.name] = e
	}
	return c, nil
}

// draw takes a word of a list or group, a number of a range lo..hi, or a sum.
func (c *cast) draw(from string) (entry, error) {
	if lo, hi, ok := strings.Cut(from, ".."); ok {
		a, errA := c.number(lo)
		b, errB := c.number(hi)
		if errA != nil || errB != nil || b < a || b-a > maxRange {
			return entry{}, fmt.Errorf("range %q is none", from)
		}
		return numberEntry(a + c.r.IntN(b-a+1)), nil
	}
	if i := strings.IndexAny(from, "+-"); i > 0 && c.g.lists[from] == nil && c.g.groups[from] == nil {
		a, errA := c.number(from[:i])
		b, errB := c.number(from[i+1:])
		if errA != nil || errB != nil {
			return entry{}, fmt.Errorf("sum %q is none", from)
		}
		if from[i] == '-' {
			b = -b
		}
		return numberEntry(a + b), nil
	}
	if of := c.g.groups[from]; of != nil {
		from = of[c.r.IntN(len(of))]
	}
	l := c.g.lists[from]
	if l == nil {
		return entry{}, fmt.Errorf("there is no list %s", from)
	}
	e := l.entries[c.r.IntN(len(l.entries))]
	fields := map[string]string{}
	for k, v := range e.fields {
		fields[k] = v
	}
	for _, k := range sortedKeys(e.fields) {
		if list, ok := strings.CutPrefix(e.fields[k], "@"); ok {
			of := c.g.lists[list].entries
			fields[k] = of[c.r.IntN(len(of))].word
		}
	}
	return entry{e.word, fields}, nil
}

// maxRange bounds the numbers of a range.
const maxRange = 1 << 20

// number is a number, or that of a slot.
func (c *cast) number(s string) (int, error) {
	if e, ok := c.slots[s]; ok {
		s = e.word
	}
	return strconv.Atoi(s)
}

// numberWords are the names of numbers.
var numberWords = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen " +
	"nineteen twenty")

func numberEntry(n int) entry {
	word := strconv.Itoa(n)
	if n >= 0 && n < len(numberWords) {
		word = numberWords[n]
	}
	return entry{strconv.Itoa(n), map[string]string{"number": "1", "word": word}}
}

// Bounds of rules in rules, and of blocks in a text.
const (
	maxDepth = 20
	maxSaid  = 1000
)

// block says one of the ways of b.
func (c *cast) block(b *block) (string, error) {
	i := c.r.IntN(len(b.ways))
	if c.count {
		b.used[i]++
	}
	c.said++
	if c.depth++; c.depth > maxDepth || c.said > maxSaid {
		return "", fmt.Errorf("%s: rules call each other without end", b.where)
	}
	s, err := c.nodes(b.ways[i])
	c.depth--
	if err != nil {
		return "", fmt.Errorf("%s: %w", b.where, err)
	}
	return s, nil
}

func (c *cast) nodes(list []node) (string, error) {
	var out strings.Builder
	for _, n := range list {
		s, err := n.text, error(nil)
		switch n.kind {
		case 's':
			s, err = c.slot(n.text)
		case 'r':
			b := c.g.rules[n.text]
			if b == nil {
				return "", fmt.Errorf("there is no rule %s", n.text)
			}
			s, err = c.block(b)
		case 'c':
			s, err = c.nodes(n.alt[c.r.IntN(len(n.alt))])
		case 'q':
			s, err = c.speech(n)
		}
		if err != nil {
			return "", err
		}
		out.WriteString(s)
	}
	return out.String(), nil
}

// slot is the word or field of "name" or "name.field".
func (c *cast) slot(s string) (string, error) {
	name, field, has := strings.Cut(s, ".")
	e, ok := c.slots[name]
	if !ok {
		return "", fmt.Errorf("there is no slot %s", name)
	}
	if !has {
		return e.word, nil
	}
	v, ok := e.fields[field]
	if !ok {
		return "", fmt.Errorf("slot %s (%s) has no field %s", name, e.word, field)
	}
	return v, nil
}

// bound is a space behind which no sentence begins, though a full stop and a closing quote stand before it.
const bound = "\x01"

// speech says who says it before, behind or in the midst of what is said.
func (c *cast) speech(n node) (string, error) {
	who, err := c.slot(n.text)
	if err != nil {
		return "", err
	}
	said, err := c.nodes(n.alt[0])
	if err != nil {
		return "", err
	}
	said = sentences(said)
	if said == "" || !strings.ContainsRune(".!?", rune(said[len(said)-1])) {
		return "", fmt.Errorf("speech %q ends without . ! ?", said)
	}
	if i := strings.IndexAny(said, ".!?"); i < len(said)-1 && c.r.IntN(3) > 0 {
		return quoted(said[:i+1]) + bound + c.verb(said[i], who, true) + `. "` + strings.TrimSpace(said[i+1:]) + `"`, nil
	}
	last := said[len(said)-1]
	switch c.r.IntN(4) {
	case 0:
		return c.verb(last, who, false) + `, "` + said + `"`, nil
	case 1:
		return quoted(said) + bound + c.verb(last, who, false) + ".", nil
	}
	return quoted(said) + bound + c.verb(last, who, true) + ".", nil
}

// quoted is what is said, with a comma in place of its last full stop.
func quoted(s string) string {
	if t, ok := strings.CutSuffix(s, "."); ok {
		s = t + ","
	}
	return `"` + s + `"`
}

// verb says that who spoke; first puts the verb before a name.
func (c *cast) verb(mark byte, who string, first bool) string {
	v := "said"
	switch mark {
	case '?':
		v = "asked"
	case '!':
		v = []string{"said", "said", "said", "cried", "called"}[c.r.IntN(5)]
	}
	if first && who != "he" && who != "she" && who != "it" && who != "they" {
		return v + " " + who
	}
	return who + " " + v
}
