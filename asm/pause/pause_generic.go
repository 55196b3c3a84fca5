//go:build !amd64 || noasm

package pause

// spin passes about the time that the hint would take; the core is not told.
func spin(n int) {
	for range n {
		wait(20)
	}
}

//go:noinline
func wait(n int) {
	for range n {
	}
}
