package chat

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
)

// tester is a chat with the built-in model whose stdout and stderr are files.
type tester struct {
	*Chat
	t *testing.T
}

func newChat(t *testing.T) *tester {
	t.Helper()
	m, err := generate.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	e, err := engine.Open(m.Weights, engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	tmpl, err := m.FindTemplate("chatml")
	if err != nil {
		t.Fatal(err)
	}
	app := cli.New("ckrun", "", "", "")
	app.Out, app.Err = file(t, "out", ""), file(t, "err", "")
	set := &Settings{Think: ThinkShow, Seed: "7"}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	g := cli.NewGroup(flags, "Generation")
	g.Int(&set.Predict, "predict", "n", 4, -1, 1<<20, "N", "new tokens at most; more here")
	g.Texts(&set.Stop, "stop", "", "STR", "where it ends")
	g.Enum(&set.Think, "think", "", ThinkShow, "MODE", []string{ThinkShow, ThinkHide, ThinkOff}, "reasoning")
	context := 0
	g.Int(&context, "ctx-size", "c", 0, 1, 1<<20, "N", "context")
	cli.NewGroup(flags, "Sampling").Text(&set.Seed, "seed", "s", "7", "N", "seed")
	other := ""
	cli.NewGroup(flags, "Output").Text(&other, "logits", "", "", "FILE", "no setting of a chat")
	if err := set.TakeSeed(); err != nil {
		t.Fatal(err)
	}
	c := &Chat{App: app, Model: m, Engine: e, Template: tmpl, Settings: set, Flags: flags, Groups: []string{"Generation", "Sampling"}, Fixed: []string{"ctx-size"},
		Context: 256, History: "none"}
	c.begin(false)
	return &tester{c, t}
}

func file(t *testing.T, name, text string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// said gives the chat a line and returns what stdout and stderr got since the last one.
func (c *tester) said(line string) (out, errs string) {
	c.t.Helper()
	if err := c.Chat.said(context.Background(), line); err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	return taken(c.t, c.App.Out), taken(c.t, c.App.Err)
}

func taken(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err == nil {
		err = f.Truncate(0)
	}
	if _, err2 := f.Seek(0, io.SeekStart); err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return string(b)
}

// expectErr says a line that prints nothing to stdout and this to stderr.
func (c *tester) expectErr(line, want string) {
	c.t.Helper()
	if out, errs := c.said(line); out != "" || errs != want {
		c.t.Errorf("%s: stdout %q, stderr %q, want %q", line, out, errs, want)
	}
}

func TestCommands(t *testing.T) {
	c := newChat(t)
	c.expectErr("/undo", "[there is nothing to take back]\n")
	c.expectErr("/stat", "[there was no answer yet]\n")
	c.expectErr("  ", "")
	out, errs := c.said("Hello")
	if !strings.HasSuffix(out, "\n") || errs != "[stopped after 4 tokens; /set predict N allows more]\n" || len(c.s.Messages) != 2 {
		t.Fatalf("%q, %q, %v", out, errs, c.s.Messages)
	}
	if _, stat := c.said("/stat"); !strings.Contains(stat, "seed      7\n") || strings.Contains(stat, "load") {
		t.Errorf("/stat: %s", stat)
	}
	c.said("//help")
	if c.s.Messages[2].Content != "/help" {
		t.Errorf("//help is %q", c.s.Messages[2].Content)
	}
	path := filepath.Join(t.TempDir(), "saved.json")
	c.expectErr("/save "+path, "")
	c.expectErr("/save "+path, "ckrun: error: "+path+": exists; --force overwrites it\n")
	c.expectErr("/save --force "+path, "")
	c.expectErr("/undo", "[taken back; 2 messages are left]\n")
	c.expectErr("/reset", "")
	if len(c.s.Messages) != 0 {
		t.Errorf("after /reset: %v", c.s.Messages)
	}
	c.expectErr("/load "+path, "[4 messages]\n")
	c.expectErr("/load", "ckrun: error: /load: name a file\n")
	c.expectErr("/system", "[there is no system message]\n")
	c.expectErr("/system Be\x1b kind", "")
	if c.expectErr("/system", "Be\\x1b kind\n"); c.s.System != "Be\x1b kind" {
		t.Errorf("system message %q", c.s.System)
	}
	if _, help := c.said("/help"); strings.Count(help, "\n/") != len(commands)-1 || !strings.Contains(help, "/set [KEY [VALUE]]") {
		t.Errorf("/help:\n%s", help)
	}
	c.expectErr("/nonsense", "ckrun: error: /nonsense: no such command; /help lists them, // at the beginning sends the line as it is\n")
	c.expectErr("\xff", "ckrun: error: message: byte 0 (0xff) is not UTF-8; convert the text, with iconv for example\n")
	if err := c.Chat.said(context.Background(), "/quit"); err != io.EOF {
		t.Errorf("/quit: %v", err)
	}
	if _, any := c.Last(); !any {
		t.Error("there was an answer")
	}
}

func TestSet(t *testing.T) {
	c := newChat(t)
	for _, x := range []struct{ line, want string }{
		{"/set predict", "predict          4            new tokens at most\n"},
		{"/set n 9", "predict          9            new tokens at most\n"},
		{"/set predict many", "ckrun: error: /set predict: \"many\" is no whole number\n"},
		{"/set stop \"a\\nb\"", "stop             [\"a\\nb\"]     where it ends\n"},
		{"/set stop \"", "ckrun: error: /set stop: \" is no text in double quotes; write \" in it as \\\"\n"},
		{"/set seed 12", "seed             12           seed\n"},
		{"/set seed x", "ckrun: error: /set seed: \"x\" is no whole number in 0..2^64-1\n"},
		{"/set ctx-size 5", "ckrun: error: /set ctx-size: is fixed while a chat runs; /save the conversation, start again with --ctx-size and /load it\n"},
		{"/set logits x", "ckrun: error: /set logits: no such setting; /set alone lists them\n"},
	} {
		c.expectErr(x.line, x.want)
	}
	s := c.Settings
	if s.Predict != 9 || len(s.Stop) != 1 || s.Stop[0] != "a\nb" || s.Sample.Seed != 12 || s.Seed != "12" {
		t.Errorf("a refused value left something: %+v", s)
	}
	if c.expectErr("/set stop \"\"", "stop                          where it ends\n"); len(s.Stop) != 0 {
		t.Errorf("stop strings %q", s.Stop)
	}
	if _, all := c.said("/set"); strings.Count(all, "\n") != 4 {
		t.Errorf("/set shows\n%s", all)
	}
}

// Messages come as JSON; each user turn that has no answer in its array gets one.
func TestLines(t *testing.T) {
	for _, x := range []struct {
		in      string
		answers int
		err     string
	}{
		{`{"role":"user","content":"a"}`, 1, ""},
		{`{"role":"user","content":"a"} {"role":"user","content":"b"}`, 2, ""},
		{`[{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"assistant","content":"x"},{"role":"user","content":"b"}]`, 1, ""},
		{"", 0, `chat: stdin has no messages; pipe lines such as {"role": "user", "content": "Hello"}`},
		{`{"role":"user"}`, 0, "stdin: message that ends at byte 15: a message needs role and content"},
		{`{"role":`, 0, `stdin: byte 0: no JSON: it ends in the middle of a value; give lines such as {"role": "user", "content": "Hello"}`},
		{"{\"role\":\"user\",\"content\":\"\xff\"}", 0, "stdin: byte 26 (0xff) is not UTF-8; convert the text, with iconv for example"},
	} {
		c := newChat(t)
		c.App.Common.JSON = true
		err := c.lines(context.Background(), file(t, "in", x.in))
		if err == nil && x.err != "" || err != nil && cli.Line(err) != x.err {
			t.Errorf("%s: error %v, want %q", x.in, err, x.err)
		}
		if out := taken(t, c.App.Out); strings.Count(out, `{"schema":"ckrun.chat/1","role":"assistant","content":`) != x.answers || strings.Count(out, "\n") != x.answers {
			t.Errorf("%s: %s", x.in, out)
		}
		if strings.Contains(x.in, "system") && (c.s.System != "S" || len(c.s.Messages) != 4) {
			t.Errorf("%s: system %q, %v", x.in, c.s.System, c.s.Messages)
		}
	}
}

func TestHistoryPath(t *testing.T) {
	t.Setenv("HOME", "/h")
	for _, x := range []struct{ named, state, want string }{
		{"f", "/s", "f"}, {"", "/s", "/s/ck/history"}, {"", "relative", "/h/.local/state/ck/history"}, {"", "", "/h/.local/state/ck/history"},
	} {
		t.Setenv("XDG_STATE_HOME", x.state)
		if got, err := historyPath(x.named); got != x.want || err != nil {
			t.Errorf("%+v: %q, %v", x, got, err)
		}
	}
}
