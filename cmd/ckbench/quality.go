package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/measure"
)

// qualityOptions are the flags of ckbench quality.
type qualityOptions struct {
	engineFlags
	file, base, save string
	force            bool
	block, blocks    int
	maxKLD, maxPPL   float64
	choices          string
	questions        int
	minAccuracy      string
	leastAccuracy    float64 // share that minAccuracy means
}

const qualityLong = `Evaluates a text in blocks of --ctx-size tokens, each with BOS in place of its first token where the model has one, and counts the second half of each block, as llama-perplexity does. The perplexity has an interval of 95 % over blocks.

--save keeps the most probable tokens of each position and the mass of the others in a file, about half a kilobyte for each; --base compares with such a file of another model with the same vocabulary, the unquantized one for example: the mean KL divergence from the base's distribution to this one in nats, how often the most probable token is the same, and the root mean square of the difference of the probabilities of the text's tokens.

  ckbench quality -m bf16.gguf -f text.txt --save text.base
  ckbench quality -m q4.gguf -f text.txt --base text.base --max-kld 0.05` + choicesLong

func (p *program) qualityCommand() {
	o := &p.quality
	c := p.app.NewCommand("quality [flags]", "perplexity, distance to a base, multiple choice", qualityLong, p.runQuality)
	g := cli.NewGroup(c.Flags(), "Text")
	g.Text(&o.file, "file", "f", "", "FILE", "the text; - is stdin")
	g.Int(&o.block, "ctx-size", "c", 512, 8, maxTokens, "N", "tokens of a block")
	g.Int(&o.blocks, "blocks", "", 0, 1, maxTokens, "N", "evaluate the first N blocks; default: all")
	g = cli.NewGroup(c.Flags(), "Multiple choice")
	g.Text(&o.choices, "choices", "", "", "FILE", "score these questions instead of a text, JSON lines; - is stdin")
	g.Int(&o.questions, "questions", "", 0, 1, maxTokens, "N", "score the first N questions; default: all")
	g.Text(&o.minAccuracy, "min-accuracy", "", "", "SHARE", "end with code 1 if the accuracy is below this, such as 60%")
	g = cli.NewGroup(c.Flags(), "Base")
	g.Text(&o.base, "base", "", "", "FILE", "compare with this base")
	g.Text(&o.save, "save", "", "", "FILE", "write a base of this model")
	g.Bool(&o.force, "force", "", "overwrite the file of --save")
	g.Float(&o.maxKLD, "max-kld", "", 0, 0, math.MaxFloat64, "X", "end with code 1 if the mean KL divergence is above this; 0: no bound")
	g.Float(&o.maxPPL, "max-ppl", "", 0, 0, math.MaxFloat64, "X", "end with code 1 if the perplexity is above this; 0: no bound")
	o.engineFlags.flags(c)
}

// maxText bounds the text.
const maxText = 1 << 30

func (p *program) readText(name string) (string, error) {
	in, where := io.Reader(p.app.In), "stdin"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in, where = f, name
	}
	b, err := io.ReadAll(io.LimitReader(in, maxText+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxText {
		return "", cli.Input("%s: has more than %d MiB; give a part of it", where, maxText>>20)
	}
	if !utf8.Valid(b) {
		return "", cli.Input("%s: is not UTF-8; convert the text, with iconv for example", where)
	}
	return string(b), nil
}

// qualityResult is what quality --json prints.
type qualityResult struct {
	Schema     string        `json:"schema"`
	Model      string        `json:"model"`
	Base       string        `json:"base,omitempty"`
	Blocks     int           `json:"blocks"`
	BlockSize  int           `json:"block_tokens"`
	Tokens     int           `json:"tokens"` // counted
	Perplexity measure.Mean  `json:"perplexity"`
	KLD        *measure.Mean `json:"kl_divergence,omitempty"`
	Agreement  *measure.Mean `json:"top1_agreement,omitempty"`
	RMSProb    *measure.Mean `json:"rms_probability_difference,omitempty"`
}

// runQuality is ckbench quality.
func (p *program) runQuality(c *cobra.Command, args []string) error {
	o := &p.quality
	threads, err := o.threadList()
	switch {
	case err != nil:
		return err
	case len(args) > 0:
		return cli.Usage("quality: takes no words; name the text with -f")
	case o.file == "" && o.choices == "":
		return cli.Usage("-f/--file: is needed: the text to evaluate; or --choices")
	case len(threads) != 1:
		return cli.Usage("-t/--threads: quality does not depend on it; name one number")
	case o.save == "-":
		return cli.Usage("--save: stdout has the table; name a file")
	case o.maxKLD > 0 && o.base == "":
		return cli.Usage("--max-kld: needs a --base to compare with")
	}
	if err := p.checkChoices(); err != nil {
		return err
	}
	var text string
	var items []measure.Item
	if o.choices != "" {
		items, err = p.readItems()
	} else {
		text, err = p.readText(o.file)
	}
	if err != nil {
		return err
	}
	m, err := generate.Open(p.app.Common.Model)
	if err != nil {
		return err
	}
	defer m.Close()
	e, err := engine.Open(m.Weights, p.engineOptions(&o.engineFlags, threads[0]))
	if err != nil {
		return err
	}
	defer e.Close()
	if o.choices != "" {
		return p.runChoices(c.Context(), m, e, items)
	}
	q := &evaluation{p: p, e: e, m: m}
	if err := q.prepare(text); err != nil {
		return err
	}
	defer q.close()
	if err := q.run(c); err != nil {
		return err
	}
	return q.report()
}

// evaluation is one run of quality.
type evaluation struct {
	p     *program
	e     *engine.Engine
	m     *generate.Model
	ids   []int32 // of whole blocks
	per   int     // tokens of a block
	facts modelFacts
	base  *measure.BaseReader
	from  *os.File
	out   *cli.File
	q     measure.Quality
}

// prepare cuts the text into blocks and opens the bases.
func (x *evaluation) prepare(text string) error {
	o := &x.p.quality
	var err error
	if x.ids, err = x.m.EncodePrompt(text, generate.Encoding{}); err != nil {
		return err
	}
	if s := x.m.LostText(); s != "" {
		x.p.app.Warn("%s: %s", o.file, s)
	}
	x.per = o.block
	n := len(x.ids) / x.per
	if n == 0 {
		return cli.Input("%s: has %d tokens, a block takes %d; give more text or a smaller --ctx-size", o.file, len(x.ids), x.per)
	}
	if o.blocks > 0 {
		n = min(n, o.blocks)
	}
	x.ids = x.ids[:n*x.per]
	if id, ok := x.m.Tok.BOS(); ok && x.m.Tok.AddBOS() {
		for b := range n { // in place of the block's first token, as llama-perplexity does
			x.ids[b*x.per] = id
		}
	}
	if x.facts, err = factsOf(x.m); err != nil {
		return err
	}
	head := measure.BaseHead{Model: x.facts.typ, ModelHash: x.facts.hash, Text: hashIDs(x.ids), Block: o.block, Vocab: x.e.Graph.Vocab,
		Top: min(measure.BaseTop, x.e.Graph.Vocab), Positions: n * x.counted()}
	if o.base != "" {
		if x.from, err = os.Open(o.base); err != nil {
			return err
		}
		if x.base, err = measure.NewBaseReader(x.from); err != nil {
			return cli.Input("%s: %w; write it again with --save", o.base, err)
		}
		if b := x.base.Head; b.Text != head.Text || b.Block != head.Block || b.Vocab != head.Vocab || b.Positions != head.Positions {
			return cli.Input("%s: was made from another text, with other tokens or in other blocks (%d positions in blocks of %d, vocabulary %d; here %d, %d, %d); "+
				"give the same -f, -c and --blocks, and a model with the same vocabulary", o.base, b.Positions, b.Block, b.Vocab, head.Positions, head.Block, head.Vocab)
		}
	}
	if o.save != "" {
		if x.out, err = x.p.app.Create(o.save, o.force); err != nil {
			return err
		}
		return measure.WriteBaseHead(x.out, head)
	}
	return nil
}

func (x *evaluation) close() {
	if x.from != nil {
		x.from.Close()
	}
	if x.out != nil {
		x.out.Abort()
	}
}

func hashIDs(ids []int32) string {
	h := sha256.New()
	for _, id := range ids {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// counted is the number of positions of a block that count: those of its second half that have a next token.
func (x *evaluation) counted() int { return x.per - x.half() - 1 }

// half is how many positions of a block only give context.
func (x *evaluation) half() int { return x.per / 2 }

// run evaluates all blocks.
func (x *evaluation) run(c *cobra.Command) error {
	blocks := len(x.ids) / x.per
	bar := x.p.app.NewProgress("evaluating", "tokens", int64(len(x.ids)))
	defer bar.Done()
	defer x.e.Hold()()
	for b := range blocks {
		ids := x.ids[b*x.per : (b+1)*x.per]
		half := x.half()
		seq := x.e.NewSeq()
		x.q.Block()
		err := x.e.Forward(c.Context(), seq, ids[:half], engine.None, none)
		if err == nil {
			err = x.e.Forward(c.Context(), seq, ids[half:len(ids)-1], engine.All, func(i int, logits []float32) error {
				return x.position(logits, ids[half+i+1])
			})
		}
		x.e.Drop(seq)
		if err != nil {
			return err
		}
		bar.At(int64((b + 1) * len(ids)))
	}
	return nil
}

// position takes the logits of a position.
func (x *evaluation) position(logits []float32, token int32) error {
	var base *measure.Position
	if x.base != nil {
		var err error
		if base, err = x.base.Next(); err != nil {
			return cli.Input("%s: %w; write it again with --save", x.p.quality.base, err)
		}
	}
	x.q.Add(logits, token, base)
	if x.out != nil {
		return measure.WritePosition(x.out, measure.At(logits, token, min(measure.BaseTop, len(logits))))
	}
	return nil
}

// report prints the result and checks the bounds.
func (x *evaluation) report() error {
	o := &x.p.quality
	r := qualityResult{Schema: "ck.bench.quality/1", Model: x.facts.typ, Blocks: len(x.ids) / x.per, BlockSize: o.block, Tokens: x.q.Tokens,
		Perplexity: x.q.Perplexity()}
	if x.base != nil {
		kld, _ := x.q.KLD()
		top, _ := x.q.Agreement()
		rms, _ := x.q.RMSProb()
		r.Base, r.KLD, r.Agreement, r.RMSProb = x.base.Head.Model, &kld, &top, &rms
	}
	if x.out != nil {
		if err := x.out.Commit(); err != nil {
			return err
		}
	}
	if err := x.print(r); err != nil {
		return err
	}
	switch {
	case o.maxPPL > 0 && !(r.Perplexity.Value <= o.maxPPL):
		return cli.Check("perplexity: %.4f is above the bound of %g; choose a finer type", r.Perplexity.Value, o.maxPPL)
	case o.maxKLD > 0 && !(r.KLD.Value <= o.maxKLD):
		return cli.Check("KL divergence: %.5f is above the bound of %g; choose a finer type", r.KLD.Value, o.maxKLD)
	}
	return nil
}

func (x *evaluation) print(r qualityResult) error {
	if x.p.app.Common.JSON {
		return x.p.app.PrintJSON(r)
	}
	t := cli.Table{Head: []string{"quantity", "value", "95 % from", "to"}, Right: []bool{false, true, true, true}}
	add := func(name string, m *measure.Mean, scale float64, digits int) {
		if m == nil {
			return
		}
		row := []string{name, fmt.Sprintf("%.*f", digits, scale*m.Value), "–", "–"}
		if r.Blocks > 1 {
			row[2], row[3] = fmt.Sprintf("%.*f", digits, scale*m.Lo), fmt.Sprintf("%.*f", digits, scale*m.Hi)
		}
		t.Rows = append(t.Rows, row)
	}
	add("perplexity", &r.Perplexity, 1, 4)
	add("KL divergence (nats)", r.KLD, 1, 6)
	add("same top token (%)", r.Agreement, 100, 2)
	add("RMS of probability difference (%)", r.RMSProb, 100, 3)
	t.Rows = append(t.Rows, []string{"tokens counted", fmt.Sprint(r.Tokens), "", ""})
	return cli.OutError(t.Write(x.p.app.Out, x.p.app.Common.Plain))
}
