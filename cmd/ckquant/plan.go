package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"ck/internal/allocate"
	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/plaintext"
	"ck/internal/quality"
	"ck/internal/quant"
)

// planOptions are the flags of ckquant plan, and of quantize where it plans.
type planOptions struct {
	file          string
	block, blocks int
	maxSize       int64
	maxKLD        float64
	price         string
	strategy      string
	types         []string
	save          string
	resume, force bool
}

const planLong = `Measures what each tensor loses in each type, and what loss costs in each class of tensors: that class alone is quantized, and the KL divergence from the original is taken on the text. From both it predicts the divergence of every choice of types, and finds the best choice of each size.

The table has the named recipes beside the best choice of the same price. --for says what is paid for: the bytes of the file, or the bytes that ckrun reads for each token, which are those of its panels. --max-size or --max-kld choose; quantize with the same flags writes that file. -o keeps the measurements, --resume goes on with them.

  ckquant plan -m bf16.gguf -f text.txt
  ckquant quantize bf16.gguf small.gguf Q4_K_M --max-size 4G -f text.txt`

func (p *program) planCommand() {
	o := &p.planned
	c := p.app.NewCommand("plan [flags]", "the best types for a size", planLong, p.runPlan)
	o.flags(c)
	g := cli.NewGroup(c.Flags(), "Measurements")
	g.Text(&p.quantize.imatrix, "imatrix", "", "", "FILE", "importance matrix, GGUF or .dat")
	g.Text(&o.save, "output", "o", "", "FILE", "keep the measurements")
	g.Bool(&o.resume, "resume", "", "go on with those of the file of -o")
	g.Bool(&o.force, "force", "", "overwrite the file of -o")
}

// flags are those that quantize has too.
func (o *planOptions) flags(c *cobra.Command) {
	g := cli.NewGroup(c.Flags(), "Planning")
	g.Text(&o.file, "file", "f", "", "FILE", "the text that divergences are taken on; - is stdin")
	g.Int(&o.block, "ctx-size", "c", 256, 8, maxTokens, "N", "tokens of a block; the second half counts")
	g.Int(&o.blocks, "blocks", "", 16, 1, maxTokens, "N", "evaluate the first N blocks")
	g.Size(&o.maxSize, "max-size", "", 0, "SIZE", "the best choice whose file has at most SIZE")
	g.Float(&o.maxKLD, "max-kld", "", 0, 0, math.MaxFloat64, "X",
		"the cheapest choice whose predicted KL divergence is at most X; 0: no bound")
	g.Enum(&o.price, "for", "", "size", "PRICE", []string{"size", "speed"},
		"what is paid for: bytes of the file, or bytes read for each token")
	g.Enum(&o.strategy, "strategy", "", "divergence", "RULE", []string{"divergence", "entropy"},
		"how types are chosen: by divergence, or bits as the entropies of tensors differ")
	g.Texts(&o.types, "candidate", "", "TYPE",
		"a type to choose from; may be repeated; default: all that ckrun has kernels for")
}

// measured is what plan keeps.
type measured struct {
	Schema  string            `json:"schema"`
	Facts   []convert.Fact    `json:"facts"`
	Tensors []allocate.Tensor `json:"tensors"`
	Probes  []allocate.Probe  `json:"probes"`
}

const measuredSchema = "ck.quant.plan.measured/1"

// candidates are the types that are tried without --candidate: those with kernels that some recipe makes of matrices.
var candidates = []quant.Type{quant.Q2_K, quant.IQ2_XXS, quant.IQ2_XS, quant.IQ2_S, quant.IQ3_XXS, quant.IQ3_S,
	quant.Q3_K, quant.IQ4_XS, quant.IQ4_NL,
	quant.Q4_0, quant.Q4_K, quant.Q5_0, quant.Q5_K, quant.Q6_K, quant.Q8_0, quant.F16, quant.BF16}

// runPlan is ckquant plan.
func (p *program) runPlan(c *cobra.Command, args []string) error {
	path, ok := p.modelWord(args)
	if !ok {
		return cli.Usage("plan: takes one model, as -m or as a word; see ckquant plan --help")
	}
	m, err := p.open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	x, err := p.openImatrix(m)
	if err != nil {
		return err
	}
	data, err := p.measure(c.Context(), m, x)
	if err != nil {
		return err
	}
	return p.printPlanned(m, data)
}

// measure makes the measurements, or goes on with kept ones.
func (p *program) measure(ctx context.Context, m *gguf.Model, x *importances) (*measured, error) {
	o := &p.planned
	if o.file == "" {
		return nil, cli.Usage("-f/--file: is needed: divergences are taken on a text")
	}
	importance := func(t *gguf.Tensor) []float32 {
		w, err := x.of(t, quant.Q8_0)
		if err != nil {
			return nil // of another shape: without, and quantizing says so
		}
		return w
	}
	text, err := p.app.ReadText(o.file)
	if err != nil {
		return nil, err
	}
	g, err := generate.Open(m.Path)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	blocks, err := p.cut(g, text, o.file, o.block, o.blocks)
	if err != nil {
		return nil, err
	}
	types, err := p.candidateTypes()
	if err != nil {
		return nil, err
	}
	data := &measured{Schema: measuredSchema}
	if data.Facts, err = facts(m, convert.Fact{Name: "the text", Value: blocks.Hash()},
		convert.Fact{Name: "--candidate", Value: list(o.types)},
		convert.Fact{Name: "--imatrix", Value: x.fact()}); err != nil {
		return nil, err
	}
	if err := p.takeMeasured(data); err != nil {
		return nil, err
	}
	workers, err := p.workers()
	if err != nil {
		return nil, err
	}
	if data.Tensors == nil {
		if err := p.measureTensors(ctx, m, data, types, importance, workers); err != nil {
			return nil, err
		}
	}
	if err := p.probe(ctx, m, data, blocks, importance, workers); err != nil {
		return nil, err
	}
	return data, p.keepMeasured(data)
}

// candidateTypes are the types to choose from.
func (p *program) candidateTypes() ([]quant.Type, error) {
	if len(p.planned.types) == 0 {
		return candidates, nil
	}
	var list []quant.Type
	for _, name := range p.planned.types {
		t, err := findType("--candidate", name)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// measureTensors finds the errors of all tensors.
func (p *program) measureTensors(ctx context.Context, m *gguf.Model, data *measured, types []quant.Type,
	importance allocate.Importance, workers int) error {
	features, err := p.features()
	if err != nil {
		return err
	}
	tier := isa.Best(features)
	reads, err := allocate.ReadsOf(m, tier, features)
	if err != nil {
		return &convert.InputError{Err: err}
	}
	bar := p.app.NewProgress("measuring errors", "tensors", int64(len(m.Tensors)))
	defer bar.Done()
	data.Tensors, err = allocate.Measure(ctx, m, quantizable, types, importance, reads, features, workers, bar.At)
	return err
}

// quantizable reports whether recipes touch a tensor.
func quantizable(t *gguf.Tensor) bool {
	return quant.RecipeTensor{Name: t.Name, Shape: t.Shape, Type: t.Type}.Quantizable()
}

// probe tries the classes that have not been tried yet, and keeps what it finds after each.
func (p *program) probe(ctx context.Context, m *gguf.Model, data *measured, blocks quality.Text,
	importance allocate.Importance, workers int) error {
	base, err := engine.Open(m, p.engineOptions(2))
	if err != nil {
		return err
	}
	defer base.Close()
	features, err := p.features()
	if err != nil {
		return err
	}
	classes := allocate.Classes(data.Tensors)
	bar := p.app.NewProgress("trying classes of tensors", "tokens", int64(len(classes)*len(blocks.IDs)))
	defer bar.Done()
	for i, class := range classes {
		if slices.ContainsFunc(data.Probes, func(q allocate.Probe) bool { return q.Class == class }) {
			continue
		}
		q, err := allocate.Try(ctx, m, data.Tensors, class, importance, features, workers,
			func(changed *gguf.Model) (float64, error) {
				return p.divergence(ctx, base, changed, blocks,
					func(n int64) { bar.At(int64(i*len(blocks.IDs)) + n) })
			})
		if err != nil {
			return err
		}
		p.app.Info("class %s in %s: KL divergence %.6f", class, q.Type, q.Divergence)
		data.Probes = append(data.Probes, q)
		if err := p.keepMeasured(data); err != nil {
			return err
		}
	}
	return nil
}

// divergence is the mean KL divergence of a changed model from the base.
func (p *program) divergence(ctx context.Context, base *engine.Engine, changed *gguf.Model, blocks quality.Text,
	at func(int64)) (float64, error) {
	e, err := engine.Open(changed, p.engineOptions(2))
	if err != nil {
		return 0, err
	}
	defer e.Close()
	release := base.Hold()
	defer release()
	_, tally, err := quality.EvaluatePair(ctx, quality.OfEngine(base), quality.OfEngine(e), blocks, at)
	if err != nil {
		return 0, err
	}
	kld, _ := tally.KLD()
	return kld.Value, nil
}

// takeMeasured reads what an earlier run kept, if --resume is given and it is of the same input.
func (p *program) takeMeasured(data *measured) error {
	o := &p.planned
	if o.save == "" {
		return nil
	}
	b, err := os.ReadFile(o.save)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case o.force:
		return nil
	case !o.resume:
		return cli.Usage("%s: exists; --resume goes on with it, --force overwrites it", o.save)
	}
	var old measured
	if err := json.Unmarshal(b, &old); err != nil || old.Schema != measuredSchema {
		return cli.Input("%s: is no file of ckquant plan; --force overwrites it", o.save)
	}
	if !slices.Equal(old.Facts, data.Facts) {
		return cli.Usage("%s: is of another model, text or list of candidates; give what it was made of, or --force",
			o.save)
	}
	for i := range old.Tensors {
		for j := range old.Tensors[i].Options {
			x := &old.Tensors[i].Options[j]
			t, ok := quant.Parse(x.Name)
			if !ok {
				return cli.Input("%s: %q is no type; --force overwrites the file", o.save, x.Name)
			}
			x.Type = t
		}
	}
	data.Tensors, data.Probes = old.Tensors, old.Probes
	return nil
}

// keepMeasured writes the file of -o.
func (p *program) keepMeasured(data *measured) error {
	o := &p.planned
	if o.save == "" {
		return nil
	}
	f, err := p.app.Create(o.save, true)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := plaintext.EncodeJSON(f, data); err != nil {
		return err
	}
	return f.Commit()
}

// sensitivities are those of the classes.
func (d *measured) sensitivities() map[string]float64 {
	s := map[string]float64{}
	for _, q := range d.Probes {
		s[q.Class] = q.Sensitivity()
	}
	return s
}

// price is what --for names.
func (o *planOptions) paidFor() allocate.Price {
	if o.price == "speed" {
		return allocate.Speed
	}
	return allocate.Size
}

// choose is the choice that --max-size or --max-kld ask for. Within a size the named recipes are tried too: where a
// tensor is a large part of the model, they may lie between choices of the frontier.
func (o *planOptions) choose(m *gguf.Model, data *measured, other int64) (allocate.Choice, error) {
	s := data.sensitivities()
	bytes := o.maxSize - other
	var choice allocate.Choice
	var err error
	switch {
	case o.maxSize > 0 && o.strategy == "entropy":
		choice, err = allocate.ByEntropy(data.Tensors, s, bytes)
	case o.maxSize > 0:
		var recipes []allocate.Choice
		if o.price == "size" {
			named, err := recipeChoices(m, data.Tensors, s)
			if err != nil {
				return choice, err
			}
			for i := range named {
				recipes = append(recipes, named[i].Choice)
			}
		}
		choice, err = allocate.Best(data.Tensors, s, o.paidFor(), bytes, recipes)
	default:
		choice, err = allocate.Below(allocate.Frontier(data.Tensors, s, o.paidFor()), o.maxKLD)
	}
	if err != nil {
		return choice, cli.Check("%w", err)
	}
	return choice, nil
}

// plannedRow is a row of the table.
type plannedRow struct {
	Name       string  `json:"recipe"`
	Bytes      int64   `json:"bytes"`
	Read       int64   `json:"read_per_token"`
	Divergence float64 `json:"kl_divergence"` // predicted
	BestBytes  int64   `json:"best_bytes"`
	BestRead   int64   `json:"best_read_per_token"`
	Best       float64 `json:"best_kl_divergence"`
}

// printPlanned prints the recipes beside the best choices, and the choice that was asked for.
func (p *program) printPlanned(m *gguf.Model, data *measured) error {
	o := &p.planned
	price := o.paidFor()
	tensors, beaten := allocate.Prune(data.Tensors, price)
	for _, b := range beaten {
		p.app.Info("%s is left out: %s is no dearer and no worse in any tensor", b.Type, b.By)
	}
	frontier := allocate.Frontier(tensors, data.sensitivities(), price)
	rows, err := recipeRows(m, data, frontier, price)
	if err != nil {
		return err
	}
	other := otherBytes(m)
	var chosen *allocate.Choice
	if o.maxSize > 0 || o.maxKLD > 0 {
		c, err := o.choose(m, data, other)
		if err != nil {
			return err
		}
		tensors, chosen = data.Tensors, &c
	}
	if p.app.Common.JSONL {
		return cli.PrintLines(p.app, "ck.quant.plan.recipe/1", rows)
	}
	if p.app.Common.JSON {
		doc := struct {
			Schema   string            `json:"schema"`
			Strategy string            `json:"strategy"`
			Classes  []allocate.Probe  `json:"classes"`
			Recipes  []plannedRow      `json:"recipes"`
			Bytes    int64             `json:"bytes,omitempty"`
			KLD      float64           `json:"kl_divergence,omitempty"`
			Types    map[string]string `json:"types,omitempty"`
		}{Schema: "ck.quant.plan/1", Strategy: p.planned.strategy, Classes: data.Probes, Recipes: rows}
		if chosen != nil {
			doc.Bytes, doc.KLD, doc.Types = chosen.Bytes+other, chosen.Divergence, map[string]string{}
			for i, t := range tensors {
				doc.Types[t.Name] = t.Options[chosen.Pick[i]].Name
			}
		}
		return p.app.PrintJSON(doc)
	}
	t := plaintext.Table{Head: []string{"recipe", "MB", "read MB", "KLD", "best MB", "read MB", "KLD"},
		Right: []bool{false, true, true, true, true, true, true}}
	mb := func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }
	for _, r := range rows {
		t.Rows = append(t.Rows, []string{r.Name, mb(r.Bytes), mb(r.Read), fmt.Sprintf("%.5f", r.Divergence),
			mb(r.BestBytes), mb(r.BestRead), fmt.Sprintf("%.5f", r.Best)})
	}
	if chosen != nil {
		t.Rows = append(t.Rows, []string{"chosen", "", "", "", mb(chosen.Bytes + other), mb(chosen.Read),
			fmt.Sprintf("%.5f", chosen.Divergence)})
		for i, x := range tensors {
			p.app.Info("%s: %s", x.Name, x.Options[chosen.Pick[i]].Name)
		}
	}
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}

// otherBytes is what a file has beside the tensors that are chosen for: keys, vectors, padding.
func otherBytes(m *gguf.Model) (n int64) {
	var infos []gguf.TensorInfo
	for _, t := range m.Tensors {
		if typ := t.Type; quantizable(t) {
			n -= int64(t.Rows()) * int64(typ.RowBytes(t.Cols()))
		}
		infos = append(infos, gguf.TensorInfo{Name: t.Name, Type: t.Type, Shape: t.Shape})
	}
	h, err := gguf.NewHeader(m.KV, infos)
	if err != nil {
		return 0
	}
	return n + h.Size
}

// namedChoice is what a recipe makes of the tensors that were measured.
type namedChoice struct {
	name string
	allocate.Choice
}

// recipeChoices are the named recipes whose types were measured, as choices among tensors.
func recipeChoices(m *gguf.Model, tensors []allocate.Tensor, sensitivity map[string]float64) ([]namedChoice, error) {
	about, err := convert.ModelOf(m)
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for i, t := range tensors {
		at[t.Name] = i
	}
	var ask []quant.RecipeTensor
	for _, t := range m.Tensors {
		ask = append(ask, quant.RecipeTensor{Name: t.Name, Shape: t.Shape, Type: t.Type})
	}
	var list []namedChoice
	for _, name := range quant.RecipeNames() {
		r, _ := quant.FindRecipe(name)
		pick, whole := make([]int, len(tensors)), true
		for i, typ := range r.Types(about, ask) {
			if j, ok := at[m.Tensors[i].Name]; ok {
				pick[j] = slices.IndexFunc(tensors[j].Options, func(o allocate.Option) bool { return o.Type == typ })
				whole = whole && pick[j] >= 0
			}
		}
		if whole {
			list = append(list, namedChoice{name, allocate.Of(tensors, pick, sensitivity)})
		}
	}
	return list, nil
}

// recipeRows predicts the named recipes, and the best choice at the price of each.
func recipeRows(m *gguf.Model, data *measured, frontier []allocate.Choice, price allocate.Price) ([]plannedRow,
	error) {
	recipes, err := recipeChoices(m, data.Tensors, data.sensitivities())
	if err != nil {
		return nil, err
	}
	other := otherBytes(m)
	paid := func(c *allocate.Choice) int64 { return price(&allocate.Option{Bytes: c.Bytes, Read: c.Read}) }
	var rows []plannedRow
	for i := range recipes {
		r := &recipes[i]
		row := plannedRow{Name: r.name, Bytes: r.Bytes + other, Read: r.Read, Divergence: r.Divergence,
			BestBytes: r.Bytes + other, BestRead: r.Read, Best: r.Divergence}
		for j := range frontier {
			if f := &frontier[j]; paid(f) <= paid(&r.Choice) && f.Divergence < row.Best {
				row.BestBytes, row.BestRead, row.Best = f.Bytes+other, f.Read, f.Divergence
			}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b plannedRow) int { return int(a.Bytes>>1 - b.Bytes>>1) })
	return rows, nil
}
