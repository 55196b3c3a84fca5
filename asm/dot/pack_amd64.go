//go:build !noasm

package dot

// packASM runs the assembly of a layout. Calls by name keep the operands on the stack.
func packASM(with Packer, l Layout, a *packArgs) {
	if with == PackAVX512 {
		switch l {
		case F32, BF16:
			packAVX512Words(a)
		case F16:
			packAVX512Halves(a)
		case Q8_0:
			packAVX512Q8_0(a)
		case Q4_0:
			packAVX512Q4_0(a)
		case Q4_1:
			packAVX512Q4_1(a)
		case Q5_0:
			packAVX512Q5_0(a)
		case Q5_1:
			packAVX512Q5_1(a)
		case Q4_K:
			packAVX512Q4_K(a)
		case Q5_K:
			packAVX512Q5_K(a)
		case Q6_K:
			packAVX512Q6_K(a)
		}
		return
	}
	switch l {
	case F32, BF16:
		packAVX2Words(a)
	case F16:
		packAVX2Halves(a)
	case Q8_0:
		packAVX2Q8_0(a)
	case Q4_0:
		packAVX2Q4_0(a)
	case Q4_1:
		packAVX2Q4_1(a)
	case Q5_0:
		packAVX2Q5_0(a)
	case Q5_1:
		packAVX2Q5_1(a)
	case Q4_K:
		packAVX2Q4_K(a)
	case Q5_K:
		packAVX2Q5_K(a)
	case Q6_K:
		packAVX2Q6_K(a)
	}
}
