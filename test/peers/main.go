// Command peers compares ck with llama.cpp and ik_llama.cpp on the same files, row by row (file, test, threads), the engines alternating
// inside a row, so that a machine that is slower for a while is so for all of them. It needs the peers' llama-bench binaries:
//
//	go run ./test/peers --ck bin/ckbench --llama PATH/llama-bench --ik PATH/llama-bench --models DIR
//
// Models are random weights of real shapes, made with ckbench synth where they are missing. Finished rows are kept in --state and
// not measured again, so that a table may grow over days; the table goes to stdout.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// row is one line of the table: what was measured, and every repetition's tokens per second by engine.
type row struct {
	Model   string               `json:"model"`
	Test    string               `json:"test"` // pp512, tg64, tg64@4096, pp512@4096
	Threads int                  `json:"threads"`
	CPU     string               `json:"cpu,omitempty"` // tier that ck was restricted to
	TS      map[string][]float64 `json:"tokens_per_s"`
	Roof    []float64            `json:"pct_roof"` // ck's share: of the read bandwidth for tg, of the arithmetic peak for pp
}

func (r row) key() string { return fmt.Sprintf("%s %s t%d %s", r.Model, r.Test, r.Threads, r.CPU) }

func (r row) depth() string {
	_, depth, _ := strings.Cut(r.Test, "@")
	return depth
}

func (r row) prompt() bool { return strings.HasPrefix(r.Test, "pp") }

// tokens is the number of tokens of the test: 512 of pp512@4096.
func (r row) tokens() string {
	kind, _, _ := strings.Cut(r.Test, "@")
	return kind[2:]
}

// better is the peer with the higher median, and the median of the ratios to it: of each repetition to the one beside it.
func (r row) better() (name string, ratio float64) {
	for _, peer := range []string{"llama.cpp", "ik"} {
		if median(r.TS[peer]) > median(r.TS[name]) {
			name = peer
		}
	}
	var ratios []float64
	for i, ts := range r.TS[name] {
		ratios = append(ratios, r.TS["ck"][i]/ts)
	}
	return name, median(ratios)
}

var (
	ck     = flag.String("ck", "bin/ckbench", "ckbench")
	llama  = flag.String("llama", "", "llama-bench of llama.cpp; left out if empty")
	ik     = flag.String("ik", "", "llama-bench of ik_llama.cpp; left out if empty")
	models = flag.String("models", "", "folder of the model files")
	list   = flag.String("files", "qwen3-0.6b:Q8_0,Q4_K_M,Q6_K,Q4_0,BF16 llama-3.2-1b:Q8_0,Q4_K_M,Q6_K,Q4_0,BF16", "shapes and types")
	tests  = flag.String("tests", "pp512 tg64", "tests; tg64@4096 is generation after 4096 tokens")
	thr    = flag.String("t", "2,1", "threads")
	reps   = flag.Int("r", 5, "repetitions")
	cpu    = flag.String("cpu", "", "ISA tier of ck")
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
	done, err := load(*state)
	if err != nil {
		return err
	}
	for _, group := range strings.Fields(*list) {
		shape, types, ok := strings.Cut(group, ":")
		if !ok {
			return fmt.Errorf("-files: %q is not SHAPE:TYPE,TYPE", group)
		}
		for _, typ := range strings.Split(types, ",") {
			name := shape + "-" + typ
			path := filepath.Join(*models, name+".gguf")
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				if out, err := exec.Command(*ck, "synth", shape, typ, "-o", path).CombinedOutput(); err != nil {
					return fmt.Errorf("ckbench synth %s %s: %v\n%s", shape, typ, err, out)
				}
			}
			for _, t := range strings.Split(*thr, ",") {
				n, err := strconv.Atoi(t)
				if err != nil {
					return err
				}
				for _, depth := range depths() {
					var rows []row
					for _, test := range strings.Fields(*tests) {
						r := row{Model: name, Test: test, Threads: n, CPU: *cpu, TS: map[string][]float64{}}
						if _, ok := done[r.key()]; !ok && r.depth() == depth {
							rows = append(rows, r)
						}
					}
					if len(rows) == 0 {
						continue
					}
					if err := measure(rows, path); err != nil {
						return fmt.Errorf("%s: %w", rows[0].key(), err)
					}
					for _, r := range rows {
						done[r.key()] = r
						if err := save(*state, r); err != nil {
							return err
						}
						fmt.Fprintln(os.Stderr, line(r))
					}
				}
			}
		}
	}
	table(done)
	return nil
}

// depths are the depths of all tests.
func depths() []string {
	var out []string
	for _, test := range strings.Fields(*tests) {
		if d := (row{Test: test}).depth(); !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// measure runs the engines in turn; each measures the tests of all rows, which have one file, depth and number of threads, in one process.
func measure(rows []row, path string) error {
	for range *reps {
		for _, e := range []struct{ name, bin string }{{"ck", *ck}, {"llama.cpp", *llama}, {"ik", *ik}} {
			if e.bin == "" {
				continue
			}
			for i := 0; i < len(rows); {
				n := len(rows) - i
				if e.name == "ik" && rows[i].depth() != "" { // it has no depths: generation after a prompt, one by one
					if n = 1; rows[i].prompt() {
						i++
						continue
					}
				}
				if err := once(e.name, e.bin, path, rows[i:i+n]); err != nil {
					return fmt.Errorf("%s: %w", e.name, err)
				}
				i += n
			}
		}
	}
	return nil
}

// once runs one engine once and adds what it says to the rows.
func once(name, bin, path string, rows []row) error {
	depth := rows[0].depth()
	args := []string{"-m", path, "-t", strconv.Itoa(rows[0].Threads), "-r", "1", "-o", "json"}
	p, n := "0", "0"
	for _, r := range rows {
		if r.prompt() {
			p = r.tokens()
		} else {
			n = r.tokens()
		}
	}
	switch {
	case name == "ik" && depth != "":
		args = append(args, "-p", "0", "-n", "0", "-gp", depth+","+n)
	case depth != "":
		args = append(args, "-p", p, "-n", n, "-d", depth)
	default:
		args = append(args, "-p", p, "-n", n)
	}
	if name == "ck" {
		args = append([]string{"run"}, args...)
		if rows[0].CPU != "" {
			args = append(args, "--cpu", rows[0].CPU)
		}
	}
	out, err := exec.Command(bin, args...).Output()
	if err != nil {
		return fmt.Errorf("%s %s: %w", bin, strings.Join(args, " "), err)
	}
	type result struct {
		Prompt int     `json:"n_prompt"`
		Gen    int     `json:"n_gen"`
		TS     float64 `json:"avg_ts"`
		Read   float64 `json:"pct_read_roof"`
		Peak   float64 `json:"pct_peak"`
	}
	var results []result
	if i := strings.IndexAny(string(out), "[{"); i >= 0 {
		out = out[i:]
	}
	if err := json.Unmarshal(out, &results); err != nil {
		var doc struct {
			Results []result `json:"results"`
		}
		if err := json.Unmarshal(out, &doc); err != nil {
			return fmt.Errorf("its JSON: %w", err)
		}
		results = doc.Results
	}
	for i := range rows {
		r := &rows[i]
		at := slices.IndexFunc(results, func(x result) bool {
			return r.prompt() && x.Gen == 0 && strconv.Itoa(x.Prompt) == r.tokens() || !r.prompt() && strconv.Itoa(x.Gen) == r.tokens()
		})
		if at < 0 {
			return fmt.Errorf("%s %s: no result for %s", bin, strings.Join(args, " "), r.Test)
		}
		x := results[at]
		r.TS[name] = append(r.TS[name], x.TS)
		if name == "ck" {
			share := x.Read
			if r.prompt() {
				share = x.Peak
			}
			r.Roof = append(r.Roof, share)
		}
	}
	return nil
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// line is a row as a line of the Markdown table.
func line(r row) string {
	ratio := "–"
	if peer, x := r.better(); peer != "" {
		ratio = fmt.Sprintf("%.2f", x)
	}
	cell := func(name string) string {
		if len(r.TS[name]) == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f", median(r.TS[name]))
	}
	test := r.Test
	if r.CPU != "" {
		test += " " + r.CPU
	}
	return fmt.Sprintf("| %s | %s | %d | %s | %s | %s | %s | %.0f %% |", r.Model, test, r.Threads, cell("ck"), cell("llama.cpp"), cell("ik"), ratio, median(r.Roof))
}

func table(rows map[string]row) {
	var keys []string
	for k := range rows {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	fmt.Println("| model | test | threads | ck, tokens/s | llama.cpp | ik_llama.cpp | ck / better peer | ck, of the roof |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, k := range keys {
		fmt.Println(line(rows[k]))
	}
}

func load(path string) (map[string]row, error) {
	out := map[string]row{}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var r row
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out[r.key()] = r
	}
	return out, s.Err()
}

func save(path string, r row) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
	}
	return errors.Join(err, f.Close())
}
