package test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/measure"
	"ck/internal/plan"
	"ck/internal/team"
	"ck/internal/topo"
)

// BenchmarkHomes compares ways to run a model on the first two cores, each a home, in turn: docs/scaling.md has its figures.
//
//	CK_BENCH_MODEL=q06.gguf go test ./test -run '^$' -bench Homes/decode -benchtime 100x
//
// An operation is a turn: a generation of 12 tokens, or a prompt, of each of two ways, and a sample of the read bandwidth of either's workers. The metric "ratio"
// is the median of the ratios of turns, with its quartiles; "roofs" is that of the bandwidths; "share" that of the reads of weights in the bandwidth,
// the best of six samples of 4 ms; "share-steady" that in what the best read loop gave over four samples before and four behind the turn, as long as a turn.
func BenchmarkHomes(b *testing.B) {
	m, homes := benchModel(b)
	one := engine.Options{Threads: 1, NUMA: "off", Movers: -1}
	two := engine.Options{Threads: 2, NUMA: "off"}
	tp := engine.Options{NUMA: "tp", AsNodes: homes}
	link := func(o engine.Options, l string) engine.Options {
		o.AsNodes, o.Link = homes, l
		return o
	}
	for _, c := range []struct {
		name   string
		of, to engine.Options
		rows   int // of a prompt; 0: generation
	}{
		{"decode/tp-to-two", tp, two, 0}, {"decode/tp-to-one", tp, one, 0}, {"decode/two-to-one", two, one, 0},
		{"prompt/tp-to-two", tp, two, 1024}, {"prompt/tp-to-one", tp, one, 1024},
		{"users/two-to-one", link(two, "2us,20GB/s"), one, 0}, {"users/tp-to-one", link(tp, "2us,20GB/s"), one, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			x, y := newWay(b, m, c.of, c.rows), newWay(b, m, c.to, c.rows)
			var ratios, roofs, share, steady []float64
			for i := range b.N + 1 {
				first, second := x, y
				if i%2 == 1 {
					first, second = y, x
				}
				first.turn(b, true)
				second.turn(b, true)
				if i == 0 { // warm
					continue
				}
				ratios, roofs, share = append(ratios, x.rate/y.rate), append(roofs, x.roof/y.roof), append(share, x.rate*float64(x.e.TokenBytes())/x.roof)
				steady = append(steady, x.rate*float64(x.e.TokenBytes())/x.steady)
			}
			quartile := func(l []float64, q int) float64 { return quantile(l, float64(q)/4) }
			b.ReportMetric(quartile(ratios, 2), "ratio")
			b.ReportMetric(quartile(ratios, 1), "ratio-25%")
			b.ReportMetric(quartile(ratios, 3), "ratio-75%")
			b.ReportMetric(quartile(roofs, 2), "roofs")
			if c.rows == 0 {
				b.ReportMetric(quartile(share, 2), "share")
				b.ReportMetric(quartile(steady, 2), "share-steady")
			}
		})
	}
}

func quantile(l []float64, p float64) float64 {
	l = slices.Sorted(slices.Values(l))
	return l[int(float64(len(l)-1)*p)]
}

// BenchmarkLink compares what meetings over a link cost with what they should: their number times the latency. An engine generates 12 tokens with the link and
// 12 without it, in turns. The model should be one that the caches hold, or the memory's noise hides it.
//
//	CK_BENCH_MODEL=tiny.gguf go test ./test -run '^$' -bench Link -benchtime 2000x
//
// "us" is how much longer a token takes, of the fastest turns; "predicted" is what the plan says.
func BenchmarkLink(b *testing.B) {
	m, homes := benchModel(b)
	w := newWay(b, m, engine.Options{NUMA: "tp", AsNodes: homes}, 0)
	p, err := w.e.Plan(plan.One)
	if err != nil {
		b.Fatal(err)
	}
	const fastest = 0.03 // of the turns are faster
	for _, latency := range []time.Duration{500, 1000, 2000, 5000, 10000} {
		b.Run(latency.String(), func(b *testing.B) {
			var with, without []float64
			for range b.N + 1 {
				for i, link := range []string{"", latency.String()} {
					if err := w.e.SetLink(link); err != nil {
						b.Fatal(err)
					}
					if w.turn(b, false); i == 0 {
						without = append(without, 1e6/w.rate)
					} else {
						with = append(with, 1e6/w.rate)
					}
				}
			}
			b.ReportMetric(quantile(with, fastest)-quantile(without, fastest), "us")
			b.ReportMetric(float64(p.Meetings()[plan.All])*latency.Seconds()*1e6, "predicted")
		})
	}
}

// benchModel opens the model of a benchmark; homes are the first two cores.
func benchModel(b *testing.B) (m *gguf.Model, homes string) {
	b.Helper()
	path := os.Getenv("CK_BENCH_MODEL")
	if path == "" {
		b.Skip("CK_BENCH_MODEL names no model")
	}
	live, err := topo.Live()
	if err != nil || len(live.Affinity) < 2 {
		b.Skipf("two CPUs are needed: %v", err)
	}
	if m, err = gguf.Open(path); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	return m, fmt.Sprintf("%d/%d", live.Affinity[0], live.Affinity[1])
}

// A way to run a model.
type contender struct {
	e          *engine.Engine
	roofs      *measure.Roofs
	rows       int
	rate, roof float64 // of the last turn: tokens/s, bytes/s
	steady     float64 // the same before and behind it, over longer
}

func newWay(b *testing.B, m *gguf.Model, o engine.Options, rows int) *contender {
	b.Helper()
	e, err := engine.Open(m, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	if err := e.Pack(context.Background()); err != nil {
		b.Fatal(err)
	}
	crew, err := team.New(e.Machine.CPUsFor(e.Threads(plan.One)), team.Options{Pin: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(crew.Close)
	r, err := measure.NewRoofsOf(crew, 128<<20)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close() })
	return &contender{e: e, roofs: r, rows: rows}
}

// longer is the read rate over four samples of each loop.
func (w *contender) longer(b *testing.B) float64 {
	b.Helper()
	rate, err := w.roofs.ReadSteady(4)
	if err != nil {
		b.Fatal(err)
	}
	return rate
}

// turn measures 12 tokens, or a prompt.
func (w *contender) turn(b *testing.B, roof bool) {
	b.Helper()
	var err error
	if roof {
		if w.roof, err = w.roofs.ReadNow(); err != nil {
			b.Fatal(err)
		}
		before := w.longer(b)
		defer func() { w.steady = (before + w.longer(b)) / 2 }()
	}
	seq := w.e.NewSeq()
	defer w.e.Drop(seq)
	defer w.e.Hold()()
	ids := make([]int32, max(1, w.rows))
	for i := range ids {
		ids[i] = int32(i * 7 % 1000)
	}
	run := func() {
		if err := w.e.Forward(context.Background(), seq, ids, engine.Last, func(int, []float32) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	n := 1
	if w.rows == 0 {
		run()
		n = 12
	}
	began := time.Now()
	for range n {
		run()
	}
	w.rate = float64(n*len(ids)) / time.Since(began).Seconds()
}
