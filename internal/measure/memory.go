package measure

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// HeldMemory is the most memory that this process has had resident so far, in bytes: VmHWM of proc_pid_status(5), pages of mapped files among it.
func HeldMemory() (int64, error) {
	const path = "/proc/self/status"
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return heldIn(path, b)
}

func heldIn(path string, status []byte) (int64, error) {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			if kb, unit := bytes.CutSuffix(bytes.TrimSpace(rest), []byte(" kB")); unit {
				if n, err := strconv.ParseInt(string(bytes.TrimSpace(kb)), 10, 64); err == nil {
					return n << 10, nil
				}
			}
			return 0, fmt.Errorf("%s: %q, expected VmHWM in kB", path, line)
		}
	}
	return 0, fmt.Errorf("%s: has no VmHWM", path)
}
