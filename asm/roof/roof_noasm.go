//go:build !amd64 || noasm

package roof

// Reads lists the read loops, Peaks the arithmetic ones.
var (
	Reads = []Read{readGo}
	Peaks = []Peak{peakGo}
)
