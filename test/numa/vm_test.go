// Package numa runs the programs in virtual machines with other nodes, quotas and limits than this one has (make test-numa), and under
// ulimits here.
package numa

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"ck/internal/testkit"
)

// dir holds the programs.
var dir string

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "ck-numa-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// built is what was built so far.
var built = struct {
	sync.Mutex
	err map[string]error
}{err: map[string]error{}}

// build makes a program, or "x.test", the tests of package internal/x; static, as programs are shipped.
func build(name string) (path string, err error) {
	built.Lock()
	defer built.Unlock()
	path = filepath.Join(dir, name)
	if err, ok := built.err[name]; ok {
		return path, err
	}
	args := []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", path, "ck/cmd/" + name}
	if p, ok := strings.CutSuffix(name, ".test"); ok {
		args = []string{"test", "-c", "-o", path, "ck/internal/" + p}
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, e := cmd.CombinedOutput(); e != nil {
		err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), e, out)
	}
	built.err[name] = err
	return path, err
}

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := build(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// vm is a virtual machine for some commands.
type vm struct {
	topology string
	mem      string   // "1G" if empty
	cpu      string   // model of QEMU; "": its own choice
	cgroup   []string // KEY=VALUE of the commands' group
	v1       bool     // cgroups of version 1
	carry    []string // files
}

// step is what a command of the guest did.
type step struct {
	command, out, err string
	code              int
}

// numavm is the program that starts virtual machines. Without it the test is skipped, or fails if CK_TEST_REQUIRE names "data".
func numavm(t *testing.T) string {
	t.Helper()
	if os.Getenv("CK_TEST_NUMA") == "" {
		t.Skip("virtual machines take minutes of all cores; make test-numa runs them")
	}
	path := filepath.Join(testkit.Root(t), "..", "shared", "tools", "numavm", "numavm")
	if _, err := os.Stat(path); err != nil {
		if testkit.Required("data") {
			t.Fatal("../shared/tools/numavm is absent, and CK_TEST_REQUIRE asks for it")
		}
		t.Skip("no virtual machines: ../shared/tools/numavm is absent")
	}
	if err := install(path); err != nil {
		t.Fatal(err)
	}
	return path
}

var installed struct {
	sync.Once
	err error
}

// install lets one machine fetch what all of them need (qemu, a kernel) before several start at once.
func install(path string) error {
	installed.Do(func() {
		out, err := exec.Command(path, "--topology", "1s", "--", "true").CombinedOutput()
		if err != nil {
			installed.err = fmt.Errorf("the first virtual machine: %w\n%s", err, out)
		}
	})
	return installed.err
}

// run starts the machine, runs the commands one after the other in a shell, and returns what each did.
func (v vm) run(t *testing.T, commands ...string) []step {
	t.Helper()
	path := numavm(t)
	if v.mem == "" {
		v.mem = "1G"
	}
	seconds := "240"
	if os.Getenv("CK_TEST_LARGE") != "" {
		seconds = "1800" // beside other work
	}
	args := []string{"--topology", v.topology, "--mem", v.mem, "--timeout", seconds}
	if v.cpu != "" {
		args = append(args, "--cpu", v.cpu)
	}
	for _, c := range v.cgroup {
		args = append(args, "--cgroup", c)
	}
	if v.v1 {
		args = append(args, "--cgroup-v1")
	}
	for _, f := range v.carry {
		args = append(args, "--carry", f)
	}
	// Outputs come back behind a line with the exit status and their lengths.
	var script strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&script, "( %s ) >/run/out 2>/run/err; echo $? $(wc -c </run/out) $(wc -c </run/err); cat /run/out /run/err\n", c)
	}
	args = append(args, "--", "sh", "-c", script.String())
	for try := 1; ; try++ {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(path, args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		steps, parseErr := parseSteps(stdout.Bytes(), commands)
		if err = errors.Join(err, parseErr); err == nil {
			return steps
		}
		// An emulated machine sometimes stops at boot, before it has said anything.
		if try == 2 || stdout.Len() > 0 {
			t.Fatalf("%s: %v\n%s%s", v.topology, err, stdout.String(), stderr.String())
		}
	}
}

func parseSteps(b []byte, commands []string) ([]step, error) {
	var steps []step
	for _, c := range commands {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		var code, out, err int
		if n, e := fmt.Sscan(string(line), &code, &out, &err); n != 3 || out < 0 || err < 0 || out+err > len(rest) {
			return steps, fmt.Errorf("%s: the guest said %q (%v)", c, line, e)
		}
		steps = append(steps, step{c, string(rest[:out]), string(rest[out : out+err]), code})
		b = rest[out+err:]
	}
	return steps, nil
}

// ok fails the test if the command did.
func (s step) ok(t *testing.T) step {
	t.Helper()
	if s.code != 0 {
		t.Fatalf("%s: exit status %d\n%s%s", s.command, s.code, s.out, s.err)
	}
	return s
}

// says fails the test if none of the lines on stderr has the text.
func (s step) says(t *testing.T, text string) {
	t.Helper()
	if !strings.Contains(s.err, text) {
		t.Errorf("%s: stderr has no %q:\n%s", s.command, text, s.err)
	}
}

// counters reads lines "name value".
func (s step) counters() map[string]int64 {
	m := map[string]int64{}
	for line := range strings.Lines(s.out) {
		if f := strings.Fields(line); len(f) == 2 {
			m[f[0]], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return m
}

// story runs the built-in model; the text is the same on every machine.
const story = `./ckrun -v -n 12 --temp 0 "Once upon a time"`

// storyHere is its text on this machine.
var storyHere = sync.OnceValues(func() (string, error) {
	if _, err := build("ckrun"); err != nil {
		return "", err
	}
	cmd := exec.Command("sh", "-c", story)
	cmd.Dir = dir
	out, err := cmd.Output()
	return string(out), err
})

func wantStory(t *testing.T) string {
	t.Helper()
	text, err := storyHere()
	if err != nil || !strings.Contains(text, "there was a little girl") {
		t.Fatalf("%q, %v", text, err)
	}
	return text
}
