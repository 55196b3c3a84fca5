package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Reader reads f until ctx ends: a Read that waits then returns the cause of that end, ErrInterrupt after a signal, within a millisecond.
// So does every later Read. f may be a terminal, pipe, FIFO, socket or regular file; it stays open, and keeps its flags.
//
// A Read costs one poll(2) beside the read, and three more system calls if it has to wait. Several Readers of one file, each with a
// context of its own, may follow each other: nothing is read ahead. For a read with a time limit take context.WithTimeout.
func Reader(ctx context.Context, f *os.File) io.Reader { return &reader{ctx, f} }

// OpenReader opens a file for a Reader. A FIFO that nobody has opened for writing does not hold it up: the first Read waits for a writer.
func OpenReader(ctx context.Context, path string) (io.ReadCloser, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{Reader(ctx, f), f}, nil
}

type reader struct {
	ctx context.Context
	f   *os.File
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.wait(); err != nil {
		return 0, err
	}
	return r.f.Read(b)
}

// wait returns nil when the file can be read without waiting, at its end or with an error as well.
func (r *reader) wait() error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	c, err := r.f.SyscallConn() // Fd would make the file blocking
	if err != nil {
		return err
	}
	var waitErr error
	err = c.Control(func(fd uintptr) {
		ready, err := poll(0, int(fd))
		if err == nil && !ready {
			err = waitFor(r.ctx, int(fd))
		}
		waitErr = err
	})
	return errors.Join(err, waitErr)
}

// waitFor returns nil when fd can be read, or the cause of ctx's end.
func waitFor(ctx context.Context, fd int) error {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		close(woken)
	})
	_, err = poll(-1, fd, wake)
	if !stop() {
		<-woken // it writes to wake until then
		err = context.Cause(ctx)
	}
	unix.Close(wake)
	return err
}

// poll waits until one of the descriptors can be read, at most so many milliseconds, below 0 for ever.
func poll(millis int, fds ...int) (ready bool, err error) {
	list := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		list[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	for {
		n, err := unix.Poll(list, millis)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, os.NewSyscallError("poll", err)
		}
	}
}

// MaxText bounds texts that are read whole, in bytes.
const MaxText = 1 << 30

// ReadText reads a file, or stdin for "-", which must be UTF-8.
func (a *App) ReadText(name string) (string, error) {
	in, where := io.Reader(a.In), "stdin"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in, where = f, name
	}
	b, err := io.ReadAll(io.LimitReader(in, MaxText+1))
	if err != nil {
		return "", err
	}
	if len(b) > MaxText {
		return "", Input("%s: has more than %d MiB; give a part of it", where, MaxText>>20)
	}
	if !utf8.Valid(b) {
		return "", Input("%s: is not UTF-8; convert the text, with iconv for example", where)
	}
	return string(b), nil
}
