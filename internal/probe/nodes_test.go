package probe

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"ck/internal/topo"
)

// What is measured on the machine of the test is possible, and goes into JSON.
func TestHere(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	fsys, err := topo.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	s, err := topo.Inspect(fsys, true)
	if err != nil {
		t.Fatal(err)
	}
	h := Here(&s, 0, nil)
	if h.Clock < 1e8 || h.Clock > 1e10 || h.ClockFirst > h.Clock || h.Ramp < 0 || h.Ramp > 0.5 {
		t.Errorf("a clock of %g Hz, %g after a rest, reached after %g s", h.Clock, h.ClockFirst, h.Ramp)
	}
	if h.Syscall <= 0 || h.Syscall > 1e-3 || h.Now <= 0 || h.Now > 1e-3 {
		t.Errorf("a system call of %g s, the clock in %g s", h.Syscall, h.Now)
	}
	for name, v := range map[string]float64{"one core": h.ReadOne, "all cores": h.ReadAll, "small pages": h.Small.Read, "huge pages": h.Huge.Read} {
		if v == 0 && len(h.Why) == 0 {
			t.Errorf("%s: no rate, and nothing says why", name)
		}
		if v < 0 || v > 1e13 {
			t.Errorf("%s: %g bytes a second", name, v)
		}
	}
	if h.HugeShare < 0 || h.HugeShare > 1.01 || h.Threads < 1 || h.Seconds <= 0 {
		t.Errorf("%+v", h)
	}
	if _, err := json.Marshal(h); err != nil { // no NaN, no infinity
		t.Error(err)
	}
}

// What does not fit into the time is left out, with its reason; so is what fails.
func TestTry(t *testing.T) {
	h := &taking{start: time.Now()}
	calls := 0
	h.try("a", func() error { calls++; return nil })
	h.try("b", func() error { calls++; return errSlow })
	h.start = time.Now().Add(-enough)
	h.try("c", func() error { calls++; return nil })
	if want := []string{"b: " + errSlow.Error(), "c: no time was left"}; calls != 2 || !slices.Equal(h.Why, want) {
		t.Errorf("%d calls, %q, want 2 and %q", calls, h.Why, want)
	}
}

// The other thread of a core is one that the process may use.
func TestSiblings(t *testing.T) {
	s := &topo.Survey{Machine: topo.Machine{CPUs: []topo.CPU{{ID: 0}, {ID: 1, Lead: 1}, {ID: 2}, {ID: 3, Lead: 1}}, Affinity: []int{0, 1, 2}}}
	if got := siblings(s, 0); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("CPU 0: %v", got)
	}
	if got := siblings(s, 1); got != nil {
		t.Errorf("CPU 1: %v, although 3 is not allowed", got)
	}
}

// A walk visits every page once: its lines form one cycle.
func TestWalkIsOneCycle(t *testing.T) {
	b := make([]byte, 64*4096)
	if s := jump(b); s < 0 {
		t.Errorf("%g s", s)
	}
	seen := map[uint64]bool{}
	for p := uint64(0); !seen[p]; p = binary.NativeEndian.Uint64(b[p:]) {
		seen[p] = true
	}
	if len(seen) != 64 {
		t.Errorf("a cycle of %d of 64 pages", len(seen))
	}
}
