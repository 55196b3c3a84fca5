// Package mover copies memory beside those who compute, on CPUs that these leave.
//
// A worker submits copies and goes on: it never waits for a mover. What a mover has not done when it ends was not done, and who submitted it may
// use the memory again.
package mover

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ck/asm/clone"
)

// A Copy is bytes to be copied: as many in Dst as in Src, which do not overlap. Neither is touched by others until the copy is complete or the mover is
// dead; Src may be read.
type Copy struct{ Dst, Src []byte }

// A Ticket stands for copies that were submitted together.
type Ticket struct{ from, n uint64 }

// A Mover makes copies, in the order in which they were submitted. Its methods are called by one goroutine at a time.
type Mover interface {
	// Submit hands copies over, all of them or none: ok is false where there is no room for them now, or the mover is dead. It never blocks.
	Submit(list []Copy) (t Ticket, ok bool)

	// Poll is how many copies of a ticket are complete: the first ones.
	Poll(t Ticket) int

	// Dead reports whether no copy will be made any more: the memory of those that are not complete is free.
	Dead() bool
}

// Places is how many copies a queue has room for.
const Places = 64

// A Queue is a Mover whose copies a Thread makes.
type Queue struct {
	list      [Places]Copy
	submitted atomic.Uint64
	_         [120]byte
	done      atomic.Uint64
	_         [120]byte
	thread    *Thread
}

func (q *Queue) Submit(list []Copy) (Ticket, bool) {
	at := q.submitted.Load()
	if n := uint64(len(list)); at-q.done.Load()+n > Places || q.Dead() {
		return Ticket{}, false
	}
	for i, c := range list {
		q.list[(at+uint64(i))%Places] = c
	}
	q.submitted.Store(at + uint64(len(list)))
	q.thread.notify()
	return Ticket{at, uint64(len(list))}, true
}

func (q *Queue) Poll(t Ticket) int {
	done := q.done.Load()
	if done <= t.from {
		return 0
	}
	return int(min(done-t.from, t.n))
}

func (q *Queue) Dead() bool { return q.thread.dead.Load() }

// next makes the oldest copy; false: there is none.
func (q *Queue) next() (bytes int, ok bool) {
	at := q.done.Load()
	if at == q.submitted.Load() {
		return 0, false
	}
	c := &q.list[at%Places]
	bytes = copy(c.Dst, c.Src)
	*c = Copy{}
	q.done.Store(at + 1)
	return bytes, true
}

// A Thread makes the copies of several queues, and what else there is to do while they are empty.
type Thread struct {
	queues []Queue
	idle   func() (bytes int)
	wake   chan struct{}
	asleep atomic.Bool
	stop   atomic.Bool
	dead   atomic.Bool
	ended  chan struct{}
	err    error

	copied, filled, nanos atomic.Int64
}

// Start starts a thread on a CPU (below zero: on any) with so many queues. Where these are empty it calls idle (nil: nothing), which does a little and tells how many
// bytes that made; 0: it is not to be called again. A panic or memory fault in idle or in a copy ends the thread, see Close. The error is
// that of a system that refuses the thread.
func Start(cpu, queues int, idle func() (bytes int)) (*Thread, error) {
	if err := clone.Threads(1); err != nil { // the runtime would end the process
		return nil, fmt.Errorf("the system refuses a thread: %w", err)
	}
	t := &Thread{queues: make([]Queue, queues), idle: idle, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	for i := range t.queues {
		t.queues[i].thread = t
	}
	go t.run(cpu)
	return t, nil
}

// Queue is queue i.
func (t *Thread) Queue(i int) *Queue { return &t.queues[i] }

// Copied is how many bytes the copies of queues had, Filled those that idle told, Busy the time that both took.
func (t *Thread) Copied() int64       { return t.copied.Load() }
func (t *Thread) Filled() int64       { return t.filled.Load() }
func (t *Thread) Busy() time.Duration { return time.Duration(t.nanos.Load()) }

// Close ends the thread behind its present copy or call of idle and waits for that. The error is what had ended it before.
func (t *Thread) Close() error {
	t.stop.Store(true)
	t.notify()
	<-t.ended
	return t.err
}

// notify wakes the thread if it sleeps.
func (t *Thread) notify() {
	if t.asleep.Load() {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

func (t *Thread) run(cpu int) {
	runtime.LockOSThread() // never unlocked: the thread ends with its mask
	if cpu >= 0 {
		var set unix.CPUSet
		set.Set(cpu)
		_ = unix.SchedSetaffinity(0, &set) // refused in some sandboxes: anywhere then
	}
	debug.SetPanicOnFault(true)
	defer func() {
		if x := recover(); x != nil {
			t.err = fmt.Errorf("a mover has ended: %v", x)
		}
		t.dead.Store(true)
		close(t.ended)
	}()
	for !t.stop.Load() {
		if t.work() {
			continue
		}
		t.asleep.Store(true) // then look again: who submits looks at it behind its submission
		if t.work() || t.stop.Load() {
			t.asleep.Store(false)
			continue
		}
		<-t.wake
		t.asleep.Store(false)
	}
}

// work makes a copy of each queue, or calls idle; false: there is nothing to do.
func (t *Thread) work() (any bool) {
	began := time.Now()
	for i := range t.queues {
		if n, ok := t.queues[i].next(); ok {
			t.copied.Add(int64(n))
			any = true
		}
	}
	if !any && t.idle != nil {
		n := t.idle()
		if any = n > 0; !any {
			t.idle = nil
		}
		t.filled.Add(int64(n))
	}
	if any {
		t.nanos.Add(int64(time.Since(began)))
	}
	return any
}
