package hf

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/safetensors"
)

const (
	chunkBytes    = 1 << 20       // of rows as float32 that Write holds at a time, or a row
	maxCopied     = 1 << 30       // of a file that goes into the folder as it is
	maxShardBytes = 5_000_000_000 // as transformers wrote them for long

	configName     = "config.json"
	generationName = "generation_config.json"
)

// WriteOptions says how a folder is written.
type WriteOptions struct {
	Type  quant.Type // of all tensors: F32, F16 or BF16
	Class string     // of Classes; "": the one that the model's metadata suggests

	// Config is the config.json of the folder that the model was made from, nil if there is none: then it is made from the metadata. With it
	// classes are written that Classes lacks. It must mean what the metadata says.
	Config []byte

	Files         []string             // that go into the folder as they are, as of its tokenizer; one named generation_config.json takes the made one's place
	Texts         map[string][]byte    // more such files, by their names
	MaxShardBytes int64                // of the tensors in a file; 0: 5 GB
	Force         bool                 // replaces a model's folder
	Progress      func(written int64)  // bytes of tensors, if not nil
	Begun         func(discard func()) // if not nil, is told what removes the unfinished folder where the process ends; any goroutine may call that
}

// FloatTypes are the types that folders have.
var FloatTypes = []quant.Type{quant.F32, quant.F16, quant.BF16}

// MatrixType is the type of all matrices of a model, routers but for, if they have one that folders have. A folder written in it loses nothing.
func MatrixType(m *gguf.Model) (quant.Type, bool) {
	typ, found := quant.Type(0), false
	for _, t := range m.Tensors {
		if len(t.Shape) < 2 || strings.HasSuffix(t.Name, ".ffn_gate_inp.weight") {
			continue
		}
		if !slices.Contains(FloatTypes, t.Type) || found && t.Type != typ {
			return 0, false
		}
		typ, found = t.Type, true
	}
	return typ, found
}

// Write writes a model as a folder that Open reads as the same model: config.json, generation_config.json and safetensors with transformers'
// names and order of rows. It is the inverse of Open for the classes of Classes, and with Config for all whose tensors are one each; others are
// an error that names the class. Keys that a folder cannot say are errors, too.
//
// Every element is rounded once to the type that is asked, ties to even; a matrix of that type stays bit for bit. Norms that the folder has less
// one keep their bits from 1/2 to 2^24 before that rounding; below, they are rounded to a multiple of 2^-25 or finer. An element that is not
// finite, or too large for the type, is an error that names it. Rows stream: about 3 MiB of memory, whatever the model.
//
// The folder appears whole or not at all; see WriteFolder. An end of ctx is its error.
func Write(ctx context.Context, dir string, m *gguf.Model, o WriteOptions) error {
	p, err := planned(m, &o)
	if err != nil {
		return err
	}
	return WriteFolder(dir, configName, o.Force, func(tmp string) error {
		if o.Begun != nil {
			o.Begun(func() { discard(tmp) })
		}
		return p.write(ctx, tmp)
	})
}

// A PlannedFile is a file that Write would write.
type PlannedFile struct {
	Name    string
	Bytes   int64
	Tensors []PlannedTensor // nil: text
}

// A PlannedTensor is one of a file that would be written.
type PlannedTensor struct {
	Name, Type string
	Bytes      int64
}

// Planned is what Write would write into its folder, in this order; nothing is written. Errors are those that Write has before it writes.
func Planned(m *gguf.Model, o WriteOptions) (files []PlannedFile, err error) {
	p, err := planned(m, &o)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(p.texts)) {
		files = append(files, PlannedFile{Name: name, Bytes: int64(len(p.texts[name]))})
	}
	for _, path := range o.Files {
		st, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		files = append(files, PlannedFile{Name: filepath.Base(path), Bytes: st.Size()})
	}
	for i, infos := range p.shards {
		header, sizes, err := safetensors.Header(shardMetadata, infos)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		f := PlannedFile{Name: safetensors.ShardName(i, len(p.shards)), Bytes: int64(len(header))}
		for j, n := range sizes {
			f.Bytes += n
			f.Tensors = append(f.Tensors, PlannedTensor{infos[j].Name, infos[j].DType, n})
		}
		files = append(files, f)
	}
	return files, nil
}

// shardMetadata is that of files of tensors.
var shardMetadata = map[string]string{"format": "pt"}

// planned is planFolder with the options' defaults.
func planned(m *gguf.Model, o *WriteOptions) (*folderPlan, error) {
	if !slices.Contains(FloatTypes, o.Type) {
		return nil, fmt.Errorf("a folder of %v is not supported; choose F32, F16 or BF16", o.Type)
	}
	if o.MaxShardBytes == 0 {
		o.MaxShardBytes = maxShardBytes
	}
	p, err := planFolder(m, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	return p, nil
}

// folderPlan is what a folder will have.
type folderPlan struct {
	m      *gguf.Model
	o      *WriteOptions
	c      *config
	texts  map[string][]byte // files of JSON
	shards [][]safetensors.Info
	pieces map[string]*piece // by name

	written int64
}

// piece is a tensor of a folder: rows of a tensor of the model.
type piece struct {
	from    *gguf.Tensor
	first   int // of from's rows in GGUF's order
	rows    int
	heads   int  // whose rows, or elements of a vector, the folder has in another order; 0: none
	plusOne bool // the folder has it less one
}

func planFolder(m *gguf.Model, o *WriteOptions) (*folderPlan, error) {
	p := &folderPlan{m: m, o: o, texts: map[string][]byte{}, pieces: map[string]*piece{}}
	var text []byte
	var err error
	if o.Config != nil {
		if p.c, text, err = givenConfig(m, o.Config); err == nil && o.Class != "" && o.Class != p.c.name {
			err = fmt.Errorf("config.json: is of a %s, a %s is asked", p.c.name, o.Class)
		}
	} else {
		p.c, text, err = configOf(m, o.Class)
	}
	if err != nil {
		return nil, err
	}
	if p.texts[configName], err = withDType(text, o.Type); err != nil {
		return nil, err
	}
	if p.texts[generationName], err = generationConfig(m); err != nil {
		return nil, err
	}
	infos, err := p.addTensors()
	if err != nil {
		return nil, err
	}
	if p.shards, err = safetensors.Shards(infos, o.MaxShardBytes); err != nil {
		return nil, err
	}
	if len(p.shards) > 1 {
		if p.texts[safetensors.IndexName()], err = safetensors.Index(p.shards); err != nil {
			return nil, err
		}
	}
	return p, p.checkFiles()
}

// withDType puts the type of the weights into config.json.
func withDType(text []byte, t quant.Type) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	names := map[quant.Type]string{quant.F32: `"float32"`, quant.F16: `"float16"`, quant.BF16: `"bfloat16"`}
	all["torch_dtype"] = json.RawMessage(names[t])
	b, err := json.MarshalIndent(all, "", "  ")
	return append(b, '\n'), err
}

// generationConfig is the text of generation_config.json: tokens and recommended settings.
func generationConfig(m *gguf.Model) ([]byte, error) {
	out := map[string]any{"_from_model_config": true}
	for id, key := range idKeys {
		if v, ok, err := m.KV.Int("tokenizer.ggml." + key); err != nil {
			return nil, err
		} else if ok {
			out[id+"_token_id"] = v
		}
	}
	if eot, ok, err := m.KV.Int("tokenizer.ggml.eot_token_id"); err != nil {
		return nil, err
	} else if eos, is := out["eos_token_id"].(int64); ok && is && eot != eos {
		out["eos_token_id"] = []int64{eos, eot}
	}
	const prefix = "general.sampling."
	for _, k := range [][2]string{{"top_p", "top_p"}, {"min_p", "min_p"}, {"temp", "temperature"}, {"penalty_repeat", "repetition_penalty"}, {"top_k", "top_k"}} {
		v, ok, err := m.KV.Float(prefix + k[0])
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		out[k[1]], out["do_sample"] = f32(v), true
		if k[0] == "top_k" {
			out[k[1]] = int64(v)
		}
		delete(out, "_from_model_config")
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("general.sampling: %w", err)
	}
	return append(b, '\n'), nil
}

// addTensors makes the pieces, and lists them in the model's order.
func (p *folderPlan) addTensors() ([]safetensors.Info, error) {
	var infos []safetensors.Info
	computed := p.c.ropeFactors()
	for _, t := range p.m.Tensors {
		if computed[t.Name] != nil {
			continue // config.json says it
		}
		name, stem, err := p.c.unname(t.Name)
		if err != nil {
			return nil, err
		}
		heads, plusOne, err := p.c.undo(stem, t)
		if err != nil {
			return nil, err
		}
		shape := slices.Clone(t.Shape)
		slices.Reverse(shape)
		parts, of := []string{name}, t.Rows()
		if head, tail, ok := strings.Cut(name, ".experts.E."); ok {
			if len(shape) != 3 || shape[0] != p.c.experts {
				return nil, fmt.Errorf("tensor %s: shape %v, expected matrices of %d experts", t.Name, t.Shape, p.c.experts)
			}
			parts = nil
			for e := range p.c.experts {
				parts = append(parts, fmt.Sprintf("%s.experts.%d.%s", head, e, tail))
			}
			shape, of = shape[1:], shape[1]
		}
		for i, name := range parts {
			if p.pieces[name] != nil {
				return nil, fmt.Errorf("tensor %s: another one is %s in the folder", t.Name, name)
			}
			p.pieces[name] = &piece{t, i * of, of, heads, plusOne}
			infos = append(infos, safetensors.Info{Name: name, DType: p.o.Type.String(), Shape: shape})
		}
	}
	return infos, nil
}

// checkFiles looks for names that two files would have.
func (p *folderPlan) checkFiles() error {
	taken := map[string]bool{}
	for i := range p.shards {
		taken[safetensors.ShardName(i, len(p.shards))] = true
	}
	for name := range p.texts {
		taken[name] = true
	}
	for name, text := range p.o.Texts {
		if taken[name] || name != filepath.Base(name) || strings.HasSuffix(name, ".safetensors") {
			return fmt.Errorf("%q: no name of a file that goes into the folder, or taken already", name)
		}
		taken[name], p.texts[name] = true, text
	}
	for _, path := range p.o.Files {
		name := filepath.Base(path)
		if name == generationName && p.texts[name] != nil {
			delete(p.texts, name)
			continue
		}
		st, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case taken[name] || strings.HasSuffix(name, ".safetensors") || name == safetensors.IndexName():
			return fmt.Errorf("%s: the folder has a file of that name already", path)
		case !st.Mode().IsRegular() || st.Size() > maxCopied:
			return fmt.Errorf("%s: is no file of at most %d bytes", path, maxCopied)
		}
		taken[name] = true
	}
	return nil
}

// write fills the folder dir.
func (p *folderPlan) write(ctx context.Context, dir string) error {
	for _, name := range slices.Sorted(maps.Keys(p.texts)) {
		if err := os.WriteFile(filepath.Join(dir, name), p.texts[name], 0o666); err != nil {
			return err
		}
	}
	for _, path := range p.o.Files {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o666); err != nil {
			return err
		}
	}
	for i, s := range p.shards {
		if err := p.writeShard(ctx, filepath.Join(dir, safetensors.ShardName(i, len(p.shards))), s); err != nil {
			return err
		}
	}
	return nil
}

func (p *folderPlan) writeShard(ctx context.Context, path string, infos []safetensors.Info) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	b := bufio.NewWriterSize(f, chunkBytes)
	w, err := safetensors.NewWriter(b, shardMetadata, infos)
	if err != nil {
		return err
	}
	for _, t := range infos {
		err := p.m.Guard(func() error { return p.pieces[t.Name].write(ctx, w, p) })
		if err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// write writes the rows of a piece.
func (x *piece) write(ctx context.Context, w io.Writer, p *folderPlan) error {
	t, cols := x.from, x.from.Cols()
	vector := len(t.Shape) == 1
	group := max(1, min(x.rows, chunkBytes/4/cols))
	floats := make([]float32, group*cols)
	raw := make([]byte, p.o.Type.RowBytes(cols)*group)
	reader := t.Reader()
	for r := 0; r < x.rows; r += group {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n := min(group, x.rows-r)
		out := raw[:n*p.o.Type.RowBytes(cols)]
		same := t.Type == p.o.Type && !vector
		for i := range n {
			row := r + i
			if x.heads > 0 && !vector {
				row = ggufRow(row, x.rows, x.heads)
			}
			b := reader.Row(x.first + row)
			if same {
				copy(out[i*len(b):], b)
			} else {
				quant.Decode(t.Type, floats[i*cols:(i+1)*cols], b)
			}
		}
		v := floats[:n*cols]
		if vector {
			x.undo(v)
		}
		if err := x.encode(p.o.Type, out, v, r, same); err != nil {
			return err
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
		if p.written += int64(len(out)); p.o.Progress != nil {
			p.o.Progress(p.written)
		}
	}
	return nil
}

// undo makes a vector what the folder has.
func (x *piece) undo(v []float32) {
	if x.heads > 0 {
		copy(v, FolderRows(v, 1, x.heads))
	}
	if x.plusOne {
		for i := range v {
			v[i]--
		}
	}
}

// encode encodes values of rows from first on, unless out has them, and looks for those that the type does not hold.
func (x *piece) encode(typ quant.Type, out []byte, v []float32, first int, same bool) error {
	if !same {
		if err := quant.Quantize(typ, out, v, nil); err != nil {
			return fmt.Errorf("tensor %s: %w", x.from.Name, err)
		}
	}
	i := quant.FirstNotFinite(typ, out)
	if i < 0 {
		return nil
	}
	if same {
		quant.Decode(typ, v, out)
	}
	where := fmt.Sprintf("tensor %s: row %d of the folder's, element %d", x.from.Name, first+i/x.from.Cols(), i%x.from.Cols())
	if v[i]-v[i] != 0 {
		return fmt.Errorf("%s: is %g, and a weight must be finite; the model is damaged", where, v[i])
	}
	return fmt.Errorf("%s: %g is more than %v holds; choose BF16 or F32", where, v[i], typ)
}
