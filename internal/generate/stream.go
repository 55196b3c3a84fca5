package generate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ck/internal/engine"
	"ck/internal/tokenizer"
)

// Finish says why a generation ended.
type Finish string

// The reasons, as --json writes them.
const (
	FinishEOG       Finish = "eog"       // a token that ends a text or a turn
	FinishStop      Finish = "stop"      // a stop string
	FinishLength    Finish = "length"    // MaxNew tokens
	FinishContext   Finish = "context"   // prompt and text fill the context
	FinishInterrupt Finish = "interrupt" // ctx ended
)

// Options are what one generation needs.
type Options struct {
	Prompt []int32 // the whole text so far, as ids
	Seq    int     // the engine's sequence that takes it
	Reuse  int     // the sequence holds the state of this many first ids of Prompt; what it holds beyond is forgotten

	MaxNew    int  // new tokens; 0: the prompt is evaluated only; below 0: until the end or until the context is full
	LeaveRoom bool // at most half of what the prompt leaves of the context, if that is less: a conversation goes on
	Context   int  // prompt and new tokens together; 0: no limit
	Stop      []string
	IgnoreEOG bool // tokens that end a text are never drawn

	Sample   Params
	LogProbs int // above 0: log probability of each token and of the most probable ones, this many; the model's own, before Sample changes any

	// StartOfText says that the new text begins a text: SentencePiece's first space is dropped. After a prompt it is part of the text.
	StartOfText bool

	// Reasoning, if it is not nil, divides what comes into reasoning and answer; with Inside it begins with reasoning. Stop strings count in
	// the answer alone.
	Reasoning *Reasoning
	Inside    bool

	// Logits gets the logits [vocabulary] of each evaluated prompt row, numbered from Reuse on; nil: only the last row's are computed.
	// The slice is only valid during the call.
	Logits func(row int, logits []float32) error

	// Progress begins to show how far the evaluation of so many rows of the prompt is; nil: nobody is told.
	Progress func(rows int) Meter
}

// Meter shows how far work is.
type Meter interface {
	Reach(done float64) // rows, parts of one among them; called often, on any goroutine
	Done()              // the work has ended, well or not
}

// Event is a step of a generation: a token, or (ID -1) the rest of the text that was held back.
type Event struct {
	ID int32
	// Text is what can be shown now: complete characters that cannot belong to a stop string. It may be empty, and it need not belong
	// to this token alone. Bytes that are no UTF-8 are passed as they are. It is valid during the call.
	Text      []byte
	Reasoning []byte      // with Options.Reasoning; it stands before Text
	LogProb   float64     // natural logarithm, with Options.LogProbs
	Top       []Candidate // with Options.LogProbs; valid during the call
}

// Result is what a generation came to.
type Result struct {
	Text         string // all of it, without stop strings
	Reasoning    string // with Options.Reasoning; then Text is the answer
	IDs          []int32
	Finish       Finish
	StopString   string // the one that was found
	PromptTokens int    // ids of the prompt, reused ones among them
	NewTokens    int    // len(IDs); a final end token is not counted
	Seed         uint64

	Prefill Phase // the evaluation of the prompt
	Decode  Phase // single rows after it
	FirstNs int64 // from the call to the first token; 0 without one
}

// Phase is the work of one kind: rows evaluated and the time for them, sampling included in Decode.
type Phase struct {
	Tokens int
	Ns     int64
}

// Rate is in tokens/s; 0 if there was nothing.
func (p Phase) Rate() float64 {
	if p.Ns <= 0 {
		return 0
	}
	return float64(p.Tokens) / float64(p.Ns) * 1e9
}

// TooLongError says that a prompt does not fit into the context, or leaves no room for a new token.
type TooLongError struct {
	Tokens, Context int
	AtLeast         bool // the prompt was not encoded: it has this many tokens or more
}

// Count is the number of tokens in words.
func (e *TooLongError) Count() string {
	if e.AtLeast {
		return fmt.Sprintf("at least %d tokens", e.Tokens)
	}
	return fmt.Sprintf("%d tokens", e.Tokens)
}

func (e *TooLongError) Error() string {
	if e.Tokens == e.Context {
		return fmt.Sprintf("the prompt has %s, the context %d: there is no room for a new one; raise -c, cut the prompt with --truncate, or evaluate it alone with -n 0",
			e.Count(), e.Context)
	}
	return fmt.Sprintf("the prompt has %s, the context %d; raise -c or cut the prompt with --truncate", e.Count(), e.Context)
}

// CheckRoom returns an *InputError around a *TooLongError if a prompt of so many tokens does not fit into a context (0: any does) together
// with one new token; with maxNew 0 the prompt alone must fit.
func CheckRoom(prompt, context, maxNew int) error {
	if context <= 0 || prompt < context || prompt == context && maxNew == 0 {
		return nil
	}
	return &InputError{&TooLongError{Tokens: prompt, Context: context}}
}

// Generate evaluates the prompt and draws tokens until an end. emit gets each token as it comes; its error ends the generation and is
// returned. An ended ctx is no error: the result has what there was so far and Finish interrupt. Other errors are the engine's, or
// *InputError (around a *TooLongError where the prompt is too long); the result then says how far it came.
//
// The sequence ends up holding the state of the prompt and of new tokens but the last one, which was drawn and not evaluated.
// Apart from what emit does, a token allocates nothing.
func (m *Model) Generate(ctx context.Context, e Engine, o Options, emit func(Event) error) (Result, error) {
	g := &generation{m: m, e: e, o: o, emit: emit, begin: time.Now(), sampler: NewSampler(o.Sample)}
	g.res = Result{PromptTokens: len(o.Prompt), Seed: o.Sample.Seed}
	if len(o.Prompt) == 0 {
		return g.res, inputf("the prompt is empty: there is not one token to begin with")
	}
	if err := CheckRoom(len(o.Prompt), o.Context, o.MaxNew); err != nil {
		return g.res, err
	}
	if half := (o.Context - len(o.Prompt) + 1) / 2; o.LeaveRoom && o.Context > 0 && (o.MaxNew < 0 || o.MaxNew > half) {
		g.o.MaxNew = half
	}
	if o.Reuse > e.Len(o.Seq) || o.Reuse > len(o.Prompt) {
		panic(fmt.Sprintf("generate: reuse of %d positions, the sequence has %d and the prompt %d", o.Reuse, e.Len(o.Seq), len(o.Prompt)))
	}
	g.ids = append(make([]int32, 0, len(o.Prompt)+g.room()), o.Prompt...)
	if o.IgnoreEOG {
		g.sampler.Ban(m.endTokens()...)
	}
	g.text = newHoldback(m.Tok.NewDecoder(tokenizer.DecodeOptions{SkipSpaceAtStart: o.StartOfText}), o.Stop)
	if o.Reasoning != nil {
		g.text.split = newSplitter(o.Reasoning, o.Inside)
	}
	err := g.run(ctx)
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		err, g.res.Finish = nil, FinishInterrupt
	}
	if err == nil {
		err = g.flush()
	}
	g.res.IDs = g.ids[len(o.Prompt):]
	g.res.NewTokens = len(g.res.IDs)
	g.res.Text = string(g.text.all[:g.text.shown])
	if s := g.text.split; s != nil {
		g.res.Reasoning = string(s.think)
	}
	return g.res, err
}

// generation is the state of one call of Generate.
type generation struct {
	m       *Model
	e       Engine
	o       Options
	emit    func(Event) error
	begin   time.Time
	sampler *Sampler
	text    *holdback
	ids     []int32 // prompt and new tokens
	reach   int     // positions that the engine was told of
	top     []Candidate
	logProb float64
	res     Result
}

// room is the number of tokens to make room for at once.
func (g *generation) room() int {
	n := 4096
	if g.o.MaxNew >= 0 {
		n = min(n, g.o.MaxNew)
	}
	return n
}

// run evaluates and draws, and sets Finish. The engine looks at ctx: a token that was drawn is always shown.
func (g *generation) run(ctx context.Context) error {
	next, err := g.prefill(ctx)
	if err != nil {
		return err
	}
	if g.o.MaxNew == 0 {
		g.res.Finish = FinishLength
		return nil
	}
	if h, ok := g.e.(holder); ok {
		release := h.Hold()
		defer release()
	}
	row := func(_ int, logits []float32) (err error) {
		next, err = g.draw(logits)
		return err
	}
	start := time.Now()
	for {
		done, err := g.take(next)
		if done || err != nil {
			return err
		}
		rest := g.ids[len(g.ids)-1:]
		if len(g.ids) > g.reach && !g.expect(len(g.ids)) {
			rest = g.ids // the model's rotation is another from here on: all of it anew
		}
		if err := g.e.Forward(ctx, g.o.Seq, rest, engine.Last, row); err != nil {
			return err
		}
		g.res.Decode.Tokens++
		g.res.Decode.Ns = time.Since(start).Nanoseconds()
	}
}

// expect says how long the sequence becomes, as far as that is known. false: what it held was made for another length and is gone.
func (g *generation) expect(n int) bool {
	g.reach = n
	if g.e.Expect(g.o.Seq, n) {
		return true
	}
	g.e.Truncate(g.o.Seq, 0)
	g.e.Expect(g.o.Seq, n)
	return false
}

// prefill evaluates what the sequence does not hold yet and draws the first token.
func (g *generation) prefill(ctx context.Context) (next int32, err error) {
	o := &g.o
	reuse, want := o.Reuse, engine.Last
	if o.MaxNew != 0 || o.Logits != nil {
		reuse = min(reuse, len(o.Prompt)-1) // the last row's logits are needed
	} else {
		want = engine.None
	}
	if o.Logits != nil {
		want = engine.All
	}
	if !g.expect(len(o.Prompt) + max(o.MaxNew, 0)) {
		reuse = 0
	}
	g.e.Truncate(o.Seq, reuse)
	rows := o.Prompt[reuse:]
	each := func(i int, logits []float32) error {
		if o.Logits != nil {
			if err := o.Logits(reuse+i, logits); err != nil {
				return err
			}
		}
		if i == len(rows)-1 && o.MaxNew != 0 {
			next, err = g.draw(logits)
		}
		return err
	}
	if err := g.forward(ctx, rows, want, each); err != nil {
		return 0, err
	}
	g.res.Prefill = Phase{len(rows), time.Since(g.begin).Nanoseconds()}
	if o.MaxNew != 0 {
		g.res.FirstNs = g.res.Prefill.Ns
	}
	return next, nil
}

// forward evaluates rows and says how far it is, if somebody wants to know.
func (g *generation) forward(ctx context.Context, rows []int32, want engine.Want, each func(int, []float32) error) error {
	if g.o.Progress != nil {
		meter := g.o.Progress(len(rows))
		defer meter.Done()
		if w, ok := g.e.(watcher); ok {
			w.Watch(meter.Reach)
			defer w.Watch(nil)
		}
	}
	return g.e.Forward(ctx, g.o.Seq, rows, want, each)
}

// errNoToken says that a sampler had nothing to choose from. Engines give finite logits, so it is banned tokens or a penalty that did it.
var errNoToken = inputf("no token can follow: all are banned or without probability; loosen the sampling settings")

// draw samples from logits.
func (g *generation) draw(logits []float32) (int32, error) {
	id := g.sampler.Sample(logits, g.ids)
	if l := logits[id]; l-l != 0 || slices.Contains(g.sampler.ban, id) {
		return 0, errNoToken
	}
	if g.o.LogProbs > 0 {
		g.logProb, g.top = g.sampler.LogProbs(g.top[:0], logits, id, g.o.LogProbs)
	}
	return id, nil
}

// take accepts the token id, shows what can be shown and says whether it was the last one.
func (g *generation) take(id int32) (done bool, err error) {
	if g.o.Context > 0 && len(g.ids) >= g.o.Context {
		g.res.Finish = FinishContext
		return true, nil
	}
	if g.m.Tok.IsEOG(id) && !g.o.IgnoreEOG {
		g.res.Finish = FinishEOG
		return true, nil
	}
	g.ids = append(g.ids, id)
	text, stop := g.text.add(id)
	if err := g.send(Event{ID: id, Text: text, Reasoning: g.text.thoughts(), LogProb: g.logProb, Top: g.top}); err != nil {
		return true, err
	}
	switch n := len(g.ids) - len(g.o.Prompt); {
	case stop >= 0:
		g.res.Finish, g.res.StopString = FinishStop, g.o.Stop[stop]
	case g.o.MaxNew > 0 && n >= g.o.MaxNew:
		g.res.Finish = FinishLength
	case g.o.Context > 0 && len(g.ids) >= g.o.Context:
		g.res.Finish = FinishContext
	default:
		return false, nil
	}
	return true, nil
}

// flush shows what was held back, unless it is what a stop string cut off.
func (g *generation) flush() error {
	text := g.text.flush()
	if think := g.text.thoughts(); len(text)+len(think) > 0 {
		return g.send(Event{ID: -1, Text: text, Reasoning: think})
	}
	return nil
}

func (g *generation) send(ev Event) error {
	if g.emit == nil {
		return nil
	}
	return g.emit(ev)
}

// endTokens lists the tokens that end a text.
func (m *Model) endTokens() []int32 {
	var ids []int32
	for id := range int32(m.Tok.VocabSize()) {
		if m.Tok.IsEOG(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// holdback turns tokens into text and keeps back what may be the beginning of a stop string, or of a character.
type holdback struct {
	dec   *tokenizer.Decoder
	stop  []string
	most  int    // bytes of the longest stop string
	all   []byte // text so far, complete characters
	shown int    // bytes of all that were given out
	ended bool   // by a stop string

	split   *splitter // nil: all is answer
	thought int       // bytes of its reasoning that were given out
	part    []byte    // of a token, on its way to split
}

func newHoldback(dec *tokenizer.Decoder, stop []string) *holdback {
	h := &holdback{dec: dec, stop: stop, all: make([]byte, 0, 4096)}
	for _, s := range stop {
		h.most = max(h.most, len(s))
	}
	return h
}

// add takes the next token and returns what can be shown, and the index of the stop string that is complete now, or -1: the one that
// begins first, and of those the one that is listed first. It and what follows are not shown.
func (h *holdback) add(id int32) (text []byte, stop int) {
	from := max(len(h.all)-h.most+1, h.shown) // a new match ends in the new bytes
	if h.split == nil {
		h.all = h.dec.AppendBytes(h.all, id)
	} else if c, ok := h.split.r.controls[id]; ok {
		h.all = h.split.feed(h.all, c)
	} else {
		h.part = h.dec.AppendBytes(h.part[:0], id)
		h.all = h.split.feed(h.all, h.part)
	}
	end, stop := len(h.all), -1
	for i, s := range h.stop {
		if s == "" {
			continue
		}
		if at := bytes.Index(h.all[from:], []byte(s)); at >= 0 && from+at < end {
			end, stop = from+at, i
		}
	}
	if stop >= 0 {
		h.ended = true
	} else {
		end -= h.pending()
	}
	text = h.all[h.shown:end]
	h.shown = end
	return text, stop
}

// thoughts is the reasoning that was not given out yet.
func (h *holdback) thoughts() []byte {
	if h.split == nil {
		return nil
	}
	b := h.split.think[h.thought:]
	h.thought = len(h.split.think)
	return b
}

// pending is the length of the longest end of the hidden text that begins a stop string.
func (h *holdback) pending() int {
	hidden := h.all[h.shown:]
	for n := min(h.most-1, len(hidden)); n > 0; n-- {
		for _, s := range h.stop {
			if n < len(s) && string(hidden[len(hidden)-n:]) == s[:n] {
				return n
			}
		}
	}
	return 0
}

// flush returns what was held back, at the end.
func (h *holdback) flush() []byte {
	if h.ended {
		return nil
	}
	if h.split == nil {
		h.all = h.dec.FlushBytes(h.all)
	} else {
		h.all = h.split.flush(h.split.feed(h.all, h.dec.FlushBytes(nil)))
	}
	text := h.all[h.shown:]
	h.shown = len(h.all)
	return text
}
