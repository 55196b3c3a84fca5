//go:build !amd64 || noasm

package dot

// packASM is not reached: there is no assembly.
func packASM(Packer, Layout, *packArgs) { panic("dot: packing without assembly") }
