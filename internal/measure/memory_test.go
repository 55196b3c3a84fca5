package measure

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// What a process touches is in the memory that it has held, and stays there when it is given back.
func TestHeldMemory(t *testing.T) {
	const n = 64 << 20
	if os.Getenv("CK_TEST_HOLD") != "" { // a process of its own: other tests may have held more at once
		before, err := HeldMemory()
		b := make([]byte, n)
		for i := 0; i < n; i += 4096 {
			b[i] = 1
		}
		after, err2 := HeldMemory()
		fmt.Println("held", after-before, err, err2, b[4096])
		return
	}
	self := exec.Command(os.Args[0], "-test.run", "^TestHeldMemory$")
	self.Env = append(os.Environ(), "CK_TEST_HOLD=1")
	out, err := self.Output()
	held := int64(0)
	if _, scan := fmt.Sscanf(string(out), "held %d <nil> <nil> 1", &held); err != nil || scan != nil || held < n*3/4 || held > n*5/4 {
		t.Errorf("%d bytes touched: %s, %v, %v", n, out, err, scan)
	}
	if n, err := heldIn("f", []byte("Name:\tx\nVmHWM:\t  123 kB\nVmRSS:\t 5 kB\n")); n != 123<<10 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, s := range []string{"", "VmHWM:", "VmHWM: 5", "VmHWM: x kB", "VmRSS: 5 kB"} {
		if n, err := heldIn("f", []byte(s)); err == nil {
			t.Errorf("%q: %d", s, n)
		}
	}
}
