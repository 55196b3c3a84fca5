package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/testkit"
)

// thinker writes a model that reasons: stories260K, whose comma is </think> and whose template opens <think>, unless enable_thinking is
// false. What stands before its first comma is what it reasons, the rest the answer.
func thinker(t *testing.T) string {
	t.Helper()
	m, err := gguf.Open(testkit.Data(t, "models/stories260K/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	kv := &gguf.Metadata{}
	for _, k := range m.KV.Keys() {
		v := m.KV.Value(k)
		if k == "tokenizer.ggml.tokens" {
			words, ok, err := m.KV.Strings(k)
			at := slices.Index(words, ",")
			if err != nil || !ok || at < 0 {
				t.Fatal("no comma in the vocabulary")
			}
			words = slices.Clone(words)
			words[at] = "</think>"
			v = words
		}
		kv.Set(k, v)
	}
	kv.Set("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}"+
		"{% if add_generation_prompt and (enable_thinking is undefined or enable_thinking) %}<think>{% endif %}")
	infos := make([]gguf.TensorInfo, len(m.Tensors))
	for i, x := range m.Tensors {
		infos[i] = gguf.TensorInfo{Name: x.Name, Type: x.Type, Shape: x.Shape}
	}
	path := filepath.Join(t.TempDir(), "thinker.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := gguf.NewWriter(f, kv, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range m.Tensors {
		if _, err := w.Write(x.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Reasoning is told apart from the answer: marked in a pipe, faint on a terminal, hidden, a field of JSON, or not asked for.
func TestThink(t *testing.T) {
	dir, model := buildPrograms(t), thinker(t)
	args := []string{"-m", model, "--temp", "0", "-n", "24"}
	run := func(more ...string) (out, stderr string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "ckrun"), append(slices.Clone(args), more...)...)
		var e strings.Builder
		cmd.Stderr = &e
		b, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v, %s", more, err, e.String())
		}
		return string(b), e.String()
	}
	var doc struct{ Text, Reasoning, Content, Event, Tail string }
	out, _ := run("--json", "Once upon a time")
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Reasoning == "" || doc.Text == "" || strings.Contains(doc.Reasoning, "think") ||
		strings.TrimSpace(doc.Text) != doc.Text || strings.TrimSpace(doc.Reasoning) != doc.Reasoning {
		t.Fatalf("%v, %s", err, out)
	}
	think, answer := doc.Reasoning, doc.Text
	if out, _ := run("Once upon a time"); out != "<think>\n"+think+"\n</think>\n\n"+answer {
		t.Errorf("in a pipe: %q", out)
	}
	if out, stderr := run("--think", "hide", "Once upon a time"); out != answer || stderr != "" {
		t.Errorf("hidden: %q, %q", out, stderr)
	}
	if out, _ := run("--think", "hide", "--json", "Once upon a time"); strings.Contains(out, `"reasoning"`) {
		t.Errorf("hidden, JSON: %s", out)
	}
	if out, stderr := run("--think", "off", "--show-prompt", "Once upon a time"); out != "Once upon a time" || stderr != "" {
		t.Errorf("off: prompt %q, %q", out, stderr)
	}
	if out, stderr := run("--think", "hide", "-n", "3", "Once upon a time"); out != "" ||
		stderr != "ckrun: warning: there is no answer: the model still reasoned after 3 tokens; raise -n, or try --think off\n" {
		t.Errorf("no answer: %q, %q", out, stderr)
	}

	// Texts and reasoning of the events joined are those of the end.
	out, _ = run("--jsonl", "Once upon a time")
	var text, reasoning string
	for line := range strings.Lines(out) {
		var ev struct{ Event, Text, Reasoning, Tail string }
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatal(err)
		}
		if ev.Event == "token" {
			text, reasoning = text+ev.Text, reasoning+ev.Reasoning
		} else if text += ev.Tail; ev.Event == "end" && (ev.Text != text || ev.Reasoning != reasoning || text != answer || reasoning != think) {
			t.Errorf("events: %q, %q; end: %q, %q", text, reasoning, ev.Text, ev.Reasoning)
		}
	}

	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	plain := strings.NewReplacer("\x1b[2m", "", "\x1b[0m", "")
	x := startTerminal(t, append([]string{"ckrun"}, append(args, "Once upon a time")...)...)
	if code, got := x.wait(), x.output(); code != 0 || plain.Replace(got) != crlf(think+"\n\n"+answer+"\n") || !strings.HasPrefix(got, "\x1b[2m") ||
		strings.Contains(got[strings.LastIndex(got, "\x1b[0m"):], "\x1b[2m") {
		t.Errorf("terminal: code %d, %q", code, got)
	}
	t.Setenv("NO_COLOR", "1")
	x = startTerminal(t, append([]string{"ckrun"}, append(args, "Once upon a time")...)...)
	if code := x.wait(); code != 0 || x.output() != crlf("<think>\n"+think+"\n</think>\n\n"+answer+"\n") {
		t.Errorf("terminal, NO_COLOR: code %d, %q", code, x.output())
	}
}

// In a chat settings change between turns, checked as on the command line; the first turn may come from there.
func TestTerminalChatSet(t *testing.T) {
	model, saved := thinker(t), filepath.Join(t.TempDir(), "chat.json")
	x := startTerminal(t, "ckrun", "chat", "-m", model, "--temp", "0", "-n", "24", "Once upon", "a time")
	x.expect("> Once upon a time\r\n")
	x.expect("\x1b[2m")
	x.expect("stopped after 24 tokens")
	x.expect("> ")
	for _, c := range []struct{ line, want string }{
		{"/set temp 0.2", "temp 0.2"},
		{"/set temp 0", "temp 0"},
		{"/set temp hot", `/set temp: "hot" is no number`},
		{"/set temp", "temp 0"},
		{"/set top-p 2", "/set top-p: 2 is not in 0..1"},
		{"/set n 30", "predict 30"},
		{"/set n-predict 8", "predict 8"},
		{"/set seed -2", `/set seed: "-2" is no whole number`},
		{"/set seed 7", "seed 7"},
		{"/set stop One day", `stop ["One day"]`},
		{`/set stop "a\nb"`, `stop ["a\nb"]`},
		{`/set stop "`, "is no text in double quotes"},
		{`/set stop ""`, "stop"},
		{"/set ignore-eos perhaps", `/set ignore-eos: "perhaps" is neither true nor false`},
		{"/set ctx-size 9", "/set ctx-size: is fixed while a chat runs; "},
		{"/set c 9", "/set c: is fixed while a chat runs; "},
		{"/set threads 2", "/set threads: no such setting; /set alone lists them"},
		{"/set nonsense 2", "/set nonsense: no such setting; /set alone lists them"},
		{"/set think off", "think off"},
		{"/set think hide", "think hide"},
	} {
		x.send(c.line + "\r")
		x.expectSquashed(c.want)
		x.expect("> ")
	}
	x.send("/set\r")
	for _, key := range []string{"predict 8", "stop", "ignore-eos", "think hide", "temp 0", "top-k 40", "seed 7"} {
		x.expectSquashed(key)
	}
	x.expect("> ")
	x.send("/reset\r")
	x.expect("> ")
	x.send("/set n 24\r")
	x.expect("> ")
	from := x.from
	x.send("Once upon a time\r")
	x.expect("stopped after 24 tokens")
	if strings.Contains(x.output()[from:], "\x1b[2m") {
		t.Errorf("hidden reasoning is shown: %q", x.output()[from:])
	}
	x.expect("> ")
	x.send("/save " + saved + "\r")
	x.expect("> ")
	x.send("/help\r")
	x.expect("this list\r\n")
	from = x.from
	x.expect("/set [KEY [VALUE]]")
	x.expect("as Ctrl-D does.\r\n")
	for line := range strings.SplitSeq(x.output()[from:x.from], "\r\n") {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("help: %d columns: %q", n, line)
		}
	}
	x.expect("> ")
	x.send("\x04")
	if code := x.wait(); code != 0 {
		t.Errorf("code %d, %q", code, x.output())
	}
	b, err := os.ReadFile(saved)
	if err != nil || !strings.Contains(string(b), `"reasoning": "`) {
		t.Errorf("%v, saved chat: %s", err, b)
	}
}

// expectSquashed is expect for text of columns: any number of blanks counts as one.
func (x *terminal) expectSquashed(text string) {
	x.t.Helper()
	for _, w := range strings.Fields(text) {
		x.expect(w)
	}
}
