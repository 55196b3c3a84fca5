// Package entropycode stores rows of weights in fewer bytes without loss. The bytes of a block type are cut into
// planes by what they are (exponents, mantissas, codes, scales), and each plane is coded by its byte frequencies
// (Huffman, huff0), or kept where that saves less than one percent. Package entropy says what such a coder can reach.
//
// A chunk is its planes in order, each in pieces of at most 128 KiB: a word with the length and the form of the
// piece, then its bytes.
package entropycode

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/huff0"

	"ck/internal/quant"
)

// The forms of a piece.
const (
	kept   = 0 // its bytes
	huff   = 1 // coded
	repeat = 2 // one byte, which all are

	formBits = 2
)

const (
	pieceBytes = 128 << 10
	headBytes  = 4
)

// Coder codes and decodes chunks. It keeps memory between calls and serves one goroutine at a time.
type Coder struct {
	enc, dec huff0.Scratch
	buf      []byte
	from     [][]byte
}

// MaxBytes is what a chunk of n bytes of a type takes at most.
func MaxBytes(t quant.Type, n int) int {
	size := 0
	for _, p := range planes[t] {
		b := n / t.BlockBytes() * p.n
		size += b + (b+pieceBytes-1)/pieceBytes*headBytes
	}
	return size
}

// bytes is the buffer for planes.
func (c *Coder) bytes(n int) []byte {
	if cap(c.buf) < n {
		c.buf = make([]byte, n)
	}
	return c.buf[:n]
}

// Append appends the coded form of whole blocks to dst.
func (c *Coder) Append(dst []byte, t quant.Type, src []byte) []byte {
	buf := c.bytes(len(src))
	split(t, buf, src)
	for _, p := range planes[t] {
		n := len(src) / t.BlockBytes() * p.n
		for at := 0; at < n; at += pieceBytes {
			dst = c.piece(dst, buf[at:min(n, at+pieceBytes)])
		}
		buf = buf[n:]
	}
	return dst
}

// piece appends one piece.
func (c *Coder) piece(dst, src []byte) []byte {
	c.enc.Reuse = huff0.ReusePolicyNone
	out, _, err := huff0.Compress4X(src, &c.enc)
	form := uint32(huff)
	switch {
	case errors.Is(err, huff0.ErrUseRLE):
		form, out = repeat, src[:1]
	case err != nil || len(out) > len(src)-len(src)/100-1: // too short or too even to be coded
		form, out = kept, src
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(out))<<formBits|form)
	return append(dst, out...)
}

var errEnd = errors.New("ends within a piece")

// pieces calls f with the pieces of a coded chunk of n bytes: the number of their plane, the length of what they
// stand for.
func pieces(t quant.Type, n int, src []byte, f func(plane, n, form int, b []byte) error) error {
	for i, p := range planes[t] {
		left := n / t.BlockBytes() * p.n
		for left > 0 {
			if len(src) < headBytes {
				return errEnd
			}
			head := binary.LittleEndian.Uint32(src)
			size := int(head >> formBits)
			if src = src[headBytes:]; size > len(src) {
				return errEnd
			}
			of := min(left, pieceBytes)
			if err := f(i, of, int(head&(1<<formBits-1)), src[:size]); err != nil {
				return err
			}
			src, left = src[size:], left-of
		}
	}
	if len(src) > 0 {
		return fmt.Errorf("has %d bytes too many", len(src))
	}
	return nil
}

// Decode fills dst, whole blocks, from its coded form. Any src is allowed: an error says what is wrong with it.
func (c *Coder) Decode(dst []byte, t quant.Type, src []byte) error {
	buf := c.bytes(len(dst))
	c.from = c.from[:0]
	for range planes[t] {
		c.from = append(c.from, nil)
	}
	err := pieces(t, len(dst), src, func(i, n, form int, b []byte) error {
		out := buf[:n]
		buf = buf[n:]
		switch {
		case form == kept && len(b) == n:
			if n == len(dst)/t.BlockBytes()*planes[t][i].n {
				c.from[i] = b // all of the plane: taken as it lies
				return nil
			}
			copy(out, b)
		case form == repeat && len(b) == 1:
			for j := range out {
				out[j] = b[0]
			}
		case form == huff:
			if err := c.huffman(out, b); err != nil {
				return err
			}
		default:
			return fmt.Errorf("a piece of %d bytes has form %d and %d bytes", n, form, len(b))
		}
		if c.from[i] == nil {
			c.from[i] = out
			return nil
		}
		c.from[i] = c.from[i][:len(c.from[i])+n] // pieces of a plane lie behind one another
		return nil
	})
	if err != nil {
		return err
	}
	merge(t, dst, c.from)
	return nil
}

// huffman decodes one piece.
func (c *Coder) huffman(dst, src []byte) error {
	_, rest, err := huff0.ReadTable(src, &c.dec)
	if err != nil {
		return err
	}
	out, err := c.dec.Decoder().Decompress4X(dst[:len(dst):len(dst)], rest)
	if err == nil && len(out) != len(dst) {
		return fmt.Errorf("a piece has %d bytes, expected %d", len(out), len(dst))
	}
	return err
}

// Sizes adds the bytes of a coded chunk of n bytes by plane, as Parts names them: before and after. It looks at the
// lengths alone.
func Sizes(t quant.Type, n int, src []byte, before, after []int64) error {
	return pieces(t, n, src, func(i, n, _ int, b []byte) error {
		before[i] += int64(n)
		after[i] += int64(len(b)) + headBytes
		return nil
	})
}
