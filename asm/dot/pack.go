package dot

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

var le = binary.LittleEndian

// Packer says which instructions pack panels. The bytes are the same.
type Packer uint8

const (
	PackGo Packer = iota // the definition
	PackAVX2
	PackAVX512 // F, BW
)

// Pack writes one panel of k elements along K (k a multiple of the source block) from source rows: row(r) is the bytes of row r,
// 0 <= r < rows, blocks as in GGUF files, or nil for a row of zeros. Rows from rows on are zeros too. dst is PanelBytes(k) long.
//
// Assembly takes the whole groups of panels that miss no row, if the rows lie at equal distances; Go does the rest.
func (l Layout) Pack(with Packer, dst []byte, k, rows int, row func(r int) []byte) {
	g := &geometries[l]
	dst = dst[:l.PanelBytes(k)]
	if k%g.blockK != 0 || rows > g.rows {
		panic(fmt.Sprintf("dot: %v panel of %d rows, %d elements", l, rows, k))
	}
	var src [64][]byte
	full, size, done := rows == g.rows, l.RowBytes(k), 0 // done: bytes of each row
	for r := range rows {
		if b := row(r); b != nil {
			src[r] = b[:size]
		} else {
			full = false
		}
	}
	if full && with != PackGo {
		if done = l.packGroups(with, dst, src[:rows]); done == size && k%g.kn == 0 {
			return
		}
	}
	step := l.RowBytes(g.groupK)
	i := done / step // the first group that is left
	if !full || k%g.kn != 0 {
		clear(dst[i*g.groupBytes:])
	}
	switch l {
	case F32:
		packWords(dst, src[:rows], i, k)
	case F16:
		packHalves(dst, src[:rows], i, k)
	case BF16:
		packWords(dst, src[:rows], i, k/2)
		if k%2 == 1 { // the last pair: its second half is zero
			at := dst[k/2*256:]
			for r, s := range src[:rows] {
				if s != nil {
					le.PutUint16(at[4*r:], le.Uint16(s[2*k-2:]))
				}
			}
		}
	default:
		for ; i < l.Groups(k); i++ {
			d := dst[i*g.groupBytes:][:g.groupBytes]
			for r, s := range src[:rows] {
				if s != nil {
					g.pack(d, s[i*step:min((i+1)*step, size)], r)
				}
			}
			if l == Q6_K {
				clear(d[3360:])
			}
		}
	}
}

// packArgs are the operands of packing assembly. All fields are eight bytes wide.
type packArgs struct {
	Src    unsafe.Pointer // the first group of row 0 of 16
	Stride int            // bytes from row to row
	Dst    unsafe.Pointer // the first group of the panel
	Groups int            // at least 1
	Pf     int            // prefetch distance in bytes
}

const (
	// packPart is how many bytes of a row are moved at a time where a panel has 64: the panel's part (32 KiB) is written in four turns.
	packPart = 512

	// packAhead is the most bytes that are prefetched; two panels if they are smaller. Rows follow each other in files, so the
	// place two panels on is read two calls later: a whole panel of prefetches in flight, which a distance within the rows does
	// not give (Q8_0, Q4_K of 2048 elements from memory: 28, 20 GB/s; 2 KiB ahead 20, 15).
	packAhead = 256 << 10
)

// packGroups packs whole groups of a panel that has all rows, and returns how many bytes of each row it has taken.
func (l Layout) packGroups(with Packer, dst []byte, src [][]byte) int {
	size, base := len(src[0]), uintptr(unsafe.Pointer(unsafe.SliceData(src[0])))
	if size == 0 {
		return 0
	}
	stride := uintptr(unsafe.Pointer(unsafe.SliceData(src[1]))) - base
	for r, s := range src {
		if uintptr(unsafe.Pointer(unsafe.SliceData(s))) != base+uintptr(r)*stride {
			return 0
		}
	}
	a := packArgs{Stride: int(stride)}
	if len(src) == 16 {
		step := l.RowBytes(geometries[l].groupK)
		if a.Groups = size / step; a.Groups > 0 {
			a.Src, a.Dst, a.Pf = unsafe.Pointer(&src[0][0]), unsafe.Pointer(&dst[0]), min(32*max(int(stride), 0), packAhead)
			packASM(with, l, &a)
		}
		return a.Groups * step
	}
	// 64 rows: 16 at a time, a part of them that stays in the first cache.
	size &^= 15
	width := 4 // bytes of a row in a group
	if l == F16 {
		width = 2
	}
	for at := 0; at < size; at += packPart {
		for r := 0; r < 64; r += 16 {
			a.Src, a.Dst = unsafe.Pointer(&src[r][at]), unsafe.Pointer(&dst[64*at+width*r])
			a.Groups, a.Pf = (min(packPart, size-at))/16, packPart
			packASM(with, l, &a)
		}
	}
	return size
}

// packChunk is how many bytes of a row are moved at a time: the part of the panel that is being written (64 times as much) and
// the lines read stay in the first cache.
const packChunk = 256

// packWords interleaves words i to n of 64 rows of 4-byte words: word i of row r at 256i+4r. Two rows go together, where there are two.
func packWords(dst []byte, src [][]byte, i, n int) {
	for ; i < n; i += packChunk / 4 {
		e := min(i+packChunk/4, n)
		for r := 0; r < len(src); r += 2 {
			a, d := src[r], dst[256*i+4*r:]
			if r+1 < len(src) && a != nil && src[r+1] != nil {
				packPair(d, a[4*i:4*e], src[r+1][4*i:4*e])
				continue
			}
			packRow(d, a, i, e)
			if r+1 < len(src) {
				packRow(d[4:], src[r+1], i, e)
			}
		}
	}
}

// packPair stores the words of a and b, which are as long, 256 bytes apart.
func packPair(d, a, b []byte) {
	for len(a) >= 8 && len(b) >= 8 && len(d) >= 264 {
		x, y := le.Uint64(a), le.Uint64(b)
		le.PutUint64(d, x&0xffffffff|y<<32)
		le.PutUint64(d[256:], x>>32|y&^0xffffffff)
		a, b = a[8:], b[8:]
		d = d[min(512, len(d)):]
	}
	if len(a) > 0 {
		le.PutUint32(d, le.Uint32(a))
		le.PutUint32(d[4:], le.Uint32(b))
	}
}

// packRow stores words i to e of s 256 bytes apart.
func packRow(d, s []byte, i, e int) {
	for j := i; s != nil && j < e; j++ {
		le.PutUint32(d[256*(j-i):], le.Uint32(s[4*j:]))
	}
}

// packHalves interleaves elements i to k of 64 rows of 2-byte elements: element i of row r at 128i+2r; two rows and two elements at a
// time.
func packHalves(dst []byte, src [][]byte, i, k int) {
	for ; i < k; i += packChunk / 2 {
		e := min(i+packChunk/2, k)
		for r := 0; r < len(src); r += 2 {
			a := src[r]
			var b []byte
			if r+1 < len(src) {
				b = src[r+1]
			}
			if a == nil || b == nil || e-i < 2 {
				for h, s := range [2][]byte{a, b} {
					for j := i; s != nil && j < e; j++ {
						le.PutUint16(dst[128*j+2*(r+h):], le.Uint16(s[2*j:]))
					}
				}
				continue
			}
			j := i
			for ; j+2 <= e; j += 2 {
				x, y, d := le.Uint32(a[2*j:]), le.Uint32(b[2*j:]), dst[128*j+2*r:]
				le.PutUint32(d, x&0xffff|y<<16)
				le.PutUint32(d[128:], x>>16|y&0xffff0000)
			}
			if j < e {
				le.PutUint32(dst[128*j+2*r:], uint32(le.Uint16(a[2*j:]))|uint32(le.Uint16(b[2*j:]))<<16)
			}
		}
	}
}

// putWords stores n 4-byte words of s one vector (64 bytes) apart, each XORed with x.
func putWords(d, s []byte, n int, x uint32) {
	_, _ = d[64*n-61], s[4*n-1]
	for i := 0; i < n; i++ {
		le.PutUint32(d[64*i:64*i+4], le.Uint32(s[4*i:4*i+4])^x)
	}
}

// The block of two K blocks of 32 may be cut short: the second one may be missing at the end of K.

// GGUF: d f16, 32 int8. The panel holds them unsigned, +128.
func packQ8_0(dst, src []byte, r int) {
	for b := 0; len(src) >= 34; b, src = b+1, src[34:] {
		le.PutUint16(dst[1024+32*b+2*r:], le.Uint16(src))
		putWords(dst[512*b+4*r:], src[2:34], 8, 0x80808080)
	}
}

// GGUF: d f16, 16 bytes; its nibble pairing (k, k+16) is the panel's too.
func packQ4_0(dst, src []byte, r int) {
	for b := 0; len(src) >= 18; b, src = b+1, src[18:] {
		le.PutUint16(dst[512+32*b+2*r:], le.Uint16(src))
		putWords(dst[256*b+4*r:], src[2:18], 4, 0)
	}
}

// GGUF: d, m f16, 16 bytes.
func packQ4_1(dst, src []byte, r int) {
	for b := 0; len(src) >= 20; b, src = b+1, src[20:] {
		le.PutUint16(dst[512+32*b+2*r:], le.Uint16(src))
		le.PutUint16(dst[576+32*b+2*r:], le.Uint16(src[2:]))
		putWords(dst[256*b+4*r:], src[4:20], 4, 0)
	}
}

// fifth rearranges the fifth bits of 32 elements: bit 4i+k of w becomes bit i of byte k.
func fifth(w uint32) (v uint32) {
	for k := range 4 {
		t := w >> k & 0x11111111
		t = (t | t>>3) & 0x03030303
		t = (t | t>>6) & 0x000f000f
		v |= (t | t>>12) & 0xff << (8 * k)
	}
	return v
}

// GGUF: d f16, fifth bits u32 (bit = element), 16 bytes.
func packQ5_0(dst, src []byte, r int) {
	for b := 0; len(src) >= 22; b, src = b+1, src[22:] {
		le.PutUint16(dst[640+32*b+2*r:], le.Uint16(src))
		le.PutUint32(dst[512+64*b+4*r:], fifth(le.Uint32(src[2:])))
		putWords(dst[256*b+4*r:], src[6:22], 4, 0)
	}
}

// GGUF: d, m f16, fifth bits u32, 16 bytes.
func packQ5_1(dst, src []byte, r int) {
	for b := 0; len(src) >= 24; b, src = b+1, src[24:] {
		le.PutUint16(dst[640+32*b+2*r:], le.Uint16(src))
		le.PutUint16(dst[704+32*b+2*r:], le.Uint16(src[2:]))
		le.PutUint32(dst[512+64*b+4*r:], fifth(le.Uint32(src[4:])))
		putWords(dst[256*b+4*r:], src[8:24], 4, 0)
	}
}

// packScales stores the K-quants' 8 scales and 8 minima of 6 bits (12 bytes: scales 0..3 and minima 0..3 in the low six bits
// of bytes 0..3, 4..7; scales and minima 4..7 in the nibbles of bytes 8..11 and the high bits of bytes 0..7): scale j of row r at
// 16j+r, minimum j at 128+32(j/2)+2r+j%2.
func packScales(d, s []byte, r int) {
	a, b, c := le.Uint32(s), le.Uint32(s[4:]), le.Uint32(s[8:12])
	sc := uint64(a&0x3f3f3f3f) | uint64(c&0x0f0f0f0f|a>>2&0x30303030)<<32
	m := uint64(b&0x3f3f3f3f) | uint64(c>>4&0x0f0f0f0f|b>>2&0x30303030)<<32
	d = d[:256]
	for j := range 8 {
		d[16*j+r] = byte(sc >> (8 * j))
	}
	for t := range 4 {
		le.PutUint16(d[128+32*t+2*r:], uint16(m>>(16*t)))
	}
}

// GGUF: d, dmin f16, scales[12], 128 bytes: 32 bytes hold sub-blocks 2p (low nibbles) and 2p+1.
func packQ4_K(dst, src []byte, r int) {
	src = src[:144]
	le.PutUint16(dst[2304+2*r:], le.Uint16(src))
	le.PutUint16(dst[2336+2*r:], le.Uint16(src[2:]))
	packScales(dst[2048:], src[4:16], r)
	putWords(dst[4*r:], src[16:], 32, 0)
}

// transpose8 transposes an 8x8 bit matrix: bit j of byte i becomes bit i of byte j (Hacker's Delight, 2nd ed., 7-3).
func transpose8(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00aa00aa00aa00aa
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000cccc0000cccc
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000f0f0f0f0
	return x ^ t ^ t<<28
}

// GGUF: d, dmin f16, scales[12], qh[32] (bit j of byte e: fifth bit of element e of sub-block j), 128 bytes as Q4_K.
func packQ5_K(dst, src []byte, r int) {
	src = src[:176]
	le.PutUint16(dst[2816+2*r:], le.Uint16(src))
	le.PutUint16(dst[2848+2*r:], le.Uint16(src[2:]))
	packScales(dst[2560:], src[4:16], r)
	putWords(dst[4*r:], src[48:], 32, 0)
	var high [8]uint32
	for k := range 4 {
		var x uint64 // bytes 4i+k
		for i := range 8 {
			x |= uint64(src[16+4*i+k]) << (8 * i)
		}
		x = transpose8(x)
		for j := range high {
			high[j] |= uint32(byte(x>>(8*j))) << (8 * k)
		}
	}
	for j, v := range high {
		le.PutUint32(dst[2048+64*j+4*r:], v)
	}
}

// GGUF: ql[128], qh[64], scales[16] int8, d f16. Of half n, the 128 elements in four runs c of 32: low nibbles of run c in nibble
// c/2 of ql[64n+32(c%2)..], high bits at 2c of qh[32n..].
func packQ6_K(dst, src []byte, r int) {
	src = src[:210]
	le.PutUint16(dst[3328+2*r:], le.Uint16(src[208:]))
	for j := range 16 {
		n, c, l := j/8, j/2%4, j%2*16
		ql, qh := src[64*n+32*(c%2)+l:][:16], src[128+32*n+l:][:16]
		a, b := le.Uint64(ql)>>(4*(c/2))&0x0f0f0f0f0f0f0f0f, le.Uint64(ql[8:])>>(4*(c/2))&0x0f0f0f0f0f0f0f0f
		x, y := le.Uint64(qh)>>(2*c)&0x0303030303030303, le.Uint64(qh[8:])>>(2*c)&0x0303030303030303
		d := dst[192*j+4*r : 192*j+4*r+132]
		le.PutUint32(d, uint32(a)|uint32(a>>28))
		le.PutUint32(d[64:], uint32(b)|uint32(b>>28))
		le.PutUint32(d[128:], uint32(x)|uint32(x>>30)|uint32(y)<<4|uint32(y>>26))
		dst[3072+16*j+r] = src[192+j]
	}
}

// GGUF: scales[16] (scale in the low nibble, minimum in the high one), qs[64], d, dmin f16. Sub-block j: half j/8 of qs, bits 2*(j%8/2), the
// first or second 16 bytes.
func packQ2_K(dst, src []byte, r int) {
	src = src[:84]
	le.PutUint16(dst[1280+2*r:], le.Uint16(src[80:]))
	le.PutUint16(dst[1312+2*r:], le.Uint16(src[82:]))
	for j, sc := range src[:16] {
		qs, shift := src[16+j/8*32+j%2*16:][:16], j%8/2*2
		const two = 0x03030303
		v := le.Uint32(qs)>>shift&two | le.Uint32(qs[4:])>>shift&two<<2 | le.Uint32(qs[8:])>>shift&two<<4 | le.Uint32(qs[12:])>>shift&two<<6
		le.PutUint32(dst[64*j+4*r:], v)
		dst[1024+16*j+r] = sc
	}
}

// packCode4 reads blocks of Code4Bytes: Code4, NVFP4.
func packCode4(dst, src []byte, r int) {
	src = src[:Code4Bytes]
	le.PutUint32(dst[2304+4*r:], le.Uint32(src))
	for j, sc := range src[4:20] {
		dst[2048+16*j+r] = sc
	}
	for i := range 32 { // 8 elements, in nibbles; their panel's word has element k in the low and 4+k in the high nibble of byte k
		v := le.Uint32(src[20+4*i:])
		lo, hi := v&0xffff, v>>16
		lo, hi = (lo|lo<<8)&0x00ff00ff, (hi|hi<<8)&0x00ff00ff
		lo, hi = (lo|lo<<4)&0x0f0f0f0f, (hi|hi<<4)&0x0f0f0f0f
		le.PutUint32(dst[64*i+4*r:], lo|hi<<4)
	}
}
