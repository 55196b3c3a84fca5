//go:build !noasm

package pause

//go:noescape
func spin(n int)
