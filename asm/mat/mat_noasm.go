//go:build !amd64 || noasm

package mat

// Built tells that this program holds no assembly.
const Built = false

func add(Width, *args) { panic("mat: no assembly") }

func rows(Width, *rowArgs) { panic("mat: no assembly") }
