package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// signals turns SIGINT, SIGTERM and SIGHUP into the end of a context: of the innermost one that scope made, else of the program's. The
// second signal for the same context ends the process at once, since its work does not listen. Signals of a kind within sameSignal are
// one: timeout(1) sends a second one to its process group, npm another one after the terminal's.
type signals struct {
	mu    sync.Mutex
	stack []*canceler
	last  map[os.Signal]time.Time
}

const sameSignal = 100 * time.Millisecond

type canceler struct {
	cancel context.CancelCauseFunc
	used   bool
}

// start catches signals until stop is called. kill ends the process.
func (s *signals) start(kill func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s.stack = []*canceler{{cancel: cancel}}
	s.last = map[os.Signal]time.Time{}
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // under nohup
		signal.Notify(c, syscall.SIGHUP)
	}
	end := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-c:
				if !s.interrupt(sig) {
					kill()
				}
			case <-end:
				return
			}
		}
	}()
	return ctx, func() { signal.Stop(c); close(end); cancel(nil) }
}

// interrupt ends the innermost context, or with SIGTERM and SIGHUP all of them. It is false if that was done before.
func (s *signals) interrupt(sig os.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := time.Since(s.last[sig]) < sameSignal
	s.last[sig] = time.Now()
	if again {
		return true
	}
	lowest := len(s.stack) - 1
	if sig != os.Interrupt {
		lowest = 0
	}
	fresh := false
	for i := lowest; i < len(s.stack); i++ {
		c := s.stack[i]
		fresh = fresh || !c.used
		c.used = true
		c.cancel(ErrInterrupt)
	}
	return fresh
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
