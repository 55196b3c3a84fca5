// Command ckquant makes model files: it converts, quantizes, splits and merges, says what a file costs and proves the
// result.
package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/distance"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/imatrix"
	"ck/internal/isa"
	"ck/internal/kv"
	"ck/internal/numa"
)

//go:generate sh -c "go run . --man > ../../man/ckquant.1"
//go:generate sh -c "go run . --completion bash > ../../man/completions/ckquant.bash"
//go:generate sh -c "go run . --completion zsh > ../../man/completions/_ckquant"
//go:generate sh -c "go run . --completion fish > ../../man/completions/ckquant.fish"
//go:generate sh -c "cat ../../man/*.1 | tr -d '\\134' | sed -n 's/^[.]B .*--//p' | grep -o '^[a-z][a-z0-9-]*' | LC_ALL=C sort -u > ../../internal/cli/flags.txt"

func main() { newProgram().app.Main() }

// program is one run of ckquant.
type program struct {
	app      *cli.App
	out      outputOptions
	convert  convertOptions
	quantize quantizeOptions
	compare  compareOptions
	planned  planOptions
	imatrix  imatrixOptions
	split    splitOptions
}

const long = `Makes model files for ckrun and every other program that reads GGUF: from Hugging Face folders and from GGUF files, in any type, byte for byte as llama-quantize makes them, through all cores and a few rows in memory at a time.

  ckquant quantize Llama-3.1-8B-Instruct llama-8b.gguf Q4_K_M

The output is OUT.part until it is whole. A run that was killed goes on with --resume.`

const examples = `  ckquant convert Qwen3-0.6B qwen3.gguf
  ckquant quantize Qwen3-0.6B qwen3-q4.gguf Q4_K_M --dry-run
  ckquant quantize big.gguf small.gguf IQ4_XS --imatrix big.imatrix.gguf
  ckquant quantize big.gguf own.gguf Q4_K_M --tensor-type 'ffn_down=Q6_K' --output-type Q8_0
  ckquant plan -m big.gguf -f text.txt
  ckquant compare big.gguf small.gguf -f text.txt
  ckquant split big.gguf big --max-size 4G
  ckquant merge big-00001-of-00003.gguf whole.gguf
  ckquant pack small.gguf
`

func newProgram() *program {
	p := &program{}
	p.app = cli.New("ckquant", "COMMAND [flags]", "convert and quantize models", long)
	p.app.Classify = classify
	p.app.Root.Example = examples
	p.app.Root.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.Usage("%s: no such command; see ckquant --help", args[0])
		}
		return cli.Usage("nothing to do; see ckquant --help")
	}
	p.app.AddLinesFlag()
	p.convertCommand()
	p.quantizeCommand()
	p.splitCommands()
	p.compareCommand()
	p.planCommand()
	p.imatrixCommand()
	p.entropyCommand()
	p.packCommand()
	p.app.AddConfigCommand()
	return p
}

// classify gives the exit codes of the packages' errors.
func classify(err error) int {
	var (
		input   *convert.InputError
		value   *convert.ValueError
		damage  *gguf.DamageError
		again   *convert.RequantizeError
		rule    *convert.RuleError
		needs   *convert.ImportanceError
		exists  *convert.ExistsError
		changed *convert.ChangedError
		busy    *convert.BusyError
		room    *convert.RoomError
		output  *convert.OutputError
		shape   *distance.ShapeError
		opened  *generate.InputError
		model   *engine.ModelError
		tier    *engine.TierError
		node    *engine.NodeError
		full    *kv.ErrFull
		memory  *numa.NoMemory
		file    *imatrix.FileError
		size    *imatrix.SizeError
		zero    *imatrix.ZeroError
		text    *imatrix.TextError
		inputs  *imatrix.InputsError
		resumed *imatrix.ResumeError
	)
	switch {
	case errors.As(err, &exists), errors.As(err, &changed), errors.As(err, &rule), errors.As(err, &needs),
		errors.As(err, &resumed), errors.As(err, &tier) && !errors.Is(err, isa.ErrMissing):
		return cli.ExitUsage
	case errors.Is(err, isa.ErrMissing), errors.As(err, &node), errors.As(err, &room), errors.As(err, &busy), errors.As(err, &output),
		errors.As(err, &full), errors.As(err, &memory),
		errors.Is(err, fs.ErrPermission):
		return cli.ExitResource
	case errors.As(err, &input), errors.As(err, &damage), errors.As(err, &value), errors.As(err, &again), errors.As(err, &shape),
		errors.As(err, &opened), errors.As(err, &model),
		errors.As(err, &file), errors.As(err, &size), errors.As(err, &zero), errors.As(err, &text),
		errors.As(err, &inputs):
		return cli.ExitInput
	}
	return 0
}
