package measure

import (
	"testing"

	"ck/internal/team"
	"ck/internal/topo"
)

func TestRoofBytes(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		left, l2, l3 int64
		sharers, n   int
		want         int
	}{
		{4096 * mib, mib, 32 * mib, 8, 2, WorkerBytes},
		{2048 * mib, mib, 32 * mib, 8, 2, WorkerBytes},
		{2047 * mib, mib, 32 * mib, 8, 2, 448 * mib},
		{600 * mib, mib, 32 * mib, 8, 2, 128 * mib}, // 256 of 34
		{600 * mib, mib, 64 * mib, 8, 2, 0},         // 256 of 66: less than four times
		{600 * mib, mib, 32 * mib, 1, 2, 0},         // each has its own L3
		{120 * mib, mib, 8 * mib, 1, 1, 0},          // not a sample
		{140 * mib, mib, 8 * mib, 1, 1, 64 * mib},
		{140 * mib, 0, 0, 0, 1, 64 * mib}, // the system does not tell
		{4096 * mib, mib, 1024 * mib, 8, 1, WorkerBytes},
	} {
		m := topo.Machine{MemFree: c.left, L2: topo.Cache{Bytes: c.l2, CPUs: 1}, L3: topo.Cache{Bytes: c.l3, CPUs: c.sharers}}
		if got := RoofBytes(m, c.n); got != c.want {
			t.Errorf("%d MiB left, L3 of %d MiB, %d workers: %d MiB, want %d", c.left/mib, c.l3/mib, c.n, got/mib, c.want/mib)
		}
	}
}

func TestRoofs(t *testing.T) {
	tm, err := team.New([]int{0}, team.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tm.Close()
	r, err := NewRoofs(tm)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := NewRoofsOf(tm, sampleBytes-1); err == nil {
		t.Error("less than a sample is taken")
	}
	last := 0.0
	for range 10 { // more than the region holds
		bw, err := r.Read()
		if err != nil || bw < 1e8 || bw < last {
			t.Fatalf("read bandwidth %g after %g, %v", bw, last, err)
		}
		last = bw
	}
	for _, kind := range []string{Int8, BF16, F32} {
		if ops, err := r.Peak(kind); err != nil || ops < 1e8 {
			t.Errorf("%s: %g operations/s, %v", kind, ops, err)
		}
	}
}
