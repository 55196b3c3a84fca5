//go:build !linux || !amd64 || noasm

package isa

const built = false

// Detect finds no features: this program holds no assembly that could use them.
func Detect() Features { return 0 }

// RequestAMX fails: this program holds no assembly.
func RequestAMX() error { return Check(AMX, 0) }
