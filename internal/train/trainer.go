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

	CheckReplicas int // steps from one comparison of the replicas' panels to the next; 0: none
}

// A Trainer changes a net step by step.
type Trainer struct {
	Net     *Net // the first replica
	Done    int  // steps
	Moments []Moments

	opt  Options
	nets []*Net // replicas
	sums []*Sum // by replica
	tops *tops
}

// ErrBatch is that the leaves of a batch cannot be dealt to replicas and walks.
var ErrBatch = errors.New("a batch is a power of two of leaves, and of those of a walk")

// batchError is ErrBatch with the numbers and the remedy.
type batchError string

func (e batchError) Error() string        { return string(e) }
func (e batchError) Is(target error) bool { return target == ErrBatch }

// CheckBatch says why a batch cannot be dealt to so many replicas, in walks of so many leaves, and what can. Errors are ErrBatch.
func CheckBatch(batch, leaves, replicas int) error {
	least := 1 // power of two that is not below the replicas
	for least < replicas {
		least *= 2
	}
	say := func(format string, args ...any) error { return batchError(fmt.Sprintf(format, args...)) }
	switch {
	case batch < 1 || batch&(batch-1) != 0:
		return say("%d leaves in walks of %d: %v", batch, leaves, ErrBatch)
	case replicas < least:
		return say("%d leaves do not divide by %d replicas; take %d replicas", batch, replicas, min(least/2, batch))
	case replicas > batch:
		return say("%d leaves do not divide by %d replicas; take a batch of %d, or %d replicas", batch, replicas, replicas, batch)
	case leaves < 1 || leaves&(leaves-1) != 0:
		return say("%d leaves in walks of %d: %v", batch, leaves, ErrBatch)
	case leaves > batch/replicas:
		return say("a replica has %d leaves of %d, a walk %d; take walks of %d", batch/replicas, batch, leaves, batch/replicas)
	}
	return nil
}

// NewTrainer begins to train a net. replicas are others of the same masters (Replicas), which walk beside it.
func NewTrainer(n *Net, opt Options, replicas ...*Net) (*Trainer, error) {
	if err := opt.Optimizer.Check(); err != nil {
		return nil, err
	}
	if err := opt.Schedule.Check(); err != nil {
		return nil, err
	}
	t := &Trainer{Net: n, opt: opt, nets: append([]*Net{n}, replicas...), Moments: make([]Moments, len(n.Params))}
	if err := CheckBatch(opt.Batch, n.opt.Leaves, len(t.nets)); err != nil {
		return nil, err
	}
	for _, n := range t.nets {
		t.sums = append(t.sums, NewSum(n))
	}
	t.tops = newTops(t.sums)
	if opt.Optimizer.Name != "adamw" {
		return t, nil
	}
	first, err := n.moments()
	if err != nil {
		return nil, err
	}
	second, err := n.moments()
	if err != nil {
		return nil, err
	}
	for i := range second {
		t.Moments[i] = Moments{first[i], second[i]}
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

// Step trains with a global batch. stop is raised where a replica fails, so that the others end.
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
	if stop == nil {
		stop = &atomic.Bool{}
	}
	losses, balances, err := t.walk(batch, 1/float64(s.Targets), stop)
	if err != nil {
		return s, err
	}
	for _, l := range losses {
		s.Loss += l
	}
	for _, b := range balances {
		s.Balance += b
	}
	s.Loss, s.Balance = s.Loss/float64(s.Targets), s.Balance/float64(s.Targets)
	if s.Norm, err = t.add(stop); err != nil {
		return s, err
	}
	if err := t.check(s); err != nil {
		return s, err
	}
	if k := t.opt.CheckReplicas; k > 0 && len(t.nets) > 1 && (t.Done+1)%k == 0 {
		if err := t.same(stop); err != nil {
			return s, err
		}
	}
	scale := float32(1)
	if c := t.opt.Optimizer.Clip; c > 0 && s.Norm > c {
		scale = float32(c / s.Norm)
	}
	t.Done++
	if err := t.all(stop, func(r int) error {
		return t.nets[r].update(t.opt.Optimizer, t.tops.whole[r], t.Moments, r, len(t.nets), t.Done, s.Rate, scale)
	}); err != nil {
		return s, err
	}
	return s, t.renew(stop)
}

// walk goes through a batch, every replica through its own subtree of the leaves, and adds gradients up to the tops of these. It returns the losses of leaves
// and what balances of walks add to them.
func (t *Trainer) walk(batch []Leaf, share float64, stop *atomic.Bool) (losses, balances []float64, err error) {
	each, own := t.Net.opt.Leaves, len(batch)/len(t.nets)
	losses, balances = make([]float64, len(batch)), make([]float64, len(batch)/each)
	return losses, balances, t.all(stop, func(r int) error {
		t.sums[r].Begin(own / each)
		for at := r * own; at < (r+1)*own; at += each {
			t.nets[r].draw(t.Done, at)
			l, err := t.nets[r].Walk(batch[at:at+each], share, stop)
			if err != nil {
				return err
			}
			copy(losses[at:], l)
			balances[at/each] = t.nets[r].Balance()
			if err := t.sums[r].Add(); err != nil {
				return err
			}
		}
		return nil
	})
}

// add adds the tops of the replicas' sums, each replica in the shard that it owns, and returns the norm of all.
func (t *Trainer) add(stop *atomic.Bool) (float64, error) {
	var squares [][]float64
	for _, p := range t.Net.Params {
		squares = append(squares, make([]float64, (len(p.Value)+part-1)/part))
	}
	err := t.all(stop, func(r int) error {
		gradients, err := t.tops.add(r)
		if err != nil {
			return err
		}
		return t.nets[r].squares(gradients, r, len(t.nets), squares)
	})
	return norm(squares), err
}

// renew packs the panels of all replicas: values have changed.
func (t *Trainer) renew(stop *atomic.Bool) error {
	return t.all(stop, func(r int) error { return t.nets[r].Renew() })
}

// check finds what is no number.
func (t *Trainer) check(s Step) error {
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
	if s.Loss-s.Loss != 0 {
		return bad
	}
	found := make([]atomic.Bool, len(t.Net.Params))
	for r, n := range t.nets {
		if err := n.shard(t.tops.whole[r], r, len(t.nets), func(i, lo, hi int) {
			if NotFinite(t.tops.whole[r][i][lo:hi]) >= 0 {
				found[i].Store(true)
			}
		}); err != nil {
			return err
		}
	}
	for i := len(found) - 1; i >= 0; i-- { // the backward comes from behind
		if found[i].Load() {
			bad.Where = "the gradient of " + t.Net.Params[i].Label()
			break
		}
	}
	return bad
}

// Evaluate is the loss of a token that counts, over leaves, as many as some walks have; nothing is changed. stop is as of Step.
func (t *Trainer) Evaluate(leaves []Leaf, stop *atomic.Bool) (loss float64, targets int, err error) {
	each := t.Net.opt.Leaves
	leaves = leaves[:len(leaves)/each*each]
	losses := make([]float64, len(leaves))
	if stop == nil {
		stop = &atomic.Bool{}
	}
	if err := t.all(stop, func(r int) error {
		for at := r * each; at < len(leaves); at += each * len(t.nets) {
			l, err := t.nets[r].Losses(leaves[at:at+each], stop)
			if err != nil {
				return err
			}
			copy(losses[at:], l)
		}
		return nil
	}); err != nil {
		return 0, 0, err
	}
	for i, l := range losses {
		loss += l
		targets += leaves[i].Targets()
	}
	if targets > 0 {
		loss /= float64(targets)
	}
	return loss, targets, nil
}
