package main

import (
	"math"

	"github.com/spf13/cobra"

	"ck/internal/chat"
	"ck/internal/cli"
	"ck/internal/cost"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/prompt"
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
	chat.Settings
	context int

	// output
	jsonl, printIDs, echo, newline, stat, force bool
	logprobs                                    int
	logits                                      string
	explain                                     string // a class of plans
	history                                     string // a file, none, or empty for the default

	// engine
	ubatch, threadsBatch int
	asNodes, link        string
	kv, act, panels      string
	noPack               bool
}

const maxInt = math.MaxInt32

// Groups of flags that a chat can change.
const (
	generationGroup = "Generation"
	samplingGroup   = "Sampling"
)

func (o *options) flags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Prompt")
	g.Part(&o.parts, prompt.TextFlag, "p", "TEXT", "the prompt, in place of WORDS; may be repeated and mixed with -f: joined in this order by blank lines")
	g.Part(&o.parts, prompt.FileFlag, "f", "FILE", "read the prompt from a file, - is stdin; may be repeated")
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
	g.Part(&o.parts, prompt.TextFlag, "p", "TEXT", "the text, in place of words; may be repeated and mixed with -f: joined in this order by blank lines")
	g.Part(&o.parts, prompt.FileFlag, "f", "FILE", "read the text from a file, - is stdin; may be repeated")
	g.Bool(&o.noStdin, "no-stdin", "", "never read stdin")
	g.Bool(&o.special, "special", "", "names of special tokens in the text become these tokens")
	g.Bool(&o.noBOS, "no-bos", "", "no token of the text's beginning")
}

func (o *options) detokenFlags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Prompt")
	g.Part(&o.parts, prompt.FileFlag, "f", "FILE", "read the ids from a file, - is stdin; may be repeated")
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
	g.Int(&o.Predict, "predict", "n", 512, -1, maxInt, "N", "new tokens at most; 0: evaluate the prompt only; -1: until the end or until the context is full")
	g.Int(&o.context, "ctx-size", "c", 0, 1, maxInt, "N", "context, prompt and new tokens together; memory for all of it must be there; default: the model's, memory as it grows")
	g.Texts(&o.Stop, "stop", "", "STR", "end before this text of the answer, which is not printed; may be repeated")
	g.Bool(&o.IgnoreEOS, "ignore-eos", "", "never draw a token that ends the text")

	g.Enum(&o.Think, "think", "", chat.ThinkShow, "MODE", []string{chat.ThinkShow, chat.ThinkHide, chat.ThinkOff}, "what a model reasons before it answers: shown, faint on a terminal; hidden; off asks the template for an answer alone")

	d := generate.DefaultParams()
	s := &o.Sample
	g = cli.NewGroup(c.Flags(), samplingGroup)
	g.Float(&s.Temp, "temp", "", d.Temp, 0, 1e6, "X", "temperature; 0 is greedy")
	g.Int(&s.TopK, "top-k", "", d.TopK, -1, maxInt, "N", "draw from the N most probable tokens; 0: from all")
	g.Float(&s.TopP, "top-p", "", d.TopP, 0, 1, "X", "draw from the fewest tokens whose probabilities add up to X; 1: from all")
	g.Float(&s.MinP, "min-p", "", d.MinP, 0, 1, "X", "leave out tokens less probable than X times the most probable; 0: none")
	g.Float(&s.RepeatPenalty, "repeat-penalty", "", d.RepeatPenalty, 0.01, 100, "X", "penalty of tokens that were there before; 1: none")
	g.Int(&s.RepeatLastN, "repeat-last-n", "", d.RepeatLastN, -1, maxInt, "N", "how far the penalty looks back; -1: all the way")
	g.Text(&o.Seed, "seed", "s", "", "N", "seed of the sampling, a whole number; default: random, shown by --stat")
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
	g.Text(&o.asNodes, "as-nodes", "", "", "LIST", "CPU lists that count as memory nodes, 0-3/4-7: to try --numa tp on a machine that has one")
	g.Text(&o.link, "link", "", "", "LATENCY,RATE", "with --as-nodes: workers wait as over a link between the nodes, 2us,20GB/s: so long at each meeting, and for what they read far away")
	g.Int(&o.threadsBatch, "threads-batch", "", 0, 1, 4096, "N", "workers for the prompt; default: as --threads (also -tb)")
	g.Enum(&o.kv, "kv", "", "f16", "TYPE", []string{"f16", "bf16", "f32", "q8_0", "q4_0"}, "type of the KV cache")
	g.Enum(&o.act, "act", "", "auto", "TYPE", []string{"auto", "f32"}, "activations of matmuls: float32, or what suits the weights' type")
	g.Text(&o.panels, "panels", "", "", "FILE",
		"map the weights' panels that ckquant pack wrote; none: do not; default: MODEL.panels, if it is there")
	g.Bool(&o.noPack, "no-pack", "", "leave weights in the file's form: slower, less memory")
}

func (o *options) encoding() generate.Encoding {
	return generate.Encoding{NoBOS: o.noBOS, Special: o.special}
}

// engineOptions are the engine's options for the model at path.
func (p *program) engineOptions(path string) engine.Options {
	o, c := &p.o, &p.app.Common
	kv, _ := quant.Parse(o.kv) // one of the flag's words
	return engine.Options{Tier: c.CPU, NUMA: c.NUMA, Judge: cost.Judge, AsNodes: o.asNodes, Link: o.link, Prove: c.Verbose, Threads: c.Threads, ThreadsBatch: o.threadsBatch, UBatch: o.ubatch, F32Act: o.act == "f32",
		KV: kv, KVSet: true, NoPack: o.noPack, Panels: engine.FindPanels(o.panels, path), MemLimit: c.MemLimit,
		Context: o.context}
}
