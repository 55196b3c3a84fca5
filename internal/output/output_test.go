package output

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"ck/internal/cli"
	"ck/internal/generate"
)

// newApp is a program whose stdout and stderr are files; read gives what stdout got.
func newApp(t *testing.T) (app *cli.App, read func() string) {
	t.Helper()
	app = cli.New("ckrun", "", "", "")
	dir := t.TempDir()
	for _, f := range []struct {
		name string
		to   **os.File
	}{{"out", &app.Out}, {"err", &app.Err}} {
		file, err := os.Create(filepath.Join(dir, f.name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		*f.to = file
	}
	return app, func() string {
		b, err := os.ReadFile(filepath.Join(dir, "out"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

// events are a generation that reasons "a b" and answers "\xffc": the last part was held back.
var events = []generate.Event{
	{ID: 5, Reasoning: []byte("a")},
	{ID: 6, Reasoning: []byte(" b"), LogProb: math.Inf(-1), Top: []generate.Candidate{{ID: 3, LogProb: -0.5}}},
	{ID: 7, Text: []byte("\xff")},
	{ID: -1, Text: []byte("c")},
}

func TestGeneration(t *testing.T) {
	m, err := generate.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	res := generate.Result{Text: "\xffc", Reasoning: "a b", IDs: []int32{5, 6, 7}, Finish: generate.FinishStop, StopString: "d", PromptTokens: 2, NewTokens: 3, Seed: 9,
		Prefill: generate.Phase{Tokens: 2, Ns: 4e6}, Decode: generate.Phase{Tokens: 2, Ns: 1e6}, FirstNs: 5e6}
	const rest = `"ids":[5,6,7],"finish":"stop","stop":"d","prompt_tokens":2,"new_tokens":3,"seed":9,"context":64,"model":"stories260K",` +
		`"timings":{"load_ms":1,"prefill_ms":4,"prefill_tokens_per_s":500,"first_token_ms":6,"decode_ms":1,"decode_tokens_per_s":2000},"notes":["n"],"warnings":["w"]}` + "\n"
	for _, c := range []struct {
		name string
		set  func(*Generation)
		want string
	}{
		{"text", func(g *Generation) {}, "<think>\na b\n</think>\n\n\xffc"},
		{"text-hidden", func(g *Generation) { g.Hide, g.Newline = true, true }, "\xffc\n"},
		{"text-echo", func(g *Generation) { g.Echo, g.Hide = true, true }, "P\xffc"},
		{"ids", func(g *Generation) { g.Form = FormIDs }, "5 6 7\n"},
		{"json", func(g *Generation) { g.Form = FormJSON }, `{"schema":"ckrun.complete/1","text":"�c","reasoning":"a b",` + rest},
		{"json-hidden", func(g *Generation) { g.Form, g.Hide = FormJSON, true }, `{"schema":"ckrun.complete/1","text":"�c",` + rest},
		{"events", func(g *Generation) { g.Form = FormEvents }, `{"schema":"ckrun.event/1","event":"start","model":"stories260K","prompt_tokens":2,"context":64,"seed":9}` + "\n" +
			`{"schema":"ckrun.event/1","event":"token","id":5,"text":"","reasoning":"a"}` + "\n" +
			`{"schema":"ckrun.event/1","event":"token","id":6,"text":"","reasoning":" b"}` + "\n" +
			`{"schema":"ckrun.event/1","event":"token","id":7,"text":"�"}` + "\n" +
			`{"schema":"ckrun.event/1","event":"end","tail":"c","text":"�c","reasoning":"a b",` + rest},
	} {
		t.Run(c.name, func(t *testing.T) {
			app, read := newApp(t)
			app.Warn("w")
			g := &Generation{App: app, Model: m, Notes: []string{"n"}, Context: 64, Load: 1e6, Seed: 9,
				Prompt: generate.Prompt{Rendering: generate.Rendering{Text: "P", IDs: []int32{1, 2}}}}
			c.set(g)
			if err := g.Begin(); err != nil {
				t.Fatal(err)
			}
			for _, ev := range events {
				if err := g.Event(ev); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.End(res); err != nil {
				t.Fatal(err)
			}
			if got := read(); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
	app, read := newApp(t)
	g := &Generation{App: app, Model: m, Form: FormEvents, LogProbs: true}
	if err := g.Event(events[1]); err != nil {
		t.Fatal(err)
	}
	const want = `{"schema":"ckrun.event/1","event":"token","id":6,"text":"","reasoning":" b","logprob":null,"top":[{"id":3,"text":"\u0000","logprob":-0.5}]}` + "\n"
	if got := read(); got != want {
		t.Errorf("with log probabilities: %s", got)
	}
}

// Nothing new and no echo: no line end, whatever Newline says.
func TestNoNewLine(t *testing.T) {
	for _, c := range []struct {
		g    Generation
		want string
	}{{Generation{NoNew: true, Newline: true}, ""}, {Generation{NoNew: true, Newline: true, Echo: true}, "\n"}, {Generation{Form: FormIDs}, ""}} {
		app, read := newApp(t)
		c.g.App = app
		if err := c.g.Begin(); err != nil {
			t.Fatal(err)
		}
		if err := c.g.End(generate.Result{}); err != nil || read() != c.want {
			t.Errorf("%+v: %q, %v", c.g, read(), err)
		}
	}
}

func TestPrintText(t *testing.T) {
	for _, c := range []struct {
		text    string
		newline bool
		want    string
	}{{"a", false, "a"}, {"a", true, "a\n"}, {"a\n", true, "a\n"}, {"", true, "\n"}, {"\x1b[2J", false, "\x1b[2J"}} {
		app, read := newApp(t)
		if err := PrintText(app.Out, c.text, c.newline); err != nil || read() != c.want {
			t.Errorf("%q: %q, %v", c.text, read(), err)
		}
	}
	app, read := newApp(t)
	if err := PrintIDs(app.Out, []int32{1, 20, 3}); err != nil || read() != "1 20 3\n" {
		t.Errorf("%q, %v", read(), err)
	}
}

func TestWarnEnd(t *testing.T) {
	for _, c := range []struct {
		res  generate.Result
		want int
	}{
		{generate.Result{Finish: generate.FinishEOG, Reasoning: "r"}, 0},
		{generate.Result{Finish: generate.FinishLength, Text: "t", Reasoning: "r"}, 0},
		{generate.Result{Finish: generate.FinishLength, Reasoning: "r"}, 1},
		{generate.Result{Finish: generate.FinishContext, Text: "t"}, 1},
		{generate.Result{Finish: generate.FinishContext, Reasoning: "r"}, 2},
	} {
		app, _ := newApp(t)
		WarnEnd(app, c.res, 8)
		if got := app.Warnings(); len(got) != c.want {
			t.Errorf("%+v: %q", c.res, got)
		}
	}
}
