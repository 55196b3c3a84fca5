package cli

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// endBy ends the process after a signal that the program's work did not follow in time. It says nothing, as a program does that a signal
// ends: the work may have said all already.
func (a *App) endBy(sig syscall.Signal) {
	a.cleanup()
	os.Exit(signalCode(sig))
}

// signalCode is the exit code of a program that a signal ended, as shells have it.
func signalCode(sig syscall.Signal) int { return 128 + int(sig) }

// quit ends the process at SIGQUIT (Ctrl-\) and says where it was; with -v all stacks.
func (a *App) quit() {
	stacks := allStacks()
	line := "quit by SIGQUIT"
	if place := busyPlace(string(stacks)); place != "" {
		line += " in " + place
	}
	if !a.Common.Verbose {
		line += "; -v prints the stacks"
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		a.errorLine(line)
		if a.Common.Verbose {
			a.Err.Write(stacks)
		}
	}()
	select {
	case <-said:
	case <-time.After(graceDefault): // nobody reads stderr
	}
	a.cleanup()
	os.Exit(ExitQuit)
}

func allStacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// busyPlace is this project's innermost function on the main goroutine: "walk.(*Walker).Run (walk.go:115)".
func busyPlace(stacks string) string {
	_, main, ok := strings.Cut(stacks, "goroutine 1 [")
	if !ok {
		return ""
	}
	main, _, _ = strings.Cut(main, "\n\n")
	lines := strings.Split(main, "\n")
	for i, l := range lines[:max(len(lines)-1, 0)] {
		own := strings.HasPrefix(l, "ck/") || strings.HasPrefix(l, "main.")
		end := strings.LastIndexByte(l, '(') // of the arguments
		if !own || end < 0 {
			continue
		}
		name := l[strings.LastIndexByte(l[:end], '/')+1 : end]
		file, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " ")
		return fmt.Sprintf("%s (%s)", name, file[strings.LastIndexByte(file, '/')+1:])
	}
	return ""
}
