package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"ck/internal/engine"
	"ck/internal/generate"
	"ck/internal/walk"
)

// sequences is how many stories an engine tells at once. Sampling gained nothing from more.
const sequences = 64

// temperatures of stories; which one is a function of the story's number.
var temperatures = []float64{0.7, 0.8, 0.9}

// told is the story of a number; text is empty if the context ended before the story did.
type told struct {
	number uint64
	text   string
	tokens int
	err    error
}

// samples writes stories of m to w until they have size bytes, in the order of their numbers from 0 on, each behind a line <|endoftext|> of the one
// before. A story is a function of (seed, number), so threads, which is how many engines of one worker run, change no byte. It returns the counts.
func samples(ctx context.Context, m *generate.Model, w io.Writer, seed uint64, size int64, threads int) (n counts, err error) {
	bos, ok := m.Tok.BOS()
	if !ok || m.Context < 2 {
		return n, errors.New("the model's file does not say which token begins a text, or for how many positions it was trained")
	}
	ctx, stop := context.WithCancel(ctx)
	out := make(chan told, sequences)
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			if err := tell(ctx, m, bos, seed, threads, &next, out); err != nil && ctx.Err() == nil {
				out <- told{err: err}
			}
		})
	}
	defer func() {
		stop()
		go func() { wg.Wait(); close(out) }()
		for range out { // those under way
		}
	}()
	waiting := map[uint64]told{}
	for at := uint64(0); n.bytes < size; {
		t, ok := waiting[at]
		if !ok {
			select {
			case t = <-out:
			case <-ctx.Done():
				return n, ctx.Err()
			}
			if t.err != nil {
				return n, t.err
			}
			waiting[t.number] = t
			continue
		}
		delete(waiting, at)
		at++
		n.tokens += int64(t.tokens)
		if t.text == "" {
			n.cut++
			continue
		}
		if _, err := io.WriteString(w, t.text+"\n<|endoftext|>\n"); err != nil {
			return n, err
		}
		n.stories, n.bytes = n.stories+1, n.bytes+int64(len(t.text))
	}
	return n, nil
}

// counts is what samples wrote: stories with their bytes, stories that did not end, and the tokens of both.
type counts struct {
	stories, cut  int
	bytes, tokens int64
}

// line is a story that is being told.
type line struct {
	number  uint64
	seq     int
	ids     []int32
	sampler *generate.Sampler
}

// tell tells stories, each of the next number, until ctx ends. share is how many do so at once.
func tell(ctx context.Context, m *generate.Model, bos int32, seed uint64, share int, next *atomic.Uint64, out chan<- told) error {
	e, err := engine.Open(m.Weights, engine.Options{Threads: 1, ThreadsBatch: 1, Share: share, Context: sequences * m.Context})
	if err != nil {
		return err
	}
	defer e.Close()
	lines := make([]line, sequences)
	for i := range lines {
		lines[i] = begin(e, bos, seed, next.Add(1)-1)
	}
	b := &walk.Batch{}
	for i := range lines {
		b.Pick = append(b.Pick, int32(i))
	}
	for ctx.Err() == nil {
		b.IDs, b.Pos, b.Seq = b.IDs[:0], b.Pos[:0], b.Seq[:0]
		for _, l := range lines {
			at := len(l.ids) - 1
			b.IDs, b.Pos, b.Seq = append(b.IDs, l.ids[at]), append(b.Pos, int32(at)), append(b.Seq, l.seq)
		}
		w, err := e.Walk(ctx, b)
		if err != nil {
			return err
		}
		for i := range lines {
			l := &lines[i]
			id := l.sampler.Sample(w.Logits(i), nil)
			ended := m.Tok.IsEOG(id) || id == l.ids[0]
			if l.ids = append(l.ids, id); !ended && len(l.ids) < m.Context {
				continue
			}
			t := told{number: l.number, tokens: len(l.ids)}
			if ended {
				t.text = strings.TrimSpace(m.TextOf(l.ids[1 : len(l.ids)-1]))
			}
			select {
			case out <- t:
			case <-ctx.Done():
				return ctx.Err()
			}
			e.Drop(l.seq)
			*l = begin(e, bos, seed, next.Add(1)-1)
		}
	}
	return ctx.Err()
}

// begin begins the story of a number with the token before all texts.
func begin(e *engine.Engine, bos int32, seed, number uint64) line {
	p := generate.DefaultParams()
	p.Temp, p.Seed, p.Stream = temperatures[number%uint64(len(temperatures))], seed, number
	return line{number, e.NewSeq(), []int32{bos}, generate.NewSampler(p)}
}
