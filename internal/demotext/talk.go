package demotext

import (
	_ "embed"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
)

var (
	//go:embed grammar/talk.txt
	talkText string
	//go:embed grammar/heldout.txt
	heldOutText string
)

var (
	talkGrammar = sync.OnceValue(func() *grammar { return must(parseGrammar(wordsText, talkText)) })
	heldOutKeys = keysOf(HeldOutQuestions())
)

// Message is what one says in a talk; Role is "user" or "assistant".
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Kinds are the names of the kinds of talk.
func Kinds() (names []string) {
	for _, f := range talkGrammar().frames {
		names = append(names, f.name)
	}
	return names
}

// HeldOutQuestions are the 50 questions that the finished model is asked. No talk has one of them word for word.
func HeldOutQuestions() (list []string) {
	for s := range strings.Lines(heldOutText) {
		if s = strings.TrimSpace(s); s != "" && s[0] != '#' {
			list = append(list, s)
		}
	}
	return list
}

// keysOf has a question without its marks and capitals.
func keysOf(list []string) map[string]bool {
	keys := map[string]bool{}
	for _, s := range list {
		keys[questionKey(s)] = true
	}
	return keys
}

func questionKey(s string) string { return strings.Join(wordsOf(s), " ") }

// maxExchanges is the most questions with their answers that a talk is put together of.
const maxExchanges = 4

// Dialogue is a talk of one to maxExchanges parts, a function of (seed, number). Short ones come again; Dialogues leaves them out.
func Dialogue(seed, number uint64) []Message {
	r := generator(seed^0x7461_6c6b, number)
	n := 1 + max(0, r.IntN(maxExchanges+1)-1) // two of five have one part
	var kinds []*frame
	taken := map[*frame]bool{}
	story := false
	for len(kinds) < n {
		f := talkGrammar().frames[r.IntN(len(talkGrammar().frames))]
		switch {
		case n > 1 && len(kinds) == 0 && r.IntN(3) == 0:
			f = talkGrammar().frame([]string{"hello", "hello-name"}[r.IntN(2)])
		case n > 1 && len(kinds) == n-1 && r.IntN(3) == 0:
			f = talkGrammar().frame([]string{"thanks", "bye"}[r.IntN(2)])
		case n > 1 && (f.name == "hello" || f.name == "hello-name" || f.name == "bye" || f.name == "thanks"):
			continue
		case r.IntN(6) == 0:
			f = talkGrammar().frame([]string{"story-about", "story-child", "story-any", "story-offer"}[r.IntN(4)])
		}
		if isStory := strings.HasPrefix(f.name, "story-"); taken[f] || (isStory && story) || (f.name == "user-name" && len(kinds) > 0) {
			continue
		} else if isStory {
			story = true
		}
		taken[f] = true
		kinds = append(kinds, f)
	}
	var talk []Message
	for _, f := range kinds {
		talk = append(talk, must(talkGrammar().talk(f, r, false))...)
	}
	if r.IntN(3) == 0 { // who types without capitals and marks
		for i, m := range talk {
			if m.Role == "user" {
				talk[i].Content = typed(m.Content)
			}
		}
	}
	return talk
}

// typed is what a user writes in haste: a small letter at the beginning, no mark at the end.
func typed(s string) string {
	s = strings.TrimRight(s, ".?! ")
	return strings.ToLower(s[:1]) + s[1:]
}

// frame is the frame of that name.
func (g *grammar) frame(name string) *frame {
	for _, f := range g.frames {
		if f.name == name {
			return f
		}
	}
	panic("demotext: there is no kind " + name)
}

// maxTries bounds how often a question that is held out is drawn again.
const maxTries = 1000

// talk is the messages of a kind. A question that is held out is put in another way.
func (g *grammar) talk(f *frame, r *rand.Rand, count bool) ([]Message, error) {
	for range maxTries {
		c, err := g.newCast(f, r)
		if err != nil {
			return nil, err
		}
		c.count = count
		var list []Message
		held := false
		for i, b := range f.blocks {
			s, err := c.block(b)
			if err != nil {
				return nil, err
			}
			role := "user"
			if i%2 == 1 {
				role = "assistant"
				if s, err = c.made(s); err != nil {
					return nil, fmt.Errorf("%s: %w", b.where, err)
				}
			} else {
				s = finish(s)
			}
			held = held || (role == "user" && heldOutKeys[questionKey(s)])
			list = append(list, Message{role, s})
		}
		if !held {
			return list, nil
		}
	}
	return nil, fmt.Errorf("kind %s: every question of it is held out", f.name)
}

// made finishes an answer, and puts in what no grammar can say: %count% and stories.
func (c *cast) made(s string) (string, error) {
	switch {
	case strings.Contains(s, "%count%"):
		n, err := strconv.Atoi(c.slots["n"].word)
		if err != nil {
			return "", err
		}
		return finish(strings.ReplaceAll(s, "%count%", countTo(n, c.r.IntN(2) == 0))), nil
	case s == "%story%":
		g := storyGrammar()
		f := g.frames[c.r.IntN(len(g.frames))]
		story, err := g.newCast(f, c.r)
		if err != nil {
			return "", err
		}
		return story.paragraphs(f.blocks)
	case s == "%story animal%":
		return c.storyOf("animal", func(e *entry) { e.fields["kind"] = c.slots["x"].word })
	case s == "%story child%":
		return c.storyOf("child", func(e *entry) { *e = c.slots["x"] })
	}
	return finish(s), nil
}

// countTo is "1, 2, 3." or "one, two, three.".
func countTo(n int, words bool) string {
	var list []string
	for i := 1; i <= n; i++ {
		e := numberEntry(i)
		if words {
			e.word = e.fields["word"]
		}
		list = append(list, e.word)
	}
	return strings.Join(list, ", ") + "."
}

// storyOf tells a story whose hero is of a group, and changed.
func (c *cast) storyOf(group string, change func(*entry)) (string, error) {
	g := storyGrammar()
	for range maxTries {
		f := *g.frames[c.r.IntN(len(g.frames))]
		if f.cast[0].name != "hero" || (f.cast[0].from != group && f.cast[0].from != "anyone") {
			continue
		}
		f.cast = append([]slot{{"hero", group}}, f.cast[1:]...)
		story, err := g.newCast(&f, c.r)
		if err != nil {
			return "", err
		}
		hero := story.slots["hero"]
		change(&hero)
		if story.slots["friend"].word == hero.word || story.slots["small"].word == hero.word {
			continue
		}
		story.slots["hero"] = hero
		return story.paragraphs(f.blocks)
	}
	return "", fmt.Errorf("no plot has a hero of %s", group)
}

// Dialogues gives the talks of a seed in their order, never one twice. It does not end by itself.
func Dialogues(seed uint64) iter.Seq[[]Message] {
	return func(yield func([]Message) bool) {
		seen := map[uint64]bool{}
		for n := uint64(0); ; n++ {
			d := Dialogue(seed, n)
			if h := hashText(talkString(d)); !seen[h] {
				seen[h] = true
				if !yield(d) {
					return
				}
			}
		}
	}
}

// talkString is a talk as one text.
func talkString(list []Message) string {
	var b strings.Builder
	for _, m := range list {
		b.WriteString(m.Role + ": " + m.Content + "\n")
	}
	return b.String()
}
