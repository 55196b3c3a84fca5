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
	"ck/internal/generate"
	"ck/internal/plaintext"
	"ck/internal/quality"
	"ck/internal/tokenizer"
)

// attentionOptions are the flags of "attention".
type attentionOptions struct {
	textOptions
	dims int
	drop string
	pictureOptions
}

// textOptions are the flags of the text that a model reads.
type textOptions struct {
	name   string
	block  int
	blocks int
}

func (p *program) textFlags(g cli.Group, o *textOptions) {
	g.Text(&o.name, "file", "f", "", "FILE", "the text; - is stdin")
	g.Int(&o.block, "ctx-size", "c", 512, 16, 1<<20, "N", "tokens of a block")
	g.Int(&o.blocks, "blocks", "", 4, 1, 1<<30, "N", "evaluate the first N blocks")
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
	p.textFlags(g, &o.textOptions)
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
	case o.name == "":
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
	words, err := p.app.ReadText(o.name)
	if err != nil {
		return err
	}
	m, text, err := modelAndText(path, words, &o.textOptions)
	if err != nil {
		return err
	}
	defer m.Close()
	r, dropped, err := p.lookAt(c.Context(), m, text, attention.Options{Dims: o.dims}, shares)
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
func modelAndText(path, words string, o *textOptions) (*generate.Model, quality.Text, error) {
	m, err := generate.Open(path)
	if err != nil {
		return nil, quality.Text{}, err
	}
	block := o.block
	if m.Context > 0 {
		block = min(block, m.Context)
	}
	ids := m.Tok.Encode(nil, words, tokenizer.EncodeOptions{AddSpecial: true})
	bos, ok := m.Tok.BOS()
	text := quality.Cut(ids, block, o.blocks, bos, ok && m.Tok.AddBOS())
	if text.Blocks() == 0 {
		m.Close()
		return nil, text, cli.Input("%s: the text has %d tokens, a block takes %d; give more text or a smaller --ctx-size", o.name, len(ids), block)
	}
	return m, text, nil
}

// lookAt gathers the report, and the perplexities without the smallest weights.
func (p *program) lookAt(ctx context.Context, m *generate.Model, text quality.Text, opt attention.Options, shares []float64) (*attention.Report, []attention.Dropped, error) {
	l := attention.Look{Engine: p.engineOptions(), Options: opt, Shares: shares, Note: func(line string) { p.app.Info("%s", line) }}
	bar := p.app.NewProgress("looking", "tokens", int64(l.Passes()*len(text.IDs)))
	defer bar.Done()
	l.At = bar.At
	return l.Of(ctx, m.Weights, text)
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
