package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/adapter"
	"ck/internal/bpe"
	"ck/internal/cli"
	"ck/internal/convert"
	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/plaintext"
	"ck/internal/quant"
	"ck/internal/tokenizer"
	"ck/internal/train"
)

// mergeOptions are the flags of cktrain merge.
type mergeOptions struct {
	force, dryRun bool
	typ           string
}

const mergeLong = `Writes a model with an adapter added to its matrices, as ckrun runs it. ADAPTER is a file as llama.cpp has it, or a folder of PEFT. Matrices keep their float types; quantized ones that the adapter changes become --type, which ckquant quantizes again.

OUT is a GGUF file; with / at its end, or where it is a folder, it is a folder as Hugging Face lays it out, of models in such folders and of those that began with cktrain new. Its tensors have the type of the model's matrices if that is one, else --type. Without ADAPTER the model itself becomes a folder.`

func (p *program) mergeCommand() {
	c := p.app.NewCommand("merge [flags] [ADAPTER] OUT", "add an adapter to its model", mergeLong, p.runMerge)
	g := cli.NewGroup(c.Flags(), "Output")
	g.Bool(&p.out.force, "force", "", "overwrite OUT")
	g.Bool(&p.out.dryRun, "dry-run", "", "say what would be written, to the byte; -v names every tensor")
	g.Enum(&p.out.typ, "type", "", "bf16", "TYPE", []string{"bf16", "f16", "f32"}, "type of quantized matrices that change; of a folder's tensors, where matrices have several types")
}

func (p *program) runMerge(c *cobra.Command, args []string) error {
	alone := len(args) == 1 && isFolder(args[0])
	if len(args) != 2 && !alone {
		return cli.Usage("merge: takes ADAPTER OUT, or a folder OUT/ alone; see cktrain merge --help")
	}
	out := args[len(args)-1]
	if p.app.Common.Model == "" {
		return cli.Usage("no model: name the one that the adapter was trained beside with -m")
	}
	m, err := convert.Open(p.app.Common.Model, true)
	if err != nil {
		return err
	}
	defer m.Close()
	typ := map[string]quant.Type{"bf16": quant.BF16, "f16": quant.F16, "f32": quant.F32}[p.out.typ]
	if alone {
		return p.mergeFolder(c.Context(), out, m, m, typ)
	}
	a, err := readAdapter(args[0], m)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return err
		}
		return cli.Input("%w", err)
	}
	if isFolder(out) {
		merged, err := train.Merged(m, a, typ)
		if err != nil {
			return err
		}
		if err := p.mergeFolder(c.Context(), out, merged, m, typ); err != nil || p.out.dryRun {
			return err
		}
		p.app.Info("%d matrices have changed", len(a.Targets))
		return nil
	}
	if p.out.dryRun {
		return p.planFile(out, m, a, typ)
	}
	f, err := p.app.Create(out, p.out.force)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := train.Merge(f, m, a, typ); err != nil {
		return err
	}
	p.app.Info("%d matrices have changed", len(a.Targets))
	return f.Commit()
}

// mergeFolder writes a model as a folder, with configuration and tokenizer of the one that it was made from.
func (p *program) mergeFolder(ctx context.Context, dir string, m, from *gguf.Model, typ quant.Type) error {
	o := hf.WriteOptions{Type: typ, Force: p.out.force}
	if t, ok := hf.MatrixType(m); ok {
		o.Type = t
	}
	if err := folderFiles(&o, from); err != nil {
		return err
	}
	if mode, ok, err := from.KV.String("ck.prompt.default"); err == nil && ok {
		p.app.Warn("ck.prompt.default = %s: a folder cannot say it", mode)
	}
	if p.out.dryRun {
		files, err := hf.Planned(m, o)
		if err != nil {
			return cli.Usage("%w", err)
		}
		return p.printMerge(dir, files)
	}
	size := int64(0)
	for _, t := range m.Tensors {
		size += int64(t.Rows()) * int64(o.Type.RowBytes(t.Cols()))
	}
	bar := p.app.NewProgress("writing", "MB", size/1e6)
	defer bar.Done()
	o.Progress = func(written int64) { bar.Reach(float64(written) / 1e6) }
	_, err := p.writeFolder(ctx, dir, m, o)
	return err
}

// planFile says what a merged file would be.
func (p *program) planFile(out string, m *gguf.Model, a *adapter.Adapter, typ quant.Type) error {
	merged, err := train.Merged(m, a, typ)
	if err != nil {
		return err
	}
	h, err := train.Header(merged)
	if err != nil {
		return err
	}
	f := hf.PlannedFile{Bytes: h.Size}
	for i, t := range merged.Tensors {
		f.Tensors = append(f.Tensors, hf.PlannedTensor{Name: t.Name, Type: t.Type.String(), Bytes: h.Sizes[i]})
	}
	return p.printMerge(out, []hf.PlannedFile{f})
}

// printMerge says what --dry-run would have written: a file OUT, or files of a folder of that name.
func (p *program) printMerge(out string, files []hf.PlannedFile) error {
	type file struct {
		Path  string `json:"path"`
		Bytes int64  `json:"bytes"`
	}
	type sum struct {
		Type    string `json:"type"`
		Tensors int    `json:"tensors"`
		Bytes   int64  `json:"bytes"`
	}
	var list []file
	var types []sum
	all := int64(0)
	for _, f := range files {
		list = append(list, file{filepath.Join(out, f.Name), f.Bytes})
		all += f.Bytes
		for _, t := range f.Tensors {
			p.app.Info("%s %s: %d bytes", t.Name, t.Type, t.Bytes)
			i := slices.IndexFunc(types, func(s sum) bool { return s.Type == t.Type })
			if i < 0 {
				i, types = len(types), append(types, sum{Type: t.Type})
			}
			types[i].Tensors, types[i].Bytes = types[i].Tensors+1, types[i].Bytes+t.Bytes
		}
	}
	if exists(out) && !p.out.force {
		p.app.Note("%s: exists; --force overwrites it", out)
	}
	if p.app.Common.JSON {
		return p.app.PrintJSON(struct {
			Schema   string   `json:"schema"`
			Written  bool     `json:"written"`
			Bytes    int64    `json:"bytes"`
			Files    []file   `json:"files"`
			Types    []sum    `json:"types"`
			Warnings []string `json:"warnings"`
		}{"ck.train.merge/1", false, all, list, types, p.app.Warnings()})
	}
	t := plaintext.Table{Head: []string{"what", "tensors", "bytes"}, Right: []bool{false, true, true}}
	for _, s := range types {
		t.Rows = append(t.Rows, []string{s.Type, fmt.Sprint(s.Tensors), fmt.Sprint(s.Bytes)})
	}
	for _, f := range list {
		t.Rows = append(t.Rows, []string{f.Path, "", fmt.Sprint(f.Bytes)})
	}
	t.Rows = append(t.Rows, []string{"all files", "", fmt.Sprint(all)})
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}

// beside are the files of a folder that say how text becomes tokens, and what a conversation is.
var beside = []string{"tokenizer.json", "tekken.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"generation_config.json", "chat_template.jinja", "chat_template.json"}

// folderFiles are the files that go beside the weights: those of the model's folder, or those of the keys of its file.
func folderFiles(o *hf.WriteOptions, m *gguf.Model) (err error) {
	if isFolder(m.Path) {
		for _, name := range beside {
			if path := filepath.Join(m.Path, name); exists(path) {
				o.Files = append(o.Files, path)
			}
		}
		o.Config, err = os.ReadFile(filepath.Join(m.Path, "config.json"))
		return err
	}
	var keys []tokenizer.Key
	for _, name := range m.KV.Keys() {
		if strings.HasPrefix(name, "tokenizer.") {
			keys = append(keys, tokenizer.Key{Name: name, Value: m.KV.Value(name)})
		}
	}
	v, err := bpe.FromKeys(keys)
	if err != nil {
		return cli.Usage("%s: %v, so a folder cannot have it: name the model as the folder that it was converted from, or write a GGUF file", m.Path, err)
	}
	o.Texts, err = tokenizerTexts(v)
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readAdapter reads an adapter: a folder is PEFT's, a file llama.cpp's.
func readAdapter(path string, m *gguf.Model) (*adapter.Adapter, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return adapter.ReadPEFT(path, m, "")
	}
	return adapter.ReadGGUF(path, m)
}
