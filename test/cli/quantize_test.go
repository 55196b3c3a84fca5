package cli

import (
	"crypto/sha256"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A quantization that is killed at any moment, again and again, goes on with --resume and makes the file of an undisturbed run; until then
// there is none under its name.
func TestQuantizeKilled(t *testing.T) {
	dir := buildPrograms(t)
	model := signalModel(t, "BF16")
	quantize := func(out string, args ...string) *exec.Cmd {
		return exec.Command(filepath.Join(dir, "ckquant"), append([]string{"quantize", "-q", model, out, "Q4_K_M"}, args...)...)
	}
	sum := func(path string) [32]byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256(b)
	}
	whole := filepath.Join(t.TempDir(), "whole.gguf")
	start := time.Now()
	if out, err := quantize(whole).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	took := time.Since(start)
	want := sum(whole)
	rng := rand.New(rand.NewPCG(20, 20))
	kills := 0
	for kills < 20 {
		out := filepath.Join(t.TempDir(), "out.gguf")
		for round := 0; ; round++ {
			cmd := quantize(out, "--resume")
			var said strings.Builder
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			var err error
			select {
			case err = <-ended:
			case <-time.After(time.Duration(rng.Int64N(int64(took)))):
				if round < 4 {
					cmd.Process.Signal(syscall.SIGKILL)
				}
				err = <-ended
			}
			if err == nil {
				break
			}
			if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%v: %s", err, said.String())
			}
			kills++
			if _, err := os.Stat(out); err != nil {
				continue
			}
			if sum(out) != want {
				t.Fatal("a file that is not whole has its name")
			}
			if _, err := os.Stat(out + ".part.journal"); err != nil {
				break // killed when all was done: there is nothing to go on with
			}
		}
		if sum(out) != want {
			t.Fatal("another file")
		}
		if left, _ := filepath.Glob(filepath.Dir(out) + "/*"); len(left) != 1 {
			t.Errorf("left: %v", left)
		}
	}
	t.Logf("%d kills", kills)
}

// A disk that fills up while the file is written ends the run with code 4; what is there stays, and with room it goes on.
func TestQuantizeFullDisk(t *testing.T) {
	dir := buildPrograms(t)
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=40m"); err != nil {
		t.Skipf("a tmpfs cannot be mounted: %v", err)
	}
	defer syscall.Unmount(disk, 0)
	model := signalModel(t, "BF16")
	out, ballast := filepath.Join(disk, "out.gguf"), filepath.Join(disk, "ballast")
	run := func(args ...string) (int, string) {
		cmd := exec.Command(filepath.Join(dir, "ckquant"), append([]string{"quantize", "-q", model, out, "Q4_K_M"}, args...)...)
		b, err := cmd.CombinedOutput()
		if err == nil {
			return 0, string(b)
		}
		return exitCode(err), string(b)
	}
	// Before anything is written, where the room is known to be too little.
	if err := os.WriteFile(ballast, make([]byte, 30<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	if code, said := run(); code != 4 || !strings.Contains(said, "the disk has") {
		t.Fatalf("code %d: %s", code, said)
	}
	if left, _ := filepath.Glob(out + "*"); left != nil {
		t.Errorf("left: %v", left)
	}
	// While it is written: the disk is filled as soon as the output has begun.
	os.Remove(ballast)
	cmd := exec.Command(filepath.Join(dir, "ckquant"), "quantize", "-q", "-t", "1", model, out, "Q4_K_M")
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if st, err := os.Stat(out + ".part"); err == nil && st.Size() > 0 || time.Now().After(deadline) {
			break
		}
	}
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	f.Close()
	err = cmd.Wait()
	if code := exitCode(err); code != 4 || !strings.Contains(said.String(), "no space left") || !strings.Contains(said.String(), "--resume") {
		t.Fatalf("code %d: %s", code, said.String())
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a file that is not whole has its name")
	}
	os.Remove(ballast)
	if code, said := run("--resume"); code != 0 {
		t.Fatalf("code %d: %s", code, said)
	}
}
