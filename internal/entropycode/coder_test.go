package entropycode

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"ck/internal/quant"
	"ck/internal/testkit"
)

// sample is blocks of a type whose bytes are uneven: of floats normal values, of others small bytes among any.
func sample(t quant.Type, blocks int) []byte {
	rng := rand.New(rand.NewPCG(7, uint64(t)))
	b := make([]byte, blocks*t.BlockBytes())
	for i := range b {
		b[i] = byte(rng.Uint32()) >> (rng.Uint32() % 8)
	}
	switch t {
	case quant.F32:
		for i := range blocks {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(rng.NormFloat64())))
		}
	case quant.BF16:
		for i := range blocks {
			binary.LittleEndian.PutUint16(b[2*i:], uint16(math.Float32bits(float32(rng.NormFloat64()))>>16))
		}
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	var c Coder
	for i := range quant.Types {
		typ := quant.Type(i)
		if !typ.Known() {
			continue
		}
		for _, blocks := range []int{1, 2, 3, 7, 64, 1000, 70001/typ.BlockBytes() + 1, 300000 / typ.BlockBytes()} {
			zeros := make([]byte, blocks*typ.BlockBytes())
			for name, src := range map[string][]byte{"sample": sample(typ, blocks), "zeros": zeros} {
				coded := c.Append([]byte("x"), typ, src)[1:]
				if len(coded) > MaxBytes(typ, len(src)) {
					t.Errorf("%v, %d blocks of %s: %d bytes, at most %d were promised", typ, blocks, name, len(coded),
						MaxBytes(typ, len(src)))
				}
				got := make([]byte, len(src))
				if err := c.Decode(got, typ, coded); err != nil || !bytes.Equal(got, src) {
					t.Errorf("%v, %d blocks of %s: %v, differs from what was coded", typ, blocks, name, err)
				}
				before, after := make([]int64, len(Parts(typ))), make([]int64, len(Parts(typ)))
				err := Sizes(typ, len(src), coded, before, after)
				if err != nil || sum(before) != len(src) || sum(after) != len(coded) {
					t.Errorf("%v: sizes %v and %v of %d and %d bytes, %v", typ, before, after, len(src), len(coded), err)
				}
				for _, cut := range []int{0, 1, len(coded) / 2, len(coded) - 1} {
					if cut < len(coded) && c.Decode(got, typ, coded[:cut]) == nil {
						t.Errorf("%v: %d of %d bytes are no error", typ, cut, len(coded))
					}
				}
				if c.Decode(got, typ, append(bytes.Clone(coded), 0)) == nil {
					t.Errorf("%v: a byte too many is no error", typ)
				}
			}
		}
	}
}

func sum(list []int64) (n int) {
	for _, v := range list {
		n += int(v)
	}
	return n
}

// Each byte of a block is in one plane.
func TestPlanes(t *testing.T) {
	for i := range quant.Types {
		typ := quant.Type(i)
		if !typ.Known() {
			continue
		}
		seen := make([]int, typ.BlockBytes())
		for _, p := range planes[typ] {
			for j := range p.n {
				seen[p.at+j*p.step]++
			}
		}
		for at, n := range seen {
			if n != 1 {
				t.Errorf("%v: byte %d is in %d planes", typ, at, n)
			}
		}
	}
}

// Normal values in BF16 take a third less, and nothing of it is the mantissa's.
func TestSaves(t *testing.T) {
	var c Coder
	src := sample(quant.BF16, 1<<16)
	before, after := make([]int64, 2), make([]int64, 2)
	if err := Sizes(quant.BF16, len(src), c.Append(nil, quant.BF16, src), before, after); err != nil {
		t.Fatal(err)
	}
	m, e := float64(after[0])/float64(before[0]), float64(after[1])/float64(before[1])
	if m < 1 || m > 1.001 || e < 0.3 || e > 0.36 {
		t.Errorf("the mantissa takes %.4f, the exponent %.4f of its bytes", m, e)
	}
}

// Any bytes are decoded, or an error; what is decoded can be coded.
func FuzzDecode(tf *testing.F) {
	f := testkit.Fuzz(tf)
	var c Coder
	for _, typ := range []quant.Type{quant.BF16, quant.Q8_0, quant.Q4_K} {
		f.Add(uint8(typ), uint16(64), c.Append(nil, typ, sample(typ, 64)))
	}
	f.Fuzz(func(t *testing.T, number uint8, blocks uint16, src []byte) {
		typ := quant.Type(number)
		if !typ.Known() {
			return
		}
		n := int(blocks%1024) * typ.BlockBytes()
		dst := make([]byte, n)
		if err := c.Decode(dst, typ, src); err != nil {
			return
		}
		again := make([]byte, n)
		if err := c.Decode(again, typ, c.Append(nil, typ, dst)); err != nil || !bytes.Equal(dst, again) {
			t.Errorf("%v: what was decoded does not come back: %v", typ, err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, typ := range []quant.Type{quant.BF16, quant.Q8_0, quant.Q4_K} {
		b.Run(typ.String(), func(b *testing.B) {
			var c Coder
			src := sample(typ, 262144/typ.BlockBytes())
			coded := c.Append(nil, typ, src)
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if err := c.Decode(src, typ, coded); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
