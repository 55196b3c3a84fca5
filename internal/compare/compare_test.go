package compare

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ck/internal/bench"
	"ck/internal/measure"
	"ck/internal/testkit"
)

// noisy is a result with drifting roofs: tokens/s follow the roof, which differs by 15 %.
func noisy(rng *rand.Rand, level float64, threads int) *bench.Result {
	r := &bench.Result{Schema: bench.Schema, ModelType: "llama 1.2B Q4_K_M", Gen: 4, Rows: 2, Depth: 7, Test: "tg4x2 @ d7"}
	r.Threads = threads
	for range 5 {
		roof := 0.85 + 0.15*rng.Float64()
		share := level * (1 + 0.01*rng.NormFloat64())
		r.Samples = append(r.Samples, bench.Sample{TS: 100 * share * roof, Share: share})
	}
	return r
}

var options = Options{Alpha: 0.05, FailOn: 0.05}

func one(o, r *bench.Result) Test {
	return compareOne(&merged{*o, [][]bench.Sample{o.Samples}}, &merged{*r, [][]bench.Sample{r.Samples}}, options)
}

func results(before, after []*bench.Result) (list []Test, added, gone []string) {
	r := Results(before, after, options)
	return r.Tests, r.Added, r.Gone
}

func TestCompare(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	wrong := 0
	for range 200 {
		old := noisy(rng, 0.8, 2)
		if c := one(old, noisy(rng, 0.7, 2)); c.Verdict != "regression" || c.What != "share of roof" {
			t.Fatalf("12 %% slower: %+v", c)
		}
		if c := one(old, noisy(rng, 0.8, 2)); c.Verdict == "regression" {
			wrong++
		}
		if c := one(old, noisy(rng, 0.95, 2)); c.Verdict != "faster" {
			t.Fatalf("faster: %+v", c)
		}
	}
	if wrong > 0 {
		t.Errorf("%d of 200 repeats are taken for regressions of 5 %%", wrong)
	}
	// Fewer threads: the share of their own roof is higher, but the rate fell.
	old, slow := noisy(rng, 0.8, 2), noisy(rng, 0.9, 1)
	for i := range slow.Samples {
		slow.Samples[i].TS /= 2
	}
	list, added, gone := results([]*bench.Result{old}, []*bench.Result{slow})
	if len(list) != 1 || len(added)+len(gone) != 0 || list[0].Verdict != "regression" || list[0].What != "tokens/s" {
		t.Errorf("fewer threads: %+v, %v, %v", list, added, gone)
	}
	// With several numbers of threads on a side, each meets its own.
	list, added, gone = results([]*bench.Result{old, slow}, []*bench.Result{slow, noisy(rng, 0.8, 4)})
	if len(list) != 1 || len(added) != 1 || !strings.Contains(added[0], "4 threads") || len(gone) != 1 || !strings.Contains(gone[0], "2 threads") ||
		list[0].OldThreads != 1 || list[0].Verdict != "same" {
		t.Errorf("%+v, %v, %v", list, added, gone)
	}
	// Results of the same test are taken together.
	list, _, _ = results([]*bench.Result{old, old}, []*bench.Result{old})
	if len(list) != 1 || list[0].OldN != 10 || list[0].NewN != 5 || len(old.Samples) != 5 {
		t.Errorf("%+v", list)
	}
	if c := one(&bench.Result{}, old); c.Verdict != "no samples" {
		t.Errorf("%+v", c)
	}
}

// Where several runs stand on each side, what differs from run to run is no difference of programs.
func TestCompareRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	runs := func(level float64) (rs []*bench.Result) {
		for range 5 {
			rs = append(rs, noisy(rng, level*(1+0.08*rng.NormFloat64()), 2))
		}
		return rs
	}
	wrong, naive, missed := 0, 0, 0
	for range 200 {
		old, again := runs(0.8), runs(0.8)
		list, _, _ := results(old, again)
		if c := list[0]; c.Unit != "run" || c.OldRuns != 5 || c.NewRuns != 5 || c.OldN != 25 {
			t.Fatalf("%+v", c)
		} else if c.Verdict == "regression" {
			wrong++
		}
		if list, _, _ = results(old[:1], again[:1]); list[0].Unit != "repetition" {
			t.Fatalf("%+v", list[0])
		} else if list[0].Verdict == "regression" {
			naive++
		}
		if list, _, _ = results(old, runs(0.55)); list[0].Verdict != "regression" {
			missed++
		}
	}
	if wrong > 10 || naive < 40 || missed > 2 {
		t.Errorf("of 200 each: %d wrong by runs, %d by repetitions of one run, %d missed", wrong, naive, missed)
	}
}

func TestDifferences(t *testing.T) {
	a, b := &bench.Result{}, &bench.Result{}
	a.Host, b.Host = &measure.Host{CPU: "A", THP: "madvise"}, &measure.Host{CPU: "A", THP: "never", Governor: "performance"}
	a.Tier, b.Tier = "vnni", "avx2"
	a.ModelHash, b.ModelHash = "1", "2"
	want := []string{"huge pages (madvise, never)", "tier (vnni, avx2)", "the model's file"}
	if got := differences(a, b); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	b.Host = nil
	if got := differences(a, b); !slices.Equal(got, want[1:]) {
		t.Errorf("%q", got)
	}
	// Results carry their host, wherever it stands in the file.
	for _, text := range []string{`{"schema":"ck.bench.run/1","test":"a","host":{"cpu":"A"}}`, `{"schema":"ck.bench.run/1","host":{"cpu":"A"},"results":[{"test":"a"}]}`} {
		if rs, err := Read("f", strings.NewReader(text)); err != nil || len(rs) != 1 || rs[0].Host == nil || rs[0].Host.CPU != "A" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLeastP(t *testing.T) {
	for n, want := range map[int]float64{0: 1, 1: 1, 3: 0.1, 5: 2.0 / 252} {
		if got := leastP(n, n); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d repetitions: %g, want %g", n, got, want)
		}
	}
}

func TestReadResults(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "f: is empty",
		"{":                           "f: ends within a result",
		"GGUF":                        "f: is not JSON",
		"[1]":                         "f: is a JSON array, not an object",
		`{"schema":"x"}`:              `f: has schema "x"`,
		`{"schema":"ck.bench.run/1"}`: "f: has no results",
		`{"schema":"ck.bench.run/1","results":null}`: "f: has no results",
		`{"schema":"ck.bench.run/1","results":[]}`:   "f: is empty, or has no results",
		`{"schema":"ck.bench.run/1","test":7}`:       `f: "test" is a JSON number`,
	} {
		if _, err := Read("f", strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	two := `{"schema":"ck.bench.run/1","test":"a"} {"schema":"ck.bench.run/1","results":[{"test":"b"},{"test":"c"}]}`
	if rs, err := Read("f", strings.NewReader(two)); err != nil || len(rs) != 3 || rs[2].Test != "c" {
		t.Errorf("%v, %v", rs, err)
	}
}

// Too few repetitions to tell any difference, and regressions that rest on one run, are doubtful; verdicts are counted.
func TestDoubts(t *testing.T) {
	r := &Report{Alpha: 0.05, Tests: []Test{{Test: "a", Verdict: "same", OldN: 3, NewN: 3, least: 0.1, P: 0.7, Unit: "repetition"},
		{Test: "b", Verdict: "regression", least: 0.008, P: 0.01, Unit: "repetition"}, {Test: "c", Verdict: "regression", least: 0.008, P: 0.01, Unit: "run"}}}
	got := r.Doubts()
	if len(got) != 2 || got[0] != "a: 3 and 3 repetitions cannot come below p = 0.1, and --alpha is 0.05; repeat more often (-r)" || !strings.HasPrefix(got[1], "fewer than 4 runs on a side") {
		t.Errorf("%q", got)
	}
	if r.Count("regression") != 2 || r.Count("same") != 1 || r.Count("faster") != 0 {
		t.Error("verdicts are counted wrongly")
	}
	r.Tests[1].Unit, r.Tests[0].least = "run", 0.01
	if got := r.Doubts(); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// FuzzReadResults: any bytes are results or an error.
func FuzzReadResults(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add(`{"schema":"ck.bench.run/1","results":[{"samples":[{"share":0.5}]}]}`)
	f.Add(`{"schema":"ck.bench.run/1","results":[null]}`)
	f.Fuzz(func(t *testing.T, text string) {
		rs, err := Read("x", strings.NewReader(text))
		if err == nil {
			Results(rs, rs, options)
		}
	})
}
