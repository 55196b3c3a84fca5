//go:build !noasm

package dot

// packASM runs the assembly of a layout.
func packASM(with Packer, l Layout, a *packArgs) {
	if with == PackAVX512 {
		packAVX512(l, a)
	} else {
		packAVX2(l, a)
	}
}
