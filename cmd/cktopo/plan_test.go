package main

import (
	"maps"
	"strings"
	"testing"

	"ck/internal/cost"
)

func TestParsePeak(t *testing.T) {
	for s, want := range map[string]map[string]float64{"": nil, "2180": {"int8": 2180}, "int8=2180,bf16=1090,f32=546": {"int8": 2180, "bf16": 1090, "f32": 546},
		"bf16=1e3": {"bf16": 1000}} {
		if got, err := parsePeak(s); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"x", "int8=", "int8=-1", "int8=0", "int4=3", "int8=1,int8=2", "int8=1,", "=3", "NaN", "Inf", "1e300"} {
		if got, err := parsePeak(s); err == nil || !strings.HasPrefix(err.Error(), "--peak: ") {
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

func TestTexts(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct{ got, want string }{
		{opsUnit("int8"), "OP/s"}, {opsUnit("bf16"), "FLOP/s"},
		{(&phaseFacts{Seconds: 10, Matmul: 8, Attention: 1, Reading: 8.5}).limit(), "memory, 85 %"},
		{(&phaseFacts{Seconds: 10, Matmul: 8, Attention: 1, Reading: 1}).limit(), "arithmetic, 80 %"},
		{(&phaseFacts{Seconds: 10, Matmul: 2, Elementwise: 3, Meetings: 5}).limit(), "barriers, small steps, 80 %"},
		{(&memoryFacts{}).fits(), "not told"}, {(&memoryFacts{Fits: &no, FileFits: &yes}).fits(), "--no-pack"}, {(&memoryFacts{Fits: &no, FileFits: &no}).fits(), "no"},
		{(&memoryFacts{Fits: &yes}).fits(), "yes"},
		{claimFacts{Times: 25.7, Expected: "205 s expected"}.verdict(), "breaks physics: 25.7 times what there is; 205 s expected"},
		{claimFacts{Times: 0.92, Possible: true, Expected: "x"}.verdict(), "not impossible: 92 % of what there is; x"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
