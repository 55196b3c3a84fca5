//go:build amd64 && !noasm

package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// TestNoEVEX shows that the kernels of 256-bit tiers have no instruction with an EVEX prefix (byte 62): the assembler takes
// registers and instructions of AVX-512 without a word, and CPUs that lack it stop there. It writes the kernels' code, as it lies in
// memory, to a file and disassembles that; the symbol table of a test's binary is no help, for go test strips it.
func TestNoEVEX(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("GNU objdump is absent")
	}
	kernel := regexp.MustCompile(`^ck/asm/(\w+)\.(avx2|avxvnni|\w+AVX2$|\w+AVXVNNI$)`)
	// Functions start at multiples of 16 bytes at least; the text around this test is walked to both ends.
	lo := reflect.ValueOf(TestNoEVEX).Pointer() &^ 15
	for runtime.FuncForPC(lo-16) != nil {
		lo -= 16
	}
	var code []byte
	found := map[string]bool{}
	for pc := lo; ; pc += 16 {
		f := runtime.FuncForPC(pc)
		if f == nil {
			break
		}
		if m := kernel.FindStringSubmatch(f.Name()); m != nil {
			found[m[1]] = true
			code = append(code, unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), pc)), 16)...)
		}
	}
	for _, family := range []string{"attn", "dot", "elem"} {
		if !found[family] {
			t.Errorf("no 256-bit kernel of asm/%s found", family)
		}
	}
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "-D", "-b", "binary", "-m", "i386:x86-64", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if _, ins, ok := strings.Cut(line, ":\t"); ok && strings.HasPrefix(ins, "62 ") {
			t.Errorf("EVEX: %s", line)
		}
	}
}
