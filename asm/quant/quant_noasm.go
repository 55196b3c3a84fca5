//go:build !amd64 || noasm

package quant

// Built tells that this program holds the assembly of W256 and W512.
const Built = false

const none = "quant: no assembly in this program"

// Run panics.
func (b *Block) Run(Width, Op) { panic(none) }

// Transpose panics.
func (b *Block) Transpose() { panic(none) }

// Run panics.
func (c *Codes) Run(Width, Coder) { panic(none) }

// Run panics.
func (s *Scan) Run() { panic(none) }
