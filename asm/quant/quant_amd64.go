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
	if w == W512 {
		coders512[o](c)
	} else {
		coders256[o](c)
	}
}

var (
	coders512 = [...]func(*Codes){storedAVX512, searchedAVX512, codesIQ4AVX512, truncatedAVX512, codesFP4AVX512,
		awayAVX512}
	coders256 = [...]func(*Codes){storedAVX2, searchedAVX2, codesIQ4AVX2, truncatedAVX2, codesFP4AVX2,
		awayAVX2}
)

// Run sets Magnitude and Any.
func (s *Scan) Run() { scanAVX2(s) }
