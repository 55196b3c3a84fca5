package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ck/internal/generate"
	"ck/internal/tokenizer"
)

// encoder turns records into words. What it writes into stats, the set does not have yet.
type encoder struct {
	m     *generate.Model
	opt   *Options
	stats *Stats
}

func (e *encoder) encode(r record) ([]int32, error) {
	switch r.form {
	case document:
		return e.document(r.text)
	case completed:
		return e.completion(r.prompt, r.completion)
	}
	return e.conversation(r.messages)
}

// document is a text with what the vocabulary puts around one. It ends with EOS wherever there is such a token: also where prompts get none, for a
// document is whole.
func (e *encoder) document(text string) ([]int32, error) {
	ids, err := e.m.EncodePrompt(text, generate.Encoding{})
	if err != nil {
		return nil, err
	}
	ids = e.ended(ids)
	count(ids, 0, len(ids))
	return ids, nil
}

// ended is ids with EOS behind them, once.
func (e *encoder) ended(ids []int32) []int32 {
	if eos, ok := e.m.Tok.EOS(); ok && (len(ids) == 0 || ids[len(ids)-1] != eos) {
		ids = append(ids, eos)
	}
	return ids
}

// open is ids without the EOS that some vocabularies put behind every text.
func (e *encoder) open(ids []int32) []int32 {
	if eos, ok := e.m.Tok.EOS(); ok && e.m.Tok.AddEOS() && len(ids) > 0 && ids[len(ids)-1] == eos {
		ids = ids[:len(ids)-1]
	}
	return ids
}

// count marks the tokens of a span as ones that are to be predicted.
func count(ids []int32, from, to int) {
	for i := from; i < to; i++ {
		ids[i] = ^ids[i]
	}
}

// completion is a prompt, which does not count, and what follows it. Prompts come to the model alone: the tokens must begin with those of the
// prompt alone.
func (e *encoder) completion(prompt, text string) ([]int32, error) {
	asked, err := e.m.EncodePrompt(prompt, generate.Encoding{})
	if err != nil {
		return nil, err
	}
	whole, err := e.m.EncodePrompt(prompt+text, generate.Encoding{})
	if err != nil {
		return nil, err
	}
	asked, whole = e.open(asked), e.open(whole)
	if !begins(whole, asked) {
		rest := e.m.Tok.Encode(nil, text, tokenizer.EncodeOptions{})
		if got := e.m.Tok.Decode(nil, rest, tokenizer.DecodeOptions{Special: true}); string(got) != text {
			return nil, errors.New("a token would reach from the prompt into the completion; move the blanks that the prompt ends with to the completion")
		}
		whole = append(slices.Clip(asked), rest...)
		e.stats.Seams++
	}
	ids := e.ended(whole)
	count(ids, len(asked), len(ids))
	return ids, nil
}

// begins reports whether a begins with b.
func begins(a, b []int32) bool { return len(b) <= len(a) && slices.Equal(a[:len(b)], b) }

// A SpanError says why it cannot be told which tokens of a conversation are an answer.
type SpanError struct {
	Answer int // from 1 on
	Why    string
}

func (e *SpanError) Error() string {
	return fmt.Sprintf("answer %d: %s, so it cannot be told which tokens are the answer; use another template", e.Answer, e.Why)
}

// Two times that differ in all that a template can write of them.
var (
	someTime  = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	otherTime = time.Date(2012, 11, 22, 17, 38, 49, 0, time.UTC)
)

// render renders turns: as a question, or with the last one whole.
func (e *encoder) render(turns []generate.Message, whole bool, now time.Time) (generate.Rendering, error) {
	if !e.opt.Now.IsZero() {
		now = e.opt.Now
	}
	return e.m.Render(e.opt.Template, turns, generate.RenderOptions{Continue: whole, Now: now, Vars: e.opt.Vars})
}

// conversation is turns of which the answers count, up to the token that ends each. What stands behind the last answer is left out.
//
// Where answer i is follows from three renderings: of the turns before it, as the model is asked (q), of the turns up to it (a), of all (w). The
// text of q must begin that of a, and a's that of w; and so must their tokens, or a token reaches over a border. That the answer is what
// the span holds, unaltered, is shown by a fourth rendering; see unaltered.
func (e *encoder) conversation(turns []generate.Message) ([]int32, error) {
	if e.opt.Template == nil {
		return nil, errors.New("messages: the model has no chat template; name one with --template")
	}
	last := len(turns)
	for !isAnswer(turns[last-1].Role) {
		last--
	}
	turns = turns[:last]
	w, err := e.render(turns, true, someTime)
	if err != nil {
		return nil, err
	}
	if err := e.dateless(turns, w.Text); err != nil {
		return nil, err
	}
	ends, err := e.unaltered(turns, w.Text)
	if err != nil {
		return nil, err
	}
	ids, noEnd, answer := slices.Clone(w.IDs), 0, 0
	for i := range turns {
		if !isAnswer(turns[i].Role) {
			continue
		}
		answer++
		q, a, err := e.span(turns, i, w)
		if err != nil {
			return nil, err
		}
		why := ""
		switch end := ends[answer-1]; {
		case !strings.HasPrefix(a.Text, q.Text) || len(a.Text) == len(q.Text):
			why = "the template does not write it behind what it writes to ask for it"
		case !strings.HasPrefix(w.Text, a.Text):
			why = "the template writes earlier turns otherwise when more follow"
		case end <= len(q.Text) || end > len(a.Text):
			why = "the template writes it at another place"
		case !begins(w.IDs, q.IDs) || !begins(w.IDs, a.IDs) || len(q.IDs) == len(a.IDs):
			why = "a token reaches over its border"
		case blankBefore(q.Text, ends[answer-1]-len(turns[i].Content)):
			why = "the template strips it"
		}
		if why != "" {
			return nil, &SpanError{answer, why}
		}
		to, ended := e.answerEnd(w.IDs, len(q.IDs), len(a.IDs), a.Text[ends[answer-1]:])
		if !ended {
			noEnd++
		}
		count(ids, len(q.IDs), to)
	}
	e.stats.NoEnd += noEnd
	return ids, nil
}

// blankBefore reports whether an answer begins with blanks, at an offset, that the question q ends with: what was taken for its beginning is not.
// A question may end with the beginning of an answer itself (<think>).
func blankBefore(q string, at int) bool { return at < len(q) && strings.TrimSpace(q[at:]) == "" }

// span renders the turns before turn i, as a question, and those up to it; w are all.
func (e *encoder) span(turns []generate.Message, i int, w generate.Rendering) (q, a generate.Rendering, err error) {
	if q, err = e.render(turns[:i], false, someTime); err != nil || i == len(turns)-1 {
		return q, w, err
	}
	a, err = e.render(turns[:i+1], true, someTime)
	return q, a, err
}

// answerEnd is the end of the answer in a span: behind the first token of a generation's end that the template writes behind the answer, in its tail of
// the span, or directly behind the span. Ends before the tail are within the answer: of what it was reasoned with.
func (e *encoder) answerEnd(ids []int32, from, to int, tail string) (end int, ended bool) {
	end = to
	for i := to - 1; i >= from; i-- {
		if !e.m.Tok.IsEOG(ids[i]) {
			continue
		}
		at := strings.LastIndex(tail, e.m.Tok.Piece(ids[i]))
		if at < 0 {
			break
		}
		tail, end, ended = tail[:at], i+1, true
	}
	if !ended && to < len(ids) && e.m.Tok.IsEOG(ids[to]) {
		return to + 1, true
	}
	return end, ended
}

// dateless sees that a text does not depend on the day, unless the day is given: the tokens of a run would be others when it goes on.
func (e *encoder) dateless(turns []generate.Message, text string) error {
	if !e.opt.Now.IsZero() || !strings.Contains(e.opt.Template.Source(), "strftime_now") {
		return nil
	}
	other, err := e.render(turns, true, otherTime)
	if err != nil {
		return err
	}
	if other.Text != text {
		return errors.New("messages: the template writes the date of the day; give the day that it writes with --date")
	}
	return nil
}

// unaltered sees that a rendering holds answers and what they were reasoned with as they are. It renders once more, with a sign behind each: without
// the signs that text must be the same, and before each sign must stand what it was put behind. ends are where the answers end in text.
func (e *encoder) unaltered(turns []generate.Message, text string) (ends []int, err error) {
	sign := "⁂ck⁂"
	for strings.Contains(text, sign) || slices.ContainsFunc(turns, func(m generate.Message) bool {
		return strings.Contains(m.Content+"\x00"+m.Reasoning,
			sign)
	}) {
		sign += "ck⁂"
	}
	signed := slices.Clone(turns)
	for i := range signed {
		if m := &signed[i]; isAnswer(m.Role) {
			m.Content += sign
			if m.Reasoning != "" {
				m.Reasoning += sign
			}
		}
	}
	r, err := e.render(signed, true, someTime)
	if err != nil {
		return nil, err
	}
	pieces := strings.Split(r.Text, sign)
	at, k, answer := 0, 0, 0
	next := func(want string) bool { // the next sign stands behind want
		if k >= len(pieces)-1 {
			return false
		}
		at += len(pieces[k])
		k++
		return at <= len(text) && strings.HasSuffix(text[:at], want)
	}
	same := strings.Join(pieces, "") == text
	for _, m := range turns {
		if !isAnswer(m.Role) {
			continue
		}
		if answer++; m.Reasoning != "" && !next(m.Reasoning) {
			return nil, &SpanError{answer, "the template drops or alters what it was reasoned with"}
		}
		if !next(m.Content) {
			return nil, &SpanError{answer, "the template drops it, or parts of it, strips it or writes it otherwise"}
		}
		ends = append(ends, at)
	}
	if !same || k != len(pieces)-1 {
		return nil, &SpanError{answer, "the template strips answers or writes them otherwise, this one or one before it"}
	}
	return ends, nil
}

// builder puts examples into lists.
type builder struct {
	encoder
	train, val list
}

// add adds an example.
func (b *builder) add(r record, path string, at int) error {
	words, err := b.encode(r)
	if err != nil {
		return err
	}
	b.stats.Examples++
	to := &b.train
	if r.share() < b.opt.Val {
		to = &b.val
	}
	n, T := len(words), b.opt.Tokens
	switch words = trim(words); {
	case len(words) < 2:
		b.stats.NoTarget++
		return nil
	case len(words) > T && b.opt.TooLong == Refuse:
		b.stats.Refused++
		b.stats.bad(path, at, fmt.Errorf("has %d tokens, a slot %d", n, T))
		return nil
	case len(words) > T && r.form == document:
		b.stats.Split++
		for ; len(words) > T; words = words[T-1:] {
			to.add(words[:T])
		}
	case len(words) > T:
		if words = trim(words[:T]); len(words) < 2 {
			b.stats.NoTarget++
			return nil
		}
		b.stats.Cut++
	}
	to.add(words)
	to.examples++
	return nil
}

// trim is words without what no token to predict follows: it takes no part in anything. The first token of all does not count.
func trim(words []int32) []int32 {
	for len(words) > 1 && words[len(words)-1] >= 0 {
		words = words[:len(words)-1]
	}
	return words
}

// share is a number from 0 to below 1 that what the example says decides: the same on any day, in any file, for any model.
func (r *record) share() float64 {
	h := sha256.New()
	put := func(s string) { fmt.Fprintf(h, "%d %s", len(s), s) }
	fmt.Fprintf(h, "ck example 1 %d ", r.form)
	for _, s := range []string{r.text, r.prompt, r.completion} {
		put(s)
	}
	for _, m := range r.messages {
		put(m.Role)
		put(m.Content)
		put(m.Reasoning)
	}
	return float64(binary.LittleEndian.Uint64(h.Sum(nil))>>11) / (1 << 53)
}
