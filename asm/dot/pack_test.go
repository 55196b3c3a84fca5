package dot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ck/asm/half"
	"ck/internal/quant"
	"ck/internal/testkit"
)

// quantTypes are the block types of the layouts; Code4, MXFP4 and NVFP4 have blocks of their own.
var quantTypes = [Layouts]quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0, quant.Q4_1, quant.Q5_0, quant.Q5_1,
	quant.Q4_K, quant.Q5_K, quant.Q6_K, quant.Q2_K}

// codeValues are what indices of Code4 stand for in tests; both ends of int8 without -128, which no type has.
var codeValues = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 127}

// fp4Values are those of MXFP4.
var fp4Values = *quant.FP4Values()

// mini is scale s of NVFP4, by the words of the package comment.
func mini(s byte) float32 { return float32(math.Ldexp(1+float64(s%8)/8, int(s/8)-31)) }

// decode makes the weights of source blocks.
func decode(l Layout, dst []float32, src []byte) {
	if l == MXFP4 {
		for i := range dst {
			b, e := src[i/32*18:], i%32
			dst[i] = half.BF16ToF32(le.Uint16(b)) * float32(fp4Values[b[2+e%16]>>(e/16*4)&15])
		}
		return
	}
	if l != Code4 && l != NVFP4 {
		quant.Decode(quantTypes[l], dst, src)
		return
	}
	for i := range dst {
		b, e := src[i/256*Code4Bytes:], i%256
		q := b[20+e/2] >> (e % 2 * 4) & 15
		if l == NVFP4 {
			dst[i] = math.Float32frombits(le.Uint32(b)) * mini(b[4+e/16]) * float32(fp4Values[q])
			continue
		}
		dst[i] = math.Float32frombits(le.Uint32(b)) * float32(int8(b[4+e/16])) * float32(codeValues[q])
	}
}

// weight reads element k of row r from a panel, by the words of the package comment.
func weight(l Layout, p []byte, r, k int) float32 {
	f16 := func(b []byte, at int) float32 { return half.F16ToF32(le.Uint16(b[at:])) }
	switch l {
	case F32:
		return math.Float32frombits(le.Uint32(p[256*k+4*r:]))
	case F16:
		return f16(p, 128*k+2*r)
	case BF16:
		return half.BF16ToF32(le.Uint16(p[256*(k/2)+4*r+2*(k%2):]))
	}
	gk := l.GroupK()
	g, e := p[k/gk*l.GroupBytes():], k%gk
	b, i := e/32, e%32          // K block or sub-block of 32, element in it
	nib := func(base int) int { // nibbles of a block of 32: low 0..15, high 16..31
		return int(g[base+i%16/4*64+4*r+i%4]>>(i/16*4)) & 15
	}
	fifth := func(base int) int { return int(g[base+4*r+i%4]>>(i/4)&1) << 4 }
	switch l {
	case Q8_0:
		return float32(int(g[e/4*64+4*r+e%4])-128) * f16(g, 1024+32*b+2*r)
	case Q4_0:
		return float32(nib(256*b)-8) * f16(g, 512+32*b+2*r)
	case MXFP4:
		return float32(fp4Values[nib(256*b)]) * half.BF16ToF32(le.Uint16(g[512+32*b+2*r:]))
	case Q4_1:
		return float32(float32(nib(256*b))*f16(g, 512+32*b+2*r)) + f16(g, 576+32*b+2*r)
	case Q5_0:
		return float32(nib(256*b)+fifth(512+64*b)-16) * f16(g, 640+32*b+2*r)
	case Q5_1:
		return float32(float32(nib(256*b)+fifth(512+64*b))*f16(g, 640+32*b+2*r)) + f16(g, 704+32*b+2*r)
	case Q4_K, Q5_K:
		q, s := int(g[b/2*512+i/4*64+4*r+i%4]>>(b%2*4)&15), 2048
		if l == Q5_K {
			q, s = q+fifth(2048+64*b), 2560
		}
		d, m := f16(g, s+256+2*r)*float32(g[s+16*b+r]), f16(g, s+288+2*r)*float32(g[s+128+32*(b/2)+2*r+b%2])
		return float32(d*float32(q)) - m
	case Q6_K:
		j, t := e/16, e%16/4
		q := g[192*j+t/2*64+4*r+e%4]>>(t%2*4)&15 | g[192*j+128+4*r+e%4]>>(2*t)&3<<4
		return f16(g, 3328+2*r) * float32(int8(g[3072+16*j+r])) * float32(int(q)-32)
	case Q2_K:
		j := e / 16
		q, sc := g[64*j+4*r+e%4]>>(e%16/4*2)&3, g[1024+16*j+r]
		d, m := f16(g, 1280+2*r)*float32(sc&15), f16(g, 1312+2*r)*float32(sc>>4)
		return float32(d*float32(q)) - m
	case Code4, NVFP4:
		j := e / 16
		q := g[128*j+e%16/8*64+4*r+e%4] >> (e / 4 % 2 * 4) & 15
		if l == NVFP4 {
			return math.Float32frombits(le.Uint32(g[2304+4*r:])) * mini(g[2048+16*j+r]) * float32(fp4Values[q])
		}
		return math.Float32frombits(le.Uint32(g[2304+4*r:])) * float32(int8(g[2048+16*j+r])) * float32(codeValues[q])
	}
	panic(l)
}

func TestPackHoldsTheWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for l := range Layouts {
		for _, k := range []int{1, 2, 3, 31, 32, 33, 64, 65, 96, 129, 256, 768} {
			if k%geometries[l].blockK != 0 {
				continue
			}
			for _, rows := range []int{1, 5, l.Rows() - 1, l.Rows()} {
				t.Run(fmt.Sprintf("%v/k=%d/rows=%d", l, k, rows), func(t *testing.T) { testPack(t, rng, l, k, rows) })
			}
		}
	}
}

func testPack(t *testing.T, rng *rand.Rand, l Layout, k, rows int) {
	size := l.RowBytes(k)
	if l < Code4 && size != quantTypes[l].RowBytes(k) {
		t.Fatalf("a row has %d bytes, quant says %d", size, quantTypes[l].RowBytes(k))
	}
	src := make([][]byte, rows)
	for r := range src {
		if rows > 1 && r == rows/2 {
			continue // a nil row among them
		}
		src[r] = testkit.Guarded[byte](t, size)
		for i := range src[r] {
			src[r][i] = byte(rng.Uint32()) & 0x3f // halves stay finite
		}
	}
	dst := testkit.Guarded[byte](t, l.PanelBytes(k))
	for i := range dst {
		dst[i] = 0xaa
	}
	l.Pack(PackGo, dst, k, rows, func(r int) []byte { return src[r] })
	for r := range l.Rows() {
		want := make([]float32, k)
		if r < rows && src[r] != nil {
			decode(l, want, src[r])
		}
		for i, w := range want {
			if got := weight(l, dst, r, i); got != w {
				t.Fatalf("row %d element %d: %g, want %g", r, i, got, w)
			}
		}
	}
	// Nothing is left as it was: with 0xaa before, every byte of padding must be 0.
	again := make([]byte, len(dst))
	l.Pack(PackGo, again, k, rows, func(r int) []byte { return src[r] })
	if string(again) != string(dst) {
		t.Fatal("some bytes of the panel were not written")
	}
}
