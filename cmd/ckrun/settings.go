package main

import (
	"slices"

	"github.com/spf13/cobra"

	"ck/internal/chat"
	"ck/internal/cli"
	"ck/internal/prompt"
)

// yield takes settings of the environment and of the settings file back where the command line, which wins, says otherwise. words: the
// command line has words.
func (p *program) yield(cmd *cobra.Command, words bool) {
	o, given := &p.o, p.app.Given
	yields := func(name string, to bool, value any) {
		if !to || given(name) {
			return
		}
		switch v := value.(type) {
		case *string:
			*v = ""
		case *bool:
			*v = false
		case *int:
			*v = 0
		case *[]cli.Part:
			*v = slices.DeleteFunc(*v, func(part cli.Part) bool { return part.Flag == name })
		}
		if f := cmd.Flags().Lookup(name); f != nil {
			f.Changed = false
		}
	}
	raw := o.raw && (given("raw") || !given("template") && !given("system"))
	yields("prompt", words || given("file") || given("ids"), &o.parts)
	yields("ids", words || given("file") || given("prompt"), &o.ids)
	yields("file", given("ids"), &o.parts)
	yields("system", raw || o.ids != "", &o.system)
	yields("template", raw, &o.template)
	if (raw || o.ids != "") && !given("think") {
		o.Think = chat.ThinkShow
	}
	yields("raw", given("template") || given("system"), &o.raw)
	yields("show-prompt", given("ids"), &o.show)
	yields("json", given("jsonl") || given("explain"), &p.app.Common.JSON)
	yields("jsonl", given("json") || given("explain"), &o.jsonl)
	yields("explain", given("json") || given("jsonl"), &o.explain)
	yields("logprobs", !o.jsonl, &o.logprobs)
}

// check finds flags that contradict each other, and chooses the seed.
func (o *options) check(c *cli.App) error {
	if err := o.contradictions(c); err != nil {
		return err
	}
	return o.TakeSeed()
}

func (o *options) contradictions(c *cli.App) error {
	switch {
	case (o.raw || o.ids != "") && o.Think != chat.ThinkShow:
		return cli.Usage("--think: reasoning is told apart by the model's template, which --raw and --ids leave out; leave one out")
	case o.jsonl && c.Common.JSON:
		return cli.Usage("--jsonl: contradicts --json; choose one")
	case o.explain != "" && (o.jsonl || c.Common.JSON):
		return cli.Usage("--explain: the plan has no JSON form; leave --json out")
	case o.logprobs > 0 && !o.jsonl:
		return cli.Usage("--logprobs: the probabilities are in the events of --jsonl; add it")
	case o.raw && o.template != "":
		return cli.Usage("--raw: contradicts --template; choose one")
	case o.raw && o.system != "":
		return cli.Usage("--raw: there is no system message without a template; leave --system out")
	case o.ids != "" && o.show:
		return cli.Usage("--show-prompt: --ids is the prompt already; leave one out")
	case slices.Contains(prompt.Files(o.parts), ""):
		return cli.Usage("-f/--file: the name is empty; name a file, or - for stdin")
	case o.logits == "" && c.Given("logits"):
		return cli.Usage("--logits: the name is empty; name a file")
	case o.Settings.Check() != nil:
		return o.Settings.Check()
	case o.logits == "-" && (o.Predict != 0 || c.Common.JSON || o.jsonl):
		return cli.Usage("--logits: - is stdout, where the text goes; add -n 0, or name a file")
	}
	return prompt.CheckUTF8("--system", o.system)
}
