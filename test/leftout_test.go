package test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// sayLeftOut prints, behind all tests of this package, one line about the reference data that tests could not use.
//
// go test shows the output of a package that passes with -v alone, and skipped tests not at all. So the line goes to the standard error of
// the go command that waits for this process, where that is a terminal or a pipe. An ordinary file is left alone: go writes it at an offset
// of its own, and would overwrite the line.
func sayLeftOut() {
	line, err := testkit.LeftOut()
	if err != nil {
		line = err.Error()
	}
	if line == "" {
		return
	}
	out := os.Stdout
	if f := goStderr(os.Getppid()); f != nil && !testing.Verbose() {
		defer f.Close()
		out = f
	}
	fmt.Fprintln(out, line)
}

// goStderr opens the standard error of process pid if that is a go command and appending to it is safe, else returns nil.
func goStderr(pid int) *os.File {
	proc := fmt.Sprintf("/proc/%d/", pid)
	if name, err := os.ReadFile(proc + "comm"); err != nil || strings.TrimSpace(string(name)) != "go" {
		return nil
	}
	return appendTo(proc + "fd/2")
}

// appendTo opens a file for appending unless it is an ordinary one that its owner does not append to.
func appendTo(path string) *os.File {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil
	}
	return f
}

// A pipe gets the line; a file that somebody else writes, at his own offset, is left alone.
func TestAppendTo(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	f := appendTo(fmt.Sprintf("/proc/self/fd/%d", w.Fd()))
	if f == nil {
		t.Fatal("a pipe is not opened")
	}
	defer f.Close()
	if _, err := f.WriteString("line\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 9)
	if n, err := r.Read(b); err != nil || string(b[:n]) != "line\n" {
		t.Errorf("the pipe has %q, %v", b[:n], err)
	}
	plain, err := os.CreateTemp(t.TempDir(), "*")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if f := appendTo(fmt.Sprintf("/proc/self/fd/%d", plain.Fd())); f != nil {
		t.Error("an ordinary file is opened")
		f.Close()
	}
	if f := goStderr(os.Getpid()); f != nil {
		t.Error("this process is taken for a go command")
		f.Close()
	}
}
