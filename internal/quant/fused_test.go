package quant

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// TestNoFusedMultiplyAdd compiles the package for arm64, where the compiler fuses a product and a sum, even across
// statements, unless the product is converted explicitly, and wants no such instruction where the result must be
// ggml's. The reference test cannot see this on amd64.
func TestNoFusedMultiplyAdd(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for arm64")
	}
	gobin, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command")
	}
	cmd := exec.Command(gobin, "build", "-gcflags=-S", ".")
	cmd.Env = append(os.Environ(), "GOARCH=arm64", "GOOS=linux", "CGO_ENABLED=0")
	listing, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, listing)
	}
	function := regexp.MustCompile(`(?m)^\S*quant\.((?:decode|quantize|search|squares|symmetricCode|nearest|packTernary|toUE4M3|shifted8|signed|ternary|F16|F32|BF16|Exact)\w*) STEXT`)
	fused := regexp.MustCompile(`(?m)^.*\((\S+)\)\s+FN?M(?:ADD|SUB)[SD].*$`)
	starts := regexp.MustCompile(`(?m)^\S+ STEXT`).FindAllIndex(listing, -1)
	functions := 0
	for i, s := range starts {
		end := len(listing)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		body := listing[s[0]:end]
		name := function.FindSubmatch(body)
		if name == nil {
			continue
		}
		functions++
		for _, at := range fused.FindAllSubmatch(body, -1) {
			t.Errorf("%s: fused multiply-add at %s", name[1], at[1])
		}
	}
	if functions < 70 {
		t.Errorf("%d functions found in the listing, at least two per type expected", functions)
	}
}
