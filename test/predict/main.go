// Command predict compares what cktopo plan predicts with what ckbench measures: the same file, threads and test, the prediction made
// from the roofs that ckbench sampled beside each repetition, so that a machine that is slower for a while is so for both.
//
//	go run ./test/predict --ckbench bin/ckbench --cktopo bin/cktopo MODEL.gguf…
//
// A name that ends in .json is what ckbench run -o json printed before of a model in the folder of --models: it is not measured again.
// --save keeps what was measured.
//
// The table goes to stdout. The exit code is 1 if a median is further off than 15 % with one thread, 25 % with more.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

var (
	ckbench = flag.String("ckbench", "bin/ckbench", "the program that measures")
	cktopo  = flag.String("cktopo", "bin/cktopo", "the program that predicts")
	threads = flag.String("t", "1,2", "threads")
	reps    = flag.Int("r", 5, "repetitions")
	prompt  = flag.Int("p", 512, "tokens of the prompt")
	gen     = flag.Int("n", 64, "tokens that are generated")
	save    = flag.String("save", "", "an existing folder for what ckbench printed")
	folder  = flag.String("models", ".", "the folder of the models that were measured before")
)

// Goals: how far a prediction may be off.
const (
	goalOne  = 0.15
	goalMany = 0.25
)

// sample is what ckbench says of a repetition.
type sample struct {
	TS   float64 `json:"tokens_per_s"`
	Read float64 `json:"read_roof_gbs"`
	Peak float64 `json:"peak_gops"`
}

// result is what it says of a test.
type result struct {
	Model   string   `json:"model_filename"`
	Threads int      `json:"n_threads"`
	Prompt  int      `json:"n_prompt"`
	Gen     int      `json:"n_gen"`
	Depth   int      `json:"n_depth"`
	Rows    int      `json:"rows"`
	Test    string   `json:"test"`
	Kind    string   `json:"peak_kind"`
	Samples []sample `json:"samples"`
}

func main() {
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "predict: error: no model's file; make some with ckbench synth")
		os.Exit(2)
	}
	far, err := run(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "predict: error:", err)
		os.Exit(3)
	}
	if far {
		os.Exit(1)
	}
}

// run prints the table; far tells that a prediction is off by more than the goal.
func run(models []string) (far bool, err error) {
	fmt.Println("| model | test | threads | measured, tokens/s | predicted | predicted / measured | of the repetitions | read roof, GB/s |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, m := range models {
		rs, err := results(m)
		if err != nil {
			return far, err
		}
		for _, r := range rs {
			off, err := row(r)
			if err != nil {
				return far, err
			}
			goal := goalMany
			if r.Threads == 1 {
				goal = goalOne
			}
			far = far || math.Abs(off-1) > goal
		}
	}
	return far, nil
}

// results are those of a file of results, or of a model that is measured now.
func results(name string) ([]result, error) {
	var doc struct{ Results []result }
	if strings.HasSuffix(name, ".json") {
		b, err := os.ReadFile(name)
		if err == nil {
			if err = json.Unmarshal(b, &doc); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
		}
		for i := range doc.Results {
			doc.Results[i].Model = filepath.Join(*folder, doc.Results[i].Model)
		}
		return doc.Results, err
	}
	var out []result
	for t := range strings.SplitSeq(*threads, ",") {
		args := []string{"run", "-q", "-m", name, "-t", t, "-p", strconv.Itoa(*prompt), "-n", strconv.Itoa(*gen), "-r", strconv.Itoa(*reps), "-o", "json"}
		b, err := output(&doc, *ckbench, args...)
		if err != nil {
			return nil, err
		}
		for i := range doc.Results {
			doc.Results[i].Model = name
		}
		out = append(out, doc.Results...)
		doc.Results = nil
		if *save != "" {
			file := fmt.Sprintf("%s-t%s.json", strings.TrimSuffix(filepath.Base(name), ".gguf"), t)
			if err := os.WriteFile(filepath.Join(*save, file), b, 0o666); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// row prints a row and returns the median of predicted over measured.
func row(r result) (float64, error) {
	if r.Prompt > 0 && r.Gen > 0 || r.Prompt > 0 && r.Depth > 0 {
		return 0, fmt.Errorf("%s %s: only prompts in an empty context are predicted, and generation", r.Model, r.Test)
	}
	var ts, predictions, ratios, roofs []float64
	for _, s := range r.Samples {
		if s.Read <= 0 || s.Peak <= 0 || s.TS <= 0 {
			return 0, fmt.Errorf("%s %s: ckbench measured no roofs beside a repetition", r.Model, r.Test)
		}
		p, err := predicted(r, s)
		if err != nil {
			return 0, err
		}
		ts, predictions, ratios, roofs = append(ts, s.TS), append(predictions, p), append(ratios, p/s.TS), append(roofs, s.Read)
	}
	if len(ratios) == 0 {
		return 0, fmt.Errorf("%s: ckbench has no repetitions", r.Model)
	}
	name := strings.TrimSuffix(filepath.Base(r.Model), ".gguf")
	m := median(ratios)
	_, err := fmt.Printf("| %s | %s | %d | %.4g | %.4g | %.2f | %.2f to %.2f | %.0f to %.0f |\n", name, r.Test, r.Threads, median(ts), median(predictions), m,
		slices.Min(ratios), slices.Max(ratios), slices.Min(roofs), slices.Max(roofs))
	return m, err
}

// predicted asks cktopo for the rate under the roofs of a repetition. Tokens that are generated see on average the context before them and
// half of what is generated.
func predicted(r result, s sample) (float64, error) {
	context := r.Prompt
	if r.Gen > 0 {
		context = r.Depth + max(1, r.Gen/2)
	}
	type phase struct {
		Expected float64 `json:"expected"`
	}
	var doc struct {
		Plans []struct{ Prefill, Decode *phase }
	}
	_, err := output(&doc, *cktopo, "plan", r.Model, "-t", strconv.Itoa(r.Threads), "--prompt", strconv.Itoa(context), "--context", strconv.Itoa(context+1),
		"--rows", strconv.Itoa(max(1, r.Rows)), "--bandwidth", fmt.Sprint(s.Read), "--peak", fmt.Sprintf("%s=%g", r.Kind, s.Peak), "--json")
	if err != nil {
		return 0, err
	}
	if len(doc.Plans) != 1 || doc.Plans[0].Prefill == nil || doc.Plans[0].Decode == nil {
		return 0, fmt.Errorf("%s: cktopo predicts nothing", r.Model)
	}
	if r.Gen == 0 {
		return doc.Plans[0].Prefill.Expected, nil
	}
	return doc.Plans[0].Decode.Expected, nil
}

// output runs a program and reads the JSON that it prints.
func output(doc any, program string, args ...string) ([]byte, error) {
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		var x *exec.ExitError
		if errors.As(err, &x) {
			return nil, fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(x.Stderr)))
		}
		return nil, err
	}
	if err := json.Unmarshal(out, doc); err != nil {
		return nil, fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return out, nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
