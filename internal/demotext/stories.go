package demotext

import (
	_ "embed"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
)

var (
	//go:embed grammar/words.txt
	wordsText string
	//go:embed grammar/stories.txt
	storiesText string
	//go:embed grammar/stories2.txt
	stories2Text string
)

// storyGrammar is the grammar of stories; it stands in this program, so that a fault in it is ours.
var storyGrammar = sync.OnceValue(func() *grammar { return must(parseGrammar(wordsText, storiesText, stories2Text)) })

func must[T any](v T, err error) T {
	if err != nil {
		panic("demotext: " + err.Error())
	}
	return v
}

// generator is a source of chances that is a function of (seed, number) alone; neighbours share nothing.
func generator(seed, number uint64) *rand.Rand {
	return rand.New(rand.NewPCG(mix(seed), mix(number^0x9e3779b97f4a7c15)))
}

// mix is the finalizer of splitmix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Story is the text of a story, a function of (seed, number). Two numbers have the same text so rarely that no pair is known; Stories leaves such out.
func Story(seed, number uint64) string {
	r := generator(seed, number)
	f := storyGrammar().frames[r.IntN(len(storyGrammar().frames))]
	return must(storyGrammar().story(f, r, false))
}

// story tells a story of the plot f.
func (g *grammar) story(f *frame, r *rand.Rand, count bool) (string, error) {
	c, err := g.newCast(f, r)
	if err != nil {
		return "", err
	}
	c.count = count
	return c.paragraphs(f.blocks)
}

// paragraphs says blocks one after the other, two to four of them in a line.
func (c *cast) paragraphs(list []*block) (string, error) {
	var out strings.Builder
	left := 2 + c.r.IntN(3)
	for _, b := range list {
		s, err := c.block(b)
		if err != nil {
			return "", err
		}
		if s = finish(s); s == "" {
			continue
		}
		switch {
		case out.Len() == 0:
		case left == 0:
			out.WriteByte('\n')
			left = 2 + c.r.IntN(3)
		default:
			out.WriteByte(' ')
		}
		out.WriteString(s)
		left--
	}
	return out.String(), nil
}

// Stories gives the stories of a seed in their order, never one twice. It does not end by itself.
func Stories(seed uint64) iter.Seq[string] {
	return func(yield func(string) bool) {
		seen := map[uint64]bool{}
		for n := uint64(0); ; n++ {
			s := Story(seed, n)
			if h := hashText(s); !seen[h] {
				seen[h] = true
				if !yield(s) {
					return
				}
			}
		}
	}
}

// Plots are the names of the skeletons that stories have.
func Plots() (names []string) {
	for _, f := range storyGrammar().frames {
		names = append(names, f.name)
	}
	return names
}
