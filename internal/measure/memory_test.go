package measure

import "testing"

// What a process touches is in the memory that it has held, and stays there when it is given back.
func TestHeldMemory(t *testing.T) {
	before, err := HeldMemory()
	if err != nil {
		t.Skip(err)
	}
	const n = 64 << 20
	b := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		b[i] = 1
	}
	after, err := HeldMemory()
	if err != nil || after-before < n*3/4 || after-before > n*5/4 {
		t.Errorf("%d bytes touched, %d more held: %v", n, after-before, err)
	}
	if b[4096] != 1 {
		t.Fatal("not kept")
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
