// Command ckinspect looks into models. So far: where their attention goes, and when they have decided.
package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/cost"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/inspect"
	"ck/internal/isa"
	"ck/internal/kv"
	"ck/internal/numa"
)

//go:generate sh -c "go run . --man > ../../man/ckinspect.1"
//go:generate sh -c "go run . --completion bash > ../../man/completions/ckinspect.bash"
//go:generate sh -c "go run . --completion zsh > ../../man/completions/_ckinspect"
//go:generate sh -c "go run . --completion fish > ../../man/completions/ckinspect.fish"
//go:generate sh -c "cat ../../man/*.1 | tr -d '\\134' | sed -n 's/^[.]B .*--//p' | grep -o '^[a-z][a-z0-9-]*' | LC_ALL=C sort -u > ../../internal/cli/flags.txt"

func main() { newProgram().app.Main() }

// program is one run of ckinspect.
type program struct {
	app       *cli.App
	attention attentionOptions
	show      showOptions
	tokens    tokensOptions
	entropy   entropyOptions
	svd       svdOptions
	correlate correlateOptions
	diff      diffOptions
	verdict   verdictOptions
}

const long = `Looks into models: what a file says, its vocabulary, singular values, entropy, how alike layers are, where attention goes, how two models differ; and settles what is claimed about weights.

It reads GGUF files, single and split, safetensors files, Hugging Face folders and matrices of numpy; quantized types too. All commands but attention also read models that ckrun cannot run.

  ckinspect show model.gguf
  ckinspect verdict model.gguf -f text.txt`

const examples = `  ckinspect show model.gguf
  ckinspect svd model.gguf --tensors 'blk\.0\.' --png spectra.png
  ckinspect diff base.gguf tuned.gguf
  ckinspect attention model.gguf -f text.txt --drop 80,90,95
  ckinspect verdict model.gguf -f text.txt
`

func newProgram() *program {
	p := &program{}
	p.app = cli.New("ckinspect", "COMMAND [flags] MODEL", "look into models", long)
	p.app.Classify = classify
	p.app.Root.Example = examples
	p.app.Root.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.Usage("%s: no such command; see ckinspect --help", args[0])
		}
		return cli.Usage("nothing to do; see ckinspect --help")
	}
	p.app.AddLinesFlag()
	p.showCommand()
	p.tokensCommand()
	p.entropyCommand()
	p.svdCommand()
	p.correlateCommand()
	p.diffCommand()
	p.attentionCommand()
	p.verdictCommand()
	p.app.AddConfigCommand()
	return p
}

// modelWord is the model: -m, or the only word.
func (p *program) modelWord(args []string) (path string, ok bool) {
	switch path = p.app.Common.Model; {
	case path == "" && len(args) == 1:
		return args[0], true
	default:
		return path, path != "" && len(args) == 0
	}
}

func (p *program) engineOptions() engine.Options {
	c := &p.app.Common
	return engine.Options{Tier: c.CPU, NUMA: c.NUMA, Judge: cost.Judge, Threads: c.Threads, MemLimit: c.MemLimit, Prove: c.Verbose}
}

// classify gives the exit codes of the packages' errors.
func classify(err error) int {
	var (
		opened *generate.InputError
		model  *engine.ModelError
		tier   *engine.TierError
		node   *engine.NodeError
		full   *kv.ErrFull
		memory *numa.NoMemory
		input  *inspect.InputError
		none   *inspect.NoMatchError
		damage *gguf.DamageError
	)
	if code := classifySpectra(err); code != 0 {
		return code
	}
	switch {
	case errors.As(err, &tier) && !errors.Is(err, isa.ErrMissing), errors.As(err, &none):
		return cli.ExitUsage
	case errors.Is(err, isa.ErrMissing), errors.As(err, &node), errors.As(err, &full), errors.As(err, &memory), errors.Is(err, fs.ErrPermission):
		return cli.ExitResource
	case errors.As(err, &opened), errors.As(err, &model), errors.As(err, &input), errors.As(err, &damage):
		return cli.ExitInput
	}
	return 0
}
