package main

import (
	"errors"

	"github.com/spf13/cobra"

	"ck/internal/cli"
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
	text, err := p.readText(cmd.Context(), words, cmd.Flags().Changed("prompt"))
	if errors.Is(err, errNoPrompt) {
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
	p.warnLost(m)
	if !p.app.Common.JSON {
		return p.printIDs(ids)
	}
	pieces := make([]string, len(ids))
	for i, id := range ids {
		pieces[i] = validUTF8([]byte(m.Tok.Piece(id)))
	}
	return p.app.PrintJSON(struct {
		Schema string   `json:"schema"`
		Model  string   `json:"model"`
		IDs    []int32  `json:"ids"`
		Pieces []string `json:"pieces"`
	}{"ckrun.tokenize/1", m.Name, list(ids), pieces})
}

// detokenize prints the text of ids.
func (p *program) detokenize(cmd *cobra.Command, words []string) error {
	m, err := p.openModel()
	if err != nil {
		return err
	}
	defer m.Close()
	text, err := p.readText(cmd.Context(), words, false)
	if errors.Is(err, errNoPrompt) {
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
	ids, err := parseIDs("detokenize", text, m.Tok.VocabSize(), bad)
	if err != nil {
		return err
	}
	text = string(m.Tok.Decode(nil, ids, tokenizer.DecodeOptions{Special: p.o.special, SkipSpaceAtStart: true}))
	if !p.app.Common.JSON {
		return cli.OutError(p.writeText(text))
	}
	return p.app.PrintJSON(struct {
		Schema string `json:"schema"`
		Model  string `json:"model"`
		Text   string `json:"text"`
	}{"ckrun.detokenize/1", m.Name, validUTF8([]byte(text))})
}
