// Package difference says how two models differ: weights, what was done to them (a change of low rank, or of full), the
// vocabulary, metadata, the chat template. It prints nothing.
package difference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"ck/asm/mat"
	"ck/internal/distance"
	"ck/internal/facts"
	"ck/internal/inspect"
	"ck/internal/linalg"
	"ck/internal/quant"
	"ck/internal/spectrum"
)

// Options say what is compared.
type Options struct {
	Workers int
	Width   mat.Width
	Match   *regexp.Regexp // tensors; nil: all
	Rank    bool           // singular values of the differences
	Memory  int64          // bytes that may be taken; 0: unknown
	At      func(done float64)
}

// Report is how B differs from A.
type Report struct {
	Equal    int      `json:"equal_tensors"`
	Changed  []Change `json:"changed_tensors"`
	OnlyA    []string `json:"only_a"`
	OnlyB    []string `json:"only_b"`
	Shapes   []Shape  `json:"other_shapes"`
	Metadata []Key    `json:"metadata"`
	Tokens   *Tokens  `json:"tokens"` // null: equal
	Template string   `json:"chat_template_diff"`
}

// Same tells whether nothing differs.
func (r *Report) Same() bool {
	return len(r.Changed) == 0 && len(r.OnlyA) == 0 && len(r.OnlyB) == 0 && len(r.Shapes) == 0 && len(r.Metadata) == 0 && r.Tokens == nil && r.Template == ""
}

// Shape is a tensor that has another shape in B.
type Shape struct {
	Name string `json:"name"`
	A    []int  `json:"a"`
	B    []int  `json:"b"`
}

// Change is a tensor with other values in B.
type Change struct {
	Name   string   `json:"name"`
	Class  string   `json:"class"`
	A      string   `json:"type_a"`
	B      string   `json:"type_b"`
	Shape  []int    `json:"shape"`
	RMSE   float64  `json:"rmse"`
	Max    float64  `json:"max"`
	Share  *float64 `json:"change"` // norm of the difference over that of A; null: A is zero
	Failed string   `json:"error,omitempty"`
	Ranks  []Rank   `json:"ranks,omitempty"` // of each matrix of the tensor
	Left   string   `json:"rank_left_out,omitempty"`
}

// Kind says what a difference looks like.
type Kind string

const (
	LowRank   Kind = "low rank"           // a few directions, and what rounding to the type adds
	LowNoise  Kind = "low rank and noise" // a few directions, and more noise than rounding to the type
	FullRank  Kind = "full rank"          // many directions, as training of all weights leaves
	NoiseOnly Kind = "noise"              // no direction stands out
)

// Rank is the spectrum of one difference.
type Rank struct {
	Slice    int     `json:"slice"`
	Short    int     `json:"short_side"`
	Rank99   int     `json:"rank99"` // directions that hold 99 % of the energy
	Spikes   int     `json:"rank"`   // directions that noise does not explain
	Energy   float64 `json:"energy"` // share that these hold
	Noise    float64 `json:"noise"`  // standard deviation beside them
	Rounding float64 `json:"rounding"`
	Kind     Kind    `json:"kind"`
	Largest  float64 `json:"largest"`
}

// Key is a key of the metadata that differs. A and B are texts, "" where it is missing.
type Key struct {
	Name string `json:"key"`
	What string `json:"what"` // added, removed, changed
	A    string `json:"a,omitempty"`
	B    string `json:"b,omitempty"`
}

// Tokens is how the vocabularies differ.
type Tokens struct {
	CountA  int     `json:"count_a"`
	CountB  int     `json:"count_b"`
	Changed []Token `json:"changed"`
}

// Token is an id of which the token differs.
type Token struct {
	ID int32        `json:"id"`
	A  *facts.Token `json:"a"`
	B  *facts.Token `json:"b"`
}

// Of compares models.
func Of(ctx context.Context, a, b *inspect.Model, opt Options) (*Report, error) {
	if opt.At == nil {
		opt.At = func(float64) {}
	}
	r := &Report{Changed: []Change{}, OnlyA: []string{}, OnlyB: []string{}, Shapes: []Shape{}}
	total := int64(1)
	for _, t := range a.Tensors {
		total += int64(t.Rows()) * int64(t.Cols())
	}
	first := 1.0
	if opt.Rank {
		first = 0.2
	}
	match := func(name string) bool { return opt.Match == nil || opt.Match.MatchString(name) }
	d, err := distance.Of(ctx, a.Model, b.Model, distance.Options{Workers: opt.Workers, Shapes: true, Match: match,
		At: func(n int64) { opt.At(first * float64(n) / float64(total)) }})
	if err != nil {
		return nil, err
	}
	r.OnlyA, r.OnlyB = append(r.OnlyA, d.OnlyA...), append(r.OnlyB, d.OnlyB...)
	for _, s := range d.Shapes {
		r.Shapes = append(r.Shapes, Shape{s.Name, s.A, s.B})
	}
	for i := range d.Tensors {
		if err := r.add(a, b, &d.Tensors[i]); err != nil {
			return nil, err
		}
	}
	if opt.Rank {
		if err := r.ranks(ctx, a, b, opt); err != nil {
			return nil, err
		}
	}
	r.metadata(a, b)
	r.template(a, b)
	r.tokens(a, b)
	return r, nil
}

// add takes one distance over.
func (r *Report) add(a, b *inspect.Model, t *distance.Tensor) error {
	if t.Max == 0 && t.RMSE == 0 && t.A == t.B {
		r.Equal++
		return nil
	}
	c := Change{Name: t.Name, A: t.A.String(), B: t.B.String(), Shape: t.Shape, RMSE: t.RMSE, Max: t.Max}
	c.Class, _ = inspect.ClassOf(t.Name)
	if math.IsNaN(t.RMSE) || math.IsInf(t.RMSE, 0) {
		c.RMSE, c.Max = 0, 0
		var why []string
		for _, m := range []*inspect.Model{a, b} {
			x := m.Tensor(t.Name)
			whole := inspect.Matrix{Rows: x.Rows(), Cols: x.Cols(), Tensor: x}
			err := m.Guard(func() error {
				if at := inspect.WhereNotFinite(&whole); at != "" {
					why = append(why, fmt.Sprintf("%s: %s", m.Path, at))
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		c.Failed = strings.Join(why, "; ")
	} else if !math.IsInf(t.SNR, -1) {
		share := math.Pow(10, -t.SNR/20)
		c.Share = &share
	}
	r.Changed = append(r.Changed, c)
	return nil
}

// mostShort is the shorter side of the largest matrix of which the difference is decomposed.
const mostShort = 8192

// ranks decomposes the differences of matrices.
func (r *Report) ranks(ctx context.Context, a, b *inspect.Model, opt Options) error {
	total, done := 1.0, 0.0
	work := func(c *Change) float64 {
		n, m := float64(c.Shape[0]), float64(c.Shape[min(1, len(c.Shape)-1)])
		return n * m * min(n, m)
	}
	for i := range r.Changed {
		total += work(&r.Changed[i])
	}
	for i := range r.Changed {
		c := &r.Changed[i]
		if len(c.Shape) < 2 || c.Failed != "" || c.Max == 0 {
			continue
		}
		list, err := pairs(a, b, c.Name)
		if err != nil {
			return err
		}
		for k := range list {
			x, y := &list[k][0], &list[k][1]
			need := linalg.Auto.Memory(x.Rows, x.Cols)
			if short := min(x.Rows, x.Cols); short > mostShort {
				c.Left = fmt.Sprintf("its shorter side of %d is above %d", short, mostShort)
				break
			} else if opt.Memory > 0 && need > opt.Memory {
				c.Left = fmt.Sprintf("its singular values take %d MiB of memory, %d MiB can be had", need>>20, opt.Memory>>20)
				break
			}
			rank, err := rankOf(ctx, a, b, x, y, opt, func(share float64) {
				opt.At(0.2 + 0.8*(done+work(c)*(float64(k)+share)/float64(len(list)))/total)
			})
			if err != nil {
				return err
			}
			c.Ranks = append(c.Ranks, rank)
		}
		done += work(c)
	}
	return nil
}

// pairs lists the matrices of a tensor in both models.
func pairs(a, b *inspect.Model, name string) ([][2]inspect.Matrix, error) {
	only := regexp.MustCompile("^" + regexp.QuoteMeta(name) + "$")
	x, _, err := a.Matrices(only)
	if err != nil {
		return nil, err
	}
	y, _, err := b.Matrices(only)
	if err != nil || len(x) != len(y) {
		return nil, errors.Join(err, nil)
	}
	var list [][2]inspect.Matrix
	for i := range x {
		list = append(list, [2]inspect.Matrix{x[i], y[i]})
	}
	return list, nil
}

// rankOf decomposes y - x.
func rankOf(ctx context.Context, a, b *inspect.Model, x, y *inspect.Matrix, opt Options, at func(float64)) (Rank, error) {
	m := linalg.Matrix{Rows: x.Rows, Cols: x.Cols, Reader: func() func(i, from int, dst []float64) {
		xs, ys, buf := x.Reader(), y.Reader(), []float64(nil)
		return func(i, from int, dst []float64) {
			buf = slices.Grow(buf[:0], len(dst))[:len(dst)]
			xs.Part(i, from, buf)
			ys.Part(i, from, dst)
			for j, v := range buf {
				dst[j] -= v
			}
		}
	}}
	each := func(n int, f func(i int)) error { // within both models' guards
		return a.Each(ctx, n, opt.Workers, func(i int) error {
			return b.Guard(func() error {
				f(i)
				return nil
			})
		})
	}
	var values []float64
	err := a.Guard(func() error {
		return b.Guard(func() (err error) {
			values, err = linalg.SingularValues(ctx, m, linalg.Options{Each: each, Width: opt.Width, At: at})
			return err
		})
	})
	if err != nil {
		return Rank{}, err
	}
	r := Rank{Slice: x.Slice, Short: len(values), Largest: values[0], Rank99: spectrum.RankOf(values, 0.99)}
	if r.Rounding, err = rounding(ctx, b, y, opt.Workers); err != nil {
		return r, err
	}
	if other, err := rounding(ctx, a, x, opt.Workers); err != nil {
		return r, err
	} else if other > r.Rounding {
		r.Rounding = other
	}
	r.judge(x.Rows, x.Cols, values)
	return r, nil
}

// judge says what the spectrum looks like. Directions past the edge of the noise are the rank; where they are many, or
// hold little, the change is of full rank.
func (r *Rank) judge(rows, cols int, values []float64) {
	noise := spectrum.FitNoise(rows, cols, values)
	r.Noise, r.Spikes = noise.Deviation, noise.Spikes
	// Of a change without any noise the middle of the spectrum is zero, or rounding errors of the decomposition.
	floor := linalg.Auto.Of(rows, cols).Bound(0, values[0])
	if mid := values[len(values)/2]; mid <= floor {
		r.Noise, r.Spikes = 0, 0
		for r.Spikes < len(values) && values[r.Spikes] > floor {
			r.Spikes++
		}
	}
	r.Energy = spectrum.Kept(values, r.Spikes)
	few := r.Spikes <= max(1, r.Short/4)
	switch {
	case r.Spikes == 0:
		r.Kind = NoiseOnly
	case few && r.Noise <= 1.5*r.Rounding:
		r.Kind = LowRank
	case few && r.Energy >= 0.5:
		r.Kind = LowNoise
	default:
		r.Kind = FullRank
	}
	if r.Kind == NoiseOnly && r.Noise > 1.5*r.Rounding {
		r.Kind = FullRank
	}
}

// significand is the bits behind the point of float types.
var significand = map[quant.Type]int{quant.F32: 23, quant.F16: 10, quant.BF16: 7, quant.F64: 52}

// rounding is the standard deviation that rounding to a matrix's type leaves in its elements: a twelfth of the square of
// the last digit, in the mean. 0 for quantized types, where it is not known.
func rounding(ctx context.Context, m *inspect.Model, x *inspect.Matrix, workers int) (float64, error) {
	bits, ok := significand[x.Tensor.Type]
	if !ok {
		return 0, nil
	}
	sums := make([]float64, x.Rows)
	const rows = 64
	err := m.Each(ctx, (x.Rows+rows-1)/rows, workers, func(k int) error {
		reader, row := x.Reader(), make([]float64, x.Cols)
		for i := k * rows; i < min((k+1)*rows, x.Rows); i++ {
			reader.Row64(i, row)
			for _, v := range row {
				if v != 0 {
					_, e := math.Frexp(v) // |v| is 0.5 to 1 times 2^e
					sums[i] += math.Ldexp(1, 2*(e-1-bits)) / 12
				}
			}
		}
		return nil
	})
	sum := 0.0
	for _, s := range sums {
		sum += s
	}
	return math.Sqrt(sum / float64(x.Size())), err
}

// ofVocabulary are keys of which the values are compared as tokens, or as the template.
var ofVocabulary = []string{"tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.chat_template"}

// metadata compares keys and values.
func (r *Report) metadata(a, b *inspect.Model) {
	r.Metadata = []Key{}
	for _, k := range a.KV.Keys() {
		if slices.Contains(ofVocabulary, k) {
			continue
		}
		x, y := a.KV.Value(k), b.KV.Value(k)
		switch {
		case y == nil:
			r.Metadata = append(r.Metadata, Key{Name: k, What: "removed", A: short(x)})
		case !same(x, y):
			key := Key{Name: k, What: "changed", A: short(x), B: short(y)}
			if n, all, ok := elements(x, y); ok {
				key.What = fmt.Sprintf("changed in %d of %d elements", n, all)
			}
			r.Metadata = append(r.Metadata, key)
		}
	}
	for _, k := range b.KV.Keys() {
		if a.KV.Value(k) == nil && !slices.Contains(ofVocabulary, k) {
			r.Metadata = append(r.Metadata, Key{Name: k, What: "added", B: short(b.KV.Value(k))})
		}
	}
}

// same compares values by their bits: NaN equals itself.
func same(x, y any) bool {
	return reflect.DeepEqual(x, y) || fmt.Sprintf("%T%#v", x, x) == fmt.Sprintf("%T%#v", y, y)
}

// elements counts the differences of arrays.
func elements(x, y any) (n, all int, ok bool) {
	u, v := reflect.ValueOf(x), reflect.ValueOf(y)
	if u.Kind() != reflect.Slice || v.Kind() != reflect.Slice {
		return 0, 0, false
	}
	all = max(u.Len(), v.Len())
	for i := range all {
		if i >= u.Len() || i >= v.Len() || !same(u.Index(i).Interface(), v.Index(i).Interface()) {
			n++
		}
	}
	return n, all, true
}

// short is a value in at most 60 characters.
func short(v any) string {
	s := fmt.Sprint(v)
	if r := []rune(s); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return s
}

// template compares the chat templates line by line.
func (r *Report) template(a, b *inspect.Model) {
	x, _, errX := a.KV.String("tokenizer.chat_template")
	y, _, errY := b.KV.String("tokenizer.chat_template")
	if errX != nil || errY != nil {
		return // no templates; the keys differ where the files do
	}
	if x != y {
		end := func(s string) []byte { return []byte(strings.TrimSuffix(s, "\n") + "\n") }
		if r.Template = string(diff.Diff("A", end(x), "B", end(y))); r.Template == "" {
			r.Template = "the last line ends otherwise\n"
		}
	}
}

// tokens compares the vocabularies id by id.
func (r *Report) tokens(a, b *inspect.Model) {
	x, _ := facts.VocabularyOf(a.KV)
	y, _ := facts.VocabularyOf(b.KV)
	length := func(v *facts.Vocabulary) int {
		if v == nil {
			return 0
		}
		return v.Len()
	}
	t := &Tokens{CountA: length(x), CountB: length(y)}
	for id := range int32(max(t.CountA, t.CountB)) {
		var u, v *facts.Token
		if int(id) < t.CountA {
			k := x.Token(id)
			u = &k
		}
		if int(id) < t.CountB {
			k := y.Token(id)
			v = &k
		}
		if u == nil || v == nil || u.Piece != v.Piece || u.Type != v.Type || !sameScore(u.Score, v.Score) {
			t.Changed = append(t.Changed, Token{id, u, v})
		}
	}
	if len(t.Changed) > 0 {
		r.Tokens = t
	}
}

func sameScore(a, b *float32) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
