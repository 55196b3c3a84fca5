// Command ckbench measures models and machines: speed with its uncertainty, limits of the machine, the way from one to the other.
package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/kv"
	"ck/internal/numa"
)

//go:generate sh -c "go run . --man > ../../man/ckbench.1"
//go:generate sh -c "go run . --completion bash > ../../man/completions/ckbench.bash"
//go:generate sh -c "go run . --completion zsh > ../../man/completions/_ckbench"
//go:generate sh -c "go run . --completion fish > ../../man/completions/ckbench.fish"

func main() { newProgram().app.Main() }

// program is one run of ckbench.
type program struct {
	app      *cli.App
	synth    synthOptions
	run      runOptions
	compare  compareOptions
	machine  machineOptions
	roofline rooflineOptions
}

const long = `Measures how fast a model runs on this machine and how fast the machine lets it run. Every figure comes with its uncertainty, and what disturbed it is named.

A model of a real shape with random weights is as fast as the real one and needs no download:

  ckbench synth llama-3.2-1b Q4_K_M -o 1b.gguf
  ckbench run -m 1b.gguf`

func newProgram() *program {
	p := &program{}
	p.app = cli.New("ckbench", "COMMAND [flags]", "measure models and machines", long)
	p.app.Classify = classify
	p.app.Doc = manSections
	p.app.Root.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.Usage("%s: no such command; see ckbench --help", args[0])
		}
		return cli.Usage("nothing to do; see ckbench --help")
	}
	p.app.Rewrite = map[string]string{"-ub": "--ubatch", "-pg": "--pg"}
	p.runCommand()
	p.compareCommand()
	p.rooflineCommand()
	p.machineCommands()
	p.synthCommand()
	p.app.AddConfigCommand()
	return p
}

// classify gives the exit codes of the engine's errors.
func classify(err error) int {
	var (
		input  *generate.InputError
		model  *engine.ModelError
		tier   *engine.TierError
		full   *kv.ErrFull
		memory *numa.NoMemory
	)
	switch {
	case errors.As(err, &tier):
		return cli.ExitUsage
	case errors.As(err, &full), errors.As(err, &memory), errors.Is(err, engine.ErrContext), errors.Is(err, fs.ErrPermission):
		return cli.ExitResource
	case errors.As(err, &input), errors.As(err, &model):
		return cli.ExitInput
	}
	return 0
}

var manSections = []cli.Section{}
