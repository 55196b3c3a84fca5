package test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ck/internal/convert"
	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/isa"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// compressed writes a model's file in its storage form.
func compressed(t *testing.T, m *gguf.Model) string {
	t.Helper()
	var tensors []convert.Tensor
	for _, x := range m.Tensors {
		tensors = append(tensors, convert.Tensor{From: x, Type: x.Type})
	}
	path := filepath.Join(t.TempDir(), "z.gguf")
	p, err := convert.NewPlan(m, m.KV, tensors, convert.Output{Path: path, Compress: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(context.Background(), convert.Options{Workers: 2, Features: isa.Detect()}); err != nil {
		t.Fatal(err)
	}
	return path
}

// Logits of compressed weights are those of plain ones, bit for bit: with panels, without, decoded to float32, with
// one worker.
func TestCompressedLogits(t *testing.T) {
	opts := []engine.Options{{Threads: 2}, {Threads: 1}, {Threads: 2, NoPack: true}, {Threads: 2, F32Act: true},
		{Threads: 2, UBatch: 1}}
	for _, name := range []string{"llama-gqa/model.gguf", "kq-llama/Q4_K_M.gguf", "kq-llama/IQ3_S.gguf", "llama-spm-tied/model.gguf"} {
		m, err := gguf.Open(testkit.Data(t, "models/"+name))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		z, err := gguf.Open(compressed(t, m))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		ids := []int32{1, 5, 9, 13, 2, 7, 30, 31, 32, 11, 3, 3, 8}
		for _, opt := range opts {
			if err := sameBits(logits(t, m, opt, ids), logits(t, z, opt, ids)); err != nil {
				t.Errorf("%s, %+v: %v", name, opt, err)
			}
		}
	}
}

// A damaged matrix is found by the walk that reads it, and the error names it; a damaged embedding by the walk that
// looks a row up.
func TestCompressedDamage(t *testing.T) {
	m, err := gguf.Open(testkit.Data(t, "models/llama-gqa/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, name := range []string{"blk.0.ffn_down.weight", "token_embd.weight"} {
		path := compressed(t, m)
		z, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		x := z.Tensor(name)
		at := x.Offset + int64(x.Stored.IndexBytes()) + 200
		z.Close()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[at] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"ckrun", "-m", path, "--ids", "1,2,3", "-n", "1"}, {"ckquant", "entropy", path},
			{"ckquant", "convert", path, path + ".plain"}} {
			cmd := exec.Command(program(t, args[0]), args[1:]...)
			out, err := cmd.CombinedOutput()
			said := strings.Contains(string(out), "tensor "+name+": rows 0 to 63 are damaged")
			if cmd.ProcessState.ExitCode() != 3 || !said {
				t.Errorf("%v: %v, %s", args, err, out)
			}
		}
		if z, err = gguf.Open(path); err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		if x := z.Tensor(name); x.Type != quant.F32 {
			t.Fatalf("%s is %v", name, x.Type)
		}
		e, err := engine.Open(z, engine.Options{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		for range 2 {
			take := func(int, []float32) error { return nil }
			err = e.Forward(context.Background(), e.NewSeq(), []int32{1, 2, 3}, engine.All, take)
			var d *gguf.DamageError
			if !errors.As(err, new(*engine.ModelError)) || !errors.As(err, &d) || d.Tensor != name || d.Row != 0 {
				t.Errorf("%s: %v, expected its damage", name, err)
			}
		}
	}
}
