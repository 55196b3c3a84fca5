// Command ckbench measures models and machines: speed with its uncertainty, limits of the machine, the way from one to the other.
package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/compare"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/isa"
	"ck/internal/kv"
	"ck/internal/numa"
	"ck/internal/probe"
	"ck/internal/quality"
)

//go:generate sh -c "go run . --man > ../../man/ckbench.1"
//go:generate sh -c "go run . --completion bash > ../../man/completions/ckbench.bash"
//go:generate sh -c "go run . --completion zsh > ../../man/completions/_ckbench"
//go:generate sh -c "go run . --completion fish > ../../man/completions/ckbench.fish"
//go:generate sh -c "cat ../../man/*.1 | tr -d '\\134' | sed -n 's/^[.]B .*--//p' | grep -o '^[a-z][a-z0-9-]*' | LC_ALL=C sort -u > ../../internal/cli/flags.txt"

func main() { newProgram().app.Main() }

// program is one run of ckbench.
type program struct {
	app      *cli.App
	synth    synthOptions
	run      runOptions
	compare  compareOptions
	machine  machineOptions
	roofline rooflineOptions
	sweep    sweepOptions
	quality  qualityOptions
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
	p.app.Root.Example = examples
	p.app.Root.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.Usage("%s: no such command; see ckbench --help", args[0])
		}
		return cli.Usage("nothing to do; see ckbench --help")
	}
	p.app.Rewrite = map[string]string{"-ub": "--ubatch", "-pg": "--pg"}
	p.app.AddLinesFlag()
	p.runCommand()
	p.compareCommand()
	p.sweepCommand()
	p.qualityCommand()
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
		old    *compare.InputError
		judged *quality.InputError
		file   *probe.InputError
		room   *probe.RoomError
		model  *engine.ModelError
		tier   *engine.TierError
		node   *engine.NodeError
		full   *kv.ErrFull
		memory *numa.NoMemory
	)
	switch {
	case errors.Is(err, isa.ErrMissing), errors.As(err, &node):
		return cli.ExitResource // the word is right, the machine lacks it
	case errors.As(err, &tier):
		return cli.ExitUsage
	case errors.As(err, &full), errors.As(err, &memory), errors.As(err, &room), errors.Is(err, fs.ErrPermission):
		return cli.ExitResource
	case errors.As(err, &input), errors.As(err, &judged), errors.As(err, &file), errors.As(err, &old), errors.As(err, &model):
		return cli.ExitInput
	}
	return 0
}

const examples = `  ckbench synth qwen3-0.6b Q8_0 -o q.gguf
  ckbench run -m q.gguf -p 512 -n 128 -d 0,4096 -t 1,2
  ckbench run -m q.gguf -n 64 -p 0 --rows 1,2,4,8,16 --steps
  ckbench run -m q.gguf --ablate prefetch,fuse,huge,pack
  ckbench run -m q.gguf -o gobench > new.txt && benchstat old.txt new.txt
  ckbench run -m q.gguf -o json > new.json && ckbench compare old.json new.json --fail-on 5%
  ckbench roofline -m q.gguf --svg roofline.svg
`

var manSections = []cli.Section{
	{Title: "Measurement", Text: `Tokens per second are those of the whole program between the first token's id and the last logits: embedding, all layers, logits; no sampling, no text.

GB/s are the weights and the KV cache, each read once for every walk, over the time; activations are not counted. GOP/s are two operations for every weight of the matmuls and every row, over the time; attention is not counted. The share of the read bandwidth (% read) is against the best of at least six samples of read loops for every repetition, on the same threads; the share of the peak (% peak) is against the best instruction of the CPU for the activations in use: 8-bit integers, bfloat16 or float32. The loops walk through memory of eight times what the caches of the threads hold, less where that would be more than half of what is left. A model that fits into the last cache may exceed the memory's bandwidth; -v says so.

The interval of the median needs no assumption about the distribution of the samples. For n repetitions it lies between the k-th smallest and the k-th largest, with the largest k that keeps 95 %; five repetitions reach 94 %, three 75 %.

On a shared machine look at the warnings: steal time and other processes make every figure a lower bound.`},
	{Title: "JSON", Text: `run -o json prints one document, schema ck.bench.run/1: host, what was known of the machine; results, one for each test. -o jsonl prints a result a line, with host in it. Fields of results that llama-bench has too have its names; others:

  test           name of the test       rows          sequences in one walk
  tokens_per_s   n, median, lo, hi, level of the interval, mean, stddev, min, max, outliers
  gb_per_s       read_roof_gbs  pct_read_roof  gop_per_s  peak_gops  pct_peak  peak_kind
  samples        of each repetition: ns, tokens_per_s, read_roof_gbs and peak_gops beside it, share
                 (least possible time under these roofs over the time taken), noise
  ablate         what is left out, "" as usual   worth   null as usual, else the usual rate over this
                 one: n, median, lo, hi, …; alternated: in turn, repetition by repetition
  counters_per_token   instructions, cycles, cache_misses in user mode, or null; notes say why
  steps          with --steps: phase, step, us_per_walk, share of the time, rates, shares of roofs
  model_hash     SHA-256 of the files' sizes and of 64 KiB at every 16 MiB
  warnings  notes

Other documents: ck.bench.compare/1, ck.bench.roofline/1, ck.bench.bandwidth/1, ck.bench.file/2, ck.bench.latency/1, ck.bench.barrier/1, ck.bench.allreduce/1, ck.bench.sweep/1, ck.bench.quality/1, ck.bench.choices/1, ck.bench.synth/1. Figures of the machine have samples: n, median, lo, hi, level, mean, stddev, min, max, outliers, noise, stable (the best three agree to 3 %); slower_than names what contradicts the figure.

--jsonl prints a table's rows one by one, an object a line, which begins with its schema: ck.bench.run/1 as -o jsonl does, ck.bench.compare.test/1, ck.bench.roofline.host/1, .peak/1, .level/1, .step/1 and .other/1, ck.bench.bandwidth.level/1, ck.bench.file.way/1, ck.bench.latency.set/1, ck.bench.barrier.team/1, ck.bench.allreduce.vector/1, ck.bench.sweep.phase/1, ck.bench.synth.type/1, ck.config.setting/1. Their fields are those of the documents' lists. quality, which has one result, prints its document.`},
}
