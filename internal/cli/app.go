// Package cli is what the command lines of all programs share: the root command, flags and settings, exit codes, error lines,
// signals, files that are written whole or not at all, tables, progress, help, man pages and shell completions.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"ck/internal/isa"
	"ck/internal/numa"
	"ck/internal/plaintext"
)

// App is one program.
type App struct {
	Name     string
	Root     *cobra.Command
	Common   Common
	In       *os.File
	Out, Err *os.File

	// Classify gives the exit code of errors that only the program knows, 0 for others.
	Classify func(error) int
	// Rewrite maps words such as -ub, which users type but pflag cannot express, to long flags.
	Rewrite map[string]string
	// Aliases maps other long names of flags to the ones that are documented.
	Aliases map[string]string
	// Doc holds further sections of the man page.
	Doc []Section

	values   map[string]Setting // by flag name, after settings were applied
	warnings []string
	signals  signals
	exitMu   sync.Mutex
	exitOnce []func()
	exiting  sync.Mutex // held while exitOnce runs
	helpErr  error      // of writing the help; cobra has no way for it
}

// Common holds the flags that every program has.
type Common struct {
	Model    string
	Threads  int
	CPU      string
	NUMA     string
	NUMAs    []string // each --numa that was given
	MemLimit int64
	Quiet    bool
	Verbose  bool
	JSON     bool // --json or --jsonl
	JSONL    bool // a table's rows one by one, each an object with its schema; what is no table stays one document on one line
	Plain    bool

	config, completion string
	version, man       bool
}

// errDone ends a command that has done its work before its body ran: --version and the like.
var errDone = &Error{ExitOK, nil}

// New makes a program's root command with the common flags. use is the usage line without the program's name.
func New(name, use, short, long string) *App {
	a := &App{Name: name, In: os.Stdin, Out: os.Stdout, Err: os.Stderr, values: map[string]Setting{}}
	a.Root = &cobra.Command{
		Use:               strings.TrimSpace(name + " " + use),
		Short:             short,
		Long:              long,
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.before(cmd) },
	}
	// "help" may be the first word of a prompt: --help is the only way to the help.
	a.Root.SetHelpCommand(&cobra.Command{Use: "__help", Hidden: true})
	a.Root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		_, err := io.WriteString(a.Out, a.help(cmd))
		a.helpErr = OutError(err)
	})
	a.Root.SetFlagErrorFunc(a.flagError)
	a.commonFlags()
	return a
}

func (a *App) commonFlags() {
	c := &a.Common
	g := NewGroup(a.Root.PersistentFlags(), "Common")
	g.Text(&c.Model, "model", "m", "", "PATH", "GGUF file (first part of a split), Hugging Face folder; default: the built-in model")
	g.Int(&c.Threads, "threads", "t", 0, 1, 4096, "N", "workers; default: what the machine and its limits grant")
	g.Enum(&c.CPU, "cpu", "", "", "TIER", isa.Names(), "instruction set tier; default: the best one")
	g.Placement(&c.NUMA, &c.NUMAs, "numa", "auto", "where memory is taken: "+numa.Modes+" (nodes, and the cores that work there; tp: each home has a part of every weight; auto: tp where it is predicted to be faster than one home)")
	g.Size(&c.MemLimit, "mem-limit", "", 0, "SIZE", "bytes that packed weights, KV cache and buffers may take (4G, 512MiB), beside the mapped file; default: what the machine has")
	g.Bool(&c.Quiet, "quiet", "q", "no warnings, no progress")
	g.Bool(&c.Verbose, "verbose", "v", "say what was decided: threads, tier, memory")
	g.Bool(&c.JSON, "json", "", "one JSON document on stdout")
	g.Bool(&c.Plain, "plain", "", "tables as one fact a line")
	g.Text(&c.config, "config", "", "", "FILE", "settings file; default: $XDG_CONFIG_HOME/ck/config.toml")
	g.Bool(&c.version, "version", "", "version, commit, Go version, instruction set tier")
	g.Enum(&c.completion, "completion", "", "", "SHELL", []string{"bash", "zsh", "fish"}, "print the completion script of a shell")
	g.Bool(&c.man, "man", "", "print the man page's source")
	a.Root.PersistentFlags().BoolP("help", "h", false, "this text")
	g.add("help")
}

// AddLinesFlag adds --jsonl, for programs whose commands print tables: see Common.JSONL and PrintLines.
func (a *App) AddLinesFlag() {
	NewGroup(a.Root.PersistentFlags(), "Common").Bool(&a.Common.JSONL, "jsonl", "", "one JSON object a line on stdout, a table's rows one by one")
}

// NewCommand adds a subcommand.
func (a *App) NewCommand(use, short, long string, run func(*cobra.Command, []string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, RunE: run, Args: cobra.ArbitraryArgs}
	a.Root.AddCommand(c)
	return c
}

// before runs before any command's body: requests that need no settings, then the settings.
func (a *App) before(cmd *cobra.Command) error {
	switch c := &a.Common; {
	case c.version:
		return a.done(a.printVersion())
	case c.completion != "":
		return a.done(a.Completion(a.Out, c.completion))
	case c.man:
		_, err := io.WriteString(a.Out, a.Man())
		return a.done(err)
	}
	if strings.HasPrefix(cmd.Name(), "__") { // completion must not fail for a broken settings file
		return nil
	}
	return a.settings(cmd)
}

func (a *App) done(err error) error {
	if err != nil {
		return err
	}
	return errDone
}

// Main runs the program with the process's arguments and ends the process.
func (a *App) Main() { os.Exit(a.Run(os.Args[1:])) }

// Run runs the program and returns its exit code. Errors are one line on stderr.
func (a *App) Run(args []string) (code int) {
	defer a.cleanup()
	defer func() {
		if p := recover(); p != nil {
			code = a.panicked(p)
		}
	}()
	if err := checkRoom(); err != nil {
		return a.Report(err)
	}
	ctx, stop := a.signals.start(a.endBy, a.quit)
	defer stop()
	alias := func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if n, ok := a.Aliases[name]; ok {
			name = n
		}
		return pflag.NormalizedName(name)
	}
	a.Root.SetGlobalNormalizationFunc(alias)
	if len(args) > 0 && strings.HasPrefix(args[0], "__complete") {
		a.registerCompletions()
		return a.complete(args)
	}
	a.Root.SetArgs(a.rewrite(args))
	a.Root.SetOut(a.Out)
	a.Root.SetErr(a.Err)
	err := a.Root.ExecuteContext(ctx)
	if err == nil {
		err = a.helpErr
	}
	if err != nil {
		return a.Report(err)
	}
	return ExitOK
}

// Code is the exit code of an error. That of an interrupt names the signal that came.
func (a *App) Code(err error) int {
	code := codeOf(err, a.Classify)
	if code == ExitInterrupt {
		return signalCode(a.signals.first())
	}
	return code
}

// Report prints the line of an error and returns its exit code.
func (a *App) Report(err error) int {
	code := a.Code(err)
	var e *Error
	silent := errors.As(err, &e) && e.Err == nil
	switch {
	case code == ExitPipe, silent, code == ExitOK:
	case isInterrupt(code):
		a.errorLine("interrupted")
	case code == ExitInternal:
		a.errorLine("internal error: " + strings.TrimPrefix(Line(err), "internal error: ") + a.reportHint())
	default:
		a.errorLine(Line(err))
	}
	return code
}

// errorLine prints a line of at most 400 bytes; s is escaped already.
func (a *App) errorLine(s string) {
	fmt.Fprintln(a.Err, cutLine(fmt.Sprintf("%s: error: %s", a.Name, s), lineBytes))
}

func (a *App) reportHint() string {
	return fmt.Sprintf("; report it with the command line and the output of %s --version", a.Name)
}

// panicked reports a panic of the main goroutine: one line that names the place, the stack with -v only.
func (a *App) panicked(p any) int {
	text := plaintext.Escape(strings.TrimSpace(fmt.Sprint(p)))
	if place := panicPlace(); place != "" {
		text += " at " + place
	}
	a.errorLine("internal error: " + text + a.reportHint())
	if a.Common.Verbose {
		a.Err.Write(debug.Stack())
	}
	return ExitInternal
}

// panicPlace is the file and line of the innermost frame of this project below the panic.
func panicPlace() string {
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(0, pc)])
	inPanic := false
	for {
		f, more := frames.Next()
		if inPanic && (strings.HasPrefix(f.Function, "ck/") || strings.HasPrefix(f.Function, "main.")) {
			return filepath.Base(filepath.Dir(f.File)) + "/" + filepath.Base(f.File) + fmt.Sprintf(":%d", f.Line)
		}
		inPanic = inPanic || f.Function == "runtime.gopanic"
		if !more {
			return ""
		}
	}
}

// OnExit registers what must happen before the process ends, in whatever way: temporary files, the terminal's mode.
func (a *App) OnExit(f func()) {
	a.exitMu.Lock()
	a.exitOnce = append(a.exitOnce, f)
	a.exitMu.Unlock()
}

// cleanup also runs on the signals' goroutine, before the process is ended there. Who comes second waits: it would end the process while
// the first one still cleans up.
func (a *App) cleanup() {
	a.exiting.Lock()
	defer a.exiting.Unlock()
	a.exitMu.Lock()
	list := a.exitOnce
	a.exitOnce = nil
	a.exitMu.Unlock()
	for _, f := range slices.Backward(list) {
		f()
	}
}

// Interruptible is a context that the next SIGINT ends, alone: a chat's answer, or its line (Reader). A second SIGINT, or work that does
// not end with it when the program's context does, ends the program. SIGTERM and SIGHUP end both contexts.
func (a *App) Interruptible(ctx context.Context) (context.Context, func()) {
	return a.signals.scope(ctx)
}

// Warn says something on stderr that the user should know and can act on; -q silences it. JSON documents have it too: see Warnings.
func (a *App) Warn(format string, args ...any) {
	prefix := a.Name + ": warning: "
	text := cutLine(plaintext.Escape(strings.TrimSpace(fmt.Sprintf(format, args...))), lineBytes-len(prefix))
	a.warnings = append(a.warnings, text)
	if !a.Common.Quiet {
		fmt.Fprintln(a.Err, prefix+text)
	}
}

// Warnings are the texts of Warn so far, for JSON documents; not nil.
func (a *App) Warnings() []string { return append([]string{}, a.warnings...) }

// Info says on stderr what was decided, with -v.
func (a *App) Info(format string, args ...any) {
	if a.Common.Verbose {
		a.Note(format, args...)
	}
}

// Note says on stderr what is neither a warning nor an error.
func (a *App) Note(format string, args ...any) {
	fmt.Fprintf(a.Err, "%s: %s\n", a.Name, plaintext.Escape(strings.TrimSpace(fmt.Sprintf(format, args...))))
}

// Text is stdout for text that may hold names and words of others. What a terminal would obey is escaped.
func (a *App) Text() io.Writer { return plaintext.TextWriter(a.Out) }

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Color reports whether f may get colours and moving text.
func Color(f *os.File) bool {
	return IsTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// UTF8 reports whether the terminal's character set is UTF-8, as the environment says it.
func UTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// OutError names stdout in the error of a write to it. A closed pipe stays what it is, and so do all other errors: those of files have
// their names already, an interrupt is none of stdout's.
func OutError(err error) error {
	var pe *os.PathError
	if err == nil || errors.Is(err, syscall.EPIPE) || !errors.As(err, &pe) || pe.Path != os.Stdout.Name() {
		return err
	}
	return Resource("stdout: %w; what was written is incomplete", pe.Err)
}
