//go:build !amd64 || noasm

package elem

// Built tells that this program holds the assembly of W256 and W512.
const Built = false

func run(w Width, o op, a *Args) { panic("elem: no assembly in this program") }
