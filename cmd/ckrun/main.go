// Command ckrun runs language models on CPUs: it completes prompts, chats, and turns text into tokens and back.
package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/isa"
	"ck/internal/kv"
	"ck/internal/numa"
)

//go:generate sh -c "go run . --man > ../../man/ckrun.1"
//go:generate sh -c "go run . --completion bash > ../../man/completions/ckrun.bash"
//go:generate sh -c "go run . --completion zsh > ../../man/completions/_ckrun"
//go:generate sh -c "go run . --completion fish > ../../man/completions/ckrun.fish"
//go:generate sh -c "cat ../../man/*.1 | tr -d '\\134' | sed -n 's/^[.]B .*--//p' | grep -o '^[a-z][a-z0-9-]*' | LC_ALL=C sort -u > ../../internal/cli/flags.txt"

func main() { newProgram().app.Main() }

// program is one run of ckrun.
type program struct {
	app   *cli.App
	o     options
	start time.Time
}

const long = `Reads a prompt from WORDS, -p, -f or stdin and streams what the model writes to stdout. WORDS, the texts of -p and -f in their order, and piped stdin are joined with blank lines:

  cat report.txt | ckrun "Summarise:"

A model with a chat template gets the prompt as one user turn, unless --raw; the built-in story model takes it as it is. Without a prompt, on a terminal, a model with a template starts a chat.`

const examples = `  ckrun "Once upon a time"
  ckrun -m qwen3-8b.gguf "Why is the sky blue?"
  cat report.txt | ckrun -m ~/models/Llama-3.1-8B-Instruct "Summarise:"
  ckrun -m model.gguf --raw --temp 0 -n 100 --json -p "The answer is"
  ckrun chat -m model.gguf
  ckrun tokenize "Hello, world" | ckrun detokenize
`

func newProgram() *program {
	p := &program{start: time.Now()}
	p.app = cli.New("ckrun", "[flags] [WORDS…]", "run a language model on the CPU", long)
	p.app.Classify = classify
	p.app.Rewrite = map[string]string{"-ub": "--ubatch", "-tb": "--threads-batch"}
	p.app.Aliases = map[string]string{"n-predict": "predict", "ubatch-size": "ubatch", "cache-type": "kv"}
	root := p.app.Root
	root.Example = examples
	root.RunE = p.complete
	p.o.flags(root)
	chat := p.app.NewCommand("chat [flags] [WORDS…]", "talk with a model that has a chat template", chatLong, p.chat)
	p.o.chatFlags(chat)
	p.o.tokenFlags(p.app.NewCommand("tokenize [flags] [TEXT…]", "print the ids of a text",
		"Prints the ids of TEXT, of the file -f or of stdin on one line, with BOS and EOS as the model's file says. No template is applied.", p.tokenize))
	p.o.detokenFlags(p.app.NewCommand("detokenize [flags] [IDS…]", "print the text of ids",
		"Prints the text of ids from words, the file -f or stdin. They are separated by commas or white space, or a JSON array.", p.detokenize))
	batch := p.app.NewCommand("batch", "", "", func(*cobra.Command, []string) error {
		return cli.Usage("batch: is not available in this version; where it is the first word of a prompt, put -- before it")
	})
	batch.Hidden, batch.DisableFlagParsing = true, true
	p.app.AddConfigCommand()
	p.app.Doc = manSections
	return p
}

// classify gives the exit codes of the engine's errors.
func classify(err error) int {
	var (
		input   *generate.InputError
		model   *engine.ModelError
		tier    *engine.TierError
		node    *engine.NodeError
		full    *kv.ErrFull
		memory  *numa.NoMemory
		noFound = errors.Is(err, generate.ErrNoTemplate) || errors.Is(err, generate.ErrTemplateName)
	)
	switch {
	case errors.Is(err, isa.ErrMissing), errors.As(err, &node):
		return cli.ExitResource // the word is right, the machine lacks it
	case errors.As(err, &tier), noFound:
		return cli.ExitUsage
	case errors.As(err, &full), errors.As(err, &memory):
		return cli.ExitResource
	case errors.As(err, &input), errors.As(err, &model):
		return cli.ExitInput
	}
	return 0
}

var manSections = []cli.Section{
	{Title: "Prompts", Text: `WORDS are joined with spaces; -p TEXT stands for WORDS. -p and -f may be repeated and mixed: their texts are joined in the order given, by blank lines. One final line end of a file or of stdin is dropped. With WORDS, -p or -f, stdin is read only if it is a pipe or a regular file at its beginning; loops that read a pipe themselves need --no-stdin. An empty stdin adds nothing, and is no prompt alone; -p "" is the empty prompt. Text must be UTF-8.

A first word that is a command's name is the command; after -- everything is words.

Names of special tokens in the prompt are text, inside a template too, unless --special.`},
	{Title: "Reasoning", Text: `Many models reason before they answer, between marks such as <think> that their template or vocabulary names. On a terminal it is faint; elsewhere, and with NO_COLOR, it stands between <think> and </think>, whatever the model's own marks are. --think hide shows the answer alone. --think off gives the template the variable with which it asks for no reasoning (enable_thinking, thinking, reasoning_effort and others), and says if it has none. With --raw nothing is told apart.`},
	{Title: "JSON", Text: `--json prints one object at the end, schema ckrun.complete/1:

  text           new text, valid UTF-8; of a model that reasons aloud, its answer
  reasoning      what it reasoned before, unless --think hide
  ids            ids of the new tokens
  finish         eog, stop, length, context or interrupt
  stop           the stop string that was found
  prompt_tokens  new_tokens  seed  context
  model          name, and path unless it is the built-in one
  timings        load_ms, prefill_ms, prefill_tokens_per_s, first_token_ms (from the program's start),
                 decode_ms, decode_tokens_per_s
  notes          what was decided: tier, threads, memory
  warnings       what else stderr gets as warnings

--jsonl prints one object a line, schema ckrun.event/1, field event: start; token with id, text, reasoning, and with --logprobs K logprob and top; end with the fields of --json, and tail and reasoning_tail, text that no token event had. Texts of token events and tail joined are the text.

chat --json prints one object an answer, schema ckrun.chat/1: role, content, reasoning, finish, prompt_tokens, new_tokens, seed, warnings.`},
	{Title: "Models", Text: `A GGUF file, the first part of a split one, a folder as Hugging Face lays it out (config.json, safetensors, tokenizer.json or tokenizer.model), or nothing: then CK_MODEL, then the built-in model, stories260K by A. Karpathy (MIT licence), which writes tales of the kind small children are told.

Weights are packed into panels during the first walks. Panels that ckquant pack wrote are mapped instead, from MODEL.panels or what --panels names: no memory is taken for them, and processes share them. Where the file does not fit the model or this build, a warning says so and weights are packed.`},
}
