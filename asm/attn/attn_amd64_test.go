//go:build !noasm

package attn

import (
	"testing"
	"unsafe"
)

// TestArgsOffsets compares the struct with the table of offsets in asm/_gen/attn.go, and the state with the generator's.
func TestArgsOffsets(t *testing.T) {
	var a Args
	for name, o := range map[string][2]uintptr{
		"K": {unsafe.Offsetof(a.K), 0}, "V": {unsafe.Offsetof(a.V), 8}, "Q": {unsafe.Offsetof(a.Q), 16}, "QStride": {unsafe.Offsetof(a.QStride), 24},
		"S": {unsafe.Offsetof(a.S), 32}, "O": {unsafe.Offsetof(a.O), 40}, "OStride": {unsafe.Offsetof(a.OStride), 48},
		"D": {unsafe.Offsetof(a.D), 56}, "NV": {unsafe.Offsetof(a.NV), 64}, "VStride": {unsafe.Offsetof(a.VStride), 72},
		"J0": {unsafe.Offsetof(a.J0), 80}, "J1": {unsafe.Offsetof(a.J1), 88}, "M": {unsafe.Offsetof(a.M), 96}, "Pf": {unsafe.Offsetof(a.Pf), 104},
		"KS": {unsafe.Offsetof(a.KS), 112}, "VS": {unsafe.Offsetof(a.VS), 120}, "VSStride": {unsafe.Offsetof(a.VSStride), 128},
		"CapIn": {unsafe.Offsetof(a.CapIn), 136}, "CapOut": {unsafe.Offsetof(a.CapOut), 140},
		"StateMax": {4 * StateMax, 0}, "StateAlpha": {4 * StateAlpha, 4}, "StateSum": {4 * StateSum, 64}, "StateOut": {4 * StateOut, 128},
	} {
		if o[0] != o[1] {
			t.Errorf("%s is at %d, the generator takes %d", name, o[0], o[1])
		}
	}
}
