//go:build !noasm

package quant

// Built tells that this program holds the assembly of W256 and W512.
const Built = true

// Run does o with the vectors of w.
func (b *Block) Run(w Width, o Op) {
	if w == W512 {
		runAVX512(o, b)
	} else {
		runAVX2(o, b)
	}
}

// Transpose copies N elements of sixteen blocks at Src to Dst, one lane for each block.
func (b *Block) Transpose() { transposeAVX2(b) }

// Run makes the codes by o with the vectors of w.
func (c *Codes) Run(w Width, o Coder) {
	wide := w == W512
	switch {
	case wide && o == Stored:
		storedAVX512(c)
	case wide && o == Searched:
		searchedAVX512(c)
	case wide:
		codesIQ4AVX512(c)
	case o == Stored:
		storedAVX2(c)
	case o == Searched:
		searchedAVX2(c)
	default:
		codesIQ4AVX2(c)
	}
}

// Run sets Magnitude and Any.
func (s *Scan) Run() { scanAVX2(s) }
