package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/allocate"
	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/gguf"
	"ck/internal/quant"
)

// quantizeOptions are the flags of ckquant quantize.
type quantizeOptions struct {
	types         []string
	imatrix       string
	method        string
	calibration   int
	embed, output string
	pure, requant bool
	keepSplit     bool
}

const quantizeLong = `Makes a file of RECIPE (Q4_K_M, IQ4_XS, …: mixtures of types, named as llama-quantize has them, in either case), or with all matrices in TYPE (NVFP4, …), byte for byte as llama-quantize. IN is a GGUF file or a Hugging Face folder: one pass from the folder to the quantized file.

--max-size or --max-kld with a text (-f) choose the best types themselves, as ckquant plan shows them; RECIPE may then be left out.

--tensor-type REGEX=TYPE gives all matrices whose name matches a type; the first that matches counts. Rows that do not fit a type's block get the type that llama-quantize falls back to; -v names them.`

func (p *program) quantizeCommand() {
	o := &p.quantize
	c := p.app.NewCommand("quantize [flags] IN OUT RECIPE|TYPE", "make a smaller file of a model",
		quantizeLong+"\n\nRecipes: "+strings.Join(quant.RecipeNames(), ", ")+".", p.runQuantize)
	cli.CompleteWords(c, true, nil, nil, quant.RecipeNames())
	g := cli.NewGroup(c.Flags(), "Types")
	g.Texts(&o.types, "tensor-type", "", "REGEX=TYPE", "the type of tensors whose names match; may be repeated")
	g.Text(&o.output, "output-type", "", "", "TYPE", "the type of the output matrix")
	g.Text(&o.embed, "embed-type", "", "", "TYPE", "the type of the embedding")
	g.Bool(&o.pure, "pure", "", "every matrix in the recipe's base type")
	g.Bool(&o.requant, "allow-requantize", "", "quantize what is quantized already")
	g = cli.NewGroup(c.Flags(), "Codes")
	g.Text(&o.imatrix, "imatrix", "", "", "FILE", "importance matrix, GGUF or .dat")
	g.Enum(&o.method, "method", "", "search", "METHOD", []string{"search", "feedback"},
		"codes as llama-quantize chooses them, or with error feedback through a text (-f)")
	g.Int(&o.calibration, "calibration-blocks", "", 0, 1, maxTokens, "N",
		"blocks of the text that --method feedback evaluates; default: all")
	p.planned.flags(c)
	p.out.flags(c)
	p.out.splitFlag(c)
	p.out.compressFlag(c)
	cli.NewGroup(c.Flags(), "Output").Bool(&o.keepSplit, "keep-split", "", "write the parts that IN has")
}

// runQuantize is ckquant quantize.
func (p *program) runQuantize(c *cobra.Command, args []string) error {
	planned := p.planned.maxSize > 0 || p.planned.maxKLD > 0
	if planned && len(args) == 2 {
		args = append(args, plannedRecipe)
	}
	if err := words(c, args, " RECIPE"); err != nil {
		return err
	}
	choice, err := p.choice(args[2])
	if err != nil {
		return err
	}
	m, err := p.open(args[0])
	if err != nil {
		return err
	}
	defer m.Close()
	x, err := p.openImatrix(m)
	if err != nil {
		return err
	}
	choice.Importance = x != nil
	types, notes, err := choice.Types(m)
	if err != nil {
		return err
	}
	if planned {
		if err := p.planTypes(c.Context(), m, choice, types, x); err != nil {
			return err
		}
	}
	for _, n := range notes {
		p.app.Info("%s", n)
	}
	tensors, err := tensorsOf(m, types, x)
	if err != nil {
		return err
	}
	o := &p.quantize
	text := ""
	if o.method == "feedback" {
		cal, err := p.prepareFeedback(c.Context(), m, tensors, x)
		if err != nil {
			return err
		}
		defer cal.close()
		if text, err = p.textFact(); err != nil {
			return err
		}
	}
	kv := choice.Metadata(m.KV)
	x.keys(kv)
	return p.plan(c, m, kv, tensors,
		convert.Output{Path: args[1], PartBytes: p.out.partBytes, Compress: p.out.compress,
			As: o.keepSplit && len(m.Files()) > 1},
		convert.Fact{Name: "the recipe", Value: choice.Recipe.Name}, convert.Fact{Name: "--tensor-type",
			Value: list(o.types)},
		convert.Fact{Name: "--output-type", Value: o.output}, convert.Fact{Name: "--embed-type", Value: o.embed},
		convert.Fact{Name: "--imatrix", Value: x.fact()}, convert.Fact{Name: "--method",
			Value: map[bool]string{true: o.method}[o.method != "search"]},
		convert.Fact{Name: "the text of --method feedback", Value: text}, convert.Fact{Name: "the types of tensors",
			Value: typesFact(types)}, convert.Fact{Name: "--pure", Value: map[bool]string{true: "yes"}[choice.Pure]})
}

// plannedRecipe is what says how a file that is planned calls itself, where no recipe is named.
const plannedRecipe = "Q4_K_M"

// planTypes replaces types by those of the best choice within --max-size or --max-kld, but where a rule names the
// type.
func (p *program) planTypes(ctx context.Context, m *gguf.Model, choice *convert.Choice, types []quant.Type,
	x *importances) error {
	data, err := p.measure(ctx, m, x)
	if err != nil {
		return err
	}
	tensors := data.Tensors
	chosen, err := p.planned.choose(m, data, otherBytes(m))
	if err != nil {
		return err
	}
	for i, t := range m.Tensors {
		j := slices.IndexFunc(tensors, func(x allocate.Tensor) bool { return x.Name == t.Name })
		if j < 0 || slices.ContainsFunc(choice.Rules,
			func(r convert.Rule) bool { return r.Name.MatchString(t.Name) }) {
			continue
		}
		types[i] = tensors[j].Options[chosen.Pick[j]].Type
	}
	p.app.Info("predicted KL divergence %.5f, %d bytes of matrices", chosen.Divergence, chosen.Bytes)
	return nil
}

// choice reads the flags.
func (p *program) choice(recipe string) (*convert.Choice, error) {
	o := &p.quantize
	r, pure, err := convert.FindRecipe(recipe)
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	c := &convert.Choice{Recipe: r, Pure: pure || o.pure, Requantize: o.requant}
	for _, f := range []struct {
		flag, value string
		to          **quant.Type
	}{{"--output-type", o.output, &c.Output}, {"--embed-type", o.embed, &c.Embed}} {
		if f.value == "" {
			continue
		}
		t, err := findType(f.flag, f.value)
		if err != nil {
			return nil, err
		}
		*f.to = &t
	}
	for _, text := range o.types {
		expr, name, ok := cutLast(text, "=")
		if !ok {
			return nil, cli.Usage("--tensor-type %s: takes REGEX=TYPE, as ffn_down=Q6_K", text)
		}
		re, err := regexp.Compile(expr)
		if err != nil {
			return nil, cli.Usage("--tensor-type %s: %w", text, err)
		}
		t, err := findType("--tensor-type", name)
		if err != nil {
			return nil, err
		}
		c.Rules = append(c.Rules, convert.Rule{Name: re, Type: t})
	}
	if o.keepSplit && p.out.partBytes > 0 {
		return nil, cli.Usage("--keep-split and --split-max-size: only one of them; they say different parts")
	}
	return c, nil
}

// textFact tells texts of calibration apart.
func (p *program) textFact() (string, error) {
	if p.planned.file == "" {
		return "", nil
	}
	text, err := p.app.ReadText(p.planned.file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x, %d blocks", sum[:8], p.quantize.calibration), nil
}

// typesFact tells lists of types apart.
func typesFact(types []quant.Type) string {
	h := sha256.New()
	for _, t := range types {
		fmt.Fprintln(h, t)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// cutLast cuts a text at the last separator.
func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// findType is a type of matrices by its name.
func findType(flag, name string) (quant.Type, error) {
	t, near := convert.FindType(name)
	if near != nil {
		return 0, cli.Usage("%s: %.60q is no type of matrices; near it are %s", flag, name,
			strings.Join(slices.Clip(near), ", "))
	}
	return t, nil
}
