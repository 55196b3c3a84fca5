package generate

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"ck/internal/engine"
	"ck/internal/testkit"
	"ck/internal/tokenizer"
)

// script is an engine that says the tokens it was given, whatever the prompt: the logits after position p favour say[p+1-start].
type script struct {
	vocab  int
	say    []int32
	start  int // tokens of the prompt
	seqs   []int
	rows   []int // of each Forward
	wants  []engine.Want
	logits []float32
	err    error
	after  func(rows int) // called at the end of each Forward
	short  int            // sequences that become longer are evaluated otherwise; 0: none is
	long   bool           // the last one is
}

func (s *script) NewSeq() int { s.seqs = append(s.seqs, 0); return len(s.seqs) - 1 }
func (s *script) Expect(seq, n int) bool {
	long := s.short > 0 && n > s.short
	if s.seqs[seq] > 0 && long != s.long {
		return false
	}
	s.long = long
	return true
}
func (s *script) Len(seq int) int     { return s.seqs[seq] }
func (s *script) Truncate(seq, n int) { s.seqs[seq] = min(s.seqs[seq], n) }
func (s *script) Drop(seq int)        { s.seqs[seq] = 0 }

func (s *script) Forward(ctx context.Context, seq int, ids []int32, want engine.Want, each func(int, []float32) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.err != nil {
		return s.err
	}
	if cap(s.rows) > len(s.rows) {
		s.rows, s.wants = append(s.rows, len(ids)), append(s.wants, want)
	}
	for i := range ids {
		s.seqs[seq]++
		if want == engine.None || want == engine.Last && i < len(ids)-1 {
			continue
		}
		at := max(s.seqs[seq]-s.start, 0) % len(s.say)
		clear(s.logits)
		s.logits[s.say[at]] = 1
		if err := each(i, s.logits); err != nil {
			return err
		}
	}
	if s.after != nil {
		s.after(len(ids))
	}
	return nil
}

// builtin is the built-in model, of which these tests use the tokenizer: SentencePiece with byte tokens.
func builtin(t testing.TB) *Model {
	t.Helper()
	m, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// encodePrompt is m.EncodePrompt of a text that can be encoded.
func encodePrompt(t testing.TB, m *Model, text string, enc Encoding) []int32 {
	t.Helper()
	ids, err := m.EncodePrompt(text, enc)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// ids are the tokens of a text in the middle of another: pieces that are joined by |.
func pieces(t testing.TB, m *Model, text string) []int32 {
	t.Helper()
	var ids []int32
	for _, p := range strings.Split(text, "|") {
		if id, ok := m.Tok.TokenID(p); ok {
			ids = append(ids, id)
			continue
		}
		for _, b := range []byte(p) {
			const hex = "0123456789ABCDEF"
			id, ok := m.Tok.TokenID("<0x" + string([]byte{hex[b>>4], hex[b&15]}) + ">")
			if !ok {
				t.Fatalf("no token for %q", p)
			}
			ids = append(ids, id)
		}
	}
	return ids
}

func newScript(m *Model, prompt int, say []int32) *script {
	return &script{vocab: m.Tok.VocabSize(), say: say, start: prompt, logits: make([]float32, m.Tok.VocabSize()),
		rows: make([]int, 0, 100), wants: make([]engine.Want, 0, 100)}
}

func TestStream(t *testing.T) {
	m := builtin(t)
	eos, _ := m.Tok.EOS()
	for _, c := range []struct {
		name   string
		say    string // pieces; the end token follows
		o      Options
		text   string
		events string // joined by |
		finish Finish
		stop   string
	}{
		{name: "eog", say: "O|n|c|e", text: "Once", events: "O|n|c|e", finish: FinishEOG},
		{name: "length", say: "O|n|c|e", o: Options{MaxNew: 2}, text: "On", events: "O|n", finish: FinishLength},
		{name: "context", say: "O|n|c|e", o: Options{Context: 5}, text: "On", events: "O|n", finish: FinishContext},
		{name: "stop in one token", say: "O|n|ed|e", o: Options{Stop: []string{"d"}}, text: "One", events: "O|n|e", finish: FinishStop, stop: "d"},
		{name: "stop across tokens", say: "O|n|c|e|u|p", o: Options{Stop: []string{"ceu"}}, text: "On", events: "O|n|||", finish: FinishStop, stop: "ceu"},
		{name: "no stop after all", say: "O|n|c|e|u|p", o: Options{Stop: []string{"cex", "pq"}}, text: "Onceup", events: "O|n|||ceu||p", finish: FinishEOG},
		{name: "stop begins anew", say: "a|a|a|b|c", o: Options{Stop: []string{"aab"}}, text: "a", events: "||a|", finish: FinishStop, stop: "aab"},
		{name: "first of several", say: "O|n|c|e", o: Options{Stop: []string{"ce", "nce", "e"}}, text: "O", events: "O|||", finish: FinishStop, stop: "nce"},
		{name: "stop at once", say: "O|n", o: Options{Stop: []string{"O"}}, text: "", events: "", finish: FinishStop, stop: "O"},
		{name: "empty stop is none", say: "O|n", o: Options{Stop: []string{""}}, text: "On", events: "O|n", finish: FinishEOG},
		{name: "held back at the end", say: "O|n|c", o: Options{Stop: []string{"cc"}, MaxNew: 3}, text: "Onc", events: "O|n||c", finish: FinishLength},
		{name: "character of several tokens", say: "O|\U0001F600|n", text: "O\U0001F600n", events: "O||||\U0001F600|n", finish: FinishEOG},
		{name: "broken character", say: "O|\xe2\x82", text: "O\xe2\x82", events: "O|||\xe2\x82", finish: FinishEOG},
		{name: "stop in characters", say: "O|é|é|n", o: Options{Stop: []string{"éé"}}, text: "O", events: "O||", finish: FinishStop, stop: "éé"},
		{name: "first space dropped", say: " the|n", o: Options{StartOfText: true}, text: "then", events: "the|n", finish: FinishEOG},
		{name: "first space kept", say: " the|n", text: " then", events: " the|n", finish: FinishEOG},
	} {
		t.Run(c.name, func(t *testing.T) {
			prompt := []int32{1, 400, 401}
			e := newScript(m, len(prompt), append(pieces(t, m, c.say), eos))
			c.o.Prompt, c.o.Seq = prompt, e.NewSeq()
			if c.o.MaxNew == 0 {
				c.o.MaxNew = -1
			}
			var events []string
			var ids []int32
			res, err := m.Generate(context.Background(), e, c.o, func(ev Event) error {
				events = append(events, string(ev.Text))
				if ev.ID >= 0 {
					ids = append(ids, ev.ID)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if res.Text != c.text || res.Finish != c.finish || res.StopString != c.stop {
				t.Errorf("%q, finish %s %q, expected %q, %s %q", res.Text, res.Finish, res.StopString, c.text, c.finish, c.stop)
			}
			if got := strings.Join(events, "|"); got != c.events || strings.Join(events, "") != c.text {
				t.Errorf("events %q, expected %q", got, c.events)
			}
			if !slices.Equal(ids, res.IDs) || len(ids) != res.NewTokens || !slices.Equal(ids, e.say[:len(ids)]) {
				t.Errorf("ids %v, of events %v", res.IDs, ids)
			}
			if e.rows[0] != 3 || len(e.rows) != 1+res.Decode.Tokens || e.Len(c.o.Seq) > len(prompt)+len(ids) {
				t.Errorf("rows %v, %d new tokens, sequence of %d", e.rows, len(ids), e.Len(c.o.Seq))
			}
		})
	}
}

func TestStreamEdges(t *testing.T) {
	m := builtin(t)
	eos, _ := m.Tok.EOS()
	ctx := context.Background()
	prompt := []int32{1, 400, 401}
	say := append(pieces(t, m, "O|n|c|e"), eos, 410)

	// n = 0 evaluates the prompt only; logits of each row on demand.
	e := newScript(m, 3, say)
	res, err := m.Generate(ctx, e, Options{Prompt: prompt, Seq: e.NewSeq()}, nil)
	if err != nil || res.Finish != FinishLength || res.NewTokens != 0 || e.Len(0) != 3 || e.wants[0] != engine.None {
		t.Errorf("n = 0: %+v, %v, wants %v", res, err, e.wants)
	}
	var rows []int
	logits := func(row int, l []float32) error {
		rows = append(rows, row)
		return nil
	}
	if _, err = m.Generate(ctx, e, Options{Prompt: prompt, Seq: 0, Reuse: 1, Logits: logits, MaxNew: 1}, nil); err != nil || !slices.Equal(rows, []int{1, 2}) {
		t.Errorf("logits of rows %v, expected 1 and 2; %v", rows, err)
	}

	// What the sequence holds is not evaluated again, but for the last row.
	e.rows = e.rows[:0]
	res, err = m.Generate(ctx, e, Options{Prompt: prompt, Reuse: 3, MaxNew: 2}, nil)
	if err != nil || !slices.Equal(e.rows, []int{1, 1}) || res.Text != "On" || res.Prefill.Tokens != 1 || res.PromptTokens != 3 {
		t.Errorf("reuse: rows %v, %+v, %v", e.rows, res, err)
	}

	// Where another rotation begins, all is evaluated anew, once; of a text whose length is known it is the first from the beginning.
	far := newScript(m, 3, []int32{410})
	far.short = 6
	for _, c := range []struct {
		max, reuse int
		rows       []int
	}{{-1, 0, []int{3, 1, 1, 1, 7, 1, 1}}, {7, 0, []int{3, 1, 1, 1, 1, 1, 1}}, {7, 3, []int{1, 1, 1, 1, 1, 1, 1}}, {2, 3, []int{3, 1}}} {
		far.rows = make([]int, 0, 16)
		if c.reuse == 0 {
			far.Drop(far.NewSeq())
			far.Truncate(0, 0)
		}
		res, err = m.Generate(ctx, far, Options{Prompt: prompt, Reuse: c.reuse, MaxNew: c.max, Context: 10, IgnoreEOG: true}, nil)
		if err != nil || !slices.Equal(far.rows, c.rows) {
			t.Errorf("far, %d new, %d kept: rows %v, expected %v; %+v, %v", c.max, c.reuse, far.rows, c.rows, res, err)
		}
	}

	// The built-in model's BOS ends its text: the next story would follow.
	bos, _ := m.Tok.BOS()
	e = newScript(m, 3, append(say[:2:2], bos))
	if res, err = m.Generate(ctx, e, Options{Prompt: prompt, Seq: e.NewSeq(), MaxNew: -1}, nil); err != nil || res.Finish != FinishEOG || res.Text != "On" {
		t.Errorf("BOS: %+v, %v", res, err)
	}

	// An end token that is ignored is never drawn.
	e = newScript(m, 3, []int32{eos})
	res, err = m.Generate(ctx, e, Options{Prompt: prompt, Seq: e.NewSeq(), MaxNew: 3, IgnoreEOG: true}, nil)
	if err != nil || res.Finish != FinishLength || slices.Contains(res.IDs, eos) || len(res.IDs) != 3 {
		t.Errorf("ignored end: %+v, %v", res, err)
	}

	// Too long, empty.
	var in *InputError
	var long *TooLongError
	_, err = m.Generate(ctx, e, Options{Prompt: prompt, Context: 2, MaxNew: 1}, nil)
	if !errors.As(err, &in) || !errors.As(err, &long) || long.Tokens != 3 || long.Context != 2 {
		t.Errorf("too long: %v", err)
	}
	if _, err = m.Generate(ctx, e, Options{MaxNew: 1}, nil); !errors.As(err, &in) {
		t.Errorf("empty prompt: %v", err)
	}
	for _, n := range []int{-1, 1} {
		_, err = m.Generate(ctx, newSeq(newScript(m, 3, say)), Options{Prompt: prompt, Context: 3, MaxNew: n}, nil)
		if !errors.As(err, &in) || !errors.As(err, &long) || long.Tokens != 3 || long.Context != 3 || !strings.Contains(err.Error(), "no room") {
			t.Errorf("prompt as long as the context, %d tokens: %v", n, err)
		}
	}
	if res, err = m.Generate(ctx, newSeq(newScript(m, 3, say)), Options{Prompt: prompt, Context: 3}, nil); err != nil || res.Finish != FinishLength {
		t.Errorf("prompt as long as the context, no tokens: %+v, %v", res, err)
	}

	// With LeaveRoom an answer takes half of what is left, at least one token, unless MaxNew is less.
	for _, c := range []struct{ context, max, want int }{{4, 9, 1}, {5, 9, 1}, {6, 9, 2}, {11, -1, 4}, {11, 5, 4}, {11, 2, 2}, {0, 2, 2}} {
		res, err = m.Generate(ctx, newSeq(newScript(m, 3, say[:4])), Options{Prompt: prompt, Context: c.context, MaxNew: c.max, LeaveRoom: true}, nil)
		if err != nil || res.NewTokens != c.want {
			t.Errorf("context %d, at most %d: %d tokens, %s, %v, expected %d", c.context, c.max, res.NewTokens, res.Finish, err, c.want)
		}
	}

	// The errors of engine and emit come back, with what there was.
	broken := errors.New("broken")
	e = newSeq(newScript(m, 3, say))
	e.after = func(int) {
		if e.Len(0) == 5 {
			e.err = broken
		}
	}
	res, err = m.Generate(ctx, e, Options{Prompt: prompt, MaxNew: -1}, nil)
	if !errors.Is(err, broken) || res.Text != "Onc" {
		t.Errorf("engine's error: %+v, %v", res, err)
	}
	res, err = m.Generate(ctx, newSeq(newScript(m, 3, say)), Options{Prompt: prompt, MaxNew: -1}, func(ev Event) error {
		if ev.ID == say[1] {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || res.Text != "On" {
		t.Errorf("emit's error: %+v, %v", res, err)
	}
}

func newSeq(s *script) *script {
	s.NewSeq()
	return s
}

// An interrupt is no error: it keeps and shows the text so far, at any time.
func TestInterrupt(t *testing.T) {
	m := builtin(t)
	say := pieces(t, m, "O|n|c|e")
	for at, want := range []string{"", "O", "On", "Onc", "Once", "OnceO"} {
		ctx, cancel := context.WithCancel(context.Background())
		e := newSeq(newScript(m, 3, say))
		walks := 0
		e.after = func(int) {
			if walks++; walks == at {
				cancel()
			}
		}
		if at == 0 {
			cancel()
		}
		shown := ""
		res, err := m.Generate(ctx, e, Options{Prompt: []int32{1, 2, 3}, MaxNew: -1, Stop: []string{"ncx"}}, func(ev Event) error {
			shown += string(ev.Text)
			return nil
		})
		cancel()
		if err != nil || res.Finish != FinishInterrupt || res.Text != want || shown != want {
			t.Errorf("interrupt after walk %d: %q, shown %q, finish %s, %v; expected %q", at, res.Text, shown, res.Finish, err, want)
		}
	}
}

func TestEventsWithLogProbs(t *testing.T) {
	m := builtin(t)
	e := newSeq(newScript(m, 1, pieces(t, m, "O|n")))
	n := 0
	res, err := m.Generate(context.Background(), e, Options{Prompt: []int32{1}, MaxNew: 4, LogProbs: 3}, func(ev Event) error {
		if len(ev.Top) != 3 || ev.Top[0].ID != ev.ID || ev.Top[0].LogProb != ev.LogProb || ev.LogProb >= 0 || ev.Top[1].LogProb >= ev.LogProb {
			t.Errorf("%+v", ev)
		}
		n++
		return nil
	})
	if err != nil || n != 4 || res.NewTokens != 4 {
		t.Errorf("%d events, %+v, %v", n, res, err)
	}
}

// A token allocates nothing.
// Log probabilities are the model's own: neither the penalty, nor tokens that may not come, nor filters, nor the temperature change them.
func TestLogProbsBeforeEverything(t *testing.T) {
	m := builtin(t)
	say := pieces(t, m, "O")
	s := newSeq(newScript(m, 2, say))
	z := math.Log(float64(s.vocab-1) + math.E) // one logit is 1, all others are 0
	n := 0
	_, err := m.Generate(context.Background(), s, Options{Prompt: []int32{1, say[0]}, MaxNew: 4, IgnoreEOG: true, LogProbs: 2,
		Sample: Params{Temp: 0.1, TopK: 3, TopP: 0.5, MinP: 0.2, RepeatPenalty: 1.3, RepeatLastN: -1}}, func(ev Event) error {
		if ev.ID != say[0] || math.Abs(ev.LogProb-(1-z)) > 1e-12 || ev.Top[0].ID != say[0] || math.Abs(ev.Top[0].LogProb-(1-z)) > 1e-12 ||
			math.Abs(ev.Top[1].LogProb+z) > 1e-12 {
			t.Errorf("token %d has %v, expected %d with %v; top %v", ev.ID, ev.LogProb, say[0], 1-z, ev.Top)
		}
		n++
		return nil
	})
	if err != nil || n != 4 {
		t.Errorf("%d tokens, %v", n, err)
	}
}

func TestGenerateAllocations(t *testing.T) {
	m := builtin(t)
	say := pieces(t, m, "O|n|c|e| the")
	run := func(n int, r *Reasoning) float64 {
		e := newSeq(newScript(m, 1, say))
		e.rows, e.wants = nil, nil
		o := Options{Prompt: []int32{1}, MaxNew: n, Stop: []string{"e!"}, Reasoning: r}
		bytes := 0
		return testing.AllocsPerRun(3, func() {
			e.Truncate(0, 0)
			if _, err := m.Generate(context.Background(), e, o, func(ev Event) error {
				bytes += len(ev.Text)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, r := range []*Reasoning{nil, newReasoning("<think>", marked())} {
		if few, many := run(10, r), run(1010, r); many-few > 4 { // the text's buffer grows
			t.Errorf("%v allocations for 10 tokens, %v for 1010, reasoning told apart: %v", few, many, r != nil)
		}
	}
}

// FuzzHoldback: whatever the tokens and the stop string, what was shown is the text up to the first stop string.
func FuzzHoldback(tf *testing.F) {
	f := testkit.Fuzz(tf)
	m := builtin(f)
	f.Add([]byte("Once upon a time"), "a t")
	f.Add([]byte("aaaaab"), "aab")
	f.Add([]byte("\xe2\x82\xac\xe2\x82\xac\xff"), "\u20ac\u20ac")
	f.Add([]byte(""), "x")
	f.Fuzz(func(t *testing.T, ids []byte, stop string) {
		h := newHoldback(m.Tok.NewDecoder(tokenizer.DecodeOptions{}), []string{stop})
		var shown, all []byte
		stopped := -1
		for _, b := range ids {
			id := int32(b) + int32(b)*int32(len(ids))%255
			all = m.Tok.Decode(all, []int32{id}, tokenizer.DecodeOptions{})
			text, s := h.add(id)
			shown = append(shown, text...)
			if stopped = s; s >= 0 {
				break
			}
		}
		shown = append(shown, h.flush()...)
		want, _, found := strings.Cut(string(all), stop)
		if stop == "" {
			want, found = string(all), false
		}
		// A stop string that is no text may end inside a character, which is not looked into before it is whole.
		if stopped >= 0 && (!found || string(shown) != want) || stopped < 0 && !found && string(shown) != string(all) {
			t.Errorf("%q stopped by %q: shown %q, expected %q", all, stop, shown, want)
		}
	})
}

// meter keeps what it was told.
type meter struct {
	rows int
	seen []float64
	done int
}

func (m *meter) Reach(done float64) { m.seen = append(m.seen, done) }
func (m *meter) Done()              { m.done++ }

// Progress hears of a prompt from its beginning, many times within a walk, and the text does not change. It hears nothing of the
// generation after it.
func TestProgress(t *testing.T) {
	m, e := openEngine(t, "", 1)
	prompt := encodePrompt(t, m, "Once upon a time there was a little girl", Encoding{})
	run := func(o Options) Result {
		o.Prompt, o.Seq, o.MaxNew = prompt, e.NewSeq(), 8
		res, err := m.Generate(context.Background(), e, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	want := run(Options{})
	var seen meter
	got := run(Options{Progress: func(rows int) Meter { seen.rows = rows; return &seen }})
	n := len(prompt)
	if got.Text != want.Text || seen.rows != n || seen.done != 1 {
		t.Errorf("%q, want %q; %d rows of %d, ended %d times", got.Text, want.Text, seen.rows, n, seen.done)
	}
	distinct := slices.Compact(slices.Clone(seen.seen))
	if len(distinct) < 10 || !slices.IsSorted(seen.seen) || seen.seen[0] != 0 || seen.seen[len(seen.seen)-1] != float64(n) {
		t.Errorf("progress %v", distinct)
	}

	// It ends with an error and an interruption too, and an engine that tells nothing is no harm.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	seen = meter{}
	o := Options{Prompt: prompt, Seq: e.NewSeq(), MaxNew: 8, Progress: func(rows int) Meter { return &seen }}
	if res, err := m.Generate(ctx, e, o, nil); err != nil || res.Finish != FinishInterrupt || seen.done != 1 {
		t.Errorf("interrupted: %+v, %v, ended %d times", res, err, seen.done)
	}
	o.Seq = 0
	if _, err := m.Generate(context.Background(), newSeq(newScript(m, n, []int32{400})), o, nil); err != nil || seen.done != 2 {
		t.Errorf("an engine that tells nothing: %v, ended %d times", err, seen.done)
	}
}

// BOS is not added to a text that begins with it.
func TestBOSNotTwice(t *testing.T) {
	m := builtin(t)
	defer m.Close()
	one := encodePrompt(t, m, "", Encoding{})
	for text, want := range map[string]int{"<s>": 1, "<s><s>": 2, "": 1} {
		if got := encodePrompt(t, m, text, Encoding{Special: true}); len(got) != want || got[0] != one[0] {
			t.Errorf("%q: %v", text, got)
		}
	}
	if got := encodePrompt(t, m, "<s>", Encoding{Special: true, NoBOS: true}); !slices.Equal(got, one) {
		t.Errorf("without BOS: %v", got)
	}
}
