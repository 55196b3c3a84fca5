package test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/testkit"
)

// smallModel writes a model of a few megabytes with random weights.
func smallModel(t *testing.T, typ quant.Type, layers, hidden, ffn, vocab int) string {
	t.Helper()
	s := synth.Shape{Arch: "llama", Layers: layers, Hidden: hidden, FFN: ffn, Heads: 4, KVHeads: 2, HeadDim: hidden / 4, Vocab: vocab, Context: 4096, RopeBase: 1e4}
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := errors.Join(synth.Write(w, "small", s, typ, 3), w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file that is truncated while it is mapped ends a walk with an error that names it, in every form of the weights; the engine can be
// closed then, and the process lives.
func TestFileTruncatedUnderTheMapping(t *testing.T) {
	for _, opt := range []engine.Options{{}, {NoPack: true}, {F32Act: true}} {
		for _, typ := range []quant.Type{quant.Q8_0, quant.F16, quant.IQ4_XS, quant.MXFP4, quant.NVFP4} {
			path := smallModel(t, typ, 4, 512, 1024, 1000)
			m, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			e, err := engine.Open(m, opt)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, 1<<20); err != nil {
				t.Fatal(err)
			}
			seq := e.NewSeq()
			err = e.Forward(context.Background(), seq, []int32{1, 5, 999}, engine.Last, func(int, []float32) error { return nil })
			var bad *engine.ModelError
			if !errors.As(err, &bad) || bad.Path != path || e.Len(seq) != 0 {
				t.Errorf("%s %+v: %v, %d positions; want an error of the model that names the file", typ, opt, err, e.Len(seq))
			}
			e.Close()
			m.Close()
		}
	}
}

// The same through the program: exit 3 and one line.
func TestCommandOnTruncatedFile(t *testing.T) {
	ckrun := program(t, "ckrun")
	path := smallModel(t, quant.Q8_0, 8, 512, 2048, 4000)
	cmd := exec.Command(ckrun, "-m", path, "--raw", "-n", "100000", "-c", "4096", "--ignore-eos", "--temp", "0", "-ub", "1", "--no-pack", "Once")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it generates
		t.Fatal(err, stderr.String())
	}
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			if _, err := out.Read(buf); err != nil {
				return
			}
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), path) {
		t.Errorf("%v\n%s", err, stderr.String())
	}
}

// residentKiB reads a line of /proc/PID/smaps_rollup or status in KiB.
func residentKiB(t *testing.T, file, key string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Skip(err)
	}
	for _, l := range strings.Split(string(b), "\n") {
		if rest, ok := strings.CutPrefix(l, key+":"); ok {
			n := 0
			fmt.Sscan(rest, &n)
			return n
		}
	}
	t.Skipf("%s has no %s", file, key)
	return 0
}

// What a walk makes resident is the panels and the pages of the file that it read, not the cache's or the buffers' whole size; a second
// process maps the same pages of the file.
func TestResidentMemory(t *testing.T) {
	path := smallModel(t, quant.Q8_0, 6, 1024, 4096, 32000)
	m, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	before := residentKiB(t, "/proc/self/status", "RssAnon")
	e, err := engine.Open(m, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ids := make([]int32, 40)
	if err := e.Forward(context.Background(), e.NewSeq(), ids, engine.Last, func(int, []float32) error { return nil }); err != nil {
		t.Fatal(err)
	}
	anon := (residentKiB(t, "/proc/self/status", "RssAnon") - before) << 10
	panels := int(e.PackedBytes())
	const slack = 48 << 20 // huge pages round up: buffers, one KV slab, stacks
	if anon > panels+slack {
		t.Errorf("%d MiB anonymous memory for %d MiB of panels", anon>>20, panels>>20)
	}
	t.Logf("file %d MiB, panels %d MiB, anonymous memory %d MiB", m.SizeBytes()>>20, panels>>20, anon>>20)

	// Shared pages of the mapping: counted as shared once a second process has touched them too.
	out, err := exec.Command(program(t, "ckrun"), "-m", path, "--raw", "-n", "1", "--temp", "0", "hello").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	other, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if &other.Tensors[0].Data[0] == &m.Tensors[0].Data[0] {
		t.Fatal("two mappings at one address")
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	i := bytes.Index(maps, []byte(path))
	if i < 0 || !bytes.Contains(maps[i:i+2000], []byte("Private_Dirty:         0 kB")) {
		t.Error("the mapping of the model has private pages: it is not shared with other processes")
	}
}

// The greedy text of the published model, through the program, byte for byte.
func TestCommandPublishedText(t *testing.T) {
	dir := testkit.Data(t, "models/stories260K")
	want, err := os.ReadFile(filepath.Join(dir, "expected_greedy_200.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"model.gguf", "hf"} {
		out, err := exec.Command(program(t, "ckrun"), "-m", filepath.Join(dir, path), "--raw", "--temp", "0", "-c", "512", "-n", "200", "-p", "", "--no-stdin").Output()
		if err != nil || !bytes.Equal(out, want) {
			t.Errorf("%s: %v\n got %q\nwant %q", path, err, out, want)
		}
	}
}
