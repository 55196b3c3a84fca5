package mover

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// Copies of several queues arrive whole and in order, while workers submit and idle fills.
func TestCopies(t *testing.T) {
	var idle atomic.Int64
	th, err := Start(-1, 3, func() int {
		if idle.Add(1) > 100 {
			return 0
		}
		return 10
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	const n, size = 3000, 64
	for i := range 3 {
		go func() {
			q, r := th.Queue(i), rand.New(rand.NewPCG(1, uint64(i)))
			src, dst := make([]byte, n*size), make([]byte, n*size)
			for j := range src {
				src[j] = byte(r.Uint32())
			}
			var open []Ticket
			for at := 0; at < n; {
				var list []Copy
				for range min(1+r.IntN(5), n-at) {
					o := (at + len(list)) * size
					list = append(list, Copy{dst[o : o+size], src[o : o+size]})
				}
				tk, ok := q.Submit(list)
				if !ok {
					time.Sleep(10 * time.Microsecond)
					continue
				}
				open = append(open, tk)
				at += len(list)
				for len(open) > 0 && q.Poll(open[0]) == int(open[0].n) {
					if o := int(open[0].from) * size; !bytes.Equal(dst[o:o+size], src[o:o+size]) {
						done <- errors.New("a complete copy is not there")
						return
					}
					open = open[1:]
				}
			}
			for len(open) > 0 {
				if q.Poll(open[0]) == int(open[0].n) {
					open = open[1:]
				}
			}
			if !bytes.Equal(dst, src) {
				done <- errors.New("other bytes")
				return
			}
			done <- nil
		}()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	eventually(t, "idle was not called", func() bool { return idle.Load() == 101 })
	if err := th.Close(); err != nil || th.Copied() != 3*n*size || th.Filled() != 1000 || idle.Load() != 101 || th.Busy() <= 0 {
		t.Errorf("%v: %d bytes copied, %d filled, idle called %d times", err, th.Copied(), th.Filled(), idle.Load())
	}
}

// A full queue takes nothing, and all or none; a closed mover takes nothing and says that it is dead; what it did not do is not complete.
func TestFullAndClosed(t *testing.T) {
	hold, in := make(chan struct{}), make(chan struct{}, 1)
	th, err := Start(0, 1, func() int { in <- struct{}{}; <-hold; return 0 })
	if err != nil {
		t.Fatal(err)
	}
	<-in // the thread is busy
	q, src := th.Queue(0), []byte("abc")
	dst := make([][]byte, Places)
	var tickets []Ticket
	for i := range Places - 1 {
		dst[i] = make([]byte, 3)
		tk, ok := q.Submit([]Copy{{dst[i], src}})
		if !ok {
			t.Fatalf("no room for copy %d", i)
		}
		tickets = append(tickets, tk)
	}
	if _, ok := q.Submit([]Copy{{src, src}, {src, src}}); ok {
		t.Error("two copies in one place")
	}
	if n := q.Poll(tickets[0]); n != 0 || q.Dead() {
		t.Errorf("%d complete, dead %v", n, q.Dead())
	}
	go func() { time.Sleep(10 * time.Millisecond); close(hold) }()
	if err := th.Close(); err != nil || !q.Dead() {
		t.Error(err, q.Dead())
	}
	if _, ok := q.Submit([]Copy{{dst[0], src}}); ok {
		t.Error("a dead mover takes copies")
	}
	for i, tk := range tickets {
		if done := q.Poll(tk) == 1; done != (string(dst[i]) == "abc") {
			t.Errorf("copy %d: complete %v, %q", i, done, dst[i])
		}
	}
}

// A fault in a copy ends the mover; the copies before it are complete, it is not.
func TestFault(t *testing.T) {
	page := os.Getpagesize()
	m, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	if err := unix.Mprotect(m[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	th, err := Start(-1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, src := th.Queue(0), bytes.Repeat([]byte{7}, page)
	tk, ok := q.Submit([]Copy{{m[:page], src}, {m[page:], src}, {m[:page], src}})
	if !ok {
		t.Fatal("no room")
	}
	eventually(t, "the mover lives on", q.Dead)
	if n := q.Poll(tk); n != 1 || !bytes.Equal(m[:page], src) {
		t.Errorf("%d complete", n)
	}
	if err := th.Close(); err == nil || !strings.Contains(err.Error(), "a mover has ended") {
		t.Error(err)
	}
}
