//go:build !noasm

package dot

// packASM runs the assembly of a layout. Calls by name keep the operands on the stack.
func packASM(with Packer, l Layout, a *packArgs) {
	if with == PackAVX512 {
		switch l {
		case F32, BF16:
			avx512PackWords(a)
		case F16:
			avx512PackHalves(a)
		case Q8_0:
			avx512PackQ8_0(a)
		case Q4_0:
			avx512PackQ4_0(a)
		case Q4_1:
			avx512PackQ4_1(a)
		case Q5_0:
			avx512PackQ5_0(a)
		case Q5_1:
			avx512PackQ5_1(a)
		case Q4_K:
			avx512PackQ4_K(a)
		case Q5_K:
			avx512PackQ5_K(a)
		case Q6_K:
			avx512PackQ6_K(a)
		case Q2_K:
			avx512PackQ2_K(a)
		case Code4:
			avx512PackCode4(a)
		}
		return
	}
	switch l {
	case F32, BF16:
		avx2PackWords(a)
	case F16:
		avx2PackHalves(a)
	case Q8_0:
		avx2PackQ8_0(a)
	case Q4_0:
		avx2PackQ4_0(a)
	case Q4_1:
		avx2PackQ4_1(a)
	case Q5_0:
		avx2PackQ5_0(a)
	case Q5_1:
		avx2PackQ5_1(a)
	case Q4_K:
		avx2PackQ4_K(a)
	case Q5_K:
		avx2PackQ5_K(a)
	case Q6_K:
		avx2PackQ6_K(a)
	case Q2_K:
		avx2PackQ2_K(a)
	case Code4:
		avx2PackCode4(a)
	}
}
