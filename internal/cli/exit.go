package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"ck/internal/plaintext"
)

// Exit codes of all programs.
const (
	ExitOK        = 0
	ExitCheck     = 1   // a check said no
	ExitUsage     = 2   // unknown flag, bad value, nothing to do
	ExitInput     = 3   // an input cannot be used
	ExitResource  = 4   // memory, disk, permission or a device is missing
	ExitInternal  = 5   // a defect of the program
	ExitHangup    = 129 // SIGHUP
	ExitInterrupt = 130 // SIGINT
	ExitQuit      = 131 // SIGQUIT
	ExitTerm      = 143 // SIGTERM
	ExitPipe      = 141 // stdout was closed and SIGPIPE is ignored; else the signal itself ends the program
)

// exitTable is the list that help and man pages print.
var exitTable = []struct {
	Code int
	Text string
}{
	{ExitOK, "done"},
	{ExitCheck, "a check said no: regression found, file damaged, quality bound missed"},
	{ExitUsage, "usage: unknown flag, bad value, nothing to do"},
	{ExitInput, "an input cannot be used: missing, damaged, unsupported, not UTF-8"},
	{ExitResource, "a resource is missing: memory, disk, permission, device"},
	{ExitInternal, "internal error; the line says what to report"},
	{ExitHangup, "ended by SIGHUP: the terminal was closed"},
	{ExitInterrupt, "interrupted: SIGINT, Ctrl-C"},
	{ExitQuit, "ended by SIGQUIT; a line says where it was, -v prints all stacks"},
	{ExitTerm, "ended by SIGTERM"},
}

// isInterrupt reports whether a code is that of a signal that asks a program to end.
func isInterrupt(code int) bool {
	return code == ExitInterrupt || code == ExitTerm || code == ExitHangup
}

// Error is an error with the exit code that it means. Err may be nil: the program ends with Code and says nothing.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Usage, Input, Resource and Check make errors of the exit codes 2, 3, 4 and 1, formatted as fmt.Errorf does.
// The text is "WHERE: WHAT; WHAT TO DO", lower case, without a full stop.
func Usage(format string, a ...any) error    { return &Error{ExitUsage, fmt.Errorf(format, a...)} }
func Input(format string, a ...any) error    { return &Error{ExitInput, fmt.Errorf(format, a...)} }
func Resource(format string, a ...any) error { return &Error{ExitResource, fmt.Errorf(format, a...)} }
func Check(format string, a ...any) error    { return &Error{ExitCheck, fmt.Errorf(format, a...)} }

// ErrInterrupt is the cause of a context that a signal ended.
var ErrInterrupt = errors.New("interrupted")

// Interrupted is the error of a program that was interrupted and has said all it had to say. Its code is that of the signal.
func Interrupted() error { return &Error{ExitInterrupt, nil} }

// codeOf is the exit code of an error. classify knows the errors of packages that this one does not; it returns 0 for others.
// An error that nobody knows is a defect: code 5.
func codeOf(err error, classify func(error) int) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	if isResource(err) {
		return ExitResource // also where a package says that its input cannot be used
	}
	if classify != nil {
		if c := classify(err); c != 0 {
			return c
		}
	}
	switch {
	case errors.Is(err, ErrInterrupt), errors.Is(err, context.Canceled):
		return ExitInterrupt
	case errors.Is(err, syscall.EPIPE):
		return ExitPipe
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG):
		return ExitInput
	}
	return ExitInternal
}

// isResource reports whether the operating system refused a resource.
func isResource(err error) bool {
	if errors.Is(err, fs.ErrPermission) {
		return true
	}
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EFBIG, syscall.EIO, syscall.ENODEV, syscall.ENXIO,
		syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Line is the text of an error as one line: file names first, control characters and invalid UTF-8 escaped.
func Line(err error) string {
	s := err.Error()
	var pe *fs.PathError
	if errors.As(err, &pe) {
		s = strings.Replace(s, pe.Error(), pe.Path+": "+pe.Err.Error()+pathHint(pe), 1)
	}
	// Layers that each know the file name it: once is enough.
	if i := strings.Index(s, ": "); i > 0 && strings.HasPrefix(s[i+2:], s[:i+2]) {
		s = s[i+2:]
	}
	return plaintext.Escape(strings.TrimSpace(s))
}

// pathHint is what to do about a path that cannot be opened.
func pathHint(pe *fs.PathError) string {
	switch {
	case errors.Is(pe.Err, fs.ErrNotExist):
		return "; check the path"
	case errors.Is(pe.Err, fs.ErrPermission):
		return "; check who may use it (ls -l)"
	case errors.Is(pe.Err, syscall.ENOSPC):
		return "; make room or write elsewhere"
	case errors.Is(pe.Err, syscall.EFBIG):
		return "; raise the limit (ulimit -f)"
	case errors.Is(pe.Err, syscall.EISDIR):
		return "; name a file in it"
	}
	return ""
}
