//go:build !noasm

package isa

import (
	"fmt"
	"syscall"
	"unsafe"
)

// From asm/prctl.h and Documentation/x86/xstate.rst (Linux 5.16): the kernel's supported state components are the bits of XCR0.
const (
	archGetXcompSupp = 0x1021
	archReqXcompPerm = 0x1023
	xTileCfg         = 17
	xTileData        = 18
)

// tileState reports whether the kernel enabled both tile components in XCR0 and lends them to processes. Kernels that do not know
// arch_prctl for state components answer EINVAL.
func tileState() bool {
	var mask uint64
	_, _, e := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archGetXcompSupp, uintptr(unsafe.Pointer(&mask)), 0)
	const tiles = 1<<xTileCfg | 1<<xTileData
	return e == 0 && mask&tiles == tiles
}

// RequestAMX asks the kernel for the tile registers, for all threads of the process and once for its life. Without it the first tile
// instruction ends in SIGILL.
func RequestAMX() error {
	if f := Detect(); !f.Has(FeatAMXTile) {
		return Check(AMX, f)
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archReqXcompPerm, xTileData, 0); e != 0 {
		return fmt.Errorf("tier amx: the kernel refuses the tile registers: arch_prctl: %w", e)
	}
	return nil
}
