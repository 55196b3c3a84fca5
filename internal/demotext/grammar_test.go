package demotext

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

const sample = 20_000

func TestStoryIsAFunctionOfSeedAndNumber(t *testing.T) {
	seen := map[string]bool{}
	for n := range uint64(200) {
		s, talk := Story(5, n), talkString(Dialogue(5, n))
		if s != Story(5, n) || talk != talkString(Dialogue(5, n)) {
			t.Fatalf("number %d: two texts", n)
		}
		if seen[s] || s == Story(6, n) {
			t.Fatalf("number %d: the text of another number or seed", n)
		}
		seen[s] = true
	}
}

func TestNoTwoAreTheSame(t *testing.T) {
	seen := map[string]bool{}
	for s := range Stories(1) {
		if s != Story(1, uint64(len(seen))) || seen[s] { // no number is left out: stories do not come again
			t.Fatalf("number %d: twice, or one was left out: %s", len(seen), s)
		}
		if seen[s] = true; len(seen) == sample {
			break
		}
	}
	clear(seen)
	for d := range Dialogues(1) {
		s := talkString(d)
		if seen[s] {
			t.Fatalf("twice: %s", s)
		}
		if seen[s] = true; len(seen) == sample {
			break
		}
	}
}

// casts are stories with what was drawn for them.
func casts(t *testing.T, n int, f func(plot string, c *cast, text string)) {
	t.Helper()
	r := generator(11, 1)
	for range n {
		plot := storyGrammar().frames[r.IntN(len(storyGrammar().frames))]
		c, err := storyGrammar().newCast(plot, r)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.paragraphs(plot.blocks)
		if err != nil {
			t.Fatal(err)
		}
		f(plot.name, c, s)
	}
}

var (
	wrongArticle = regexp.MustCompile(`\b[Aa] [aeio]|\b[Aa]n [^aeiou]|\b[Aa] [A-Z]|\b[Aa] (umbrella|ugly|under)`)
	left         = regexp.MustCompile(`[\[\]{}<>|@%\x01]|  |^ | $| \n|\n |\n\n| [.,!?]|[.,!?]{2}|""`)
	noCapital    = regexp.MustCompile(`(^|\n|[.!?] )[a-z]|[a-z] "[a-z]|, "[a-z]|[.!?] "[a-z]`)
	doubled      = regexp.MustCompile(`\b(the the|a a|to to|was was|and and|in in|had had|of of)\b`)
	male         = regexp.MustCompile(`\b([Hh]e|[Hh]im|[Hh]is|himself|boy)\b`)
	female       = regexp.MustCompile(`\b([Ss]he|[Hh]er|herself|girl)\b`)
)

// TestStoriesAgree looks at articles, capitals, pronouns and names of many stories.
func TestStoriesAgree(t *testing.T) {
	// who else is spoken of: the snowman, a grandmother who knits, an old man who passes
	others := map[string]bool{"snow-day": true, "clothes-wind": true, "lemon-stand": true}
	allowed := map[string]bool{"I": true, "Mister": true, "White": true}
	onlyMen, onlyWomen, friends, alike := 0, 0, 0, 0
	casts(t, sample/8, func(plot string, c *cast, s string) {
		for what, re := range map[string]*regexp.Regexp{"article": wrongArticle, "syntax": left, "capital": noCapital, "doubled": doubled} {
			if m := re.FindString(s); m != "" {
				t.Fatalf("%s: %s: %q in: %s", plot, what, m, s)
			}
		}
		if openQuote(s) >= 0 {
			t.Fatalf("%s: a quote is open: %s", plot, s)
		}
		if f, ok := c.slots["friend"]; ok {
			friends, alike = friends+1, alike+count(f.fields["he"] == c.slots["hero"].fields["he"])
		}
		names, men, women := map[string]bool{}, 0, 0
		for _, e := range c.slots {
			for w := range strings.FieldsSeq(e.word) {
				names[w] = true
			}
			men, women = men+count(e.fields["he"] == "he"), women+count(e.fields["he"] == "she")
		}
		if !others[plot] && women == 0 && female.MatchString(s) {
			t.Fatalf("%s: %q and no woman: %s", plot, female.FindString(s), s)
		}
		if !others[plot] && men == 0 && male.MatchString(s) {
			t.Fatalf("%s: %q and no man: %s", plot, male.FindString(s), s)
		}
		onlyMen, onlyWomen = onlyMen+count(women == 0), onlyWomen+count(men == 0)
		words := strings.Fields(s)
		for i, w := range words[1:] {
			bare := strings.TrimSuffix(strings.Trim(w, `.,!?"`), "'s")
			if bare != "" && bare[0] >= 'A' && bare[0] <= 'Z' && !strings.ContainsAny(words[i], `.!?"`) && w[0] != '"' && !names[bare] && !allowed[bare] {
				t.Fatalf("%s: the name %q is none of %v: %s", plot, bare, names, s)
			}
		}
	})
	if alike > friends/5 || alike == 0 { // one of eight
		t.Errorf("%d of %d friends are of the hero's sex: pronouns do not say who is meant", alike, friends)
	}
	if onlyMen < sample/400 || onlyWomen < sample/400 {
		t.Errorf("stories with men alone %d, with women alone %d: the pronouns were not looked at", onlyMen, onlyWomen)
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestStoriesHaveTheLength(t *testing.T) {
	short, long := 0, 0
	for n := range uint64(sample / 4) {
		switch k := len(wordsOf(Story(2, n))); {
		case k < 60:
			short++
		case k > 250:
			long++
		}
	}
	if short > 0 || long > 0 {
		t.Errorf("of %d stories %d have less than 60 words and %d more than 250", sample/4, short, long)
	}
}

// TestStoriesOfOnePlotDiffer masks names and things, so that what is counted is phrasing.
func TestStoriesOfOnePlotDiffer(t *testing.T) {
	if n := len(Plots()); n < 25 {
		t.Fatalf("%d plots", n)
	}
	const each = 40
	for i, f := range storyGrammar().frames {
		r := generator(3, uint64(i))
		var of []map[string]bool
		for range each {
			s, err := storyGrammar().story(f, r, false)
			if err != nil {
				t.Fatal(err)
			}
			set := map[string]bool{}
			for _, x := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(".!?", r) }) {
				if x = strings.TrimSpace(x); len(x) > 3 {
					set[x] = true
				}
			}
			of = append(of, set)
		}
		shared, pairs := 0.0, 0.0
		for a := range of {
			for b := range a {
				n := 0
				for s := range of[a] {
					n += count(of[b][s])
				}
				shared += float64(n) / float64(min(len(of[a]), len(of[b])))
				pairs++
			}
		}
		if shared/pairs > 0.2 {
			t.Errorf("%s: two stories share %.0f %% of their sentences", f.name, 100*shared/pairs)
		}
	}
}

// TestEveryWayIsReached tells and talks until each way of each block was taken.
func TestEveryWayIsReached(t *testing.T) {
	for name, g := range map[string]*grammar{"stories": storyGrammar(), "talk": talkGrammar()} {
		r := generator(4, 4)
		for _, f := range g.frames {
			for range 250 {
				if name == "talk" {
					if len(f.blocks)%2 != 0 {
						t.Fatalf("%s: %d blocks: a question has no answer", f.name, len(f.blocks))
					}
					if _, err := g.talk(f, r, true); err != nil {
						t.Fatal(err)
					}
				} else if _, err := g.story(f, r, true); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, b := range g.blocks {
			for i, n := range b.used {
				if n == 0 {
					t.Errorf("%s: %s: way %d is never taken", name, b.where, i+1)
				}
			}
		}
	}
}

// TestChoicesAreTaken: each way of a choice within a line comes, an empty one too.
func TestChoicesAreTaken(t *testing.T) {
	g, err := parseGrammar("list x (he=he): red, big red\nplot p: x=x n=2..3 m=n+1\n  [a|b|] {x} <r> {n.word}{m}\n\nrule r:\n  one\n  @x \"Go. Now!\"\n")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for n := range uint64(3000) {
		s, err := g.story(g.frames[0], generator(1, n), false)
		if err != nil {
			t.Fatal(err)
		}
		seen[s] = true
	}
	for _, want := range []string{"A red one two3", "B red one three4", "Red one two3", "A big red one two3", `"Go," said big red. "Now!" `, `red said, "Go. Now!" `,
		`"Go. Now!" red said. T`, `"Go. Now!" called red. T`} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("never: %s", want)
		}
	}
}

func TestSentences(t *testing.T) {
	for _, c := range [][2]string{
		{`a owl saw  a egg. it was a one-eyed "oh no," cry`, `An owl saw an egg. It was a one-eyed "Oh no," cry`},
		{`"stop!"` + bound + `said a old man. he ran. "a`, `"Stop!" said an old man. He ran. "A`},
		{`she had a hour, a useful unicorn and a umbrella! 8 men? a 8`, `She had an hour, a useful unicorn and an umbrella! 8 men? An 8`},
		{``, ``},
	} {
		if got := finish(c[0]); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestGrammarFaults(t *testing.T) {
	for text, want := range map[string]string{
		"  x":                        "belongs to no section",
		"lost x: y":                  "want list, group",
		"list x":                     "no head",
		"list x:":                    "is empty",
		"list x: a; b":               "has no =",
		"list x (b): a":              "want key=value",
		"list x: a\nlist x: b":       "there twice",
		"rule x:\n  a\nrule x:\n  b": "there twice",
		"group g: x":                 "there is no list x",
		"list x: a; k=@y":            "there is no list y",
		"rule x:":                    "is empty",
		"group x:":                   "is empty",
		"plot p: a=0..99999999":      "range",
		"plot p: a":                  "has no =",
		"plot p: a=y":                "there is no list y",
		"plot p: a=3..1":             "range",
		"plot p: a=b+1":              "sum",
		"list x: a\nplot p: a=x b=x": "no word is left",
		"rule x:\n  [a|b":            "not closed",
		"rule x:\n  {a":              "not closed",
		"rule x:\n  a]":              "closes nothing",
		"rule x:\n  a \" b":          "closes nothing",
		"rule x:\n  @a said":         "want @slot",
		"rule x:\n  @a \"said":       "not closed",
	} {
		if _, err := parseGrammar(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"plot p: a=1..2\n  {b}":                 "no slot b",
		"plot p: a=1..2\n  {a.x}":               "no field x",
		"plot p: a=1..2\n  <r>":                 "no rule r",
		"plot p: a=1..2\n  @a \"no\"":           "ends without",
		"rule r:\n  <r>\nplot p: a=1..2\n  <r>": "without end",
	} {
		g, err := parseGrammar(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.story(g.frames[0], generator(1, 1), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzGrammar(f *testing.F) {
	ff := testkit.Fuzz(f)
	ff.Add("list x (he=he): red, big; a=b\ngroup g: x\nplot p: x=g n=2..3 m=n+1\n  [a|b|] {x} <r> {n.word}{m}\n  -\n\nrule r:\n  one\n  @x \"Go. Now!\"\n")
	ff.Fuzz(func(t *testing.T, text string) {
		g, err := parseGrammar(text)
		if err != nil {
			return
		}
		for _, frame := range g.frames {
			g.story(frame, generator(1, 1), true)
		}
	})
}

func TestListsHaveNoWordTwiceByMistake(t *testing.T) {
	for name, l := range storyGrammar().lists {
		if name == "childadj" || name == "animaladj" {
			continue
		}
		var words []string
		for _, e := range l.entries {
			words = append(words, e.word)
		}
		slices.Sort(words)
		if n := len(slices.Compact(slices.Clone(words))); n != len(words) {
			t.Errorf("list %s has a word twice: %v", name, words)
		}
	}
}
