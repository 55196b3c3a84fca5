// Command predict compares what cktopo plan predicts with what ckbench measures: the same file, threads and test, the prediction made
// from the roofs that ckbench sampled beside each repetition, so that a machine that is slower for a while is so for both.
//
//	go run ./test/predict --ckbench bin/ckbench --cktopo bin/cktopo MODEL.gguf…
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
	fmt.Println("| model | test | threads | measured, tokens/s | predicted | predicted / measured | of the repetitions |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, m := range models {
		for t := range strings.SplitSeq(*threads, ",") {
			n, err := strconv.Atoi(t)
			if err != nil {
				return far, fmt.Errorf("-t: %q is no list of numbers", *threads)
			}
			for _, prefill := range []bool{true, false} {
				r, err := measured(m, n, prefill)
				if err != nil {
					return far, err
				}
				off, err := row(m, n, prefill, r)
				if err != nil {
					return far, err
				}
				goal := goalMany
				if n == 1 {
					goal = goalOne
				}
				far = far || math.Abs(off-1) > goal
			}
		}
	}
	return far, nil
}

// row prints a row and returns the median of predicted over measured.
func row(model string, threads int, prefill bool, r result) (float64, error) {
	var ts, predictions, ratios []float64
	for _, s := range r.Samples {
		if s.Read <= 0 || s.Peak <= 0 || s.TS <= 0 {
			return 0, fmt.Errorf("%s %s: ckbench measured no roofs beside a repetition", model, r.Test)
		}
		p, err := predicted(model, threads, prefill, r.Kind, s)
		if err != nil {
			return 0, err
		}
		ts, predictions, ratios = append(ts, s.TS), append(predictions, p), append(ratios, p/s.TS)
	}
	if len(ratios) == 0 {
		return 0, fmt.Errorf("%s: ckbench has no repetitions", model)
	}
	name := strings.TrimSuffix(filepath.Base(model), ".gguf")
	m := median(ratios)
	_, err := fmt.Printf("| %s | %s | %d | %.4g | %.4g | %.2f | %.2f to %.2f |\n", name, r.Test, threads, median(ts), median(predictions), m, slices.Min(ratios),
		slices.Max(ratios))
	return m, err
}

// measured runs one test with ckbench.
func measured(model string, threads int, prefill bool) (result, error) {
	p, n := strconv.Itoa(*prompt), "0"
	if !prefill {
		p, n = "0", strconv.Itoa(*gen)
	}
	var doc struct{ Results []result }
	err := output(&doc, *ckbench, "run", "-q", "-m", model, "-t", strconv.Itoa(threads), "-p", p, "-n", n, "-r", strconv.Itoa(*reps), "-o", "json")
	if err == nil && len(doc.Results) != 1 {
		err = fmt.Errorf("%s: %d results for one test", model, len(doc.Results))
	}
	if err != nil {
		return result{}, err
	}
	return doc.Results[0], nil
}

// predicted asks cktopo for the rate under the roofs of a repetition. Generation starts with an empty sequence: on average its tokens see
// half of what is generated.
func predicted(model string, threads int, prefill bool, kind string, s sample) (float64, error) {
	context := *prompt
	if !prefill {
		context = max(1, *gen/2)
	}
	type phase struct {
		Expected float64 `json:"expected"`
	}
	var doc struct {
		Plans []struct{ Prefill, Decode *phase }
	}
	err := output(&doc, *cktopo, "plan", model, "-t", strconv.Itoa(threads), "--prompt", strconv.Itoa(context), "--context", strconv.Itoa(context),
		"--bandwidth", fmt.Sprint(s.Read), "--peak", fmt.Sprintf("%s=%g", kind, s.Peak), "--json")
	if err != nil {
		return 0, err
	}
	if len(doc.Plans) != 1 || doc.Plans[0].Prefill == nil || doc.Plans[0].Decode == nil {
		return 0, fmt.Errorf("%s: cktopo predicts nothing", model)
	}
	if prefill {
		return doc.Plans[0].Prefill.Expected, nil
	}
	return doc.Plans[0].Decode.Expected, nil
}

// output runs a program and reads the JSON that it prints.
func output(doc any, program string, args ...string) error {
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		var x *exec.ExitError
		if errors.As(err, &x) {
			return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(x.Stderr)))
		}
		return err
	}
	if err := json.Unmarshal(out, doc); err != nil {
		return fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
