package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"ck/internal/bench"
	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/plaintext"
	"ck/internal/quality"
)

const choicesLong = `

--choices scores multiple-choice questions, a JSON object a line: {"question": "…", "choices": ["…", "…"], "answer": 0}. "context" may stand for "question"; the answer is an index from 0, or a letter. The text is taken as it is, with a space before a choice where neither side brings white space; a choice's score is the sum of the log probabilities of its tokens. Accuracy (acc) is the share of questions whose answer has the best score, acc_norm that with the best score per byte of the choice (lm-evaluation-harness counts characters, which are the same in ASCII), acc_token per token, each with Wilson's interval of 95 %; chance is what guessing reaches. --save keeps the scores, --base compares with them: questions that only the base answers (lost), that only this model answers (gained), and the p of McNemar's exact test, the probability that chance alone would part them so clearly.

  ckbench quality -m bf16.gguf --choices arc.jsonl --save arc.base
  ckbench quality -m q4.gguf --choices arc.jsonl --base arc.base`

// runChoices is ckbench quality --choices.
func (p *program) runChoices(ctx context.Context, m *generate.Model, e *engine.Engine, items []quality.Item) error {
	o := &p.quality
	facts, err := bench.FactsOf(m)
	if err != nil {
		return err
	}
	head := quality.ScoredHead{Model: facts.Type, ModelHash: facts.Hash, Items: quality.HashItems(items)}
	var base *quality.ScoredBase
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
	s := &quality.Scorer{Model: quality.OfEngine(e), Tok: m.Tok, UBatch: o.ubatch, Limit: m.Context, Name: o.itemsName()}
	questions, err := s.Prepare(items)
	if err != nil {
		return err
	}
	if text := m.LostText(); text != "" {
		p.app.Warn("%s: %s", s.Name, text)
	}
	bar := p.app.NewProgress("scoring", "questions", int64(len(items)))
	release := e.Hold()
	list, err := s.Score(ctx, questions, bar.At)
	release()
	bar.Done()
	if err != nil {
		return err
	}
	if out != nil {
		if err := quality.WriteScored(out, head, list); err != nil {
			return err
		}
		if err := out.Commit(); err != nil {
			return err
		}
	}
	p.app.Info("%d rows were evaluated for %d questions", s.Walked, len(list))
	return p.reportChoices(quality.ReportChoices(facts.Type, list, base))
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
func (p *program) readItems() ([]quality.Item, error) {
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
	items, err := quality.ReadItems(o.itemsName(), in, o.questions)
	if err != nil {
		return nil, cli.Input("%w", err)
	}
	return items, nil
}

func readScoredBase(name, items string, count int) (*quality.ScoredBase, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := &quality.ScoredBase{}
	if b.Head, b.List, err = quality.ReadScored(f); err != nil {
		return nil, cli.Input("%s: %w; write it again with --save", name, err)
	}
	if b.Head.Items != items || len(b.List) != count {
		return nil, cli.Input("%s: was made from other questions (%d; here %d); give the same --choices and --questions", name, len(b.List), count)
	}
	return b, nil
}

// reportChoices prints the result and checks the bound.
func (p *program) reportChoices(r quality.ChoicesReport) error {
	if err := p.printChoices(r); err != nil {
		return err
	}
	if least := p.quality.leastAccuracy; r.Acc.Value < least {
		return cli.Check("accuracy: %.2f %% is below the bound of %g %%; choose a finer type or a better model", 100*r.Acc.Value, 100*least)
	}
	return nil
}

func (p *program) printChoices(r quality.ChoicesReport) error {
	if p.app.Common.JSON {
		return p.app.PrintJSON(r)
	}
	t := plaintext.Table{Head: []string{"quantity", "value", "95 % from", "to"}, Right: []bool{false, true, true, true}}
	if r.Paired != nil {
		t.Head, t.Right = append(t.Head, "base", "lost", "gained", "p"), append(t.Right, true, true, true, true)
	}
	share := func(x float64) string { return fmt.Sprintf("%.2f", 100*x) }
	for i, a := range []quality.Proportion{r.Acc, r.Norm, r.Token} {
		row := []string{[]string{"acc (%)", "acc_norm (%)", "acc_token (%)"}[i], share(a.Value), share(a.Lo), share(a.Hi)}
		if r.Paired != nil {
			b := []quality.Paired{r.Paired.Acc, r.Paired.Norm, r.Paired.Token}[i]
			row = append(row, share(b.Base), fmt.Sprint(b.Lost), fmt.Sprint(b.Gained), fmt.Sprintf("%.3g", b.P))
		}
		t.Rows = append(t.Rows, row)
	}
	for _, row := range [][]string{{"chance (%)", share(r.Chance)}, {"questions", fmt.Sprint(r.Items)}} {
		t.Rows = append(t.Rows, append(row, make([]string, len(t.Head)-2)...))
	}
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}
