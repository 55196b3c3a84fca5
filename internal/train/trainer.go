package train

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// Options say how a model is trained.
type Options struct {
	Batch     int // leaves of a global batch, a power of two; a multiple of those of a walk
	Optimizer Optimizer
	Schedule  Schedule
}

// A Trainer changes a net step by step.
type Trainer struct {
	Net     *Net
	Done    int // steps
	Moments []Moments

	opt Options
	sum *Sum
}

// ErrBatch is that the leaves of a batch cannot be dealt to walks.
var ErrBatch = errors.New("a batch is a power of two of leaves, and of those of a walk")

// NewTrainer begins to train a net.
func NewTrainer(n *Net, opt Options) (*Trainer, error) {
	if err := opt.Optimizer.Check(); err != nil {
		return nil, err
	}
	if err := opt.Schedule.Check(); err != nil {
		return nil, err
	}
	if b := opt.Batch; b < 1 || b&(b-1) != 0 || b%n.opt.Leaves != 0 {
		return nil, fmt.Errorf("%w: %d leaves in walks of %d", ErrBatch, opt.Batch, n.opt.Leaves)
	}
	t := &Trainer{Net: n, opt: opt, sum: NewSum(n)}
	for _, p := range n.Params {
		m := Moments{}
		if opt.Optimizer.Name == "adamw" {
			m = Moments{make([]float32, len(p.Value)), make([]float32, len(p.Value))}
		}
		t.Moments = append(t.Moments, m)
	}
	return t, nil
}

// A Step says what a step did.
type Step struct {
	Loss    float64 // of a token that counts, before the step; without Balance
	Balance float64 // what load-balancing terms add to it (NetOptions.Balance)
	Norm    float64 // of the gradients, before they were clipped
	Rate    float64
	Targets int // tokens that counted
}

// A BadStepError is a step whose loss or gradients are no numbers: nothing was changed.
type BadStepError struct {
	Step  int    // counted from 1
	Where string // "the loss", a gradient, or the first weight in the order of the graph
}

func (e *BadStepError) Error() string {
	return fmt.Sprintf("step %d: %s is not finite; lower the learning rate or clip the gradients", e.Step, e.Where)
}

// Step trains with a global batch.
func (t *Trainer) Step(batch []Leaf, stop *atomic.Bool) (Step, error) {
	s := Step{Rate: t.opt.Schedule.At(t.Done)}
	if len(batch) != t.opt.Batch {
		return s, fmt.Errorf("internal error: a batch of %d leaves, expected %d", len(batch), t.opt.Batch)
	}
	for i := range batch {
		s.Targets += batch[i].Targets()
	}
	if s.Targets == 0 {
		return s, fmt.Errorf("step %d: no token of the batch counts in the loss", t.Done+1)
	}
	each := t.Net.opt.Leaves
	t.sum.Begin(len(batch) / each)
	for at := 0; at < len(batch); at += each {
		losses, err := t.Net.Walk(batch[at:at+each], 1/float64(s.Targets), stop)
		if err != nil {
			return s, err
		}
		for _, l := range losses {
			s.Loss += l
		}
		s.Balance += t.Net.Balance()
		t.sum.Add()
	}
	s.Loss, s.Balance = s.Loss/float64(s.Targets), s.Balance/float64(s.Targets)
	gradients := t.sum.Gradients()
	s.Norm = t.Net.norm(gradients)
	if err := t.check(s, gradients); err != nil {
		return s, err
	}
	scale := float32(1)
	if c := t.opt.Optimizer.Clip; c > 0 && s.Norm > c {
		scale = float32(c / s.Norm)
	}
	t.Done++
	t.Net.update(t.opt.Optimizer, gradients, t.Moments, t.Done, s.Rate, scale)
	return s, t.Net.Renew()
}

// check finds what is no number.
func (t *Trainer) check(s Step, gradients [][]float32) error {
	if !math.IsInf(s.Norm, 0) && s.Norm == s.Norm && !math.IsInf(s.Loss, 0) && s.Loss == s.Loss {
		return nil
	}
	bad := &BadStepError{Step: t.Done + 1, Where: "the loss"}
	for _, p := range t.Net.Params {
		if NotFinite(p.Value) >= 0 {
			bad.Where = p.Name
			return bad
		}
	}
	for i := len(gradients) - 1; i >= 0 && s.Loss-s.Loss == 0; i-- { // the backward comes from behind
		if NotFinite(gradients[i]) >= 0 {
			bad.Where = "the gradient of " + t.Net.Params[i].Label()
			break
		}
	}
	return bad
}

// Evaluate is the loss of a token that counts, over leaves, as many as some walks have; nothing is changed.
func (t *Trainer) Evaluate(leaves []Leaf, stop *atomic.Bool) (loss float64, targets int, err error) {
	each := t.Net.opt.Leaves
	for at := 0; at+each <= len(leaves); at += each {
		for i := range leaves[at : at+each] {
			targets += leaves[at+i].Targets()
		}
		losses, err := t.Net.Walk(leaves[at:at+each], 1, stop)
		if err != nil {
			return 0, 0, err
		}
		for _, l := range losses {
			loss += l
		}
	}
	if targets > 0 {
		loss /= float64(targets)
	}
	return loss, targets, nil
}
