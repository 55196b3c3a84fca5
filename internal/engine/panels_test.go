package engine

import (
	stdbytes "bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/panelfile"
	"ck/internal/quant"
	"ck/internal/synth"
)

// panelsOf writes the panels of a model, as change leaves them.
func panelsOf(t *testing.T, m *gguf.Model, change func(list []*panelfile.Matrix) []*panelfile.Matrix) string {
	t.Helper()
	p, pack, err := PlanPanels(m, "")
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		list := change(p.Matrices)
		weights := map[string]graph.Weight{}
		for _, x := range m.Names() {
			weights[x] = graph.Weight{Name: x}
		}
		src, err := sourceOf(m, weights, list)
		if err != nil {
			t.Fatal(err)
		}
		if p, err = panelfile.NewPlan(src, list); err != nil {
			t.Fatal(err)
		}
	}
	var b stdbytes.Buffer
	if err := p.Write(context.Background(), &b, 2, pack, nil); err != nil {
		t.Fatal(err)
	}
	return place(t, b.Bytes())
}

// place writes a file.
func place(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf.panels")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Mapped panels give the same bits, take no memory, and are counted apart.
func TestMappedPanels(t *testing.T) {
	m := small(t)
	path := panelsOf(t, m, nil)
	plain := open(t, m, Options{Threads: 2})
	want := logits(t, plain)
	for threads := 1; threads <= 3; threads++ {
		e := open(t, m, Options{Threads: threads, Panels: path})
		if e.Packed() && !e.Packing() {
			t.Error("panels were compared before their first use")
		}
		if got := logits(t, e); !slices.Equal(got, want) {
			t.Errorf("%d threads: other bits", threads)
		}
		if n := e.MappedBytes(); n == 0 || n > plain.mem.kept || n < plain.mem.kept-100<<10 {
			t.Errorf("%d bytes are mapped, %d would be packed", n, plain.mem.kept)
		}
		if e.PackedBytes() != 0 || e.mem.kept != 0 || e.Packing() || !e.Packed() ||
			e.WeightBytes() != plain.WeightBytes() {
			t.Errorf("%d bytes are packed, %d kept, packing %v, packed %v, %d bytes of weights, not %d",
				e.PackedBytes(), e.mem.kept, e.Packing(), e.Packed(), e.WeightBytes(), plain.WeightBytes())
		}
		if len(e.Warnings) > 0 || !strings.HasSuffix(note(e, "weights"), "all panels too; nothing is packed") ||
			note(e, "panels of 29 of 29 matrices") == "" {
			t.Errorf("warnings %q, notes %q", e.Warnings, e.Notes)
		}
	}
	e := open(t, m, Options{Threads: 2, Panels: path})
	if err := e.Pack(context.Background()); err != nil || e.Packing() {
		t.Errorf("compared at once: packing %v, %v", e.Packing(), err)
	}
	e = open(t, m, Options{Threads: 2, Panels: path, NoPack: true})
	if e.MappedBytes() != 0 || note(e, "panels of") == "" || !slices.Equal(logits(t, e), want) {
		t.Errorf("--no-pack: %d bytes are mapped, %q", e.MappedBytes(), e.Notes)
	}
	e = open(t, m, Options{Threads: 2, Panels: path, MemLimit: 2 << 20, UBatch: 2 * picksMin})
	if got := logits(t, e); e.MappedBytes() == 0 || !slices.Equal(got, want) {
		t.Errorf("a limit below the panels' size: %d bytes are mapped", e.MappedBytes())
	}
}

// Variants have the mapped panels of their engine, or none without Pack.
func TestVariantsOfMappedPanels(t *testing.T) {
	m := small(t)
	e := open(t, m, Options{Threads: 2, Panels: panelsOf(t, m, nil)})
	want := logits(t, e)
	for _, without := range []Ablation{Pack, Huge, Prefetch} {
		v, err := e.Variant(without)
		if err != nil {
			t.Fatal(err)
		}
		if got := logits(t, v); !slices.Equal(got, want) || v.Packed() != (without != Pack) || v.PackedBytes() != 0 {
			t.Errorf("without %v: packed %v, %d bytes", without, v.Packed(), v.PackedBytes())
		}
		v.Close()
	}
	if !slices.Equal(logits(t, e), want) {
		t.Error("the engine's panels went with those of a variant")
	}
}

// What a file lacks, or has in another layout, is packed from the model; a line says so.
func TestPanelsRefused(t *testing.T) {
	m := small(t)
	want := logits(t, open(t, m, Options{Threads: 2}))
	for name, c := range map[string]struct {
		change func(l []*panelfile.Matrix) []*panelfile.Matrix
		opt    Options
		warn   string
		mapped bool
	}{
		"older version": {func(l []*panelfile.Matrix) []*panelfile.Matrix { l[3].Version = 7; return l }, Options{},
			"panels of 1 of 29 matrices are not used: they have layout Q8_0 version 7, this build has Q8_0 version 1; write the file anew with ckquant pack", true},
		"other layout": {func(l []*panelfile.Matrix) []*panelfile.Matrix { l[3].Layout = "Q9"; return l },
			Options{}, "layout Q9 version 1", true},
		"other size": {func(l []*panelfile.Matrix) []*panelfile.Matrix { l[3].Panels--; return l }, Options{},
			"panels of another size than those of layout Q8_0 version 1", true},
		"act f32": {nil, Options{F32Act: true}, "layout Q8_0 version 1, and --act f32 multiplies Q8_0 weights without panels", false},
		"missing": {func(l []*panelfile.Matrix) []*panelfile.Matrix { return l[2:] }, Options{},
			"has no panels for 2 of 29 matrices", true},
	} {
		path := panelsOf(t, m, c.change)
		c.opt.Threads, c.opt.Panels = 2, path
		e := open(t, m, c.opt)
		if len(e.Warnings) != 1 || !strings.HasPrefix(e.Warnings[0], path+": ") ||
			!strings.Contains(e.Warnings[0], c.warn) || (e.MappedBytes() > 0) != c.mapped {
			t.Errorf("%s: %d bytes are mapped, warnings %q", name, e.MappedBytes(), e.Warnings)
		}
		if got := logits(t, e); !c.opt.F32Act && !slices.Equal(got, want) {
			t.Errorf("%s: other bits", name)
		}
	}
}

// A file of another model, and one that is damaged where it is opened, is not used at all; a line says why. One
// that is not there is an error.
func TestPanelsNotUsed(t *testing.T) {
	m := small(t)
	want := logits(t, open(t, m, Options{Threads: 2}))
	good, err := os.ReadFile(panelsOf(t, m, nil))
	if err != nil {
		t.Fatal(err)
	}
	flip := func(at int) []byte {
		b := stdbytes.Clone(good)
		b[at] ^= 1
		return b
	}
	otherOf := func(seed uint64, hidden int) []byte {
		s := synth.Shape{Arch: "llama", Layers: 4, Hidden: hidden, FFN: 512, Heads: 4, KVHeads: 1, HeadDim: 64,
			Vocab: 4000, Context: 1 << 20, RopeBase: 1e4}
		var b stdbytes.Buffer
		if err := synth.Write(&b, "small", s, quant.Q8_0, seed); err != nil {
			t.Fatal(err)
		}
		other, err := gguf.Open(place(t, b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		b.Reset()
		p, pack, err := PlanPanels(other, "")
		if err == nil {
			err = p.Write(context.Background(), &b, 1, pack, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, c := range map[string]struct {
		file []byte
		warn string
	}{
		"magic":         {flip(0), "is no file of panels"},
		"table":         {flip(200), "its header is damaged"},
		"checksums":     {flip(len(good) - 9), "the checksums of its panels are damaged"},
		"truncated":     {good[:len(good)-5000], "was it truncated?"},
		"empty":         {nil, "is no file of panels"},
		"other weights": {otherOf(4, 256), "is of another model of the same size and shapes"},
		"other shapes":  {otherOf(3, 512), "is of a model of "},
	} {
		path := place(t, c.file)
		e := open(t, m, Options{Threads: 2, Panels: path})
		if len(e.Warnings) != 1 || !strings.HasPrefix(e.Warnings[0], path+": ") ||
			!strings.Contains(e.Warnings[0], c.warn) ||
			!strings.HasSuffix(e.Warnings[0], "; its panels are not used") || e.MappedBytes() != 0 {
			t.Errorf("%s: %d bytes are mapped, warnings %q", name, e.MappedBytes(), e.Warnings)
		}
		if !slices.Equal(logits(t, e), want) {
			t.Errorf("%s: other bits", name)
		}
	}
	var me *ModelError
	if _, err := Open(m, Options{Threads: 1, Panels: filepath.Join(t.TempDir(), "none")}); !errors.As(err, &me) ||
		!strings.HasSuffix(err.Error(), "/none: no such file of panels") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A bit of a panel that changed ends the walk, and names the file, the tensor and the panel. Bits between matrices
// are nobody's.
func TestPanelDamaged(t *testing.T) {
	m := small(t)
	path := panelsOf(t, m, nil)
	f, err := panelfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x := f.Matrix("blk.2.ffn_up.weight")
	at := stdbytes.Index(mustRead(t, path), x.Data()[3*x.PanelBytes:4*x.PanelBytes])
	for name, c := range map[string]struct {
		at   int
		want string
	}{
		"first byte":                {at, "tensor blk.2.ffn_up.weight: panel 3 is damaged: its checksum is another; "},
		"last byte":                 {at + x.PanelBytes - 1, "tensor blk.2.ffn_up.weight: panel 3 is damaged"},
		"between header and panels": {4095, ""},
	} {
		b := mustRead(t, path)
		b[c.at] ^= 0x10
		bad := place(t, b)
		e := open(t, m, Options{Threads: 2, Panels: bad})
		each := func(int, []float32) error { return nil }
		for range 2 { // the second time as the first
			err := e.Forward(context.Background(), e.NewSeq(), make([]int32, 40), All, each)
			var me *ModelError
			if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &me) || me.Path != bad ||
				!strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := e.Pack(context.Background()); (err != nil) != (c.want != "") {
			t.Errorf("%s: compared at once: %v", name, err)
		}
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A file that becomes shorter under its mapping is an error that names it, at the first use of a panel and later.
func TestPanelsTruncatedInUse(t *testing.T) {
	m := small(t)
	for _, used := range []bool{false, true} {
		path := panelsOf(t, m, nil)
		e := open(t, m, Options{Threads: 2, Panels: path})
		forward := func() error {
			each := func(int, []float32) error { return nil }
			return e.Forward(context.Background(), e.NewSeq(), []int32{1}, Last, each)
		}
		if used {
			if err := forward(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Truncate(path, 8192); err != nil {
			t.Fatal(err)
		}
		var me *ModelError
		err := forward()
		if !errors.As(err, &me) || me.Path != path || !strings.Contains(err.Error(), "a page of the mapped file") {
			t.Errorf("used before %v: %v", used, err)
		}
	}
}

// The word of --panels: a file, none, or the one beside the model.
func TestFindPanels(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "m.gguf")
	if got := FindPanels("", model); got != "" {
		t.Errorf("found %q, which is not there", got)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.panels"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"m.gguf.panels", "hf.panels"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ word, path, want string }{
		{"", model, model + ".panels"},
		{"", filepath.Join(dir, "hf") + "/", filepath.Join(dir, "hf.panels")},
		{"", filepath.Join(dir, "folder"), ""},
		{"", "", ""},
		{"none", model, ""},
		{"other", model, "other"},
		{"other", "", "other"},
	} {
		if got := FindPanels(c.word, c.path); got != c.want {
			t.Errorf("--panels %q, model %q: %q, not %q", c.word, c.path, got, c.want)
		}
	}
}

// Plans of files are made on every tier alike.
func TestPlanPanels(t *testing.T) {
	m := small(t)
	var want []byte
	for _, tier := range isa.Available(isa.Detect()) {
		p, pack, err := PlanPanels(m, tier.String())
		if err != nil {
			t.Fatal(err)
		}
		var b stdbytes.Buffer
		if err := p.Write(context.Background(), &b, 2, pack, nil); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = b.Bytes()
		}
		if !stdbytes.Equal(b.Bytes(), want) {
			t.Errorf("tier %v writes other bytes", tier)
		}
	}
	var te *TierError
	if _, _, err := PlanPanels(m, "mmx"); !errors.As(err, &te) {
		t.Errorf("tier mmx: %v", err)
	}
}
