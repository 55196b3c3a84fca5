package main

import (
	"errors"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/output"
	"ck/internal/prompt"
	"ck/internal/tokenizer"
)

// tokenize prints the ids of a text.
func (p *program) tokenize(cmd *cobra.Command, words []string) error {
	m, err := p.openModel()
	if err != nil {
		return err
	}
	defer m.Close()
	p.yield(cmd, len(words) > 0)
	text, err := p.source(words, cmd.Flags().Changed("prompt")).Text(cmd.Context())
	if errors.Is(err, prompt.ErrNone) {
		if cli.IsTerminal(p.app.In) || p.o.noStdin {
			return cli.Usage("tokenize: there is no text; give words, -f FILE or a pipe")
		}
		err = nil // an empty stdin is a text: BOS
	}
	if err != nil {
		return err
	}
	ids, err := m.EncodePrompt(text, p.o.encoding())
	if err != nil {
		return err
	}
	output.WarnLost(p.app, m)
	if !p.app.Common.JSON {
		return output.PrintIDs(p.app.Out, ids)
	}
	pieces := make([]string, len(ids))
	for i, id := range ids {
		pieces[i] = output.ValidUTF8([]byte(m.Tok.Piece(id)))
	}
	return p.app.PrintJSON(struct {
		Schema string   `json:"schema"`
		Model  string   `json:"model"`
		IDs    []int32  `json:"ids"`
		Pieces []string `json:"pieces"`
	}{"ckrun.tokenize/1", m.Name, output.List(ids), pieces})
}

// detokenize prints the text of ids.
func (p *program) detokenize(cmd *cobra.Command, words []string) error {
	m, err := p.openModel()
	if err != nil {
		return err
	}
	defer m.Close()
	text, err := p.source(words, false).Text(cmd.Context())
	if errors.Is(err, prompt.ErrNone) {
		if cli.IsTerminal(p.app.In) {
			return cli.Usage("detokenize: there are no ids; give them as words, with -f FILE or through a pipe")
		}
		err = nil
	}
	if err != nil {
		return err
	}
	bad := cli.Input
	if len(words) > 0 {
		bad = cli.Usage // the command line is wrong, not a file
	}
	ids, err := prompt.ParseIDs("detokenize", text, m.Tok.VocabSize(), bad)
	if err != nil {
		return err
	}
	text = string(m.Tok.Decode(nil, ids, tokenizer.DecodeOptions{Special: p.o.special, SkipSpaceAtStart: true}))
	if !p.app.Common.JSON {
		return output.PrintText(p.app.Out, text, p.o.newline)
	}
	return p.app.PrintJSON(struct {
		Schema string `json:"schema"`
		Model  string `json:"model"`
		Text   string `json:"text"`
	}{"ckrun.detokenize/1", m.Name, output.ValidUTF8([]byte(text))})
}
