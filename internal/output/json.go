package output

import (
	"encoding/json"
	"math"
	"time"

	"ck/internal/cli"
	"ck/internal/generate"
)

const (
	completeSchema = "ckrun.complete/1"
	eventSchema    = "ckrun.event/1"
	promptSchema   = "ckrun.prompt/1"
	answerSchema   = "ckrun.chat/1"
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

type endEvent struct {
	Schema string `json:"schema"`
	Event  string `json:"event"`
	Tail   string `json:"tail"`
	Think  string `json:"reasoning_tail,omitempty"`
	document
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

func (g *Generation) tokenEvent(ev generate.Event) tokenEvent {
	t := tokenEvent{Schema: eventSchema, Event: "token", ID: ev.ID, Text: ValidUTF8(ev.Text), Think: reasoned(ev.Reasoning, g.Hide)}
	if g.LogProbs {
		lp := logProb(ev.LogProb)
		t.LogProb = &lp
		for _, c := range ev.Top {
			t.Top = append(t.Top, topItem{c.ID, ValidUTF8(g.Model.Tok.Bytes(c.ID)), logProb(c.LogProb)})
		}
	}
	return t
}

// document is the whole of a generation.
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

func (g *Generation) document(schema string, res generate.Result) document {
	return document{schema, ValidUTF8([]byte(res.Text)), reasoned([]byte(res.Reasoning), g.Hide), List(res.IDs), res.Finish, res.StopString, res.PromptTokens,
		res.NewTokens, res.Seed, g.Context, g.Model.Name, g.Model.Path, newTimings(res, g.Load), g.Notes, g.App.Warnings()}
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

// PrintAnswer prints the answer of a chat as one JSON object. hide leaves its reasoning out.
func PrintAnswer(app *cli.App, res generate.Result, hide bool) error {
	return app.PrintJSON(struct {
		Schema       string          `json:"schema"`
		Role         string          `json:"role"`
		Content      string          `json:"content"`
		Reasoning    string          `json:"reasoning,omitempty"`
		Finish       generate.Finish `json:"finish"`
		PromptTokens int             `json:"prompt_tokens"`
		NewTokens    int             `json:"new_tokens"`
		Seed         uint64          `json:"seed"`
		Warnings     []string        `json:"warnings"`
	}{answerSchema, "assistant", ValidUTF8([]byte(res.Text)), reasoned([]byte(res.Reasoning), hide), res.Finish, res.PromptTokens, res.NewTokens, res.Seed, app.Warnings()})
}

// PrintPrompt prints a prompt as one JSON object.
func PrintPrompt(app *cli.App, p generate.Prompt) error {
	return app.PrintJSON(struct {
		Schema   string   `json:"schema"`
		Text     string   `json:"text"`
		IDs      []int32  `json:"ids"`
		Warnings []string `json:"warnings"`
	}{promptSchema, ValidUTF8([]byte(p.Text)), p.IDs, app.Warnings()})
}

// List is ids, for JSON: an empty list is no null.
func List(ids []int32) []int32 { return append([]int32{}, ids...) }

// ValidUTF8 replaces each byte that is no UTF-8, for JSON: one by one, so that the texts of events joined are the whole text.
func ValidUTF8(b []byte) string { return string([]rune(string(b))) }

// reasoned is the reasoning as documents have it.
func reasoned(text []byte, hide bool) string {
	if hide {
		return ""
	}
	return ValidUTF8(text)
}
