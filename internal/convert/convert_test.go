package convert

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"ck/asm/half"
	"ck/internal/aside"
	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/quant"
)

// source is a model with what tensors can have: experts, rows in halves, vectors, types of all kinds, rows that fit
// no block.
func source(t *testing.T) *gguf.Model {
	t.Helper()
	m := gguf.NewModel("source.gguf")
	m.KV.Set("general.architecture", "llama")
	m.KV.Set("general.name", "a model")
	m.KV.Set("llama.block_count", uint32(2))
	m.KV.Set("llama.attention.head_count", uint32(4))
	m.KV.Set("llama.attention.head_count_kv", uint32(2))
	rng := rand.New(rand.NewPCG(7, 7))
	add := func(name string, typ quant.Type, interleave int, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		b := make([]byte, n/typ.BlockElems()*typ.BlockBytes())
		if typ == quant.F64 {
			for i, v := range x {
				binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(float64(v)))
			}
		} else if err := quant.Quantize(typ, b, x, nil); err != nil {
			t.Fatal(err)
		}
		if err := m.Add(&gguf.Tensor{Name: name, Type: typ, Shape: shape, Data: b, File: -1,
			Interleave: interleave}); err != nil {
			t.Fatal(err)
		}
	}
	add("token_embd.weight", quant.BF16, 0, 256, 1100)
	add("output_norm.weight", quant.F32, 0, 256)
	for l := range 2 {
		b := fmt.Sprintf("blk.%d.", l)
		add(b+"attn_q.weight", quant.BF16, 4, 256, 256)
		add(b+"attn_k.weight", quant.F16, 2, 256, 128)
		add(b+"attn_v.weight", quant.F32, 0, 256, 128)
		add(b+"attn_output.weight", quant.F64, 0, 256, 256)
		add(b+"attn_norm.weight", quant.F32, 0, 256)
		add(b+"ffn_down.weight", quant.BF16, 0, 96, 256)
		add(b+"ffn_up_exps.weight", quant.BF16, 0, 256, 700, 3)
	}
	return m
}

// planOf quantizes m by a recipe.
func planOf(t *testing.T, m *gguf.Model, recipe string, out Output) *Plan {
	t.Helper()
	r, pure, err := FindRecipe(recipe)
	if err != nil {
		t.Fatal(err)
	}
	c := Choice{Recipe: r, Pure: pure}
	types, _, err := c.Types(m)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []Tensor
	for i, x := range m.Tensors {
		tensors = append(tensors, Tensor{From: x, Type: types[i]})
	}
	p, err := NewPlan(m, c.Metadata(m.KV), tensors, out)
	if err != nil {
		t.Fatal(err)
	}
	p.Facts = []Fact{{"IN", "source.gguf"}, {"the recipe", recipe}}
	return p
}

// want is the bytes of a tensor, made row by row.
func want(t *testing.T, x *Tensor) []byte {
	t.Helper()
	var all []byte
	for r := range x.From.Rows() {
		row := x.From.Row(r)
		if x.Type == x.From.Type {
			all = append(all, row...)
			continue
		}
		f := make([]float32, x.From.Cols())
		quant.Decode(x.From.Type, f, row)
		var w []float32
		if x.Importance != nil {
			w = x.Importance[r/x.From.Shape[1]*len(f):][:len(f)]
		}
		b := make([]byte, x.Type.RowBytes(len(f)))
		if err := quant.Quantize(x.Type, b, f, w); err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// same compares a written model with what the plan's tensors should be.
func same(t *testing.T, path string, p *Plan) {
	t.Helper()
	m, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	i := 0
	for _, part := range p.Parts {
		for j := range part.Tensors {
			got := m.Tensors[i]
			if i++; got.Name != part.Tensors[j].From.Name || got.Type != part.Tensors[j].Type ||
				!bytes.Equal(got.Reader().Rows(0, got.Rows()), want(t, &part.Tensors[j])) {
				t.Fatalf("%s: %v is not %s as %v", path, got.Name, part.Tensors[j].From.Name, part.Tensors[j].Type)
			}
		}
	}
	if i != len(m.Tensors) {
		t.Fatalf("%d tensors, want %d", len(m.Tensors), i)
	}
}

// Every tensor is what quant makes of its rows one by one, for any number of workers and any parts; the files are as
// large as was said.
func TestWrite(t *testing.T) {
	m := source(t)
	var hash string
	for _, workers := range []int{1, 3} {
		for _, out := range []Output{{}, {PartTensors: 5}, {PartBytes: 400_000}, {PartBytes: 400_000, Alone: true}} {
			out.Path = filepath.Join(t.TempDir(), "out.gguf")
			p := planOf(t, m, "Q4_K_M", out)
			if out.PartTensors == 5 {
				for i := range p.Parts[0].Tensors {
					if x := &p.Parts[0].Tensors[i]; len(x.From.Shape) == 3 { // other importances for each expert
						x.Importance = make([]float32, 3*256)
						for j := range x.Importance {
							x.Importance[j] = float32(1 + j*j%37)
						}
					}
				}
			}
			res, err := p.Write(context.Background(), Options{Features: isa.Detect(), Workers: workers})
			if err != nil {
				t.Fatal(err)
			}
			size := int64(0)
			for _, part := range p.Parts {
				st, err := os.Stat(part.Path)
				if err != nil || st.Size() != part.Header.Size {
					t.Fatalf("%v, %v bytes, want %d", err, st, part.Header.Size)
				}
				size += st.Size()
				if out.PartBytes > 0 && st.Size() > out.PartBytes && len(part.Tensors) > 1 {
					t.Errorf("%s has %d bytes, at most %d are wanted", part.Path, st.Size(), out.PartBytes)
				}
			}
			if size != p.Size() || res.Bytes != size || res.Done != res.Total {
				t.Errorf("%d bytes, said %d and %d; %d of %d read", size, p.Size(), res.Bytes, res.Done, res.Total)
			}
			if out.Alone && len(p.Parts[0].Tensors) != 0 || (out.PartTensors > 0 || out.PartBytes > 0) &&
				len(p.Parts) < 3 {
				t.Errorf("%+v: %d parts, %d tensors in the first", out, len(p.Parts), len(p.Parts[0].Tensors))
			}
			same(t, p.Parts[0].Path, p)
			if left, _ := filepath.Glob(filepath.Dir(out.Path) + "/*.part*"); left != nil {
				t.Errorf("left: %v", left)
			}
			if !out.split() {
				h := sum(t, out.Path)
				if hash == "" {
					hash = h
				}
				if h != hash {
					t.Errorf("%d workers: another file", workers)
				}
			}
		}
	}
}

func sum(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// A run that ends after any number of chunks goes on, whatever was lost behind the last sync: the end of the journal,
// cut at any byte, and all data that the journal does not name.
func TestResume(t *testing.T) {
	m := source(t)
	whole := planOf(t, m, "Q4_K_M", Output{Path: filepath.Join(t.TempDir(), "out.gguf")})
	if _, err := whole.Write(context.Background(), Options{Features: isa.Detect(), Workers: 2}); err != nil {
		t.Fatal(err)
	}
	hash := sum(t, whole.Parts[0].Path)
	rng := rand.New(rand.NewPCG(1, 1))
	resumed := 0
	for n := range 24 {
		path := filepath.Join(t.TempDir(), "out.gguf")
		p := planOf(t, m, "Q4_K_M", Output{Path: path})
		for round := range 3 {
			ctx, cancel := context.WithCancelCause(context.Background())
			var chunks atomic.Int64
			stop := int64(1 + (n+round*7)%24)
			res, err := p.Write(ctx, Options{Features: isa.Detect(), Workers: 1 + n%3, Resume: true,
				Progress: func(Progress) {
					if chunks.Add(1) == stop {
						cancel(errors.New("stopped"))
					}
				}})
			if res != nil {
				resumed += res.Resumed
			}
			if res != nil && res.Again > 0 {
				t.Errorf("run %d: %d tensors that the journal has were not there", n, res.Again)
			}
			if err == nil {
				break
			}
			if err.Error() != "stopped" || exists(path) {
				t.Fatalf("%v; OUT is there: %v", err, exists(path))
			}
			lose(t, rng, p)
		}
		if !exists(path) {
			res, err := p.Write(context.Background(), Options{Features: isa.Detect(), Workers: 2, Resume: true})
			if err != nil {
				t.Fatal(err)
			}
			resumed += res.Resumed
		}
		if got := sum(t, path); got != hash {
			t.Fatalf("run %d: another file", n)
		}
	}
	if resumed < 100 {
		t.Errorf("only %d tensors were taken over in all", resumed)
	}
}

// lose loses what a crash of the machine could: the last line of the journal at any byte, and data of tensors that
// have no line.
func lose(t *testing.T, rng *rand.Rand, p *Plan) {
	t.Helper()
	b, err := os.ReadFile(p.journalPath())
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
	b = b[:last+rng.IntN(len(b)-last+1)]
	if err := os.WriteFile(p.journalPath(), b, 0o666); err != nil {
		t.Fatal(err)
	}
	part := &p.Parts[0]
	f, err := os.OpenFile(part.partPath(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, x := range part.Tensors {
		if !strings.Contains(string(b[:bytes.LastIndexByte(b, '\n')+1]), `"`+x.From.Name+`"`) {
			if _, err := f.WriteAt(make([]byte, part.Header.Sizes[i]), part.Header.Offsets[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Bytes that are not those of the journal are made again, and said.
func TestResumeDamaged(t *testing.T) {
	m := source(t)
	path := filepath.Join(t.TempDir(), "out.gguf")
	p := planOf(t, m, "Q8_0", Output{Path: path})
	ctx, cancel := context.WithCancel(context.Background())
	p.Write(ctx, Options{Features: isa.Detect(), Workers: 1, Progress: func(now Progress) {
		if now.Done > now.Total*3/4 {
			cancel()
		}
	}})
	b, err := os.ReadFile(p.Parts[0].partPath())
	if err != nil {
		t.Fatal(err)
	}
	b[p.Parts[0].Header.Offsets[0]+1000] ^= 1
	if err := os.WriteFile(p.Parts[0].partPath(), b, 0o666); err != nil {
		t.Fatal(err)
	}
	res, err := p.Write(context.Background(), Options{Features: isa.Detect(), Workers: 2, Resume: true})
	if err != nil || res.Again != 1 || res.Resumed < 3 {
		t.Fatalf("%v, %+v", err, res)
	}
	same(t, path, p)
}

// A run that was ended while it gave names to parts gives the others theirs.
func TestResumeNames(t *testing.T) {
	m := source(t)
	dir := t.TempDir()
	p := planOf(t, m, "Q8_0", Output{Path: filepath.Join(dir, "out"), PartTensors: 6})
	r := &run{plan: p, opts: Options{Features: isa.Detect(), Workers: 2}}
	var err error
	if r.journal, err = p.openJournal(false, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// All but the names: the last part's name is taken when they are given.
	last := p.Parts[len(p.Parts)-1]
	taken := p.Parts[0].Path
	if err := os.WriteFile(taken, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := r.run(ctx); !errors.As(err, new(*ExistsError)) {
		t.Fatal(err)
	}
	r.close()
	if !exists(last.Path) || exists(last.partPath()) {
		t.Fatal("the last part has no name")
	}
	os.Remove(taken)
	res, err := p.Write(ctx, Options{Features: isa.Detect(), Workers: 2, Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := len(p.Parts[0].Tensors); res.Resumed != want {
		t.Errorf("%d tensors taken over, want %d", res.Resumed, want)
	}
	same(t, p.Parts[0].Path, p)
}

// What a run cannot go on with, or may not replace, is refused by name.
func TestRefused(t *testing.T) {
	m := source(t)
	path := filepath.Join(t.TempDir(), "out.gguf")
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	p := planOf(t, m, "Q8_0", Output{Path: path})
	write := func(p *Plan, o Options) error {
		o.Workers = 1
		_, err := p.Write(context.Background(), o)
		return err
	}
	if _, err := p.Write(stopped, Options{Features: isa.Detect(), Workers: 1}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var unfinished *ExistsError
	if err := write(p, Options{}); !errors.As(err, &unfinished) || !unfinished.Unfinished ||
		!strings.Contains(err.Error(), "--resume") {
		t.Errorf("an unfinished output: %v", err)
	}
	other := planOf(t, m, "Q6_K", Output{Path: path})
	var changed *ChangedError
	if err := write(other, Options{Features: isa.Detect(), Resume: true}); !errors.As(err, &changed) ||
		changed.Name != "the recipe" || changed.Was != "Q8_0" || changed.Now != "Q6_K" {
		t.Errorf("another recipe: %v", err)
	}
	other = planOf(t, m, "Q8_0", Output{Path: path})
	other.Facts = other.Facts[:1]
	if err := write(other, Options{Features: isa.Detect(), Resume: true}); !errors.As(err, &changed) ||
		changed.Name != "the recipe" || changed.Now != "" {
		t.Errorf("a fact less: %v", err)
	}
	other.Facts = append(p.Facts, Fact{"--imatrix", "x"})
	if err := write(other, Options{Features: isa.Detect(), Resume: true}); !errors.As(err, &changed) ||
		changed.Name != "--imatrix" || changed.Was != "" {
		t.Errorf("a fact more: %v", err)
	}
	f, err := os.OpenFile(p.journalPath(), os.O_RDWR, 0)
	if err != nil || !aside.Lock(f) {
		t.Fatal(err)
	}
	var busy *BusyError
	if err := write(p, Options{Features: isa.Detect(), Resume: true}); !errors.As(err, &busy) {
		t.Errorf("another process: %v", err)
	}
	f.Close()
	if err := write(p, Options{Features: isa.Detect(), Resume: true}); err != nil {
		t.Fatal(err)
	}
	if err := write(p, Options{}); !errors.As(err, &unfinished) || unfinished.Unfinished || unfinished.Path != path {
		t.Errorf("an output that is there: %v", err)
	}
	before := sum(t, path)
	if err := write(other, Options{Force: true}); err != nil || sum(t, path) != before {
		t.Errorf("--force: %v", err)
	}
	if err := write(planOf(t, m, "Q8_0", Output{Path: filepath.Join(t.TempDir(), "none", "out.gguf")}),
		Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// A value that the output cannot hold is named with its row and column, and nothing is left.
func TestValues(t *testing.T) {
	for _, c := range []struct {
		bits uint16
		to   string
		text string
	}{
		{0x7fc0, "Q4_K_M", "is not finite"}, {0x7f80, "BF16", "is not finite"}, {0xff80, "F32", "is not finite"},
		{half.F32ToBF16(1e6), "F16", "more than F16 holds"}, {half.F32ToBF16(1e12), "Q8_0", "too large"},
	} {
		m := source(t)
		x := m.Tensor("blk.1.ffn_up_exps.weight")
		const row, col = 1500, 77
		binary.LittleEndian.PutUint16(x.Data[2*(row*256+col):], c.bits)
		dir := t.TempDir()
		p := planOf(t, m, c.to, Output{Path: filepath.Join(dir, "out.gguf")})
		_, err := p.Write(context.Background(), Options{Features: isa.Detect(), Workers: 2})
		var v *ValueError
		if !errors.As(err, &v) || v.Tensor != x.Name || v.Row != row || v.Col != col && c.to != "Q8_0" ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%04x as %s: %v", c.bits, c.to, err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%04x as %s: left %v", c.bits, c.to, left)
		}
	}
}

func TestChoice(t *testing.T) {
	m := source(t)
	q8, iq4 := quant.Q8_0, quant.IQ4_NL
	rule := func(re string, typ quant.Type) Rule { return Rule{regexp.MustCompile(re), typ} }
	r, _, err := FindRecipe("q4_k") // an alias
	if err != nil || r.Name != "Q4_K_M" {
		t.Fatalf("q4_k: %v, %s", err, r.Name)
	}
	c := Choice{Recipe: r, Embed: &q8, Output: &iq4, Rules: []Rule{rule(`blk\.1\..*_v`, quant.Q5_1),
		rule("attn_v", quant.Q5_0), rule("ffn_down", quant.Q6_K)}}
	types, notes, err := c.Types(m)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]quant.Type{"blk.0.attn_v.weight": quant.Q5_0,
		"blk.1.attn_v.weight": quant.Q5_1, "blk.0.ffn_down.weight": quant.Q8_0,
		"token_embd.weight": quant.Q8_0, "output_norm.weight": quant.F32, "blk.0.attn_q.weight": quant.Q4_K,
		"blk.1.attn_norm.weight": quant.F32} {
		if got := types[slices.Index(m.Tensors, m.Tensor(name))]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if len(notes) != 2 || !strings.Contains(notes[0], "blk.0.ffn_down.weight") {
		t.Errorf("notes %q, want one for each ffn_down, of rows that fit no block of 256", notes)
	}
	c = Choice{Recipe: r, Output: &iq4} // tied: the embedding is the output matrix
	if types, _, err = c.Types(m); err != nil || types[0] != quant.IQ4_NL {
		t.Errorf("%v, embedding %v, want IQ4_NL", err, types[0])
	}
	c.Rules = []Rule{rule("fn_dwn", quant.Q6_K)}
	var none *RuleError
	if _, _, err = c.Types(m); !errors.As(err, &none) || len(none.Nearest) == 0 {
		t.Errorf("a rule that matches nothing: %v", err)
	}
	if _, _, err := FindRecipe("Q4_KM"); err == nil || !strings.Contains(err.Error(), "Q4_K_M") {
		t.Errorf("Q4_KM: %v", err)
	}
	if r, pure, err := FindRecipe("nvfp4"); err != nil || !pure || r.Base != quant.NVFP4 {
		t.Errorf("nvfp4: %v", err)
	}
	m.Tensor("blk.0.attn_q.weight").Type = quant.Q8_0
	var again *RequantizeError
	if _, _, err := (&Choice{Recipe: r}).Types(m); !errors.As(err, &again) || again.From != quant.Q8_0 {
		t.Errorf("requantizing: %v", err)
	}
	if _, _, err := (&Choice{Recipe: r, Requantize: true}).Types(m); err != nil {
		t.Error(err)
	}
	r, _, _ = FindRecipe("IQ2_XS")
	if types, _, err = (&Choice{Recipe: r, Requantize: true}).Types(m); err != nil {
		t.Fatal(err)
	}
	var tensors []Tensor
	for i, x := range m.Tensors {
		tensors = append(tensors, Tensor{From: x, Type: types[i]})
	}
	var needs *ImportanceError
	if _, err := NewPlan(m, m.KV, tensors, Output{Path: "x"}); !errors.As(err, &needs) {
		t.Errorf("IQ2_XS without importances: %v", err)
	}
}
