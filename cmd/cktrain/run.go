package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"ck/internal/adapter"
	"ck/internal/cli"
	"ck/internal/dataset"
	"ck/internal/generate"
	"ck/internal/gguf"
	"ck/internal/humanize"
	"ck/internal/measure"
	"ck/internal/plaintext"
	"ck/internal/quant"
	"ck/internal/train"
	"ck/internal/train/curve"
	"ck/internal/walk"
)

// runOptions are the flags of cktrain run.
type runOptions struct {
	out           string
	resume, force bool
	steps         int
	epochs        float64
	schedule      train.Schedule
	optimizer     train.Optimizer
	save, keep    int
	judge         int
	skipBad       int
	log           string
	curve         string
	explain       bool
	times         bool
	check         int
}

const runLong = `Trains all weights of a model with data, step by step, and writes DIR/model.gguf, which ckrun runs, in the types that the model had. With --rank it trains adapters beside frozen weights, which may be quantized, and writes DIR/adapter.gguf, as llama.cpp reads it, and the folder DIR/adapter, as PEFT does; where the weights are floats DIR/model.gguf is the model with the adapters merged in. Checkpoints DIR/checkpoint-N.gguf hold weights, moments and where the run was: --resume goes on from the newest, bit for bit as if nothing had ended it. Ctrl-C writes one more.

A step has --batch slots of --tokens tokens. Its bits do not depend on threads, on how many slots are computed at once (--walk) or on --replicas. Replicas compute their slots side by side, each with memory beside its cores; of weights and moments there is one copy, of which each updates a share. -t is the number of threads of all replicas together, at least one each.`

func (p *program) runCommand() {
	c := p.app.NewCommand("run [flags]", "train a model", runLong, p.runRun)
	o := &p.run
	g := cli.NewGroup(c.Flags(), "Output")
	g.Text(&o.out, "out", "o", "", "DIR", "folder of model and checkpoints")
	g.Bool(&o.resume, "resume", "", "go on from the newest checkpoint in DIR; without one, begin")
	g.Bool(&o.force, "force", "", "overwrite the model of an earlier run")
	g.Int(&o.save, "save-every", "", 100, 1, 1<<30, "N", "steps from checkpoint to checkpoint")
	g.Int(&o.keep, "keep", "", 2, 1, 1<<20, "N", "checkpoints that are kept, the newest")
	g.Text(&o.log, "log", "", "", "FILE", "a line of JSON for each step; --resume goes on in it behind the checkpoint's step")
	g.Text(&o.curve, "curve", "", "", "FILE", "a picture of the losses (*.svg, *.png), written with each checkpoint and at the end")
	g.Bool(&o.times, "step-times", "", "a table of where the time of steps went; a few --steps are enough")
	g.Bool(&o.explain, "explain", "", "print the plan of a walk, forward, loss and backward, and stop; needs neither data nor -o")
	p.data.flags(c)
	g = cli.NewGroup(c.Flags(), "Training")
	g.Int(&o.steps, "steps", "", 0, 0, 1<<30, "N", "steps; default: as many as --epochs take")
	g.Float(&o.epochs, "epochs", "", 1, 0, 1e6, "X", "how often the data is gone through")
	g.Float(&o.schedule.Rate, "lr", "", 1e-4, 0, 1e3, "X", "highest learning rate")
	g.Enum(&o.schedule.Kind, "schedule", "", "cosine", "NAME", []string{"cosine", "linear", "wsd", "constant"}, "how the rate falls; wsd: constant, then linear")
	g.Int(&o.schedule.Warmup, "warmup", "", 10, 0, 1<<30, "N", "steps that the rate grows for")
	g.Float(&o.schedule.Floor, "lr-floor", "", 0.1, 0, 1, "SHARE", "the last rate, as a share of the highest")
	g.Float(&o.schedule.End, "wsd-end", "", 0.2, 0, 1, "SHARE", "share of the steps in which wsd falls")
	g.Enum(&o.optimizer.Name, "optimizer", "", "adamw", "NAME", []string{"adamw", "sgd"}, "how gradients change weights")
	g.Float(&o.optimizer.Beta1, "beta1", "", 0.9, 0, 1, "X", "AdamW: memory of gradients")
	g.Float(&o.optimizer.Beta2, "beta2", "", 0.95, 0, 1, "X", "AdamW: memory of their squares")
	g.Float(&o.optimizer.Eps, "eps", "", 1e-8, 0, 1, "X", "AdamW: added to the root of these")
	g.Float(&o.optimizer.Decay, "decay", "", 0.1, 0, 1e3, "X", "decay of matrices, times the rate, a step")
	g.Float(&o.optimizer.Clip, "clip", "", 1, 0, 1e9, "X", "the norm of all gradients is at most this; 0: any")
	g.Int(&p.data.seed, "seed", "", 1, 0, math.MaxInt32, "N", "order of the data")
	g.Int(&o.judge, "val-every", "", 50, 1, 1<<30, "N", "steps from one judging of what is held out to the next")
	g.Int(&o.skipBad, "skip-bad-steps", "", 0, 0, 1<<30, "N", "steps whose loss or gradients are no numbers and that are left out; one more ends the run")
	p.net.auxFlag(c)
	p.net.dropoutFlag(c)
	p.net.flags(c)
	cli.NewGroup(c.Flags(), "Computing").Int(&o.check, "check-replicas", "", 100, 0, 1<<30, "N", "steps from one comparison of the replicas' panels to the next; 0: none")
	p.lora.flags(c)
}

func number(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

// session is a run in progress.
type session struct {
	p        *program
	ctx      context.Context
	c        *dataset.Set
	nets     *train.Replicas
	t        *train.Trainer
	state    train.State
	val      []train.Leaf
	log      *os.File
	curve    *curve.Curve
	undrawn  bool               // that the curve could not be written was said
	peaks    map[string]float64 // operations a second, by kind of arithmetic
	profiles []*measure.Profile // of --step-times, by replica
	made     int                // steps of this session
	need     int64              // bytes, as estimated, with the mapped file
	before   int64              // bytes that were held before any of it was taken; 0: not known
	inSteps  time.Duration      // that they took
	at       int                // batches that were taken: more than steps where bad ones were left out
	skipped  int
	first    float64
	last     train.Step
	valLoss  float64
	saved    string
	stop     atomic.Bool
	progress *cli.Progress
}

// runRun is cktrain run.
func (p *program) runRun(c *cobra.Command, args []string) error {
	o := &p.run
	switch {
	case len(args) > 0:
		return cli.Usage("run: %s: takes no words; data is named with -d", args[0])
	case o.explain && p.app.Common.JSON:
		return cli.Usage("--explain: the plan has no JSON form; leave --json out")
	case o.out == "" && !o.explain:
		return cli.Usage("no output: name a folder with -o")
	}
	if err := p.deal(); err != nil {
		return err
	}
	m, g, err := p.model()
	if err != nil {
		return err
	}
	defer m.Close()
	defer g.Close()
	if err := p.chooseAgain(m); err != nil {
		return err
	}
	if o.explain {
		return p.explain(m)
	}
	if err := o.checkCurve(); err != nil {
		return err
	}
	need, err := p.checkMemory(m)
	if err != nil {
		return err
	}
	for _, name := range []string{"model.gguf", "adapter.gguf", "adapter"} {
		if _, err := os.Stat(o.in(name)); err == nil && !o.force {
			return cli.Usage("%s: exists; --force overwrites it", o.in(name))
		}
	}
	data, err := p.dataset(c.Context(), g)
	if err != nil {
		return err
	}
	s := &session{p: p, c: data, need: need + fileBytes(m), curve: &curve.Curve{}, valLoss: math.NaN(), first: math.NaN()}
	if err := s.plan(c.Context()); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return cli.Resource("%w", err)
	}
	if s.before, err = measure.HeldMemory(); err != nil {
		p.app.Info("memory that is held is not known: %v", err)
	}
	debug.SetGCPercent(train.GarbagePercent(need, len(p.places)))
	if s.nets, err = p.nets(m); err != nil {
		return err
	}
	defer s.nets.Close()
	opt := train.Options{Batch: p.net.batch, Optimizer: o.optimizer, Schedule: o.schedule, CheckReplicas: o.check}
	if s.t, err = train.NewTrainer(s.nets.Nets[0], opt, s.nets.Nets[1:]...); err != nil {
		return cli.Usage("%v", err)
	}
	if err := s.samplePeaks(); err != nil {
		return err
	}
	if o.times {
		for _, n := range s.nets.Nets {
			s.profiles = append(s.profiles, measure.NewProfile(n.Plan()))
		}
	}
	err = s.begin(c.Context(), g)
	if s.log != nil {
		defer s.log.Close()
	}
	if err != nil {
		return err
	}
	if err := s.train(c.Context()); err != nil {
		return err
	}
	return s.finish(c.Context(), m)
}

// plan decides how many steps there are, and what a checkpoint must agree with.
func (s *session) plan(ctx context.Context) error {
	p, o := s.p, &s.p.run
	if o.schedule.Steps = o.steps; o.steps == 0 {
		slots, whole := 0, int(o.epochs)
		for e := range whole {
			if err := ctx.Err(); err != nil {
				return err
			}
			slots += s.c.Slots(e)
		}
		if rest := o.epochs - float64(whole); rest > 0 {
			slots += int(math.Ceil(rest * float64(s.c.Slots(whole))))
		}
		o.schedule.Steps = max(1, (slots+p.net.batch-1)/p.net.batch)
	}
	o.schedule.Warmup = min(o.schedule.Warmup, o.schedule.Steps)
	if err := o.schedule.Check(); err != nil {
		return cli.Usage("%v", err)
	}
	text := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	s.state = train.State{Data: s.c.Hash(), Options: map[string]string{
		"tokens": fmt.Sprint(p.data.tokens), "batch": fmt.Sprint(p.net.batch), "dtype": p.net.dtype, "steps": fmt.Sprint(o.schedule.Steps), "lr": text(o.schedule.Rate),
		"schedule": o.schedule.Kind, "warmup": fmt.Sprint(o.schedule.Warmup), "lr-floor": text(o.schedule.Floor), "wsd-end": text(o.schedule.End), "optimizer": o.optimizer.Name,
		"rank": fmt.Sprint(p.lora.rank), "alpha": text(p.lora.alpha), "rslora": fmt.Sprint(p.lora.root), "targets": p.lora.targets, "seed": fmt.Sprint(p.data.seed),
		"beta1": text(o.optimizer.Beta1), "beta2": text(o.optimizer.Beta2), "eps": text(o.optimizer.Eps), "decay": text(o.optimizer.Decay), "clip": text(o.optimizer.Clip), "aux-loss": text(p.net.aux), "dropout": text(p.net.dropout),
	}}
	return nil
}

// begin goes on from a checkpoint where that is asked for, and opens the log.
func (s *session) begin(ctx context.Context, _ *generate.Model) error {
	o := &s.p.run
	list := s.checkpoints()
	switch {
	case len(list) > 0 && !o.resume && !o.force:
		return cli.Usage("%s: is a checkpoint of an earlier run; --resume goes on with it, --force begins anew", list[len(list)-1])
	case len(list) > 0 && o.resume:
		path := list[len(list)-1]
		m, err := gguf.Open(path)
		if err != nil {
			return cli.Input("%w", err)
		}
		defer m.Close()
		if err := s.t.Restore(m, s.state); err != nil {
			if mismatch := (*train.MismatchError)(nil); errors.As(err, &mismatch) {
				return fmt.Errorf("%s: %w", path, err)
			}
			return cli.Input("%w", err)
		}
		state, _ := train.ReadState(m)
		s.at, s.skipped = state.Taken, state.Taken-state.Step
		s.saved = path
		s.p.app.Note("goes on behind step %d of %s", s.t.Done, path)
	case o.force:
		for _, path := range list {
			os.Remove(path)
		}
	}
	if err := s.openLog(); err != nil {
		return err
	}
	s.goOn()
	most := max(1, 32/s.p.leaves()) * s.p.leaves()
	for i := range min(most, s.c.Val().Slots) {
		s.val = append(s.val, leaf(s.c.ValSlot(i)))
	}
	for len(s.val)%s.p.leaves() != 0 {
		s.val = append(s.val, leaf(s.c.Padding()))
	}
	return ctx.Err()
}

// epochs is how often the data was gone through.
func (s *session) epochs() float64 {
	epoch, slot := s.c.Place(s.at * s.p.net.batch)
	return float64(epoch) + float64(slot)/float64(s.c.Slots(epoch))
}

// checkpoints lists those of the folder, the oldest first.
func (s *session) checkpoints() []string {
	list, _ := filepath.Glob(s.p.run.in("checkpoint-*.gguf"))
	slices.SortFunc(list, func(a, b string) int { return stepOf(a) - stepOf(b) })
	return slices.DeleteFunc(list, func(path string) bool { return stepOf(path) < 0 })
}

// stepOf is the step of a checkpoint's name; -1: it is none.
func stepOf(path string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "checkpoint-"), ".gguf"))
	if err != nil {
		return -1
	}
	return n
}

// train makes the steps that are left.
func (s *session) train(parent context.Context) error {
	o := &s.p.run
	ctx, done := s.p.app.Interruptible(parent)
	defer done()
	s.ctx = ctx
	defer context.AfterFunc(ctx, func() { s.stop.Store(true) })()
	s.progress = s.p.app.NewProgress("training", "steps", int64(o.schedule.Steps))
	defer s.progress.Done()
	s.progress.From(int64(s.t.Done))
	for s.t.Done < o.schedule.Steps {
		if err := s.step(); err != nil {
			if bad := (*train.BadStepError)(nil); errors.As(err, &bad) {
				s.progress.Aside(func() error { s.drawOnTheWay(); return nil })
			}
			return err
		}
		if s.t.Done%o.save == 0 && s.t.Done < o.schedule.Steps {
			if err := s.progress.Aside(s.save); err != nil {
				s.p.app.Warn("no checkpoint of step %d: %v; the run goes on, the one before stays", s.t.Done, err)
			}
			s.progress.Aside(func() error { s.drawOnTheWay(); return nil })
		}
	}
	return nil
}

// step makes one step, or leaves a bad one out.
func (s *session) step() error {
	o := &s.p.run
	var batch []train.Leaf
	for i := range s.p.net.batch {
		batch = append(batch, leaf(s.c.Slot(s.at*s.p.net.batch+i)))
	}
	for r, x := range s.profiles {
		s.nets.Nets[r].Look(x.Hook)
	}
	start := time.Now()
	r, err := s.t.Step(batch, &s.stop)
	took := time.Since(start)
	for r := range s.profiles {
		s.nets.Nets[r].Look(nil)
	}
	s.at++
	bad := (*train.BadStepError)(nil)
	switch {
	case errors.Is(err, walk.ErrStopped):
		s.at--
		return s.interrupted()
	case errors.As(err, &bad) && s.skipped < o.skipBad:
		s.skipped++
		s.progress.Aside(func() error { s.p.app.Warn("%v; left out, %d of %d", err, s.skipped, o.skipBad); return nil })
		return nil
	case errors.As(err, &bad) && s.saved != "":
		return fmt.Errorf("%w; the last good checkpoint is %s", err, s.saved)
	case errors.As(err, &bad):
		return fmt.Errorf("%w; there is no checkpoint before it", err)
	case err != nil:
		return err
	}
	s.made, s.inSteps = s.made+1, s.inSteps+took
	if s.last = r; math.IsNaN(s.first) {
		s.first = r.Loss
	}
	val, err := s.judge()
	if err != nil {
		return err
	}
	if err := s.note(r, took, val); err != nil {
		return err
	}
	s.progress.At(int64(s.t.Done))
	s.progress.Say(s.words())
	if s.ctx.Err() != nil {
		return s.interrupted()
	}
	return nil
}

// judge is the loss of what is held out, at steps where that is due; nil: it is not, or a signal came.
func (s *session) judge() (*float64, error) {
	o := &s.p.run
	if len(s.val) == 0 || s.t.Done%o.judge != 0 && s.t.Done != o.schedule.Steps {
		return nil, nil
	}
	loss, n, err := s.t.Evaluate(s.val, &s.stop)
	switch {
	case errors.Is(err, walk.ErrStopped): // the step is done all the same: the log has it
		return nil, nil
	case err != nil || n == 0 || math.IsNaN(loss) || math.IsInf(loss, 0): // the next step says what is no number
		return nil, err
	}
	s.valLoss = loss
	return &loss, nil
}

// note keeps a step, and writes it to the log.
func (s *session) note(r train.Step, took time.Duration, val *float64) error {
	speed := float64(s.p.net.batch*s.p.data.tokens) / took.Seconds()
	var balance *float64
	if s.p.net.aux != 0 {
		balance = &r.Balance
	}
	leap := s.curve.Add(curve.Point{Step: s.t.Done, Loss: r.Loss, Val: val, Balance: balance, Norm: r.Norm, Rate: r.Rate, Targets: r.Targets, Speed: speed,
		Share: s.share(speed), Epoch: s.epochs()})
	if leap != nil {
		s.progress.Aside(func() error {
			s.p.app.Warn("the loss leapt at step %d: %.4f, before it %.4f ± %.4f; if it stays up, go on from an earlier checkpoint with a lower --lr or --clip",
				leap.Step, leap.Loss, leap.Mean, leap.Deviation)
			return nil
		})
	}
	if s.log == nil {
		return nil
	}
	return s.curve.Write(s.log)
}

// goOn takes up what the log says of the steps before.
func (s *session) goOn() {
	if len(s.curve.Points) == 0 {
		return
	}
	s.first = s.curve.Points[0].Loss
	for _, p := range s.curve.Points {
		if p.Val != nil {
			s.valLoss = *p.Val
		}
	}
}

// interrupted writes a checkpoint and ends.
func (s *session) interrupted() error {
	s.progress.Done()
	if err := s.save(); err != nil {
		return err
	}
	s.drawOnTheWay()
	s.p.app.Note("%s has all that was done; --resume goes on with it", s.saved)
	return cli.Interrupted()
}

// save writes a checkpoint and removes old ones.
func (s *session) save() error {
	path := s.p.run.in(fmt.Sprintf("checkpoint-%d.gguf", s.t.Done))
	f, err := s.p.app.Create(path, true)
	if err != nil {
		return err
	}
	defer f.Abort()
	state := s.state
	state.Taken = s.at
	if err := s.t.Save(f, state); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	s.saved = path
	list := s.checkpoints()
	for _, old := range list[:max(0, len(list)-s.p.run.keep)] {
		os.Remove(old)
	}
	return nil
}

// finish writes the last checkpoint and the model, and says what came of it.
func (s *session) finish(ctx context.Context, m *gguf.Model) error {
	s.where()
	if err := s.save(); err != nil {
		return err
	}
	write := func(name string, f func(w io.Writer, m *gguf.Model) error) (string, error) {
		path := s.p.run.in(name)
		out, err := s.p.app.Create(path, s.p.run.force || s.p.run.resume)
		if err != nil {
			return "", err
		}
		defer out.Abort()
		if err := f(out, m); err != nil {
			return "", err
		}
		return path, out.Commit()
	}
	adapter, peft, model := "", "", ""
	if s.p.lora.rank > 0 {
		a, err := s.t.Net.Adapter(m)
		if err != nil {
			return err
		}
		if adapter, err = write("adapter.gguf", func(w io.Writer, m *gguf.Model) error { return a.WriteGGUF(w, quant.F32) }); err != nil {
			return err
		}
		if peft, err = s.writePEFT(ctx, a, m); err != nil {
			return err
		}
	}
	var err error
	if train.Trainable(m) == nil {
		if model, err = write("model.gguf", s.t.Net.WriteModel); err != nil {
			return err
		}
	} else {
		s.p.app.Note("ckrun runs the model with %s merged in: cktrain merge -m %s %s OUT", adapter, s.p.app.Common.Model, adapter)
	}
	if err := s.draw(); err != nil {
		return err
	}
	return s.print(model, adapter, peft)
}

// writePEFT writes the adapter as a folder of PEFT, and says so where models of this kind have no names there.
func (s *session) writePEFT(ctx context.Context, a *adapter.Adapter, m *gguf.Model) (string, error) {
	dir := s.p.run.in("adapter")
	err := a.WritePEFT(ctx, dir, m, adapter.PEFTOptions{Type: quant.F32, Dropout: s.p.net.dropout, Force: s.p.run.force || s.p.run.resume})
	var path *fs.PathError
	switch {
	case err == nil:
		return dir, nil
	case errors.As(err, &path):
		return "", cli.Resource("%w", err)
	case errors.Is(err, fs.ErrExist), ctx.Err() != nil:
		return "", err
	}
	s.p.app.Note("%s is not written: %v", dir, err)
	return "", nil
}

// where says on which nodes the memory of replicas lies.
func (s *session) where() {
	if !s.p.app.Common.Verbose {
		return
	}
	for _, x := range s.nets.Where() {
		if x.Err != nil {
			s.p.app.Info("replica %d: %s: %v", x.Replica, x.What, x.Err)
			continue
		}
		s.p.app.Info("replica %d at nodes %s: %s %s (%s), %.2f %% at home", x.Replica, humanize.ShortList(x.Nodes, 40), x.What, humanize.Bytes(x.Bytes), x.By, 100*x.Share())
	}
}

// print writes the result.
func (s *session) print(model, adapter, peft string) error {
	finite := func(x float64) *float64 {
		if math.IsNaN(x) {
			return nil
		}
		return &x
	}
	if s.p.app.Common.JSON {
		return s.p.app.PrintJSON(struct {
			Schema     string     `json:"schema"`
			Model      string     `json:"model,omitempty"`
			Adapter    string     `json:"adapter,omitempty"`
			PEFT       string     `json:"peft,omitempty"`
			Checkpoint string     `json:"checkpoint"`
			Steps      int        `json:"steps"`
			Epochs     float64    `json:"epochs"`
			First      *float64   `json:"first_loss"`
			Last       *float64   `json:"last_loss"`
			Val        *float64   `json:"val_loss"`
			Skipped    int        `json:"skipped_steps"`
			Curve      string     `json:"curve,omitempty"`
			Peak       float64    `json:"peak_ops_per_s"`
			Ops        float64    `json:"operations_of_a_step"`
			Speed      float64    `json:"tokens_per_s"`
			Share      float64    `json:"peak_share"`
			Need       int64      `json:"estimated_bytes"`
			Held       int64      `json:"held_bytes,omitempty"`
			Again      int        `json:"recomputed_layers"`
			Times      []stepTime `json:"step_times,omitempty"`
			Warnings   []string   `json:"warnings"`
		}{"ck.train.run/1", model, adapter, peft, s.saved, s.t.Done, s.epochs(), finite(s.first), finite(s.last.Loss), finite(s.valLoss), s.skipped,
			s.p.run.curve, s.peaks[peakKind(s.p.typ())], s.operations(), s.speed(), s.share(s.speed()), s.need, s.held(), s.p.net.again, s.times(), s.p.app.Warnings()})
	}
	t := plaintext.Table{Head: []string{"what", "value"}, Right: []bool{false, true}}
	row := func(what, value string) { t.Rows = append(t.Rows, []string{what, value}) }
	if model != "" {
		row("model", model)
	}
	if adapter != "" {
		row("adapter", adapter)
	}
	if peft != "" {
		row("adapter for PEFT", peft)
	}
	row("steps", fmt.Sprint(s.t.Done))
	row("times through the data", fmt.Sprintf("%.2f", s.epochs()))
	if !math.IsNaN(s.first) {
		row("loss of the first step", fmt.Sprintf("%.4f", s.first))
		row("loss of the last step", fmt.Sprintf("%.4f", s.last.Loss))
	}
	if !math.IsNaN(s.valLoss) {
		row("loss of what was held out", fmt.Sprintf("%.4f", s.valLoss))
	}
	if s.skipped > 0 {
		row("steps left out", fmt.Sprint(s.skipped))
	}
	if s.made > 0 {
		row("tokens/s", humanize.TokenRate(s.speed()))
		row("share of the peak", fmt.Sprintf("%.0f %% of %s/s", 100*s.share(s.speed()), humanize.Scaled(s.peaks[peakKind(s.p.typ())], "OP")))
	}
	if n := s.held(); n > 0 {
		row("memory", fmt.Sprintf("%s, estimated %s", humanize.Bytes(n), humanize.Bytes(s.need)))
	}
	if s.p.run.curve != "" {
		row("curve", s.p.run.curve)
	}
	if line := s.spark(); line != "" {
		row("loss", line)
	}
	if err := t.Write(s.p.app.Out, s.p.app.Common.Plain); err != nil {
		return cli.OutError(err)
	}
	return cli.OutError(s.printTimes(s.p.app.Text(), s.times()))
}
