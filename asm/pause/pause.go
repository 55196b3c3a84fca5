// Package pause tells the core that the program is spinning.
package pause

// Spin executes n spin-wait hints; one is 3 to 45 ns, depending on the core:
//
//	for range n { pause() }
//
// The caller's loop must contain a stack check of its own: assembly cannot be preempted.
func Spin(n int) { spin(n) }
