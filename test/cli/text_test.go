package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/testkit"
)

// hostile is what a stranger may have put wherever a text stands: a clear screen, a window title, C1, bidirectional controls, invisible
// characters, bytes that are no UTF-8.
const hostile = "x\x1b[2J\x1b]0;t\x07\x08\u009b31m\u0085\u202e\u2066\u200f\u061c\ufeff\u00ad\x7f\xff\xc0y"

// obeyed finds the first thing in an output that a terminal would obey, or that is no text. The list is written down here once more, on
// purpose: it is what TestHostileText is about.
func obeyed(out []byte) string {
	for i := 0; i < len(out); {
		r, n := utf8.DecodeRune(out[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return fmt.Sprintf("byte %#x at %d", out[i], i)
		case r < ' ' && r != '\n' && r != '\t', r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069,
			r == 0x200e, r == 0x200f, r == 0x61c, r == 0xfeff, r == 0xad:
			return fmt.Sprintf("%U at %d", r, i)
		}
		i += n
	}
	return ""
}

// hostileTree is a saved tree of one CPU whose texts are hostile.
func hostileTree(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{
		"proc/cpuinfo":                                              "processor\t: 0\nvendor_id\t: " + hostile + "\nmodel name\t: " + hostile + "\nflags\t\t: fpu avx2 " + hostile + "\n",
		"proc/meminfo":                                              "MemTotal: 4194304 kB\nMemAvailable: 4000000 kB\nMemFree: 4000000 kB\n",
		"proc/cmdline":                                              "isolcpus=" + hostile + "\n",
		"proc/version":                                              "Linux version " + hostile + "\n",
		"proc/sys/kernel/osrelease":                                 hostile + "\n",
		"proc/self/cgroup":                                          "0::/" + hostile + "\n",
		"proc/self/status":                                          "Cpus_allowed_list:\t0\nMems_allowed_list:\t0\n",
		"sys/devices/system/cpu/online":                             "0\n",
		"sys/devices/system/cpu/possible":                           "0\n",
		"sys/devices/system/cpu/present":                            "0\n",
		"sys/devices/system/node/online":                            "0\n",
		"sys/devices/system/cpu/isolated":                           hostile + "\n",
		"sys/hypervisor/type":                                       hostile + "\n",
		"sys/class/dmi/id/product_name":                             hostile + "\n",
		"sys/class/dmi/id/sys_vendor":                               hostile + "\n",
		"sys/class/dmi/id/board_name":                               hostile + "\n",
		"sys/class/dmi/id/bios_version":                             hostile + "\n",
		"sys/kernel/mm/ksm/run":                                     hostile + "\n",
		"sys/class/thermal/thermal_zone0/type":                      hostile + "\n",
		"sys/class/thermal/thermal_zone0/temp":                      "50000\n",
		"sys/class/infiniband/mlx5_0/fw_ver":                        hostile + "\n",
		"sys/class/infiniband/mlx5_0/ports/1/state":                 hostile + "\n",
		"sys/class/infiniband/mlx5_0/ports/1/rate":                  hostile + "\n",
		"sys/class/powercap/intel-rapl:0/name":                      hostile + "\n",
		"sys/devices/system/node/node0/cpulist":                     "0\n",
		"sys/devices/system/node/node0/distance":                    "10\n",
		"sys/devices/system/node/node0/meminfo":                     "Node 0 MemTotal: 4194304 kB\nNode 0 MemFree: 4000000 kB\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id":  "0\n",
		"sys/devices/system/cpu/cpu0/topology/core_id":              "0\n",
		"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":      hostile + "\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_driver":        hostile + "\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq":      "2000000\n",
		"sys/devices/system/cpu/vulnerabilities/meltdown":           hostile + "\n",
		"sys/kernel/mm/transparent_hugepage/enabled":                "always [" + hostile + "] never\n",
		"sys/kernel/mm/transparent_hugepage/defrag":                 "always [" + hostile + "] never\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// hostileModel writes a tiny model whose name, in its metadata and of its file, is hostile.
func hostileModel(t *testing.T, path string) {
	t.Helper()
	var b bytes.Buffer
	s := synth.Shape{Arch: "llama", Layers: 1, Hidden: 64, FFN: 64, Heads: 2, KVHeads: 1, HeadDim: 32, Vocab: 512, Context: 64, RopeBase: 1e4}
	if err := synth.Write(&b, hostile, s, quant.Q8_0, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Nothing that a file, a name or a variable holds reaches the terminal as a command, whichever program shows it and in whatever form.
func TestHostileText(t *testing.T) {
	bin, dir := buildPrograms(t), t.TempDir()
	hostileTree(t, filepath.Join(dir, "tree"))
	name := hostile + ".gguf"
	hostileModel(t, filepath.Join(dir, name))
	description, err := json.Marshal(map[string]any{"name": strings.ToValidUTF8(hostile, "?"), "cores": 4, "ghz": 2.5, "isa": "avx2", "channels": 2, "mts": 3200,
		"sockets": 1, "nodes": 2, "memory_gib": 16})
	if err != nil {
		t.Fatal(err)
	}
	rows := hostileRow(t, bin, dir)
	for file, text := range map[string]string{"machine.json": string(description), "old.jsonl": rows + rows + rows, "new.jsonl": rows + rows + rows,
		"bad.json": "{\"" + hostile, "bad.toml": hostile, "key.toml": "[ckrun]\n\"" + strings.ToValidUTF8("a\u009b\u202eb", "?") + "\" = 1\n", "template": "{{ raise_exception('" + hostile + "') }}",
		"long": "{{ raise_exception('" + hostile + "' * 500000) }}"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) { checkText(t, bin, dir, nil, args...) }
	for _, form := range [][]string{{}, {"--plain"}, {"--json"}, {"--draw"}, {"--svg", "-"}, {"--width", "80"}, {"check"}, {"check", "--plain"}, {"check", "--json"}} {
		run(append([]string{"cktopo", "--root", "tree"}, form...)...)
	}
	for _, form := range []string{"-q", "--plain", "--json"} {
		run("cktopo", "plan", "--root", "tree", name, form, "--bandwidth", "10", "--peak", "100", "-c", "64", "--prompt", "10")
		run("cktopo", "plan", name, form, "--machine", "machine.json", "-c", "64", "--prompt", "10")
		run("ckbench", "compare", "old.jsonl", "new.jsonl", form)
		checkText(t, bin, dir, []string{"CK_MODEL=" + strings.ReplaceAll(hostile, "\x00", "")}, "ckrun", "config", form)
	}
	for _, format := range []string{"md", "csv", "json", "jsonl", "sql", "gobench"} {
		run("ckbench", "run", "-m", name, "-p", "4", "-n", "0", "-r", "1", "-t", "1", "--no-roof", "-o", format)
	}
	run("ckbench", "run", "-m", name, "-p", "4", "-n", "0", "-r", "1", "-t", "1", "--no-roof", "--plain")
	run("ckbench", "run", "-m", name, "-p", "4", "-n", "0", "-r", "1", "-t", "1", "--no-roof", "--steps")
	for _, args := range [][]string{
		{"ckrun", hostile, "-m", hostile}, {"ckrun", "-m", name, "--explain"}, {"ckrun", "-m", name, "-v", "-n", "1", "--temp", "0", "--print-ids", "a"},
		{"ckrun", "-m", name, "--json", "-n", "1", "a"}, {"ckrun", "tokenize", "--json", "a"}, {"ckrun", "--template", "template", "a"},
		{"ckrun", "--template", "long", "a"}, {"ckrun", "--config", "bad.toml", "a"}, {"ckrun", "--config", "key.toml", "a"}, {"ckrun", "-f", hostile},
		{"ckrun", "--" + hostile}, {"ckrun", "--cpu", hostile}, {"ckrun", "--logits", hostile + "/x", "a"}, {"ckrun", "--ids", hostile},
		{"ckbench", hostile}, {"ckbench", "compare", hostile, hostile}, {"ckbench", "compare", "bad.json", "bad.json"}, {"ckbench", "synth", hostile, hostile},
		{"ckbench", "synth", "llama-3.2-1b", hostile, "-o", hostile}, {"ckbench", "run", "-m", "bad.json"}, {"ckbench", "bandwidth", hostile},
		{"cktopo", hostile}, {"cktopo", "--root", hostile}, {"cktopo", "--root", "bad.json"}, {"cktopo", "plan", hostile}, {"cktopo", "plan", "bad.json"},
		{"cktopo", "plan", "8B", "--machine", hostile}, {"cktopo", "plan", "8B", "--machine", "bad.json"}, {"cktopo", "plan", "8B", "--type", hostile},
		{"cktopo", "check", "-m", hostile}, {"cktopo", "gather", hostile + "/x.tgz"}, {"cktopo", "--root", "tree", "gather", hostile + ".tgz"},
	} {
		run(args...)
	}
}

// checkText runs a program in dir and looks at every byte of what it prints.
func checkText(t *testing.T, bin, dir string, env []string, args ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, args[0]), args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	code := exitCode(cmd.Run())
	if code == 5 || code < 0 || out.Len()+errOut.Len() == 0 {
		t.Errorf("%q: code %d, %s", args, code, errOut.String())
	}
	for what, text := range map[string][]byte{"stdout": out.Bytes(), "stderr": errOut.Bytes()} {
		if bad := obeyed(text); bad != "" {
			t.Errorf("%q: %s has %s: %.300q", args, what, bad, text)
		}
	}
	for line := range strings.Lines(errOut.String()) {
		if strings.Contains(line, ": error: ") && len(line) > 400 {
			t.Errorf("%q: an error line of %d bytes", args, len(line))
		}
	}
}

// hostileRow is a row of ckbench run whose texts are hostile.
func hostileRow(t *testing.T, bin, dir string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "ckbench"), "run", "-p", "4", "-n", "0", "-r", "3", "-t", "1", "--no-roof", "-o", "jsonl", "-q")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var row map[string]any
	if err := json.Unmarshal(out, &row); err != nil {
		t.Fatal(err)
	}
	for k, v := range row {
		if _, text := v.(string); text && k != "schema" && k != "test_time" {
			row[k] = strings.ToValidUTF8(hostile, "?")
		}
	}
	if out, err = json.Marshal(row); err != nil {
		t.Fatal(err)
	}
	return string(out) + "\n"
}

// printsItself are the files of cmd and of the packages that print for it that write to stdout or stderr other than through Text, Note, Warn, Table and PrintJSON, and why they
// may. A new place is a new row; text of others in it goes through plaintext.Escape or plaintext.Printable.
var printsItself = map[string]string{
	"cmd/ckbench/compare.go":        "hands stdout to format.Table, which prints plaintext.Table",
	"cmd/ckbench/machine.go":        "hands stdout to format.Table, which prints plaintext.Table",
	"cmd/ckbench/run.go":            "hands stdout to the formats of results, whose tables are plaintext.Table and whose data are quoted",
	"cmd/ckbench/sweep.go":          "hands stdout to format.Table, which prints plaintext.Table",
	"cmd/ckinspect/show.go":         "hands stdout to view.Diffable, which quotes",
	"cmd/cktrain/show.go":           "hands stdout to dataset.Slot.Show, which escapes the text of tokens",
	"cmd/cktopo/show.go":            "hands stdout to internal/page, whose tables are plaintext.Table and whose JSON is quoted",
	"cmd/ckrun/chat.go":             "hands stderr to output.PrintStat, which writes numbers only",
	"cmd/ckrun/complete.go":         "hands stdout to internal/output",
	"cmd/ckrun/tokens.go":           "hands stdout to internal/output",
	"internal/output/generation.go": "text of a model goes to pipes as it is, to terminals through plaintext.Printable; ids",
	"internal/chat/terminal.go":     "hints and errors through plaintext.Escape, plaintext.Printable",
	"internal/chat/commands.go":     "our own help; the system message through plaintext.Printable",
	"internal/chat/editor.go":       "the line editor shows what is typed",
	"internal/chat/lines.go":        "hands stdout to internal/output",
}

// Every other way to stdout and stderr escapes what it prints by itself.
func TestNothingPrintsBeside(t *testing.T) {
	root := testkit.Root(t)
	files, err := filepath.Glob(filepath.Join(root, "cmd", "*", "*.go"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	fset := token.NewFileSet()
	for _, dir := range []string{"chat", "output"} {
		more, err := filepath.Glob(filepath.Join(root, "internal", dir, "*.go"))
		if err != nil || len(more) < 5 {
			t.Fatalf("internal/%s: %d files, %v", dir, len(more), err)
		}
		files = append(files, more...)
	}
	for _, path := range files {
		name, _ := filepath.Rel(root, path)
		if strings.HasSuffix(name, "_test.go") || printsItself[name] != "" {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if safeSink(call) {
				return false
			}
			for _, x := range append([]ast.Expr{call.Fun}, call.Args...) {
				if isOutput(x) {
					t.Errorf("%s: prints to stdout or stderr by itself; use Text, Note, Warn or PrintJSON of internal/cli, plaintext.Table, or say in printsItself why not", fset.Position(x.Pos()))
				}
			}
			return true
		})
	}
}

// isOutput reports whether an expression is app.Out, app.Err, os.Stdout or os.Stderr, or a method of one of them.
func isOutput(x ast.Expr) bool {
	s, ok := x.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, name := lastName(s.X), s.Sel.Name
	return (of == "app" || of == "App") && (name == "Out" || name == "Err") || of == "os" && (name == "Stdout" || name == "Stderr") || isOutput(s.X) && name != "Fd"
}

func lastName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// safeSink reports whether a call takes stdout and escapes by itself, or prints nothing.
func safeSink(call *ast.CallExpr) bool {
	switch s, ok := call.Fun.(*ast.SelectorExpr); {
	case !ok:
		return lastName(call.Fun) == "writeTable" || lastName(call.Fun) == "newWriter" || lastName(call.Fun) == "writeJSON"
	case lastName(s.X) == "cli":
		return s.Sel.Name == "IsTerminal" || s.Sel.Name == "Color" || s.Sel.Name == "OutError" && len(call.Args) == 1 && safeArg(call.Args[0])
	case lastName(s.X) == "plaintext":
		return s.Sel.Name == "TextWriter" || s.Sel.Name == "EncodeJSON"
	default:
		return s.Sel.Name == "Write" && len(call.Args) == 2 && !isOutput(s.X) // Table.Write(w, plain)
	}
}

func safeArg(x ast.Expr) bool {
	c, ok := x.(*ast.CallExpr)
	return ok && safeSink(c)
}
