package advice

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"ck/internal/cost"
	"ck/internal/synth"
)

func TestParsePeak(t *testing.T) {
	for s, want := range map[string]map[string]float64{"": nil, "2180": {"int8": 2180}, "int8=2180,bf16=1090,f32=546": {"int8": 2180, "bf16": 1090, "f32": 546},
		"bf16=1e3": {"bf16": 1000}} {
		if got, err := ParsePeak(s); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"x", "int8=", "int8=-1", "int8=0", "int4=3", "int8=1,int8=2", "int8=1,", "=3", "NaN", "Inf", "1e300"} {
		if got, err := ParsePeak(s); err == nil || !strings.HasPrefix(err.Error(), "--peak: ") {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

func TestShellWord(t *testing.T) {
	for s, want := range map[string]string{"a/b-1.gguf": "a/b-1.gguf", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "$(rm)": "'$(rm)'"} {
		if got := shellWord(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

// A machine is the same in TOML and in JSON.
func TestTOML(t *testing.T) {
	b, err := tomlToJSON([]byte("name = \"x\"\ncores = 8\nghz = 2.5\nisa = \"avx2\"\nchannels = 2\nmts = 3200\n[peak_gops]\nint8 = 100\n"))
	if err != nil {
		t.Fatal(err)
	}
	x, err := cost.ParseMachine(b)
	if err != nil {
		t.Fatal(err)
	}
	y, err := cost.ParseMachine([]byte(`{"name":"x","cores":8,"ghz":2.5,"isa":"avx2","channels":2,"mts":3200,"peak_gops":{"int8":100}}`))
	if err != nil {
		t.Fatal(err)
	}
	if x.Name != y.Name || x.Cores != y.Cores || x.GHz != y.GHz || x.TheoryBandwidth() != y.TheoryBandwidth() || !maps.Equal(x.PeakGops, y.PeakGops) {
		t.Errorf("TOML %+v, JSON %+v", x, y)
	}
	if _, err := tomlToJSON([]byte("cores = = 8\n")); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("broken TOML: %v", err)
	}
}

// Operations of integers are no floating-point ones.
func TestOpsUnit(t *testing.T) {
	if i, b := opsUnit("int8"), opsUnit("bf16"); i != "OP/s" || b != "FLOP/s" {
		t.Errorf("%s and %s", i, b)
	}
}

// A model on a described machine: its memory fits or not, its speed is known or why not, its lines say what was asked.
func TestPlan(t *testing.T) {
	shape, err := synth.Find("qwen3-0.6b")
	if err != nil {
		t.Fatal(err)
	}
	m, err := cost.OfShape("qwen3-0.6b", shape, "Q8_0")
	if err != nil {
		t.Fatal(err)
	}
	known, ok := cost.FindMachine("epyc-9654-2s")
	if !ok {
		t.Fatal("no machine epyc-9654-2s")
	}
	ask := &Ask{Prompt: 512, Rows: 1, UBatch: 512, KV: "f16", Ranks: 2, Rank: 16, ClaimDecode: 1e9}
	p, err := ask.Plan(m, Machine{Machine: known, Limit: 1 << 40}, "a b.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if p.Use.Context != 4096 || p.Use.Threads != known.Cores || p.Prefill == nil || p.Decode.Expected <= 0 || p.Decode.Expected > p.Decode.Bound || p.FitsNowhere() || !*p.Memory.Fits {
		t.Errorf("%+v", p)
	}
	if len(p.Claims) != 1 || p.Claims[0].Possible {
		t.Errorf("a billion tokens a second: %+v", p.Claims)
	}
	if line := p.Commands[0].Line; line != fmt.Sprintf("ckrun -m 'a b.gguf' -c 4096 -ub 512 --kv f16 -t %d", known.Cores) {
		t.Error(line)
	}
	heads := 0
	for _, n := range p.Placement {
		heads += n.KVHeads
	}
	if heads != 0 && heads != p.Model.KVHeads {
		t.Errorf("%d heads are placed, of %d", heads, p.Model.KVHeads)
	}
	small, err := ask.Plan(m, Machine{Machine: known, Limit: 1 << 20}, "x")
	if err != nil || !small.FitsNowhere() || !strings.Contains(small.Commands[0].Line, " --no-pack") {
		t.Errorf("a MiB of memory: %+v, %v", small, err)
	}
	unknown := Machine{Machine: cost.Machine{Name: "x", Sockets: 1, Nodes: 1, Cores: 8, ISA: "avx2"}}
	if _, err := ask.Plan(m, unknown, "x"); err == nil || !strings.Contains(err.Error(), "nothing can be judged") {
		t.Errorf("a claim about a machine without roofs: %v", err)
	}
	quiet := &Ask{Prompt: 512, Rows: 1, UBatch: 512, KV: "f16", Ranks: 2, Rank: 16}
	if p, err := quiet.Plan(m, unknown, "x"); err != nil || p.Prefill != nil || p.NoSpeed == "" || p.Memory.Fits != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := (&Ask{Prompt: 100, Context: 100, Rows: 1, UBatch: 512, KV: "f16"}).Plan(m, unknown, "x"); err == nil || !strings.Contains(err.Error(), "leaves no room") {
		t.Errorf("a prompt as long as the context: %v", err)
	}
}

// Peaks are given for threads and kept for all cores.
func TestSetRoofs(t *testing.T) {
	x := Machine{Machine: cost.Machine{Sockets: 1, Nodes: 1, Cores: 8, ISA: "avx2"}}
	x.SetRoofs(map[string]float64{"int8": 100}, 40, 2)
	if x.PeakGops["int8"] != 400 || x.ThreadsRead != 40e9 {
		t.Errorf("%v GOP/s, %g B/s", x.PeakGops, x.ThreadsRead)
	}
}
