package imatrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"ck/asm/mat"
	"ck/internal/engine"
	"ck/internal/linalg"
	"ck/internal/plan"
	"ck/internal/tokenizer"
)

// Covariances hands out the covariances of matrices, one after the other. It goes over the text for as many of them
// at a time as there is room for.
type Covariances struct {
	Engine *engine.Engine
	Tok    *tokenizer.Tokenizer
	Text   string
	Opt    Options
	Names  []string            // of the tensors in the order in which they are asked for
	Bytes  func(string) int64  // that the covariance of a tensor takes
	Room   int64               // bytes that covariances may take
	Told   func(group, of int) // is told before each pass over the text; nil: nobody is

	mu    sync.Mutex // tensors are asked for by several workers
	have  map[string][]float64
	group int
}

// Groups is the number of passes over the text.
func (c *Covariances) Groups() (n int) {
	for left := c.Names; len(left) > 0; n++ {
		left = left[c.fit(left):]
	}
	return n
}

// fit is how many of the first names there is room for, one at least.
func (c *Covariances) fit(names []string) (n int) {
	room := c.Room
	for ; n < len(names); n++ {
		if room -= c.Bytes(names[n]); room < 0 && n > 0 {
			break
		}
	}
	return n
}

// Estimate is how long the products of all passes take, on the engine's workers, at a rate that it measures: the walks
// come on top.
func (c *Covariances) Estimate(ctx context.Context) (time.Duration, error) {
	opt := c.Opt
	opt.Output = true
	opt.Covariance = func(tensor string) bool { return slices.Contains(c.Names, tensor) }
	width := linalg.WidthOf(c.Engine.Tier)
	sources, err := inputsOf(c.Engine.Graph, &opt)
	if err != nil {
		return 0, err
	}
	products := 0.0
	for _, s := range sources {
		if len(s.wanted) > 0 {
			products += float64(s.width) * float64(s.width+mat.Columns) / 2
		}
	}
	workers := c.Engine.Threads(plan.Many)
	a := adder{}
	if a.team, err = c.Engine.Team(workers); err != nil {
		return 0, err
	}
	rate, err := linalg.Rate(func(n int, f func(int)) error { return a.each(ctx, n, f) }, workers, width)
	if err != nil {
		return 0, err
	}
	seconds := products * float64(c.tokens()) / rate
	return time.Duration(seconds * float64(time.Second)), nil
}

// tokens is how many tokens of the text are evaluated.
func (c *Covariances) tokens() int {
	ids := c.Tok.Encode(nil, c.Text, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: c.Opt.Special})
	block := c.Opt.Block
	if block == 0 {
		block = DefaultBlock
	}
	n := max(len(ids)/block-c.Opt.Skip, 0)
	if c.Opt.Most > 0 {
		n = min(n, c.Opt.Most)
	}
	return n * block
}

// Of is the covariance of a tensor's inputs, [columns][columns], which is the caller's from then on.
func (c *Covariances) Of(ctx context.Context, name string) ([]float64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.have[name] == nil {
		if err := c.pass(ctx, name); err != nil {
			return nil, err
		}
	}
	h := c.have[name]
	delete(c.have, name)
	if h == nil {
		return nil, fmt.Errorf("tensor %s: no step of the model multiplies it", name)
	}
	return h, nil
}

// pass gathers the covariances of a tensor and of those behind it.
func (c *Covariances) pass(ctx context.Context, name string) error {
	at := slices.Index(c.Names, name)
	if at < 0 {
		return errors.New("imatrix: a covariance of " + name + ", which was not announced")
	}
	names := c.Names[at : at+c.fit(c.Names[at:])]
	c.group++
	if c.Told != nil {
		c.Told(c.group, c.Groups())
	}
	opt := c.Opt
	opt.Output = slices.Contains(names, "output.weight") || slices.Contains(names, "token_embd.weight")
	opt.Covariance = func(tensor string) bool { return slices.Contains(names, tensor) }
	m, err := Collect(ctx, c.Engine, c.Tok, c.Text, opt)
	if err != nil {
		return err
	}
	if c.have == nil {
		c.have = map[string][]float64{}
	}
	for i := range m.Entries {
		if e := &m.Entries[i]; e.Covariance != nil {
			c.have[e.Name] = e.Covariance
		}
	}
	return nil
}
