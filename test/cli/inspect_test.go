package cli

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ck/internal/testkit"
)

// inspectors are the commands of ckinspect that read a model, with what they want behind it.
var inspectors = [][]string{{"svd", "MODEL"}, {"entropy", "MODEL"}, {"correlate", "MODEL"}, {"tokens", "MODEL"},
	{"diff", "MODEL", "MODEL"}, {"attention", "MODEL", "-f", "/dev/null"}, {"show", "MODEL", "--hash", "--json"}}

// inspectIt runs a command on a model, with little memory for private data: nothing is taken by what a file announces. It returns
// the exit code, and complains where a command crashes or says more than a line.
func inspectIt(t *testing.T, dir, model string, words []string) (code int, stderr string) {
	t.Helper()
	args := []string{"-c", `ulimit -d 400000; exec "$@"`, "sh", filepath.Join(dir, "ckinspect"), words[0], "-q"}
	for _, w := range words[1:] {
		args = append(args, strings.ReplaceAll(w, "MODEL", model))
	}
	cmd := exec.Command("sh", args...)
	var out, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &e
	code = exitCode(cmd.Run())
	switch {
	case code > 3 || code < 0 || code > 0 && strings.Count(e.String(), "\n") != 1:
		t.Errorf("%s %s: code %d, %.300s", words[0], model, code, e.String())
	case code != 0 && out.Len() > 0 && words[0] == "show":
		t.Errorf("%s %s: code %d, and on stdout %.100q", words[0], model, code, out.String())
	}
	return code, e.String()
}

// TestInspectDamaged: of what must be refused show says what is wrong with code 1, all other commands with code 3; odd files
// that are whole are shown. Nothing crashes.
func TestInspectDamaged(t *testing.T) {
	dir := buildPrograms(t)
	var wg sync.WaitGroup
	room := make(chan struct{}, 2)
	for _, set := range []string{"gguf-malformed", "safetensors-malformed"} {
		root := testkit.Data(t, set)
		b, err := os.ReadFile(filepath.Join(root, "expected.json"))
		if err != nil {
			t.Fatal(err)
		}
		var expected map[string]struct {
			Expect  string
			Lenient bool
		}
		if err := json.Unmarshal(b, &expected); err != nil || len(expected) < 50 {
			t.Fatalf("%d files, %v", len(expected), err)
		}
		n := 0
		for file, want := range expected {
			n++
			wg.Go(func() {
				room <- struct{}{}
				defer func() { <-room }()
				path := filepath.Join(root, file)
				code, text := inspectIt(t, dir, path, []string{"show", "MODEL"})
				good := want.Expect == "ok" && code == 0 || want.Expect != "ok" && (code == 1 || want.Lenient && code == 0)
				if !good || code == 1 && !strings.Contains(text, filepath.Dir(path)) {
					t.Errorf("show %s: code %d, expected %s; %s", file, code, want.Expect, text)
				}
				other := inspectors[n%len(inspectors)]
				if code, text := inspectIt(t, dir, path, other); want.Expect != "ok" && !want.Lenient && code != 3 && !(other[0] == "show" && code == 1) {
					t.Errorf("%s %s: code %d, expected 3; %s", other[0], file, code, text)
				}
			})
		}
	}
	wg.Wait()
}

// TestInspectTruncated: a real file that ends at a place of chance is damaged, wherever that is.
func TestInspectTruncated(t *testing.T) {
	dir := buildPrograms(t)
	rng := rand.New(rand.NewPCG(20, 26))
	places := 200
	if testing.Short() {
		places = 40
	}
	for _, file := range []string{"models/stories260K/model.gguf", "models/trained-llama-256/hf/model.safetensors"} {
		whole, err := os.ReadFile(testkit.Data(t, file))
		if err != nil {
			t.Fatal(err)
		}
		at := make([]int, places/2)
		for i := range at {
			at[i] = rng.IntN(len(whole))
			if i%3 == 0 { // headers are short
				at[i] = rng.IntN(min(len(whole), 16<<10))
			}
		}
		slices.Sort(at)
		path := filepath.Join(t.TempDir(), "cut"+filepath.Ext(file))
		for i, n := range at {
			if err := os.WriteFile(path, whole[:n], 0o666); err != nil {
				t.Fatal(err)
			}
			if code, text := inspectIt(t, dir, path, []string{"show", "MODEL"}); code != 1 || !strings.Contains(text, path) {
				t.Errorf("%s, cut at %d: code %d, %s", file, n, code, text)
			}
			if code, text := inspectIt(t, dir, path, inspectors[i%(len(inspectors)-1)]); code != 3 {
				t.Errorf("%s %s, cut at %d: code %d, %s", inspectors[i%(len(inspectors)-1)][0], file, n, code, text)
			}
		}
	}
}

// TestInspectModels: every reference model is shown, whether an engine here can run it or not; its spectra, entropy and
// vocabulary too.
func TestInspectModels(t *testing.T) {
	dir := buildPrograms(t)
	models, err := filepath.Glob(filepath.Join(testkit.Data(t, "models/index.json"), "../*/*"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, m := range models {
		if !strings.HasSuffix(m, ".gguf") && filepath.Base(m) != "hf" {
			continue
		}
		seen++
		words := [][]string{{"show", "MODEL", "--diffable"}, inspectors[seen%5]}
		if testing.Short() {
			words = words[:1]
		}
		for _, w := range words {
			if w[0] == "diff" {
				continue
			}
			if code, text := inspectIt(t, dir, m, w); code != 0 {
				t.Errorf("%s %s: code %d, %s", w[0], m, code, text)
			}
		}
	}
	if seen < 60 {
		t.Errorf("%d models", seen)
	}
}
