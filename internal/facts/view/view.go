// Package view writes the facts of a model for people, and one a line for diff.
package view

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"ck/internal/facts"
	"ck/internal/humanize"
	"ck/internal/plaintext"
)

// Options say what is shown beside the facts.
type Options struct {
	All     bool // metadata whole
	Tensors bool // the list
	Plain   bool
}

// Section is a table with its heading.
type Section struct {
	Title string
	Table plaintext.Table
}

// Sections are the facts as tables.
func Sections(f *facts.Facts, o Options) []Section {
	list := []Section{{"model", model(f)}, {"classes", groups("class", f.Classes)}}
	if len(f.Types) > 1 {
		list = append(list, Section{"types", groups("type", f.Types)})
	}
	if len(f.Metadata) > 0 {
		list = append(list, Section{"metadata", metadata(f, o.All)})
	}
	if o.Tensors && len(f.Tensors) > 0 {
		list = append(list, Section{"tensors", tensors(f)})
	}
	return list
}

func params(n int64) string {
	if n < 10_000 {
		return fmt.Sprint(n)
	}
	return humanize.Count(float64(n))
}

// model has a fact a row.
func model(f *facts.Facts) plaintext.Table {
	t := plaintext.Table{Head: []string{"fact", "value"}, Right: []bool{false, false}}
	add := func(name, format string, args ...any) {
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf(format, args...)})
	}
	if f.Name != "" {
		add("name", "%s", f.Name)
	}
	add("form", "%s, %s, %s", f.Form, humanize.Plural(len(f.Files), "file"), humanize.IBytes(f.Bytes))
	if f.Architecture != "" {
		add("architecture", "%s, %s", f.Architecture, humanize.Plural(f.Layers, "layer"))
	}
	s := params(f.Params)
	if f.Embedding > 0 {
		s += fmt.Sprintf(", %s of them the embedding", params(f.Embedding))
	}
	if f.Active != f.Params {
		s += fmt.Sprintf("; a token uses %s", params(f.Active))
	}
	add("parameters", "%s; %.2f bits each", s, f.BitsPer)
	if r := f.Run; r != nil {
		add("read per token", "%s in the file's form, %s in panels", humanize.IBytes(r.FileToken), humanize.IBytes(r.Token))
		add("KV cache", "%s a token in F16, %s for %d", humanize.IBytes(r.KVPosition), humanize.IBytes(r.KV), r.Context)
		add("memory", "%s for a context of %d: panels, cache, activations", humanize.IBytes(r.Memory), r.Context)
	} else {
		add("run", "not known: %s", f.NoRun)
	}
	tokens(f, add)
	switch {
	case f.Template != "":
		add("chat template", "%s, %s; --template prints it", humanize.Plural(len(f.Template), "byte"), humanize.Plural(1+strings.Count(f.Template, "\n"), "line"))
	default:
		add("chat template", "none")
	}
	for _, l := range f.Left {
		add("left out", "%s %s", l.Name, l.Why)
	}
	return t
}

// tokens adds the facts of the vocabulary.
func tokens(f *facts.Facts, add func(name, format string, args ...any)) {
	t := f.Tokenizer
	if t == nil {
		add("tokenizer", "none: %s", f.NoTokenizer)
		return
	}
	s := t.Kind
	if t.Pre != "" {
		s += ", " + t.Pre
	}
	s += ", " + humanize.Plural(t.Tokens, "token")
	var kinds []string
	for k := range t.ByType {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b string) int {
		if d := t.ByType[b] - t.ByType[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, k := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", t.ByType[k], k)
	}
	if len(kinds) > 1 {
		s += ": " + strings.Join(kinds, ", ")
	}
	add("tokenizer", "%s", s)
	edge := func(name string, id *int32, adds bool) {
		switch {
		case id != nil && adds:
			add(name, "%d, added to texts", *id)
		case id != nil:
			add(name, "%d", *id)
		}
	}
	edge("BOS", t.BOS, t.AddsBOS)
	edge("EOS", t.EOS, t.AddsEOS)
	if f.NoTokenizer != "" {
		add("tokenizer", "cannot be used: %s", f.NoTokenizer)
	}
}

func groups(what string, list []facts.Group) plaintext.Table {
	t := plaintext.Table{Head: []string{what, "tensors", "parameters", "bytes", "bits each"}, Right: []bool{false, true, true, true, true}}
	if what == "class" {
		t.Head, t.Right = append(t.Head, "types"), append(t.Right, false)
	}
	for _, g := range list {
		row := []string{g.Name, fmt.Sprint(g.Tensors), params(g.Params), humanize.IBytes(g.Bytes), fmt.Sprintf("%.2f", g.BitsPer)}
		if what == "class" {
			row = append(row, strings.Join(g.Types, " "))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// most is how much of a value is shown.
const most = 60

func metadata(f *facts.Facts, all bool) plaintext.Table {
	t := plaintext.Table{Head: []string{"key", "type", "value"}, Right: []bool{false, false, false}}
	for _, k := range f.Metadata {
		t.Rows = append(t.Rows, []string{k.Name, k.Type, value(k.Value, all)})
	}
	return t
}

// value is a value in a line: text as it is, of arrays the first elements and their number; all of it if asked for.
func value(v any, all bool) string {
	if s, ok := v.(string); ok {
		if len(s) > most && !all {
			return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
		}
		return s
	}
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Slice {
		return fmt.Sprint(v)
	}
	var b strings.Builder
	for i := range r.Len() {
		if i > 0 {
			b.WriteString(", ")
		}
		if b.Len() > most && !all {
			fmt.Fprintf(&b, "… (%d elements)", r.Len())
			break
		}
		if e := r.Index(i).Interface(); r.Index(i).Kind() == reflect.String {
			fmt.Fprintf(&b, "%q", e)
		} else {
			fmt.Fprint(&b, e)
		}
	}
	return "[" + b.String() + "]"
}

func tensors(f *facts.Facts) plaintext.Table {
	t := plaintext.Table{Head: []string{"tensor", "type", "shape", "bytes", "offset"}, Right: []bool{false, false, false, true, true}}
	several, hashed := len(f.Files) > 1, false
	for i := range f.Tensors {
		hashed = hashed || f.Tensors[i].SHA256 != ""
	}
	if several {
		t.Head, t.Right = append(t.Head, "file"), append(t.Right, false)
	}
	if hashed {
		t.Head, t.Right = append(t.Head, "SHA-256"), append(t.Right, false)
	}
	for _, x := range f.Tensors {
		row := []string{x.Name, x.Type, shape(x.Shape), fmt.Sprint(x.Bytes), fmt.Sprint(x.Offset)}
		if several {
			row = append(row, x.File)
		}
		if hashed {
			row = append(row, x.SHA256)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func shape(s []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(s), "[]"), " ", "×")
}

// Diffable writes one fact a line, in the order of names, without what depends on the place of the file or on how it is
// cut: two models differ where their lines do.
func Diffable(w io.Writer, f *facts.Facts) error {
	lines := []string{"architecture\t" + f.Architecture, fmt.Sprintf("parameters\t%d", f.Params), fmt.Sprintf("layers\t%d", f.Layers)}
	if f.Run != nil {
		lines = append(lines, fmt.Sprintf("run kv bytes per token\t%d", f.Run.KVPosition), fmt.Sprintf("run bytes per token\t%d", f.Run.Token))
	}
	for _, g := range f.Classes {
		lines = append(lines, fmt.Sprintf("class %s\t%d tensors, %d parameters, %d bytes, %s", g.Name, g.Tensors, g.Params, g.Bytes, strings.Join(g.Types, " ")))
	}
	for _, k := range f.Metadata {
		if r := reflect.ValueOf(k.Value); r.Kind() == reflect.Slice {
			for i := range r.Len() {
				lines = append(lines, fmt.Sprintf("metadata %s[%d]\t%#v", k.Name, i, r.Index(i).Interface()))
			}
			continue
		}
		if s, ok := k.Value.(string); ok {
			for i, line := range strings.Split(s, "\n") {
				lines = append(lines, fmt.Sprintf("metadata %s:%d\t%s", k.Name, i+1, line))
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("metadata %s\t%v", k.Name, k.Value))
	}
	for _, x := range f.Tensors {
		line := fmt.Sprintf("tensor %s\t%s %s", x.Name, x.Type, shape(x.Shape))
		if x.SHA256 != "" {
			line += " " + x.SHA256
		}
		lines = append(lines, line)
	}
	for _, l := range f.Left {
		lines = append(lines, fmt.Sprintf("left out %s\t%s", l.Name, l.Why))
	}
	for i, l := range lines {
		name, v, _ := strings.Cut(l, "\t")
		lines[i] = plaintext.Escape(name) + "\t" + plaintext.Escape(v)
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// Summary is the model in a line.
func Summary(f *facts.Facts) string {
	s := fmt.Sprintf("%s, %s, %s parameters, %.2f bits each", f.Form, humanize.IBytes(f.Bytes), params(f.Params), f.BitsPer)
	if f.Architecture != "" {
		s = plaintext.Escape(f.Architecture) + ", " + s
	}
	return s
}
