package test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// An addition is made to a copy of the tree, as ARCHITECTURE.md says how. It must touch as many files as are promised there, and tests of the
// altered tree must pass.
type addition struct {
	rows  map[string][2]string // lines put into files that are there: behind the first string comes the second
	files map[string]string    // new files
	tests map[string]string    // new test files, which do not count
	pkgs  []string
	run   string
}

// make builds the altered tree and runs the tests.
func (a addition) make(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the engine anew")
	}
	root, dir := testkit.Root(t), t.TempDir()
	replace := map[string]string{}
	put := func(file string, b []byte) {
		changed := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(changed, b, 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, file)] = changed
	}
	for file, row := range a.rows {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(b, []byte(row[0])) != 1 {
			t.Fatalf("%s has %q not once", file, row[0])
		}
		put(file, bytes.Replace(b, []byte(row[0]), []byte(row[0]+row[1]), 1))
	}
	for _, files := range []map[string]string{a.files, a.tests} {
		for file, text := range files {
			put(file, []byte(text))
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append([]string{"test", "-overlay", overlay, "-run", a.run}, a.pkgs...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("no tests to run")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNewBlockType adds one: one file and one row. Kernels and engine take it.
func TestNewBlockType(t *testing.T) {
	addition{
		rows: map[string][2]string{"internal/quant/table.go": {"var table = [...]row{\n", "\tX43: {\"X43\", 32, 34, decodeX43, scaleX43, nil, noImatrix, nil, nil, nil},\n"}},
		files: map[string]string{"internal/quant/x43.go": `package quant

// X43 is Q8_0 under another number.
const X43 Type = 43

var decodeX43, scaleX43 = decodeQ8_0, scaleQ8_0
`},
		pkgs: []string{"./internal/kernel", "./internal/engine"}, run: "^(TestMatmulDirect|TestEveryBlockType)$",
	}.make(t)
}

// TestNewKindOfStep adds one, the square: one file and one row. Plans, the prover, the walk and the cost model take it.
func TestNewKindOfStep(t *testing.T) {
	addition{
		rows: map[string][2]string{"internal/step/step.go": {"var Table = []Row{\n", "\t{Square{}, []Realisation{{square, runSquare}}},\n"}},
		files: map[string]string{"internal/step/square.go": `package step

import (
	"ck/internal/graph"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Square is out = x * x.
type Square struct{}

func (Square) Kind() string         { return "square" }
func (Square) Needs(int) graph.Need { return graph.SameRow }
func (Square) Role(int) graph.Role  { return graph.Vector }

func (Square) Check(g *graph.Graph, s *graph.Step) error {
	if err := s.Arity(1, 1, 0, 0); err != nil {
		return err
	}
	return g.SameWidth(s.In[0], s.Out[0])
}

func (Square) Ref(r *graph.Ref, s *graph.Step) {
	r.Each(s, 0, func(row int, out []float64) {
		for i, x := range r.Row(s, 0, row) {
			out[i] = x * x
		}
	})
}

func (Square) Realise(b *plan.Builder, i int) (int, error) {
	elementwise(b, i, square)
	return 0, nil
}

var square = &plan.Kind{Name: "square", In: 1, Out: 1, Ops: 20, InPlace: anyInput}

func runSquare(w *walk.Worker, it *plan.Item, p plan.Rect) {
	in, width := w.Floats(it.In[0])
	out, _ := w.Floats(it.Out[0])
	for r := p.R0; r < p.R1; r++ {
		for c := r*width + p.C0; c < r*width+p.C1; c++ {
			out[c] = in[c] * in[c]
		}
	}
}
`},
		tests: map[string]string{"internal/walk/square_test.go": `package walk_test

import (
	"math/rand/v2"
	"testing"

	"ck/internal/graph"
	"ck/internal/isa"
	"ck/internal/quant"
	"ck/internal/step"
)

func TestSquare(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := randomModel(rng, []quant.Type{quant.F32})
		v := m.g.NewValue("squared", m.g.Vocab)
		m.g.Values[v].Space.Picked = true
		m.g.Add(step.Square{}, "squared", []graph.ValueID{m.g.Logits}, []graph.ValueID{v})
		m.g.Logits = v
		if err := m.g.Check(); err != nil {
			t.Fatal(err)
		}
		seqs := [][]int32{randomIDs(rng, m.g.Vocab, 70)}
		s := setup{tier: isa.Best(isa.Detect()), workers: 1, ubatch: 512, f32: true, kv: quant.F32}
		got := newRunner(t, m, s).run(t, seqs)
		if rel := relative(got, m.reference(seqs)); !(rel < 4e-5) {
			t.Errorf("relative error %.2e against the interpreter", rel)
		}
		s.workers, s.ubatch = 3, 9
		if err := sameBits(got, newRunner(t, m, s).run(t, seqs)); err != nil {
			t.Error(err)
		}
	}
}
`},
		pkgs: []string{"./internal/step", "./internal/walk"}, run: "^(TestSquare|TestTableIsWhole)$",
	}.make(t)
}

// TestNewArchitecture adds one: one file and one row. It is a llama whose feed-forwards have GELU gates.
func TestNewArchitecture(t *testing.T) {
	addition{
		rows: map[string][2]string{"internal/arch/arch.go": {"var architectures = map[string]func(*builder){\n", "\t\"geglu\": geglu,\n"}},
		files: map[string]string{"internal/arch/geglu.go": `package arch

import "ck/internal/step"

// geglu is llama with GELU gates.
func geglu(b *builder) {
	att := b.attention(b.windows(), b.rotate(neighbours))
	x := b.embed(0)
	for l := range b.blocks {
		x = l.add("attn_residual", x, l.attend(att, l.norm("attn_norm", x)))
		x = l.add("ffn_residual", x, l.gated(step.GELU, l.norm("ffn_norm", x)))
	}
	b.logits(x)
}
`},
		tests: map[string]string{"internal/cost/geglu_test.go": `package cost

import (
	"testing"

	"ck/internal/plan"
	"ck/internal/step"
	"ck/internal/synth"
)

func TestGEGLU(t *testing.T) {
	s, err := synth.Find("llama-3.2-1b")
	if err != nil {
		t.Fatal(err)
	}
	s.Arch = "geglu"
	m, err := OfShape("geglu", s, "Q8_0")
	if err != nil {
		t.Fatal(err)
	}
	gates := 0
	for _, x := range m.Graph.Steps {
		if u, ok := x.Op.(step.GLU); ok && u.Act == step.GELU {
			gates++
		}
	}
	p, err := m.Plan(plan.Many, 2, 64)
	if gates != s.Layers || err != nil || p.Check() != nil {
		t.Errorf("%d gates in %d layers, %v", gates, s.Layers, err)
	}
}
`},
		pkgs: []string{"./internal/cost"}, run: "^TestGEGLU$",
	}.make(t)
}
