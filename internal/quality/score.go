package quality

import (
	"context"
	"fmt"
	"slices"

	"ck/internal/tokenizer"
)

// Question is an item as ids.
type Question struct {
	item    *Item
	context []int32   // that all choices have in common
	choices [][]int32 // what follows it, for each choice
	logs    []float64 // what the model gives each choice
	seq     int
}

// Scorer evaluates questions, many in a walk.
type Scorer struct {
	Model  Model
	Tok    *tokenizer.Tokenizer
	UBatch int    // rows of a walk at most
	Limit  int    // positions that the model was trained for, 0: unknown
	Name   string // of the file of questions, for errors
	Walked int    // rows so far

	batch Rows
	rows  []scoreRow
}

// scoreRow is a row that waits for its walk; take gets its logits, if it is not nil.
type scoreRow struct {
	id, pos int32
	seq     int
	take    func(logits []float32) error
}

// Prepare turns items into ids. Errors are *InputError and name the line.
func (s *Scorer) Prepare(items []Item) ([]Question, error) {
	out := make([]Question, len(items))
	for i := range items {
		q, err := s.encode(&items[i])
		if err != nil {
			return nil, &InputError{fmt.Errorf("%s:%d: %w", s.Name, items[i].Line, err)}
		}
		out[i] = q
	}
	return out, nil
}

// encode cuts a question and each choice behind it as one text. Words may be cut across the seam, so the context that
// is evaluated once ends where the ids of a choice first differ from those of the question alone.
func (s *Scorer) encode(item *Item) (Question, error) {
	q := Question{item: item, logs: make([]float64, len(item.Choices))}
	before := s.Tok.Encode(nil, "", tokenizer.EncodeOptions{AddSpecial: true})
	if s.Tok.AddEOS() {
		before = before[:len(before)-1]
	}
	alone := s.Tok.Encode(slices.Clone(before), item.Context, tokenizer.EncodeOptions{})
	common := len(alone)
	for _, c := range item.Choices {
		ids := s.Tok.Encode(slices.Clone(before), item.Context+seam(item.Context, c)+c, tokenizer.EncodeOptions{})
		same := 0
		for same < min(common, len(ids)) && ids[same] == alone[same] {
			same++
		}
		common = same
		q.choices = append(q.choices, ids)
	}
	q.context = alone[:common]
	for i, ids := range q.choices {
		if len(ids) == common {
			return q, fmt.Errorf("choice %d adds no token to the question; give it a text of its own", i)
		}
		if n := len(ids) - 1; s.Limit > 0 && n > s.Limit {
			return q, fmt.Errorf("choice %d makes %d tokens, the model's context is %d; shorten the question", i, n,
				s.Limit)
		}
		if id := slices.Max(ids); int(id) >= s.Model.Vocab() {
			return q, fmt.Errorf("choice %d has token %d, the model's vocabulary %d; use the tokenizer of this model",
				i, id, s.Model.Vocab())
		}
		q.choices[i] = ids[common:]
	}
	if common == 0 { // the first token needs something to stand behind
		id, ok := s.Tok.BOS()
		if !ok {
			id, ok = s.Tok.EOS()
		}
		if !ok {
			return q, fmt.Errorf("the question is empty and the model has no BOS to begin with; write a question")
		}
		q.context = []int32{id}
	}
	return q, nil
}

// seam is what stands between question and choice: a space, unless there is white space already, or no question.
func seam(context, choice string) string {
	const white = " \t\n\r"
	if context == "" || slices.Contains([]byte(white), context[len(context)-1]) || slices.Contains([]byte(white),
		choice[0]) {
		return ""
	}
	return " "
}

// groupQuestions bounds a group: each question has pages of keys and values of its own.
const groupQuestions = 16

// Score evaluates all questions; at is told how many are done. Those that fit into one walk together are a group:
// their contexts are evaluated in it, then their first choices in the next one, behind the contexts' keys and values,
// which stay for the second ones, and so on.
func (s *Scorer) Score(ctx context.Context, questions []Question, at func(int64)) ([]Scored, error) {
	for done := 0; done < len(questions); {
		n, rows := 0, 0
		for _, q := range questions[done:] {
			if rows += len(q.context); n == groupQuestions || n > 0 && rows > s.UBatch {
				break
			}
			n++
		}
		if err := s.group(ctx, questions[done:done+n]); err != nil {
			return nil, err
		}
		done += n
		at(int64(done))
	}
	list := make([]Scored, len(questions))
	for i, q := range questions {
		x := Scored{Answer: q.item.Answer, LogProbs: q.logs}
		for j, ids := range q.choices {
			x.Tokens, x.Bytes = append(x.Tokens, len(ids)), append(x.Bytes, len(q.item.Choices[j]))
		}
		list[i] = x
	}
	return list, nil
}

// group evaluates questions side by side.
func (s *Scorer) group(ctx context.Context, questions []Question) error {
	most := 0
	for i := range questions {
		q := &questions[i]
		q.seq = s.Model.NewSeq()
		defer s.Model.Drop(q.seq)
		most = max(most, len(q.choices))
		longest := 0
		for _, ids := range q.choices {
			longest = max(longest, len(ids))
		}
		s.Model.Expect(q.seq, len(q.context)+longest)
		last := len(q.context) - 1
		// the context's last row judges the first token of every choice
		s.add(q.seq, 0, q.context, func(i int, logits []float32) error {
			if i < last {
				return nil
			}
			for j, ids := range q.choices {
				if err := s.count(q, j, logits, ids[0]); err != nil {
					return err
				}
			}
			return nil
		}, last)
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	for j := range most {
		for i := range questions {
			q := &questions[i]
			if j >= len(q.choices) {
				continue
			}
			ids := q.choices[j]
			s.add(q.seq, len(q.context), ids[:len(ids)-1], func(i int, logits []float32) error {
				return s.count(q, j,
					logits, ids[i+1])
			}, 0)
		}
		if err := s.flush(ctx); err != nil {
			return err
		}
		for i := range questions {
			s.Model.Truncate(questions[i].seq, len(questions[i].context))
		}
	}
	return nil
}

// count adds a token's log probability to a choice.
func (s *Scorer) count(q *Question, choice int, logits []float32, id int32) error {
	p, err := LogProbs(logits, id)
	if err != nil {
		return &InputError{fmt.Errorf("%s:%d: choice %d: %w; check the model", s.Name, q.item.Line, choice, err)}
	}
	q.logs[choice] += p[0]
	return nil
}

// add queues rows of a sequence from a position on; take gets the index and the logits of those from the index on.
func (s *Scorer) add(seq, pos int, ids []int32, take func(i int, logits []float32) error, from int) {
	for i, id := range ids {
		r := scoreRow{id: id, pos: int32(pos + i), seq: seq}
		if i >= from {
			r.take = func(logits []float32) error { return take(i, logits) }
		}
		s.rows = append(s.rows, r)
	}
}

// flush evaluates the queued rows, as many in a walk as allowed.
func (s *Scorer) flush(ctx context.Context) error {
	rows := s.rows
	s.rows = s.rows[:0]
	for len(rows) > 0 {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		part := rows[:min(len(rows), s.UBatch)]
		rows = rows[len(part):]
		b := &s.batch
		b.IDs, b.Pos, b.Seq, b.Pick = b.IDs[:0], b.Pos[:0], b.Seq[:0], b.Pick[:0]
		for i, r := range part {
			b.IDs, b.Pos, b.Seq = append(b.IDs, r.id), append(b.Pos, r.pos), append(b.Seq, r.seq)
			if r.take != nil {
				b.Pick = append(b.Pick, int32(i))
			}
		}
		s.Walked += len(part)
		if err := s.Model.Walk(ctx, b, func(row int,
			logits []float32) error {
			return part[row].take(logits)
		}); err != nil {
			return err
		}
	}
	return nil
}

// ChoicesReport is the scores of questions as a document, schema ck.bench.choices/1.
type ChoicesReport struct {
	Schema string         `json:"schema"`
	Model  string         `json:"model"`
	Base   string         `json:"base,omitempty"`
	Items  int            `json:"questions"`
	Chance float64        `json:"chance"`
	Acc    Proportion     `json:"acc"`
	Norm   Proportion     `json:"acc_norm"`
	Token  Proportion     `json:"acc_token"`
	Paired *ChoicesPaired `json:"paired,omitempty"`
}

// ChoicesPaired compares with the base, by each score.
type ChoicesPaired struct {
	Acc   Paired `json:"acc"`
	Norm  Paired `json:"acc_norm"`
	Token Paired `json:"acc_token"`
}

// ScoredBase is the answers of another model to the same questions.
type ScoredBase struct {
	Head ScoredHead
	List []Scored
}

// ReportChoices sums up what a model gave questions, beside a base unless nil.
func ReportChoices(model string, list []Scored, base *ScoredBase) ChoicesReport {
	r := ChoicesReport{Schema: "ck.bench.choices/1", Model: model, Items: len(list), Chance: Chance(list),
		Acc: Accuracy(list, ScoreSum), Norm: Accuracy(list, ScoreBytes), Token: Accuracy(list, ScoreTokens)}
	if base != nil {
		r.Base = base.Head.Model
		r.Paired = &ChoicesPaired{Compare(base.List, list, ScoreSum), Compare(base.List, list, ScoreBytes),
			Compare(base.List, list, ScoreTokens)}
	}
	return r
}
