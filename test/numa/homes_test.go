package numa

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// A brew is a model that a test makes: flags of ckbench synth.
type brew struct{ name, typ, flags string }

// brews are shared by homes in different ways: K in 8 slices, in 1, one KV head.
var brews = []brew{
	{"slices8", "Q8_0", "--ffn 2048 --kv-heads 8"},
	{"slices1", "Q4_K", "--ffn 2816 --kv-heads 4"},
	{"onehead", "Q4_0", "--ffn 2048 --kv-heads 1"},
}

// bits runs a model and is a line that tells the bits of the logits of 64 ids and the 3 ids behind them.
const bits = `./ckrun -m %s --ids %s -n 3 --temp 0 --print-ids --logits /tmp/L --force %s && sha256sum </tmp/L`

// ids64 are 64 ids below 1024.
var ids64 = func() string {
	var list []string
	for i := range 64 {
		list = append(list, strconv.Itoa((i*i*7+3*i+1)%300))
	}
	return strings.Join(list, ",")
}()

// here is what bits prints on this machine with one thread.
func here(t *testing.T, model string) string {
	t.Helper()
	logits := filepath.Join(t.TempDir(), "L")
	out, err := exec.Command(program(t, "ckrun"), "-m", model, "--ids", ids64, "-n", "3", "--temp", "0", "--print-ids", "--logits", logits, "-t", "1", "--cpu", "avx2", "-q").Output() // BF16 weights give the bits of the machines there
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(logits)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s%x  -\n", out, sha256.Sum256(b))
}

var atHome = regexp.MustCompile(`(?m)(panels|KV cache|buffers) .*\((move_pages|numa_maps), all pages\), ([0-9.]+) % at home$`)

// On machines with homes of all kinds every mode writes the bits of one thread here, for any number of workers and rows of a walk; with tp what decode
// reads of weights and cache lies at the reader's home. CK_TEST_LARGE=1 runs every mode with every number of workers, model and number of rows: an hour.
func TestHomes(t *testing.T) {
	numavm(t)
	models := map[string]string{} // path: what bits prints
	var files []string
	dir := t.TempDir()
	for _, b := range brews {
		path := filepath.Join(dir, b.name+".gguf")
		args := []string{"synth", b.typ, "-o", path, "--layers", "2", "--hidden", "256", "--heads", "16", "--head-dim", "128", "--vocab", "1024"}
		if out, err := exec.Command(program(t, "ckbench"), append(args, strings.Fields(b.flags)...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		models[path] = here(t, path)
		files = append(files, path)
	}
	perMachine := 24 // commands, for all of which it has four minutes
	if os.Getenv("CK_TEST_LARGE") != "" {
		perMachine = 12
	}
	var families []string
	for _, name := range []string{"qwen3moe", "gpt-oss", "gemma3", "gemma4", "phi3"} {
		path := filepath.Join(testkit.Data(t, "models/"+name), "model.gguf")
		models[path] = here(t, path)
		families = append(families, path)
	}
	for _, m := range []struct {
		name  string
		homes int
		more  bool // the families too
		cxl   bool
	}{{"2s", 2, true, false}, {"2s-snc2", 4, false, false}, {"2s-cxl", 2, false, true}, {"2s-hbm", 2, false, false}, {"2s-memless", 1, false, false}, {"4s", 4, false, false},
		{"8n", 8, true, false}} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			v := vm{topology: m.name, carry: []string{program(t, "ckrun")}}
			var commands, want []string
			run := func(path, flags string) {
				commands = append(commands, fmt.Sprintf(bits, "./"+filepath.Base(path), ids64, flags))
				want = append(want, models[path])
			}
			for i, path := range files {
				v.carry = append(v.carry, path)
				modes := []string{"tp", "off", "mirror", "interleave", "bind=0", "auto"}
				if os.Getenv("CK_TEST_LARGE") != "" {
					for _, mode := range modes {
						for _, threads := range []string{"", "-t 3", "-t 1"} {
							for _, rows := range []string{"", "--ubatch 17"} {
								run(path, fmt.Sprintf("--stat --numa %s %s %s", mode, threads, rows))
							}
						}
					}
					continue
				}
				for j, mode := range modes {
					threads := []string{"", "-t 3", "-t 1"}[(i+j)%3]
					rows := []string{"", "--ubatch 17"}[(i+j/2)%2]
					run(path, fmt.Sprintf("--stat --numa %s %s %s", mode, threads, rows))
				}
			}
			if m.more {
				for i, path := range families {
					name := filepath.Base(filepath.Dir(path)) + ".gguf"
					v.carry = append(v.carry, path+":/w/"+name)
					commands = append(commands, fmt.Sprintf(bits, name, ids64, "--stat --numa tp "+[]string{"", "--ubatch 17", "-t 3"}[i%3]))
					want = append(want, models[path])
				}
			}
			verified := 0
			var steps []step
			for part := range slices.Chunk(commands, perMachine) {
				steps = append(steps, v.run(t, part...)...)
			}
			for i, s := range steps {
				if s.ok(t).out != want[i] {
					t.Errorf("%s writes\n%s, here\n%s%s", s.command, s.out, want[i], s.err)
				}
				if m.cxl && regexp.MustCompile(`(?m)(panels|KV cache|buffers) .* 2: `).MatchString(s.err) {
					t.Errorf("%s: memory on the CXL node:\n%s", s.command, s.err)
				}
				for _, x := range atHome.FindAllStringSubmatch(s.err, -1) {
					if share, err := strconv.ParseFloat(x[3], 64); err != nil || share < 99 {
						t.Errorf("%s: %s: %s %% at home:\n%s", s.command, x[1], x[3], s.err)
					}
					verified++
				}
			}
			if m.homes > 1 && verified < 12 {
				t.Errorf("%d times it was verified where memory lies", verified)
			}
		})
	}
}

// bound is a mapping in /proc/PID/numa_maps whose memory is bound to a node, pages that of a node in such a line.
var (
	bound = regexp.MustCompile(`(?m)^[0-9a-f]+ bind:([0-9]+) .*$`)
	pages = regexp.MustCompile(` N([0-9]+)=([0-9]+)`)
)

// While a chat waits for its next turn all weights get packed, and what others see of its memory (/proc/PID/numa_maps) lies where it is bound.
func TestChatWaits(t *testing.T) {
	numavm(t)
	path := filepath.Join(t.TempDir(), "m.gguf")
	args := []string{"synth", "Q8_0", "-o", path, "--layers", "2", "--hidden", "256", "--heads", "16", "--head-dim", "128", "--vocab", "1024", "--ffn", "2048", "--kv-heads", "8"}
	if out, err := exec.Command(program(t, "ckbench"), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const chat = `(echo '{"role": "user", "content": "Hello"}'; sleep 8; echo '{"role": "user", "content": "Again"}') | ./ckrun chat -m ./m.gguf --numa tp --temp 0 -n 4 --stat & ` +
		`sleep 7; cat /proc/$(pidof ckrun)/numa_maps >&2; wait`
	for _, topology := range []string{"2s", "8n"} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			v := vm{topology: topology, carry: []string{program(t, "ckrun"), path}}
			s := v.run(t, chat)[0].ok(t)
			here, all := map[string]int{}, 0
			for _, line := range bound.FindAllStringSubmatch(s.err, -1) {
				for _, x := range pages.FindAllStringSubmatch(line[0], -1) {
					n, _ := strconv.Atoi(x[2])
					if all += n; x[1] == line[1] {
						here[x[1]] += n
					}
				}
			}
			sum := 0
			for _, n := range here {
				sum += n
			}
			if len(here) < 2 || all*4 < 7<<10 || float64(sum) < 0.99*float64(all) {
				t.Errorf("%d of %d pages lie where they are bound, by node %v:\n%s", sum, all, here, s.err)
			}
			s.says(t, "decode read 100 % of the weights at the reader's home")
			s.says(t, "panels 6.6 MiB,") // packed beside the first turn, or by all while nothing else was to do
		})
	}
}

// Slower memory that was named takes what nodes with cores have no room for, keys and values first; not named, it takes nothing. Threads on CPUs that
// workers leave pack beside them. The bits are the same.
func TestSlowNodes(t *testing.T) {
	numavm(t)
	path := filepath.Join(t.TempDir(), "m.gguf")
	args := []string{"synth", "Q8_0", "-o", path, "--layers", "2", "--hidden", "256", "--heads", "16", "--head-dim", "128", "--vocab", "1024", "--ffn", "2048", "--kv-heads", "8"}
	if out, err := exec.Command(program(t, "ckbench"), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := here(t, path)
	run := func(flags string) string { return fmt.Sprintf(bits, "./m.gguf", ids64, "-v --stat "+flags) }
	const fill = `mkdir -p /m && mount -t tmpfs -o size=95%,mpol=bind:0 t /m && ` +
		`dd if=/dev/zero of=/m/f bs=1k count=$(sed -n 's/.*Mem\(Free\|Total\): *\([0-9]*\) kB/\2/p' /sys/devices/system/node/node0/meminfo | (read t; read f; echo $((f - t / 8)))) 2>/dev/null`
	v := vm{topology: "2s-cxl", carry: []string{program(t, "ckrun"), path}}
	steps := v.run(t, run("--numa bind=0,2"), run("--numa tp -t 2"), fill, run("--numa bind=0,2"))
	for i, says := range map[int][]string{0: {"node 0 has room for all: nothing is taken of node 2", "panels 0: 6.6 MiB", "KV cache 0: "},
		1: {"threads beside the workers pack them too, on CPUs 1, 3", " by 2 threads beside them"},
		3: {"node 0 has no room for 32 MiB of the KV cache and ", "these go to node 2", "KV cache 2: "}} {
		s := steps[i].ok(t)
		if s.out != want {
			t.Errorf("%s writes\n%s, here\n%s%s", s.command, s.out, want, s.err)
		}
		for _, text := range says {
			s.says(t, text)
		}
	}
	if slow := regexp.MustCompile(`panels (0: [0-9.]+ MiB, )?2: [1-9][0-9.]* MiB \(move_pages`); !slow.MatchString(steps[3].err) {
		t.Errorf("no panels on the slower node:\n%s", steps[3].err)
	}
}

// What a home lacks is said in a line, and the bits are the same: nodes that the cpuset forbids, too few CPUs, too little memory, a node that is full, a system
// that lets no memory be placed.
func TestHomesThatLack(t *testing.T) {
	numavm(t)
	path := filepath.Join(t.TempDir(), "slices8.gguf")
	args := []string{"synth", "Q8_0", "-o", path, "--layers", "2", "--hidden", "256", "--heads", "16", "--head-dim", "128", "--vocab", "1024", "--ffn", "2048", "--kv-heads", "8"}
	if out, err := exec.Command(program(t, "ckbench"), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := here(t, path)
	forbid := filepath.Join(t.TempDir(), "forbid")
	if out, err := exec.Command("go", "build", "-o", forbid, "ck/test/numa/forbid").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tp := fmt.Sprintf(bits, "./slices8.gguf", ids64, "-v --stat --numa tp")
	const fill = `mkdir -p /m && mount -t tmpfs -o size=95%,mpol=bind:1 t /m && ` +
		`dd if=/dev/zero of=/m/f bs=1M count=$(( ($(sed -n 's/.*MemFree: *\([0-9]*\) kB/\1/p' /sys/devices/system/node/node1/meminfo) >> 10) - 40 )) 2>/dev/null && `
	for _, c := range []struct {
		name    string
		cgroup  []string
		command string
		says    string
		home    bool // all of it is at home nevertheless
	}{
		{"cpuset", []string{"cpuset.mems=0"}, tp, "this machine has one home", false},
		{"quota", []string{"cpu.max=150000 100000"}, tp, "1 worker at 2 homes: one home does all", false},
		{"limit", []string{"memory.max=120M"}, tp, "left of the limit of", true},
		{"full node", nil, fill + tp, "--numa: node 1 has no room for", false},
		{"no placement", nil, strings.Replace(tp, "./ckrun", "./forbid ./ckrun", 1), "memory stays where it is touched first: mbind to nodes [0]: operation not permitted (the container forbids it)", true},
		{"three homes a member", nil, strings.Replace(tp, "--numa tp", "--numa tp --as-nodes 0/1/2/3/0/1 -t 6", 1), "2 members of 3 homes", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := vm{topology: "2s", cgroup: c.cgroup, carry: []string{program(t, "ckrun"), path, forbid}}
			s := v.run(t, c.command)[0].ok(t)
			if s.out != want {
				t.Errorf("%s writes\n%s, here\n%s%s", s.command, s.out, want, s.err)
			}
			s.says(t, c.says)
			n := 0
			for _, x := range atHome.FindAllStringSubmatch(s.err, -1) {
				if share, err := strconv.ParseFloat(x[3], 64); err != nil || c.home && share < 99 || (x[2] == "numa_maps") != (c.name == "no placement") {
					t.Errorf("%s: %s %% at home by %s", x[1], x[3], x[2])
				}
				n++
			}
			if c.home && n < 3 {
				t.Errorf("what lies at home was not verified:\n%s", s.err)
			}
		})
	}
}
