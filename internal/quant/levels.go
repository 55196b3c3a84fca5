package quant

import "encoding/binary"

// levelled is a type whose elements are scale*level + offset, with one level for each code, where codes can be chosen
// one by one once a block has its scales. Such types can be quantized with error feedback.
type levelled struct {
	levels []float32                 // of the codes, ascending
	set    func(block, codes []byte) // replaces the codes of a block
	get    func(codes, block []byte) // reads them
}

// levelledTypes is a row for each such type.
var levelledTypes = map[Type]levelled{
	Q4_0:   {upFrom(-8, 16), func(b, c []byte) { setNibbles(b[2:], c) }, func(c, b []byte) { getNibbles(c, b[2:]) }},
	Q4_1:   {upFrom(0, 16), func(b, c []byte) { setNibbles(b[4:], c) }, func(c, b []byte) { getNibbles(c, b[4:]) }},
	Q5_0:   {upFrom(-16, 32), func(b, c []byte) { setFives(b[2:], c) }, func(c, b []byte) { getFives(c, b[2:]) }},
	Q5_1:   {upFrom(0, 32), func(b, c []byte) { setFives(b[4:], c) }, func(c, b []byte) { getFives(c, b[4:]) }},
	Q8_0:   {upFrom(-127, 255), setQ8_0, getQ8_0},
	IQ4_NL: {valuesIQ4[:], func(b, c []byte) { setNibbles(b[2:], c) }, func(c, b []byte) { getNibbles(c, b[2:]) }},
	Q2_K: {upFrom(0, 4), func(b, c []byte) { pack2(b[16:80], (*[256]byte)(c)) },
		func(c, b []byte) { get2(c, b[16:80]) }},
	Q3_K:   {upFrom(-4, 8), setQ3_K, getQ3_K},
	Q4_K:   {upFrom(0, 16), func(b, c []byte) { setQ4_K(b[16:144], c) }, func(c, b []byte) { getQ4_K(c, b[16:144]) }},
	Q5_K:   {upFrom(0, 32), func(b, c []byte) { setQ5_K(b[16:176], c) }, func(c, b []byte) { getQ5_K(c, b[16:176]) }},
	Q6_K:   {upFrom(-32, 64), func(b, c []byte) { packQ6K((*[192]byte)(b), (*[256]byte)(c)) }, getQ6_K},
	IQ4_XS: {valuesIQ4[:], setIQ4_XS, getIQ4_XS},
}

// Levels are the levels of the type's codes, ascending: an element is scale*level + offset, where the scales of the
// block say both. It is nil for types whose codes cannot be chosen one by one.
func (t Type) Levels() []float32 { return levelledTypes[t].levels }

// SetCodes replaces the codes of a block, one for each element, and leaves its scales. The type has Levels.
func SetCodes(t Type, block, codes []byte) { levelledTypes[t].set(block, codes) }

// GetCodes reads the codes of a block. The type has Levels.
func GetCodes(t Type, codes, block []byte) { levelledTypes[t].get(codes, block) }

// upFrom is n levels, each one above the one before.
func upFrom(low float32, n int) []float32 {
	levels := make([]float32, n)
	for i := range levels {
		levels[i] = low + float32(i)
	}
	return levels
}

// setNibbles writes 32 codes of 4 bits: the first 16 are the low nibbles.
func setNibbles(b, codes []byte) {
	for j := range 16 {
		b[j] = codes[j]&15 | codes[j+16]<<4
	}
}

// setFives writes 32 codes of 5 bits: the fifth bits, then the nibbles.
func setFives(b, codes []byte) {
	var h uint32
	for j, c := range codes {
		h |= uint32(c>>4&1) << j
	}
	binary.LittleEndian.PutUint32(b, h)
	setNibbles(b[4:], codes)
}

// setQ8_0 leaves out -128, which ggml never writes.
func setQ8_0(b, codes []byte) {
	for j, c := range codes {
		b[2+j] = c - 127
	}
}

// setQ3K writes the high bits and the low ones.
func setQ3_K(b, codes []byte) {
	clear(b[:32])
	for i, c := range codes {
		b[i%32] |= c >> 2 << (i / 32)
	}
	pack2(b[32:96], (*[256]byte)(codes))
}

func setQ4_K(qs, codes []byte) {
	for p := range 4 {
		c := codes[64*p:]
		for j := range 32 {
			qs[32*p+j] = c[j]&15 | c[j+32]<<4
		}
	}
}

// setQ5_K writes the fifth bits and the nibbles.
func setQ5_K(b, codes []byte) {
	qh := b[:32]
	clear(qh)
	for i, c := range codes {
		qh[i%32] |= c >> 4 & 1 << (i / 32)
	}
	setQ4_K(b[32:], codes)
}

func setIQ4_XS(b, codes []byte) {
	for s := range 8 {
		setNibbles(b[8+16*s:], codes[32*s:32*s+32])
	}
}

func getNibbles(codes, b []byte) {
	for j := range 16 {
		codes[j], codes[j+16] = b[j]&15, b[j]>>4
	}
}

func getFives(codes, b []byte) {
	h := binary.LittleEndian.Uint32(b)
	getNibbles(codes, b[4:])
	for j := range 32 {
		codes[j] |= byte(h>>j&1) << 4
	}
}

func getQ8_0(codes, b []byte) {
	for j := range 32 {
		codes[j] = b[2+j] + 127
	}
}

// get2 is the reverse of pack2.
func get2(codes, b []byte) {
	for p := range 2 {
		for j := range 32 {
			q := b[32*p+j]
			for k := range 4 {
				codes[128*p+32*k+j] = q >> (2 * k) & 3
			}
		}
	}
}

func getQ3_K(codes, b []byte) {
	get2(codes, b[32:96])
	for i := range 256 {
		codes[i] |= b[i%32] >> (i / 32) & 1 << 2
	}
}

func getQ4_K(codes, qs []byte) {
	for p := range 4 {
		for j := range 32 {
			codes[64*p+j], codes[64*p+j+32] = qs[32*p+j]&15, qs[32*p+j]>>4
		}
	}
}

func getQ5_K(codes, b []byte) {
	getQ4_K(codes, b[32:])
	for i := range 256 {
		codes[i] |= b[i%32] >> (i / 32) & 1 << 4
	}
}

func getQ6_K(codes, b []byte) {
	for p := range 2 {
		ql, qh := b[64*p:], b[128+32*p:]
		c := codes[128*p:]
		for j := range 32 {
			c[j] = ql[j]&15 | qh[j]&3<<4
			c[j+32] = ql[j+32]&15 | qh[j]>>2&3<<4
			c[j+64] = ql[j]>>4 | qh[j]>>4&3<<4
			c[j+96] = ql[j+32]>>4 | qh[j]>>6<<4
		}
	}
}

func getIQ4_XS(codes, b []byte) {
	for s := range 8 {
		getNibbles(codes[32*s:], b[8+16*s:])
	}
}
