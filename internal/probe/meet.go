package probe

import (
	"context"
	"fmt"

	"ck/internal/isa"
	"ck/internal/kernel"
	"ck/internal/measure"
	"ck/internal/team"
	"ck/internal/topo"
)

// Barrier is the time that threads take to wait for each other.
type Barrier struct {
	Threads int            `json:"threads"`
	Ns      float64        `json:"ns"`
	Samples measure.Series `json:"samples"` // ns
}

// AllReduce is the time that threads take to add up a vector of each.
type AllReduce struct {
	Threads int            `json:"threads"`
	Floats  int            `json:"floats"`
	Us      float64        `json:"us"`
	GBps    float64        `json:"gb_per_s"` // of vectors
	Samples measure.Series `json:"samples"`  // us
}

// Barriers measures teams of these numbers of threads.
func Barriers(ctx context.Context, m topo.Machine, threads []int) ([]Barrier, error) {
	var rows []Barrier
	for _, n := range threads {
		err := withTeam(m, n, func(t *team.Team) error {
			s, err := measure.Barrier(ctx, t)
			rows = append(rows, Barrier{n, s.Best, s})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// DoubtBarriers is Doubts for barriers.
func DoubtBarriers(rows []Barrier) []string {
	var list []Named
	for _, r := range rows {
		list = append(list, Named{measure.ThreadsText(r.Threads), "ns", r.Samples})
	}
	return Doubts(list, UpperBound)
}

// vectors are the lengths of the vectors that AllReduces adds up, in float32.
var vectors = []int{1 << 10, 1 << 12, 1 << 14, 1 << 17, 1 << 20}

// AllReduces measures teams of these numbers of threads, with vectors of 4 KiB to 4 MiB.
func AllReduces(ctx context.Context, m topo.Machine, threads []int) ([]AllReduce, error) {
	f := isa.Detect()
	tbl := kernel.For(isa.Best(f), f)
	var rows []AllReduce
	for _, n := range threads {
		err := withTeam(m, n, func(t *team.Team) error {
			for _, floats := range vectors {
				s, err := measure.AllReduce(ctx, t, tbl, floats)
				if err != nil {
					return err
				}
				s = s.Scale(1e-3)
				rows = append(rows, AllReduce{n, floats, s.Best, float64(4*floats*n) / s.Best / 1e3, s})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// DoubtAllReduces is Doubts for sums of vectors.
func DoubtAllReduces(rows []AllReduce) []string {
	var list []Named
	for _, r := range rows {
		list = append(list, Named{fmt.Sprintf("%d floats with %s", r.Floats, measure.ThreadsText(r.Threads)), "us", r.Samples})
	}
	return Doubts(list, UpperBound)
}
