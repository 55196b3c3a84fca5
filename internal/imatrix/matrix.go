// Package imatrix has importance matrices: of each matrix of a model the sums of squares of its inputs, column by
// column, over a text. They are gathered by an engine, read and written in both of llama.cpp's file forms, added up,
// and turned into the importances that quantizers take.
//
// Sums are made in float64, in the order of the text, one row after the other: the same bytes for any number of
// workers, any number of blocks in a walk, and after any interruption.
package imatrix

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"ck/internal/quant"
)

// DefaultBlock is the number of tokens of a block where nobody says another one, as in llama-imatrix.
const DefaultBlock = 512

// Entry is what was gathered of one matrix, or of one tensor of several matrices (experts).
type Entry struct {
	Name   string    // of the tensor, "blk.0.attn_q.weight"
	Sums   []float64 // of squares, by column; of several matrices in turn
	Counts []int64   // rows that went into the sums: of each matrix, or one number for all of them

	// Covariance is XᵀX of the inputs X, [columns][columns], row by row; nil unless it was asked for. Its diagonal is
	// Sums.
	Covariance []float64
}

// Matrix is an importance matrix.
type Matrix struct {
	Entries  []Entry  // by name
	Datasets []string // names of the texts
	Chunks   int      // blocks of text that were evaluated
	// ChunkSize is the tokens of a block. It is 0 where the file does not say, in the old form: counts are then
	// blocks, and sums the means times that.
	ChunkSize int

	// Of a matrix that is to be continued: what it was gathered from.
	Model string // identity of the model, as Options.Model
	Text  string // hash of the tokens so far
	Act   string // activations of the engine: auto or f32
	KV    string // type of the engine's cache
}

// Find is the entry of that name, nil if there is none.
func (m *Matrix) Find(name string) *Entry {
	i, ok := slices.BinarySearchFunc(m.Entries, name, func(e Entry,
		name string) int {
		return strings.Compare(e.Name, name)
	})
	if !ok {
		return nil
	}
	return &m.Entries[i]
}

// sort brings the entries into order.
func (m *Matrix) sort() {
	slices.SortFunc(m.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
}

// columns is how many sums share a count.
func (e *Entry) columns() int { return len(e.Sums) / len(e.Counts) }

// most is the largest count.
func (e *Entry) most() int64 { return slices.Max(e.Counts) }

// check says what is wrong with an entry.
func (e *Entry) check() error {
	if len(e.Sums) == 0 || len(e.Counts) == 0 || len(e.Sums)%len(e.Counts) != 0 {
		return fmt.Errorf("entry %.100q: %d sums and %d counts; sums must be a multiple of counts", e.Name,
			len(e.Sums), len(e.Counts))
	}
	for i, x := range e.Sums {
		if !(x >= 0 && x <= math.MaxFloat32) {
			return fmt.Errorf("entry %.100q: value %d is %g; sums of squares are finite and not negative", e.Name, i,
				x)
		}
	}
	for i, n := range e.Counts {
		if n < 0 {
			return fmt.Errorf("entry %.100q: count %d is %d", e.Name, i, n)
		}
	}
	return nil
}

// SizeError says that entries of one name have other sizes, so that they are not of one model.
type SizeError struct {
	Tensor     string
	Have, Want int    // values
	Of         string // what wants so many
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("tensor %s: the importance matrix has %d values, %s %d; it was made from another model",
		e.Tensor, e.Have, e.Of, e.Want)
}

// Add adds the sums and counts of o, which must be of the same model. Of a matrix in the old form, which does not
// know the tokens of a block, it takes the other's.
func (m *Matrix) Add(o *Matrix) error {
	for i := range o.Entries {
		e := &o.Entries[i]
		if have := m.Find(e.Name); have != nil {
			if len(have.Sums) != len(e.Sums) {
				return &SizeError{e.Name, len(e.Sums), len(have.Sums), "the one that it is added to"}
			}
			if a, b := len(have.Counts), len(e.Counts); a != b && a != 1 && b != 1 {
				return fmt.Errorf("tensor %s: %d counts in one matrix, %d in the other", e.Name, a, b)
			}
		}
	}
	scale, other := 1.0, 1.0
	switch {
	case m.ChunkSize == 0 && o.ChunkSize > 0:
		scale, m.ChunkSize = float64(o.ChunkSize), o.ChunkSize
	case m.ChunkSize > 0 && o.ChunkSize == 0:
		other = float64(m.ChunkSize)
	}
	for i := range m.Entries {
		m.Entries[i].scale(scale)
	}
	for i := range o.Entries {
		e := o.Entries[i].clone()
		e.scale(other)
		if have := m.Find(e.Name); have != nil {
			have.add(&e)
			continue
		}
		m.Entries = append(m.Entries, e)
		m.sort()
	}
	m.Datasets = append(slices.Clone(m.Datasets), o.Datasets...)
	m.Chunks = m.countChunks(m.Chunks + o.Chunks)
	return nil
}

// countChunks is how many blocks the counts make; known where they do not tell.
func (m *Matrix) countChunks(known int) int {
	if m.ChunkSize == 0 {
		return known
	}
	most := int64(0)
	for i := range m.Entries {
		most = max(most, m.Entries[i].most())
	}
	return int(most / int64(m.ChunkSize))
}

// clone is a copy that shares nothing.
func (e *Entry) clone() Entry {
	return Entry{e.Name, slices.Clone(e.Sums), slices.Clone(e.Counts), slices.Clone(e.Covariance)}
}

// scale multiplies sums and counts.
func (e *Entry) scale(by float64) {
	if by == 1 {
		return
	}
	for i := range e.Sums {
		e.Sums[i] *= by
	}
	for i := range e.Counts {
		e.Counts[i] *= int64(by)
	}
}

// add adds o, whose sizes fit. A covariance stays where both have one.
func (e *Entry) add(o *Entry) {
	for i, x := range o.Sums {
		e.Sums[i] += x
	}
	if len(e.Counts) == 1 && len(o.Counts) > 1 { // one count for all matrices: each has it
		e.Counts = slices.Repeat(e.Counts, len(o.Counts))
	}
	for i := range e.Counts {
		e.Counts[i] += o.Counts[i%len(o.Counts)]
	}
	if len(e.Covariance) != len(o.Covariance) {
		e.Covariance = nil
	}
	for i := range e.Covariance {
		e.Covariance[i] += o.Covariance[i]
	}
}

// Target is a tensor that is to be quantized.
type Target struct {
	Name     string
	Columns  int
	Matrices int // of a tensor with three dimensions; else 1
	Type     quant.Type
}

// ZeroError says that a type needs importances and that all of a matrix are zero.
type ZeroError struct {
	Tensor string
	Matrix int // of the tensor
	Type   quant.Type
}

func (e *ZeroError) Error() string {
	return fmt.Sprintf("tensor %s: all importances of matrix %d are zero, and %v needs some; "+
		"gather over more text or choose another type", e.Tensor, e.Matrix, e.Type)
}

// Weights are the importances of a tensor's columns, matrix by matrix, as llama-quantize makes them: the mean for
// each row that was counted; 1 where none was. They are nil if the matrix has no entry of the tensor, or one of
// another size for the embedding, which llama-quantize does without. Errors are *SizeError and *ZeroError.
func (m *Matrix) Weights(t Target) ([]float32, error) {
	e := m.Find(t.Name)
	if e == nil {
		return nil, nil
	}
	if want := t.Columns * t.Matrices; len(e.Sums) != want {
		if t.Name == "token_embd.weight" || t.Name == "per_layer_token_embd.weight" {
			return nil, nil
		}
		return nil, &SizeError{t.Name, len(e.Sums), want, "the tensor"}
	}
	w := e.means(m.ChunkSize == 0)
	if t.Type.NeedsImatrix() {
		for i := range t.Matrices {
			if !slices.ContainsFunc(w[i*t.Columns:][:t.Columns], func(x float32) bool { return x > 0 }) {
				return nil, &ZeroError{t.Name, i, t.Type}
			}
		}
	}
	return w, nil
}

// means divides sums by counts. Both and the quotient are float32, which decides over the bytes of what is quantized.
// In the old form values without a count stand for themselves.
func (e *Entry) means(old bool) []float32 {
	w := make([]float32, len(e.Sums))
	per := e.columns()
	for i, x := range e.Sums {
		switch n := e.Counts[i/per]; {
		case n > 0:
			w[i] = float32(x) / float32(n)
		case old:
			w[i] = float32(x)
		default:
			w[i] = 1
		}
	}
	return w
}
