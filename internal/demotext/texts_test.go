package demotext

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ck/internal/testkit"
)

func TestTalk(t *testing.T) {
	if n := len(Kinds()); n < 40 {
		t.Errorf("%d kinds", n)
	}
	sum := regexp.MustCompile(`^(\w+) (plus|minus) (\w+) is (\w+)\.$`)
	about, named := regexp.MustCompile(`story (?:about|with) an? (?:little )?(\w+)`), regexp.MustCompile(`named (\w+)`)
	before := regexp.MustCompile(`^(Before|After) (\d+) comes (\d+)\.$`)
	number := func(s string) int {
		if i := slices.Index(numberWords, strings.ToLower(s)); i >= 0 {
			return i
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	counted, sums, stories, inHaste, parts := 0, 0, 0, 0, map[int]int{}
	for n := range uint64(sample / 4) {
		list := Dialogue(9, n)
		parts[len(list)/2]++
		for i, m := range list {
			if want := []string{"user", "assistant"}[i%2]; m.Role != want || m.Content == "" || left.MatchString(strings.TrimSuffix(m.Content, " = ?")) ||
				wrongArticle.MatchString(m.Content) && m.Role == "assistant" {
				t.Fatalf("talk %d: message %d (%s): %q", n, i, m.Role, m.Content)
			}
			end := m.Content[len(m.Content)-1]
			if hasty := m.Role == "user" && !strings.ContainsRune(".!?", rune(end)); hasty {
				inHaste++
			} else if noCapital.MatchString(m.Content) || !strings.ContainsRune(`.!?"`, rune(end)) {
				t.Fatalf("talk %d: no capital or no mark: %s", n, m.Content)
			}
			if x := sum.FindStringSubmatch(m.Content); x != nil {
				a, b, c := number(x[1]), number(x[3]), number(x[4])
				if x[2] == "minus" {
					b = -b
				}
				if a+b != c || c < 0 || c > 20 {
					t.Fatalf("%s", m.Content)
				}
				sums++
			}
			if m.Role == "user" && strings.HasPrefix(strings.ToLower(m.Content), "count to ") {
				x, a := strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(strings.TrimSuffix(m.Content, ".")), "count to "), ", please"), strings.TrimPrefix(list[i+1].Content, "Here it is: ")
				for k, w := range strings.Split(strings.TrimSuffix(a, "."), ", ") {
					if number(w) != k+1 {
						t.Fatalf("%s: %s", m.Content, a)
					}
				}
				if strings.Count(a, ", ")+1 != number(x) {
					t.Fatalf("%s: %s", m.Content, a)
				}
				counted++
			}
			if x := before.FindStringSubmatch(m.Content); x != nil {
				if a, b := number(x[2]), number(x[3]); (x[1] == "Before" && a-1 != b) || (x[1] == "After" && a+1 != b) {
					t.Fatalf("%s", m.Content)
				}
				counted++
			}
			if x := about.FindStringSubmatch(m.Content); x != nil && m.Role == "user" && !strings.Contains(m.Content, "named") {
				stories++
				if a := list[i+1].Content; !strings.Contains(a, x[1]) || len(wordsOf(a)) < 60 {
					t.Fatalf("%s: %s", m.Content, a)
				}
			}
			if x := named.FindStringSubmatch(m.Content); x != nil && m.Role == "user" {
				if a := list[i+1].Content; strings.Count(a, x[1]) < 3 {
					t.Fatalf("%s: %s", m.Content, a)
				}
			}
		}
	}
	if counted < 20 || inHaste < 100 || sums < 50 || stories < 30 || len(parts) != maxExchanges+1 { // a name and what it is are two parts of one kind
		t.Errorf("%d countings, %d sums, %d stories and %d messages in haste were looked at, parts %v", counted, sums, stories, inHaste, parts)
	}
}

func TestHeldOutQuestions(t *testing.T) {
	list := HeldOutQuestions()
	if len(list) != 50 || len(heldOutKeys) != 50 {
		t.Fatalf("%d questions, %d differ", len(list), len(heldOutKeys))
	}
	// What the generator would say is left out once it is held out, and only by that.
	said := func() (n int) {
		for i := range uint64(3000) {
			for _, m := range Dialogue(12, i) {
				n += count(questionKey(m.Content) == "what can you do" && m.Role == "user")
				if m.Role == "user" && heldOutKeys[questionKey(m.Content)] {
					t.Fatalf("talk %d: %q is held out", i, m.Content)
				}
			}
		}
		return n
	}
	if said() == 0 {
		t.Error(`"What can you do?" is never asked`)
	}
	heldOutKeys["what can you do"] = true
	defer delete(heldOutKeys, "what can you do")
	if n := said(); n != 0 {
		t.Errorf("a held-out question is asked %d times", n)
	}
}

// A fault planted in a sound story, and who of both checkers must see it. They differ where Filter's doc says so.
var planted = []struct{ what, from, to, filter, judge string }{
	{"nothing", "", "", "", ""},
	{"a quote is not closed", `day, Tom."`, `day, Tom.`, "quote", "quotes"},
	{"a quote closes nothing", `so tired`, `so tired"`, "quote", "quotes"},
	{"no full stop", "to sleep.", "to sleep", "end", "no end"},
	{"a word of no language", "the red ball in", "the glorpf ball in", "word", "unknown glorpf"},
	{"a sentence without a verb", "He ran to the house with the ball.", "He to the house with the ball.", "verb", "no verb"},
	{"a phrase three times in a row", "he ran home", "he ran home he ran home he ran home", "repetition", "repeats"},
	{"a word four times", "very happy", "very very very very happy", "repetition", "repeats"},
	// people say so
	{"a word three times", "very happy", "very very very happy", "", ""},
	{"a name without its capital", "with the ball. After", "with the zorblat. Zorblat ran. He saw Zorblat. After", "word", "unknown zorblat"},
	// Judge counts marks
	{"two quotes turned around", `"It is a good day, Tom."`, `" It is a good day, Tom. "`, "quote", ""},
	// Filter looks at rows
	{"a sentence three times, apart", "The sun was warm.",
		"The sun was warm. Tom was glad. The sun was warm. Tom ran fast. The sun was warm.", "", "repeats"},
	// Judge knows names by their capital
	{"a name that nobody has", "Sam", "Zorblat", "word", ""},
	// Judge strips endings
	{"an ending of a known word", "very happy", "very ballest", "word", ""},
	// Judge does not count in all of a text, and looks at no speaker
	{"one thing all the time", "He ran to the house with the ball.",
		"The ball was big. A ball can go far. The ball ran to Sam. Then the ball ran home. Sam lost the ball. A ball was in the grass. After the ball, he ran to the house with the ball.", "overuse", ""},
	{"a friend who is spoken to", `"It is a good day, Tom."`, `Sam asked, "It is a good day, Tom."`, "", ""},
	{"a friend who answers", `"It is a good day, Tom."`, `"It is a good day, Tom." Tom asked Sam.`, "", ""},
	{"one who calls himself", `"It is a good day, Tom."`, `Sam asked, "It is a good day, Sam."`, "speech", ""},
	{"one who calls himself first", `"It is a good day, Tom."`, `"Sam, it is a good day," Sam asked.`, "speech", ""},
	{"one who calls himself, the name last", `"It is a good day, Tom."`, `"It is a good day, Sam!" asked Sam.`, "speech", ""},
	// Judge has no length
	{"too short", "", "Tom had a ball.", "length", ""},
	{"a word with an ending like a verb", "He ran to the house with the ball.", "He to the house with the red.", "verb", "no verb"},
}

const sound = `Once upon a time, there was a boy named Tom. Tom had a ball. He lost the red ball in the park and was sad. ` +
	`His friend Sam came to him. "It is a good day, Tom." Then Tom looked at Sam and smiled. The sun was warm. They found the ball in the grass, and Tom was very happy. ` +
	`He ran to the house with the ball. After that he ran home. It was dark, and Tom was so tired that he wanted to sleep.`

func TestCheckersOnPlantedFaults(t *testing.T) {
	f, j := NewFilter(Vocabulary([]string{sound, "fast glad asked big can go far lost a lot"}, 1)), NewJudge()
	for _, c := range planted {
		text := strings.Replace(sound, c.from, c.to, 1)
		if c.what == "a name that nobody has" {
			text = strings.ReplaceAll(sound, c.from, c.to)
		}
		if c.what == "too short" {
			text = c.to
		}
		if text == sound && c.what != "nothing" {
			t.Fatalf("%s: was not planted", c.what)
		}
		var faults []string
		for _, x := range j.Sentences(text) {
			if x.Fault != "" {
				faults = append(faults, x.Fault)
			}
		}
		if reasons := strings.Join(f.Check(text), "; "); !strings.HasPrefix(reasons, c.filter) ||
			(c.filter == "" && reasons != "") || strings.Contains(reasons, ";") {
			t.Errorf("%s: the filter says %q, want %q", c.what, reasons, c.filter)
		}
		if got := strings.Join(faults, "; "); got != c.judge {
			t.Errorf("%s: the judge says %q, want %q", c.what, got, c.judge)
		}
	}
}

// TestCheckersOnRealAndOwnStories: what people and the grammar wrote passes nearly always, and shuffled words hardly ever do.
func TestCheckersOnRealAndOwnStories(t *testing.T) {
	real := realStories(t)
	var own []string
	for n := range uint64(1000) {
		own = append(own, Story(21, n))
	}
	f, j := NewFilter(Vocabulary(slices.Concat(real, own), 1)), NewJudge()
	for _, c := range []struct {
		name          string
		list          []string
		filter, judge float64
	}{{"real", real, 0.8, 0.97}, {"own", own, 0.99, 0.98}} {
		passed, sentences, good := 0, 0, 0
		for _, s := range c.list {
			reasons := f.Check(s)
			passed += count(len(reasons) == 0)
			if c.name == "own" && len(reasons) > 0 {
				t.Log(reasons)
			}
			for _, x := range j.Sentences(s) {
				sentences++
				good += count(x.Fault == "")
				if c.name == "own" && x.Fault != "" && good%50 == 0 {
					t.Log(x)
				}
			}
		}
		a, b := float64(passed)/float64(len(c.list)), float64(good)/float64(sentences)
		t.Logf("%s: the filter passes %.1f %% of the stories, the judge %.2f %% of the sentences", c.name, 100*a, 100*b)
		if a < c.filter || b < c.judge {
			t.Errorf("want %v and %v", c.filter, c.judge)
		}
	}
}

// TestJudgeSharesNothing looks for names in judge.go that another file of the package declares: then the judge would praise what the filter let pass.
func TestJudgeSharesNothing(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	set, declared := token.NewFileSet(), map[string]string{}
	var judge *ast.File
	for _, name := range files {
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if name == "judge.go" {
			judge = f
			continue
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					declared[d.Name.Name] = name
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						declared[s.Name.Name] = name
					case *ast.ValueSpec:
						for _, n := range s.Names {
							declared[n.Name] = name
						}
					}
				}
			}
		}
	}
	if declared["wordsOf"] != "hash.go" || declared["verbsText"] != "filter.go" || declared["Filter"] != "filter.go" {
		t.Fatalf("%d names: those of the filter are not among them", len(declared))
	}
	for _, id := range judge.Unresolved {
		if file, ok := declared[id.Name]; ok {
			t.Errorf("%s: %s is of %s", set.Position(id.Pos()), id.Name, file)
		}
	}
}

func realStories(t *testing.T) []string {
	f, err := os.Open(testkit.Data(t, "text/stories/tinystories.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := ReadStories(f)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestDedup(t *testing.T) {
	d := NewDedup(0.7)
	var list []string
	for n := range uint64(500) {
		list = append(list, Story(31, n))
		if i, s, dup := d.Add(list[n]); dup {
			t.Errorf("story %d is near %d (%.2f)", n, i, s)
		}
	}
	for n, s := range list {
		words := strings.Fields(s)
		one := slices.Clone(words)
		one[len(one)/2] = "zebra"
		many := slices.Clone(words)
		for i := range many {
			if i%4 == 0 {
				many[i] = "zebra" + strconv.Itoa(i)
			}
		}
		for what, c := range map[string]struct {
			text string
			dup  bool
		}{
			"itself":            {s, true},
			"other marks":       {strings.ToUpper(strings.ReplaceAll(s, ",", "")), true},
			"a word changed":    {strings.Join(one, " "), true},
			"the end left out":  {strings.Join(words[:len(words)*9/10], " "), true},
			"every fourth word": {strings.Join(many, " "), false},
		} {
			i, share, dup := NewDedupOf(d).Add(c.text)
			if dup != c.dup || (dup && i != n) {
				t.Fatalf("story %d, %s: near %d (%.2f) %v", n, what, i, share, dup)
			}
		}
		if n == 30 {
			break
		}
	}
}

// NewDedupOf is a copy that may take in a text more.
func NewDedupOf(d *Dedup) *Dedup {
	c := &Dedup{Least: d.Least, seen: slices.Clip(d.seen)}
	for i := range d.buckets {
		c.buckets[i] = map[uint64][]int32{}
		for k, v := range d.buckets[i] {
			c.buckets[i][k] = slices.Clip(v)
		}
	}
	return c
}

func TestShingles(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
	}{{"", 0}, {"...", 0}, {"one", 1}, {"one two", 1}, {"one two three", 1}, {"one two three four", 2}, {"a a a a a", 1}} {
		if got := len(shingles(c.text, 3)); got != c.want {
			t.Errorf("%q: %d shingles, want %d", c.text, got, c.want)
		}
	}
	if a, b := shingles("one two three", 3), shingles("three two one", 3); a[0] == b[0] {
		t.Error("shingles do not tell orders apart")
	}
	// the estimate is the share of common shingles
	a, b := strings.Fields(Story(1, 1)), strings.Fields(Story(1, 2))
	for _, part := range []int{0, len(a) / 2, len(a)} {
		x, y := strings.Join(a, " "), strings.Join(append(slices.Clone(a[:part]), b...), " ")
		sx, sy := shingles(x, 3), shingles(y, 3)
		common := 0
		for _, h := range sx {
			_, ok := slices.BinarySearch(sy, h)
			common += count(ok)
		}
		want := float64(common) / float64(len(sx)+len(sy)-common)
		p, q := signature(x), signature(y)
		if got := agree(&p, &q); got < want-0.19 || got > want+0.19 { // three standard deviations of 64 draws at 0.5
			t.Errorf("estimate %.2f of a share of %.2f", got, want)
		}
	}
}

func TestReadStories(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil}, {"\n\n", nil}, {"<|endoftext|>\n<|endoftext|>", nil},
		{"a\nb\n<|endoftext|>\nc", []string{"a\nb", "c"}},
		{" a  b \n\n c\n", []string{"a b\nc"}},
		{"a<|endoftext|>b <|endoftext|><|endoftext|> c\n", []string{"a", "b", "c"}},
	} {
		got, err := ReadStories(strings.NewReader(c.text))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q %v", c.text, got, err)
		}
	}
	for text, want := range map[string]string{"a\n\xff\n": "line 2: is not UTF-8", "a\n" + strings.Repeat("x", maxLine+1): "line 2: is longer"} {
		if _, err := ReadStories(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPassages(t *testing.T) {
	long := strings.Repeat("The fox ran over the hill, and nobody saw it. ", 100)
	text := "THE BOOK\n\nBy Someone Else\n\nCHAPTER I. The Fox\n\nA short line of text that ends a chapter.\n\nIV.\n\nThe First Thing\n\n" +
		strings.Repeat("The _fox_  ran home.\n\n", 12) + "OTHER PART\n\n" + long + "\n"
	list, err := Passages(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 || list[0] != strings.TrimSpace(strings.Repeat("The fox ran home.\n", 12)) {
		t.Fatalf("%d passages, first %q", len(list), list[0])
	}
	joined := 0
	for _, p := range list {
		if len(p) < leastBytes || len(p) > 3*passageBytes || strings.Contains(p, "_") ||
			regexp.MustCompile(`[A-Z]{3}|Someone|First Thing|short line`).MatchString(p) {
			t.Errorf("passage of %d bytes: %.80q", len(p), p)
		}
		joined += len(p)
	}
	if rest := len(long) + len(list[0]) - joined; rest > leastBytes+len(list) {
		t.Errorf("%d bytes of text are lost", rest)
	}
}

func TestHoldOut(t *testing.T) {
	var list []string
	for n := range uint64(100) {
		list = append(list, Story(41, n))
	}
	tail := strings.Repeat("one two three four five six seven ", 3) + "and a tail of many words that nothing else in this list of stories has at all, as far as we know here."
	list[3] += " " + tail
	list[70] = "Another story. " + tail
	list[71] = list[70] + " And more of it."
	onOneSide := 0
	for seed := range uint64(40) {
		train, held := HoldOut(list, 0.1, seed)
		if len(train)+len(held) != 100 || len(held) != 10 {
			t.Fatalf("seed %d: %d to learn from, %d held out", seed, len(train), len(held))
		}
		n := 0
		for _, s := range held {
			n += count(strings.Contains(s, "nothing else in this list"))
		}
		if n != 0 && n != 3 {
			t.Fatalf("seed %d: relatives are parted: %d", seed, n)
		}
		onOneSide += count(n == 3)
		again, _ := HoldOut(list, 0.1, seed)
		if !slices.Equal(train, again) {
			t.Fatal("two runs differ")
		}
	}
	if onOneSide == 0 || onOneSide == 40 {
		t.Errorf("the relatives are held out %d of 40 times", onOneSide)
	}
	if a, _ := HoldOut(list, 0, 1); len(a) != 100 {
		t.Error("nothing is to be held out, and something is")
	}
}

func FuzzTexts(f *testing.F) {
	ff := testkit.Fuzz(f)
	ff.Add(sound+"\n<|endoftext|>\n"+`"No!" said he. THE END`, uint8(3))
	filter, judge := NewFilter(Vocabulary([]string{sound}, 1)), NewJudge()
	ff.Fuzz(func(t *testing.T, text string, n uint8) {
		list, err := ReadStories(strings.NewReader(text))
		for _, s := range list {
			if strings.Contains(s, endMark) && err == nil {
				t.Errorf("%q has the mark", s)
			}
		}
		passages, err := Passages(strings.NewReader(strings.Repeat(text+"\n", int(n%8))))
		for _, s := range passages {
			if len(s) < leastBytes && err == nil {
				t.Errorf("passage of %d bytes", len(s))
			}
		}
		filter.Check(text)
		if openQuote(text) < 0 != (len(slices.DeleteFunc(filter.Check(text), func(s string) bool { return !strings.HasPrefix(s, "quote") })) == 0) &&
			strings.TrimSpace(text) == text {
			t.Error("the filter does not say what openQuote finds")
		}
		size := 0
		for _, x := range judge.Sentences(text) {
			size += len(x.Sentence)
		}
		if size > len(text) {
			t.Errorf("%d bytes of sentences of %d", size, len(text))
		}
		shingles(text, 1+int(n%10))
	})
}

// lines decodes a file of records.
func lines[T any](t *testing.T, path string) (list []T) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for s := range strings.Lines(string(b)) {
		var v T
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

type record struct {
	Text     string
	Messages []Message
}

func write(t *testing.T, o Options) (string, *Report) {
	t.Helper()
	dir := t.TempDir()
	r, err := Write(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return dir, r
}

func TestWrite(t *testing.T) {
	real := filepath.Join(t.TempDir(), "stories.txt")
	var list []string
	for n := range uint64(60) {
		list = append(list, Story(51, n))
	}
	list = append(list, list[7], list[8]+" The end.")
	put := func(path, text string) string {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put(real, strings.Join(list, "\n"+endMark+"\n")+"\n"+endMark+"\n")
	book := put(filepath.Join(t.TempDir(), "b.txt"), "A TITLE\n\n"+strings.Repeat("Once there was a fox who ran and ran over the hills. ", 10)+"\n")
	chat := put(filepath.Join(t.TempDir(), "c.jsonl"), `{"messages":[{"role":"user","content":"Hi <b>"},{"role":"assistant","content":"Ho"}]}`+"\n"+
		`{"messages":[{"role":"user","content":"Hi <b>"},{"role":"assistant","content":"Ho"}]}`+"\n"+
		`{"messages":[{"role":"user","content":"what should I call you"},{"role":"assistant","content":"Ho"}]}`+"\n")
	o := Options{Seed: 1, StoryBytes: 30_000, DialogueBytes: 10_000, Stories: real, Books: []string{book, book}, Talk: []string{chat}, BookMax: 1 << 20, RealTimes: 3, HoldOut: 0.1, Near: 0.7}
	dir, _ := write(t, o)
	held := lines[record](t, filepath.Join(dir, HeldOutFile))
	if len(held) != 6 {
		t.Fatalf("%d stories held out", len(held))
	}
	o.Samples = slices.Values([]string{Story(52, 1), Story(52, 1), list[9], held[2].Text + " It was a good day.", "Tom had a ball.", Story(52, 2)[:200]})
	dir, r := write(t, o)
	again, _ := write(t, o)
	files, _ := os.ReadDir(dir)
	if len(files) != 11 {
		t.Fatalf("%d files", len(files))
	}
	for _, f := range files {
		a, _ := os.ReadFile(filepath.Join(dir, f.Name()))
		b, _ := os.ReadFile(filepath.Join(again, f.Name()))
		if string(a) != string(b) || strings.Contains(string(a), "endoftext") != strings.HasSuffix(f.Name(), ".txt") {
			t.Errorf("%s: two runs differ, or the mark is in it", f.Name())
		}
	}
	mixed(t, dir, o.RealTimes)
	if b, _ := os.ReadFile(filepath.Join(dir, ChatFile)); !strings.Contains(string(b), "<b>") {
		t.Errorf("%s: %s", ChatFile, b)
	}
	want := []Count{{RealFile, 54, 0, 2, 0, 0}, {HeldOutFile, 6, 0, 0, 0, 0}, {QuestionsFile, 50, 0, 0, 0, 0}, {BooksFile, 1, 0, 1, 0, 0}, {StoriesFile, -1, 0, 0, 0, 0},
		{SamplesFile, 1, 0, 2, 2, 1}, {DialoguesFile, -1, 0, 0, 0, 0}, {ChatFile, 1, 8, 1, 0, 1}}
	for i, c := range r.Counts {
		docs := lines[record](t, filepath.Join(dir, c.File))
		size := int64(0)
		for _, d := range docs {
			size += int64(len(d.Text) + talkBytes(d.Messages))
		}
		if len(docs) != c.Documents || size != c.Bytes {
			t.Errorf("%s: %d documents of %d bytes, counted %+v", c.File, len(docs), size, c)
		}
		if w := want[i]; w.File != c.File || (w.Documents != c.Documents && w.Documents >= 0) ||
			w.Near != c.Near || w.Checked != c.Checked || w.Leaked != c.Leaked {
			t.Errorf("%+v, want %+v", c, w)
		}
	}
	if c := r.Counts[4]; c.Bytes < o.StoryBytes || c.Bytes > o.StoryBytes+2000 {
		t.Errorf("%+v", c)
	}
	var table strings.Builder
	if err := r.Table().Write(&table, false); err != nil || !strings.Contains(table.String(), "real.jsonl") || r.Reasons["length"] != 2 {
		t.Errorf("%v %s %v", err, table.String(), r.Reasons)
	}
	if _, err := Write(dir, o); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the folder is full: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// mixed holds the files for the trainer against those of the sources: the same documents, the real stories times as often, in another order.
func mixed(t *testing.T, dir string, times int) {
	t.Helper()
	documents := func(name string) (list []string) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if list, err = ReadStories(f); err != nil {
			t.Fatal(err)
		}
		return list
	}
	var want, talks, held []string
	for name, n := range map[string]int{RealFile: times, BooksFile: 1, StoriesFile: 1, SamplesFile: 1} {
		for _, r := range lines[record](t, filepath.Join(dir, name)) {
			want = append(want, slices.Repeat([]string{r.Text}, n)...)
		}
	}
	for _, name := range []string{DialoguesFile, ChatFile} {
		for _, r := range lines[record](t, filepath.Join(dir, name)) {
			talks = append(talks, talkString(r.Messages))
		}
	}
	for _, r := range lines[record](t, filepath.Join(dir, HeldOutFile)) {
		held = append(held, r.Text)
	}
	var got []string
	for _, r := range lines[record](t, filepath.Join(dir, TalksFile)) {
		got = append(got, talkString(r.Messages))
	}
	if slices.Equal(got, talks) || !sameSorted(got, talks) {
		t.Errorf("%s: %d talks of %d, or in the order of their sources", TalksFile, len(got), len(talks))
	}
	got = documents(TextFile)
	apart := 0 // real stories whose copy does not stand next
	for i := 1; i < len(got); i++ {
		if got[i] != got[i-1] {
			apart++
		}
	}
	if !sameSorted(got, want) || apart < len(got)*9/10 {
		t.Errorf("%s: %d documents of %d, %d differ from the one before", TextFile, len(got), len(want), apart)
	}
	if got = documents(HeldTextFile); !slices.Equal(got, held) {
		t.Errorf("%s: %d stories of %d", HeldTextFile, len(got), len(held))
	}
}

func sameSorted(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func TestWriteRefuses(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "s.txt")
	bad := filepath.Join(dir, "bad.jsonl")
	if err := os.WriteFile(good, []byte(sound), 0o600); err != nil {
		t.Fatal(err)
	}
	for talk, want := range map[string]string{
		`{"messages":[]}`: "bad.jsonl: line 2: has no", `{`: "line 2: unexpected end", `{"messages":[{"role":"x","content":"y"}]}`: `role "x"`,
		`{"messages":[{"role":"user","content":""}]}`: "message 1", "\xff": "not UTF-8",
	} {
		text := `{"messages":[{"role":"user","content":"Hi"}]}` + "\n" + talk + "\n"
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		_, err := Write(out, Options{Stories: good, RealTimes: 1, Near: 0.7, Talk: []string{bad}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", talk, err, want)
		}
		if left, _ := filepath.Glob(filepath.Join(out, ".*")); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	}
	for want, o := range map[string]Options{
		"share to hold out": {Stories: good, Near: 0.7, HoldOut: 1},
		"near-duplicates":   {Stories: good},
		"negative":          {Stories: good, Near: 0.7, RealTimes: 1, StoryBytes: -1},
		"want 1 or more":    {Stories: good, Near: 0.7},
		"no such file":      {Stories: good + "x", RealTimes: 1, Near: 0.7},
	} {
		if _, err := Write(t.TempDir(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Write(filepath.Join(dir, "none"), Options{Stories: good, RealTimes: 1, Near: 0.7}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// TestHeldOutTextIsNotLearned makes the text of real sources, and looks for passages of 8 words of held-out stories that are not phrases of the language.
func TestHeldOutTextIsNotLearned(t *testing.T) {
	all := realStories(t)
	books, err := filepath.Glob(filepath.Join(testkit.Data(t, "text/books"), "b*.txt"))
	if err != nil || len(books) < 5 {
		t.Fatalf("%d books: %v", len(books), err)
	}
	dir, r := write(t, Options{Seed: 3, StoryBytes: 1 << 20, DialogueBytes: 200 << 10,
		Stories: testkit.Data(t, "text/stories/tinystories.txt"), Books: books, BookMax: 10 << 20, RealTimes: 1, HoldOut: 0.1, Near: 0.7})
	var table strings.Builder
	if err := r.Table().Write(&table, false); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	held := lines[record](t, filepath.Join(dir, HeldOutFile))
	if len(held) < 90 || len(held) > 97 {
		t.Errorf("%d of %d stories are held out", len(held), len(all))
	}
	frequent := map[uint64]int{}
	for _, s := range all {
		for _, h := range shingles(s, 8) {
			frequent[h]++
		}
	}
	of, total := map[uint64]bool{}, 0
	for _, s := range held {
		for _, h := range shingles(s.Text, 8) {
			if frequent[h] <= 20 {
				of[h] = true
			}
		}
	}
	total = len(of)
	met := map[uint64]bool{}
	for _, name := range []string{RealFile, BooksFile, StoriesFile, DialoguesFile} {
		for _, d := range lines[record](t, filepath.Join(dir, name)) {
			n := 0
			for _, h := range shingles(d.Text+talkString(d.Messages), 8) {
				if of[h] {
					met[h] = true
					n++
				}
			}
			if n >= 12 {
				t.Errorf("%s: %d runs of 8 words are held out: %.100s", name, n, d.Text)
			}
			for _, m := range d.Messages {
				if m.Role == "user" && heldOutKeys[questionKey(m.Content)] {
					t.Errorf("%s: %q is held out", name, m.Content)
				}
			}
		}
	}
	t.Logf("%d of %d runs of 8 words of held-out stories are somewhere in the text (%.1f %%)", len(met), total, 100*float64(len(met))/float64(total))
	if float64(len(met)) > 0.05*float64(total) {
		t.Error("that is more than 5 %")
	}
}
