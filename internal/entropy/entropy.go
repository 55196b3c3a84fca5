// Package entropy says how many bits the weights of a model carry: for each part of a type, exponents, mantissas,
// codes, scales, the bits that are stored and the entropy of its symbols. The sum is what a coder that knows their
// frequencies, and no more, would need.
package entropy

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// Part is a part of a tensor's type.
type Part struct {
	Name    string  `json:"part"`
	Bits    float64 `json:"bits_per_weight"`    // as stored
	Entropy float64 `json:"entropy_per_weight"` // of its symbols, of order 0
}

// Tensor is the parts of a tensor.
type Tensor struct {
	Name    string     `json:"name"`
	Type    quant.Type `json:"-"`
	Weights int64      `json:"weights"`
	Parts   []Part     `json:"parts"`
}

// Bits and Entropy are the sums over the parts.
func (t *Tensor) Bits() (sum float64) {
	for _, p := range t.Parts {
		sum += p.Bits
	}
	return sum
}

func (t *Tensor) Entropy() (sum float64) {
	for _, p := range t.Parts {
		sum += p.Entropy
	}
	return sum
}

// part is how symbols of a part are counted: a block has so many, of so many bits each.
type part struct {
	name    string
	symbols int
	bits    int
	take    func(counts []int64, block []byte)
}

// partsOf is the parts of a type. Types without codes of their own are counted by bytes.
func partsOf(t quant.Type) []part {
	le := binary.LittleEndian
	switch t {
	case quant.F32:
		return []part{
			{"sign", 1, 1, func(n []int64, b []byte) { n[b[3]>>7]++ }},
			{"exponent", 1, 8, func(n []int64, b []byte) { n[le.Uint32(b)>>23&255]++ }},
			{"mantissa, upper", 1, 7, func(n []int64, b []byte) { n[le.Uint32(b)>>16&127]++ }},
			{"mantissa, lower", 1, 16, func(n []int64, b []byte) { n[le.Uint16(b)]++ }},
		}
	case quant.F16:
		return []part{
			{"sign", 1, 1, func(n []int64, b []byte) { n[b[1]>>7]++ }},
			{"exponent", 1, 5, func(n []int64, b []byte) { n[le.Uint16(b)>>10&31]++ }},
			{"mantissa", 1, 10, func(n []int64, b []byte) { n[le.Uint16(b)&1023]++ }},
		}
	case quant.BF16:
		return []part{
			{"sign", 1, 1, func(n []int64, b []byte) { n[b[1]>>7]++ }},
			{"exponent", 1, 8, func(n []int64, b []byte) { n[le.Uint16(b)>>7&255]++ }},
			{"mantissa", 1, 7, func(n []int64, b []byte) { n[le.Uint16(b)&127]++ }},
		}
	}
	elems, size := t.BlockElems(), t.BlockBytes()
	levels := t.Levels()
	if levels == nil {
		return []part{{"bytes", size, 8, func(n []int64, b []byte) {
			for _, c := range b[:size] {
				n[c]++
			}
		}}}
	}
	bits := 0
	for 1<<bits < len(levels) {
		bits++
	}
	zero := make([]byte, elems)
	var scales []int // bytes of a block that no code alters
	probe, other := make([]byte, size), make([]byte, size)
	for i := range probe {
		probe[i], other[i] = 0xff, 0
	}
	quant.SetCodes(t, probe, zero)
	quant.SetCodes(t, other, zero)
	for i := range probe {
		if probe[i] != other[i] {
			scales = append(scales, i)
		}
	}
	return []part{
		{"codes", elems, bits, func(n []int64, b []byte) {
			var codes [256]byte
			quant.GetCodes(t, codes[:elems], b)
			for _, c := range codes[:elems] {
				n[c]++
			}
		}},
		{"scales", len(scales), 8, func(n []int64, b []byte) {
			for _, i := range scales {
				n[b[i]]++
			}
		}},
	}
}

// Of measures all tensors of m, through workers goroutines. at is told how many weights are done.
func Of(ctx context.Context, m *gguf.Model, workers int, at func(weights int64)) ([]Tensor, error) {
	var list []Tensor
	done := int64(0)
	for _, t := range m.Tensors {
		x, err := ofTensor(ctx, m, t, workers)
		if err != nil {
			return nil, err
		}
		list = append(list, x)
		done += x.Weights
		at(done)
	}
	return list, nil
}

// chunkBytes is what a worker counts before it looks whether to go on.
const chunkBytes = 1 << 20

// ofTensor counts the symbols of a tensor.
func ofTensor(ctx context.Context, m *gguf.Model, t *gguf.Tensor, workers int) (Tensor, error) {
	if t.Make != nil {
		return Tensor{}, fmt.Errorf("tensor %s: is FP8 with scales, whose bits are not counted; convert the folder "+
			"first", t.Name)
	}
	parts := partsOf(t.Type)
	size := t.Type.BlockBytes()
	blocks := int(t.Bytes()) / size
	rowBlocks := blocks / t.Rows()
	total := make([][]int64, len(parts))
	for i, p := range parts {
		total[i] = make([]int64, 1<<p.bits)
	}
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	workers = max(1, min(workers, int(t.Bytes())/chunkBytes, t.Rows()))
	for n := range workers {
		wg.Go(func() {
			counts := make([][]int64, len(parts))
			for i := range parts {
				counts[i] = make([]int64, len(total[i]))
			}
			rows := t.Reader()
			from, to := t.Rows()*n/workers, t.Rows()*(n+1)/workers
			err := m.Guard(func() error {
				for from < to {
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					next := min(to, from+max(1, chunkBytes/(rowBlocks*size)))
					for b := range slices.Chunk(rows.Rows(from, next-from), size) {
						for i := range parts {
							parts[i].take(counts[i], b)
						}
					}
					from = next
				}
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = err
			}
			for i := range total {
				for j, c := range counts[i] {
					total[i][j] += c
				}
			}
		})
	}
	wg.Wait()
	out := Tensor{Name: t.Name, Type: t.Type, Weights: int64(blocks) * int64(t.Type.BlockElems())}
	for i, p := range parts {
		perWeight := float64(p.symbols) / float64(t.Type.BlockElems())
		out.Parts = append(out.Parts, Part{p.name, perWeight * float64(p.bits), perWeight * Bits(total[i])})
	}
	return out, failed
}

// Bits is the entropy of symbols with these counts, in bits a symbol.
func Bits(counts []int64) (bits float64) {
	n := int64(0)
	for _, c := range counts {
		n += c
	}
	for _, c := range counts {
		if c > 0 {
			p := float64(c) / float64(n)
			bits -= p * math.Log2(p)
		}
	}
	return bits
}
