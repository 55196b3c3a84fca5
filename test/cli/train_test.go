package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// trainee is a model of random weights, and a text.
func trainee(t *testing.T) (model, text string) {
	t.Helper()
	dir := t.TempDir()
	model, text = filepath.Join(dir, "m.gguf"), filepath.Join(dir, "t.txt")
	cmd := exec.Command(filepath.Join(buildPrograms(t), "ckbench"), "synth", "BF16", "--layers", "2", "--hidden", "128", "--ffn", "256", "--heads", "4", "--kv-heads", "2", "--vocab", "800", "-o", model)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "Story %d. A dog ran over hill %d and saw a cat. The cat ran too.\n<|endoftext|>\n", i, i*i)
	}
	if err := os.WriteFile(text, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return model, text
}

func trainCommand(t *testing.T, model, text, out string, more ...string) *exec.Cmd {
	args := []string{"run", "-m", model, "-d", text, "-o", out, "--tokens", "64", "--batch", "4", "--steps", "16", "--lr", "1e-3", "--save-every", "1", "-q", "-t", "1", "--resume"}
	return exec.Command(filepath.Join(buildPrograms(t), "cktrain"), append(args, more...)...)
}

// A run that is killed at any moment, while it writes too, and goes on each time, ends with the bytes of one that nobody killed.
func TestTrainKilled(t *testing.T) {
	model, text := trainee(t)
	calm, killed := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	began := time.Now()
	if out, err := trainCommand(t, model, text, calm).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	took := time.Since(began)
	rng := rand.New(rand.NewPCG(1, 5))
	kills := 20
	if testing.Short() {
		kills = 6
	}
	done := 0
	for range kills {
		cmd := trainCommand(t, model, text, killed)
		v := startVictim(t, cmd)
		if !v.ended(time.Duration(rng.Float64() * 0.5 * float64(took))) {
			cmd.Process.Kill()
			<-v.done
			done++
		}
	}
	if out, err := trainCommand(t, model, text, killed, "--force").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"model.gguf", "checkpoint-16.gguf"} {
		a, err := os.ReadFile(filepath.Join(calm, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(killed, name))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s of the run that was killed %d times differs: %v", name, done, err)
		}
	}
	if done == 0 {
		t.Error("nothing was killed")
	}
	if left, _ := os.ReadDir(killed); len(left) > 4 {
		t.Errorf("%d files are left", len(left))
	}
}

// A checkpoint that cannot be written is said, and the run goes on; what was there before stays.
func TestTrainWithoutRoom(t *testing.T) {
	model, text := trainee(t)
	dir := filepath.Join(t.TempDir(), "a")
	first := trainCommand(t, model, text, dir, "--keep", "3")
	first.Args = append(first.Args, "--val", "0")
	v := startVictim(t, first)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && !v.ended(10*time.Millisecond); {
		if list, _ := filepath.Glob(filepath.Join(dir, "checkpoint-*.gguf")); len(list) > 0 {
			break
		}
	}
	first.Process.Kill()
	<-v.done
	before, _ := filepath.Glob(filepath.Join(dir, "checkpoint-*.gguf"))
	if len(before) == 0 {
		t.Fatal("no checkpoint")
	}
	full := trainCommand(t, model, text, dir, "--val", "0")
	args := append([]string{"-c", `ulimit -f 1000; exec "$@"`, "sh"}, full.Args...)
	args = append(args[:len(args):len(args)], "--quiet=false")
	var stderr bytes.Buffer
	cmd := exec.Command("bash", args...)
	cmd.Stderr = &stderr
	if code := exitCode(cmd.Run()); code != 4 {
		t.Errorf("code %d: %s", code, stderr.String())
	}
	if n := strings.Count(stderr.String(), "no checkpoint of step "); n < 1 {
		t.Errorf("nobody says that there is no checkpoint: %s", stderr.String())
	}
	for _, path := range before {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// A run that gets a signal writes a checkpoint of all its steps and ends with the signal's code; then the run goes on from there.
func TestTrainSignals(t *testing.T) {
	model, text := trainee(t)
	for _, sig := range endSignals {
		out := filepath.Join(t.TempDir(), "out")
		log := filepath.Join(t.TempDir(), "log")
		run := func() *victim {
			return startVictim(t, trainCommand(t, model, text, out, "--steps", "1000000", "--save-every", "1000000", "--log", log, "--replicas", "2"))
		}
		last := 0
		for range 2 { // the second time from the checkpoint
			v, from := run(), last
			for range 600 { // the run comes to its steps
				if b, _ := os.ReadFile(log); bytes.Count(b, []byte("\n")) >= from+2 || v.ended(50*time.Millisecond) {
					break
				}
			}
			if _, ok := v.signal(sig); !ok || ending(v.cmd) != 128+int(sig) {
				t.Fatalf("%v: code %d: %s", sig, ending(v.cmd), v.err.String())
			}
			b, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			last = bytes.Count(b, []byte("\n"))
			if _, err := os.Stat(filepath.Join(out, fmt.Sprintf("checkpoint-%d.gguf", last))); err != nil || last < from+2 {
				t.Errorf("%v: the log has %d steps, before it %d; %v", sig, last, from, err)
			}
			if !strings.Contains(v.err.String(), "--resume goes on with it") {
				t.Errorf("%v: %s", sig, v.err.String())
			}
		}
	}
}

// wordsFile writes a text that has enough words for a vocabulary of 600 tokens.
func wordsFile(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	x := uint32(1)
	for range 4000 {
		x = x*1664525 + 1013904223
		fmt.Fprintf(&b, "%c%c%c%c ", 'a'+x>>24%8, "aeiou"[x>>16%5], 'k'+x>>8%9, "aeiou"[x>>12%5])
	}
	path := filepath.Join(t.TempDir(), "words.txt")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A signal while a new model is written as a folder leaves nothing.
func TestNewFolderSignals(t *testing.T) {
	text := wordsFile(t)
	for _, sig := range endSignals {
		dir := t.TempDir()
		v := startVictim(t, exec.Command(filepath.Join(buildPrograms(t), "cktrain"), "new", "--layers", "40", "--hidden", "1024", "--ffn", "8192", "--heads", "8",
			"--vocab", "600", "-d", text, "-o", dir+"/new/"))
		for range 1000 { // until weights are written
			if list, _ := filepath.Glob(filepath.Join(dir, ".new.*.tmp", "model*.safetensors")); len(list) > 0 || v.ended(10*time.Millisecond) {
				break
			}
		}
		if after, ok := v.signal(sig); !ok || after > signalLimit(t) || ending(v.cmd) != 128+int(sig) {
			t.Errorf("%v: code %d after %v: %s", sig, ending(v.cmd), after, v.err.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v left %v behind, %v", sig, left, err)
		}
	}
}

// A run holds what was estimated before anything was taken, within 5 %: all weights, in both types of products, and adapters beside quantized weights.
func TestTrainMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 250 MB")
	}
	_, text := trainee(t)
	dir := t.TempDir()
	for _, typ := range []string{"F32", "Q8_0"} {
		cmd := exec.Command(filepath.Join(buildPrograms(t), "ckbench"), "synth", typ, "--layers", "2", "--hidden", "512", "--ffn", "2048", "--heads", "8", "--kv-heads", "4",
			"--vocab", "3000", "-o", filepath.Join(dir, typ))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for i, more := range [][]string{{"F32", "--walk", "1"}, {"F32", "--walk", "2", "--dtype", "f32"}, {"F32", "--optimizer", "sgd"}, {"Q8_0", "--rank", "8", "--tokens", "512"},
		{"Q8_0", "--rank", "8", "--tokens", "512", "--recompute", "all"}} {
		args := []string{"run", "-m", filepath.Join(dir, more[0]), "-d", text, "-o", filepath.Join(dir, fmt.Sprint(i)), "--tokens", "32", "--batch", "2", "--steps", "8", "--val", "0", "--json", "-q"}
		cmd := exec.Command(filepath.Join(buildPrograms(t), "cktrain"), append(args, more[1:]...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", more, err, out)
		}
		var got struct {
			Need int64 `json:"estimated_bytes"`
			Held int64 `json:"held_bytes"`
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		t.Logf("%v: %d bytes held, %d estimated: %+.1f %%", more, got.Held, got.Need, 100*(float64(got.Held)/float64(got.Need)-1))
		if off := float64(got.Held)/float64(got.Need) - 1; off < -0.05 || off > 0.05 {
			t.Errorf("%v: %d bytes held, %d estimated", more, got.Held, got.Need)
		}
	}
}

// Where memory is short as few layers as fit are made again, and nothing else changes: a run has the bits of one that keeps all. What is asked for is held against
// the model; where nothing fits, or not as asked, the run is refused, and a remedy named.
func TestTrainRecompute(t *testing.T) {
	_, text := trainee(t)
	dir := t.TempDir()
	model, programs := filepath.Join(dir, "m.gguf"), buildPrograms(t)
	cmd := exec.Command(filepath.Join(programs, "ckbench"), "synth", "F32", "--layers", "4", "--hidden", "64", "--ffn", "128", "--heads", "4", "--kv-heads", "2", "--vocab", "800", "-o", model)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	type fit struct {
		Bytes   int64   `json:"bytes"`
		Buffers int64   `json:"buffers_bytes"`
		Ops     float64 `json:"operations_of_a_step"`
		Seconds float64 `json:"least_seconds_of_a_step"`
		Layers  int     `json:"layers"`
		Again   int     `json:"recomputed_layers"`
	}
	estimate := func(more ...string) (f fit) {
		t.Helper()
		out, err := exec.Command(filepath.Join(programs, "cktrain"), append([]string{"estimate", "-m", model, "--tokens", "256", "--batch", "4", "-t", "1", "--json", "-q"}, more...)...).Output()
		if err == nil {
			err = json.Unmarshal(out, &f)
		}
		if err != nil {
			t.Fatalf("%v: %v", more, err)
		}
		return f
	}
	var by []fit
	for n := range 5 {
		f := estimate("--recompute", fmt.Sprint(n))
		if f.Again != n || f.Layers != 4 || f.Seconds <= 0 || n > 0 && (f.Ops <= by[n-1].Ops || n < 4 && f.Buffers >= by[n-1].Buffers) {
			t.Errorf("%d layers again: %+v; before %+v", n, f, by)
		}
		by = append(by, f)
	}
	if a, b := estimate(), estimate("--recompute", "none"); a.Bytes != by[0].Bytes || b.Bytes != by[0].Bytes || estimate("--recompute", "all").Bytes != by[4].Bytes {
		t.Errorf("%+v, %+v, expected %+v", a, b, by[0])
	}
	for n := 1; n < 4; n++ {
		for _, limit := range []int64{by[n].Bytes, by[n-1].Bytes - 1} {
			if f := estimate("--mem-limit", fmt.Sprint(limit)); f.Again != n || f.Bytes > limit {
				t.Errorf("%d bytes: %+v, expected %d layers", limit, f, n)
			}
		}
	}
	run := func(out string, more ...string) (code, again int, stderr string) {
		args := []string{"run", "-m", model, "-d", text, "-o", filepath.Join(dir, out), "--tokens", "256", "--batch", "4", "--steps", "3", "--val", "0", "-t", "1", "--json", "-q"}
		cmd := exec.Command(filepath.Join(programs, "cktrain"), append(args, more...)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		text, err := cmd.Output()
		var f fit
		if err == nil {
			err = json.Unmarshal(text, &f)
		}
		return exitCode(err), f.Again, errs.String()
	}
	limit := fmt.Sprint(by[2].Bytes)
	for i, c := range []struct {
		args        []string
		code, again int
		says        string
	}{
		{nil, 0, 0, ""}, {[]string{"--mem-limit", limit}, 0, 2, ""}, {[]string{"--recompute", "all"}, 0, 4, ""},
		{[]string{"--recompute", "none", "--mem-limit", limit}, 4, 0, "--recompute auto fits and changes no bit"},
		{[]string{"--mem-limit", "6M"}, 4, 0, "nothing that can be left out makes it fit"}, {[]string{"--recompute", "5"}, 2, 0, "of which the model has 4"}, {[]string{"--recompute", "some"}, 2, 0, "expected auto, none, all"},
	} {
		code, again, stderr := run(fmt.Sprint(i), c.args...)
		if code != c.code || again != c.again || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: code %d, %d layers again, expected %d and %d: %s", c.args, code, again, c.code, c.again, stderr)
		}
		if code == 0 && i > 0 {
			a, _ := os.ReadFile(filepath.Join(dir, "0", "checkpoint-3.gguf"))
			if b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i), "checkpoint-3.gguf")); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%v: another checkpoint, %v", c.args, err)
			}
		}
	}
}
