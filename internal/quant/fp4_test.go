package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"ck/asm/half"
)

// The rewritten blocks of 4-bit floats hold what Decode gives, bit for bit but for the sign of zeros: every scale, every code at every place,
// and rows that end within a block of codes.
func TestFP4Rewritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 21))
	for scale := range 256 {
		for _, elems := range []int{64, 192, 256, 320, 512} {
			src := make([]byte, elems/64*36)
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			for i := 0; i < len(src); i += 36 {
				src[i+rng.IntN(4)] = byte(scale)
			}
			want := make([]float32, elems)
			Decode(NVFP4, want, src)
			blocks := make([]byte, (elems+255)/256*CodeBytes)
			for i := range blocks {
				blocks[i] = 0xaa
			}
			FP4Codes(NVFP4, blocks, src)
			for i := range len(blocks) / CodeBytes * 256 {
				b, e := blocks[i/256*CodeBytes:], i%256
				s := b[4+e/16]
				got := math.Float32frombits(binary.LittleEndian.Uint32(b)) * float32(math.Ldexp(1+float64(s%8)/8, int(s/8)-31)) *
					float32(FP4Values()[b[20+e/2]>>(e%2*4)&15])
				if w := append(want, make([]float32, 256)...)[i]; got != w {
					t.Fatalf("scale %#x, %d elements: element %d is %g, want %g", scale, elems, i, got, w)
				}
			}
		}

		src := make([]byte, 17*2)
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		src[0] = byte(scale)
		want, blocks := make([]float32, 64), make([]byte, 36)
		Decode(MXFP4, want, src)
		FP4Blocks(MXFP4, blocks, src)
		for i, w := range want {
			b, e := blocks[i/32*18:], i%32
			got := half.BF16ToF32(binary.LittleEndian.Uint16(b)) * float32(FP4Values()[b[2+e%16]>>(e/16*4)&15])
			if got != w {
				t.Fatalf("MXFP4, scale %#x: element %d is %g, want %g", scale, i, got, w)
			}
		}
	}
	for _, c := range []struct{ dst, src int }{{CodeBytes, 0}, {CodeBytes, 35}, {CodeBytes, 180}, {CodeBytes + 1, 144}, {2 * CodeBytes, 144}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d bytes became %d", c.src, c.dst)
				}
			}()
			FP4Codes(NVFP4, make([]byte, c.dst), make([]byte, c.src))
		}()
	}
}
