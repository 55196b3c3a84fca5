package bpe

import (
	"container/heap"
	"context"
	"fmt"

	"ck/internal/tokenizer"
)

// pair is two neighbouring tokens, by their ids.
type pair struct{ left, right int32 }

// seen is where a pair stands.
type seen struct {
	count int64
	at    []int32 // places of the left token, ascending; some may be gone
}

// trainer has all words behind one another, a place for each byte. A token is at the place of its first byte; the other places of it are
// empty. Joining a pair looks only at the places where it stands.
type trainer struct {
	opt    *Options
	tokens []string // by id
	merges []pair

	id         []int32 // by place: the token; empty where none begins
	prev, next []int32 // places of its neighbours in the word; none at the ends
	count      []int64 // how often the word is there
	pairs      map[pair]*seen
	queue      queue
	fresh      []pair // pairs that the join has made
}

const (
	empty = -1
	none  = -1
)

// Train learns the vocabulary. It is an error that wraps ErrTooSmall if there are too few pairs; ctx ends it early.
func (c *Counter) Train(ctx context.Context) (*Vocabulary, error) {
	t := newTrainer(&c.opt, c.count, c.bytes)
	want := c.opt.Vocab - byteTokens - len(c.opt.Control)
	if c.opt.Progress == nil {
		c.opt.Progress = func(int) {}
	}
	for len(t.merges) < want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !t.learn() {
			return nil, fmt.Errorf("%w: of pairs seen %d times or more there are %d to join, which makes %d tokens, and %d are wanted; "+
				"give more text, or ask for fewer tokens", ErrTooSmall, c.opt.LeastCount, len(t.merges), c.opt.Vocab-want+len(t.merges), c.opt.Vocab)
		}
		c.opt.Progress(len(t.merges))
	}
	words, err := tokenizer.NewWords(c.opt.Pre)
	if err != nil {
		return nil, err
	}
	v := &Vocabulary{opt: c.opt, words: words, tokens: t.tokens, merges: t.merges}
	for at, id := range t.id {
		if v.fromBytes += t.count[at]; id != empty {
			v.fromTokens += t.count[at]
		}
	}
	if err := v.readBack(); err != nil {
		return nil, err
	}
	return v, nil
}

// newTrainer lays out words, which have n bytes.
func newTrainer(opt *Options, words map[string]int64, n int) *trainer {
	t := &trainer{opt: opt, pairs: map[pair]*seen{}, id: make([]int32, 0, n), prev: make([]int32, 0, n),
		next: make([]int32, 0, n), count: make([]int64, 0, n)}
	t.queue.tokens = &t.tokens
	for b := range byteTokens {
		t.tokens = append(t.tokens, string([]byte{byte(b)}))
	}
	for w, count := range words {
		for i := range len(w) {
			at := int32(len(t.id))
			t.id, t.prev, t.next, t.count = append(t.id, int32(w[i])), append(t.prev, at-1), append(t.next, at+1), append(t.count, count)
			if i == 0 {
				t.prev[at] = none
			}
			if i == len(w)-1 {
				t.next[at] = none
			}
		}
	}
	for at := range t.id {
		if t.next[at] != none {
			t.add(int32(at))
		}
	}
	t.push()
	return t
}

// pairAt is the pair whose left token is at a place.
func (t *trainer) pairAt(at int32) pair { return pair{t.id[at], t.id[t.next[at]]} }

// add counts the pair at a place.
func (t *trainer) add(at int32) {
	p := t.pairAt(at)
	s := t.pairs[p]
	if s == nil {
		s = &seen{}
		t.pairs[p] = s
		t.fresh = append(t.fresh, p)
	}
	s.count += t.count[at]
	s.at = append(s.at, at)
}

// remove takes the pair at a place from the counts.
func (t *trainer) remove(at int32) { t.pairs[t.pairAt(at)].count -= t.count[at] }

// push queues the fresh pairs. Later their counts only fall: the tokens that they are of are made by one join each.
func (t *trainer) push() {
	for _, p := range t.fresh {
		if s := t.pairs[p]; s.count >= t.opt.LeastCount {
			heap.Push(&t.queue, candidate{p, s.count})
		}
	}
	t.fresh = t.fresh[:0]
}

// learn joins the best pair everywhere; false if there is none.
func (t *trainer) learn() bool {
	for len(t.queue.list) > 0 {
		best := &t.queue.list[0]
		s := t.pairs[best.pair]
		text := t.tokens[best.left] + t.tokens[best.right]
		switch {
		case s.count < t.opt.LeastCount || len(text) > t.opt.Longest:
			heap.Pop(&t.queue)
		case s.count < best.count:
			best.count = s.count
			heap.Fix(&t.queue, 0)
		default:
			p := best.pair
			heap.Pop(&t.queue)
			t.tokens, t.merges = append(t.tokens, text), append(t.merges, p)
			t.joinAll(p, s.at, int32(len(t.tokens)-1))
			t.push()
			return true
		}
	}
	return false
}

// joinAll makes p the token joined at those of the places where it still stands, from the left.
func (t *trainer) joinAll(p pair, places []int32, joined int32) {
	for _, at := range places {
		right := t.next[at]
		if t.id[at] != p.left || right == none || t.id[right] != p.right {
			continue
		}
		before, after := t.prev[at], t.next[right]
		t.remove(at)
		if before != none {
			t.remove(before)
		}
		if after != none {
			t.remove(right)
			t.prev[after] = at
		}
		t.id[at], t.id[right], t.next[at] = joined, empty, after
		if before != none {
			t.add(before)
		}
		if after != none {
			t.add(at)
		}
	}
	t.pairs[p].at = nil
}

// candidate is a pair with its count when it was queued.
type candidate struct {
	pair
	count int64
}

// queue is a heap of pairs: most often seen first, then by their bytes.
type queue struct {
	list   []candidate
	tokens *[]string
}

func (q *queue) Len() int      { return len(q.list) }
func (q *queue) Swap(i, j int) { q.list[i], q.list[j] = q.list[j], q.list[i] }
func (q *queue) Push(x any)    { q.list = append(q.list, x.(candidate)) }

func (q *queue) Less(i, j int) bool {
	a, b := q.list[i], q.list[j]
	switch tokens := *q.tokens; {
	case a.count != b.count:
		return a.count > b.count
	case a.left != b.left:
		return tokens[a.left] < tokens[b.left]
	default:
		return tokens[a.right] < tokens[b.right]
	}
}

func (q *queue) Pop() any {
	last := len(q.list) - 1
	c := q.list[last]
	q.list = q.list[:last]
	return c
}
