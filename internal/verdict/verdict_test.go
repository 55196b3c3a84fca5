package verdict

import (
	"math"
	"strings"
	"testing"

	"ck/internal/attention"
)

// judged is the row of a claim.
func judged(t *testing.T, id string, f *Figures) Row {
	t.Helper()
	for _, r := range Judge(f) {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("no claim %s", id)
	return Row{}
}

// large is a matrix as large models have them.
func large(m Matrix) []Matrix {
	m.Rows, m.Cols = 4096, 4096
	return []Matrix{m}
}

func layers(decided float64) *attention.Report {
	r := &attention.Report{Block: 512, Least: 256}
	for n := range 8 {
		r.Layers = append(r.Layers, attention.Layer{Layer: n, Decided: decided * float64(n+1) / 6})
	}
	return r
}

func heads(small float64) *attention.Report {
	return &attention.Report{Block: 512, Least: 256, Heads: []attention.Head{{Weights: attention.Weights{Rows: 10, Small: small}},
		{Weights: attention.Weights{Rows: 30, Small: small}}}}
}

func dropped(a, b, c float64) []attention.Dropped {
	return []attention.Dropped{{Share: 0.8, Perplexity: 8 + a, Base: 8}, {Share: 0.9, Perplexity: 8 + b, Base: 8},
		{Share: 0.95, Perplexity: 8 + c, Base: 8}}
}

func pair(p Pair) []Pair {
	p.Layer, p.Layers = 4, 8
	return []Pair{p}
}

// read is the figures with a result of another program.
func read(t *testing.T, doc string) *Figures {
	t.Helper()
	f := &Figures{}
	if err := f.Others.Read("result.json", strings.NewReader(doc)); err != nil {
		t.Fatal(err)
	}
	return f
}

const bench = `{"schema":"ck.bench.run/1","results":[
{"model_filename":"m","test":"tg64","n_threads":2,"rows":1,"n_gen":64,"ablate":"","tokens_per_s":{"median":10}},
{"model_filename":"m","test":"tg64x2","n_threads":2,"rows":2,"n_gen":64,"ablate":"","tokens_per_s":{"median":ROWS2}},
{"model_filename":"m","test":"tg64","n_threads":2,"rows":1,"n_gen":64,"ablate":"prefetch","tokens_per_s":{"median":9},"worth":{"median":WORTH}}]}`

func benchOf(rows2, worth string) string {
	return strings.NewReplacer("ROWS2", rows2, "WORTH", worth).Replace(bench)
}

// The recipes have 100 bytes at 1 nat and 200 at 0.01: 150 at 0.1.
const plan = `{"schema":"ck.quant.plan/1","strategy":"entropy","recipes":[
{"recipe":"A","bytes":100,"kl_divergence":1,"best_bytes":BYTES,"best_kl_divergence":0.1},
{"recipe":"B","bytes":200,"kl_divergence":0.01,"best_bytes":200,"best_kl_divergence":0.001}]}`

const topo = `{"schema":"ck.topo.plan/1","plans":[{"model":{"name":"llama-3.1-8b","type":"Q4_K","params":8.03e9},
"machine":{"name":"here","cores":2},"decode":{"expected":RATE}}]}`

// Every claim flips between figures that make it true and figures that make it false, and is open without any.
func TestJudge(t *testing.T) {
	with := strings.ReplaceAll
	cases := map[string][2]*Figures{
		"entropy-3.6":       {{Matrices: large(Matrix{Bits: 3.5})}, {Matrices: large(Matrix{Bits: 6.9})}},
		"rank-5-99":         {{Matrices: large(Matrix{Energy: 0.995})}, {Matrices: large(Matrix{Energy: 0.4})}},
		"low-rank-outliers": {{Matrices: large(Matrix{Outliers: 0.99})}, {Matrices: large(Matrix{Outliers: 0.98})}},
		"correlation-0.3":   {{Pairs: pair(Pair{Correlation: -0.3})}, {Pairs: pair(Pair{Correlation: 0.01})}},
		"residue-8-15": {{Matrices: large(Matrix{Bits: 4}), Pairs: pair(Pair{Correlation: 0.7})},
			{Matrices: large(Matrix{Bits: 4}), Pairs: pair(Pair{Correlation: 0.3})}},
		"layers-alike":        {{Pairs: pair(Pair{Left: 0.05})}, {Pairs: pair(Pair{Left: 0.9})}},
		"layers-between":      {{Pairs: pair(Pair{Between: 0.05})}, {Pairs: pair(Pair{Between: 0.9})}},
		"attention-small":     {{Attention: heads(0.8)}, {Attention: heads(0.6)}},
		"early-exit":          {{Attention: layers(0.6)}, {Attention: layers(0.4)}},
		"sparse-attention":    {{Dropped: dropped(0.1, 0.4, 1.9)}, {Dropped: dropped(0.1, 0.6, 1.9)}},
		"activation-x-weight": {{Pruned: &Pruned{BySize: 1, ByProduct: 0.4}}, {Pruned: &Pruned{BySize: 1, ByProduct: 0.95}}},
		"two-rows":            {read(t, benchOf("19", "1")), read(t, benchOf("13", "1"))},
		"prefetch-20-40":      {read(t, benchOf("19", "1.25")), read(t, benchOf("19", "1.05"))},
		"entropy-bits":        {read(t, with(plan, "BYTES", "130")), read(t, with(plan, "BYTES", "140"))},
		"8b-two-cores":        {read(t, with(topo, "RATE", "12.9")), read(t, with(topo, "RATE", "7"))},
	}
	for id, f := range cases {
		for i, want := range []Answer{Yes, No} {
			if r := judged(t, id, f[i]); r.Holds != want || r.Value == nil || r.Measured == "" {
				t.Errorf("%s: %+v, want %s", id, r, want)
			}
		}
		if r := judged(t, id, &Figures{}); r.Holds != Open || r.Why == "" || r.Value != nil {
			t.Errorf("%s without figures: %+v", id, r)
		}
	}
	for _, c := range Claims() {
		if _, ok := cases[c.ID]; !ok && c.ID != "gaussian-residue" && c.ID != "rank200-2bit" {
			t.Errorf("claim %s has no case here", c.ID)
		}
		if c.Claim == "" || c.Source == "" || c.Command == "" || c.Means == "" {
			t.Errorf("claim %s lacks words", c.ID)
		}
	}
}

// Rates of two runs are not compared with each other: the machine may have been another one.
func TestRunsApart(t *testing.T) {
	f := read(t, benchOf("19", "1"))
	if err := f.Others.Read("later.json", strings.NewReader(strings.ReplaceAll(benchOf("38", "1"), ":10}", ":20}"))); err != nil {
		t.Fatal(err)
	}
	if r := judged(t, "two-rows", f); *r.Value != 1.9 {
		t.Errorf("%+v", r)
	}
}

// Small matrices and short blocks tell nothing of large ones.
func TestUntold(t *testing.T) {
	small := []Matrix{{Rows: 64, Cols: 172, Energy: 0.999, Outliers: 0.999}}
	short := heads(0.9)
	short.Block = 128
	for id, f := range map[string]*Figures{"rank-5-99": {Matrices: small}, "low-rank-outliers": {Matrices: small},
		"attention-small": {Attention: short}, "sparse-attention": {Attention: short, Dropped: dropped(0, 0, 0)}} {
		if r := judged(t, id, f); r.Holds != Untold || r.Why == "" {
			t.Errorf("%s: %+v", id, r)
		}
	}
}

// Three quarters of six layers lie within the fifth: only what holds on both sides of it is said.
func TestExitBetween(t *testing.T) {
	for _, c := range []struct {
		fourth, fifth float64
		want          Answer
	}{{0.5, 0.6, Yes}, {0.4, 0.6, Untold}, {0.3, 0.4, No}} {
		r := &attention.Report{Block: 512, Least: 256}
		for n, d := range []float64{0, 0.1, 0.2, c.fourth, c.fifth, 1} {
			r.Layers = append(r.Layers, attention.Layer{Layer: n, Decided: d})
		}
		if got := judged(t, "early-exit", &Figures{Attention: r}); got.Holds != c.want || *got.Value != c.fifth {
			t.Errorf("%v, %v: %+v, want %s", c.fourth, c.fifth, got, c.want)
		}
	}
}

// The formulas against brute force: a Gaussian's entropy with and without what is known of it, and bytes added up.
func TestArithmetic(t *testing.T) {
	entropy := func(variance float64) float64 { return 0.5 * math.Log2(2*math.Pi*math.E*variance) }
	for _, r := range []float64{0.1, 0.3, 0.9} {
		if got, want := Saved(r), entropy(1)-entropy(1-r*r); math.Abs(got-want) > 1e-12 {
			t.Errorf("r %v: %v bits, want %v", r, got, want)
		}
	}
	bits := func(n, rank int) (sum float64) {
		for range 2 * rank {
			for range n {
				sum += 16
			}
		}
		return sum + 2*float64(n)*float64(n)
	}
	if got, want := Factored(4096, 200, 2), 4.5*4096*4096/bits(4096, 200); math.Abs(got-want) > 1e-12 || math.Abs(got-1.26) > 0.01 {
		t.Errorf("%v times, want %v", got, want)
	}
	for id, want := range map[string]float64{"gaussian-residue": 0.0189, "rank200-2bit": 1.26} {
		if r := judged(t, id, &Figures{}); r.Holds != No || math.Abs(*r.Value-want) > 0.01*want {
			t.Errorf("%s: %+v %v", id, r, *r.Value)
		}
	}
}

// What is no result says so.
func TestRead(t *testing.T) {
	for _, doc := range []string{"", "{}", "[1]", `{"schema":"ck.run/1"}`} {
		var o Others
		if err := o.Read("x.json", strings.NewReader(doc)); err == nil || !strings.HasPrefix(err.Error(), "x.json: ") {
			t.Errorf("%q: %v", doc, err)
		}
	}
}
