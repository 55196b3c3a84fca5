package clone

import (
	"os"
	"strings"
	"testing"
	"time"
)

func threadsOf(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// Threads come and are gone again, over and over, while others work.
func TestThreads(t *testing.T) {
	before := threadsOf(t)
	end := make(chan bool)
	go func() { // garbage, preemption and new goroutines meanwhile
		for {
			select {
			case <-end:
				return
			default:
				_ = strings.Repeat("x", 1<<16)
			}
		}
	}()
	start := time.Now()
	const rounds, n = 50, 16
	for range rounds {
		if err := Threads(n); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%v a thread", time.Since(start)/rounds/n)
	close(end)
	for try := 0; threadsOf(t) > before+8; try++ { // the kernel removes them a moment after
		if try > 1000 {
			t.Fatalf("%d threads, %d before", threadsOf(t), before)
		}
		time.Sleep(time.Millisecond)
	}
	if err := Threads(0); err != nil {
		t.Error(err)
	}
}
