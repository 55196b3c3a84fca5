//go:build !noasm

package mat

// Built tells that this program holds the assembly of W256 and W512.
const Built = true

func add(w Width, k *args) {
	if w == W512 {
		addAVX512(k)
	} else {
		addAVX2(k)
	}
}

func rows(w Width, k *rowArgs) {
	if w == W512 {
		rowsAVX512(k)
	} else {
		rowsAVX2(k)
	}
}
