package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ck/internal/mover"
	"ck/internal/plan"
	"ck/internal/walk"
)

// Movers that are ended at any point, or not at all, change no bit; what they left is packed by walks, or by Pack.
func TestMovers(t *testing.T) {
	m := small(t)
	alone := open(t, m, Options{Threads: 1, Movers: -1})
	want := logits(t, alone)
	if err := alone.Pack(context.Background()); err != nil {
		t.Fatal(err)
	}
	all := alone.PackedBytes()
	r := rand.New(rand.NewPCG(3, 4))
	copied := int64(0)
	for trial := range 30 {
		opt := Options{Threads: 1 + trial%3, Movers: 1 + trial%2}
		if trial%5 == 4 {
			opt.Threads, opt.NUMA = 2, "tp"
			opt.AsNodes = fmt.Sprintf("%[1]d/%[1]d", open(t, m, Options{}).Machine.Affinity[0])
		}
		e := open(t, m, opt)
		if _, err := e.walker(e.formOf(40)); err != nil { // so that walks begin when movers do
			t.Fatal(err)
		}
		if trial%3 == 0 { // those that pack nothing themselves: they would be ahead of such a small model's workers
			x, err := mover.Start(-1, opt.Threads, nil)
			if err != nil {
				t.Fatal(err)
			}
			e.movers = []*mover.Thread{x}
			for w := range opt.Threads {
				home, _, _ := e.layout.Of(w, opt.Threads)
				e.lanes = append(e.lanes, walk.NewLane(home, e.scratchBytes(), x.Queue(w)))
			}
		}
		e.startMovers()
		if len(e.movers) == 0 {
			t.Fatalf("%+v: no movers", opt)
		}
		killed := make(chan bool)
		go func() {
			if trial%6 > 0 {
				time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
				for _, x := range e.movers {
					x.Close()
				}
			}
			close(killed)
		}()
		if trial%2 == 0 {
			if got := logits(t, e); !slices.Equal(got, want) {
				t.Errorf("trial %d: other bits", trial)
			}
		}
		<-killed
		if err := e.Pack(context.Background()); err != nil || e.Packing() || e.PackedBytes() != all {
			t.Errorf("trial %d: %v: %d of %d bytes are packed", trial, err, e.PackedBytes(), all)
		}
		if got := logits(t, e); !slices.Equal(got, want) {
			t.Errorf("trial %d: other bits after Pack", trial)
		}
		moves := e.Moves()
		if sum := moves.Kept + moves.Copied + moves.Filled + moves.Waiting; sum < all {
			t.Errorf("trial %d: %d bytes were moved, %d are there: %+v", trial, sum, all, moves)
		}
		copied += moves.Copied
		e.Close()
	}
	if copied == 0 {
		t.Error("movers copied nothing for workers")
	}
}

// Without CPUs that workers leave, or where they are not wanted, there are no movers; decode reads in the order of the list, the output last.
func TestNoMovers(t *testing.T) {
	m := small(t)
	for _, opt := range []Options{{Threads: 1, Movers: -1}, {Threads: 1, Movers: 2, NoPack: true}} {
		e := open(t, m, opt)
		if e.startMovers(); len(e.movers) > 0 {
			t.Errorf("%+v: %d movers", opt, len(e.movers))
		}
	}
	e := open(t, m, Options{Threads: 1})
	if n := len(e.Machine.Affinity); n > 1 && e.Machine.QuotaWorkers() == 0 && len(e.spareCPUs(0)) != 1 {
		t.Errorf("one worker on %d CPUs: movers on %v", n, e.spareCPUs(0))
	}
	e.opt.Threads = len(e.Machine.Affinity)
	if cpus := e.spareCPUs(0); len(cpus) > 0 {
		t.Errorf("workers on all CPUs leave %v", cpus)
	}
	e.opt.Threads, e.opt.ThreadsBatch = 1, 1
	if e.planMovers(1); len(e.spareCPUs(0)) > 0 && e.moverCPUs == nil && e.Machine.QuotaWorkers() == 0 {
		t.Error("no movers where there are CPUs")
	}
	if e.planMovers(1 << 50); e.mem.limit > 0 && e.moverCPUs != nil {
		t.Error("movers where there is no memory for lanes")
	}
	e.Machine.Quota.CPUs = 1.5
	if e.planMovers(1); e.moverCPUs != nil {
		t.Errorf("a quota of 1.5 pays for movers on %v", e.moverCPUs)
	}
	order := e.decodeOrder(0)
	p, err := e.Plan(plan.One)
	if err != nil {
		t.Fatal(err)
	}
	var output int
	for i := range p.Items {
		for _, id := range p.Items[i].W {
			if e.weights.Slots[id] != nil {
				output = int(id)
			}
		}
	}
	if len(order) < 4*7 || order[len(order)-1] != e.weights.Slots[output][0] || order[0] == order[len(order)-1] {
		t.Errorf("%d slots in the order of decode", len(order))
	}
}
