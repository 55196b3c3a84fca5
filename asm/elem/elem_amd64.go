//go:build !noasm

package elem

// Built tells that this program holds the assembly of W256 and W512.
const Built = true

func run(w Width, o op, a *Args) {
	if w == W512 {
		runAVX512(o, a)
	} else {
		runAVX2(o, a)
	}
}
