package main

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	deep := job{Model: "m", Test: "tg64@4096", Threads: 2}
	for _, c := range []struct {
		name, engine, text string
		job                job
		want               output
	}{
		{"ck", ckName, `[{"samples":[{"tokens_per_s":9},{"tokens_per_s":12}],"model_size":1000000000,"gb_per_s":22,"tokens_per_s":{"median":10},"pct_peak":61}]`,
			job{Test: "pp512"}, output{ts: 12, panels: 2.2, peak: 61}},
		{"llama-bench", llamaName, "log line\n[ { \"samples_ts\": [ 3.5, 4.5 ], \"avg_ts\": 4 } ]", job{Test: "pp512"}, output{ts: 4.5}},
		{"sweep", ikName, "{\"n_kv\": 0, \"speed_pp\": 1, \"speed_tg\": 2 }\n{\"n_kv\": 4096, \"speed_pp\": 3, \"speed_tg\": 4 }\n", deep, output{ts: 4}},
	} {
		got, err := parse(c.engine, c.job, []byte(c.text))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	for name, text := range map[string]string{llamaName: `[{"samples_ts":[1]}]`, ckName: `[{"samples":[]}]`, ikName: `[]`} {
		if got, err := parse(name, job{Test: "pp512"}, []byte(text)); err == nil {
			t.Errorf("%s: %s gives %+v, no error", name, text, got)
		}
	}
}

// TestStates: repetitions are compared within a state of the memory; those during which it changed, and states that an engine has not met, are
// left out.
func TestStates(t *testing.T) {
	s := func(ts, before, behind float64) sample {
		return sample{TS: ts, RoofGBps: (before + behind) / 2, Before: before, Behind: behind}
	}
	r := row{job: job{Model: "m", Test: "tg64", Threads: 2}, Bytes: 1e9, Panels: 1.1, Runs: map[string][]sample{
		ckName:    {s(70, 80, 80), s(40, 50, 50), s(72, 82, 81), s(55, 50, 80), s(40, 50, 50)},
		llamaName: {s(35, 80, 80), s(38, 50, 50), s(36, 82, 81), s(38, 50, 50)},
		ikName:    {s(20, 50, 50), s(50, 80, 80), s(48, 82, 81), s(99, 80, 50), s(20, 50, 50)}}}
	got := parts(r, []float64{65})
	if len(got) != 2 || len(got[0].runs[ckName]) != 2 || len(got[1].runs[ckName]) != 2 {
		t.Fatalf("parts: %+v", got)
	}
	if got[0].better() != ikName || got[1].better() != llamaName {
		t.Errorf("better peers: %s, %s", got[0].better(), got[1].better())
	}
	if x := got[0].ratio(ikName); x != 71./49 {
		t.Errorf("ratio: %v", x)
	}
	if !r.settled(2, []float64{65}) || r.settled(3, []float64{65}) || !r.settled(3, nil) {
		t.Error("settled with two, three of one state, three of any: wrong")
	}
	if l := lines(r, nil); len(l) != 1 || !strings.Contains(l[0], "(40.0–72.0) |") {
		t.Errorf("one state: %q", l)
	}
	delete(r.Runs, llamaName)
	r.Runs[ikName] = r.Runs[ikName][1:] // one of the slow state is left
	if l := lines(r, []float64{65}); len(l) != 1 {
		t.Errorf("a state that one engine has met once: %q", l)
	}
}

// TestJournal: rows of other programs do not count, and what a search found outlives a commit of ck.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers.jsonl")
	engines := func(ck, peer string) []engine {
		return []engine{{ckName, []build{{"", "ckbench", ck}}}, {llamaName, []build{{"gcc", "dir", peer}}}}
	}
	j, err := openJournal(path, engines("v1", "a"))
	if err != nil {
		t.Fatal(err)
	}
	k := job{Model: "m", Type: "Q8_0", Test: "tg64", Threads: 2}
	fast := setup{Build: "gcc", Flags: "--repack 0"}
	for _, e := range []entry{{Row: &row{job: k}}, {Search: &search{Engine: llamaName, Type: "Q8_0", Test: "tg64", Tried: []trial{{Setup: fast}, {}}}}} {
		if err := j.save(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		ck, peer  string
		row, best bool
	}{{"v1", "a", true, true}, {"v2", "a", false, true}, {"v1", "b", false, false}} {
		j, err := openJournal(path, engines(c.ck, c.peer))
		if err != nil {
			t.Fatal(err)
		}
		s, best := j.best(llamaName, k)
		if j.has(k.key()) != c.row || best != c.best || best && s != fast {
			t.Errorf("%s %s: row %v, search %v %v", c.ck, c.peer, j.has(k.key()), best, s)
		}
	}
}

// TestSetups: each build meets each way; after a depth what won without one.
func TestSetups(t *testing.T) {
	e := engine{llamaName, []build{{"gcc", "a", ""}, {"clang", "b", ""}}}
	if n := len(e.setups(nil)); n != 2*len(flags[llamaName]) {
		t.Errorf("%d setups", n)
	}
	best := setup{Build: "clang", Flags: "--repack 0", Huge: true}
	cmd := e.command(e.setups(&best)[1], job{Path: "m.gguf", Test: "pp512@4096", Threads: 2})
	if got, want := strings.Join(cmd.Args, " "), "b/llama-bench -m m.gguf -t 2 -r 2 -o json -p 512 -n 0 -d 4096 --repack 0 -fa 0"; got != want {
		t.Errorf("command %q, want %q", got, want)
	}
	if !slices.Contains(cmd.Env, hugePages) {
		t.Error("no huge pages")
	}
	e = engine{ikName, []build{{"gcc", "a", ""}}}
	cmd = e.command(setup{Build: "gcc", Flags: "-rtr 1 -fa 0"}, job{Path: "m.gguf", Test: "tg64@4096", Threads: 2})
	if got, want := strings.Join(cmd.Args, " "), "a/llama-sweep-bench -m m.gguf -t 2 -c 4608 -b 512 -ub 512 -n 64 --sweep-stride 8 --output-format jsonl -rtr -no-fa"; got != want {
		t.Errorf("command %q, want %q", got, want)
	}
}
