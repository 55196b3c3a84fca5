package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/measure"
	"ck/internal/tokenizer"
	"ck/internal/walk"
)

const choicesLong = `

--choices scores multiple-choice questions, a JSON object a line: {"question": "…", "choices": ["…", "…"], "answer": 0}. "context" may stand for "question"; the answer is an index from 0, or a letter. The text is taken as it is, with a space before a choice where neither side brings white space; a choice's score is the sum of the log probabilities of its tokens. Accuracy (acc) is the share of questions whose answer has the best score, acc_norm that with the best score per byte of the choice (lm-evaluation-harness counts characters, which are the same in ASCII), acc_token per token, each with Wilson's interval of 95 %; chance is what guessing reaches. --save keeps the scores, --base compares with them: questions that only the base answers (lost), that only this model answers (gained), and the p of McNemar's exact test, the probability that chance alone would part them so clearly.

  ckbench quality -m bf16.gguf --choices arc.jsonl --save arc.base
  ckbench quality -m q4.gguf --choices arc.jsonl --base arc.base`

// question is an item as ids.
type question struct {
	item    *measure.Item
	context []int32   // that all choices have in common
	choices [][]int32 // what follows it, for each choice
	logs    []float64 // what the model gives each choice
	seq     int
}

// scoring evaluates questions.
type scoring struct {
	ctx    context.Context
	e      *engine.Engine
	tok    *tokenizer.Tokenizer
	ubatch int    // rows of a walk
	limit  int    // positions that the model was trained for, 0: unknown
	name   string // of the file of questions, for errors
	rows   []scoreRow
	batch  walk.Batch
	walked int // rows so far
}

// scoreRow is a row that waits for its walk; take gets its logits, if it is not nil.
type scoreRow struct {
	id, pos int32
	seq     int
	take    func(logits []float32) error
}

// runChoices is ckbench quality --choices.
func (p *program) runChoices(ctx context.Context, m *generate.Model, e *engine.Engine, items []measure.Item) error {
	o := &p.quality
	facts, err := factsOf(m)
	if err != nil {
		return err
	}
	head := measure.ScoredHead{Model: facts.typ, ModelHash: facts.hash, Items: measure.HashItems(items)}
	var base *scoredBase
	if o.base != "" {
		if base, err = readScoredBase(o.base, head.Items, len(items)); err != nil {
			return err
		}
	}
	var out *cli.File
	if o.save != "" {
		if out, err = p.app.Create(o.save, o.force); err != nil {
			return err
		}
		defer out.Abort()
	}
	s := &scoring{ctx: ctx, e: e, tok: m.Tok, ubatch: o.ubatch, limit: m.Context, name: o.itemsName()}
	questions, err := s.prepare(items)
	if err != nil {
		return err
	}
	if text := m.LostText(); text != "" {
		p.app.Warn("%s: %s", s.name, text)
	}
	bar := p.app.NewProgress("scoring", "questions", int64(len(items)))
	list, err := s.score(questions, bar.At)
	bar.Done()
	if err != nil {
		return err
	}
	if out != nil {
		if err := measure.WriteScored(out, head, list); err != nil {
			return err
		}
		if err := out.Commit(); err != nil {
			return err
		}
	}
	p.app.Info("%d rows were evaluated for %d questions", s.walked, len(list))
	return p.reportChoices(facts.typ, base, list)
}

// checkChoices looks at the flags that only one of the two kinds of evaluation has.
func (p *program) checkChoices() error {
	o := &p.quality
	if o.choices == "" {
		if p.app.Given("questions") || p.app.Given("min-accuracy") {
			return cli.Usage("--questions, --min-accuracy: are for --choices; name the file of questions")
		}
		return nil
	}
	for _, f := range []string{"file", "ctx-size", "blocks", "max-kld", "max-ppl"} {
		if p.app.Given(f) {
			return cli.Usage("--%s: is for texts; leave it out with --choices", f)
		}
	}
	if o.minAccuracy == "" {
		return nil
	}
	var err error
	o.leastAccuracy, err = parseShare("--min-accuracy", o.minAccuracy)
	return err
}

// itemsName is how errors name the file of questions.
func (o *qualityOptions) itemsName() string {
	if o.choices == "-" {
		return "stdin"
	}
	return o.choices
}

// readItems reads the questions of --choices; "-" is stdin.
func (p *program) readItems() ([]measure.Item, error) {
	o := &p.quality
	in := io.Reader(p.app.In)
	if o.choices != "-" {
		f, err := os.Open(o.choices)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	items, err := measure.ReadItems(o.itemsName(), in, o.questions)
	if err != nil {
		return nil, cli.Input("%w", err)
	}
	return items, nil
}

// scoredBase is a base with its answers.
type scoredBase struct {
	head measure.ScoredHead
	list []measure.Scored
}

func readScoredBase(name, items string, count int) (*scoredBase, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := &scoredBase{}
	if b.head, b.list, err = measure.ReadScored(f); err != nil {
		return nil, cli.Input("%s: %w; write it again with --save", name, err)
	}
	if b.head.Items != items || len(b.list) != count {
		return nil, cli.Input("%s: was made from other questions (%d; here %d); give the same --choices and --questions", name, len(b.list), count)
	}
	return b, nil
}

// prepare turns items into ids.
func (s *scoring) prepare(items []measure.Item) ([]question, error) {
	out := make([]question, len(items))
	for i := range items {
		q, err := s.encode(&items[i])
		if err != nil {
			return nil, cli.Input("%s:%d: %w", s.name, items[i].Line, err)
		}
		out[i] = q
	}
	return out, nil
}

// encode cuts a question and each choice behind it as one text. Words may be cut across the seam, so the context that is evaluated
// once ends where the ids of a choice first differ from those of the question alone.
func (s *scoring) encode(item *measure.Item) (question, error) {
	q := question{item: item, logs: make([]float64, len(item.Choices))}
	before := s.tok.Encode(nil, "", tokenizer.EncodeOptions{AddSpecial: true})
	if s.tok.AddEOS() {
		before = before[:len(before)-1]
	}
	alone := s.tok.Encode(slices.Clone(before), item.Context, tokenizer.EncodeOptions{})
	common := len(alone)
	for _, c := range item.Choices {
		ids := s.tok.Encode(slices.Clone(before), item.Context+seam(item.Context, c)+c, tokenizer.EncodeOptions{})
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
		if n := len(ids) - 1; s.limit > 0 && n > s.limit {
			return q, fmt.Errorf("choice %d makes %d tokens, the model's context is %d; shorten the question", i, n, s.limit)
		}
		if id := slices.Max(ids); int(id) >= s.e.Graph.Vocab {
			return q, fmt.Errorf("choice %d has token %d, the model's vocabulary %d; use the tokenizer of this model", i, id, s.e.Graph.Vocab)
		}
		q.choices[i] = ids[common:]
	}
	if common == 0 { // the first token needs something to stand behind
		id, ok := s.tok.BOS()
		if !ok {
			id, ok = s.tok.EOS()
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
	if context == "" || slices.Contains([]byte(white), context[len(context)-1]) || slices.Contains([]byte(white), choice[0]) {
		return ""
	}
	return " "
}

// groupQuestions bounds a group: each question has pages of keys and values of its own.
const groupQuestions = 16

// score evaluates all questions. Those that fit into one walk together are a group: their contexts are evaluated in it, then their first
// choices in the next one, behind the contexts' keys and values, which stay for the second ones, and so on.
func (s *scoring) score(questions []question, at func(int64)) ([]measure.Scored, error) {
	defer s.e.Hold()()
	for done := 0; done < len(questions); {
		n, rows := 0, 0
		for _, q := range questions[done:] {
			if rows += len(q.context); n == groupQuestions || n > 0 && rows > s.ubatch {
				break
			}
			n++
		}
		if err := s.group(questions[done : done+n]); err != nil {
			return nil, err
		}
		done += n
		at(int64(done))
	}
	list := make([]measure.Scored, len(questions))
	for i, q := range questions {
		x := measure.Scored{Answer: q.item.Answer, LogProbs: q.logs}
		for j, ids := range q.choices {
			x.Tokens, x.Bytes = append(x.Tokens, len(ids)), append(x.Bytes, len(q.item.Choices[j]))
		}
		list[i] = x
	}
	return list, nil
}

// group evaluates questions side by side.
func (s *scoring) group(questions []question) error {
	most := 0
	for i := range questions {
		q := &questions[i]
		q.seq = s.e.NewSeq()
		defer s.e.Drop(q.seq)
		most = max(most, len(q.choices))
		last := len(q.context) - 1
		s.add(q.seq, 0, q.context, func(i int, logits []float32) error { // the context's last row judges the first token of every choice
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
	if err := s.flush(); err != nil {
		return err
	}
	for j := range most {
		for i := range questions {
			q := &questions[i]
			if j >= len(q.choices) {
				continue
			}
			ids := q.choices[j]
			s.add(q.seq, len(q.context), ids[:len(ids)-1], func(i int, logits []float32) error { return s.count(q, j, logits, ids[i+1]) }, 0)
		}
		if err := s.flush(); err != nil {
			return err
		}
		for i := range questions {
			s.e.Truncate(questions[i].seq, len(questions[i].context))
		}
	}
	return nil
}

// count adds a token's log probability to a choice.
func (s *scoring) count(q *question, choice int, logits []float32, id int32) error {
	p, err := measure.LogProbs(logits, id)
	if err != nil {
		return cli.Input("%s:%d: choice %d: %w; check the model", s.name, q.item.Line, choice, err)
	}
	q.logs[choice] += p[0]
	return nil
}

// add queues rows of a sequence from a position on; take gets the index and the logits of those from the index on.
func (s *scoring) add(seq, pos int, ids []int32, take func(i int, logits []float32) error, from int) {
	for i, id := range ids {
		r := scoreRow{id: id, pos: int32(pos + i), seq: seq}
		if i >= from {
			r.take = func(logits []float32) error { return take(i, logits) }
		}
		s.rows = append(s.rows, r)
	}
}

// flush evaluates the queued rows, as many in a walk as allowed.
func (s *scoring) flush() error {
	rows := s.rows
	s.rows = s.rows[:0]
	for len(rows) > 0 {
		if err := s.ctx.Err(); err != nil {
			return context.Cause(s.ctx)
		}
		part := rows[:min(len(rows), s.ubatch)]
		rows = rows[len(part):]
		b := &s.batch
		b.IDs, b.Pos, b.Seq, b.Pick = b.IDs[:0], b.Pos[:0], b.Seq[:0], b.Pick[:0]
		for i, r := range part {
			b.IDs, b.Pos, b.Seq = append(b.IDs, r.id), append(b.Pos, r.pos), append(b.Seq, r.seq)
			if r.take != nil {
				b.Pick = append(b.Pick, int32(i))
			}
		}
		w, err := s.e.Walk(s.ctx, b)
		if err != nil {
			return err
		}
		s.walked += len(part)
		for i, row := range b.Pick {
			if err := part[row].take(w.Logits(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// choicesResult is what quality --choices --json prints.
type choicesResult struct {
	Schema string             `json:"schema"`
	Model  string             `json:"model"`
	Base   string             `json:"base,omitempty"`
	Items  int                `json:"questions"`
	Chance float64            `json:"chance"`
	Acc    measure.Proportion `json:"acc"`
	Norm   measure.Proportion `json:"acc_norm"`
	Token  measure.Proportion `json:"acc_token"`
	Paired *choicesPaired     `json:"paired,omitempty"`
}

// choicesPaired compares with the base, by each score.
type choicesPaired struct {
	Acc   measure.Paired `json:"acc"`
	Norm  measure.Paired `json:"acc_norm"`
	Token measure.Paired `json:"acc_token"`
}

// reportChoices prints the result and checks the bound.
func (p *program) reportChoices(model string, base *scoredBase, list []measure.Scored) error {
	r := choicesResult{Schema: "ck.bench.choices/1", Model: model, Items: len(list), Chance: measure.Chance(list),
		Acc: measure.Accuracy(list, measure.ScoreSum), Norm: measure.Accuracy(list, measure.ScoreBytes), Token: measure.Accuracy(list, measure.ScoreTokens)}
	if base != nil {
		r.Base = base.head.Model
		r.Paired = &choicesPaired{measure.Compare(base.list, list, measure.ScoreSum), measure.Compare(base.list, list, measure.ScoreBytes),
			measure.Compare(base.list, list, measure.ScoreTokens)}
	}
	if err := p.printChoices(r); err != nil {
		return err
	}
	if least := p.quality.leastAccuracy; r.Acc.Value < least {
		return cli.Check("accuracy: %.2f %% is below the bound of %g %%; choose a finer type or a better model", 100*r.Acc.Value, 100*least)
	}
	return nil
}

func (p *program) printChoices(r choicesResult) error {
	if p.app.Common.JSON {
		return p.app.PrintJSON(r)
	}
	t := cli.Table{Head: []string{"quantity", "value", "95 % from", "to"}, Right: []bool{false, true, true, true}}
	if r.Paired != nil {
		t.Head, t.Right = append(t.Head, "base", "lost", "gained", "p"), append(t.Right, true, true, true, true)
	}
	share := func(x float64) string { return fmt.Sprintf("%.2f", 100*x) }
	for i, a := range []measure.Proportion{r.Acc, r.Norm, r.Token} {
		row := []string{[]string{"acc (%)", "acc_norm (%)", "acc_token (%)"}[i], share(a.Value), share(a.Lo), share(a.Hi)}
		if r.Paired != nil {
			b := []measure.Paired{r.Paired.Acc, r.Paired.Norm, r.Paired.Token}[i]
			row = append(row, share(b.Base), fmt.Sprint(b.Lost), fmt.Sprint(b.Gained), fmt.Sprintf("%.3g", b.P))
		}
		t.Rows = append(t.Rows, row)
	}
	for _, row := range [][]string{{"chance (%)", share(r.Chance)}, {"questions", fmt.Sprint(r.Items)}} {
		t.Rows = append(t.Rows, append(row, make([]string, len(t.Head)-2)...))
	}
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}
