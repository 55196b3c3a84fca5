package main

import (
	crand "crypto/rand"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/quant"
)

// options are the values of all flags of ckrun but the common ones.
type options struct {
	// prompt
	parts            []cli.Part // of -p and -f, in the order of the command line
	ids              string
	noStdin, raw     bool
	system, template string
	special, noBOS   bool
	truncate         string
	show             bool

	// generation
	predict, context int
	stop             []string
	ignoreEOS        bool
	think            string
	sample           generate.Params
	seed             string

	// output
	jsonl, printIDs, echo, newline, stat, force bool
	logprobs                                    int
	logits                                      string
	explain                                     string // a class of plans
	history                                     string // a file, none, or empty for the default

	// engine
	ubatch, threadsBatch int
	kv, act              string
	noPack               bool
}

const maxInt = math.MaxInt32

// Groups of flags that a chat can change.
const (
	generationGroup = "Generation"
	samplingGroup   = "Sampling"
)

// The flags whose values are the parts of a prompt.
const (
	promptFlag = "prompt"
	fileFlag   = "file"
)

// files are the names of -f.
func (o *options) files() []string {
	var l []string
	for _, p := range o.parts {
		if p.Flag == fileFlag {
			l = append(l, p.Value)
		}
	}
	return l
}

func (o *options) flags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Prompt")
	g.Part(&o.parts, promptFlag, "p", "TEXT", "the prompt, in place of WORDS; may be repeated and mixed with -f: joined in this order by blank lines")
	g.Part(&o.parts, fileFlag, "f", "FILE", "read the prompt from a file, - is stdin; may be repeated")
	g.Bool(&o.noStdin, "no-stdin", "", "never read stdin")
	g.Text(&o.ids, "ids", "", "", "LIST", "the exact token ids: 1,2,3 or @FILE, where a JSON array will do")
	g.Bool(&o.raw, "raw", "", "send the text as it is, without the model's template")
	o.templateFlags(g)
	g.Enum(&o.truncate, "truncate", "", "", "END", []string{"head", "tail"}, "cut the beginning or the end off a prompt that is too long for the context, to leave room for -n tokens, at most half of it")
	g.Bool(&o.show, "show-prompt", "", "print the prompt as the model gets it, and stop; with --print-ids, its ids")

	o.generationFlags(c)

	g = cli.NewGroup(c.Flags(), "Output")
	g.Bool(&o.jsonl, "jsonl", "", "events as JSON, one a line: start, token, end")
	g.Int(&o.logprobs, "logprobs", "", 0, 1, 1000, "K", "with --jsonl: log probability of each token and of the K most probable")
	g.Bool(&o.printIDs, "print-ids", "", "print the ids of the new tokens in place of their text")
	g.Bool(&o.echo, "echo", "", "print the prompt before the new text")
	g.Bool(&o.newline, "newline", "", "end with a newline also where stdout is no terminal")
	g.Text(&o.logits, "logits", "", "", "FILE", "write the logits of all prompt rows: float32, little endian, [rows, vocabulary]")
	g.Bool(&o.force, "force", "", "overwrite the file of --logits")
	o.statFlag(g)
	o.historyFlag(g)
	g.Enum(&o.explain, "explain", "", "", "ROWS", []string{"one", "few", "many"}, "print the plan for one row, few or many, and stop")
	g.Optional("explain", "one")

	o.engineFlags(c)
}

func (o *options) chatFlags(c *cobra.Command) {
	o.templateFlags(cli.NewGroup(c.Flags(), "Prompt"))
	o.generationFlags(c)
	g := cli.NewGroup(c.Flags(), "Output")
	o.statFlag(g)
	o.historyFlag(g)
	o.engineFlags(c)
}

func (o *options) tokenFlags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Prompt")
	g.Part(&o.parts, promptFlag, "p", "TEXT", "the text, in place of words; may be repeated and mixed with -f: joined in this order by blank lines")
	g.Part(&o.parts, fileFlag, "f", "FILE", "read the text from a file, - is stdin; may be repeated")
	g.Bool(&o.noStdin, "no-stdin", "", "never read stdin")
	g.Bool(&o.special, "special", "", "names of special tokens in the text become these tokens")
	g.Bool(&o.noBOS, "no-bos", "", "no token of the text's beginning")
}

func (o *options) detokenFlags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Prompt")
	g.Part(&o.parts, fileFlag, "f", "FILE", "read the ids from a file, - is stdin; may be repeated")
	g.Bool(&o.special, "special", "", "print the names of control tokens, which have no text")
	g.Bool(&o.newline, "newline", "", "end with a newline also where stdout is no terminal")
}

func (o *options) templateFlags(g cli.Group) {
	g.Text(&o.system, "system", "", "", "TEXT", "system message, for models with a template")
	g.Text(&o.template, "template", "", "", "NAME", "chat template: a name (chatml, llama3, …) or a file; default: the model's")
	g.Bool(&o.special, "special", "", "names of special tokens in the prompt become these tokens")
	g.Bool(&o.noBOS, "no-bos", "", "no token of the text's beginning")
}

func (o *options) generationFlags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), generationGroup)
	g.Int(&o.predict, "predict", "n", 512, -1, maxInt, "N", "new tokens at most; 0: evaluate the prompt only; -1: until the end or until the context is full")
	g.Int(&o.context, "ctx-size", "c", 0, 1, maxInt, "N", "context, prompt and new tokens together; memory for all of it must be there; default: the model's, memory as it grows")
	g.Texts(&o.stop, "stop", "", "STR", "end before this text of the answer, which is not printed; may be repeated")
	g.Bool(&o.ignoreEOS, "ignore-eos", "", "never draw a token that ends the text")

	g.Enum(&o.think, "think", "", thinkShow, "MODE", []string{thinkShow, thinkHide, thinkOff}, "what a model reasons before it answers: shown, faint on a terminal; hidden; off asks the template for an answer alone")

	d := generate.DefaultParams()
	s := &o.sample
	g = cli.NewGroup(c.Flags(), samplingGroup)
	g.Float(&s.Temp, "temp", "", d.Temp, 0, 1e6, "X", "temperature; 0 is greedy")
	g.Int(&s.TopK, "top-k", "", d.TopK, -1, maxInt, "N", "draw from the N most probable tokens; 0: from all")
	g.Float(&s.TopP, "top-p", "", d.TopP, 0, 1, "X", "draw from the fewest tokens whose probabilities add up to X; 1: from all")
	g.Float(&s.MinP, "min-p", "", d.MinP, 0, 1, "X", "leave out tokens less probable than X times the most probable; 0: none")
	g.Float(&s.RepeatPenalty, "repeat-penalty", "", d.RepeatPenalty, 0.01, 100, "X", "penalty of tokens that were there before; 1: none")
	g.Int(&s.RepeatLastN, "repeat-last-n", "", d.RepeatLastN, -1, maxInt, "N", "how far the penalty looks back; -1: all the way")
	g.Text(&o.seed, "seed", "s", "", "N", "seed of the sampling, a whole number; default: random, shown by --stat")
}

func (o *options) statFlag(g cli.Group) {
	g.Bool(&o.stat, "stat", "", "speeds and memory on stderr, at the end")
}

func (o *options) historyFlag(g cli.Group) {
	g.Text(&o.history, "history", "", "", "FILE", "where a chat on a terminal keeps what was typed, the last 1000 messages; none: nowhere; default: $XDG_STATE_HOME/ck/history")
}

func (o *options) engineFlags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Engine")
	g.Int(&o.ubatch, "ubatch", "", engine.UBatchDefault, 1, 1<<16, "N", "rows of the prompt that are evaluated together (also -ub)")
	g.Int(&o.threadsBatch, "threads-batch", "", 0, 1, 4096, "N", "workers for the prompt; default: as --threads (also -tb)")
	g.Enum(&o.kv, "kv", "", "f16", "TYPE", []string{"f16", "bf16", "f32", "q8_0", "q4_0"}, "type of the KV cache")
	g.Enum(&o.act, "act", "", "auto", "TYPE", []string{"auto", "f32"}, "activations of matmuls: float32, or what suits the weights' type")
	g.Bool(&o.noPack, "no-pack", "", "leave weights in the file's form: slower, less memory")
}

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
		o.think = thinkShow
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
	return o.takeSeed()
}

func (o *options) contradictions(c *cli.App) error {
	switch {
	case (o.raw || o.ids != "") && o.think != thinkShow:
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
	case slices.Contains(o.files(), ""):
		return cli.Usage("-f/--file: the name is empty; name a file, or - for stdin")
	case o.logits == "" && c.Given("logits"):
		return cli.Usage("--logits: the name is empty; name a file")
	case slices.Contains(o.stop, ""):
		return cli.Usage("--stop: the empty text stops nothing; leave it out")
	case o.logits == "-" && (o.predict != 0 || c.Common.JSON || o.jsonl):
		return cli.Usage("--logits: - is stdout, where the text goes; add -n 0, or name a file")
	}
	return checkUTF8("--system", o.system)
}

func (o *options) takeSeed() error {
	if o.seed == "" || o.seed == "-1" {
		var b [4]byte // 32 bits are easy to type, and exact in every JSON reader
		if _, err := crand.Read(b[:]); err != nil {
			return err
		}
		o.sample.Seed = uint64(binary.LittleEndian.Uint32(b[:]))
		return nil
	}
	n, err := strconv.ParseUint(o.seed, 10, 64)
	if err != nil {
		return cli.Usage("--seed: %q is no whole number in 0..2^64-1", o.seed)
	}
	o.sample.Seed = n
	return nil
}

func (o *options) encoding() generate.Encoding {
	return generate.Encoding{NoBOS: o.noBOS, Special: o.special}
}

// engineOptions are the engine's options.
func (p *program) engineOptions() engine.Options {
	o, c := &p.o, &p.app.Common
	kv, _ := quant.Parse(o.kv) // one of the flag's words
	return engine.Options{Tier: c.CPU, Threads: c.Threads, ThreadsBatch: o.threadsBatch, UBatch: o.ubatch, F32Act: o.act == "f32",
		KV: kv, KVSet: true, NoPack: o.noPack, MemLimit: c.MemLimit, Context: o.context}
}
