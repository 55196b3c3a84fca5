package cli

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// signals turns SIGINT, SIGTERM and SIGHUP into the end of a context: of the innermost one that scope made, else of the program's. Work
// that listens to the program's context ends the program in its own way. What does not listen, or takes longer than grace, is ended here:
// no read, open, loop or system call can keep a program that was told to end. So does a second signal for the same context, at once.
// Signals of a kind within sameSignal are one: timeout(1) sends a second one to its process group, npm another one after the terminal's.
type signals struct {
	mu    sync.Mutex
	stack []*canceler
	last  map[os.Signal]time.Time
	ended syscall.Signal // the first signal that was meant for the program; 0: none
	grace time.Duration
	now   func() time.Time     // of tests; nil: time.Now
	waits func() time.Duration // of tests; nil: runDelay
}

const (
	sameSignal = 100 * time.Millisecond

	// graceDefault leaves 80 ms of the promised 200 for cleaning up and for the kernel, which takes memory back at about 20 GB/s.
	graceDefault = 120 * time.Millisecond

	// graceMost bounds how often the grace is given again where the machine was too busy to let the work end.
	graceMost = 20
)

type canceler struct {
	cancel context.CancelCauseFunc
	used   bool
}

// What a signal comes to.
type outcome uint8

const (
	nothing outcome = iota // it is one with the last, or for a scope
	ending                 // the program's context ended
	again                  // so it had before
)

// start catches signals until stop is called. end ends the process after a signal that the work did not follow; quit does at SIGQUIT.
func (s *signals) start(end func(syscall.Signal), quit func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s.stack = []*canceler{{cancel: cancel}}
	s.last = map[os.Signal]time.Time{}
	if s.now == nil {
		s.now = time.Now
	}
	if s.grace == 0 {
		s.grace = graceDefault
	}
	if s.waits == nil {
		s.waits = runDelay
	}
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	if !signal.Ignored(syscall.SIGHUP) { // under nohup
		signal.Notify(c, syscall.SIGHUP)
	}
	done := make(chan struct{})
	go func() {
		var late <-chan time.Time
		var waited time.Duration
		given := 0
		for {
			select {
			case sig := <-c:
				if sig == syscall.SIGQUIT {
					quit()
					continue
				}
				switch s.interrupt(sig) {
				case ending:
					late, waited, given = time.After(s.grace), s.waits(), 1
				case again:
					end(s.first())
				}
			case <-late:
				if now := s.waits(); now-waited > s.grace/4 && given < graceMost { // other programs had the CPUs: what was said is not lost to that
					late, waited, given = time.After(s.grace), now, given+1
					continue
				}
				end(s.first())
			case <-done:
				return
			}
		}
	}()
	return ctx, func() { signal.Stop(c); close(done); cancel(nil) }
}

// interrupt ends the innermost context, or with SIGTERM and SIGHUP all of them.
func (s *signals) interrupt(sig os.Signal) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	repeated := now.Sub(s.last[sig]) < sameSignal
	s.last[sig] = now
	if repeated {
		return nothing
	}
	lowest := len(s.stack) - 1
	if sig != os.Interrupt {
		lowest = 0
	}
	result := again
	for i := lowest; i < len(s.stack); i++ {
		c := s.stack[i]
		if !c.used {
			result = nothing
		}
		c.used = true
		c.cancel(ErrInterrupt)
	}
	if s.stack[0].used && s.ended == 0 {
		s.ended, result = sig.(syscall.Signal), ending
	}
	return result
}

// first is the signal that ended the program's context, SIGINT where none did: a Ctrl-C that came as a key, or a second one for a scope.
func (s *signals) first() syscall.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == 0 {
		return syscall.SIGINT
	}
	return s.ended
}

// scope is a context for which the next SIGINT is meant, until done is called.
func (s *signals) scope(parent context.Context) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(parent)
	c := &canceler{cancel: cancel}
	s.mu.Lock()
	s.stack = append(s.stack, c)
	s.mu.Unlock()
	return ctx, func() {
		s.mu.Lock()
		for i := range s.stack {
			if s.stack[i] == c {
				s.stack = append(s.stack[:i], s.stack[i+1:]...)
				break
			}
		}
		s.mu.Unlock()
		cancel(nil)
	}
}

// runDelay is how long this process's threads were ready to run and waited for a CPU, as far as the kernel counts it
// (Documentation/scheduler/sched-stats.rst: the second number of schedstat).
func runDelay() (sum time.Duration) {
	files, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, name := range files {
		b, err := os.ReadFile(name)
		if f := strings.Fields(string(b)); err == nil && len(f) == 3 {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}
