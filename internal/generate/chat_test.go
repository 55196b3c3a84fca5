package generate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ck/internal/engine"
	"ck/internal/template"
	"ck/internal/tokenizer"
)

// logitsOf evaluates ids in a sequence of their own and returns the last row's logits.
func logitsOf(t *testing.T, e *engine.Engine, ids []int32) []float32 {
	t.Helper()
	seq := e.NewSeq()
	defer e.Drop(seq)
	var last []float32
	err := e.Forward(context.Background(), seq, ids, engine.Last, func(_ int, l []float32) error {
		last = slices.Clone(l)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// A second turn evaluates only what is new, and its logits are those of the whole conversation evaluated at once.
func TestSessionKeepsState(t *testing.T) {
	m, e := openEngine(t, "", 1)
	for _, name := range []string{"", "chatml", "llama3"} {
		tmpl, err := m.FindTemplate(name)
		if err != nil {
			t.Fatal(err)
		}
		s := m.NewSession(e, tmpl)
		s.System = "Tell a story."
		var before []int32 // what the state should hold
		for turn, text := range []string{"Once upon a time", "There was a cat.", "The end"} {
			var logits []float32
			var rows int
			res, err := s.Ask(context.Background(), text, Options{MaxNew: 24, Logits: func(row int, l []float32) error {
				rows++
				logits = slices.Clone(l)
				return nil
			}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			conv := conversation(s.System, s.Messages[:len(s.Messages)-1]...)
			r, err := m.Render(tmpl, conv, RenderOptions{})
			if err != nil {
				t.Fatal(err)
			}
			reused := commonPrefix(before, r.IDs)
			if res.PromptTokens != len(r.IDs) || res.Prefill.Tokens != len(r.IDs)-reused || rows != res.Prefill.Tokens {
				t.Errorf("%q, turn %d: %d of %d ids were evaluated, expected all but %d", name, turn, res.Prefill.Tokens, len(r.IDs), reused)
			}
			if turn > 0 && reused < len(before)/2 {
				t.Errorf("%q, turn %d: only %d ids of %d were of use", name, turn, reused, len(before))
			}
			if want := logitsOf(t, e, r.IDs); !slices.Equal(logits, want) {
				t.Errorf("%q, turn %d: logits differ from those of the whole conversation", name, turn)
			}
			before = append(r.IDs, res.IDs[:len(res.IDs)-1]...)
			if last := s.Messages[len(s.Messages)-1]; last.Role != "assistant" || last.Content != res.Text {
				t.Errorf("%q: last message %+v, expected the answer %q", name, last, res.Text)
			}
		}
		s.Close()
	}
}

func TestSessionUndoResetSaveLoad(t *testing.T) {
	m, e := openEngine(t, "", 1)
	tmpl, err := m.FindTemplate("chatml")
	if err != nil {
		t.Fatal(err)
	}
	ctx, o := context.Background(), Options{MaxNew: 12}
	ask := func(s *Session, text string) Result {
		t.Helper()
		res, err := s.Ask(ctx, text, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	s := m.NewSession(e, tmpl)
	defer s.Close()
	s.System = "Be brief & <b>kind</b>."
	first := ask(s, "Once")
	second := ask(s, "upon")
	if !s.Undo() || len(s.Messages) != 2 {
		t.Fatalf("after undo there are %d messages, expected 2", len(s.Messages))
	}
	if again := ask(s, "upon"); !slices.Equal(again.IDs, second.IDs) || again.Prefill.Tokens != 1 {
		t.Errorf("after undo the same turn gives %q with %d rows evaluated, expected %q with 1", again.Text, again.Prefill.Tokens, second.Text)
	}

	var file bytes.Buffer
	if err := s.Save(&file); err != nil {
		t.Fatal(err)
	}
	third := ask(s, "a time")
	other := m.NewSession(e, tmpl)
	defer other.Close()
	if err := other.Load(bytes.NewReader(file.Bytes())); err != nil {
		t.Fatal(err)
	}
	if got := ask(other, "a time"); !slices.Equal(got.IDs, third.IDs) || other.System != s.System || !slices.Equal(other.Messages, s.Messages) {
		t.Errorf("the loaded conversation goes on with %q, the saved one with %q", got.Text, third.Text)
	}
	var undo int
	for other.Undo() {
		undo++
	}
	if undo != 3 || len(other.Messages) != 0 {
		t.Errorf("%d undos leave %d messages, expected 3 and none", undo, len(other.Messages))
	}
	other.Reset()
	if got := ask(other, "Once"); !slices.Equal(got.IDs, first.IDs) {
		t.Errorf("after reset: %q, expected %q", got.Text, first.Text)
	}

	// A plain array works too; what is no conversation leaves the old one.
	if err := other.Load(strings.NewReader(`[{"role":"system","content":"S"},{"role":"user","content":"U"}]`)); err != nil || other.System != "S" || len(other.Messages) != 1 {
		t.Errorf("array: %v, system %q, %d messages", err, other.System, len(other.Messages))
	}
	for _, bad := range []string{"", "[", "{}", `{"schema":"ck.chat/2","messages":[]}`, `[{"content":"x"}]`, `[1]`, `"x"`} {
		var in *InputError
		if err := other.Load(strings.NewReader(bad)); !errors.As(err, &in) || other.System != "S" || len(other.Messages) != 1 {
			t.Errorf("load of %q: %v, system %q", bad, err, other.System)
		}
	}
}

func TestSessionErrors(t *testing.T) {
	m := builtin(t)
	tmpl, err := m.FindTemplate("")
	if err != nil {
		t.Fatal(err)
	}
	e := newScript(m, 0, pieces(t, m, "O|n|c|e"))
	s := m.NewSession(e, tmpl)
	ctx, cancel := context.WithCancel(context.Background())
	var in *InputError
	if _, err := s.Ask(ctx, "a long prompt", Options{Context: 2, MaxNew: 1}, nil); !errors.As(err, &in) || len(s.Messages) != 0 {
		t.Errorf("too long: %v, %d messages are left", err, len(s.Messages))
	}
	// An interrupted answer stays as far as it came; none at all takes the question back.
	n := 0
	res, err := s.Ask(ctx, "go", Options{MaxNew: -1}, func(Event) error {
		if n++; n == 3 {
			cancel()
		}
		return nil
	})
	if err != nil || res.Finish != FinishInterrupt || len(s.Messages) != 2 || s.Messages[1].Content != res.Text || len(res.IDs) != 3 {
		t.Errorf("interrupt: %+v, %v, messages %v", res, err, s.Messages)
	}
	if res, err = s.Ask(ctx, "again", Options{MaxNew: -1}, nil); err != nil || res.Finish != FinishInterrupt || len(s.Messages) != 2 {
		t.Errorf("interrupt before the answer: %+v, %v, messages %v", res, err, s.Messages)
	}
	if len(s.held) != e.Len(s.seq) {
		t.Errorf("the sequence holds %d positions, the session knows %d", e.Len(s.seq), len(s.held))
	}
	refuse, err := template.Parse("picky", "{{ raise_exception('no') }}")
	if err != nil {
		t.Fatal(err)
	}
	var raised *template.ErrRaised
	if _, err := m.NewSession(e, refuse).Ask(context.Background(), "x", Options{}, nil); !errors.As(err, &raised) || !errors.As(err, &in) {
		t.Errorf("a template that refuses: %v", err)
	}
}

// BOS comes once: from the template or else from the tokenizer.
func TestBOSOnce(t *testing.T) {
	m := vocabOnly(t, "llama-spm")
	bos, _ := m.Tok.BOS()
	for name, source := range map[string]string{"with": "{{ bos_token }}{{ messages[0].content }}", "without": "{{ messages[0].content }}", "spelled": "<s>{{ messages[0].content }}"} {
		tmpl, err := template.Parse(name, source)
		if err != nil {
			t.Fatal(err)
		}
		r, err := m.RenderPrompt(tmpl, "", "Hi <s>", RenderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(controlIDs(m, r.IDs)); n != 1 || r.IDs[0] != bos {
			t.Errorf("template %s BOS: ids %v", name, r.IDs)
		}
		if name == "spelled" {
			continue // its own text
		}
		r, err = m.RenderPrompt(tmpl, "", "Hi", RenderOptions{Encoding: Encoding{NoBOS: true}})
		if err != nil || slices.Contains(r.IDs, bos) {
			t.Errorf("template %s BOS, --no-bos: ids %v, %v", name, r.IDs, err)
		}
	}
	if ids := encodePrompt(t, m, "", Encoding{}); !slices.Equal(ids, []int32{bos}) {
		t.Errorf("the empty prompt is %v", ids)
	}
	if ids := encodePrompt(t, m, "", Encoding{NoBOS: true}); len(ids) != 0 {
		t.Errorf("the empty prompt without BOS is %v", ids)
	}
	if with, without := encodePrompt(t, m, "a <s>", Encoding{Special: true}), encodePrompt(t, m, "a <s>", Encoding{}); len(controlIDs(m, with)) != 2 || len(controlIDs(m, without)) != 1 {
		t.Errorf("special: %v, plain: %v", with, without)
	}
}

// The built-in templates are the formats' documented turns.
func TestBuiltinTemplates(t *testing.T) {
	m := builtin(t)
	conv := []Message{{Role: "system", Content: "S"}, {Role: "user", Content: " U1 "}, {Role: "assistant", Content: "A1"}, {Role: "user", Content: "U2"}}
	for name, want := range map[string]string{
		"chatml":  "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n U1 <|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n",
		"gemma":   "<s><start_of_turn>user\nS\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n<start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\n",
		"llama2":  "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU1 [/INST] A1 </s><s>[INST] U2 [/INST]",
		"llama3":  "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		"mistral": "<s>[INST] S\n\nU1 [/INST] A1</s>[INST] U2 [/INST]",
		"phi3":    "<|system|>\nS<|end|>\n<|user|>\n U1 <|end|>\n<|assistant|>\nA1<|end|>\n<|user|>\nU2<|end|>\n<|assistant|>\n",
		"zephyr":  "<|system|>\nS</s>\n<|user|>\n U1 </s>\n<|assistant|>\nA1</s>\n<|user|>\nU2</s>\n<|assistant|>\n",
	} {
		tmpl, err := m.FindTemplate(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := m.Render(tmpl, conv, RenderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Text != want {
			t.Errorf("%s: %q, expected %q", name, r.Text, want)
		}
	}
	for _, name := range builtinTemplates() {
		if _, err := m.FindTemplate(name); err != nil {
			t.Error(err)
		}
	}
	tmpl, err := m.FindTemplate("") // the built-in model's own
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Render(tmpl, conv, RenderOptions{})
	if want := "S\n U1 A1\nU2"; err != nil || r.Text != want {
		t.Errorf("the built-in model's template: %q, %v, expected %q", r.Text, err, want)
	}
}

// A text that is certain to be longer than the context is refused before it is encoded, plain or in a template, with both numbers.
func TestTooLongBeforeEncoding(t *testing.T) {
	m := vocabOnly(t, "qwen2")
	tmpl, err := m.FindTemplate("chatml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("<|im_end|>", 1<<18)
	for _, special := range []bool{false, true} {
		enc := Encoding{Special: special, Max: 16384}
		_, plain := m.EncodePrompt(text, enc)
		_, turn := m.RenderPrompt(tmpl, "", text, RenderOptions{Encoding: enc})
		s := m.NewSession(newScript(m, 1, []int32{0}), tmpl)
		s.Render.Special = special
		_, answer := s.Ask(context.Background(), text, Options{Context: 16384}, nil)
		for name, err := range map[string]error{"plain": plain, "turn": turn, "answer": answer} {
			var long *TooLongError
			if in := (*InputError)(nil); !errors.As(err, &in) || !errors.As(err, &long) || !long.AtLeast || long.Context != 16384 || long.Tokens <= 16384 || long.Tokens > 1<<18 ||
				!strings.Contains(err.Error(), "at least 2") {
				t.Errorf("%s, special %v: %v", name, special, err)
			}
		}
	}
	if ids, err := m.EncodePrompt(text[:10*16384], Encoding{Special: true, Max: 16384}); err != nil || len(ids) != 16384 {
		t.Errorf("a text that fits: %d ids, %v", len(ids), err)
	}
}

// A vocabulary that lacks bytes says so once; one that leaves nothing of a text is blamed.
func TestLostText(t *testing.T) {
	const file = `{"added_tokens":[{"id":3,"content":"<s>","special":true}],"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}%s}`
	for _, post := range []string{"", `,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[3]}}}`} {
		tok, err := tokenizer.FromJSON([]byte(fmt.Sprintf(file, post)), nil)
		if err != nil {
			t.Fatal(err)
		}
		m := &Model{Tok: tok, Name: "m.gguf"}
		if ids, err := m.EncodePrompt("ab", Encoding{}); err != nil || len(ids) == 0 || m.LostText() != "" {
			t.Errorf("%v, %v, %q", ids, err, m.LostText())
		}
		if _, err := m.EncodePrompt("ab c", Encoding{}); err != nil {
			t.Error(err)
		}
		if got := m.LostText(); !strings.Contains(got, "no token for bytes 0x20, 0x63:") || m.LostText() != "" {
			t.Errorf("%q, then %q", got, m.LostText())
		}
		var in *InputError
		if _, err := m.EncodePrompt("ccc", Encoding{}); !errors.As(err, &in) || !strings.Contains(err.Error(), "m.gguf: the vocabulary has no token for bytes 0x20, 0x63: nothing is left") {
			t.Errorf("nothing is left: %v", err)
		}
		if _, err := m.EncodePrompt("", Encoding{}); err != nil {
			t.Errorf("the empty text: %v", err)
		}
	}
	if got := bytesText([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}); got != "bytes 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08 and 2 more" {
		t.Error(got)
	}
}
