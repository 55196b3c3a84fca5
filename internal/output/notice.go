package output

import (
	"fmt"

	"ck/internal/cli"
	"ck/internal/generate"
)

// WarnEnd says that a text ended before its time: because the context of so many tokens was full, or within the reasoning, without an
// answer.
func WarnEnd(app *cli.App, res generate.Result, context int) {
	if res.Finish == generate.FinishContext {
		app.Warn("the context is full: %s of the prompt and %d new ones are %d; a larger -c has room for more", Tokens(res.PromptTokens), res.NewTokens, context)
	}
	if res.Text == "" && res.Reasoning != "" && (res.Finish == generate.FinishContext || res.Finish == generate.FinishLength) {
		app.Warn("there is no answer: the model still reasoned after %s; raise -n, or try --think off", Tokens(res.NewTokens))
	}
}

// WarnLost says once that parts of the texts so far have no tokens.
func WarnLost(app *cli.App, m *generate.Model) {
	if s := m.LostText(); s != "" {
		app.Warn("%s", s)
	}
}

// Tokens is a number of tokens in words.
func Tokens(n int) string {
	if n == 1 {
		return "1 token"
	}
	return fmt.Sprintf("%d tokens", n)
}

// PromptProgress shows how far the evaluation of a prompt is, for generate.Options.
func PromptProgress(app *cli.App) func(rows int) generate.Meter {
	return func(rows int) generate.Meter { return app.NewProgress("prompt", "tokens", int64(rows)) }
}
