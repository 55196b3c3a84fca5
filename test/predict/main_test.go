package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Saved results are compared with what cktopo says, here 110 tokens/s and 30.
func TestSavedResults(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	*cktopo = write("cktopo", "#!/bin/sh\necho '{\"plans\":[{\"prefill\":{\"expected\":110},\"decode\":{\"expected\":30}}]}'\n", 0o755)
	good := write("good.json", `{"results":[{"model_filename":"m.gguf","n_threads":1,"n_prompt":512,"rows":1,"test":"pp512","peak_kind":"int8",
		"samples":[{"tokens_per_s":100,"read_roof_gbs":40,"peak_gops":900},{"tokens_per_s":110,"read_roof_gbs":40,"peak_gops":900},
		{"tokens_per_s":50,"read_roof_gbs":40,"peak_gops":900}]}]}`, 0o644)
	if far, err := run([]string{good}); far || err != nil {
		t.Errorf("the median is off by 10 %%: %v, %v", far, err)
	}
	slow := strings.NewReplacer(`"n_prompt":512`, `"n_gen":64`, "pp512", "tg64")
	for text, want := range map[string]bool{`"tokens_per_s":27`: false, `"tokens_per_s":20`: true} {
		b := strings.Replace(`{"results":[{"model_filename":"m.gguf","n_threads":1,"n_prompt":512,"test":"pp512","samples":[{"tokens_per_s":1,
			"read_roof_gbs":40,"peak_gops":900}]}]}`, `"tokens_per_s":1`, text, 1)
		if far, err := run([]string{write("x.json", slow.Replace(b), 0o644)}); far != want || err != nil {
			t.Errorf("30 predicted, %s: %v, %v", text, far, err)
		}
	}
	for text, want := range map[string]string{
		`{"results":[{"model_filename":"m","n_gen":1}]}`:                                  "no repetitions",
		`{"results":[{"model_filename":"m","n_gen":1,"samples":[{"tokens_per_s":1}]}]}`:   "no roofs",
		`{"results":[{"model_filename":"m","n_gen":1,"n_prompt":1,"samples":[{}]}]}`:      "only prompts",
		`{"results":[{"model_filename":"m","n_depth":9,"n_prompt":1,"test":"pp1 @ d9"}]}`: "only prompts",
		`{"results":`: "unexpected end",
	} {
		if _, err := run([]string{write("bad.json", text, 0o644)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, v := range map[float64][]float64{2: {3, 1, 2}, 2.5: {4, 1, 3, 2}, 7: {7}} {
		if got := median(v); got != want {
			t.Errorf("%v: %g", v, got)
		}
	}
}
