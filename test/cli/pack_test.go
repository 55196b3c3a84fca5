package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A disk without room, or one that may not be written, is said before or while panels are written: code 4, and
// nothing stays. ckrun goes on without panels, and reads those of a disk that it may not write.
func TestPackDisks(t *testing.T) {
	dir := buildPrograms(t)
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("a tmpfs cannot be mounted: %v", err)
	}
	defer syscall.Unmount(disk, 0)
	model := signalModel(t, "Q8_0")
	out := filepath.Join(disk, "out.panels")
	pack := func(words ...string) (int, string) {
		cmd := exec.Command(filepath.Join(dir, "ckquant"), append([]string{"pack", "-q"}, words...)...)
		b, err := cmd.CombinedOutput()
		return exitCode(err), string(b)
	}
	if code, said := pack(model, out); code != 4 || !strings.Contains(said, "the disk has") {
		t.Errorf("too little room: code %d, %s", code, said)
	}
	small := filepath.Join(disk, "small.gguf")
	synth := exec.Command(filepath.Join(dir, "ckbench"), "synth", "Q8_0", "--layers", "2", "--hidden", "64",
		"--ffn", "128", "--heads", "2", "--vocab", "600", "-o", small)
	if said, err := synth.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if code, said := pack(small); code != 0 {
		t.Errorf("code %d, %s", code, said)
	}
	if err := syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if code, said := pack(small, out); code != 4 || !strings.Contains(said, "read-only file system") {
		t.Errorf("a disk that may not be written: code %d, %s", code, said)
	}
	cmd := exec.Command(filepath.Join(dir, "ckrun"), "-m", small, "--ids", "1", "-n", "0", "-v")
	said, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "are mapped from "+small+".panels") {
		t.Errorf("panels of a disk that may not be written: %v\n%s", err, said)
	}
	if left, _ := os.ReadDir(disk); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

// A kill while panels are written leaves no file, and the next run writes them all.
func TestPackKilled(t *testing.T) {
	dir := buildPrograms(t)
	model, folder := signalModel(t, "BF16"), t.TempDir()
	out := filepath.Join(folder, "out.panels")
	for i := range 5 {
		cmd := exec.Command(filepath.Join(dir, "ckquant"), "pack", "-q", "-t", "1", model, out)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(5+10*i) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		os.Remove(out) // it was faster
		if left, _ := os.ReadDir(folder); len(left) > 0 {
			t.Errorf("killed: %v is left", left)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "ckquant"), "pack", "-q", model, out)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
