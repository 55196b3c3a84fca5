package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Limits that leave no room are said in one line, exit code 4, by every program; with a little more they work. What the Go runtime takes
// before anything of ours runs is not ours to refuse: 1,250 to 1,310 MiB of address space, of which 100 are private memory, and five threads.
func TestLimits(t *testing.T) {
	dir := buildPrograms(t)
	bash, err := exec.LookPath("bash") // other shells have no ulimit -u
	if err != nil {
		t.Skip(err)
	}
	programs := map[string]string{"ckrun": "-q -n 1 -t 2 Once", "ckbench": "barrier -q -t 2", "cktopo": "--plain", "ckquant": "config", "ckinspect": "config", "cktrain": "config"}
	run := func(limit, program string, asUser bool) (code int, text string) {
		cmd := exec.Command(bash, "-c", fmt.Sprintf("ulimit %s; exec %s %s", limit, filepath.Join(dir, program), programs[program]))
		cmd.Env = append(os.Environ(), "HOME=/nonexistent", "XDG_CONFIG_HOME=")
		if asUser {
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		return exitCode(cmd.Run()), stderr.String()
	}
	for _, c := range []struct {
		flag      string
		no, maybe []int // refused; refused or done
		user      bool
	}{
		{"-n", []int{3, 4, 6, 10}, []int{16, 20}, false},
		{"-v", []int{1360000, 1380000}, []int{1400000, 1450000, 1500000, 1600000}, false},
		{"-d", []int{120000, 160000}, []int{180000, 220000, 260000, 300000}, false},
		{"-u", []int{7, 8, 9}, []int{10, 11, 12, 14, 16, 24}, true},
	} {
		if c.user && os.Getuid() != 0 {
			t.Log("ulimit -u counts all processes of a user; only root can be another one")
			continue
		}
		if c.user {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for program := range programs {
			for i, n := range append(c.no, c.maybe...) {
				limit := fmt.Sprintf("%s %d", c.flag, n)
				code, text := run(limit, program, c.user)
				if code == 126 && c.user {
					t.Skipf("another user cannot run %s", dir)
				}
				said := code == 4 && strings.HasPrefix(text, program+": error: ") && strings.Count(text, "\n") == 1 && strings.Contains(text, "ulimit "+c.flag)
				if !said && (i < len(c.no) || code != 0) {
					t.Errorf("ulimit %s; %s: code %d, %.300s", limit, program, code, text)
				}
			}
		}
	}
}
