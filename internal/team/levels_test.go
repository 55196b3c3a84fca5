package team

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// crews are workers, homes and homes of a member.
var crews = []struct{ workers, homes, places int }{{2, 2, 1}, {3, 2, 1}, {4, 2, 2}, {5, 4, 2}, {6, 6, 3}, {20, 1, 1}, {20, 2, 1}, {37, 4, 2}}

// group is the range of workers that worker w meets at a level.
func group(l Level, w, workers, homes, places int) (lo, hi int) {
	h := ((w+1)*homes - 1) / workers
	n := map[Level]int{Home: 1, Member: places, All: homes}[l]
	h = h / n * n
	return workers * h / homes, workers * (h + n) / homes
}

// A worker passes a meeting when all workers of the level, and maybe no others, came to it.
func TestLevels(t *testing.T) {
	for _, c := range crews {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			rounds := 3000 / c.workers
			tm := newTeam(t, c.workers, Options{Homes: c.homes, Places: c.places})
			counters := make([]paddedCounter, c.workers)
			var wrong atomic.Int64
			var first atomic.Value
			meet := func(w, i int, l Level) bool {
				counters[w].n = i
				if !tm.Meet(w, l) {
					return false
				}
				lo, hi := group(l, w, c.workers, c.homes, c.places)
				for v := lo; v < hi; v++ {
					if counters[v].n != i {
						wrong.Add(1)
						first.CompareAndSwap(nil, fmt.Sprintf("%v %d: worker %d is at %d when %d is through", l, i, v, counters[v].n, w))
					}
				}
				return tm.Meet(w, l) // nobody counts on while others look
			}
			err := tm.Run(func(w int) {
				h := ((w+1)*c.homes - 1) / c.workers
				i := 0
				for r := range rounds {
					for range (r + h) % 4 { // homes meet by themselves as often as they like
						i++
						if !meet(w, i, Home) {
							return
						}
					}
					i = 10 * (r + 1) * rounds // the same for all
					for range (r + h/c.places) % 3 {
						i++
						if !meet(w, i, Member) {
							return
						}
					}
					i = (10*(r+1) + 5) * rounds
					if !meet(w, i, All) {
						return
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if n := wrong.Load(); n > 0 {
				t.Errorf("%d times a meeting opened too early: %v", n, first.Load())
			}
			stress(t, tm, 50)
		})
	}
}

// Who fails or breaks takes along whoever waits, at any level.
func TestFailuresAtLevels(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range crews {
		tm := newTeam(t, c.workers, Options{Homes: c.homes, Places: c.places})
		for who := range c.workers {
			for _, breaks := range []bool{false, true} {
				err := tm.Run(func(w int) {
					for i := 0; ; i++ {
						if w == who && i == 7 {
							if breaks {
								tm.Break()
								return
							}
							panic(boom)
						}
						l := Level(i % 3)
						if w != who && i == 8 {
							l = All // nobody comes beyond
						}
						if !tm.Meet(w, l) {
							return
						}
					}
				})
				if breaks && err != nil || !breaks && !errors.Is(err, boom) {
					t.Fatalf("%v, worker %d, breaks %v: %v", c, who, breaks, err)
				}
			}
		}
		stress(t, tm, 20)
		tm.Close()
	}
}

// A worker that has returned is missed by those who meet with it, and by nobody else.
func TestLeftOutAtLevels(t *testing.T) {
	for _, c := range crews {
		tm := newTeam(t, c.workers, Options{Homes: c.homes, Places: c.places})
		for who := 0; who < c.workers; who += max(1, c.workers/5) {
			for l := Home; l <= All; l++ {
				for _, late := range []time.Duration{0, time.Millisecond} {
					lo, hi := group(l, who, c.workers, c.homes, c.places)
					var met, missed atomic.Int64
					err := tm.Run(func(w int) {
						tm.Barrier(w)
						if w == who {
							time.Sleep(late)
							return
						}
						ok := tm.Meet(w, l)
						switch {
						case w >= lo && w < hi && ok:
							t.Errorf("%v: worker %d met at %v without %d", c, w, l, who)
						case w >= lo && w < hi:
							missed.Add(1)
						case ok:
							met.Add(1)
						}
					})
					// The others' meetings are complete unless the failure of the Run was there before them.
					if hi-lo == 1 {
						if err != nil || int(met.Load()) != c.workers-1 {
							t.Fatalf("%v: worker %d left at %v, where it is alone: %v, %d met", c, who, l, err, met.Load())
						}
					} else if !errors.Is(err, ErrLeft) || int(missed.Load()) != hi-lo-1 {
						t.Fatalf("%v: worker %d left at %v: %v, %d missed", c, who, l, err, missed.Load())
					}
				}
			}
		}
		stress(t, tm, 20)
		tm.Close()
	}
}

// BenchmarkMeet is the cost of a meeting where each core is a home.
func BenchmarkMeet(b *testing.B) {
	tm := newTeam(b, 2, Options{Pin: true, Homes: 2})
	b.ResetTimer()
	tm.Run(func(w int) {
		for range b.N {
			tm.Meet(w, All)
		}
	})
}
