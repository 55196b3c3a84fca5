package demotext

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// endMark is the line between stories. It is a border and never text.
const endMark = "<|endoftext|>"

// maxLine bounds a line of a text file.
const maxLine = 1 << 20

// ReadStories reads stories that lines of <|endoftext|> part; the mark may also stand within a line. A story's lines stay lines, without empty ones and
// with one space between words. An error names the line.
func ReadStories(r io.Reader) (stories []string, err error) {
	var story []string
	flush := func() {
		if len(story) > 0 {
			stories = append(stories, strings.Join(story, "\n"))
		}
		story = story[:0]
	}
	err = eachLine(r, func(_ int, line string) error {
		for {
			before, after, mark := strings.Cut(line, endMark)
			if s := strings.Join(strings.Fields(before), " "); s != "" {
				story = append(story, s)
			}
			if !mark {
				return nil
			}
			flush()
			line = after
		}
	})
	flush()
	return stories, err
}

// eachLine calls f with every line, without its end. It refuses lines over maxLine and what is not UTF-8.
func eachLine(r io.Reader, f func(n int, line string) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	n := 0
	for in.Scan() {
		n++
		if !utf8.ValidString(in.Text()) {
			return fmt.Errorf("line %d: is not UTF-8", n)
		}
		if err := f(n, in.Text()); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d: is longer than %d bytes", n+1, maxLine)
	}
	return in.Err()
}

// Sizes of passages, in bytes: they end with the paragraph that reaches passageBytes; shorter ends of books are left out.
const (
	passageBytes = 1500
	leastBytes   = 200
)

// Passages cuts a book, a paragraph a line, into passages. Headings are left out, and with them all lines without a small letter; underscores go.
func Passages(r io.Reader) (list []string, err error) {
	var b strings.Builder
	flush := func() {
		if b.Len() >= leastBytes {
			list = append(list, b.String())
		}
		b.Reset()
	}
	err = eachLine(r, func(_ int, line string) error {
		line = strings.Join(strings.Fields(strings.NewReplacer("_", "", endMark, " ").Replace(line)), " ")
		if line == "" {
			return nil
		}
		if heading(line) {
			flush()
			return nil
		}
		for _, s := range pieces(line) {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(s)
			if b.Len() >= passageBytes {
				flush()
			}
		}
		return nil
	})
	flush()
	return list, err
}

// pieces cuts a paragraph that is longer than two passages behind full stops.
func pieces(s string) (out []string) {
	for len(s) > 2*passageBytes {
		i := strings.LastIndex(s[:passageBytes], ". ")
		if i < 0 {
			i = strings.LastIndexByte(s[:passageBytes], ' ')
		} else {
			i++
		}
		if i <= 0 {
			break
		}
		out, s = append(out, s[:i]), strings.TrimSpace(s[i:])
	}
	return append(out, s)
}

// heading reports whether a line is no text: without a small letter, a chapter's head, or short and without a mark at its end.
func heading(s string) bool {
	if !strings.ContainsFunc(s, unicode.IsLower) {
		return true
	}
	first, _, _ := strings.Cut(strings.ToLower(s), " ")
	if slices.Contains([]string{"chapter", "by", "illustrated", "contents"}, first) && len(s) < 100 {
		return true
	}
	return len(s) < 80 && !strings.ContainsRune(`.!?,;:"'-)`, rune(s[len(s)-1]))
}

// Parameters of the hold-out: stories with commonShingles shingles of 8 words in common belong together; shingles of more than frequentIn stories are
// phrases of the language ("once upon a time there was a little girl") and tie nothing.
const (
	heldWords      = 8
	commonShingles = 12
	frequentIn     = 20
)

// HoldOut parts stories into those to learn from and a share that is held out, as a function of the seed. Stories that have whole passages in common stay
// on one side.
func HoldOut(stories []string, share float64, seed uint64) (train, held []string) {
	groups := relatives(stories)
	order := generator(seed, 0x686f6c64).Perm(len(groups))
	want := int(share*float64(len(stories)) + 0.5)
	out := make([]bool, len(stories))
	n := 0
	for _, g := range order {
		if n+len(groups[g]) > want { // too many relatives: the next group
			continue
		}
		for _, i := range groups[g] {
			out[i] = true
		}
		n += len(groups[g])
	}
	for i, s := range stories {
		if out[i] {
			held = append(held, s)
		} else {
			train = append(train, s)
		}
	}
	return train, held
}

// relatives groups the numbers of stories that are tied by common shingles.
func relatives(stories []string) (groups [][]int) {
	in := map[uint64][]int{}
	for i, s := range stories {
		for _, h := range shingles(s, heldWords) {
			in[h] = append(in[h], i)
		}
	}
	common := map[[2]int]int{}
	for _, list := range in {
		if len(list) > frequentIn {
			continue
		}
		for k, b := range list {
			for _, a := range list[:k] {
				common[[2]int{a, b}]++
			}
		}
	}
	parent := make([]int, len(stories))
	for i := range parent {
		parent[i] = i
	}
	root := func(i int) int {
		for parent[i] != i {
			i = parent[i]
		}
		return i
	}
	for pair, n := range common {
		if n >= commonShingles {
			a, b := root(pair[0]), root(pair[1])
			parent[max(a, b)] = min(a, b) // the least number is the root, whatever the order of the map
		}
	}
	index := map[int]int{}
	for i := range stories {
		r := root(i)
		if _, ok := index[r]; !ok {
			index[r] = len(groups)
			groups = append(groups, nil)
		}
		groups[index[r]] = append(groups[index[r]], i)
	}
	return groups
}

// leaks finds texts that have passages of what is held out.
type leaks map[uint64]bool

// newLeaks takes the shingles of held-out texts, without those that are frequent in all.
func newLeaks(held, all []string) leaks {
	count := map[uint64]int{}
	for _, s := range all {
		for _, h := range shingles(s, heldWords) {
			count[h]++
		}
	}
	l := leaks{}
	for _, s := range held {
		for _, h := range shingles(s, heldWords) {
			if count[h] <= frequentIn {
				l[h] = true
			}
		}
	}
	return l
}

// has reports whether commonShingles shingles of a text are held out.
func (l leaks) has(text string) bool {
	n := 0
	for _, h := range shingles(text, heldWords) {
		if l[h] {
			n++
		}
	}
	return n >= commonShingles
}
