//go:build !noasm

package isa

import "github.com/klauspost/cpuid/v2"

// built tells that this program holds assembly.
const built = true

// Detect reads the features of the CPU that runs it. It has no side effects; RequestAMX asks for what AMX needs beside.
func Detect() Features {
	var f Features
	// cpuid reports AVX, AVX-512 and AVX-VNNI only if XCR0 has their register state. FMA, F16C and BMI come without that check;
	// no tier uses them without AVX2.
	for _, x := range [...]struct {
		id  cpuid.FeatureID
		bit Features
	}{
		{cpuid.AVX2, FeatAVX2}, {cpuid.FMA3, FeatFMA}, {cpuid.F16C, FeatF16C}, {cpuid.BMI1, FeatBMI1}, {cpuid.BMI2, FeatBMI2},
		{cpuid.AVXVNNI, FeatAVXVNNI},
		{cpuid.AVX512F, FeatAVX512F}, {cpuid.AVX512BW, FeatAVX512BW}, {cpuid.AVX512DQ, FeatAVX512DQ},
		{cpuid.AVX512VL, FeatAVX512VL}, {cpuid.AVX512CD, FeatAVX512CD}, {cpuid.AVX512VNNI, FeatAVX512VNNI},
		{cpuid.AVX512BF16, FeatAVX512BF16}, {cpuid.AVX512FP16, FeatAVX512FP16},
		{cpuid.AMXTILE, FeatAMXTile}, {cpuid.AMXINT8, FeatAMXInt8}, {cpuid.AMXBF16, FeatAMXBF16},
	} {
		if cpuid.CPU.Has(x.id) {
			f |= x.bit
		}
	}
	// For the tiles cpuid looks at CPUID and at the AVX-512 state only: the kernel has the word on XTILECFG and XTILEDATA.
	if tileState() {
		f |= FeatAMXState
	} else {
		f &^= FeatAMXTile | FeatAMXInt8 | FeatAMXBF16
	}
	return f
}
