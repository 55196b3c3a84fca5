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
			for _, test := range strings.Fields(*tests) {
				for _, t := range strings.Split(*thr, ",") {
					n, err := strconv.Atoi(t)
					if err != nil {
						return err
					}
					r := row{Model: name, Test: test, Threads: n, CPU: *cpu, TS: map[string][]float64{}}
					if _, ok := done[r.key()]; ok {
						continue
					}
					if err := measure(&r, path); err != nil {
						return fmt.Errorf("%s: %w", r.key(), err)
					}
					done[r.key()] = r
					if err := save(*state, r); err != nil {
						return err
					}
					fmt.Fprintln(os.Stderr, line(r))
				}
			}
		}
	}
	table(done)
	return nil
}

// measure runs the engines in turn.
func measure(r *row, path string) error {
	for range *reps {
		for _, e := range []struct{ name, bin string }{{"ck", *ck}, {"llama.cpp", *llama}, {"ik", *ik}} {
			if e.bin == "" {
				continue
			}
			ts, share, err := once(e.name, e.bin, path, r)
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			r.TS[e.name] = append(r.TS[e.name], ts)
			if e.name == "ck" {
				r.Roof = append(r.Roof, share)
			}
		}
	}
	return nil
}

// once runs one engine once.
func once(name, bin, path string, r *row) (ts, share float64, err error) {
	kind, depth, _ := strings.Cut(r.Test, "@")
	prompt := strings.HasPrefix(kind, "pp")
	args := []string{"-m", path, "-t", strconv.Itoa(r.Threads), "-r", "1", "-o", "json"}
	switch {
	case name == "ik" && depth != "" && !prompt: // has no depths: generation after a prompt
		args = append(args, "-p", "0", "-n", "0", "-gp", depth+","+kind[2:])
	case name == "ik" && depth != "":
		return 0, 0, errors.New("ik_llama.cpp cannot measure prompts at depth; leave -ik out")
	default:
		p, n := kind[2:], "0"
		if !prompt {
			p, n = n, p
		}
		args = append(args, "-p", p, "-n", n)
		if depth != "" {
			args = append(args, "-d", depth)
		}
	}
	if name == "ck" {
		args = append([]string{"run"}, args...)
		if r.CPU != "" {
			args = append(args, "--cpu", r.CPU)
		}
	}
	cmd := exec.Command(bin, args...)
	out, err := cmd.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("%s %s: %w", bin, strings.Join(args, " "), err)
	}
	var results []struct {
		TS   float64 `json:"avg_ts"`
		Read float64 `json:"pct_read_roof"`
		Peak float64 `json:"pct_peak"`
	}
	if i := strings.IndexAny(string(out), "[{"); i >= 0 {
		out = out[i:]
	}
	if err := json.Unmarshal(out, &results); err != nil {
		var doc struct {
			Results json.RawMessage `json:"results"`
		}
		if err := errors.Join(json.Unmarshal(out, &doc), json.Unmarshal(doc.Results, &results)); err != nil {
			return 0, 0, fmt.Errorf("its JSON: %w", err)
		}
	}
	if len(results) == 0 {
		return 0, 0, errors.New("it printed no result")
	}
	last := results[len(results)-1]
	if prompt {
		return last.TS, last.Peak, nil
	}
	return last.TS, last.Read, nil
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
	best := max(median(r.TS["llama.cpp"]), median(r.TS["ik"]))
	ratio := "–"
	if best > 0 {
		ratio = fmt.Sprintf("%.2f", median(r.TS["ck"])/best)
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
