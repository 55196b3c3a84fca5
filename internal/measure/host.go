package measure

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"ck/internal/isa"
	"ck/internal/topo"
)

// Host is what a speed depends on besides the program: enough to tell whether two results can be compared. Names of people and
// machines are not in it. Texts are empty where the system does not tell.
type Host struct {
	CPU           string  `json:"cpu"`
	Hypervisor    bool    `json:"hypervisor"`
	Packages      int     `json:"packages"`
	Cores         int     `json:"cores"` // in the affinity mask
	CPUs          int     `json:"cpus"`  // in the affinity mask, SMT siblings counted
	SMT           string  `json:"smt"`
	Nodes         int     `json:"numa_nodes"`
	NUMABalancing string  `json:"numa_balancing"`
	Governor      string  `json:"governor"`
	THP           string  `json:"transparent_huge_pages"`
	QuotaCPUs     float64 `json:"quota_cpus"` // 0: none
	L2Bytes       int64   `json:"l2_bytes"`
	L3Bytes       int64   `json:"l3_bytes"`
	MemoryBytes   int64   `json:"memory_bytes"`
	Kernel        string  `json:"kernel"`
	Go            string  `json:"go"`
	Features      string  `json:"features"`
	BinaryHash    string  `json:"binary_sha256"` // of the program
}

// NewHost is the machine that s describes, which this program runs on.
func NewHost(s topo.Survey) Host {
	h := Host{CPU: s.Model, Hypervisor: s.Settings.Hypervisor, Packages: len(s.Packages), CPUs: len(s.Affinity), SMT: s.Settings.SMTControl,
		Nodes: len(s.Nodes), NUMABalancing: s.Settings.NUMABalancing, Governor: s.Settings.Governor, THP: s.Settings.THP,
		QuotaCPUs: s.Quota.CPUs, L2Bytes: s.L2.Bytes, L3Bytes: s.L3.Bytes, MemoryBytes: s.MemTotal, Kernel: s.Kernel,
		Go: runtime.Version(), Features: isa.Detect().String(), BinaryHash: binaryHash()}
	if h.CPU == "" {
		h.CPU = runtime.GOARCH // ARM kernels give numbers only
	}
	leads := map[int]bool{}
	for _, c := range s.CPUs {
		if slices.Contains(s.Affinity, c.ID) {
			leads[c.Lead] = true
		}
	}
	h.Cores = len(leads)
	return h
}

// Lines is the host for people, one fact a line.
func (h Host) Lines() []string {
	or := func(s string) string {
		if s == "" {
			return "not told"
		}
		return s
	}
	quota := "none"
	if h.QuotaCPUs > 0 {
		quota = fmt.Sprintf("%.4g CPUs", h.QuotaCPUs)
	}
	cpu := h.CPU
	if h.Hypervisor {
		cpu += " (virtual machine)"
	}
	return []string{
		fmt.Sprintf("cpu: %s; %d packages, %d cores, %d CPUs allowed; L2 %d KiB, L3 %d MiB", cpu, h.Packages, h.Cores, h.CPUs, h.L2Bytes>>10, h.L3Bytes>>20),
		fmt.Sprintf("features: %s", or(h.Features)),
		fmt.Sprintf("memory: %.1f GiB, %d NUMA nodes, balancing %s, huge pages %s", float64(h.MemoryBytes)/(1<<30), h.Nodes, or(h.NUMABalancing), or(h.THP)),
		fmt.Sprintf("governor: %s; SMT %s; quota %s", or(h.Governor), or(h.SMT), quota),
		fmt.Sprintf("kernel: %s; %s; program %s", or(h.Kernel), h.Go, h.BinaryHash[:min(12, len(h.BinaryHash))]),
	}
}

var binaryHash = sync.OnceValue(func() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
})

const (
	hashPiece = 64 << 10
	hashEvery = 16 << 20
)

// ModelHash tells model files apart without reading all of them: the SHA-256 of each file's size and of 64 KiB at its beginning, at every
// 16 MiB and at its end. It is "" without files.
func ModelHash(files []string) (string, error) {
	if len(files) == 0 {
		return "", nil
	}
	h := sha256.New()
	buf := make([]byte, hashPiece)
	for _, name := range files {
		f, err := os.Open(filepath.Clean(name))
		if err != nil {
			return "", err
		}
		st, err := f.Stat()
		if err != nil {
			f.Close()
			return "", err
		}
		size := st.Size()
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(size)))
		for at := int64(0); ; at += hashEvery {
			end := at+hashPiece >= size
			if end {
				at = max(0, size-hashPiece)
			}
			n, err := f.ReadAt(buf, at)
			if err != nil && err != io.EOF {
				f.Close()
				return "", err
			}
			h.Write(buf[:n])
			if end {
				break
			}
			if at+hashEvery > size {
				at = size - hashPiece - hashEvery
			}
		}
		f.Close()
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
