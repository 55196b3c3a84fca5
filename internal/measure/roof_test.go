package measure

import (
	"testing"

	"ck/internal/team"
)

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
