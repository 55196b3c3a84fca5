package main

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
)

// output prints a generation: text as it comes, ids, one JSON document, or events.
type output struct {
	p       *program
	m       *generate.Model
	e       *engine.Engine
	r       request
	context int
	load    time.Duration
	text    bool // stdout gets text
	last    byte // of the text on stdout
	tail    string
	first   bool

	thinking  bool   // what was written last is reasoning
	thinkTail string // reasoning that no token event had
}

func (p *program) newOutput(m *generate.Model, e *engine.Engine, r request, context int, load time.Duration) *output {
	o := &p.o
	return &output{p: p, m: m, e: e, r: r, context: context, load: load, text: !p.app.Common.JSON && !o.jsonl && !o.printIDs, first: true}
}

// begin prints what stands before the first token.
func (w *output) begin() error {
	o := &w.p.o
	switch {
	case o.jsonl:
		return w.p.app.PrintJSON(startEvent{eventSchema, "start", w.m.Name, w.m.Path, len(w.r.ids), w.context, o.sample.Seed})
	case w.text && o.echo && w.r.text != "":
		return w.write([]byte(w.r.text))
	}
	return nil
}

// event prints a token, or text that was held back.
func (w *output) event(ev generate.Event) error {
	o := &w.p.o
	switch {
	case w.text:
		if err := w.think(ev.Reasoning); err != nil {
			return err
		}
		return w.answer(ev.Text)
	case o.jsonl && ev.ID < 0:
		w.tail, w.thinkTail = validUTF8(ev.Text), w.p.reasoned(ev.Reasoning)
	case o.jsonl:
		return w.p.app.PrintJSON(w.tokenEvent(ev))
	case o.printIDs && !w.p.app.Common.JSON && ev.ID >= 0:
		s := strconv.Itoa(int(ev.ID))
		if !w.first {
			s = " " + s
		}
		w.first = false
		_, err := w.p.app.Out.WriteString(s)
		return cli.OutError(err)
	}
	return nil
}

func (w *output) write(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	w.last = text[len(text)-1]
	return cli.OutError(w.p.write(text))
}

// end prints what stands behind the last token.
func (w *output) end(res generate.Result) error {
	switch o := &w.p.o; {
	case w.p.app.Common.JSON:
		return w.p.app.PrintJSON(w.document(completeSchema, res))
	case o.jsonl:
		return w.p.app.PrintJSON(struct {
			Schema string `json:"schema"`
			Event  string `json:"event"`
			Tail   string `json:"tail"`
			Think  string `json:"reasoning_tail,omitempty"`
			document
		}{eventSchema, "end", w.tail, w.thinkTail, w.document("", res)})
	case o.printIDs:
		if w.first {
			return nil
		}
		return w.p.newline()
	}
	return w.lineEnd()
}

// lineEnd ends the text with a newline on a terminal, or with --newline.
func (w *output) lineEnd() error {
	shown := w.p.o.predict != 0 || w.p.o.echo
	if !shown || w.last == '\n' || !w.p.o.newline && !cli.IsTerminal(w.p.app.Out) {
		return nil
	}
	return w.p.newline()
}

// broken ends the line on a terminal before an error is reported.
func (w *output) broken() {
	if w.text && w.last != 0 && w.last != '\n' && cli.IsTerminal(w.p.app.Out) {
		_ = w.p.newline() // the error that is about to be reported matters more
	}
}

func (p *program) newline() error {
	_, err := p.app.Out.WriteString("\n")
	return cli.OutError(err)
}

// write writes text to stdout; on a terminal without control characters, which a model must not be able to send there.
func (p *program) write(text []byte) error {
	if cli.IsTerminal(p.app.Out) {
		text = cli.Printable(text)
	}
	_, err := p.app.Out.Write(text)
	return err
}

// writeText writes a whole text as write does, with a newline behind it where the flags or the terminal want one.
func (p *program) writeText(text string) error {
	if err := p.write([]byte(text)); err != nil {
		return err
	}
	if !strings.HasSuffix(text, "\n") && (p.o.newline || cli.IsTerminal(p.app.Out)) {
		return p.newline()
	}
	return nil
}

// printIDs prints ids on one line.
func (p *program) printIDs(ids []int32) error {
	b := make([]byte, 0, 6*len(ids)+1)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	_, err := p.app.Out.Write(append(b, '\n'))
	return cli.OutError(err)
}

const (
	completeSchema = "ckrun.complete/1"
	eventSchema    = "ckrun.event/1"
)

type startEvent struct {
	Schema       string `json:"schema"`
	Event        string `json:"event"`
	Model        string `json:"model"`
	Path         string `json:"path,omitempty"`
	PromptTokens int    `json:"prompt_tokens"`
	Context      int    `json:"context"`
	Seed         uint64 `json:"seed"`
}

type tokenEvent struct {
	Schema  string    `json:"schema"`
	Event   string    `json:"event"`
	ID      int32     `json:"id"`
	Text    string    `json:"text"`
	Think   string    `json:"reasoning,omitempty"`
	LogProb *logProb  `json:"logprob,omitempty"`
	Top     []topItem `json:"top,omitempty"`
}

type topItem struct {
	ID      int32   `json:"id"`
	Text    string  `json:"text"`
	LogProb logProb `json:"logprob"`
}

// logProb is a number, or null for minus infinity and NaN, which JSON does not have.
type logProb float64

func (x logProb) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(float64(x))
	if err != nil {
		return []byte("null"), nil
	}
	return b, nil
}

func (w *output) tokenEvent(ev generate.Event) tokenEvent {
	t := tokenEvent{Schema: eventSchema, Event: "token", ID: ev.ID, Text: validUTF8(ev.Text), Think: w.p.reasoned(ev.Reasoning)}
	if w.p.o.logprobs > 0 {
		lp := logProb(ev.LogProb)
		t.LogProb = &lp
		for _, c := range ev.Top {
			t.Top = append(t.Top, topItem{c.ID, validUTF8(w.m.Tok.Bytes(c.ID)), logProb(c.LogProb)})
		}
	}
	return t
}

// document is what --json prints.
type document struct {
	Schema       string          `json:"schema,omitempty"`
	Text         string          `json:"text"`
	Reasoning    string          `json:"reasoning,omitempty"`
	IDs          []int32         `json:"ids"`
	Finish       generate.Finish `json:"finish"`
	Stop         string          `json:"stop,omitempty"`
	PromptTokens int             `json:"prompt_tokens"`
	NewTokens    int             `json:"new_tokens"`
	Seed         uint64          `json:"seed"`
	Context      int             `json:"context"`
	Model        string          `json:"model"`
	Path         string          `json:"path,omitempty"`
	Timings      timings         `json:"timings"`
	Notes        []string        `json:"notes"`
	Warnings     []string        `json:"warnings"`
}

type timings struct {
	LoadMs     float64 `json:"load_ms"`
	PrefillMs  float64 `json:"prefill_ms"`
	PrefillTPS float64 `json:"prefill_tokens_per_s"`
	FirstMs    float64 `json:"first_token_ms"`
	DecodeMs   float64 `json:"decode_ms"`
	DecodeTPS  float64 `json:"decode_tokens_per_s"`
}

func (w *output) document(schema string, res generate.Result) document {
	return document{schema, validUTF8([]byte(res.Text)), w.p.reasoned([]byte(res.Reasoning)), list(res.IDs), res.Finish, res.StopString, res.PromptTokens, res.NewTokens, res.Seed, w.context,
		w.m.Name, w.m.Path, newTimings(res, w.load), w.e.Notes, w.p.app.Warnings()}
}

func newTimings(res generate.Result, load time.Duration) timings {
	round := func(x float64) float64 { return math.Round(x*1e3) / 1e3 }
	ms := func(ns int64) float64 { return round(float64(ns) / 1e6) }
	t := timings{LoadMs: ms(load.Nanoseconds()), PrefillMs: ms(res.Prefill.Ns), PrefillTPS: round(res.Prefill.Rate()),
		DecodeMs: ms(res.Decode.Ns), DecodeTPS: round(res.Decode.Rate())}
	if res.FirstNs > 0 {
		t.FirstMs = ms(load.Nanoseconds() + res.FirstNs)
	}
	return t
}

// list is ids, for JSON: an empty list is no null.
func list(ids []int32) []int32 { return append([]int32{}, ids...) }

// validUTF8 replaces each byte that is no UTF-8, for JSON: one by one, so that the texts of events joined are the whole text.
func validUTF8(b []byte) string { return string([]rune(string(b))) }

// raw writes text of our own to stdout.
func (w *output) raw(text string) error {
	_, err := w.p.app.Out.WriteString(text)
	return cli.OutError(err)
}
