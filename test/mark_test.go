package test

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"ck/internal/engine"
	"ck/internal/gguf"
	"ck/internal/measure"
	"ck/internal/quant"
	"ck/internal/synth"
)

// synthetic is a model of a real shape with random weights, in CK_BENCH_DIR if set (and kept there), else in a temporary folder.
func synthetic(b testing.TB, shape string, typ quant.Type) *gguf.Model {
	b.Helper()
	dir := os.Getenv("CK_BENCH_DIR")
	if dir == "" {
		dir = b.TempDir()
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%s.gguf", shape, typ))
	if _, err := os.Stat(path); err != nil {
		s, err := synth.Find(shape)
		if err != nil {
			b.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		w := bufio.NewWriterSize(f, 1<<20)
		if err := synth.Write(w, shape, s, typ, 1); err != nil {
			b.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
	m, err := gguf.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	return m
}

// BenchmarkModel generates and reads prompts with models of a real size (random weights), and reports shares of roofs that are measured
// between the runs: decode of the DRAM read bandwidth, prefill of the INT8 (BF16) peak. CK_BENCH_SHAPE chooses the shape.
func BenchmarkModel(b *testing.B) {
	shape := os.Getenv("CK_BENCH_SHAPE")
	if shape == "" {
		shape = "llama-3.2-1b"
	}
	for _, typ := range []quant.Type{quant.Q8_0, quant.Q4_K, quant.BF16, quant.Q4_0, quant.Q6_K} {
		for _, threads := range []int{2, 1} {
			b.Run(fmt.Sprintf("shape=%s/type=%s/threads=%d", shape, typ, threads), func(b *testing.B) {
				m := synthetic(b, shape, typ)
				e, err := engine.Open(m, engine.Options{Threads: threads})
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				markModel(b, e, typ, threads)
			})
		}
	}
}

func markModel(b *testing.B, e *engine.Engine, typ quant.Type, threads int) {
	ctx := context.Background()
	prompt := make([]int32, 512)
	for i := range prompt {
		prompt[i] = int32(300 + i*37%20000)
	}
	none := func(int, []float32) error { return nil }
	run := func(ids []int32, seq int) time.Duration {
		start := time.Now()
		if err := e.Forward(ctx, seq, ids, engine.Last, none); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	seq := e.NewSeq()
	run(prompt, seq) // packs
	e.Truncate(seq, 0)
	run(prompt[:1], seq)
	team, err := e.Team(threads)
	if err != nil {
		b.Fatal(err)
	}
	roofs, err := measure.NewRoofs(team)
	if err != nil {
		b.Fatal(err)
	}
	defer roofs.Close()
	kind := measure.Int8
	if typ == quant.BF16 {
		kind = measure.BF16
	}
	release := e.Hold()
	defer release()
	var tg, pp, bw, peak []float64
	for range 5 {
		e.Truncate(seq, 1)
		start := time.Now()
		const n = 24
		for i := range n {
			run(prompt[i:i+1], seq)
		}
		tg = append(tg, n/time.Since(start).Seconds())
		for range 7 {
			v, err := roofs.Read()
			if err != nil {
				b.Fatal(err)
			}
			bw = append(bw, v)
		}
		e.Truncate(seq, 0)
		pp = append(pp, 512/run(prompt, seq).Seconds())
		v, err := roofs.Peak(kind)
		if err != nil {
			b.Fatal(err)
		}
		peak = append(peak, v)
	}
	weights := float64(e.WeightBytes())
	params := 0.0
	for i := range e.Graph.Weights {
		if w := e.Graph.Weights[i]; w.Rows > 1 && w.Rows != e.Graph.Vocab {
			params += float64(w.Rows) * float64(w.Cols)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(tg), "tg-tok/s")
	b.ReportMetric(median(tg)*weights/1e9, "tg-GB/s")
	b.ReportMetric(100*median(tg)*weights/max64(bw), "tg-%roof")
	b.ReportMetric(max64(bw)/1e9, "roof-GB/s")
	b.ReportMetric(median(pp), "pp512-tok/s")
	b.ReportMetric(100*median(pp)*2*params/max64(peak), "pp-%peak")
	b.ReportMetric(max64(peak)/1e9, "peak-GOP/s")
}

func median(v []float64) float64 {
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	return s[len(s)/2]
}

func max64(v []float64) float64 {
	m := math.Inf(-1)
	for _, x := range v {
		m = max(m, x)
	}
	return m
}

// BenchmarkDecode generates tokens with one model and thread count; ns/op is the time of a token.
func BenchmarkDecode(b *testing.B) {
	for _, typ := range []quant.Type{quant.Q8_0, quant.Q4_K, quant.BF16} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("shape=llama-3.2-1b/type=%s/threads=%d", typ, threads), func(b *testing.B) {
				e, err := engine.Open(synthetic(b, "llama-3.2-1b", typ), engine.Options{Threads: threads})
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				seq := e.NewSeq()
				one := func() {
					if err := e.Forward(context.Background(), seq, []int32{1000}, engine.Last, func(int, []float32) error { return nil }); err != nil {
						b.Fatal(err)
					}
					e.Truncate(seq, 32)
				}
				one()
				defer e.Hold()()
				b.SetBytes(e.WeightBytes())
				for b.Loop() {
					one()
				}
			})
		}
	}
}
