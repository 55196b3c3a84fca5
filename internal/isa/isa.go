// Package isa names the instruction set tiers of the kernels and finds out which of them this machine can run.
//
// A feature counts only if the CPU has it (CPUID) and the operating system saves its registers (XCR0; for AMX also arch_prctl).
// Built with -tags noasm or for another architecture than amd64 there is one tier: go.
package isa

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Tier is a set of instructions that a family of kernels may use. Tiers are ordered by preference, but they are not a ladder:
// a CPU may have vnni without avxvnni (Ice Lake) and avxvnni without avx512 (Alder Lake).
type Tier int

const (
	Go      Tier = iota // portable Go
	AVX2                // AVX2, FMA, F16C, BMI1, BMI2
	AVXVNNI             // AVX2 and the VEX form of VNNI
	AVX512              // AVX2 and AVX-512 F, BW, DQ, VL, CD
	VNNI                // AVX512 and AVX-512 VNNI; kernels may use AVX-512 BF16 where Features has it
	AMX                 // VNNI and tiles with INT8 and BF16; reserved: detected, no kernels yet
)

func (t Tier) String() string {
	if !t.known() {
		return fmt.Sprintf("tier(%d)", int(t))
	}
	return tiers[t].name
}

func (t Tier) known() bool { return t >= Go && int(t) < len(tiers) }

// Parse is the inverse of String.
func Parse(name string) (Tier, error) {
	if t := slices.Index(Names(), name); t >= 0 {
		return Tier(t), nil
	}
	return Go, fmt.Errorf("unknown instruction set tier %q; known are %s", name, strings.Join(Names(), ", "))
}

// Features is a set of CPU features that may be used, as bits.
type Features uint32

const (
	FeatAVX2 Features = 1 << iota
	FeatFMA
	FeatF16C
	FeatBMI1
	FeatBMI2
	FeatAVXVNNI
	FeatAVX512F
	FeatAVX512BW
	FeatAVX512DQ
	FeatAVX512VL
	FeatAVX512CD
	FeatAVX512VNNI
	FeatAVX512BF16
	FeatAVX512FP16
	FeatAMXTile
	FeatAMXInt8
	FeatAMXBF16
	FeatAMXState // the kernel can give a process the tile registers (arch_prctl)
	numFeatures  = iota
)

// featureNames are those of /proc/cpuinfo, in the order of the bits.
var featureNames = [numFeatures]string{"avx2", "fma", "f16c", "bmi1", "bmi2", "avx_vnni",
	"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "avx512_vnni", "avx512_bf16", "avx512_fp16",
	"amx_tile", "amx_int8", "amx_bf16", "amx tile state in the kernel (Linux 5.16)"}

// Has reports whether f holds all of want.
func (f Features) Has(want Features) bool { return f&want == want }

// Names lists the features by their names in /proc/cpuinfo.
func (f Features) Names() []string {
	var names []string
	for i, s := range featureNames {
		if f&(1<<i) != 0 {
			names = append(names, s)
		}
	}
	return names
}

func (f Features) String() string { return strings.Join(f.Names(), " ") }

const (
	needAVX2   = FeatAVX2 | FeatFMA | FeatF16C | FeatBMI1 | FeatBMI2
	needAVX512 = needAVX2 | FeatAVX512F | FeatAVX512BW | FeatAVX512DQ | FeatAVX512VL | FeatAVX512CD
	needVNNI   = needAVX512 | FeatAVX512VNNI
)

// tiers is the table of tiers. What kernels there are for their features is in internal/kernel.
var tiers = [...]struct {
	name     string
	needs    Features // that kernels may use without asking
	may      Features // that kernels use as well where the CPU has them
	reserved bool     // found and named, but ck has no kernels for it yet
}{
	Go:      {name: "go"},
	AVX2:    {name: "avx2", needs: needAVX2},
	AVXVNNI: {name: "avxvnni", needs: needAVX2 | FeatAVXVNNI},
	AVX512:  {name: "avx512", needs: needAVX512},
	VNNI:    {name: "vnni", needs: needVNNI, may: FeatAVX512BF16},
	AMX:     {name: "amx", needs: needVNNI | FeatAMXTile | FeatAMXInt8 | FeatAMXBF16 | FeatAMXState, may: FeatAVX512BF16, reserved: true},
}

// Tiers lists all tiers in ascending order.
func Tiers() []Tier {
	ts := make([]Tier, len(tiers))
	for i := range ts {
		ts[i] = Tier(i)
	}
	return ts
}

// Names are those of all tiers in ascending order.
func Names() []string {
	names := make([]string, len(tiers))
	for i, t := range tiers {
		names[i] = t.name
	}
	return names
}

// Use is what the kernels of tier t use on a machine with features f: those that it needs, and those that it takes where they are.
func (t Tier) Use(f Features) Features { return tiers[t].needs | tiers[t].may&f }

// Reserved tells that there are no kernels for t yet.
func (t Tier) Reserved() bool { return tiers[t].reserved }

// WithKernels is t, or the best tier below it for which there are kernels.
func (t Tier) WithKernels() Tier {
	for t.Reserved() {
		t--
	}
	return t
}

// ErrMissing is in errors of tiers that need what this machine does not have.
var ErrMissing = errors.New("is missing")

// missing is an error of a tier that says what the machine lacks.
type missing struct{ error }

func (missing) Is(target error) bool { return target == ErrMissing }

// Check says why tier t cannot be used on a machine with features f, or nil.
func Check(t Tier, f Features) error {
	if !t.known() {
		return fmt.Errorf("%v is no instruction set tier", t)
	}
	if t > Go && !built {
		return fmt.Errorf("tier %v: this program was built without assembly, only tier go is in it", t)
	}
	if lacks := tiers[t].needs &^ f; lacks != 0 {
		return missing{fmt.Errorf("tier %v: this CPU lacks %s", t, strings.Join(lacks.Names(), ", "))}
	}
	if t.Reserved() {
		return fmt.Errorf("tier %v: there are no kernels for it yet; use %v", t, t.WithKernels())
	}
	return nil
}

// Available lists the tiers that can be used, in ascending order; go is always there.
func Available(f Features) []Tier {
	var ts []Tier
	for _, t := range Tiers() {
		if Check(t, f) == nil {
			ts = append(ts, t)
		}
	}
	return ts
}

// Best is the tier to use on a machine with features f.
func Best(f Features) Tier {
	ts := Available(f)
	return ts[len(ts)-1]
}
