package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ck/internal/testkit"
)

var endSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// signalLimit is how long a program may live after a signal: CK_TEST_SIGNAL_MS, else a time that says "it hangs" on any machine. The
// promise is 200 ms, which only a machine can show that does nothing else.
func signalLimit(t testing.TB) time.Duration {
	ms := 10000
	if s := os.Getenv("CK_TEST_SIGNAL_MS"); s != "" {
		var err error
		if ms, err = strconv.Atoi(s); err != nil {
			t.Fatalf("CK_TEST_SIGNAL_MS: %v", err)
		}
	}
	return time.Duration(ms) * time.Millisecond
}

// ending is how a process ended, as a shell sees it.
func ending(cmd *exec.Cmd) int {
	st := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if st.Signaled() { // it came before the program could catch it
		return 128 + int(st.Signal())
	}
	return st.ExitStatus()
}

// victim is a program that gets signals.
type victim struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  bytes.Buffer
}

// start runs cmd, which is killed at the end of the test.
func startVictim(t testing.TB, cmd *exec.Cmd) *victim {
	t.Helper()
	v := &victim{cmd: cmd, done: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = &v.err
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v.watch(t)
	return v
}

// watch collects the process when it ends.
func (v *victim) watch(t testing.TB) {
	go func() { v.cmd.Wait(); close(v.done) }()
	t.Cleanup(func() { v.cmd.Process.Kill(); <-v.done })
}

// ended waits for the end, so long at most.
func (v *victim) ended(limit time.Duration) bool {
	select {
	case <-v.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// signal sends a signal and returns after what time the program ended; ok is false if it did not within 20 seconds.
func (v *victim) signal(sig syscall.Signal) (after time.Duration, ok bool) {
	start := time.Now()
	v.cmd.Process.Signal(sig)
	ok = v.ended(20 * time.Second)
	return time.Since(start), ok
}

// newFIFO is the name of a FIFO that nobody writes.
func newFIFO(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// commandsOf lists the commands of a program, as its man page does: "ckrun", "ckrun chat", …
func commandsOf(t *testing.T, program string) []string {
	t.Helper()
	man, err := exec.Command(filepath.Join(buildPrograms(t), program), "--man").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(man), ".SH SYNOPSIS\n.nf\n")
	text, _, ok2 := strings.Cut(strings.ReplaceAll(text, `\-`, "-"), ".fi\n")
	if !ok || !ok2 {
		t.Fatalf("%s --man has no synopsis", program)
	}
	var list []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		name := words[0]
		if len(words) > 1 && strings.ToLower(words[1]) == words[1] && words[1][0] >= 'a' {
			name += " " + words[1]
		}
		list = append(list, name)
	}
	return list
}

// longWork gives each command arguments with which it works for long, FIFO in them being a file that nobody writes, MODEL and FLOATS models, TEXT a
// text and DIR an empty folder. nil: the command never takes long; it is caught while it waits for its settings.
var longWork = map[string][]string{
	"ckrun":               {"-q", "-n", "-1", "-c", "1000000", "--ignore-eos", "Once"},
	"ckrun chat":          {"--system", "x"},
	"ckrun config":        nil,
	"ckrun tokenize":      {"-f", "FIFO"},
	"ckrun detokenize":    {"-f", "FIFO"},
	"ckbench":             nil,
	"ckbench config":      nil,
	"ckbench run":         {"-m", "MODEL", "-q", "-r", "10000"},
	"ckbench compare":     {"FIFO", "FIFO"},
	"ckbench sweep":       {"-m", "MODEL", "-q", "-r", "10000", "-t", "1,2"},
	"ckbench quality":     {"-m", "MODEL", "-q", "-f", "FIFO"},
	"ckbench roofline":    {"-q", "--samples", "1000"},
	"ckbench bandwidth":   {"-q", "--samples", "1000"},
	"ckbench latency":     {"-q"},
	"ckbench barrier":     {"-q", "-t", "2-64"},
	"ckbench allreduce":   {"-q", "-t", "2-64"},
	"ckbench synth":       {"Q4_K", "--layers", "40", "--hidden", "1024", "--ffn", "8192", "--heads", "8", "--vocab", "32000", "-o", "DIR/synth.gguf"},
	"ckinspect":           nil,
	"ckinspect attention": {"MODEL", "-q", "-f", "FIFO"},
	"ckinspect config":    nil,
	"ckinspect correlate": nil,
	"ckinspect diff":      nil,
	"ckinspect entropy":   nil,
	"ckinspect show":      nil,
	"ckinspect svd":       {"MODEL", "-q", "--bootstrap", "1000000"},
	"ckinspect tokens":    nil,
	"ckinspect verdict":   {"MODEL", "-q", "-f", "FIFO"},
	"ckquant":             nil,
	"ckquant compare":     {"MODEL", "MODEL", "-q", "-f", "FIFO"},
	"ckquant config":      nil,
	"ckquant convert":     nil,
	"ckquant entropy":     nil,
	"ckquant imatrix":     {"-m", "MODEL", "-q", "-f", "FIFO", "-o", "DIR/im.gguf"},
	"ckquant merge":       nil,
	"ckquant pack":        {"MODEL", "FIFO", "-q"},
	"ckquant plan":        {"-m", "MODEL", "-q", "-f", "FIFO"},
	"ckquant quantize":    {"MODEL", "DIR/out.gguf", "IQ1_M", "--pure", "--allow-requantize", "-q"},
	"ckquant split":       nil,
	"cktopo":              nil,
	"cktopo check":        nil,
	"cktopo config":       nil,
	"cktopo gather":       nil,
	"cktopo plan":         nil,
	"cktrain":             nil,
	"cktrain checkgrad":   {"-m", "FLOATS", "-q", "--tokens", "512"},
	"cktrain config":      nil,
	"cktrain estimate":    nil,
	"cktrain merge":       nil,
	"cktrain new":         {"--layers", "40", "--hidden", "1024", "--ffn", "8192", "--heads", "8", "--vocab", "600", "-d", "TEXT", "-o", "DIR/new.gguf"},
	"cktrain run":         nil,
	"cktrain show-batch":  nil,
}

// Every command of every program ends at its first signal with the code of that signal, at work and while it waits for its settings, and
// leaves no file behind. A command that is new needs a row in longWork.
func TestSignalEveryCommand(t *testing.T) {
	dir := buildPrograms(t)
	model, floats, text := signalModel(t, "Q8_0"), signalModel(t, "BF16"), wordsFile(t)
	limit := signalLimit(t)
	seen := 0
	for _, program := range programNames {
		for _, name := range commandsOf(t, program) {
			args, ok := longWork[name]
			if !ok {
				t.Errorf("%s has no row in longWork", name)
				continue
			}
			seen++
			for i, sig := range endSignals {
				var cases [][]string
				if i == seen%3 { // waiting for settings is the same code everywhere
					cases = append(cases, []string{"--config", "FIFO"})
				}
				if args != nil {
					cases = append(cases, args)
				}
				for _, args := range cases {
					t.Run(fmt.Sprintf("%s/%s/%v", strings.ReplaceAll(name, " ", "-"), args[0], sig), func(t *testing.T) {
						fifo, empty := newFIFO(t), t.TempDir()
						words := append(strings.Fields(name)[1:], args...)
						for i, w := range words {
							words[i] = strings.NewReplacer("FIFO", fifo, "MODEL", model, "FLOATS", floats, "TEXT", text, "DIR", empty).Replace(w)
						}
						cmd := exec.Command(filepath.Join(dir, program), words...)
						in, w, err := os.Pipe() // stdin that nobody writes to
						if err != nil {
							t.Fatal(err)
						}
						defer in.Close()
						defer w.Close()
						cmd.Stdin = in
						v := startVictim(t, cmd)
						if v.ended(time.Duration(60+30*i) * time.Millisecond) {
							t.Fatalf("%v ended by itself with code %d: %s", words, ending(cmd), v.err.String())
						}
						after, ok := v.signal(sig)
						if !ok || after > limit || ending(cmd) != 128+int(sig) {
							t.Errorf("%v, %v: code %d after %v: %s", words, sig, ending(cmd), after, v.err.String())
						}
						left, _ := os.ReadDir(empty)
						left = slices.DeleteFunc(left, func(e os.DirEntry) bool { // with these a later run goes on
							return program == "ckquant" && (strings.HasSuffix(e.Name(), ".part") || strings.HasSuffix(e.Name(), ".part.journal"))
						})
						if len(left) > 0 {
							t.Errorf("%v left %s behind", words, left[0].Name())
						}
					})
				}
			}
		}
	}
	if seen != len(longWork) && !t.Failed() {
		t.Errorf("longWork has %d rows, the programs %d commands", len(longWork), seen)
	}
}

// Wherever a chat waits, at its prompt or for a file, one signal ends it; SIGINT clears a line first, and ends a command alone.
func TestSignalIdleChat(t *testing.T) {
	for _, sig := range endSignals {
		x := startTerminal(t, "ckrun", "chat", "-q")
		x.expect("> ")
		x.cmd.Process.Signal(sig)
		if code := x.wait(); code != 128+int(sig) {
			t.Errorf("at the prompt, %v: code %d, %q", sig, code, x.output())
		}
		x = startTerminal(t, "ckrun", "chat", "-q")
		x.expect("> ")
		x.send("/load " + newFIFO(t) + "\r")
		x.expect("\r\n")
		time.Sleep(50 * time.Millisecond)
		x.cmd.Process.Signal(sig)
		if sig == syscall.SIGINT {
			x.expect("> ")
			time.Sleep(150 * time.Millisecond) // two of a kind within 100 ms are one
			x.cmd.Process.Signal(sig)
		}
		if code := x.wait(); code != 128+int(sig) {
			t.Errorf("/load, %v: code %d, %q", sig, code, x.output())
		}
	}
}

// SIGQUIT ends a program with one line that says where it was; -v adds the stacks.
func TestSignalQuit(t *testing.T) {
	dir := buildPrograms(t)
	for _, verbose := range []bool{false, true} {
		args := []string{"--raw", "-f", newFIFO(t)}
		if verbose {
			args = append(args, "-v")
		}
		v := startVictim(t, exec.Command(filepath.Join(dir, "ckrun"), args...))
		v.ended(200 * time.Millisecond)
		if _, ok := v.signal(syscall.SIGQUIT); !ok || ending(v.cmd) != 131 {
			t.Fatalf("code %d", ending(v.cmd))
		}
		text := v.err.String()
		if !strings.Contains(text, "ckrun: error: quit by SIGQUIT in ") || verbose != strings.Contains(text, "goroutine ") || !verbose && strings.Count(text, "\n") != 1 {
			t.Errorf("-v %v: %s", verbose, text)
		}
	}
}

// signalModel writes a model with long prompts' work, about 30 MB.
func signalModel(t testing.TB, typ string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), typ+".gguf")
	out, err := exec.Command(filepath.Join(buildPrograms(t), "ckbench"), "synth", typ, "-q", "--layers", "4", "--hidden", "1024", "--ffn", "2048", "--heads", "8",
		"--vocab", "4000", "-o", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// storm is what TestSignalStorm draws from.
type storm struct {
	dir    string
	models []string // "": the built-in one
	tiers  []string
	prompt string // a file
	fifo   string
}

// draw is one run: what a user might do, with random settings of the engine.
func (s *storm) draw(rng *rand.Rand) (kind string, args []string) {
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	args = []string{"-t", pick("1", "2", "3", "5"), "--ubatch", pick("1", "7", "64", "512", "2048"), "--kv", pick("f16", "bf16", "f32", "q8_0", "q4_0")}
	if tier := pick(s.tiers...); tier != "" {
		args = append(args, "--cpu", tier)
	}
	model := pick(s.models...)
	if kind = pick("prompt", "prompt", "text", "stdin", "fifo", "lines", "chat idle", "chat typing", "chat answer", "chat answer"); kind == "lines" || strings.HasPrefix(kind, "chat") {
		model = "" // the one with a template in every version of synth
	}
	if model != "" {
		args = append(args, "-m", model)
	}
	switch kind {
	case "prompt":
		args = append(args, "--raw", "-c", "100000", "-n", "-1", "-f", s.prompt, "--no-stdin")
	case "text":
		args = append(args, "--raw", "-c", "100000", "-n", "-1", "--ignore-eos", "-p", "Once upon a time", "--no-stdin")
	case "fifo":
		args = append(args, "-f", s.fifo, "--no-stdin")
	case "lines", "chat idle", "chat typing", "chat answer":
		args = append([]string{"chat", "-c", "100000", "-n", "-1", "--ignore-eos"}, args...)
	}
	return kind, args
}

// strike runs the program and signals it at a random time. It returns the time from the last signal to the end.
func (s *storm) strike(t *testing.T, rng *rand.Rand, kind string, args []string, sig syscall.Signal) (after time.Duration, code int, ok bool) {
	var v *victim
	wait := time.Duration(rng.IntN(500)) * time.Millisecond
	if chat := strings.HasPrefix(kind, "chat"); chat {
		x := startTerminal(t, append([]string{"ckrun", "-q"}, args...)...)
		v = &victim{cmd: x.cmd, done: make(chan struct{})}
		v.watch(t)
		if kind != "chat idle" || rng.IntN(2) == 0 {
			x.expect("> ")
			x.send(map[string]string{"chat idle": "", "chat typing": "half a line", "chat answer": "Tell me a story\r"}[kind])
		}
	} else {
		in, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		defer w.Close()
		io.WriteString(w, `{"role": "user", "content": "Hello"}`)
		cmd := exec.Command(filepath.Join(s.dir, "ckrun"), append([]string{"-q"}, args...)...)
		cmd.Stdin = in
		v = startVictim(t, cmd)
	}
	if v.ended(wait) {
		t.Errorf("%s %v: ended by itself, code %d: %s", kind, args, ending(v.cmd), v.err.String())
		return 0, 0, true
	}
	start := time.Now()
	v.cmd.Process.Signal(sig)
	if sig == syscall.SIGINT && strings.HasPrefix(kind, "chat ") {
		// The first one may clear a line or stop an answer, each a second one of its own.
		for range 2 {
			if v.ended(250 * time.Millisecond) {
				break
			}
			start = time.Now()
			v.cmd.Process.Signal(sig)
		}
	}
	ok = v.ended(20 * time.Second)
	after = time.Since(start)
	if !ok {
		v.cmd.Process.Signal(syscall.SIGQUIT)
		v.ended(5 * time.Second)
		v.cmd.Process.Kill()
		<-v.done
	}
	return after, ending(v.cmd), ok
}

// Random runs of ckrun get a random signal at a random time: each ends with its code, soon. CK_TEST_LARGE makes it 300 runs, whose delays
// are judged by 200 ms unless CK_TEST_SIGNAL_MS says else; CK_TEST_SEED draws others. A run that was late while the hypervisor kept the CPUs
// from this machine is taken again.
func TestSignalStorm(t *testing.T) {
	runs, limit, seed := 10, signalLimit(t), uint64(1)
	if os.Getenv("CK_TEST_LARGE") != "" {
		runs = 300
		if os.Getenv("CK_TEST_SIGNAL_MS") == "" {
			limit = 200 * time.Millisecond
		}
	}
	if s := os.Getenv("CK_TEST_SEED"); s != "" {
		fmt.Sscan(s, &seed)
	}
	s := &storm{dir: buildPrograms(t), models: []string{"", signalModel(t, "Q8_0"), signalModel(t, "Q4_K")}, tiers: append(stormTiers(t), ""), fifo: newFIFO(t)}
	s.prompt = filepath.Join(t.TempDir(), "prompt.txt")
	if err := os.WriteFile(s.prompt, []byte(strings.Repeat("Once upon a time there was a little girl. ", 400)), 0o666); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 17))
	type run struct {
		after time.Duration
		what  string
	}
	var all []run
	codes := map[string]int{}
	hangs, again := 0, 0
	for i := range runs {
		kind, args := s.draw(rng)
		sig := endSignals[rng.IntN(3)]
		t.Run(fmt.Sprintf("%03d", i), func(t *testing.T) {
			stolen := testkit.Stolen()
			after, code, ok := s.strike(t, rng, kind, args, sig)
			for try := 0; try < 5 && ok && after > limit && testkit.Stolen()-stolen >= 20*time.Millisecond; try++ { // the machine stood still
				again++
				stolen = testkit.Stolen()
				after, code, ok = s.strike(t, rng, kind, args, sig)
			}
			what := fmt.Sprintf("%s, %v, %s", kind, sig, strings.Join(args, " "))
			all = append(all, run{after, what})
			codes[fmt.Sprintf("%v %d", sig, code)]++
			switch {
			case !ok:
				hangs++
				t.Errorf("hangs: %s", what)
			case code != 128+int(sig):
				t.Errorf("code %d: %s", code, what)
			case after > limit:
				t.Errorf("%v after the signal: %s", after, what)
			}
		})
	}
	slices.SortFunc(all, func(a, b run) int { return int(a.after - b.after) })
	at := func(p int) time.Duration { return all[(len(all)-1)*p/100].after.Round(100 * time.Microsecond) }
	t.Logf("%d runs, seed %d, %d hangs, %d late ones repeated since the hypervisor took CPUs away, codes %v; end after the signal: median %v, 90 %% %v, 99 %% %v, largest %v (limit %v)", len(all), seed, hangs, again, codes,
		at(50), at(90), at(99), at(100), limit)
	for _, r := range all[max(len(all)-5, 0):] {
		t.Logf("%8.1f ms  %s", float64(r.after.Microseconds())/1e3, r.what)
	}
}

// stormTiers are the instruction set tiers of this machine but go, whose kernels alone may take longer.
func stormTiers(t testing.TB) []string {
	var list []string
	for _, tier := range []string{"avx2", "avxvnni", "avx512", "vnni"} {
		err := exec.Command(filepath.Join(buildPrograms(t), "ckrun"), "--cpu", tier, "-n", "1", "-q", "x").Run()
		var ee *exec.ExitError
		if err == nil {
			list = append(list, tier)
		} else if !errors.As(err, &ee) {
			t.Fatal(err)
		}
	}
	return list
}
