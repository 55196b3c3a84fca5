package measure

import (
	"testing"

	"ck/internal/team"
	"ck/internal/topo"
)

func TestRoofBytes(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		left, l2, l3     int64 // MiB
		cpus, sharers, n int
		want             int
	}{
		{24 << 10, 1, 32, 2, 2, 1, 320}, // eight times 33
		{24 << 10, 1, 32, 2, 2, 2, 192}, // of 34
		{24 << 10, 1, 32, 2, 2, 100, 16},
		{600, 1, 32, 8, 8, 2, 128}, // half of it is 300: 256 of 34
		{420, 1, 32, 8, 8, 2, 0},   // 128 of 34: less than four times
		{800, 1, 32, 8, 1, 2, 192}, // each has its own L3: 384 of 66
		{600, 1, 32, 8, 1, 2, 0},   // 256 of 66
		{30, 1, 2, 1, 1, 1, 0},     // less than the least
		{40, 1, 2, 1, 1, 1, 20},    // 24 would be wanted
		{900, 0, 0, 4, 0, 1, 448},  // the system does not tell
		{4096, 0, 0, 4, 0, 1, 512},
		{768 << 10, 1, 32, 256, 16, 2, 320},    // they may be on two of the sixteen L3 caches
		{768 << 10, 1, 32, 256, 16, 128, 40},   // 640 MiB, 5 GiB in all
		{2 << 20, 2, 480, 512, 128, 448, 52},   // four L3 caches
		{768 << 10, 2, 480, 512, 128, 1, 3904}, // one worker may fill all of one
	} {
		m := topo.Machine{CPUs: make([]topo.CPU, c.cpus), MemTotal: 4 << 40, MemFree: c.left * mib, L2: topo.Cache{Bytes: c.l2 * mib, CPUs: 1}, L3: topo.Cache{Bytes: c.l3 * mib, CPUs: c.sharers}}
		if got := RoofBytes(m, c.n); got != c.want*mib {
			t.Errorf("%d MiB left, L3 of %d MiB, %d workers: %d MiB, want %d", c.left, c.l3, c.n, got/mib, c.want)
		}
		if got := RoofBytesBeside(m, c.n, c.left*mib); got != 0 {
			t.Errorf("%d MiB left and taken, %d workers: %d MiB", c.left, c.n, got/mib)
		}
	}
}

func TestRoofs(t *testing.T) {
	tm, err := team.New([]int{0}, team.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tm.Close()
	r, err := NewRoofsOf(tm, 2*sampleBytes+callBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	small, err := NewRoofsOf(tm, leastBytes+callBytes-1) // not a whole number of calls
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if bw, err := small.ReadNow(); err != nil || bw < 1e8 {
		t.Errorf("small region: %g, %v", bw, err)
	}
	if _, err := NewRoofsOf(tm, leastBytes-1); err == nil {
		t.Error("less than the least is taken")
	}
	last := 0.0
	for range 10 { // more than the region holds
		bw, err := r.Read()
		if err != nil || bw < 1e8 || bw < last {
			t.Fatalf("read bandwidth %g after %g, %v", bw, last, err)
		}
		last = bw
	}
	if bw, err := r.ReadSteady(2); err != nil || bw < 1e8 || bw > r.BestRead() {
		t.Errorf("steady %g of %g, %v", bw, r.BestRead(), err)
	}
	for _, kind := range []string{Int8, BF16, F32} {
		if ops, err := r.Peak(kind); err != nil || ops < 1e8 {
			t.Errorf("%s: %g operations/s, %v", kind, ops, err)
		}
	}
}
