// Command peers compares ck with llama.cpp and ik_llama.cpp on the same files, row by row (file, test, threads):
//
//	go run ./test/peers -ck bin/ckbench -llama gcc=DIR,clang=DIR -ik gcc=DIR -models DIR
//
// DIR holds a peer's llama-bench (and llama-sweep-bench, for ik_llama.cpp after a depth); several builds of one peer compete.
// Models are random weights of real shapes, made with ckbench synth where they are missing.
//
// A row is meant to be one that a peer's author would sign:
//
//   - Each peer runs with the build and the flags that were fastest for it: searched per weight type and test, and kept (setup.go).
//   - Each repetition is a fresh process that measures twice; the first time warms up and is dropped, for every engine alike.
//   - Engines take turns, and the order rotates. The read roof is taken before and behind each of them (sample.go).
//   - A repetition during which other processes took more than 5 % of a CPU is measured again.
//   - The memory of some machines has states of different speed: figures are given per state (-states), and there are up to twice as many
//     repetitions until one state has enough of them.
//
// Rows that are done are kept in -state, under ck's commit and the peers' builds, and are not measured again; the tables go to stdout.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

var (
	ck     = flag.String("ck", "bin/ckbench", "ckbench")
	llama  = flag.String("llama", "", "builds of llama.cpp, NAME=DIR,NAME=DIR; left out if empty")
	ik     = flag.String("ik", "", "builds of ik_llama.cpp, NAME=DIR,NAME=DIR; left out if empty")
	models = flag.String("models", "", "folder of the model files")
	list   = flag.String("files", "qwen3-0.6b:Q8_0,Q4_K_M,Q6_K,Q4_0,BF16 llama-3.2-1b:Q8_0,Q4_K_M,Q6_K,Q4_0,BF16", "shapes and types")
	tests  = flag.String("tests", "pp512 tg64", "tests; tg64@4096 is generation after 4096 tokens")
	thr    = flag.String("t", "2", "threads")
	reps   = flag.Int("r", 5, "repetitions in one state of the memory, if twice as many in all have them")
	cpu    = flag.String("cpu", "", "ISA tier of ck")
	states = flag.String("states", "", "GB/s that divide the states of the memory, as 65; empty: one state")
	state  = flag.String("state", "peers.jsonl", "rows measured so far")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "peers: error:", err)
		os.Exit(1)
	}
}

func run() error {
	engines, err := openEngines()
	if err != nil {
		return err
	}
	borders, err := floats(*states)
	if err != nil {
		return fmt.Errorf("-states: %w", err)
	}
	j, err := openJournal(*state, engines)
	if err != nil {
		return err
	}
	jobs, err := jobs()
	if err != nil {
		return err
	}
	probes := map[int]*probe{}
	for _, job := range jobs {
		if j.has(job.key()) {
			continue
		}
		p := probes[job.Threads]
		if p == nil {
			if p, err = newProbe(job.Threads); err != nil {
				return err
			}
			defer p.close()
			probes[job.Threads] = p
		}
		m := &meter{engines: engines, journal: j, probe: p, borders: borders}
		r, err := m.row(job)
		if err != nil {
			return fmt.Errorf("%s: %w", job.key(), err)
		}
		if err := j.save(entry{Row: &r}); err != nil {
			return err
		}
		for _, l := range lines(r, borders) {
			fmt.Fprintln(os.Stderr, l)
		}
	}
	printTables(os.Stdout, j, engines, borders)
	return nil
}

// job is what a row measures.
type job struct {
	Model   string `json:"model"`
	Path    string `json:"-"`
	Type    string `json:"type"`
	Test    string `json:"test"` // pp512, tg64, tg64@4096, pp512@4096
	Threads int    `json:"threads"`
	CPU     string `json:"cpu,omitempty"` // tier that ck was restricted to
}

func (j job) key() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s t%d %s", j.Model, j.Test, j.Threads, j.CPU))
}

func (j job) depth() string {
	_, depth, _ := strings.Cut(j.Test, "@")
	return depth
}

func (j job) prompt() bool { return strings.HasPrefix(j.Test, "pp") }

// tokens is the number of tokens of the test: 512 of pp512@4096.
func (j job) tokens() string {
	kind, _, _ := strings.Cut(j.Test, "@")
	return kind[2:]
}

// jobs lists all rows that the flags ask for; files that are missing are made.
func jobs() ([]job, error) {
	var out []job
	dir, err := filepath.Abs(*models)
	if err != nil {
		return nil, err
	}
	for _, group := range strings.Fields(*list) {
		shape, types, ok := strings.Cut(group, ":")
		if !ok {
			return nil, fmt.Errorf("-files: %q is not SHAPE:TYPE,TYPE", group)
		}
		for _, typ := range strings.Split(types, ",") {
			name := shape + "-" + typ
			path := filepath.Join(dir, name+".gguf")
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				if out, err := exec.Command(*ck, "synth", shape, typ, "-o", path).CombinedOutput(); err != nil {
					return nil, fmt.Errorf("ckbench synth %s %s: %v\n%s", shape, typ, err, out)
				}
			}
			for _, t := range strings.Split(*thr, ",") {
				n, err := strconv.Atoi(t)
				if err != nil {
					return nil, fmt.Errorf("-t: %w", err)
				}
				for _, test := range strings.Fields(*tests) {
					if len(test) < 3 || !slices.Contains([]string{"pp", "tg"}, test[:2]) {
						return nil, fmt.Errorf("-tests: %q is neither ppN nor tgN", test)
					}
					out = append(out, job{Model: name, Path: path, Type: typ, Test: test, Threads: n, CPU: *cpu})
				}
			}
		}
	}
	return out, nil
}

func floats(s string) ([]float64, error) {
	var out []float64
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		f, err := strconv.ParseFloat(w, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	slices.Sort(out)
	return out, nil
}
