// Package spectra measures the matrices of a model: all singular values and what they mean, which elements stick out,
// what a rank keeps. It prints nothing.
package spectra

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"ck/asm/mat"
	"ck/internal/inspect"
	"ck/internal/linalg"
	"ck/internal/quant"
	"ck/internal/spectrum"
)

// Options say what is measured beside the values.
type Options struct {
	Workers int
	Width   mat.Width
	Method  linalg.Method
	Memory  int64 // bytes that may be taken; 0: unknown

	Rank      int // what the best matrix of this rank keeps; 0: is not asked
	Bootstrap int // synthetic sets for the goodness of the power law; 0: none
	Residual  *Residue

	Journal *inspect.Journal   // keeps results; nil: nobody does
	At      func(done float64) // is told the share that is done; nil: nobody is
}

// Residue asks what few leading vectors in F16 and a rest in one type lose, against another type alone, of as many bits.
type Residue struct{ Rest, Plain quant.Type }

// Result is what is known of one matrix. Values are descending.
type Result struct {
	Name   string `json:"name"`
	Class  string `json:"class"`
	Layer  *int   `json:"layer"` // null: of none
	Type   string `json:"type"`
	Shape  [2]int `json:"shape"` // rows, columns
	Failed string `json:"error,omitempty"`

	Method  string    `json:"method,omitempty"` // direct or gram
	Bound   float64   `json:"error_bound"`      // of the smallest value, absolute
	Seconds float64   `json:"seconds"`
	Values  []float64 `json:"values,omitempty"`
	*Figures
	PowerLaw *PowerLaw `json:"power_law,omitempty"` // of the squared values
	Noise    *Noise    `json:"noise,omitempty"`
	Outliers *Outliers `json:"outliers,omitempty"`
	Kept     *Kept     `json:"kept,omitempty"`
	Residual *Residual `json:"residual,omitempty"`
}

// Figures are spectrum.Figures in JSON.
type Figures struct {
	Energy        float64 `json:"energy"`
	Largest       float64 `json:"largest"`
	Rank90        int     `json:"rank90"`
	Rank95        int     `json:"rank95"`
	Rank99        int     `json:"rank99"`
	Stable        float64 `json:"stable_rank"`
	Entropy       float64 `json:"entropy_nats"`
	EntropyRank   float64 `json:"entropy_rank"`
	Participation float64 `json:"participation_ratio"`
	Numerical     int     `json:"numerical_rank"`
}

// PowerLaw is the tail that is nearest to a power law, and whether it is one.
type PowerLaw struct {
	Xmin        float64  `json:"xmin"`
	Alpha       float64  `json:"alpha"`
	Error       float64  `json:"alpha_error"`
	KS          float64  `json:"ks"`
	Tail        int      `json:"tail"`
	Exponential float64  `json:"log_ratio_exponential"` // positive: the power law is likelier
	Lognormal   float64  `json:"log_ratio_lognormal"`
	Fits        bool     `json:"fits"` // it beats both
	P           *float64 `json:"p,omitempty"`
}

// Noise is spectrum.Noise in JSON.
type Noise struct {
	Deviation float64 `json:"deviation"`
	Low       float64 `json:"low_edge"`
	High      float64 `json:"high_edge"`
	Past      int     `json:"past_edge"`
	Threshold float64 `json:"spike_threshold"`
	Spikes    int     `json:"spikes"`
}

// Outliers is what the largest hundredth of the elements, by magnitude, hold.
type Outliers struct {
	Share    float64   `json:"share"`
	Count    int64     `json:"count"`
	Limit    float64   `json:"limit"`
	Energy   float64   `json:"energy"`
	Channels []Channel `json:"columns"` // those that have most of them
}

// Channel is a column with the outliers that it has.
type Channel struct {
	Column int   `json:"column"`
	Count  int64 `json:"count"`
}

// Kept is the energy of the best matrix of a rank.
type Kept struct {
	Rank   int     `json:"rank"`
	Energy float64 `json:"energy"`
}

// Residual is both ways to store the matrix; errors are squared, for its energy.
type Residual struct {
	Rank       int     `json:"rank"`
	Rest       string  `json:"rest"`
	Plain      string  `json:"plain"`
	SplitBits  float64 `json:"split_bits"`
	SplitError float64 `json:"split_error"`
	PlainBits  float64 `json:"plain_bits"`
	PlainError float64 `json:"plain_error"`
}

const (
	outlierShare    = 0.01
	outlierChannels = 5
	bootstrapSeed   = 20240601
	parallelSide    = 1024 // matrices with a shorter side up to it are measured side by side, a worker each
)

// MemoryError says that a matrix needs more memory than there is.
type MemoryError struct {
	Name        string
	Need, Given int64
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("tensor %s: its singular values take %d MiB of memory, %d MiB can be had; leave it out by --tensors, or raise --mem-limit",
		e.Name, (e.Need+1<<20-1)>>20, e.Given>>20)
}

// Check tells whether there is memory for each matrix of list, before work starts. Errors are *MemoryError.
func Check(list []inspect.Matrix, opt Options) error {
	for i := range list {
		if need := opt.Method.Memory(list[i].Rows, list[i].Cols); opt.Memory > 0 && need > opt.Memory {
			return &MemoryError{list[i].Name, need, opt.Memory}
		}
	}
	return nil
}

// Of measures matrices of m: small ones side by side, large ones one after the other through all workers. Results are in
// the order of list. What cannot be measured has Failed; errors are of memory, of the disk, or of ctx.
func Of(ctx context.Context, m *inspect.Model, list []inspect.Matrix, opt Options) ([]Result, error) {
	if err := Check(list, opt); err != nil {
		return nil, err
	}
	s := &survey{ctx: ctx, m: m, list: list, opt: opt, results: make([]Result, len(list)), done: make([]float64, len(list))}
	var small, large []int
	for i := range list {
		s.total += work(&list[i])
		if min(list[i].Rows, list[i].Cols) <= parallelSide {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	side := opt.Workers
	for _, i := range small { // as many side by side as there is memory for
		if need := opt.Method.Memory(list[i].Rows, list[i].Cols); opt.Memory > 0 {
			side = min(side, int(max(1, opt.Memory/max(1, need))))
		}
	}
	if err := m.Each(ctx, len(small), side, func(k int) error { return s.measure(small[k], 1) }); err != nil {
		return nil, err
	}
	for _, i := range large {
		if err := m.Guard(func() error { return s.measure(i, opt.Workers) }); err != nil {
			return nil, err
		}
	}
	return s.results, nil
}

// survey is one run of Of.
type survey struct {
	ctx     context.Context
	m       *inspect.Model
	list    []inspect.Matrix
	opt     Options
	results []Result

	mu    sync.Mutex
	done  []float64 // share of each
	total float64
}

// work is about the operations that a matrix takes.
func work(x *inspect.Matrix) float64 {
	return float64(min(x.Rows, x.Cols)) * float64(x.Rows) * float64(x.Cols)
}

// at says how much of matrix i is done.
func (s *survey) at(i int, done float64) {
	if s.opt.At == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[i] = done
	sum := 0.0
	for k, d := range s.done {
		sum += d * work(&s.list[k])
	}
	s.opt.At(sum / s.total)
}

// measure makes the result of matrix i, unless it was kept.
func (s *survey) measure(i, workers int) error {
	x, r := &s.list[i], &s.results[i]
	defer s.at(i, 1)
	if s.opt.Journal.Found(x.Name, r) {
		return nil
	}
	*r = Result{Name: x.Name, Class: x.Class, Type: x.Tensor.Type.String(), Shape: [2]int{x.Rows, x.Cols}}
	if x.Layer >= 0 {
		r.Layer = &x.Layer
	}
	begin := time.Now()
	if err := s.spectrum(x, r, workers, func(done float64) { s.at(i, 0.95*done) }); err != nil {
		if s.ctx.Err() != nil {
			return err
		}
		if r.Failed = err.Error(); errors.Is(err, linalg.ErrNotFinite) {
			r.Failed = inspect.WhereNotFinite(x)
		}
	}
	r.Seconds = math.Round(1e3*time.Since(begin).Seconds()) / 1e3
	return s.opt.Journal.Keep(x.Name, r)
}

// spectrum fills in what is measured.
func (s *survey) spectrum(x *inspect.Matrix, r *Result, workers int, at func(float64)) error {
	opt := linalg.Options{Each: s.m.Workers(s.ctx, workers), Width: s.opt.Width, Method: s.opt.Method, At: at}
	values, err := linalg.SingularValues(s.ctx, x.Floats(), opt)
	if err != nil {
		return err
	}
	r.Values = values
	method := opt.Method.Of(x.Rows, x.Cols)
	r.Method = map[linalg.Method]string{linalg.Direct: "direct", linalg.ByGram: "gram"}[method]
	f := spectrum.FiguresOf(x.Rows, x.Cols, values)
	r.Figures = &Figures{f.Energy, f.Largest, f.Rank90, f.Rank95, f.Rank99, f.Stable, f.Entropy, f.EntropyRank, f.Participation, f.Numerical}
	r.Bound = method.Bound(values[len(values)-1], f.Largest)
	if err := s.tail(r); err != nil {
		return err
	}
	if n := spectrum.FitNoise(x.Rows, x.Cols, values); n.Deviation > 0 {
		r.Noise = &Noise{n.Deviation, n.Low, n.High, n.Past, n.Threshold, n.Spikes}
	}
	if k := s.opt.Rank; k > 0 {
		r.Kept = &Kept{k, spectrum.Kept(values, k)}
	}
	o, err := spectrum.OutliersOf(rowsOf(x), outlierShare, outlierChannels)
	if err != nil {
		return err
	}
	r.Outliers = &Outliers{Share: outlierShare, Count: o.Count, Limit: o.Limit, Energy: o.Energy}
	for _, c := range o.Channels {
		r.Outliers.Channels = append(r.Outliers.Channels, Channel{c.Col, c.Count})
	}
	return s.residual(x, r, opt)
}

// rowsOf is a matrix as spectrum reads it, for one goroutine.
func rowsOf(x *inspect.Matrix) spectrum.Rows {
	reader := x.Reader()
	return spectrum.Rows{Rows: x.Rows, Cols: x.Cols, Row: reader.Row}
}

// tail fits a power law to the squared values.
func (s *survey) tail(r *Result) error {
	squares := make([]float64, len(r.Values))
	for i, v := range r.Values {
		squares[i] = v * v
	}
	slices.Sort(squares)
	// What is below the error of the values is no part of a tail.
	low, _ := slices.BinarySearch(squares, r.Bound*r.Bound)
	squares = squares[low:]
	law, ok := spectrum.FitPowerLaw(squares, spectrum.Continuous)
	if !ok || math.IsInf(law.Alpha, 0) || math.IsNaN(law.Alpha) {
		return nil
	}
	tails := law.Compare(squares)
	r.PowerLaw = &PowerLaw{Xmin: law.Xmin, Alpha: law.Alpha, Error: law.Error, KS: law.KS, Tail: law.Tail,
		Exponential: finite(tails.Exponential.LogRatio), Lognormal: finite(tails.Lognormal.LogRatio), Fits: tails.Fits}
	if s.opt.Bootstrap > 0 {
		p, err := law.Goodness(s.ctx, squares, s.opt.Bootstrap, bootstrapSeed)
		if err != nil {
			return err
		}
		r.PowerLaw.P = &p
	}
	return nil
}

// finite keeps numbers that JSON knows.
func finite(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return min(max(v, -math.MaxFloat64), math.MaxFloat64)
}

// residual compares the two ways to store the matrix, where rows divide into blocks and there are bits for a rank.
func (s *survey) residual(x *inspect.Matrix, r *Result, opt linalg.Options) error {
	o := s.opt.Residual
	if o == nil || x.Cols%o.Rest.BlockElems() != 0 || x.Cols%o.Plain.BlockElems() != 0 {
		return nil
	}
	rank := spectrum.EqualRank(x.Rows, x.Cols, o.Rest, o.Plain)
	if rank == 0 {
		return nil
	}
	opt.At = nil
	values, left, right, err := linalg.Leading(s.ctx, x.Floats(), rank, opt)
	if err != nil {
		return err
	}
	res, err := spectrum.ResidualOf(rowsOf(x), spectrum.Leading{Values: values, Left: left, Right: right}, rank, o.Rest, o.Plain)
	if err != nil {
		return err
	}
	r.Residual = &Residual{rank, o.Rest.String(), o.Plain.String(), res.Split.Bits, res.Split.Error, res.Plain.Bits, res.Plain.Error}
	return nil
}
