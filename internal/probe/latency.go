package probe

import (
	"context"
	"fmt"

	"ck/internal/measure"
	"ck/internal/team"
	"ck/internal/topo"
)

// Latency is the time of a load that waits for the one before, in a working set.
type Latency struct {
	Bytes      int            `json:"bytes"`
	Ns         float64        `json:"ns"`
	SlowerThan string         `json:"slower_than,omitempty"` // a larger set, which cannot be faster, and was
	Samples    measure.Series `json:"samples"`               // ns
}

// Latencies measures sets of 16 KiB and more on one thread, each twice the one before, up to four times the last cache. note says why
// larger ones are left out, if they are.
func Latencies(ctx context.Context, m topo.Machine) (rows []Latency, note string, err error) {
	err = withTeam(m, 1, func(t *team.Team) error {
		defer t.Hold()()
		limit := max(4*int(m.L3.Bytes), 256<<20)
		left, _, known := m.Budget()
		for n := 16 << 10; n <= limit; n *= 2 {
			if known && int64(n) > left/2 {
				note = fmt.Sprintf("sets of %s and more are left out: half of the memory must stay free, and %d MiB are left", measure.SizeText(n), left>>20)
				break
			}
			s, err := measure.LatencyNs(ctx, n)
			if err != nil {
				return err
			}
			rows = append(rows, Latency{Bytes: n, Ns: s.Best, Samples: s})
		}
		for range again {
			for i := range ContradictLatency(rows) {
				s, err := measure.LatencyNs(ctx, rows[i].Bytes)
				if err != nil {
					return err
				}
				rows[i].Samples = measure.Better(rows[i].Samples, s, measure.LowIsBest)
				rows[i].Ns = rows[i].Samples.Best
			}
		}
		return nil
	})
	return rows, note, err
}

// ContradictLatency marks sets for which a larger one was faster, and returns their indices.
func ContradictLatency(rows []Latency) map[int]bool {
	rates := make([]float64, len(rows))
	for i, r := range rows {
		rates[i] = 1 / r.Ns
	}
	out := map[int]bool{}
	for i, j := range measure.Contradictions(rates, measure.LatenciesApart) {
		rows[i].SlowerThan = ""
		if j >= 0 {
			rows[i].SlowerThan, out[i] = measure.SizeText(rows[j].Bytes), true
		}
	}
	return out
}

// DoubtLatencies is Doubts for latencies.
func DoubtLatencies(rows []Latency) []string {
	var list []Named
	for _, r := range rows {
		list = append(list, Named{measure.SizeText(r.Bytes), "ns", r.Samples})
	}
	return Doubts(list, UpperBound)
}
