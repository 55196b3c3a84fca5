package test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"ck/internal/quant"
	"ck/internal/testkit"
)

// program builds one of ck's programs, once for all tests, and returns its path.
func program(t *testing.T, name string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if p, ok := built.path[name]; ok {
		return p
	}
	dir, err := os.MkdirTemp("", "ck-test-")
	if err != nil {
		t.Fatal(err)
	}
	built.dirs = append(built.dirs, dir)
	p := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-o", p, "./cmd/"+name)
	cmd.Dir = testkit.Root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	built.path[name] = p
	return p
}

var built = struct {
	sync.Mutex
	path map[string]string
	dirs []string
}{path: map[string]string{}}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, d := range built.dirs {
		os.RemoveAll(d)
	}
	sayLeftOut()
	os.Exit(code)
}

// numpy reports whether compare.py can run; CK_TEST_REQUIRE=numpy demands it.
func numpy(t *testing.T) bool {
	t.Helper()
	if exec.Command("python3", "-c", "import numpy").Run() == nil {
		return true
	}
	if testkit.Required("numpy") {
		t.Fatal("CK_TEST_REQUIRE asks for numpy, and python3 has none")
	}
	return false
}

// The logits that ckrun writes are those of the reference, by compare.py where numpy is there and by its port in testkit; both must
// agree. Whole prompts, pieces of seven rows, single tokens, one thread and two give the same bytes.
func TestCommandLogits(t *testing.T) {
	ckrun, python := program(t, "ckrun"), numpy(t)
	if !python {
		t.Log("python3 without numpy: only the port of compare.py judges")
	}
	cases := 0
	for _, name := range models {
		c := testkit.LoadCase(t, name)
		for form, m := range forms(t, c) {
			if _, err := os.Stat(filepath.Join(c.Dir, "hf")); form == "hf" && err != nil {
				continue // a folder of test/oracle, which has no tokenizer; TestReferenceModels runs it
			}
			low := weightType(m) == quant.BF16
			for i := range c.Sequences {
				s := &c.Sequences[i]
				dir := t.TempDir()
				ids := filepath.Join(dir, "ids")
				if err := os.WriteFile(ids, []byte(strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s.IDs)), ","), "[]")), 0o600); err != nil {
					t.Fatal(err)
				}
				dump := func(file string, more ...string) []byte {
					path := filepath.Join(dir, file)
					args := append([]string{"-m", m.Path, "--ids", "@" + ids,
						"--kv", "f32", "-n", "0", "--logits", path}, more...)
					if out, err := exec.Command(ckrun, args...).CombinedOutput(); err != nil {
						t.Fatalf("ckrun %s: %v\n%s", strings.Join(args, " "), err, out)
					}
					b, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					return b
				}
				for _, act := range []string{"f32", "auto"} {
					cases++
					whole := dump(act, "--act", act)
					for _, more := range [][]string{{"-ub", "7"}, {"-ub", "1"}, {"-t", "1"}, {"-t", "2"}} {
						if s.Name == "long" && more[1] == "1" && more[0] == "-ub" && form == "hf" {
							continue // said by the GGUF form
						}
						if !bytes.Equal(whole, dump(act+strings.Join(more, ""), append(more, "--act", act)...)) {
							t.Errorf("%s %s %s --act %s %v: other bytes", name, form, s.Name, act, more)
						}
					}
					tol := 0.0
					if floor, ok := bf16Floor[name]; ok && act == "auto" {
						tol = floor
					}
					judge(t, c, s, whole, filepath.Join(dir, act), tol, low && act == "auto", python)
				}
			}
		}
	}
	t.Logf("%d dumps judged", cases)
}

// judge compares a dump with the exact logits by testkit's port and by compare.py.
func judge(t *testing.T, c *testkit.Case, s *testkit.Sequence, raw []byte, path string, tol float64, low, python bool) {
	t.Helper()
	rows := make([][]float32, len(s.IDs))
	for i := range rows {
		rows[i] = make([]float32, c.Vocab)
		for j := range rows[i] {
			rows[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*(i*c.Vocab+j):]))
		}
	}
	v := c.Compare(t, s, "exact", rows, tol, low)
	if !v.OK {
		t.Errorf("%s", v.Text)
	}
	if !python {
		return
	}
	args := []string{testkit.Data(t, "models/compare.py"), c.Dir, s.Name, path}
	if low {
		args = append(args, "--low")
	}
	if tol != 0 {
		args = append(args, "--tol", fmt.Sprint(tol))
	}
	out, err := exec.Command("python3", args...).CombinedOutput()
	if (err == nil) != v.OK {
		t.Errorf("compare.py says %v: %s\ntestkit says %v: %s", err, out, v.OK, v.Text)
	}
	m := regexp.MustCompile(`rel ([0-9.e+-]+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("compare.py printed %s", out)
	}
	if rel, _ := strconv.ParseFloat(string(m[1]), 64); math.Abs(rel-v.Rel) > 1e-3*rel {
		t.Errorf("compare.py measures %g, testkit %g", rel, v.Rel)
	}
}
