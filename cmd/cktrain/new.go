package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/bpe"
	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/dataset"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/plaintext"
	"ck/internal/quant"
	"ck/internal/scratch"
	"ck/internal/synth"
)

// newOptions are the flags of cktrain new.
type newOptions struct {
	out, name, typ string
	force, dryRun  bool
	raw            bool

	sizes    synth.Sizes
	arch     string
	context  int
	ropeBase float64
	tied     bool
	seed     int

	files      []string
	skip       int
	pre        string
	template   string
	noTemplate bool
	control    []string
}

// ownContext is the context of a shape of one's own, ownBase the base of its rotation (Touvron et al., LLaMA, 2023).
const (
	ownContext = 1024
	ownBase    = 1e4
)

const newLong = `Writes a model that knows nothing yet, for cktrain run: weights drawn from --seed, in the shape of a real model (SHAPE) or of the given sizes, and a byte-level vocabulary that is learned from the data.

  cktrain new --layers 6 --hidden 256 --ffn 768 --heads 8 --kv-heads 4 --head-dim 32 --vocab 4096 --tied -d text.txt -d talk.jsonl -o demo.gguf

OUT is a GGUF file; with / at its end, or where it is a folder, it is a folder as Hugging Face lays it out: config.json, model.safetensors, tokenizer.json. Both compute the same.

The vocabulary has a token for each byte, the control tokens <|endoftext|>, <|im_start|>, <|im_end|>, and what the data's most frequent pairs of tokens make, one after another. <|endoftext|> stands before every text and ends documents; <|im_end|> ends turns, as the template ChatML writes them.

Weights are normal with a standard deviation of 0.02, those that write into the residual divided by sqrt(2 * layers); norms are 1, biases 0. The same seed gives the same bytes, whatever the threads.`

func (p *program) newCommand() {
	o := &p.fresh
	c := p.app.NewCommand("new [flags] [SHAPE]", "make a model from scratch", newLong+"\n\nShapes: "+strings.Join(scratchShapes(), ", ")+".", p.runNew)
	cli.CompleteWords(c, false, scratchShapes())
	g := cli.NewGroup(c.Flags(), "Output")
	g.Text(&o.out, "out", "o", "", "OUT", "file or folder of the model")
	g.Bool(&o.force, "force", "", "overwrite OUT")
	g.Bool(&o.dryRun, "dry-run", "", "learn the vocabulary and say what would be written")
	g.Enum(&o.typ, "type", "", "f32", "TYPE", []string{"f32", "bf16"}, "type of the matrices")
	g.Text(&o.name, "name", "", "", "NAME", "the model's name; default: as OUT is called")
	g.Bool(&o.raw, "raw", "", "ckrun sends prompts as they are, not as a turn of the template; GGUF alone can say so")
	g = cli.NewGroup(c.Flags(), "Shape")
	g.Enum(&o.arch, "arch", "", "llama", "NAME", scratch.Archs, "architecture of a shape of your own")
	for _, e := range o.sizes.List() {
		g.Int(e.Value, e.Name, "", 0, 1, 1<<24, "N", e.Usage)
	}
	g.Int(&o.context, "context", "", 0, 1, 1<<24, "N", fmt.Sprintf("positions; default: those of SHAPE, else %d", ownContext))
	g.Float(&o.ropeBase, "rope-base", "", 0, 1, math.MaxFloat32, "X",
		fmt.Sprintf("base of the rotation's frequencies; default: that of SHAPE, else %d", int(ownBase)))
	g.Bool(&o.tied, "tied", "", "the embedding is the output matrix, too")
	g.Int(&o.seed, "seed", "", 1, 0, math.MaxInt32, "N", "seed of the weights")
	g = cli.NewGroup(c.Flags(), "Data")
	g.Texts(&o.files, "data", "d", "FILE", "a file that the vocabulary is learned from, once or more: text (*.txt, *.md) or JSON lines (*.jsonl)")
	g.Int(&o.skip, "skip-bad-lines", "", 0, 0, 1<<30, "N", "lines that cannot be used and are no error")
	g = cli.NewGroup(c.Flags(), "Vocabulary")
	g.Enum(&o.pre, "pre", "", "llama-bpe", "NAME", []string{"gpt-2", "llama-bpe", "qwen2"},
		"how texts are cut into words, which tokens do not cross; digits: any number, three, one")
	g.Text(&o.template, "template", "", "", "NAME", "chat template: a name or a file; default: ChatML")
	g.Bool(&o.noTemplate, "no-template", "", "no chat template")
	g.Texts(&o.control, "control", "", "TOKEN", "a further control token, as of another template, once or more")
}

// scratchShapes are the names of shapes that can be begun with.
func scratchShapes() []string {
	var list []string
	for _, name := range synth.Names() {
		if s, err := synth.Find(name); err == nil && scratch.Check(s) == nil {
			list = append(list, name)
		}
	}
	return list
}

// newModel is what cktrain new makes.
type newModel struct {
	path   string
	folder bool
	shape  synth.Shape
	typ    quant.Type
	m      *gguf.Model
	v      *bpe.Vocabulary
	data   dataset.Stats
	bytes  int64 // of the file or the folder's files; of a folder that is not written of its tensors
}

// runNew is cktrain new.
func (p *program) runNew(c *cobra.Command, args []string) error {
	n, err := p.plannedNew(args)
	if err != nil {
		return err
	}
	template, err := p.newTemplate()
	if err != nil {
		return err
	}
	if err := p.alone(); err != nil {
		return err
	}
	workers := p.workers()
	if err := p.learn(c.Context(), n, template, workers); err != nil {
		return err
	}
	if err := scratch.AddVocabulary(n.m, n.v); err != nil {
		return err
	}
	if n.bytes = tensorBytes(n.m); !n.folder {
		if n.bytes, err = scratch.Bytes(n.m); err != nil {
			return err
		}
	}
	if !p.fresh.dryRun {
		if err := p.writeNew(c.Context(), n, workers); err != nil {
			return err
		}
	}
	return p.printNew(n)
}

// plannedNew is the model without its vocabulary. What the flags have wrong is found before anything is read.
func (p *program) plannedNew(args []string) (*newModel, error) {
	o := &p.fresh
	switch {
	case o.out == "":
		return nil, cli.Usage("no output: name a file or a folder with -o")
	case o.out == "-":
		return nil, cli.Usage("-o -: stdout has what is said of the model; name a file")
	case len(o.files) == 0:
		return nil, cli.Usage("no data: name files with -d; the vocabulary is learned from them")
	case p.app.Given("model"):
		return nil, cli.Usage("--model: new takes none; cktrain run trains one that is there")
	}
	n := &newModel{path: o.out, typ: map[string]quant.Type{"f32": quant.F32, "bf16": quant.BF16}[o.typ]}
	n.folder = isFolder(o.out)
	if n.folder && o.raw {
		return nil, cli.Usage("--raw: a folder cannot say it; write a GGUF file")
	}
	if _, err := os.Lstat(filepath.Clean(o.out)); err == nil && !o.force && !o.dryRun {
		return nil, cli.Usage("%s: exists; --force overwrites it", o.out)
	}
	var err error
	if n.shape, err = p.newShape(args); err != nil {
		return nil, err
	}
	name := o.name
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(filepath.Clean(o.out)), ".gguf")
	}
	if n.m, err = scratch.Model(n.shape, scratch.Options{Name: name, Type: n.typ, Seed: uint64(o.seed), Raw: o.raw}); err != nil {
		return nil, cli.Usage("new: %v", err)
	}
	if _, _, err := engine.GraphOf(n.m); err != nil {
		return nil, cli.Usage("new: %v", err)
	}
	room := (*convert.RoomError)(nil)
	if err := convert.CheckRoom(filepath.Dir(filepath.Clean(o.out)), tensorBytes(n.m)); errors.As(err, &room) && !o.dryRun {
		return nil, cli.Resource("%w", err)
	}
	return n, nil
}

// isFolder reports whether an output is a folder: by the / at its end, or because it is one.
func isFolder(path string) bool {
	if strings.HasSuffix(path, "/") {
		return true
	}
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

func tensorBytes(m *gguf.Model) (n int64) {
	for _, t := range m.Tensors {
		n += t.Bytes()
	}
	return n
}

// newShape reads the word and the flags of the shape.
func (p *program) newShape(args []string) (s synth.Shape, err error) {
	o := &p.fresh
	switch len(args) {
	case 0:
		if missing := o.sizes.Missing(); missing != "" {
			return s, cli.Usage("--%s: is needed for a shape of your own; or name one of %s", missing, strings.Join(scratchShapes(), ", "))
		}
		s = scratch.Own(o.arch)
		s.Context, s.RopeBase = ownContext, ownBase
		if s = o.sizes.Own(s); o.sizes.HeadDim == 0 && s.Hidden%s.Heads != 0 {
			return s, cli.Usage("--heads: %d are no divisor of --hidden %d; give the elements of a head with --head-dim", s.Heads, s.Hidden)
		}
	case 1:
		if p.app.Given("arch") {
			return s, cli.Usage("--arch: %s has one; leave one of the two out", args[0])
		}
		if s, err = synth.Find(args[0]); err != nil {
			return s, cli.Usage("new: shape %q is unknown; the names are %s", args[0], strings.Join(scratchShapes(), ", "))
		}
		s = o.sizes.In(s)
	default:
		return s, cli.Usage("new: takes one SHAPE; see cktrain new --help")
	}
	if o.context > 0 {
		s.Context = o.context
	}
	if o.ropeBase > 0 {
		s.RopeBase = float32(o.ropeBase)
	}
	if o.tied || p.app.Given("tied") {
		s.Tied = o.tied
	}
	return s, nil
}

// newTemplate is the source of the chat template. That of ChatML begins with the token that stands before every text, as readers want it that add none.
func (p *program) newTemplate() (string, error) {
	o := &p.fresh
	name := o.template
	switch {
	case o.noTemplate && name != "":
		return "", cli.Usage("--template: --no-template says that there is none; leave one of the two out")
	case o.noTemplate:
		return "", nil
	case name == "":
		name = "chatml"
	}
	source, err := generate.TemplateSource(name)
	if errors.Is(err, generate.ErrTemplateName) {
		return "", cli.Usage("--template: %v", err)
	}
	if o.template == "" && err == nil {
		source = "{{- bos_token }}" + source
	}
	return source, err
}

// learn learns the vocabulary.
func (p *program) learn(ctx context.Context, n *newModel, template string, workers int) error {
	o := &p.fresh
	total := int64(0)
	for _, path := range o.files {
		if st, err := os.Stat(path); err == nil {
			total += st.Size()
		}
	}
	reading := p.app.NewProgress("reading", "MB", total/1e6)
	defer reading.Done()
	var learning *cli.Progress
	defer func() { learning.Done() }()
	opt := scratch.LearnOptions{Vocab: n.shape.Vocab, Pre: o.pre, Template: template, Control: o.control, SkipBadLines: o.skip, Workers: workers}
	opt.Read = func(bytes int64) { reading.Reach(float64(bytes) / 1e6) }
	opt.Learned = func(learned int) {
		if learning == nil {
			reading.Done()
			learning = p.app.NewProgress("learning", "tokens", int64(n.shape.Vocab))
		}
		learning.At(int64(learned))
	}
	var err error
	n.v, n.data, err = scratch.Learn(ctx, o.files, opt)
	reading.Done()
	option, line := (*scratch.OptionError)(nil), (*dataset.LineError)(nil)
	switch {
	case err == nil:
	case errors.As(err, &option):
		return cli.Usage("new: %w", err)
	case errors.As(err, &line), errors.Is(err, dataset.ErrEmpty), ctx.Err() != nil:
		return err
	default:
		return cli.Input("%w", err)
	}
	if n.data.Skipped > 0 {
		p.app.Warn("%d lines could not be used and were skipped", n.data.Skipped)
	}
	for _, b := range n.data.Bad {
		p.app.Info("left out: %v", b)
	}
	return nil
}

// writeNew writes the file or the folder.
func (p *program) writeNew(ctx context.Context, n *newModel, workers int) error {
	bar := p.app.NewProgress("writing", "MB", tensorBytes(n.m)/1e6)
	defer bar.Done()
	progress := func(written int64) { bar.Reach(float64(written) / 1e6) }
	if n.folder {
		texts, err := tokenizerTexts(n.v)
		if err != nil {
			return err
		}
		n.bytes, err = p.writeFolder(ctx, n.path, n.m, hf.WriteOptions{Type: n.typ, Texts: texts, Force: p.fresh.force, Progress: progress})
		return err
	}
	f, err := p.app.Create(n.path, p.fresh.force)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := scratch.Write(ctx, f, n.m, workers, progress); err != nil {
		return err
	}
	return f.Commit()
}

// tokenizerTexts are the files of a vocabulary in a folder.
func tokenizerTexts(v *bpe.Vocabulary) (map[string][]byte, error) {
	files, err := v.Files()
	if err != nil {
		return nil, err
	}
	texts := map[string][]byte{}
	for _, f := range files {
		texts[f.Name] = f.Data
	}
	return texts, nil
}

// writeFolder writes a model as a folder, and says how many bytes its files have.
func (p *program) writeFolder(ctx context.Context, dir string, m *gguf.Model, o hf.WriteOptions) (bytes int64, err error) {
	o.Begun = p.app.OnExit
	dir = filepath.Clean(dir)
	var path *fs.PathError
	switch err := hf.Write(ctx, dir, m, o); {
	case err == nil:
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case errors.Is(err, fs.ErrExist):
		return 0, cli.Usage("%s: exists; --force overwrites it", dir)
	case errors.As(err, &path):
		return 0, cli.Resource("%w", err)
	default:
		return 0, cli.Usage("%w", err)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			bytes += st.Size()
		}
	}
	return bytes, err
}

// printNew says what the model is.
func (p *program) printNew(n *newModel) error {
	textBytes, textTokens := n.v.From()
	each := float64(textBytes) / float64(max(1, textTokens))
	parts := scratch.Parts(n.m)
	if p.app.Common.JSON {
		type vocabulary struct {
			Tokens int     `json:"tokens"`
			Pre    string  `json:"pre"`
			Each   float64 `json:"bytes_per_token"`
		}
		type data struct {
			Examples int   `json:"examples"`
			Skipped  int   `json:"skipped_lines"`
			Bytes    int64 `json:"bytes"`
			Tokens   int64 `json:"tokens"`
		}
		return p.app.PrintJSON(struct {
			Schema     string         `json:"schema"`
			Model      string         `json:"model"`
			Written    bool           `json:"written"`
			Arch       string         `json:"architecture"`
			Type       string         `json:"type"`
			Parts      []scratch.Part `json:"parts"`
			Vocabulary vocabulary     `json:"vocabulary"`
			Data       data           `json:"data"`
			Bytes      int64          `json:"bytes"`
			Warnings   []string       `json:"warnings"`
		}{"ck.train.new/1", n.path, !p.fresh.dryRun, n.shape.Arch, n.typ.String(), parts, vocabulary{n.v.Size(), p.fresh.pre, each},
			data{n.data.Examples, n.data.Skipped, textBytes, textTokens}, n.bytes, p.app.Warnings()})
	}
	t := plaintext.Table{Head: []string{"what", "value"}, Right: []bool{false, true}}
	row := func(what, format string, args ...any) {
		t.Rows = append(t.Rows, []string{what, fmt.Sprintf(format, args...)})
	}
	row("model", "%s", n.path)
	for _, part := range parts {
		row("parameters: "+part.Name, "%d", part.Parameters)
	}
	row("vocabulary", "%d", n.v.Size())
	row("bytes of the data's text", "%d", textBytes)
	row("its tokens", "%d", textTokens)
	row("bytes per token", "%.3f", each)
	row("bytes of the model", "%d", n.bytes)
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}
