package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/facts"
	"ck/internal/inspect"
	"ck/internal/plaintext"
)

// tokensOptions are the flags of "tokens".
type tokensOptions struct {
	all, text bool
}

const tokensLong = `Looks into the vocabulary of a model. Without words it says how many tokens there are of each type and lists the special ones; each word is looked up: a number as an id, a text as a token, or as the tokens that it is cut into.

  ckinspect tokens model.gguf
  ckinspect tokens model.gguf 13 "Once upon"
  ckinspect tokens model.gguf --all --jsonl | jq -r .text`

func (p *program) tokensCommand() {
	o := &p.tokens
	c := p.app.NewCommand("tokens [flags] MODEL [ID|TEXT...]", "list and look up the vocabulary", tokensLong, p.runTokens)
	g := cli.NewGroup(c.Flags(), "Result")
	g.Bool(&o.all, "all", "", "list every token")
	g.Bool(&o.text, "text", "", "words are texts, numbers too")
}

// runTokens is ckinspect tokens.
func (p *program) runTokens(_ *cobra.Command, args []string) error {
	o := &p.tokens
	var words []string
	if p.app.Common.Model != "" {
		words, args = args, nil
	} else if len(args) > 1 {
		words, args = args[1:], args[:1]
	}
	if o.all && len(words) > 0 {
		return cli.Usage("--all: lists every token; leave the words out")
	}
	m, err := p.openModel("tokens", args)
	if err != nil {
		return err
	}
	defer m.Close()
	v, err := facts.VocabularyOf(m.KV)
	if err != nil {
		return cli.Input("%s: %w", m.Path, err)
	}
	if v.Why != nil {
		p.app.Warn("texts cannot be cut: %v", v.Why)
	}
	list, err := chosenTokens(v, words, o)
	if e := (*facts.LookupError)(nil); errors.As(err, &e) {
		return cli.Usage("%w", err)
	}
	if err != nil {
		return cli.Input("%w", err)
	}
	return p.printTokens(m, v, list, len(words) == 0 && !o.all)
}

// chosenTokens are all, those that words name, or the special ones.
func chosenTokens(v *facts.Vocabulary, words []string, o *tokensOptions) (list []facts.Token, err error) {
	for _, w := range words {
		found, err := v.Lookup(w, o.text)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	if len(words) > 0 {
		return list, nil
	}
	for id := range int32(v.Len()) {
		if t := v.Token(id); o.all || t.Type != "normal" && t.Type != "byte" && t.Type != "unused" {
			list = append(list, t)
		}
	}
	return list, nil
}

func (p *program) printTokens(m *inspect.Model, v *facts.Vocabulary, list []facts.Token, overview bool) error {
	c := &p.app.Common
	counts := map[string]int{}
	for id := range int32(v.Len()) {
		counts[v.Token(id).Type]++
	}
	switch {
	case c.JSONL:
		return cli.PrintLines(p.app, "ck.inspect.token/1", list)
	case c.JSON:
		return p.app.PrintJSON(struct {
			Schema string         `json:"schema"`
			Model  string         `json:"model"`
			Count  int            `json:"count"`
			Types  map[string]int `json:"types"`
			Tokens []facts.Token  `json:"tokens"`
		}{"ck.inspect.tokens/1", m.Path, v.Len(), counts, append([]facts.Token{}, list...)})
	}
	if overview {
		t := plaintext.Table{Head: []string{"type", "tokens"}, Right: []bool{false, true}}
		for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
			return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
		}) {
			t.Rows = append(t.Rows, []string{k, fmt.Sprint(counts[k])})
		}
		if err := t.Write(p.app.Out, c.Plain); err != nil {
			return cli.OutError(err)
		}
		if len(list) > 0 && !c.Plain {
			fmt.Fprintln(p.app.Text())
		}
	}
	if len(list) > 0 {
		t := plaintext.Table{Head: []string{"id", "type", "piece", "text"}, Right: []bool{true, false, false, false}}
		for _, x := range list {
			t.Rows = append(t.Rows, []string{fmt.Sprint(x.ID), x.Type, x.Piece, fmt.Sprintf("%q", x.Text)})
		}
		if err := t.Write(p.app.Out, c.Plain); err != nil {
			return cli.OutError(err)
		}
	}
	p.app.Note("%d tokens, %d shown", v.Len(), len(list))
	return nil
}
