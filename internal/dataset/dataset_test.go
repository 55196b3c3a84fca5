package dataset

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ck/internal/generate"
)

// sequences are the texts of a list, what counts in «».
func sequences(m *generate.Model, l *list) (out []string) {
	for i := range l.ends {
		var b strings.Builder
		for _, r := range runs(l.at(i)) {
			if text := m.TextOf(r.ids); r.counts {
				b.WriteString("«" + text + "»")
			} else {
				b.WriteString(text)
			}
		}
		out = append(out, b.String())
	}
	return out
}

// The forms: what becomes of each, what of it counts.
func TestForms(t *testing.T) {
	m := builtin(t)
	for name, c := range map[string]struct {
		file, text string
		want       []string
	}{
		"a document": {"a.txt", "One day.\nTwo days.\n", []string{"<s>«One day.\nTwo days.</s>»"}},
		"documents": {"a.md", "\n\nOne.\n<|endoftext|>\n<|endoftext|>\nTwo.\n\nThree.\n<|endoftext|>", []string{"<s>«One.</s>»",
			"<s>«Two.\n\nThree.</s>»"}},
		"documents of DOS":     {"a.TXT", "\ufeffOne.\r\nTwo.\r\n<|endoftext|>\r\nThree.\r\n", []string{"<s>«One.\r\nTwo.</s>»", "<s>«Three.</s>»"}},
		"a mark within a line": {"a.txt", "One <|endoftext|>\n two.", []string{"<s>«One <|endoftext|>\n two.</s>»"}},
		"ends are text":        {"a.txt", "One </s> two <s>.", []string{"<s>«One </s> two <s>.</s>»"}},
		"texts": {"a.jsonl", "\ufeff{\"text\": \"One \\u0041.\"}\n\n  {\"id\": 7, \"text\": \"Two.\"}\r\n", []string{"<s>«One A.</s>»",
			"<s>«Two.</s>»"}},
		"a prompt":              {"a.ndjson", `{"prompt": "Once upon", "completion": " a time"}`, []string{"<s>Once upon«a time</s>»"}},
		"a prompt of many ends": {"a.jsonl", `{"prompt": "One </s>", "completion": " two</s>"}`, []string{"<s>One </s>«two</s></s>»"}},
		"an empty prompt":       {"a.jsonl", `{"prompt": "", "completion": "Two."}`, []string{"<s>«Two.</s>»"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, m, options(100), write(t, c.file, c.text))
			if got := sequences(m, &s.train); !slices.Equal(got, c.want) {
				t.Errorf("%q, expected %q", got, c.want)
			}
			if p := s.Train(); p.Examples != len(c.want) || p.Sequences != len(c.want) || p.Slots != len(c.want) || s.Stats.Examples != len(c.want) {
				t.Errorf("%+v of %+v, expected %d", p, s.Stats, len(c.want))
			}
		})
	}
}

// A completion begins where the prompt's tokens end: what would be one token of both is cut there, and where that cannot be it is refused.
func TestSeams(t *testing.T) {
	m := vocabulary(t, "qwen2")
	for _, c := range []struct {
		prompt, completion string
		seams              int
	}{{"Say:", " yes", 0}, {"Say: ", "yes", 1}, {"unbe", "lievable", 1}, {"Q:\n", "\nA", 1}} {
		e := encoder{m, &Options{}, &Stats{}}
		words, err := e.completion(c.prompt, c.completion)
		if err != nil {
			t.Fatal(err)
		}
		prompt, err := m.EncodePrompt(c.prompt, generate.Encoding{})
		if err != nil {
			t.Fatal(err)
		}
		got := runs(words)
		if len(got) != 2 || !slices.Equal(got[0].ids, prompt) || m.TextOf(got[1].ids) != c.completion+"<|endoftext|>" || e.stats.Seams != c.seams {
			t.Errorf("%q and %q: %+v, %d seams", c.prompt, c.completion, got, e.stats.Seams)
		}
	}
	spm := builtin(t)
	e := encoder{spm, &Options{}, &Stats{}}
	if w, err := e.completion("Once upon ", "a time"); err == nil || !strings.Contains(err.Error(), "move the blanks") {
		t.Errorf("%v: %v", runs(w), err)
	}
}

// Lines that cannot be used are named with file, line and reason; as many as are allowed are skipped and counted.
func TestBadLines(t *testing.T) {
	m := builtin(t)
	tmpl, err := m.FindTemplate("chatml")
	if err != nil {
		t.Fatal(err)
	}
	good, ask := `{"text": "A good line."}`, `{"messages": [{"role": "user", "content": "a"}, `
	for bad, want := range map[string]string{
		`{`:                                 "JSON that breaks off",
		`{"text": "x}`:                      "JSON that breaks off",
		`{"text": nul}`:                     "is no JSON",
		`[1]`:                               "no JSON object",
		`"text"`:                            "no JSON object",
		good + `{}`:                         "something behind its object",
		`{"txt": "x"}`:                      "not exactly one of the forms",
		`{"Text": "x"}`:                     "not exactly one of the forms",
		`{"text": "x", "prompt": "y"}`:      "not exactly one of the forms",
		`{"text": "x", "messages": []}`:     "not exactly one of the forms",
		`{"prompt": "x"}`:                   "not exactly one of the forms",
		`{"text": "a", "text": "b"}`:        `has the key "text" twice`,
		`{"text": 1}`:                       "text: is no string",
		`{"text": null}`:                    "text: is no string",
		`{"text": ""}`:                      "text: is empty",
		"{\"text\": \"\xff\"}":              "is not UTF-8",
		`{"text": "\ud800"}`:                "half of a pair",
		`{"text": "\ud800\ufffd \\ufffd"}`:  "half of a pair",
		`{"prompt": "a", "completion": ""}`: "completion: is empty",
		`{"prompt": "a", "completion": "b", "tools": [1]}`: "the key tools",
		`{"messages": "x"}`:  "messages: is no array",
		`{"messages": null}`: "messages: is no array",
		`{"messages": []}`:   "has no answer",
		`{"messages": [{"role": "user", "content": "a"}]}`:                     "has no answer",
		`{"messages": [{"role": "assistant", "content": "a"}]}`:                "messages[0]: is an answer to nothing",
		`{"messages": [{"role": "user"}]}`:                                     "messages[0]: has no role or no content",
		`{"messages": [{"role": "user", "content": [{"type": "text"}]}]}`:      "messages[0].content: is no string",
		`{"messages": [{"role": "", "content": "a"}]}`:                         "messages[0].role: is empty",
		`{"messages": [{"role": "user", "content": "a", "tool_calls": [{}]}]}`: "messages[0].tool_calls: cannot be trained with",
		`{"messages": [1]}`:                            "messages[0]: is no JSON object",
		ask + `{"role": "assistant", "content": ""}]}`: "messages[1].content: is empty",
		ask + `{"role": "assistant", "content": "b", "thinking": "c", "reasoning": "d"}]}`:                                              "under two names",
		ask + `{"role": "assistant", "content": "b", "thinking": "c"}]}`:                                                                "drops or alters",
		`{"messages": [` + strings.Repeat(`{"role": "user", "content": "a"},`, maxMessages) + `{"role": "assistant", "content": "b"}]}`: "2049 turns",
		`{` + strings.TrimSuffix(manyKeys(maxKeys+1), ",") + `}`:                                                                        "more than 256 keys",
	} {
		path := write(t, "a.jsonl", good+"\n\n"+bad+"\n"+good)
		opt := options(64)
		opt.Template = tmpl
		_, err := Open(context.Background(), m, []string{path}, opt)
		var e *LineError
		if !errors.As(err, &e) || e.Line != 3 || e.Path != path || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path+": line 3: ") {
			t.Errorf("%.80s: %v, expected line 3 and %q", bad, err, want)
		}
		opt.SkipBadLines = 1
		s, err := Open(context.Background(), m, []string{path}, opt)
		if err != nil || s.Stats.Skipped != 1 || s.Train().Examples != 2 || len(s.Stats.Bad) != 1 || s.Stats.Bad[0].Line != 3 ||
			s.Stats.Bad[0].String() != e.Error() {
			t.Errorf("%.80s: skipped: %v", bad, err)
		}
		if _, err := Open(context.Background(), m, []string{path, write(t, "b.jsonl", bad)}, opt); !errors.As(err, &e) || e.Line != 1 {
			t.Errorf("%.80s: the second one: %v", bad, err)
		}
	}
	if _, err := Open(context.Background(), m, []string{write(t, "a.jsonl", asJSON(map[string]any{"messages": talk("", "a", "b")}))},
		options(64)); err == nil ||
		!strings.Contains(err.Error(), "no chat template") {
		t.Errorf("without a template: %v", err)
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d": %d,`, i, i)
	}
	return b.String()
}

// Files and options that cannot be used, and data in which there is nothing.
func TestRefused(t *testing.T) {
	m := builtin(t)
	empty := func(o *Options) {}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "d.txt"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.DevNull, filepath.Join(dir, "null.txt")); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("The cat sat. ", 20)
	asked := write(t, "a.jsonl", asJSON(map[string]string{"prompt": long, "completion": " x"}))
	for name, c := range map[string]struct {
		set   func(*Options)
		paths []string
		want  string
		empty bool
		line  int // -1: no LineError
	}{
		"no file":         {empty, nil, "no file is named", true, -1},
		"missing":         {empty, []string{filepath.Join(dir, "x.txt")}, "no such file", false, 0},
		"folder":          {empty, []string{filepath.Join(dir, "d.txt")}, "is a folder", false, 0},
		"a device":        {empty, []string{"/dev/null"}, `the ending "" says neither`, false, 0},
		"a device's name": {empty, []string{filepath.Join(dir, "null.txt")}, "is no regular file", false, 0},
		"an unknown kind": {empty, []string{write(t, "a.parquet", "x")}, `the ending ".parquet" says neither`, false, 0},
		"empty text":      {empty, []string{write(t, "a.txt", "\n \n"[:1])}, "hold no example", true, -1},
		"no lines":        {empty, []string{write(t, "a.jsonl", "\n\n")}, "hold no example", true, -1},
		"not UTF-8":       {empty, []string{write(t, "a.txt", "good\nb\xffd")}, "is not UTF-8", false, 2},
		"slots of one":    {func(o *Options) { o.Tokens = 1 }, nil, "slots of 1 tokens", false, -1},
		"no policy":       {func(o *Options) { o.TooLong = "" }, nil, "neither cut nor refuse", false, -1},
		"all held out":    {func(o *Options) { o.Val = 1 }, nil, "a share of 1 ", false, -1},
		"no number":       {func(o *Options) { o.Val = math.NaN() }, nil, "a share of NaN", false, -1},
		"below zero":      {func(o *Options) { o.SkipBadLines = -1 }, nil, "-1 bad lines", false, -1},
		"nearly all":      {func(o *Options) { o.Val = math.Nextafter(1, 0) }, []string{write(t, "a.txt", "One.")}, "all 1 examples are held out", true, -1},
		"all are too long": {func(o *Options) { o.TooLong, o.Tokens = Refuse, 8 }, []string{write(t, "a.txt", long)}, "1 examples are longer than a slot",
			true, -1},
		"no target": {func(o *Options) { o.Tokens = 8 }, []string{asked}, "nothing that counts within 8", true, -1},
		"all bad":   {func(o *Options) { o.SkipBadLines = 5 }, []string{write(t, "a.jsonl", "x")}, "all 1 lines are bad", true, -1},
	} {
		t.Run(name, func(t *testing.T) {
			opt := options(64)
			c.set(&opt)
			_, err := Open(context.Background(), m, c.paths, opt)
			var e *LineError
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrEmpty) != c.empty || errors.As(err, &e) != (c.line >= 0) ||
				e != nil && e.Line != c.line {
				t.Errorf("%v, expected %q", err, c.want)
			}
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Open(ctx, m, []string{write(t, "a.txt", "One.")}, options(64)); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

// A line that is too long is refused with the memory of one that is not; nothing skips it.
func TestLongLine(t *testing.T) {
	m := builtin(t)
	path := filepath.Join(t.TempDir(), "a.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(maxLine + 1); err != nil { // a hole
		t.Fatal(err)
	}
	f.Close()
	opt := options(64)
	opt.SkipBadLines = 3
	var e *LineError
	if _, err := Open(context.Background(), m, []string{path}, opt); !errors.As(err, &e) || e.Line != 1 || !strings.Contains(err.Error(),
		"longer than 64 MiB") {
		t.Errorf("%v", err)
	}
}

// What is longer than a slot: documents are split so that every token is predicted once, the rest is cut or left out, and all is counted.
func TestTooLong(t *testing.T) {
	m := builtin(t)
	text := strings.Repeat("The cat sat on the mat. ", 30)
	path := write(t, "a.txt", text)
	whole := open(t, m, options(5000), path)
	n := len(whole.train.words)
	for _, T := range []int{2, 3, 7, 50, n - 2, n - 1, n, n + 1} {
		s := open(t, m, options(T), path)
		var got []int32
		for i := range s.train.ends {
			w := s.train.at(i)
			if len(w) < 2 || len(w) > T || w[0] < 0 {
				t.Fatalf("T %d: a sequence of %d tokens", T, len(w))
			}
			if i > 0 {
				if token(got[len(got)-1]) != w[0] {
					t.Fatalf("T %d: sequence %d does not go on with the last token of the one before", T, i)
				}
				w = w[1:]
			}
			got = append(got, w...)
		}
		if !slices.Equal(got, whole.train.words) || s.train.targets != n-1 || s.Stats.Cut != 0 || (s.Stats.Split == 1) != (T < n) || s.Train().Examples != 1 {
			t.Errorf("T %d: %d tokens of %d, %+v", T, len(got), n, s.Stats)
		}
	}
	for _, T := range []int{n - 1, n} {
		opt := options(T)
		opt.TooLong = Refuse
		if _, err := Open(context.Background(), m, []string{path}, opt); (err != nil) != (T < n) {
			t.Errorf("T %d, %d tokens: %v", T, n, err)
		}
	}
	lines := write(t, "a.jsonl", asJSON(map[string]string{"prompt": "Say:", "completion": " " + text})+asJSON(map[string]string{"prompt": text,
		"completion": " yes"})+
		asJSON(map[string]string{"text": "Short."}))
	s := open(t, m, options(50), lines)
	if first := s.train.at(0); len(first) != 50 || first[49] >= 0 || s.Stats.Cut != 1 || s.Stats.NoTarget != 1 || s.Stats.Refused != 0 ||
		len(s.train.ends) != 2 || s.Stats.Examples != 3 {
		t.Errorf("%+v", s.Stats)
	}
	opt := options(50)
	opt.TooLong = Refuse
	s = open(t, m, opt, lines)
	if s.Stats.Refused != 2 || s.Stats.Cut != 0 || len(s.train.ends) != 1 || len(s.Stats.Bad) != 2 || !strings.Contains(s.Stats.Bad[0].String(),
		"a.jsonl: line 1: has ") {
		t.Errorf("%+v", s.Stats)
	}
}

// What is held out is decided by what examples say: not by their order, the other examples, the slots or the vocabulary. Documents are held out whole.
func TestHeldOut(t *testing.T) {
	m := builtin(t)
	var lines []string
	for i := range 600 {
		lines = append(lines, asJSON(map[string]string{"text": fmt.Sprintf("Dog number %d ran. ", i) + strings.Repeat("It ran. ", i%7)}))
	}
	opt := options(200)
	opt.Val = 0.1
	held := func(lines []string, opt Options) []string {
		s := open(t, m, opt, write(t, "a.jsonl", strings.Join(lines, "")))
		if s.Val().Examples+s.Train().Examples != len(lines) {
			t.Errorf("%d and %d of %d", s.Val().Examples, s.Train().Examples, len(lines))
		}
		list := sequences(m, &s.val)
		slices.Sort(list)
		return list
	}
	want := held(lines, opt)
	if n := len(want); n < 35 || n > 85 { // 60, spread 7.3
		t.Errorf("%d of %d are held out", n, len(lines))
	}
	share := 0
	for _, line := range lines {
		r, err := parseRecord([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if r.share() < 0.1 {
			share++
		}
	}
	if share != len(want) {
		t.Errorf("%d are held out, expected the %d below 0.1", len(want), share)
	}
	back := slices.Clone(lines)
	slices.Reverse(back)
	if !slices.Equal(held(back, opt), want) {
		t.Error("in another order, others are held out")
	}
	more := opt
	more.Val = 0.2
	if all := held(lines, more); len(all) <= len(want) || !containsAll(all, want) {
		t.Error("of a larger share the smaller one is no part")
	}
	opt.Tokens, opt.Seed, opt.Pack = 300, 9, true
	if !slices.Equal(held(lines, opt), want) {
		t.Error("with other slots, others are held out")
	}
	opt.Tokens = 8 // pieces stay together
	s := open(t, m, opt, write(t, "a.jsonl", strings.Join(lines, "")))
	if s.Val().Examples != len(want) || s.Val().Sequences <= len(want) {
		t.Errorf("%+v are held out, expected %d examples", s.Val(), len(want))
	}
	tokens := 0
	for i := range s.Val().Slots {
		for _, q := range s.ValSlot(i).Seq {
			if q >= 0 {
				tokens++
			}
		}
	}
	if tokens != s.Val().Tokens {
		t.Errorf("%d tokens are in the slots that are held out, expected %d", tokens, s.Val().Tokens)
	}
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// The hash is of what slots are made of: it changes with each of these, and with nothing else.
func TestHash(t *testing.T) {
	m := builtin(t)
	text := "One dog.\n<|endoftext|>\nTwo dogs ran.\n"
	base := options(16)
	want := open(t, m, base, write(t, "a.txt", text)).Hash()
	if got := open(t, m, base, write(t, "b.text", text)).Hash(); got != want || len(got) != 64 {
		t.Errorf("the name changes it: %s, %s", got, want)
	}
	same := base
	same.SkipBadLines = 3
	if open(t, m, same, write(t, "a.txt", text)).Hash() != want {
		t.Error("what is not met changes it")
	}
	seen := map[string]string{want: "nothing"}
	for name, change := range map[string]func(o *Options, text *string){
		"T":      func(o *Options, _ *string) { o.Tokens++ },
		"pack":   func(o *Options, _ *string) { o.Pack = true },
		"seed":   func(o *Options, _ *string) { o.Seed++ },
		"text":   func(_ *Options, text *string) { *text += "x" },
		"border": func(_ *Options, text *string) { *text = strings.Replace(*text, "<|endoftext|>\n", "", 1) },
	} {
		opt, s := base, text
		change(&opt, &s)
		h := open(t, m, opt, write(t, "a.txt", s)).Hash()
		if was, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", name, was)
		}
		seen[h] = name
	}
	a, b := write(t, "a.jsonl", `{"prompt": "A dog", "completion": " ran far"}`), write(t, "b.jsonl", `{"prompt": "A dog ran", "completion": " far"}`)
	if open(t, m, base, a).Hash() == open(t, m, base, b).Hash() {
		t.Error("what counts does not change it")
	}
}

// Conversations come through files as through the encoder, with what a slot needs.
func TestConversationsInFiles(t *testing.T) {
	m := vocabulary(t, "qwen2")
	opt := options(128)
	opt.Template, opt.Pack = templates(t)["Qwen-Qwen2.5-7B-Instruct"], true
	turns := talk("Be kind.", "zig", "ant one", "zog", "bee two", "and now?")
	s := open(t, m, opt, write(t, "a.jsonl", asJSON(map[string]any{"source": "x", "messages": turns})))
	want, _, err := encoded(m, opt.Template, turns)
	if err != nil {
		t.Fatal(err)
	}
	x := s.Slot(0)
	if n := len(want); !slices.Equal(x.IDs[:n], all(want)) || x.Seq[n] != -1 || !x.Loss[n-1] || s.Train().Targets != len(texts(want, true)[0])+
		len(texts(want, true)[1]) {
		t.Errorf("%v, expected %v", x, want)
	}
	if text := m.TextOf(all(want)); strings.Contains(text, "and now?") || !strings.HasSuffix(text, "bee two<|im_end|>") {
		t.Errorf("%q has what nothing is learnt from", text)
	}
	if !reflect.DeepEqual(s.Slot(0), s.Slot(1)) { // the next epoch
		t.Error("one slot is two")
	}
}
