package isa

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Dump is what a saved answer of the CPUID instruction says of a processor. What the operating system enabled is not in it.
type Dump struct {
	Vendor, Brand           string
	Signature               uint32
	Family, Model, Stepping int
	XCR0                    uint64   // the register states that the processor can enable
	Names                   []string // features by the names of the table below, sorted
	Tiles                   *Tiles   // nil: no AMX
}

// Tiles is the shape of the AMX registers (leaves 0x1d and 0x1e).
type Tiles struct {
	TotalBytes, TileBytes, RowBytes int
	Count, MaxRows                  int
	MaxK, MaxN                      int // of the multiplier
}

type leaf struct{ eax, ecx uint32 }

// registers are EAX, EBX, ECX, EDX.
type registers [4]uint32

const (
	eax = iota
	ebx
	ecx
	edx
)

// cpuidBits say where CPUID tells of a feature (Intel's SDM, volume 2A, CPUID; AMD's APM, volume 3, appendix E). Names are those of
// /proc/cpuinfo but for kernelNames.
var cpuidBits = []struct {
	leaf     leaf
	register int
	bit      int
	name     string
}{
	{leaf{1, 0}, ecx, 0, "sse3"}, {leaf{1, 0}, ecx, 9, "ssse3"}, {leaf{1, 0}, ecx, 12, "fma"}, {leaf{1, 0}, ecx, 13, "cx16"},
	{leaf{1, 0}, ecx, 19, "sse4_1"}, {leaf{1, 0}, ecx, 20, "sse4_2"}, {leaf{1, 0}, ecx, 22, "movbe"}, {leaf{1, 0}, ecx, 23, "popcnt"},
	{leaf{1, 0}, ecx, 25, "aes"}, {leaf{1, 0}, ecx, 26, "xsave"}, {leaf{1, 0}, ecx, 28, "avx"}, {leaf{1, 0}, ecx, 29, "f16c"},
	{leaf{1, 0}, ecx, 30, "rdrand"},
	{leaf{7, 0}, ebx, 3, "bmi1"}, {leaf{7, 0}, ebx, 5, "avx2"}, {leaf{7, 0}, ebx, 8, "bmi2"}, {leaf{7, 0}, ebx, 16, "avx512f"},
	{leaf{7, 0}, ebx, 17, "avx512dq"}, {leaf{7, 0}, ebx, 21, "avx512_ifma"}, {leaf{7, 0}, ebx, 24, "clwb"},
	{leaf{7, 0}, ebx, 26, "avx512pf"}, {leaf{7, 0}, ebx, 27, "avx512er"}, {leaf{7, 0}, ebx, 28, "avx512cd"},
	{leaf{7, 0}, ebx, 30, "avx512bw"}, {leaf{7, 0}, ebx, 31, "avx512vl"},
	{leaf{7, 0}, ecx, 1, "avx512_vbmi"}, {leaf{7, 0}, ecx, 5, "waitpkg"}, {leaf{7, 0}, ecx, 6, "avx512_vbmi2"}, {leaf{7, 0}, ecx, 8, "gfni"},
	{leaf{7, 0}, ecx, 9, "vaes"}, {leaf{7, 0}, ecx, 10, "vpclmulqdq"}, {leaf{7, 0}, ecx, 11, "avx512_vnni"},
	{leaf{7, 0}, ecx, 12, "avx512_bitalg"}, {leaf{7, 0}, ecx, 14, "avx512_vpopcntdq"}, {leaf{7, 0}, ecx, 27, "movdiri"},
	{leaf{7, 0}, ecx, 28, "movdir64b"}, {leaf{7, 0}, ecx, 29, "enqcmd"},
	{leaf{7, 0}, edx, 8, "avx512_vp2intersect"}, {leaf{7, 0}, edx, 14, "serialize"}, {leaf{7, 0}, edx, 15, "hybrid"},
	{leaf{7, 0}, edx, 22, "amx_bf16"}, {leaf{7, 0}, edx, 23, "avx512_fp16"}, {leaf{7, 0}, edx, 24, "amx_tile"},
	{leaf{7, 0}, edx, 25, "amx_int8"},
	{leaf{7, 1}, eax, 4, "avx_vnni"}, {leaf{7, 1}, eax, 5, "avx512_bf16"}, {leaf{7, 1}, eax, 21, "amx_fp16"},
	{leaf{7, 1}, eax, 23, "avx_ifma"},
	{leaf{7, 1}, edx, 4, "avx_vnni_int8"}, {leaf{7, 1}, edx, 5, "avx_ne_convert"}, {leaf{7, 1}, edx, 8, "amx_complex"},
	{leaf{7, 1}, edx, 10, "avx_vnni_int16"}, {leaf{7, 1}, edx, 14, "prefetchi"}, {leaf{7, 1}, edx, 19, "avx10"},
	{leaf{0x80000001, 0}, ecx, 6, "sse4a"},
}

// kernelNames are those of /proc/cpuinfo (arch/x86/include/asm/cpufeatures.h) where they are others.
var kernelNames = map[string]string{"sse3": "pni", "avx512_ifma": "avx512ifma", "avx512_vbmi": "avx512vbmi"}

// Known picks those of some names in /proc/cpuinfo that a Dump would have, sorted, by the names that it would give them.
func Known(names []string) []string {
	var known []string
	for _, b := range cpuidBits {
		if slices.Contains(names, b.name) || slices.Contains(names, kernelNames[b.name]) {
			known = append(known, b.name)
		}
	}
	slices.Sort(known)
	return known
}

// FromNames is the set of features among names of /proc/cpuinfo; the kernel leaves out those whose registers it does not save.
func FromNames(names []string) Features {
	var f Features
	for i, s := range featureNames {
		if slices.Contains(names, s) {
			f |= 1 << i
		}
	}
	return f
}

// Features are those that may be used if the system enables all register states that the processor has. FeatAMXState, the kernel's
// word on tiles, is not among them.
func (d Dump) Features() Features {
	f := FromNames(d.Names)
	const (
		avx    = 1<<1 | 1<<2
		avx512 = avx | 1<<5 | 1<<6 | 1<<7
		tiles  = 1<<xTileCfgBit | 1<<xTileDataBit
	)
	if d.XCR0&avx != avx {
		return 0
	}
	if d.XCR0&avx512 != avx512 {
		f &^= FeatAVX512F | FeatAVX512BW | FeatAVX512DQ | FeatAVX512VL | FeatAVX512CD | FeatAVX512VNNI | FeatAVX512BF16 | FeatAVX512FP16
	}
	if d.XCR0&tiles != tiles {
		f &^= FeatAMXTile | FeatAMXInt8 | FeatAMXBF16
	}
	return f
}

// Bits of XCR0 (Intel's SDM, volume 1, 13.1).
const (
	xTileCfgBit  = 17
	xTileDataBit = 18
)

// maxLine is what of a line is looked at; an answer of ten numbers of 32 bits is shorter.
const maxLine = 200

// ParseDump reads the answers of one logical CPU, a line each, numbers in hex: "leaf subleaf eax ebx ecx edx", or as hwloc-gather-cpuid
// writes them "mask eax ebx ecx edx => eax ebx ecx edx", where the mask's bits say which inputs count. Lines that begin with # are
// comments. Of an answer that is there twice the first counts.
func ParseDump(text string) (Dump, error) {
	answers := map[leaf]registers{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line[:min(len(line), maxLine)])
		if len(fields) == 0 && len(line) <= maxLine {
			continue
		}
		l, r, ok := parseAnswer(fields)
		if !ok {
			return Dump{}, fmt.Errorf("line %d: %.60q is no answer of CPUID: want leaf, subleaf, eax, ebx, ecx, edx in hex", n, strings.TrimSpace(line))
		}
		if _, twice := answers[l]; !twice && len(answers) < 1<<15 {
			answers[l] = r
		}
	}
	base, ok := answers[leaf{0, 0}]
	if !ok {
		return Dump{}, fmt.Errorf("no leaf 0 in %d lines: not a dump of CPUID", n)
	}
	return decode(base, answers), nil
}

func parseAnswer(fields []string) (l leaf, r registers, ok bool) {
	var v []uint32
	for _, f := range fields {
		if f == "=>" && len(v) == 5 {
			continue
		}
		x, err := strconv.ParseUint(strings.TrimPrefix(f, "0x"), 16, 32)
		if err != nil {
			return l, r, false
		}
		v = append(v, uint32(x))
	}
	switch {
	case len(v) == 6 && len(fields) == 6:
		return leaf{v[0], v[1]}, registers(v[2:]), true
	case len(v) == 9 && len(fields) == 10:
		l = leaf{eax: v[1]}
		if v[0]&4 != 0 { // ECX counts
			l.ecx = v[3]
		}
		return l, registers(v[5:]), true
	}
	return l, r, false
}

func decode(base registers, answers map[leaf]registers) Dump {
	// get is an answer if the processor has the leaf: beyond the last one Intel's give that of the last.
	get := func(eax, ecx uint32) registers {
		last := base[0]
		if eax >= 0x80000000 {
			last = answers[leaf{0x80000000, 0}][0]
		}
		if eax > last {
			return registers{}
		}
		return answers[leaf{eax, ecx}]
	}
	d := Dump{Vendor: letters(base[ebx], base[edx], base[ecx]), Signature: get(1, 0)[eax]}
	s := d.Signature
	d.Family, d.Model, d.Stepping = int(s>>8&15), int(s>>4&15), int(s&15)
	if d.Family == 6 || d.Family == 15 {
		d.Model += int(s >> 16 & 15 << 4)
	}
	if d.Family == 15 {
		d.Family += int(s >> 20 & 255)
	}
	var brand []uint32
	for l := uint32(0x80000002); l <= 0x80000004; l++ {
		r := get(l, 0)
		brand = append(brand, r[:]...)
	}
	d.Brand = strings.Join(strings.Fields(letters(brand...)), " ")
	for _, b := range cpuidBits {
		if b.leaf.ecx > 0 && get(b.leaf.eax, 0)[eax] < b.leaf.ecx {
			continue // no such subleaf
		}
		if get(b.leaf.eax, b.leaf.ecx)[b.register]>>b.bit&1 == 1 {
			d.Names = append(d.Names, b.name)
		}
	}
	slices.Sort(d.Names)
	x := get(0xd, 0)
	d.XCR0 = uint64(x[edx])<<32 | uint64(x[eax])
	if slices.Contains(d.Names, "amx_tile") {
		p, t := get(0x1d, 1), get(0x1e, 0)
		d.Tiles = &Tiles{
			TotalBytes: int(p[eax] & 0xffff), TileBytes: int(p[eax] >> 16), RowBytes: int(p[ebx] & 0xffff), Count: int(p[ebx] >> 16),
			MaxRows: int(p[ecx] & 0xffff), MaxK: int(t[ebx] & 0xff), MaxN: int(t[ebx] >> 8 & 0xffff),
		}
	}
	return d
}

// letters is the printable text in registers, lowest byte first.
func letters(rs ...uint32) string {
	var b []byte
	for _, r := range rs {
		for range 4 {
			if c := byte(r); c >= ' ' && c < 0x7f {
				b = append(b, c)
			}
			r >>= 8
		}
	}
	return string(b)
}
