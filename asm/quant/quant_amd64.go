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
	switch {
	case w == W512 && o == Stored:
		storedAVX512(c)
	case w == W512:
		searchedAVX512(c)
	case o == Stored:
		storedAVX2(c)
	default:
		searchedAVX2(c)
	}
}

// Run sets Magnitude and Any.
func (s *Scan) Run() { scanAVX2(s) }
