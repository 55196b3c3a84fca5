package quant

import "encoding/binary"

// FirstNotFinite is the number of the first element of src, a float type's, that is infinite or NaN; -1 if there is
// none. Other types have -1: theirs are in the scales of blocks, which Decode shows.
func FirstNotFinite(t Type, src []byte) int {
	switch t {
	case F32:
		return firstAllOnes(src, 4, 0x7f80_0000_7f80_0000, 0x0080_0000_0080_0000, 0x8000_0000_8000_0000)
	case F16:
		return firstAllOnes(src, 2, 0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400, 0x8000_8000_8000_8000)
	case BF16:
		return firstAllOnes(src, 2, 0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080, 0x8000_8000_8000_8000)
	case F64:
		return firstAllOnes(src, 8, 0x7ff0_0000_0000_0000, 0x0010_0000_0000_0000, 0x8000_0000_0000_0000)
	}
	return -1
}

// firstAllOnes finds the first element of size bytes whose bits in mask, the exponent, are all ones: then adding the
// lowest of them carries into the sign. Eight bytes are looked at together; the carry stays within an element.
func firstAllOnes(src []byte, size int, mask, low, sign uint64) int {
	whole := len(src) &^ 7
	var last [8]byte
	copy(last[:], src[whole:])
	for at := 0; at <= whole; at += 8 {
		b := last[:]
		if at < whole {
			b = src[at:]
		}
		x := binary.LittleEndian.Uint64(b)
		if hit := (x&mask + low) & sign; hit != 0 {
			for i := 0; ; i++ {
				if hit>>(8*size*(i+1)-1)&1 != 0 {
					return at/size + i
				}
			}
		}
	}
	return -1
}
