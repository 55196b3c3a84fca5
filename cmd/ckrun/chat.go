package main

import (
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"ck/internal/chat"
	"ck/internal/generate"
	"ck/internal/output"
	"ck/internal/prompt"
)

const chatLong = `Talks with a model that has a chat template. On a terminal there are line editing, history and commands; /help lists them. Ctrl-C stops an answer or drops what is typed; in an empty line it ends the chat, as Ctrl-D does.

The keys are those of a shell; Ctrl-R looks for an older message. What is typed is kept for later chats: --history.

WORDS are the first turn.

With piped stdin it reads messages as JSON, {"role": "user", "content": "Hello"} or arrays of them, and answers after each user turn, unless the same array holds the answer.`

// chat is "ckrun chat".
func (p *program) chat(cmd *cobra.Command, words []string) error {
	first := strings.Join(words, " ")
	if err := prompt.CheckUTF8("prompt", first); err != nil {
		return err
	}
	p.yield(cmd, false)
	if err := p.o.check(p.app); err != nil {
		return err
	}
	m, err := p.openModel()
	if err != nil {
		return err
	}
	defer m.Close()
	return p.chatWith(cmd, m, first)
}

// chatWith chats; first is the user's first turn, if it is not empty.
func (p *program) chatWith(cmd *cobra.Command, m *generate.Model, first string) error {
	o := &p.o
	t, err := p.findTemplate(m)
	if err != nil {
		return err
	}
	limit := p.contextOf(m)
	e, load, err := p.openEngine(m)
	if err != nil {
		return err
	}
	closeEngine := sync.OnceFunc(e.Close)
	defer closeEngine()
	c := &chat.Chat{App: p.app, Model: m, Engine: e, Template: t, System: o.system, Encoding: o.encoding(), Settings: &o.Settings, Flags: cmd.Flags(),
		Groups: []string{generationGroup, samplingGroup}, Fixed: []string{"ctx-size"}, First: first, Context: limit, History: o.history}
	err = c.Run(cmd.Context(), p.app.Given("think"))
	if last, any := c.Last(); o.stat && any {
		output.PrintStat(p.app.Err, e, last, load, true)
		closeEngine()
		output.PrintRoof(p.app.Err, e, last)
	}
	return err
}
