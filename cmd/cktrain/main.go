// Command cktrain fine-tunes models on CPUs.
package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/dataset"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/topo"
	"ck/internal/train"
)

//go:generate sh -c "go run . --man > ../../man/cktrain.1"
//go:generate sh -c "go run . --completion bash > ../../man/completions/cktrain.bash"
//go:generate sh -c "go run . --completion zsh > ../../man/completions/_cktrain"
//go:generate sh -c "go run . --completion fish > ../../man/completions/cktrain.fish"
//go:generate sh -c "cat ../../man/*.1 | tr -d '\\134' | sed -n 's/^[.]B .*--//p' | grep -o '^[a-z][a-z0-9-]*' | LC_ALL=C sort -u > ../../internal/cli/flags.txt"

func main() { newProgram().app.Main() }

// program is one run of cktrain.
type program struct {
	app   *cli.App
	data  dataOptions
	net   netOptions
	lora  loraOptions
	out   mergeOptions
	run   runOptions
	fresh newOptions

	machine topo.Survey
	places  []train.Place // of replicas
	table   *kernel.Table
	shown   int // slots
}

const long = `Fine-tunes models: all weights in float32, or adapters of low rank beside frozen ones, with products in BF16 or F32. Checkpoints are the same bytes for any number of threads and any cut of a batch into walks; a run that was killed goes on with --resume as if nothing had happened.

  cktrain run -m model.gguf -d stories.txt -o tuned

A model is a GGUF file or a Hugging Face folder; for adapters it may be quantized. Data are files: text, whose documents end with lines <|endoftext|>, or JSON lines {"text"}, {"prompt", "completion"}, {"messages"}; of conversations the assistant's answers count.`

const examples = `  cktrain new --layers 6 --hidden 256 --ffn 768 --heads 8 --kv-heads 4 --vocab 4096 --tied -d stories.txt -o fresh.gguf
  cktrain run -m qwen3-0.6b.gguf -d chats.jsonl -o tuned --steps 200
  cktrain run -m qwen3-0.6b.gguf -d chats.jsonl -o tuned --steps 200 --resume
  cktrain estimate -m qwen3-0.6b.gguf --tokens 512 --batch 16
  cktrain show-batch -m qwen3-0.6b.gguf -d chats.jsonl
  cktrain checkgrad -m qwen3-0.6b.gguf
  cktrain run -m qwen3-0.6b-q4.gguf -d chats.jsonl -o small --rank 16
  cktrain merge -m qwen3-0.6b-q4.gguf small/adapter.gguf merged.gguf
`

func newProgram() *program {
	p := &program{}
	p.app = cli.New("cktrain", "COMMAND [flags]", "fine-tune models", long)
	p.app.Classify = classify
	p.app.Root.Example = examples
	p.app.Root.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.Usage("%s: no such command; see cktrain --help", args[0])
		}
		return cli.Usage("nothing to do; see cktrain --help")
	}
	p.newCommand()
	p.runCommand()
	p.estimateCommand()
	p.showCommand()
	p.checkCommand()
	p.mergeCommand()
	p.app.AddConfigCommand()
	return p
}

// classify gives the exit codes of the packages' errors.
func classify(err error) int {
	var (
		line     *dataset.LineError
		opened   *generate.InputError
		input    *convert.InputError
		model    *engine.ModelError
		tier     *engine.TierError
		typ      *train.TypeError
		mismatch *train.MismatchError
		damage   *gguf.DamageError
		bad      *train.BadStepError
		target   *train.NoTargetError
		replica  *train.ReplicaError
	)
	switch {
	case errors.As(err, &mismatch), errors.As(err, &target), errors.As(err, &typ), errors.Is(err, train.ErrBatch), errors.Is(err, train.ErrNoExperts), errors.Is(err, dataset.ErrEmpty), errors.As(err, &tier) && !errors.Is(err, isa.ErrMissing):
		return cli.ExitUsage
	case errors.Is(err, isa.ErrMissing), errors.Is(err, fs.ErrPermission):
		return cli.ExitResource
	case errors.As(err, &line), errors.As(err, &opened), errors.As(err, &input), errors.As(err, &model), errors.As(err, &damage):
		return cli.ExitInput
	case errors.As(err, &bad), errors.As(err, &replica):
		return cli.ExitCheck
	}
	return 0
}
