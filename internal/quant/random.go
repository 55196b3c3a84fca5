package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
)

// RandomBlocks fills dst with blocks of type t for tests and synthetic models, len(dst) a multiple of the block's
// size.
//
// F32, F16 and BF16 elements are gaussian of deviation sigma. Blocks of other types have uniformly random codes, as
// far as quantizers write them, and scales that vary by a quarter (in sign too, where quantizers do that) such that
// the elements have about deviation sigma and mean 0; the powers of two of MXFP4 and the scales of NVFP4 come as near
// as they can. Integers are random bits. The bytes depend on t, len(dst), sigma and the state of rng only.
func RandomBlocks(t Type, dst []byte, rng *rand.Rand, sigma float32) {
	r := t.row()
	if r.elems == 0 || len(dst)%r.bytes != 0 {
		panic(fmt.Sprintf("quant: %v: %d bytes of random blocks, a block has %d", t, len(dst), r.bytes))
	}
	switch t {
	case F32, F16, BF16:
		var buf [512]float32
		for len(dst) > 0 {
			n := min(len(buf), len(dst)/r.bytes)
			gaussian(buf[:n], rng, sigma)
			r.quantize(dst, buf[:n], nil)
			dst = dst[n*r.bytes:]
		}
		return
	}
	randomBytes(dst, rng)
	if r.scale == nil {
		return
	}
	for len(dst) >= r.bytes {
		r.scale(dst[:r.bytes:r.bytes], sigma)
		dst = dst[r.bytes:]
	}
}

func randomBytes(b []byte, rng *rand.Rand) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, rng.Uint64())
		b = b[8:]
	}
	for r := rng.Uint64(); len(b) > 0; r >>= 8 {
		b[0], b = byte(r), b[1:]
	}
}

// quantiles are those of the normal distribution at the edges of 2048 equal shares, the outermost moved in by a
// quarter.
var quantiles = sync.OnceValue(func() *[2049]float32 {
	var q [2049]float32
	for i := range q {
		p := min(max(float64(i), 0.25), 2047.75) / 2048
		q[i] = float32(math.Sqrt2 * math.Erfinv(2*p-1))
	}
	return &q
})

// gaussian fills x by interpolation in the table of quantiles, several times faster than rng.NormFloat64; the largest
// magnitude is 3.7 sigma.
func gaussian(x []float32, rng *rand.Rand, sigma float32) {
	q := quantiles()
	draw := func(r uint32) float32 {
		i, f := r>>21, float32(r&(1<<21-1))/(1<<21)
		return sigma * (q[i] + float32(f*(q[i+1]-q[i])))
	}
	for len(x) >= 2 {
		r := rng.Uint64()
		x[0], x[1] = draw(uint32(r)), draw(uint32(r>>32))
		x = x[2:]
	}
	if len(x) > 0 {
		x[0] = draw(rng.Uint32())
	}
}

// jitter makes a random byte a factor from 0.75 to 1.25.
func jitter(r byte) float32 { return 0.75 + float32(r)/512 }

// randomScale replaces the random bytes at the start of b by an F16 scale of about d and returns it.
func randomScale(b []byte, d float32) float32 {
	d *= jitter(b[0])
	putF16(b, d)
	return d
}

// randomSignedScale is randomScale with either sign.
func randomSignedScale(b []byte, d float32) {
	if b[1]&1 != 0 {
		d = -d
	}
	randomScale(b, d)
}

// noMin8 makes -128, which no quantizer writes to 8-bit elements, -127. len(b) is a multiple of 8.
func noMin8(b []byte) {
	const ones = 0x0101010101010101
	for ; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		// The top bit of each byte of z that is 0x80 in x; a borrow may mark 0x81 too, whose low bit is set already.
		t := x ^ ones<<7
		z := (t - ones) &^ t & (ones << 7)
		binary.LittleEndian.PutUint64(b, x|z>>7)
	}
}
