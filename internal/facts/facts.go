// Package facts gathers what a model file says and what follows from it: parameters, types, bits by class, memory, the
// tokenizer, the template, metadata, tensors. It prints nothing.
package facts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"ck/internal/cost"
	"ck/internal/gguf"
	"ck/internal/inspect"
	"ck/internal/quant"
	"ck/internal/tokenizer"
)

// Facts is what is known of a model.
type Facts struct {
	Name         string   `json:"name"` // general.name; "" where it has none
	Form         string   `json:"form"`
	Files        []string `json:"files"` // without folders
	Bytes        int64    `json:"bytes"`
	Architecture string   `json:"architecture"`
	Params       int64    `json:"parameters"`
	Active       int64    `json:"active_parameters"` // of one token: all but the experts that it does not use
	Embedding    int64    `json:"embedding_parameters"`
	Layers       int      `json:"layers"`
	BitsPer      float64  `json:"bits_per_weight"`

	Types   []Group `json:"types"`
	Classes []Group `json:"classes"`

	Run   *Run   `json:"run"` // null: Unknown says why
	NoRun string `json:"run_unknown,omitempty"`

	Tokenizer   *Tokenizer `json:"tokenizer"`
	NoTokenizer string     `json:"tokenizer_unknown,omitempty"`
	Template    string     `json:"chat_template"`

	Wrong []string `json:"wrong_keys,omitempty"` // what is wrong with keys that were read here, each once

	Metadata []Key          `json:"metadata"`
	Tensors  []Tensor       `json:"tensors"`
	Left     []inspect.Left `json:"left_out"`
}

// Group is the tensors of a type or of a class.
type Group struct {
	Name    string   `json:"name"`
	Types   []string `json:"types,omitempty"`
	Tensors int      `json:"tensors"`
	Params  int64    `json:"parameters"`
	Bytes   int64    `json:"bytes"`
	BitsPer float64  `json:"bits_per_weight"`
}

// Run is what ckrun takes for the model.
type Run struct {
	KVPosition int64 `json:"kv_bytes_per_token"` // F16, all layers
	Context    int   `json:"context"`
	KV         int64 `json:"kv_bytes"`     // of that context
	Memory     int64 `json:"memory_bytes"` // panels, cache and activations
	FileToken  int64 `json:"file_bytes_per_token"`
	Token      int64 `json:"panel_bytes_per_token"` // that a generated token reads
}

// Tokenizer is what is known of a vocabulary.
type Tokenizer struct {
	Kind    string         `json:"kind"`
	Pre     string         `json:"pre,omitempty"`
	Tokens  int            `json:"tokens"`
	ByType  map[string]int `json:"by_type"`
	BOS     *int32         `json:"bos"`
	EOS     *int32         `json:"eos"`
	AddsBOS bool           `json:"adds_bos"`
	AddsEOS bool           `json:"adds_eos"`
}

// Key is a key of the metadata. Value is a Go value of the key's type, for JSON.
type Key struct {
	Name  string `json:"key"`
	Type  string `json:"type"`
	Value any    `json:"value"`
}

// Tensor is one tensor. Shape is ggml's: the row's length first.
type Tensor struct {
	Name   string `json:"name"`
	Class  string `json:"class"`
	Type   string `json:"type"`
	Shape  []int  `json:"shape"`
	Bytes  int64  `json:"bytes"`
	File   string `json:"file,omitempty"`
	Offset int64  `json:"offset"`
	SHA256 string `json:"sha256,omitempty"`
}

// Options say what is gathered.
type Options struct {
	Context int // of the memory's account; 0: the model's
	Workers int
	Chosen  []*gguf.Tensor // those that are listed
	Hash    bool
	At      func(bytes int64)
}

// Of gathers the facts of a model.
func Of(ctx context.Context, m *inspect.Model, opt Options) (*Facts, error) {
	f := &Facts{Form: string(m.Form), Bytes: m.SizeBytes(), Left: append([]inspect.Left{}, m.Left...)}
	for _, p := range m.Files() {
		f.Files = append(f.Files, filepath.Base(p))
	}
	f.Name, f.Architecture = f.text(m, "general.name"), f.text(m, "general.architecture")
	f.groups(m)
	f.run(m, opt.Context, max(1, opt.Workers))
	f.tokenizer(m)
	f.Template = f.text(m, "tokenizer.chat_template")
	for _, k := range m.KV.Keys() {
		v := m.KV.Value(k)
		f.Metadata = append(f.Metadata, Key{k, typeOf(v), plain(v)})
	}
	return f, f.tensors(ctx, m, opt)
}

// read is a key's value. Where it is of another type, that is remembered and the value is as of a key that the file lacks.
func read[T any](f *Facts, get func(string) (T, bool, error), key string) T {
	v, _, err := get(key)
	if err != nil && !slices.Contains(f.Wrong, err.Error()) {
		f.Wrong = append(f.Wrong, err.Error())
	}
	return v
}

func (f *Facts) text(m *inspect.Model, key string) string { return read(f, m.KV.String, key) }

// typeOf is the format's name of a value's type.
func typeOf(v any) string {
	t := reflect.TypeOf(v)
	if t == nil {
		return "none"
	}
	return strings.ReplaceAll(t.String(), "interface {}", "any")
}

// plain is a value that JSON can hold: numbers that are not finite are words, bytes are numbers.
func plain(v any) any {
	r := reflect.ValueOf(v)
	switch {
	case !r.IsValid():
		return nil
	case r.CanFloat() && r.Float()-r.Float() != 0:
		return fmt.Sprint(v)
	case r.Kind() != reflect.Slice:
		return v
	}
	kind := r.Type().Elem().Kind()
	if kind != reflect.Uint8 && kind != reflect.Float32 && kind != reflect.Float64 {
		return v
	}
	list := make([]any, r.Len())
	odd := kind == reflect.Uint8
	for i := range list {
		e := r.Index(i)
		if list[i] = e.Interface(); e.CanFloat() && e.Float()-e.Float() != 0 {
			list[i], odd = fmt.Sprint(list[i]), true
		} else if kind == reflect.Uint8 {
			list[i] = int(e.Uint())
		}
	}
	if !odd {
		return v
	}
	return list
}

// groups adds tensors up by type and by class.
func (f *Facts) groups(m *inspect.Model) {
	types, classes := map[string]*Group{}, map[string]*Group{}
	var typeOrder, classOrder []string
	add := func(groups map[string]*Group, order *[]string, name string, t *gguf.Tensor, n int64) *Group {
		g := groups[name]
		if g == nil {
			g = &Group{Name: name}
			groups[name], *order = g, append(*order, name)
		}
		g.Tensors, g.Params, g.Bytes = g.Tensors+1, g.Params+n, g.Bytes+t.Bytes()
		return g
	}
	used, experts := read(f, m.KV.Int, f.Architecture+".expert_used_count"), read(f, m.KV.Int, f.Architecture+".expert_count")
	bytes, layers := int64(0), map[int]bool{}
	for _, t := range m.Tensors {
		n := int64(t.Rows()) * int64(t.Cols())
		class, layer := inspect.ClassOf(t.Name)
		if layer >= 0 {
			layers[layer] = true
		}
		add(types, &typeOrder, t.Type.String(), t, n)
		g := add(classes, &classOrder, class, t, n)
		if !slices.Contains(g.Types, t.Type.String()) {
			g.Types = append(g.Types, t.Type.String())
		}
		f.Params, bytes = f.Params+n, bytes+t.Bytes()
		active := n
		if strings.Contains(class, "_exps") && experts > 0 && used > 0 && used <= experts {
			active = n / experts * used
		}
		f.Active += active
		if class == "token_embd" {
			f.Embedding += n
		}
	}
	f.Layers = len(layers)
	for _, name := range typeOrder {
		f.Types = append(f.Types, types[name].whole())
	}
	for _, name := range classOrder {
		f.Classes = append(f.Classes, classes[name].whole())
	}
	if f.Params > 0 {
		f.BitsPer = 8 * float64(bytes) / float64(f.Params)
	}
}

func (g *Group) whole() Group {
	g.BitsPer = 8 * float64(g.Bytes) / float64(g.Params)
	return *g
}

// run accounts for a run, where the architecture is one that the engine knows.
func (f *Facts) run(m *inspect.Model, length, workers int) {
	c, err := cost.OfFile(f.Name, m.Model)
	if err != nil {
		f.NoRun = err.Error()
		return
	}
	if length == 0 {
		length = c.Graph.Context
	}
	r := &Run{Context: length}
	mem, err := c.Memory(cost.Run{Prompt: min(length, 512), Context: length, Rows: 1, UBatch: 512, KV: quant.F16}, workers)
	if err != nil {
		f.NoRun = err.Error()
		return
	}
	r.KVPosition, r.KV, r.Memory = mem.KVPosition, mem.KV, mem.Need(true)
	r.FileToken, r.Token = c.PanelBytes()
	f.Run = r
}

// TokenTypes are the names of tokenizer.ggml.token_type.
var TokenTypes = map[int64]string{1: "normal", 2: "unknown", 3: "control", 4: "user defined", 5: "unused", 6: "byte"}

func (f *Facts) tokenizer(m *inspect.Model) {
	list, ok, err := m.KV.Strings("tokenizer.ggml.tokens")
	if err != nil || !ok {
		f.NoTokenizer = "the file has no vocabulary"
		if err != nil {
			f.NoTokenizer = err.Error()
		}
		return
	}
	t := &Tokenizer{Tokens: len(list), ByType: map[string]int{}, Kind: f.text(m, "tokenizer.ggml.model"), Pre: f.text(m, "tokenizer.ggml.pre")}
	for _, k := range read(f, m.KV.Ints, "tokenizer.ggml.token_type") {
		name := TokenTypes[k]
		if name == "" {
			name = fmt.Sprintf("type %d", k)
		}
		t.ByType[name]++
	}
	id := func(key string) *int32 {
		v, ok, err := m.KV.Int(key)
		if err != nil || !ok || v < 0 || v >= int64(len(list)) {
			return nil
		}
		x := int32(v)
		return &x
	}
	t.BOS, t.EOS = id("tokenizer.ggml.bos_token_id"), id("tokenizer.ggml.eos_token_id")
	tok, err := tokenizer.FromGGUF(m.KV)
	if err != nil {
		f.NoTokenizer = err.Error()
	} else {
		t.AddsBOS, t.AddsEOS = tok.AddBOS(), tok.AddEOS()
	}
	f.Tokenizer = t
}

// tensors lists the chosen ones, with their sums if asked for.
func (f *Facts) tensors(ctx context.Context, m *inspect.Model, opt Options) error {
	files := m.Files()
	f.Tensors = []Tensor{}
	for _, t := range opt.Chosen {
		class, _ := inspect.ClassOf(t.Name)
		x := Tensor{Name: t.Name, Class: class, Type: t.Type.String(), Shape: t.Shape, Bytes: t.Bytes(), Offset: t.Offset}
		if t.File >= 0 && t.File < len(files) {
			x.File = filepath.Base(files[t.File])
		}
		f.Tensors = append(f.Tensors, x)
	}
	if !opt.Hash {
		return nil
	}
	done := make(chan int64, 64)
	ended := make(chan struct{})
	go func() {
		sum := int64(0)
		for n := range done {
			if sum += n; opt.At != nil {
				opt.At(sum)
			}
		}
		close(ended)
	}()
	err := m.Each(ctx, len(opt.Chosen), opt.Workers, func(i int) error {
		sum, err := hash(ctx, opt.Chosen[i], done)
		f.Tensors[i].SHA256 = sum
		return err
	})
	close(done)
	<-ended
	return err
}

// hash is the SHA-256 of a tensor's rows in GGUF's order.
func hash(ctx context.Context, t *gguf.Tensor, done chan<- int64) (string, error) {
	h, rows := sha256.New(), t.Reader()
	each := max(1, 1<<20/max(1, int(t.Bytes())/t.Rows()))
	for r := 0; r < t.Rows(); r += each {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		b := rows.Rows(r, min(each, t.Rows()-r))
		h.Write(b)
		done <- int64(len(b))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
