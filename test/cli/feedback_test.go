package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"ck/internal/testkit"
)

// A run with error feedback that is killed and goes on writes the bytes of one that was not; with another text
// it does not go on.
func TestFeedbackKilled(t *testing.T) {
	dir := buildPrograms(t)
	model := testkit.Data(t, "models/trained-qwen3/model.gguf")
	text := bytes.Repeat([]byte("Once upon a time there was a little girl who liked to play with her dog in the garden. "), 120)
	folder := t.TempDir()
	one, other := filepath.Join(folder, "one.txt"), filepath.Join(folder, "other.txt")
	for path, b := range map[string][]byte{one: text, other: text[5:]} {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	quantize := func(out, text string) *exec.Cmd {
		return exec.Command(filepath.Join(dir, "ckquant"), "quantize", "-q", model, out, "Q4_0",
			"--method", "feedback", "-f", text, "-c", "64", "--resume")
	}
	whole, out := filepath.Join(folder, "whole.gguf"), filepath.Join(folder, "out.gguf")
	start := time.Now()
	if b, err := quantize(whole, one).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	took := time.Since(start)
	refused := false
	for n := 1; ; n++ {
		cmd := quantize(out, one)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := time.AfterFunc(took*time.Duration(n)/8, func() { cmd.Process.Kill() })
		err := cmd.Wait()
		end.Stop()
		if err == nil {
			break
		}
		if _, err := os.Stat(out + ".part.journal"); err == nil && !refused {
			cmd := quantize(out, other)
			if b, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 {
				t.Errorf("another text: %v\n%s", err, b)
			}
			refused = true
		}
	}
	a, errA := os.ReadFile(whole)
	b, errB := os.ReadFile(out)
	if errA != nil || errB != nil || !bytes.Equal(a, b) || !refused {
		t.Errorf("the file of a killed run is another one: %v, %v; refused another text: %v", errA, errB, refused)
	}
}
