package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ck/internal/testkit"
)

// testApp is a small program with output in files.
type testApp struct {
	*App
	t     *testing.T
	temp  float64
	n     int
	stop  []string
	words []string
	ran   string
	fail  error
}

func newTestApp(t *testing.T) *testApp {
	t.Helper()
	ta := &testApp{App: New("ckx", "[flags] [WORDS…]", "a test", "Does nothing.\n\nTwice."), t: t}
	ta.Rewrite = map[string]string{"-ub": "--ubatch"}
	ta.Aliases = map[string]string{"n-predict": "predict"}
	var ub int
	g := NewGroup(ta.Root.PersistentFlags(), "Sampling")
	g.Float(&ta.temp, "temp", "", 0.8, 0, 100, "X", "temperature")
	g.Int(&ta.n, "predict", "n", 512, -1, 1<<31-1, "N", "new tokens")
	g.Int(&ub, "ubatch", "", 512, 1, 65536, "N", "rows")
	g.Texts(&ta.stop, "stop", "", "STR", "stop here")
	run := func(cmd *cobra.Command, args []string) error {
		ta.words, ta.ran = args, cmd.Name()
		if ub != 512 {
			ta.ran += fmt.Sprint(" ub=", ub)
		}
		return ta.fail
	}
	ta.Root.RunE = run
	ta.NewCommand("chat", "talk", "", run)
	ta.AddConfigCommand()
	var err error
	dir := t.TempDir()
	if ta.Out, err = os.Create(filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if ta.Err, err = os.Create(filepath.Join(dir, "err")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", dir)
	return ta
}

func (ta *testApp) run(args ...string) (code int, out, errOut string) {
	ta.t.Helper()
	code = ta.Run(args)
	read := func(f *os.File) string {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			ta.t.Fatal(err)
		}
		return string(b)
	}
	return code, read(ta.Out), read(ta.Err)
}

func (ta *testApp) config(text string) {
	ta.t.Helper()
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "ck")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		ta.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o666); err != nil {
		ta.t.Fatal(err)
	}
}

func TestCommandAndWords(t *testing.T) {
	for _, c := range []struct{ args, ran, words string }{
		{"", "ckx", ""},
		{"chat", "chat", ""},
		{"-n 5 chat", "chat", ""},
		{"-n 5 -ub 7 chat", "chat ub=7", ""},
		{"hello chat", "ckx", "hello chat"},
		{"-- chat", "ckx", "chat"},
		{"help me", "ckx", "help me"},
		{"completion", "ckx", "completion"},
		{"tell -n -1 me", "ckx", "tell me"},
		{"--n-predict 3 x", "ckx", "x"},
		{"a -ub=7", "ckx ub=7", "a"},
		{"--stop -ub a", "ckx", "a"},
		{"-qn -1 a", "ckx", "a"},
		{"-qn5 -ub 9 a", "ckx ub=9", "a"},
		{"a -- -ub 7", "ckx", "a -ub 7"},
	} {
		ta := newTestApp(t)
		code, _, errOut := ta.run(strings.Fields(c.args)...)
		if code != 0 || ta.ran != c.ran || strings.Join(ta.words, " ") != c.words {
			t.Errorf("%q: code %d, ran %q with %q, %s", c.args, code, ta.ran, ta.words, errOut)
		}
	}
}

func TestErrorLines(t *testing.T) {
	_, statErr := os.Stat("/nonexistent/model.gguf")
	internal := "internal error: odd; report it with the command line and the output of ckx --version"
	for _, c := range []struct {
		args []string
		fail error
		code int
		want string
	}{
		{[]string{"--tmp", "1"}, nil, 2, "--tmp: unknown flag; is --temp meant? see ckx --help"},
		{[]string{"--qqqqqqqq"}, nil, 2, "--qqqqqqqq: unknown flag; see ckx --help"},
		{[]string{"-5"}, nil, 2, "-5: unknown flag; see ckx --help, or put words that begin with - behind --"},
		{[]string{"-n"}, nil, 2, "-n/--predict: needs a value; see ckx --help"},
		{[]string{"chat", "-n", "many"}, nil, 2, `-n/--predict: "many" is no whole number; see ckx chat --help`},
		{[]string{"-n", "-2"}, nil, 2, "-n/--predict: -2 is not in -1..2147483647; see ckx --help"},
		{[]string{"-n", "99999999999999999999"}, nil, 2, "-n/--predict: 99999999999999999999 is not in -1..2147483647; see ckx --help"},
		{[]string{"--temp", "NaN"}, nil, 2, `--temp: "NaN" is no number; see ckx --help`},
		{[]string{"--quiet=maybe"}, nil, 2, `-q/--quiet: "maybe" is neither true nor false; see ckx --help`},
		{[]string{"--mem-limit", "4X"}, nil, 2, `--mem-limit: "4X" is no size such as 4G, 512MiB or 1000000; see ckx --help`},
		{[]string{"--cpu", "avx"}, nil, 2, `--cpu: "avx" is not one of go, avx2, avxvnni, avx512, vnni, amx; see ckx --help`},
		{[]string{"-t", "0"}, nil, 2, "-t/--threads: 0 is not in 1..4096; see ckx --help"},
		{nil, Input("m.gguf: %w", errors.New("bad\nmagic\x1b[0m\xff")), 3, `m.gguf: bad; magic\x1b[0m\xff`},
		{nil, statErr, 3, "/nonexistent/model.gguf: no such file or directory; check the path"},
		{nil, &fs.PathError{Op: "open", Path: "f", Err: syscall.EACCES}, 4, "f: permission denied; check who may use it (ls -l)"},
		{nil, fmt.Errorf("map: %w", syscall.ENOMEM), 4, "map: cannot allocate memory"},
		{nil, Check("slower"), 1, "slower"},
		{nil, Input("m.gguf: %w", errors.New("m.gguf: offset 0x0: bad")), 3, "m.gguf: offset 0x0: bad"},
		{nil, errors.New("odd"), 5, internal},
		{nil, errors.New("internal error: odd"), 5, internal},
		{nil, context.Canceled, 130, "interrupted"},
	} {
		ta := newTestApp(t)
		ta.fail = c.fail
		code, out, errOut := ta.run(c.args...)
		if want := "ckx: error: " + c.want + "\n"; code != c.code || errOut != want || out != "" {
			t.Errorf("%q: code %d\n got %s want %s", c.args, code, errOut, want)
		}
	}
}

func TestSilentCodes(t *testing.T) {
	for _, err := range []error{Interrupted(), &Error{ExitPipe, nil}, fmt.Errorf("write: %w", syscall.EPIPE)} {
		ta := newTestApp(t)
		ta.fail = err
		code, out, errOut := ta.run()
		if code != codeOf(err, nil) || code == 0 || out+errOut != "" {
			t.Errorf("%v: code %d, printed %q", err, code, out+errOut)
		}
	}
}

func TestClassify(t *testing.T) {
	ta := newTestApp(t)
	ta.fail = errors.New("mine")
	ta.Classify = func(error) int { return ExitResource }
	if code, _, errOut := ta.run(); code != 4 || errOut != "ckx: error: mine\n" {
		t.Errorf("code %d, %s", code, errOut)
	}
	ta = newTestApp(t)
	ta.fail = fmt.Errorf("model: map of 9 bytes: %w", syscall.ENOMEM)
	ta.Classify = func(error) int { return ExitInput }
	if code, _, errOut := ta.run(); code != 4 {
		t.Errorf("no memory for an input: code %d, %s", code, errOut)
	}
}

func TestWarnings(t *testing.T) {
	ta := newTestApp(t)
	ta.Root.RunE = func(*cobra.Command, []string) error {
		if w := ta.Warnings(); w == nil || len(w) > 0 {
			t.Errorf("warnings %v before the first", w)
		}
		ta.Warn("%d\nwords", 2)
		return nil
	}
	if _, _, errOut := ta.run("-q"); errOut != "" || !slices.Equal(ta.Warnings(), []string{"2; words"}) {
		t.Errorf("%q, %v", errOut, ta.Warnings())
	}
}

func TestPanicIsInternalError(t *testing.T) {
	ta := newTestApp(t)
	ta.Root.RunE = func(*cobra.Command, []string) error { var p *testApp; return p.fail }
	code, _, errOut := ta.run()
	if code != 5 || !strings.Contains(errOut, "internal error: runtime error: invalid memory address") ||
		!strings.Contains(errOut, "at cli/cli_test.go:") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("code %d, %s", code, errOut)
	}
}

func TestSettingsOrder(t *testing.T) {
	const file = "[ckx]\ntemp = 0.5\npredict = 7\nstop = [\"a\", \"b\"]\nquiet = true\n[other]\nwhat = 1\n"
	ta := newTestApp(t)
	ta.config(file)
	t.Setenv("CK_PREDICT", "8")
	t.Setenv("CK_TEMP", "0.6")
	t.Setenv("CK_MODEL", "")
	if code, _, errOut := ta.run("--temp", "0.7"); code != 0 || errOut != "" {
		t.Fatal(code, errOut)
	}
	if ta.temp != 0.7 || ta.n != 8 || !slices.Equal(ta.stop, []string{"a", "b"}) || !ta.Common.Quiet {
		t.Errorf("temp %v, n %d, stop %q, quiet %v", ta.temp, ta.n, ta.stop, ta.Common.Quiet)
	}

	ta = newTestApp(t)
	ta.config(file)
	code, out, errOut := ta.run("config", "--plain", "--temp", "0.7")
	path := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "ck", "config.toml")
	for _, want := range []string{"temp value\t0.7\ntemp source\tflag\n", "predict source\tCK_PREDICT\n", "stop value\t[\"a\" \"b\"]\nstop source\t" + path,
		"threads source\tdefault\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("config: code %d, %s, no %q in\n%s", code, errOut, want, out)
		}
	}
	ta = newTestApp(t)
	if _, out, _ := ta.run("config"); !strings.HasPrefix(out, "key        value  source\n") || !strings.Contains(out, "\ntemp       0.6    CK_TEMP\n") {
		t.Errorf("config as a table:\n%s", out)
	}
	ta = newTestApp(t)
	if _, out, _ := ta.run("config", "--json"); !strings.HasPrefix(out, `{"schema":"ck.config/1","program":"ckx","file":"`) ||
		!strings.Contains(out, `{"key":"temp","value":"0.6","source":"CK_TEMP"}`) {
		t.Errorf("config as JSON: %s", out)
	}
}

func TestSettingsErrors(t *testing.T) {
	for _, c := range []struct {
		file, env string
		code      int
		want      string
	}{
		{"[ckx]\ntmp = 1\n", "", 2, "config.toml: [ckx] has no key tmp; see ckx config"},
		{"[ckx]\nversion = true\n", "", 2, "config.toml: [ckx] has no key version; see ckx config"},
		{"temp = 1\n", "", 2, "config.toml: key temp stands outside a section; write it below [ckx]"},
		{"[ckx]\ntemp = \"hot\"\n", "", 2, `config.toml: [ckx] temp: "hot" is no number; correct it`},
		{"[ckx]\ntemp = [1, 2]\n", "", 2, `config.toml: [ckx] temp: takes one value, not a list; correct it`},
		{"[ckx\n", "", 3, "config.toml: line 1, column "},
		{"[ckx]\n[ckx]\n", "", 3, "config.toml: table ckx already exists; correct it"},
		{"", "hot", 2, `CK_TEMP: "hot" is no number; change or unset it`},
	} {
		ta := newTestApp(t)
		ta.config(c.file)
		t.Setenv("CK_TEMP", c.env)
		code, _, errOut := ta.run()
		if code != c.code || !strings.Contains(errOut, c.want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%q %q: code %d, %s", c.file, c.env, code, errOut)
		}
	}
	ta := newTestApp(t)
	t.Setenv("CK_TEMP", "")
	t.Setenv("XDG_CONFIG_HOME", "/dev/null")
	if code, _, errOut := ta.run(); code != 0 {
		t.Errorf("home that is no folder: code %d, %s", code, errOut)
	}
	if code, _, errOut := ta.run("--config", "/nonexistent.toml"); code != 3 || !strings.Contains(errOut, "/nonexistent.toml: no such file") {
		t.Errorf("code %d, %s", code, errOut)
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "1000000": 1e6, "4G": 4 << 30, "512MiB": 512 << 20, "1.5g": 3 << 29, "2KB": 2000, "1TB": 1e12, "7B": 7, "3 MiB": 3 << 20} {
		if n, err := ParseSize(s); n != want || err != nil {
			t.Errorf("%q is %d, %v", s, n, err)
		}
	}
	for _, s := range []string{"", "G", "-1", "1e9", "0x10", "inf", "NaN", "1_000", "9999999T", "4GX"} {
		if n, err := ParseSize(s); err == nil {
			t.Errorf("%q is %d", s, n)
		}
	}
	for _, n := range []int64{1, 1000, 1024, 3 << 29, 512 << 20, 4 << 30, 5 << 40} {
		if m, err := ParseSize(FormatSize(n)); m != n || err != nil {
			t.Errorf("%d is written %s and read %d, %v", n, FormatSize(n), m, err)
		}
	}
}

func TestDurationFlag(t *testing.T) {
	a := New("ckx", "", "a test", "")
	var d time.Duration
	NewGroup(a.Root.Flags(), "G").Duration(&d, "for", "", time.Minute, "TIME", "how long")
	f := a.Root.Flags().Lookup("for")
	if f.DefValue != "1m0s" || f.Value.Set("90s") != nil || d != 90*time.Second || f.Value.Set("90") == nil || f.Value.Set("-1s") == nil {
		t.Errorf("default %s, value %v", f.DefValue, d)
	}
}

// A settings file that has no end, or whose keys have too many parts, is refused before it costs anything.
func TestSettingsBounds(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		code int
		want string
	}{
		"dotted key":    {strings.Repeat("a.", 30000) + "b = 1\n", 3, "line 1: a key or value of 9 levels"},
		"section":       {"[ckx" + strings.Repeat(".a", 30000) + "]\nb = 1\n", 3, "a key or value of 9 levels"},
		"tables inside": {"[ckx]\na = " + strings.Repeat("{a = ", 30) + "1" + strings.Repeat("}", 30), 3, "a key or value of 9 levels"},
		"arrays":        {"[ckx]\na = " + strings.Repeat("[", 1<<20-100), 3, "levels"},
		"large":         {strings.Repeat("# a line\n", 1<<17), 3, "more than 1 MiB"},
		"strings":       {"[ckx]\nmodel = \"\"\"\n[[[[[[[[[[[\\\"\"\"\" # [[[[[[[[[[[[[[\nsystem = '..........\"'\ntmp = 1\n", 2, "has no key"},
		"quoted":        {"[ckx]\n\"a.b.c.d.e.f.g.h.i\" = 1\n", 2, "has no key"},
	} {
		path := filepath.Join(dir, "config.toml")
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		start := cpuTime(t)
		code, _, errOut := newTestApp(t).run("--config", path)
		if code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: code %d, %.200s", name, code, errOut)
		}
		if used := cpuTime(t) - start; used > 2*time.Second {
			t.Errorf("%s: took %v of CPU time", name, used)
		}
	}
	if code, _, errOut := newTestApp(t).run("--config", "/dev/zero"); code != 3 || !strings.Contains(errOut, "/dev/zero: is a device") {
		t.Errorf("/dev/zero: code %d, %s", code, errOut)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(fifo, []byte("[ckx]\ntmp = 1\n"), 0)
	if code, _, errOut := newTestApp(t).run("--config", fifo); code != 2 || !strings.Contains(errOut, "has no key tmp") {
		t.Errorf("a FIFO: code %d, %s", code, errOut)
	}
}

// cpuTime is what this process has used.
func cpuTime(t *testing.T) time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func TestCreate(t *testing.T) {
	t.Run("unnamed", testCreate)
	t.Run("named", func(t *testing.T) {
		withoutTmpfile(t)
		testCreate(t)
	})
}

// withoutTmpfile makes the file system one without O_TMPFILE for the rest of the test.
func withoutTmpfile(t *testing.T) {
	was := unnamed
	unnamed = unix.O_DIRECTORY
	t.Cleanup(func() { unnamed = was })
}

func testCreate(t *testing.T) {
	ta := newTestApp(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "out.bin")
	write := func(path, text string, force bool) error {
		f, err := ta.Create(path, force)
		if err != nil {
			return err
		}
		io.WriteString(f, text)
		return f.Commit()
	}
	content := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if err := write(path, "one", false); err != nil || content(path) != "one" {
		t.Fatal(err)
	}
	err := write(path, "two", false)
	if codeOf(err, nil) != 2 || !strings.HasSuffix(err.Error(), "out.bin: exists; --force overwrites it") {
		t.Errorf("overwriting: %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("out.bin", link); err != nil {
		t.Fatal(err)
	}
	if err := write(link, "three", true); err != nil || content(path) != "three" {
		t.Errorf("--force through a link: %v, %q", err, content(path))
	}
	if err := write("/dev/null", "x", false); err != nil {
		t.Errorf("device: %v", err)
	}
	if err := write(dir, "x", true); codeOf(err, nil) != 2 {
		t.Errorf("folder: %v", err)
	}
	if err := write(filepath.Join(dir, "no", "file"), "x", false); codeOf(err, nil) != 4 || !strings.HasPrefix(Line(err), filepath.Join(dir, "no", "file")+": no such") {
		t.Errorf("missing folder: %v", err)
	}
	f, err := ta.Create(filepath.Join(dir, "aborted"), false)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(f, "x")
	ta.cleanup()
	f2, err := ta.Create(filepath.Join(dir, "late"), false)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, "late"), []byte("other"), 0o666)
	if err := f2.Commit(); codeOf(err, nil) != 2 || content(filepath.Join(dir, "late")) != "other" {
		t.Errorf("file that appeared meanwhile: %v", err)
	}
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"late", "link", "out.bin"}) {
		t.Errorf("left over: %q", names)
	}
}

// Nothing is left of an output when the process is killed: it has no name yet; where it needs one, the next writer of the same name
// removes it, unless somebody still writes it.
func TestKilledLeavesNothing(t *testing.T) {
	names := func(dir string) []string {
		var list []string
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	ta := newTestApp(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "out.bin")
	f, err := ta.Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(dir); len(got) > 0 {
		t.Errorf("while it is written there is %q: kill -9 would leave it", got)
	}
	f.Abort()

	withoutTmpfile(t)
	old, other, foreign := ".out.bin.0123abcd.tmp", ".out.bin2.0123abcd.tmp", ".out.bin.note.tmp"
	for _, n := range []string{old, other, foreign} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	first, err := ta.Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	inUse := filepath.Base(first.tmp)
	second, err := ta.Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	got := names(dir)
	if slices.Contains(got, old) || !slices.Contains(got, other) || !slices.Contains(got, foreign) || !slices.Contains(got, inUse) || len(got) != 4 {
		t.Errorf("%q; want all but %s", got, old)
	}
	second.Abort()
	if err := first.Commit(); err != nil {
		t.Errorf("the one in use: %v", err)
	}
}

// Errors of writing name the file that the user named, and are those of a resource.
func TestWriteErrorNamesFile(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 18, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_FSIZE, &was)
	check := func(t *testing.T) {
		ta := newTestApp(t)
		path := filepath.Join(t.TempDir(), "out.bin")
		f, err := ta.Create(path, false)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Abort()
		_, err = f.Write(make([]byte, 1<<20)) // beyond the buffer
		if want := path + ": file too large; raise the limit (ulimit -f)"; codeOf(OutError(err), nil) != 4 || Line(OutError(err)) != want {
			t.Errorf("%v, want %s", OutError(err), want)
		}
	}
	t.Run("unnamed", check)
	t.Run("named", func(t *testing.T) {
		withoutTmpfile(t)
		check(t)
	})
	if err := OutError(ErrInterrupt); err != ErrInterrupt || codeOf(err, nil) != 130 {
		t.Errorf("an interrupt while something is written: %v", err)
	}
}

func TestFullDiskIsResource(t *testing.T) {
	fd, err := unix.Open("/dev/full", unix.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	f := os.NewFile(uintptr(fd), os.Stdout.Name())
	defer f.Close()
	ta := newTestApp(t)
	ta.Out = f
	ta.Root.SetOut(f)
	code, _, errOut := ta.runNoOut("--version")
	if code != 4 || errOut != "ckx: error: stdout: no space left on device; what was written is incomplete\n" {
		t.Errorf("code %d, %s", code, errOut)
	}
}

func (ta *testApp) runNoOut(args ...string) (int, string, string) {
	code := ta.Run(args)
	b, err := os.ReadFile(ta.Err.Name())
	if err != nil {
		ta.t.Fatal(err)
	}
	return code, "", string(b)
}

func TestInterrupts(t *testing.T) {
	var clock, asked atomic.Int64 // the test's own time, and how often somebody looked
	s := signals{now: func() time.Time { asked.Add(1); return time.Unix(0, clock.Load()) }}
	clock.Store(int64(time.Hour))
	killed := make(chan bool, 1)
	s.grace = time.Hour
	ctx, stop := s.start(func(syscall.Signal) { killed <- true }, func() {})
	defer stop()
	wait := func(c context.Context) {
		t.Helper()
		select {
		case <-c.Done():
			if context.Cause(c) != ErrInterrupt {
				t.Errorf("cause %v", context.Cause(c))
			}
		case <-time.After(testkit.Hang):
			t.Fatal("the context goes on")
		}
	}
	seen := func(signals int64) { // waits until so many have arrived
		t.Helper()
		for start := time.Now(); asked.Load() < signals; time.Sleep(time.Millisecond) {
			if time.Since(start) > testkit.Hang {
				t.Fatalf("%d signals of %d have arrived", asked.Load(), signals)
			}
		}
		s.mu.Lock() // the last one is done with
		defer s.mu.Unlock()
	}
	inner, done := s.scope(ctx)
	send(t, syscall.SIGINT)
	wait(inner)
	done()
	clock.Add(int64(sameSignal - 1))
	send(t, syscall.SIGINT) // too soon: the same one
	seen(2)
	if ctx.Err() != nil {
		t.Fatal("the program's context ended with the inner one")
	}
	clock.Add(int64(sameSignal))
	send(t, syscall.SIGINT)
	wait(ctx)
	clock.Add(int64(sameSignal))
	if len(killed) > 0 {
		t.Fatal("the first interrupt ends the program")
	}
	send(t, syscall.SIGINT)
	select {
	case <-killed:
	case <-time.After(testkit.Hang):
		t.Fatal("the second interrupt does not end the program")
	}
}

func send(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		t.Fatal(err)
	}
}

func TestHelpVersionCompletionMan(t *testing.T) {
	ta := newTestApp(t)
	_, out, _ := ta.run("chat", "--help")
	for _, want := range []string{"usage: ckx chat\n", "Sampling:\n      --temp X             temperature [0.8]\n", "  -m, --model PATH"} {
		if !strings.Contains(out, want) {
			t.Errorf("help lacks %q:\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		if n := len([]rune(line)); n > helpWidth+2 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	ta = newTestApp(t)
	if _, out, _ := ta.run("--version"); !strings.HasPrefix(out, "ckx "+Version+" (commit ") || !strings.Contains(out, ", tier ") {
		t.Errorf("version: %s", out)
	}
	ta = newTestApp(t)
	_, out, _ = ta.run("--man")
	for _, want := range []string{".TH CKX 1", ".SH SYNOPSIS\n.nf\nckx [flags] [WORDS...]\nckx chat\n", ".SS Sampling\n.TP\n.B \\-\\-temp X\n", ".B 129\nended by SIGHUP", ".B 130\ninterrupted", ".B 143\nended by SIGTERM"} {
		if !strings.Contains(out, want) {
			t.Errorf("man page lacks %q", want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		ta = newTestApp(t)
		_, out, _ := ta.run("--completion", shell)
		if len(out) < 1000 {
			t.Errorf("%s: %d bytes of completion", shell, len(out))
		}
		if path, err := exec.LookPath(shell); err == nil && shell != "fish" {
			cmd := exec.Command(path, "-n")
			cmd.Stdin = strings.NewReader(out)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s -n: %v, %s", shell, err, text)
			}
		}
	}
	ta = newTestApp(t)
	if _, out, _ := ta.run("__complete", ""); out != "chat\ttalk\nconfig\tprint the settings in force and where they came from\n:4\n" {
		t.Errorf("completion of the first word: %q", out)
	}
	ta = newTestApp(t)
	if _, out, _ := ta.run("__complete", "--cpu", "av"); !strings.HasPrefix(out, "go\navx2\navxvnni\navx512\n") {
		t.Errorf("completion of --cpu av: %s", out)
	}
}

func TestRoffText(t *testing.T) {
	got := roffText("One.\n'quoted\n\n  code -x\n  .more\n\nTwo \\.\n")
	want := "One.\n\\&'quoted\n.PP\n.nf\n  code \\-x\n  .more\n.fi\n.PP\nTwo \\e.\n"
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

// A pipe gets a line every ten seconds, whatever the work tells how often.
func TestProgressLines(t *testing.T) {
	var out bytes.Buffer
	start := time.Now()
	p := newProgress(&out, "ckx", "reading", "tokens", 1000, true, start)
	for s := range 31 {
		p.At(int64(10 * s))
		p.show(start.Add(time.Duration(s) * time.Second))
		p.show(start.Add(time.Duration(s)*time.Second + progressEach))
	}
	p.Done()
	const want = "ckx: reading: 100 of 1000 tokens, 10 tokens/s, 1m30s left\nckx: reading: 200 of 1000 tokens, 10 tokens/s, 1m20s left\n" +
		"ckx: reading: 300 of 1000 tokens, 10 tokens/s, 1m10s left\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// A terminal's bar is there with the work's first moment, and its rate is that of the work from its beginning; it moves while the work says
// nothing new, fits into 80 columns and leaves nothing behind.
func TestProgressBar(t *testing.T) {
	if progressEach > time.Second/2 {
		t.Errorf("the bar moves every %v", progressEach)
	}
	var out bytes.Buffer
	start := time.Now()
	p := newProgress(&out, "ckx", "prompt", "tokens", 131072, false, start)
	seen := ""
	for i, c := range []struct {
		done float64
		text string
	}{
		{0, "prompt: 0 of 131072 tokens"},
		{123.5, "prompt: 123 of 131072 tokens, 247 tokens/s, 8m50s left"},
		{123.5, "prompt: 123 of 131072 tokens, 165 tokens/s, 13m15s left"},
		{98304, "prompt: 98304 of 131072 tokens, 98304 tokens/s, 0s left"},
		{131072, "prompt: 131072 of 131072 tokens, 104858 tokens/s, 0s left"},
	} {
		p.Reach(c.done)
		out.Reset()
		p.show(start.Add(time.Duration(i+1) * progressEach))
		got := out.String()
		if !strings.Contains(got, c.text) || got == seen {
			t.Errorf("after %v: %q, expected %q", time.Duration(i+1)*progressEach, got, c.text)
		}
		for _, line := range strings.Split(got, "\r") {
			if n := utf8.RuneCountInString(line); n > 79 {
				t.Errorf("%d columns: %q", n, line)
			}
		}
		seen = got
	}
	out.Reset()
	p.Done()
	p.Done()
	if got := out.String(); strings.Trim(got, "\r ") != "" || !strings.HasSuffix(got, "\r") {
		t.Errorf("the end leaves %q", got)
	}
}

// Words that do not fit into the terminal's line leave: first the rate, then the last words; a pipe gets all. The rate is of what came after From.
func TestProgressWords(t *testing.T) {
	var out bytes.Buffer
	start := time.Now()
	p := newProgress(&out, "ckx", "training", "steps", 3700, true, start)
	p.From(1000)
	if got, want := p.text(1000, start.Add(time.Second), 0), "training: 1000 of 3700 steps"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.Say("loss 2.5000, held out 2.6000, norm 1")
	const whole = "training: 1100 of 3700 steps, 2 steps/s, 21m40s left, loss 2.5000, held out 2.6000, norm 1"
	for _, c := range []struct {
		columns int
		want    string
	}{{0, whole}, {len(whole), whole}, {len(whole) - 1, "training: 1100 of 3700 steps, 21m40s left, loss 2.5000, held out 2.6000, norm 1"},
		{77, "training: 1100 of 3700 steps, 21m40s left, loss 2.5000, held out 2.6000"}, {58, "training: 1100 of 3700 steps, 21m40s left, loss 2.5000"},
		{30, "training: 1100 of 3700 steps"}, {5, "training: 1100 of 3700 steps"}} {
		if got := p.text(1100, start.Add(50*time.Second), c.columns); got != c.want {
			t.Errorf("%d columns: %q, want %q", c.columns, got, c.want)
		}
	}
	p.lines = false
	p.At(1100)
	p.show(start.Add(50 * time.Second))
	if !strings.Contains(out.String(), "loss 2.5000") {
		t.Errorf("%q", out.String())
	}
	for _, line := range strings.Split(out.String(), "\r") {
		if n := utf8.RuneCountInString(line); n > 79 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// What is printed while a bar stands has a line of its own, and the bar comes back.
func TestProgressAside(t *testing.T) {
	var out bytes.Buffer
	start := time.Now()
	p := newProgress(&out, "ckx", "measuring", "repetitions", 10, false, start)
	p.show(start.Add(progressEach))
	out.Reset()
	err := p.Aside(func() error {
		fmt.Fprint(&out, "a row\n")
		return io.EOF
	})
	blank, ok := strings.CutSuffix(out.String(), "a row\n")
	if err != io.EOF || !ok || strings.Trim(blank, "\r ") != "" || !strings.HasSuffix(blank, "\r") {
		t.Errorf("%q, %v", out.String(), err)
	}
	out.Reset()
	p.show(start.Add(2 * progressEach))
	if !strings.Contains(out.String(), "0 of 10 repetitions") {
		t.Errorf("the bar does not come back: %q", out.String())
	}
	p.Done()
	if err := (*Progress)(nil).Aside(func() error { return io.EOF }); err != io.EOF {
		t.Error(err)
	}
}

// The clock runs by itself and ends with Done.
func TestProgressClock(t *testing.T) {
	ta := newTestApp(t)
	for _, quiet := range []bool{false, true} {
		ta.Common.Quiet = quiet
		p := ta.NewProgress("reading", "tokens", 100)
		if (p.stop == nil) != quiet {
			t.Errorf("quiet %v: the clock", quiet)
		}
		p.At(10)
		p.Done()
	}
	(*Progress)(nil).At(1)
	(*Progress)(nil).Done()
}

// Where other programs have the CPUs, work that was told to end is given its time again, but not for ever.
func TestGraceOnBusyMachine(t *testing.T) {
	for _, c := range []struct{ busy, asked int }{{0, 2}, {3, 5}, {1000, graceMost + 1}} {
		var asked atomic.Int64
		s := signals{grace: time.Millisecond, waits: func() time.Duration {
			return time.Duration(min(asked.Add(1), int64(c.busy)+1)) * time.Millisecond
		}}
		ended := make(chan syscall.Signal, 1)
		ctx, stop := s.start(func(sig syscall.Signal) { ended <- sig }, func() {})
		send(t, syscall.SIGTERM)
		select {
		case sig := <-ended:
			if sig != syscall.SIGTERM || ctx.Err() == nil {
				t.Errorf("ended by %v, context: %v", sig, ctx.Err())
			}
		case <-time.After(testkit.Hang):
			t.Fatalf("busy for %d times the grace: never ended", c.busy)
		}
		stop()
		if n := int(asked.Load()); n != c.asked {
			t.Errorf("busy for %d times the grace: looked %d times, want %d", c.busy, n, c.asked)
		}
	}
}
