package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

func TestFirstNotFinite(t *testing.T) {
	bad := map[Type][]uint64{
		F32:  {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff},
		F16:  {0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff},
		BF16: {0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff},
		F64: {math.Float64bits(math.Inf(1)), math.Float64bits(math.Inf(-1)), math.Float64bits(math.NaN()),
			0xffffffffffffffff},
	}
	largest := map[Type]uint64{F32: 0x7f7fffff, F16: 0x7bff, BF16: 0x7f7f, F64: 0x7fefffffffffffff}
	rng := rand.New(rand.NewPCG(1, 2))
	for typ, values := range bad {
		size := typ.BlockBytes()
		put := func(b []byte, i int, v uint64) {
			var w [8]byte
			binary.LittleEndian.PutUint64(w[:], v)
			copy(b[i*size:(i+1)*size], w[:size])
		}
		for n := range 40 {
			b := make([]byte, n*size)
			for i := range n {
				put(b, i, largest[typ]|rng.Uint64()&1<<(8*size-1))
			}
			if got := FirstNotFinite(typ, b); got != -1 {
				t.Fatalf("%v: %d finite elements: %d", typ, n, got)
			}
			for at := range n {
				for _, v := range values {
					c := append([]byte(nil), b...)
					put(c, at, v)
					if at+3 < n {
						put(c, at+3, v)
					}
					if got := FirstNotFinite(typ, c); got != at {
						t.Fatalf("%v: %x at %d of %d: %d", typ, v, at, n, got)
					}
				}
			}
		}
	}
	if got := FirstNotFinite(Q8_0, make([]byte, 34)); got != -1 {
		t.Errorf("a block type: %d", got)
	}
}
