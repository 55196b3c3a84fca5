//go:build !noasm

package elem

import (
	"testing"
	"unsafe"
)

// TestArgsOffsets compares the struct with the table of offsets in asm/_gen/elem.go.
func TestArgsOffsets(t *testing.T) {
	var a Args
	for name, o := range map[string][2]uintptr{
		"Dst": {unsafe.Offsetof(a.Dst), 0}, "A": {unsafe.Offsetof(a.A), 8}, "B": {unsafe.Offsetof(a.B), 16}, "C": {unsafe.Offsetof(a.C), 24},
		"D": {unsafe.Offsetof(a.D), 32}, "Sum": {unsafe.Offsetof(a.Sum), 40}, "N": {unsafe.Offsetof(a.N), 48}, "S": {unsafe.Offsetof(a.S), 56},
		"T": {unsafe.Offsetof(a.T), 60},
	} {
		if o[0] != o[1] {
			t.Errorf("%s is at %d, the generator takes %d", name, o[0], o[1])
		}
	}
}
