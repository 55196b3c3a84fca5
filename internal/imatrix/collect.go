package imatrix

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ck/asm/mat"
	"ck/internal/engine"
	"ck/internal/graph"
	"ck/internal/linalg"
	"ck/internal/plan"
	"ck/internal/quality"
	"ck/internal/tokenizer"
	"ck/internal/walk"
)

// Options say what is gathered.
type Options struct {
	Block   int    // tokens of a block; 0: DefaultBlock
	Skip    int    // blocks at the begin of the text that are left out
	Most    int    // blocks that are evaluated at most; 0: all
	Special bool   // the text of control tokens becomes these tokens
	Dataset string // name of the text, for the file

	// Output gathers for the output matrix as well, which llama-imatrix leaves out unless it is told to.
	Output bool
	// Covariance says for which matrices the whole covariance is gathered; nil: for none. It takes 8 bytes for each
	// pair of columns, and for each row of the text a multiplication for each.
	Covariance func(tensor string) bool

	Blocks int // blocks of a walk at most; 0: as many as a walk has rows for

	// Model is the identity of the model, for Save and From: its hash and what else changes sums, such as the ISA
	// tier. What the engine is set to is kept beside it.
	Model string
	// From is goes on with a matrix that Save was given; nil: from the begin. What does not fit is a *ResumeError.
	From *Matrix
	// Save gets the matrix so far, after every Every blocks. It is to be read alone, until Save returns. 0: never.
	Every int
	Save  func(*Matrix) error

	At func(tokens int64) // is told how many tokens of the text are done; nil: nobody is
}

// tapBytes is what the inputs of one walk take at most, as far as walks can be made smaller: they are all kept until
// it is over.
const tapBytes = 512 << 20

// TextError says that a text is too short.
type TextError struct{ Tokens, Block int }

func (e *TextError) Error() string {
	return fmt.Sprintf("the text has %d tokens, a block takes %d; give more text or smaller blocks",
		e.Tokens, e.Block)
}

// ResumeError says that a matrix cannot be continued: What was Have when it was begun, and is Want now.
type ResumeError struct{ What, Have, Want string }

func (e *ResumeError) Error() string {
	return fmt.Sprintf("cannot go on: %s was %s, now it is %s; begin again or say what it was",
		e.What, e.Have, e.Want)
}

// Collect runs an engine over the blocks of a text, each a sequence of its own with BOS in place of its first token
// where the vocabulary puts one before texts, as llama-imatrix does, and gathers the inputs of all matrices of
// layers. It holds the engine, whose taps it takes.
//
// When ctx ends, so does Collect, with ctx's error.
func Collect(
	ctx context.Context, e *engine.Engine, tok *tokenizer.Tokenizer, text string, opt Options,
) (*Matrix, error) {
	t, err := BlocksOf(tok, text, opt)
	if err != nil {
		return nil, err
	}
	return CollectBlocks(ctx, e, t, opt)
}

// CollectBlocks is Collect of a text that is cut into blocks already.
func CollectBlocks(ctx context.Context, e *engine.Engine, t quality.Text, opt Options) (*Matrix, error) {
	c, err := newCollector(e, t, opt)
	if err != nil {
		return nil, err
	}
	defer e.SetTap(nil)
	defer e.Hold()()
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	m := c.matrix()
	m.unshare()
	return m, nil
}

// unshare gives each entry sums of its own. One of those that share them keeps them: covariances may be large.
func (m *Matrix) unshare() {
	taken := map[*float64]bool{}
	for i := range m.Entries {
		e := &m.Entries[i]
		if first := &e.Sums[0]; taken[first] {
			e.Sums = slices.Clone(e.Sums)
		} else {
			taken[first] = true
		}
		if e.Covariance == nil {
			continue
		}
		if first := &e.Covariance[0]; taken[first] {
			e.Covariance = slices.Clone(e.Covariance)
		} else {
			taken[first] = true
		}
	}
}

// collector gathers.
type collector struct {
	e       *engine.Engine
	text    quality.Text
	opt     Options
	sources []*source
	adder   adder
	rows    int // of a walk at most
	done    int // blocks
	ctx     context.Context
	batch   walk.Batch
}

func newCollector(e *engine.Engine, t quality.Text, opt Options) (*collector, error) {
	c := &collector{e: e, text: t, opt: opt}
	var err error
	if c.sources, err = sourcesOf(e.Graph, &opt, linalg.WidthOf(e.Tier)); err != nil {
		return nil, err
	}
	if opt.From != nil {
		if err := c.resume(opt.From); err != nil {
			return nil, err
		}
	}
	if c.adder.team, err = e.Team(e.Threads(plan.Many)); err != nil {
		return nil, err
	}
	tap := &engine.Tap{Stop: true, See: c.see}
	width := 0
	for _, s := range c.sources {
		tap.Values = append(tap.Values, s.value)
		width += s.width
		if s.experts > 0 {
			tap.Values = append(tap.Values, s.ids)
			width += s.width*e.Graph.Width(s.ids) - s.width
		}
	}
	e.SetTap(tap)
	p, err := e.Plan(plan.Many)
	if err != nil {
		e.SetTap(nil)
		return nil, err
	}
	c.rows = min(p.MaxRows, p.MaxPicks, max(tapBytes/(4*width), 32))
	return c, nil
}

// sourcesOf finds the values that matrices of layers multiply, and of the output matrix if it is asked for, and makes
// room for their sums.
func sourcesOf(g *graph.Graph, opt *Options, width mat.Width) ([]*source, error) {
	list, err := inputsOf(g, opt)
	for _, s := range list {
		s.sums, s.counts = make([]float64, s.width*max(1, s.experts)), make([]int64, s.experts)
		if len(s.wanted) > 0 {
			s.covariance = &linalg.Gram{N: s.width, Width: width, Sums: make([]float64, s.width*s.width)}
		}
	}
	return list, err
}

// inputsOf finds those values.
func inputsOf(g *graph.Graph, opt *Options) ([]*source, error) {
	var list []*source
	seen := map[string]bool{}
	for i := range g.Steps {
		s := &g.Steps[i]
		for j, id := range s.W {
			w := g.Weights[id]
			if s.Op.Role(j) != graph.Matrix || w.From > 0 || !strings.HasPrefix(w.Name, "blk.") &&
				!(opt.Output && w.Name == "output.weight") {
				continue
			}
			if seen[w.Name] {
				return nil, fmt.Errorf("tensor %s: is multiplied in two places; its importances cannot be gathered",
					w.Name)
			}
			seen[w.Name] = true
			at := slices.IndexFunc(list, func(x *source) bool { return x.value == s.In[0] })
			if at < 0 {
				at = len(list)
				list = append(list, &source{value: s.In[0], width: w.Cols, experts: w.Experts})
				if w.Experts > 0 {
					list[at].ids = s.In[1]
				}
			}
			x := list[at]
			x.matrices = append(x.matrices, w.Name)
			if opt.Covariance != nil && w.Experts == 0 && opt.Covariance(w.Name) {
				x.wanted = append(x.wanted, w.Name)
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the model has no matrices in layers")
	}
	return list, nil
}

// run evaluates the blocks that are not done. A walk has whole blocks, or a part of one.
func (c *collector) run(ctx context.Context) error {
	c.ctx = ctx
	block := c.text.Block
	most := c.rows / block
	if c.opt.Blocks > 0 {
		most = min(most, c.opt.Blocks)
	}
	for saved := c.done; c.done < c.text.Blocks(); {
		n := min(max(most, 1), c.text.Blocks()-c.done)
		if err := c.blocks(ctx, n); err != nil {
			return err
		}
		c.done += n
		c.tell(0)
		if c.opt.Every > 0 && c.done-saved >= c.opt.Every && c.done < c.text.Blocks() {
			saved = c.done
			if err := c.opt.Save(c.matrix()); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell says how far it is: the blocks that are done, and rows of the next one.
func (c *collector) tell(rows int) {
	if c.opt.At != nil {
		c.opt.At(int64(c.done*c.text.Block + rows))
	}
}

// blocks evaluates the next n blocks, more than one only where they fit into a walk.
func (c *collector) blocks(ctx context.Context, n int) error {
	block := c.text.Block
	seqs := make([]int, n)
	for i := range seqs {
		seqs[i] = c.e.NewSeq()
		defer c.e.Drop(seqs[i])
		c.e.Expect(seqs[i], block)
	}
	ids := c.text.IDs[c.done*block:][:n*block]
	for at := 0; at < len(ids); at += c.rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		end := min(at+c.rows, len(ids))
		b := &c.batch
		b.IDs, b.Pos, b.Seq, b.Pick = ids[at:end], b.Pos[:0], b.Seq[:0], b.Pick[:0]
		for i := at; i < end; i++ {
			b.Pos, b.Seq = append(b.Pos, int32(i%block)), append(b.Seq, seqs[i/block])
			b.Pick = append(b.Pick, int32(i-at))
		}
		if _, err := c.e.Walk(ctx, b); err != nil {
			return err
		}
		if n == 1 && end < len(ids) {
			c.tell(end)
		}
	}
	return nil
}

// see takes the inputs of a walk.
func (c *collector) see(_ *walk.Batch, view func(graph.ValueID) walk.View) error {
	if err := c.adder.add(c.ctx, c.sources, view); err != nil {
		return err
	}
	for _, s := range c.sources {
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}

// hash tells the tokens of the first blocks apart from others.
func (c *collector) hash(blocks int) string {
	t := quality.Text{IDs: c.text.IDs[:blocks*c.text.Block], Block: c.text.Block}
	return t.Hash()
}

// matrix is what was gathered of whole blocks. Matrices that multiply one value share its sums.
func (c *collector) matrix() *Matrix {
	act, cache := c.e.Arithmetic()
	m := &Matrix{Datasets: []string{c.opt.Dataset}, Chunks: c.done, ChunkSize: c.text.Block, Model: c.opt.Model,
		Text: c.hash(c.done), Act: act, KV: cache.String()}
	for _, s := range c.sources {
		if s.covariance != nil {
			s.covariance.Mirror()
		}
		for _, name := range s.matrices {
			e := Entry{Name: name, Sums: s.sums, Counts: []int64{int64(c.done * c.text.Block)}}
			if s.experts > 0 {
				e.Counts = s.counts
			}
			if slices.Contains(s.wanted, name) {
				e.Covariance = s.covariance.Sums
			}
			m.Entries = append(m.Entries, e)
		}
	}
	m.sort()
	return m
}

// resume goes on with what was gathered before.
func (c *collector) resume(m *Matrix) error {
	act, cache := c.e.Arithmetic()
	for _, x := range []ResumeError{
		{"the name of the text", strings.Join(m.Datasets, ", "), c.opt.Dataset},
		{"the number of tokens of a block", fmt.Sprint(m.ChunkSize), fmt.Sprint(c.text.Block)},
		{"the model", m.Model, c.opt.Model},
		{"the type of activations (--act)", m.Act, act},
		{"the type of the KV cache (--kv)", m.KV, cache.String()},
	} {
		if x.Have != x.Want {
			return &x
		}
	}
	if m.Text == "" {
		return &ResumeError{"the matrix", "whole", "to be continued"}
	}
	if m.Chunks > c.text.Blocks() {
		return &ResumeError{"the number of blocks", fmt.Sprintf("%d already", m.Chunks), fmt.Sprint(c.text.Blocks())}
	}
	if want := c.hash(m.Chunks); m.Text != want {
		return &ResumeError{"the text", "of tokens with hash " + m.Text, want}
	}
	matrices := 0
	for _, s := range c.sources {
		for _, name := range s.matrices {
			matrices++
			if err := s.resume(m.Find(name), name, int64(m.Chunks)*int64(m.ChunkSize)); err != nil {
				return err
			}
		}
	}
	if matrices != len(m.Entries) {
		return &ResumeError{"the number of matrices", fmt.Sprint(len(m.Entries)), fmt.Sprint(matrices)}
	}
	c.done = m.Chunks
	return nil
}

// resume takes over the entry of one of its matrices.
func (s *source) resume(e *Entry, name string, rows int64) error {
	switch {
	case e == nil:
		return &ResumeError{"tensor " + name, "not gathered", "asked for"}
	case len(e.Sums) != len(s.sums) || len(e.Counts) != max(1, s.experts):
		return &SizeError{name, len(e.Sums), len(s.sums), "the tensor"}
	case s.experts == 0 && e.Counts[0] != rows:
		return &ResumeError{"tensor " + name, fmt.Sprintf("of %d rows", e.Counts[0]), fmt.Sprint(rows)}
	case (e.Covariance != nil) != slices.Contains(s.wanted, name):
		return &ResumeError{"the covariance of tensor " + name, yes(e.Covariance != nil), yes(e.Covariance == nil)}
	}
	copy(s.sums, e.Sums)
	if s.experts > 0 {
		copy(s.counts, e.Counts)
	}
	if e.Covariance != nil {
		copy(s.covariance.Sums, e.Covariance)
	}
	return nil
}

func yes(gathered bool) string {
	if gathered {
		return "gathered"
	}
	return "not gathered"
}
