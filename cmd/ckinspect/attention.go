package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/attention"
	"ck/internal/attention/format"
	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/graph"
	"ck/internal/plaintext"
	"ck/internal/quality"
	"ck/internal/quant"
	"ck/internal/tokenizer"
)

// attentionOptions are the flags of "attention".
type attentionOptions struct {
	text   string
	block  int
	blocks int
	dims   int
	drop   string
	pictureOptions
}

const attentionLong = `Runs a model over a text, in blocks of --ctx-size tokens, and looks at what its attention reads: how much of each row's weight the largest 1, 4, 16 and 64 keys have, how many weights are below 0.01, what the first position takes, how old the keys are that count. Of the hidden states it says how far each layer moves them, and what the model would say if it ended there: the share of tokens whose best token is decided, and the KL divergence from its own end.

Weights are computed in float64 from the queries and keys of the run, with a KV cache in float32; logits keep their bits. Heads count from the middle of a block on. How many weights are small depends on how many keys there are: the second table tells by length.

--drop runs the text again without the smallest weights of each row and says the perplexity.

  ckinspect attention model.gguf -f text.txt
  ckinspect attention model.gguf -f text.txt --drop 80,90,95 --png heads.png`

func (p *program) attentionCommand() {
	o := &p.attention
	c := p.app.NewCommand("attention [flags] MODEL", "where a model looks, and when it has decided", attentionLong, p.runAttention)
	g := cli.NewGroup(c.Flags(), "Text")
	g.Text(&o.text, "file", "f", "", "FILE", "the text; - is stdin")
	g.Int(&o.block, "ctx-size", "c", 512, 16, 1<<20, "N", "tokens of a block")
	g.Int(&o.blocks, "blocks", "", 4, 1, 1<<30, "N", "evaluate the first N blocks")
	g = cli.NewGroup(c.Flags(), "Result")
	g.Int(&o.dims, "dims", "", 64, 1, 1<<16, "N", "dimensions of a head that choose keys, for their recall")
	g.Text(&o.drop, "drop", "", "", "LIST", "shares of the weights to leave out, in percent: 80,90,95")
	p.pictureFlags(g, &o.pictureOptions)
}

// runAttention is ckinspect attention.
func (p *program) runAttention(c *cobra.Command, args []string) error {
	o := &p.attention
	path, ok := p.modelWord(args)
	switch {
	case !ok:
		return cli.Usage("attention: takes MODEL; see ckinspect attention --help")
	case o.text == "":
		return cli.Usage("-f/--file: is needed: the text that the model reads")
	}
	shares, err := dropShares(o.drop)
	if err != nil {
		return err
	}
	pictures, err := p.openPictures(&o.pictureOptions)
	if err != nil {
		return err
	}
	defer pictures.abort()
	m, text, err := p.modelAndText(path)
	if err != nil {
		return err
	}
	defer m.Close()
	r, dropped, err := p.lookAt(c.Context(), m, text, shares)
	if err != nil {
		return err
	}
	if err := pictures.draw(format.Picture(plaintext.Escape(m.Name), r).Draw); err != nil {
		return err
	}
	return p.printAttention(m, r, dropped)
}

// dropShares reads percentages.
func dropShares(list string) (shares []float64, err error) {
	for s := range strings.SplitSeq(list, ",") {
		if list == "" {
			break
		}
		x, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(s), "%"), 64)
		if err != nil || !(x > 0 && x < 100) {
			return nil, cli.Usage("--drop: %q is no share in percent, above 0 and below 100", s)
		}
		shares = append(shares, x/100)
	}
	return shares, nil
}

// modelAndText opens the model and cuts the text into its blocks.
func (p *program) modelAndText(path string) (*generate.Model, quality.Text, error) {
	o := &p.attention
	var text quality.Text
	s, err := p.app.ReadText(o.text)
	if err != nil {
		return nil, text, err
	}
	m, err := generate.Open(path)
	if err != nil {
		return nil, text, err
	}
	block := o.block
	if m.Context > 0 {
		block = min(block, m.Context)
	}
	ids := m.Tok.Encode(nil, s, tokenizer.EncodeOptions{AddSpecial: true})
	bos, ok := m.Tok.BOS()
	text = quality.Cut(ids, block, o.blocks, bos, ok && m.Tok.AddBOS())
	if text.Blocks() == 0 {
		m.Close()
		return nil, text, cli.Input("%s: the text has %d tokens, a block takes %d; give more text or a smaller --ctx-size", o.text, len(ids), block)
	}
	return m, text, nil
}

// openChanged opens an engine on a changed graph, with a cache in float32.
func (p *program) openChanged(m *generate.Model, text quality.Text, change func(*graph.Graph) error) (*engine.Engine, error) {
	opt := p.engineOptions()
	opt.KV, opt.KVSet, opt.Context, opt.Change = quant.F32, true, text.Block, change
	e, err := engine.Open(m.Weights, opt)
	if err != nil {
		return nil, err
	}
	for _, n := range e.Notes {
		p.app.Info("%s", n)
	}
	return e, nil
}

// lookAt gathers the report, and the perplexities without the smallest weights.
func (p *program) lookAt(ctx context.Context, m *generate.Model, text quality.Text, shares []float64) (*attention.Report, []attention.Dropped, error) {
	passes := 1
	if len(shares) > 0 {
		passes += 1 + len(shares)
	}
	bar := p.app.NewProgress("looking", "tokens", int64(passes*len(text.IDs)))
	defer bar.Done()
	done := int64(0)
	at := func(n int64) { bar.At(done + n) }
	var exits attention.Exits
	e, err := p.openChanged(m, text, exits.Add)
	if err != nil {
		return nil, nil, err
	}
	r, err := exits.Gather(ctx, e, text, attention.Options{Dims: p.attention.dims, At: at})
	e.Close()
	if err != nil || len(shares) == 0 {
		return r, nil, err
	}
	perplexity := func(change func(*graph.Graph) error) (float64, error) {
		done += int64(len(text.IDs))
		e, err := p.openChanged(m, text, change)
		if err != nil {
			return 0, err
		}
		defer e.Close()
		q, err := quality.Evaluate(ctx, quality.OfEngine(e), text, quality.Options{At: at})
		if err != nil {
			return 0, err
		}
		return q.Perplexity().Value, nil
	}
	base, err := perplexity(nil)
	if err != nil {
		return nil, nil, err
	}
	var list []attention.Dropped
	for _, s := range shares {
		x, err := perplexity(attention.Drop(s))
		if err != nil {
			return nil, nil, err
		}
		list = append(list, attention.Dropped{Share: s, Perplexity: x, Base: base})
	}
	return r, list, nil
}

// printAttention prints the report.
func (p *program) printAttention(m *generate.Model, r *attention.Report, dropped []attention.Dropped) error {
	c := &p.app.Common
	switch {
	case c.JSONL:
		return cli.PrintLines(p.app, "ck.inspect.attention.head/1", r.Heads)
	case c.JSON:
		return p.app.PrintJSON(struct {
			Schema string `json:"schema"`
			Model  string `json:"model"`
			*attention.Report
			Dropped []attention.Dropped `json:"dropped,omitempty"`
		}{"ck.inspect.attention/1", m.Name, r, dropped})
	}
	for i, s := range format.Sections(r, dropped, c.Verbose) {
		if !c.Plain {
			if i > 0 {
				fmt.Fprintln(p.app.Text())
			}
			if _, err := fmt.Fprintln(p.app.Text(), s.Title); err != nil {
				return cli.OutError(err)
			}
		}
		if err := s.Table.Write(p.app.Out, c.Plain); err != nil {
			return cli.OutError(err)
		}
	}
	if r.Recall != nil && !c.Plain {
		fmt.Fprintf(p.app.Text(), "\nThe first %d dimensions find %.1f %% of the %d largest weights.\n", r.Dims, 100**r.Recall, attention.RecallKeys)
	}
	p.app.Note("%s", format.Summary(r))
	return nil
}
