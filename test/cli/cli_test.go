package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"ck/internal/isa"
	"ck/internal/testkit"
)

var programs struct {
	once sync.Once
	dir  string
	err  error
	out  []byte
}

// programNames are the programs, in the order of README.
var programNames = []string{"ckrun", "ckbench", "cktopo", "ckquant", "ckinspect", "cktrain"}

// buildPrograms builds the programs once, with the test's own build tags, and returns their folder.
func buildPrograms(t testing.TB) string {
	t.Helper()
	p := &programs
	p.once.Do(func() {
		if p.dir, p.err = os.MkdirTemp("", "ck-programs-"); p.err != nil {
			return
		}
		args := []string{"build", "-o", p.dir + "/", "-ldflags=-X ck/internal/cli.Commit=0123456789ab"}
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				if s.Key == "-tags" {
					args = append(args, "-tags="+s.Value)
				}
			}
		}
		cmd := exec.Command("go", append(args, "ck/cmd/...")...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as README, make and CI build them
		p.out, p.err = cmd.CombinedOutput()
	})
	if p.err != nil {
		t.Fatalf("building the programs: %v\n%s", p.err, p.out)
	}
	return p.dir
}

func TestMain(m *testing.M) {
	// What is ignored here, as under nohup, would be ignored by the programs too; what is caught here is not.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	code := m.Run()
	if programs.dir != "" {
		os.RemoveAll(programs.dir)
	}
	os.Exit(code)
}

// TestScripts runs scripts/*.txtar: what users see of the programs. Their names say what they show, category first. Besides
// testscript's own commands there are:
//
//	code N PROGRAM ARGS…           run a program, which must end with the exit code N
//	interrupt N FILE PROGRAM ARGS… the same with output to FILE, and SIGINT as soon as it holds N bytes; the code must be 130
//
// $DATA is the reference data; lines that need what does not travel with the repository say [data:NAME].
func TestScripts(t *testing.T) {
	dir := buildPrograms(t)
	data := testkit.Data(t, ".")
	testscript.Run(t, testscript.Params{
		Dir: "scripts",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", dir+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("DATA", data)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if name, ok := strings.CutPrefix(cond, "data:"); ok {
				_, here := testkit.Lookup(t, name)
				return here || testkit.Required("data"), nil
			}
			switch cond {
			case "amx":
				return isa.Detect()&isa.FeatAMXState != 0 && isa.Detect()&isa.FeatAMXTile != 0, nil
			}
			return false, errors.New("unknown condition")
		},
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"code": scriptCode, "interrupt": scriptInterrupt},
		RequireExplicitExec: true,
	})
}

func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := exitCode(ts.Exec(args[1], args[2:]...)); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// exitCode is the exit code of a finished command, -1 if a signal or something else ended it.
func exitCode(err error) int {
	var ee *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ee):
		return ee.ExitCode()
	}
	return -1
}

func scriptInterrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: interrupt bytes file program args...")
	}
	size, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	path := ts.MkAbs(args[1])
	f, err := os.Create(path)
	ts.Check(err)
	defer f.Close()
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(programs.dir, args[2]), args[3:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = f, &stderr, ts.MkAbs(".")
	ts.Check(cmd.Start())
	kill := time.AfterFunc(testkit.Hang, func() { cmd.Process.Kill() })
	defer kill.Stop()
	for st, err := os.Stat(path); err == nil && st.Size() < size && !exited(cmd.Process.Pid); st, err = os.Stat(path) {
		time.Sleep(time.Millisecond)
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	code := exitCode(cmd.Wait())
	ts.Check(os.WriteFile(path+".err", stderr.Bytes(), 0o666))
	if code != 130 {
		ts.Fatalf("exit code %d, want 130; stderr: %s", code, stderr.String())
	}
}

// exited reports whether a child has ended and waits to be collected.
func exited(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

// TestManPage compares man/ with what the programs print.
func TestManPage(t *testing.T) {
	dir, root := buildPrograms(t), testkit.Root(t)
	for _, program := range programNames {
		for file, args := range map[string][]string{
			"man/" + program + ".1":                {"--man"},
			"man/completions/" + program + ".bash": {"--completion", "bash"},
			"man/completions/_" + program:          {"--completion", "zsh"},
			"man/completions/" + program + ".fish": {"--completion", "fish"},
		} {
			want, err := exec.Command(filepath.Join(dir, program), args...).Output()
			if err != nil {
				t.Fatalf("%s %v: %v", program, args, err)
			}
			got, err := os.ReadFile(filepath.Join(root, file))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not what \"%s %s\" prints; run go generate ./cmd/%s", file, program, strings.Join(args, " "), program)
			}
		}
	}
}

// The list by which misspelt variables are found has the flags of all programs.
func TestFlagNames(t *testing.T) {
	dir, root := buildPrograms(t), testkit.Root(t)
	flags := map[string]bool{}
	for _, program := range programNames {
		page, err := exec.Command(filepath.Join(dir, program), "--man").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\.B .*\\-\\-([a-z0-9\\-]+)`).FindAllStringSubmatch(string(page), -1) {
			flags[strings.ReplaceAll(m[1], `\-`, "-")] = true
		}
	}
	list, err := os.ReadFile(filepath.Join(root, "internal/cli/flags.txt"))
	if want := strings.Join(slices.Sorted(maps.Keys(flags)), "\n") + "\n"; err != nil || string(list) != want {
		t.Errorf("internal/cli/flags.txt is not what the man pages have; run go generate ./cmd/...: %v\n%s", err, want)
	}
}

// TestStartTime measures the time from the process's start to the first token of the built-in model, the best of ten; it must be
// within 50 ms. What threads waited for a CPU that other programs had is not counted.
func TestStartTime(t *testing.T) {
	dir := buildPrograms(t)
	best := time.Hour
	for range 10 {
		cmd := exec.Command(filepath.Join(dir, "ckrun"), "-n", "-1", "-c", "1000000", "--ignore-eos", "Once upon a time")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		start, own := time.Now(), testkit.RunDelay(t, os.Getpid())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, err = out.Read(make([]byte, 1))
		took := time.Since(start)
		waited := testkit.RunDelay(t, cmd.Process.Pid) + testkit.RunDelay(t, os.Getpid()) - own
		cmd.Process.Kill()
		cmd.Wait()
		if err != nil {
			t.Fatal(err)
		}
		best = min(best, max(took-waited, 0))
	}
	t.Logf("first token after %v", best)
	if best > 50*time.Millisecond {
		t.Errorf("first token after %v, at most 50 ms are allowed", best)
	}
}

// TestInterruptWaiting interrupts programs that wait for more of their stdin.
func TestInterruptWaiting(t *testing.T) {
	dir := buildPrograms(t)
	for _, c := range []struct {
		arg string
		sig syscall.Signal
	}{{"--raw", syscall.SIGINT}, {"--raw", syscall.SIGTERM}, {"chat", syscall.SIGINT}, {"tokenize", syscall.SIGINT}} {
		in, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		defer w.Close()
		cmd := exec.Command(filepath.Join(dir, "ckrun"), c.arg)
		var stderr bytes.Buffer
		cmd.Stdin, cmd.Stderr = in, &stderr
		if _, err := w.WriteString("{"); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(testkit.Hang, func() { cmd.Process.Kill() })
		for unread := 1; unread > 0 && !exited(cmd.Process.Pid); {
			time.Sleep(time.Millisecond)
			if unread, err = unix.IoctlGetInt(int(w.Fd()), unix.TIOCINQ); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Signal(c.sig); err != nil {
			t.Fatal(err)
		}
		if code := exitCode(cmd.Wait()); code != 128+int(c.sig) || stderr.Len() > 0 {
			t.Errorf("%s, %v: code %d, %s", c.arg, c.sig, code, stderr.String())
		}
		kill.Stop()
	}
}

// TestFileTruncatedInUse cuts a model's file, or that of its panels, while the program reads it through its
// mapping: exit code 3 and one line.
func TestFileTruncatedInUse(t *testing.T) {
	dir := buildPrograms(t)
	for _, panels := range []bool{false, true} {
		truncateInUse(t, dir, panels)
	}
}

func truncateInUse(t *testing.T, dir string, panels bool) {
	b, err := os.ReadFile(testkit.Data(t, "models/stories260K/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	how := "--no-pack"
	if model := path; panels {
		if out, err := exec.Command(filepath.Join(dir, "ckquant"), "pack", model).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		path, how = model+".panels", "--no-stdin"
	}
	cmd := exec.Command(filepath.Join(dir, "ckrun"), "-m", strings.TrimSuffix(path, ".panels"), how, "--raw",
		"-q", "-n", "-1", "-c", "1000000", "--ignore-eos", "x")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(testkit.Hang, func() { cmd.Process.Kill() })
	defer kill.Stop()
	if _, err := io.ReadFull(out, make([]byte, 20)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, out)
	code := exitCode(cmd.Wait())
	if !strings.HasPrefix(stderr.String(), "ckrun: error: "+path+": ") || strings.Count(stderr.String(), "\n") != 1 || code != 3 {
		t.Errorf("panels %v: code %d, %s", panels, code, stderr.String())
	}
}

// TestDamagedModels opens every file of the malformed ones, and the odd ones that hold no model: exit code 3, one line, nothing on
// stdout.
func TestDamagedModels(t *testing.T) {
	dir := buildPrograms(t)
	for _, set := range []string{"gguf-malformed", "safetensors-malformed"} {
		files, err := filepath.Glob(filepath.Join(testkit.Data(t, set), "*"))
		if err != nil || len(files) < 50 {
			t.Fatalf("%d files in %s, %v", len(files), set, err)
		}
		for _, f := range files {
			cmd := exec.Command(filepath.Join(dir, "ckrun"), "-m", f, "-n", "1", "x")
			var out, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &stderr
			if code := exitCode(cmd.Run()); code != 3 || out.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 ||
				!strings.HasPrefix(stderr.String(), "ckrun: error: "+f) {
				t.Errorf("%s: code %d, stdout %q, stderr %s", f, code, out.String(), stderr.String())
			}
		}
	}
}

// TestTrainedGreedy compares the greedy ids of trained-qwen3 with those that an independent program computed.
func TestTrainedGreedy(t *testing.T) {
	dir := buildPrograms(t)
	b, err := os.ReadFile(testkit.Data(t, "models/trained-qwen3/expected_greedy.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Start string
		IDs   []int32
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"model.gguf", "hf"} {
		m := testkit.Data(t, "models/trained-qwen3/"+form)
		args := []string{"-m", m, "--raw", "-p", want.Start}
		prompt, err := exec.Command(filepath.Join(dir, "ckrun"), append(args, "--show-prompt", "--print-ids")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		n := len(strings.Fields(string(prompt)))
		out, err := exec.Command(filepath.Join(dir, "ckrun"), append(args, "--temp", "0", "-n", strconv.Itoa(len(want.IDs)-n), "--print-ids")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, id := range want.IDs {
			all = append(all, strconv.Itoa(int(id)))
		}
		if got := strings.Join(strings.Fields(string(prompt)+string(out)), " "); got != strings.Join(all, " ") {
			t.Errorf("%s:\n got %s\nwant %s", form, got, strings.Join(all, " "))
		}
	}
}

// terminal is a program on a pseudo-terminal.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	pty  *os.File
	mu   sync.Mutex
	seen bytes.Buffer
	from int // what expect has not looked at
	end  chan struct{}
}

// startTerminal runs a program with a new terminal as its stdin, stdout and stderr.
func startTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	dir := buildPrograms(t)
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { pty.Close() })
	if err := unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	cmd := exec.Command(filepath.Join(dir, args[0]), args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_STATE_HOME=", "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, cmd: cmd, pty: pty, end: make(chan struct{})}
	go func() {
		defer close(x.end)
		buf := make([]byte, 4096)
		for {
			n, err := pty.Read(buf)
			x.mu.Lock()
			x.seen.Write(buf[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { cmd.Process.Kill() })
	return x
}

func (x *terminal) output() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen.String()
}

// expect waits until the text appears behind what was expected before.
func (x *terminal) expect(text string) {
	x.t.Helper()
	for start := time.Now(); time.Since(start) < testkit.Hang; {
		if i := strings.Index(x.output()[x.from:], text); i >= 0 {
			x.from += i + len(text)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	x.t.Fatalf("no %q in %q", text, x.output()[x.from:])
}

func (x *terminal) send(keys string) {
	x.t.Helper()
	if _, err := x.pty.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// wait waits for the program's end and returns its exit code.
func (x *terminal) wait() int {
	x.t.Helper()
	kill := time.AfterFunc(testkit.Hang, func() { x.cmd.Process.Kill() })
	defer kill.Stop()
	code := exitCode(x.cmd.Wait())
	<-x.end
	return code
}

func TestTerminalText(t *testing.T) {
	x := startTerminal(t, "ckrun", "--temp", "0", "-n", "3", "Once upon a time")
	if code := x.wait(); code != 0 || x.output() != ", there was\r\n" {
		t.Errorf("code %d, %q", code, x.output())
	}
	x = startTerminal(t, "ckrun", "--show-prompt", "--raw", "-p", "a\x1b[31mb\u009bc\td")
	if code := x.wait(); code != 0 || x.output() != "a\\x1b[31mb\\u009bc    d\r\n" && x.output() != "a\\x1b[31mb\\u009bc\td\r\n" {
		t.Errorf("control characters: code %d, %q", code, x.output())
	}
}

func TestTerminalInterrupt(t *testing.T) {
	x := startTerminal(t, "ckrun", "--temp", "0", "-n", "-1", "-q", "-c", "1000000", "--ignore-eos", "Once upon a time")
	x.expect(", there was")
	x.send("\x03")
	if code := x.wait(); code != 130 || !strings.HasSuffix(x.output(), "\n") {
		t.Errorf("code %d, ends with %q", code, x.output()[max(len(x.output())-40, 0):])
	}
}

func TestTerminalChat(t *testing.T) {
	dir := t.TempDir()
	saved := filepath.Join(dir, "chat.json")
	x := startTerminal(t, "ckrun", "--temp", "0", "-n", "12")
	x.expect("Ctrl-D ends.\r\n")
	x.expect("> ")
	x.send("Tell me a story\r")
	x.expect("stopped after 12 tokens")
	x.expect("> ")
	x.send("/sy\tBe brief\r")
	x.expect("> ")
	x.send("/system\r")
	x.expect("Be brief\r\n")
	x.send("/nonsense\r")
	x.expect("/nonsense: no such command")
	x.send("/save " + saved + "\r")
	x.expect("> ")
	x.send("/undo\r")
	x.expect("0 messages are left")
	x.send("/load " + filepath.Join(dir, "no.json") + "\r")
	x.expect("no such file or directory")
	x.send("/load " + saved + "\r")
	x.expect("[2 messages]")
	x.send("/stat\r")
	x.expect("decode")
	x.expect("> ") // Ctrl-C is a key only while a line is edited
	x.send("half a line\x03")
	x.send("/help\r")
	x.expect("/reset")
	x.expect("> ")
	x.send("\x04")
	if code := x.wait(); code != 0 {
		t.Errorf("code %d, %q", code, x.output())
	}
	b, err := os.ReadFile(saved)
	if err != nil || !strings.Contains(string(b), `"schema": "ck.chat/1"`) || !strings.Contains(string(b), `"content": "Tell me a story"`) ||
		!strings.Contains(string(b), `"system": "Be brief"`) {
		t.Errorf("%v, saved chat: %s", err, b)
	}
}

// Ctrl-C ends an answer and leads back to the prompt, at which the chat goes on.
func TestTerminalChatInterrupt(t *testing.T) {
	x := startTerminal(t, "ckrun", "chat", "--temp", "0", "-n", "-1", "-c", "1000000", "--ignore-eos")
	x.expect("> ")
	x.send("Tell me a story\r")
	x.expect("the")
	x.send("\x03")
	x.expect("[stopped]")
	x.expect("> ")
	x.send("/undo\r")
	x.expect("0 messages are left")
	x.expect("> ")
	x.send("\x04")
	if code := x.wait(); code != 0 {
		t.Errorf("code %d, %q", code, x.output())
	}
}

// Up brings a message of several lines back whole; Ctrl-C drops one that is being typed, with all its lines.
func TestTerminalChatHistory(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "chat.json")
	x := startTerminal(t, "ckrun", "chat", "--temp", "0", "-n", "4", "-c", "2000", "-q")
	x.expect("> ")
	x.send("one\\\r")
	x.expect("… ")
	answered := func() { // the line was taken, and the editor asks for the next: what is typed before may go elsewhere
		x.expect("\x1b[?2004l")
		x.expect("\x1b[?2004h")
	}
	x.send("two\r")
	answered()
	x.send("dropped\\\r")
	x.expect("… ")
	x.send("more\x03")
	x.expect("\x1b[J> ")
	x.send("\x1b[A")
	x.expect("one⏎two")
	x.send(" three\r")
	answered()
	x.send("/save " + saved + "\r")
	answered()
	x.send("\x04")
	if code := x.wait(); code != 0 {
		t.Errorf("code %d, %q", code, x.output())
	}
	b, err := os.ReadFile(saved)
	if err != nil || !strings.Contains(string(b), `"content": "one\ntwo"`) || !strings.Contains(string(b), `"content": "one\ntwo three"`) ||
		strings.Contains(string(b), "dropped") {
		t.Errorf("%v, saved chat: %s", err, b)
	}
}
