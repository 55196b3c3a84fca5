//go:build !noasm

package roof

// Reads lists the read loops, Peaks the arithmetic ones; the first of each runs on every machine.
var (
	Reads = []Read{
		readGo,
		{"256x1", 1, Needs{"avx2"}, read256x1},
		{"256x2", 2, Needs{"avx2"}, read256x2},
		{"256x4", 4, Needs{"avx2"}, read256x4},
		{"512x1", 1, Needs{"avx512f"}, read512x1},
		{"512x2", 2, Needs{"avx512f"}, read512x2},
		{"512x4", 4, Needs{"avx512f"}, read512x4},
	}
	Peaks = []Peak{
		peakGo,
		{"vfmadd231ps ymm", 12 * 8 * 2, Needs{"avx2", "fma"}, fma256},
		{"vpmaddubsw+vpmaddwd+vpaddd ymm", 12 * 32 * 2, Needs{"avx2"}, maddubs256},
		{"vpdpbusd ymm", 12 * 32 * 2, Needs{"avx_vnni"}, vnni256},
		{"vfmadd231ps zmm", 24 * 16 * 2, Needs{"avx512f"}, fma512},
		{"vpdpbusd zmm", 24 * 64 * 2, Needs{"avx512_vnni"}, vnni512},
		{"vdpbf16ps zmm", 24 * 32 * 2, Needs{"avx512_bf16"}, bf16dp512},
	}
)
