package numa

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// group is the folder of the commands' cgroup.
func (v vm) group(controller string) string {
	if v.v1 {
		if controller == "cpu" {
			controller = "cpu,cpuacct"
		}
		return "/sys/fs/cgroup/" + controller + "/run/"
	}
	return "/sys/fs/cgroup/run/"
}

// key is a setting of the group by its name in v2, for both versions.
func (v vm) key(name, value string) string {
	if v.v1 {
		switch name {
		case "cpu.max":
			name, value = "cpu.cfs_quota_us", strings.Fields(value)[0]
		case "memory.max":
			name = "memory.limit_in_bytes"
		}
	}
	return name + "=" + value
}

// versions runs a test in a machine with each version of cgroups.
func versions(t *testing.T, topology string, f func(t *testing.T, v vm)) {
	for _, v := range []vm{{topology: topology}, {topology: topology, v1: true}} {
		name := "v2"
		if v.v1 {
			name = "v1"
		}
		t.Run(name, func(t *testing.T) {
			v.carry = []string{program(t, "ckrun"), program(t, "cktopo")}
			f(t, v)
		})
	}
}

// A CPU quota decides the number of workers, and they live within it: no period after the other ends with everybody stopped. More workers
// can be asked for, and write the same.
func TestQuota(t *testing.T) {
	numavm(t)
	want := wantStory(t)
	for _, q := range []struct {
		cpus    float64
		workers string
	}{{0.5, "1 worker: quota of 0.5 CPUs"}, {1.5, "1 worker: quota of 1.5 CPUs"}, {2.5, "2 workers: quota of 2.5 CPUs"}} {
		t.Run(fmt.Sprint(q.cpus), func(t *testing.T) {
			versions(t, "1s", func(t *testing.T, v vm) {
				if v.v1 && q.cpus != 1.5 {
					t.Skip("v2 has shown it")
				}
				v.cgroup = []string{v.key("cpu.max", fmt.Sprintf("%.0f 100000", 1e5*q.cpus))}
				stat := "cat " + v.group("cpu") + "cpu.stat"
				commands := []string{"./cktopo --json", stat, story, stat}
				if q.cpus > 1 {
					commands = append(commands, strings.Replace(story, "-v", "-v -t 4", 1), stat)
				}
				s := v.run(t, commands...)
				var f found
				if err := json.Unmarshal([]byte(s[0].ok(t).out), &f); err != nil || f.Quota.CPUs != q.cpus {
					t.Errorf("cktopo: a quota of %v CPUs, %v", f.Quota.CPUs, err)
				}
				s[2].says(t, q.workers+" in cgroup /run, 4 cores in affinity\n")
				for i := 3; i < len(s); i += 2 {
					if out := s[i-1].ok(t).out; out != want {
						t.Errorf("%s: %q, here %q", s[i-1].command, out, want)
					}
					now, before := s[i].counters(), s[i-2].counters()
					periods, throttled := now["nr_periods"]-before["nr_periods"], now["nr_throttled"]-before["nr_throttled"]
					t.Logf("%s: stopped in %d of %d periods", s[i-1].command, throttled, periods)
					// Below one CPU one worker is stopped in all of them. Above, what is not a worker (the start of the program, garbage
					// collection, the scheduler of an emulated machine) may go beyond the quota now and then. More workers than the
					// quota pays for compute beyond it, asleep or not in between: that they do not spin is shown in internal/team.
					if i == 5 {
						s[4].says(t, "4 workers as asked for; the machine grants "+q.workers)
					} else if periods == 0 || q.cpus > 1 && 2*throttled > periods {
						t.Errorf("%s: stopped in %d of %d periods", s[i-1].command, throttled, periods)
					}
				}
			})
		})
	}
}

// Workers are on the CPUs of the cpuset, and memory on the nodes that it does not allow is not counted.
func TestCpuset(t *testing.T) {
	numavm(t)
	want := wantStory(t)
	versions(t, "2s", func(t *testing.T, v vm) {
		t.Parallel()
		v.cgroup = []string{"cpuset.cpus=1,3", "cpuset.mems=1"}
		s := v.run(t, story, "./cktopo --json")
		if s[0].ok(t).out != want {
			t.Errorf("%q, here %q", s[0].out, want)
		}
		s[0].says(t, "2 workers: 2 cores in affinity, no quota\n")
		s[0].says(t, "available on node 1, where memory may be taken")
		if mib := budget(t, s[0]); mib < 200 || mib > memMiB/2 {
			t.Errorf("a budget of %d MiB on a node of %d", mib, memMiB/2)
		}
		var f found
		if err := json.Unmarshal([]byte(s[1].ok(t).out), &f); err != nil || fmt.Sprint(f.Affinity) != "[1 3]" || len(f.Nodes) != 2 || f.Nodes[0].Allowed || !f.Nodes[1].Allowed {
			t.Errorf("cktopo: %v, CPUs %v, nodes %v", err, f.Affinity, f.Nodes)
		}
	})
}

var budgetLine = regexp.MustCompile(`(?m)^ckrun: memory: ([0-9.]+) MiB for panels and KV cache \(`)

// budget is what -v says that panels and cache may take, in MiB.
func budget(t *testing.T, s step) int {
	t.Helper()
	f := budgetLine.FindStringSubmatch(s.err)
	if f == nil {
		t.Fatalf("%s: no line of the memory budget:\n%s", s.command, s.err)
	}
	mib, err := strconv.ParseFloat(f[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(mib)
}

// model writes one of 145 MiB with 134 MiB of panels, the larger part of it in 8 layers; the file is kept until the tests end.
func model(t *testing.T) string {
	t.Helper()
	path := filepath.Join(dir, "m.gguf")
	cmd := exec.Command(program(t, "ckbench"), "synth", "Q8_0", "--layers", "8", "--hidden", "1024", "--ffn", "4096", "--heads", "16", "--kv-heads", "4",
		"--vocab", "4000", "-o", path, "--force")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// In a group of 512 MiB, of which something else has taken 330, a model whose file can be read but whose panels have no room runs with
// those that have, and writes the same; a cache that cannot fit is refused before anything is taken. Nobody is killed.
func TestMemoryLimit(t *testing.T) {
	numavm(t)
	file := model(t)
	program(t, "ckrun")
	t.Cleanup(func() { os.Remove(file) })
	const run = `./ckrun -v -t 1 -n 3 --temp 0 --ignore-eos --ids 1,17,33 --print-ids -m m.gguf`
	here := exec.Command("sh", "-c", run)
	here.Dir = dir
	want, err := here.Output()
	if err != nil {
		t.Fatal(err)
	}
	versions(t, "1s", func(t *testing.T, v vm) {
		t.Parallel()
		v.mem, v.carry, v.cgroup = "1300M", append(v.carry, file), []string{v.key("memory.max", strconv.Itoa(512<<20))}
		kills := "cat " + v.group("memory") + "memory.events"
		peak := "cat " + v.group("memory") + "memory.peak"
		if v.v1 {
			kills, peak = "cat "+v.group("memory")+"memory.oom_control", "cat "+v.group("memory")+"memory.max_usage_in_bytes"
		}
		s := v.run(t, "dd if=/dev/zero of=/dev/shm/other bs=1M count=330", run, run+" -c 100000", run+" --mem-limit 8G -n 0", kills, peak, "./cktopo --json")
		s[0].ok(t)
		if s[1].ok(t).out != string(want) {
			t.Errorf("%q, here %q", s[1].out, want)
		}
		s[1].says(t, "left of the limit of 512 MiB of cgroup /run; ")
		f := regexp.MustCompile(`(?m)^ckrun: weights: (\d+) MiB mapped, panels for (\d+) of (\d+) matrices, (\d+) MiB of (\d+) MiB`).FindStringSubmatch(s[1].err)
		if f == nil {
			t.Fatalf("all panels, or none:\n%s", s[1].err)
		}
		if kept, _ := strconv.Atoi(f[4]); kept < 40 || kept > budget(t, s[1]) {
			t.Errorf("%d MiB of panels in a budget of %d", kept, budget(t, s[1]))
		}
		if s[2].code != 4 || s[2].out != "" || !regexp.MustCompile(`(?m)^ckrun: error: -c 100000: the KV cache needs \d+ MiB, the memory budget is \d+ MiB \(.*of cgroup /run.*\); use a shorter context`).MatchString(s[2].err) {
			t.Errorf("%s: exit status %d, expected 4 and a line that says why\n%s", s[2].command, s[2].code, s[2].err)
		}
		// A promise of the user does not make memory.
		s[3].ok(t).says(t, "left of the limit of 512 MiB of cgroup /run; ")
		if c := s[4].ok(t).counters(); c["oom_kill"] != 0 {
			t.Errorf("the kernel killed somebody: %s", s[4].out)
		}
		top, err := strconv.ParseInt(strings.TrimSpace(s[5].ok(t).out), 10, 64)
		if err != nil || top < 400<<20 || top > 512<<20 {
			t.Errorf("at most %d MiB were taken, %v", top>>20, err)
		}
		t.Logf("%s\nat most %d MiB", s[1].err+s[2].err, top>>20)
		var j found
		if err := json.Unmarshal([]byte(s[6].ok(t).out), &j); err != nil || len(j.Limits) == 0 || j.Limits[0].Max != 512<<20 || j.Limits[0].Left > (512-330)<<20 {
			t.Errorf("cktopo: %v, limits %v", err, j.Limits)
		}
	})
}

// Limits of the shell are limits of memory: what they leave no room for is one line and exit status 4, before the Go runtime meets them.
func TestUlimit(t *testing.T) {
	program(t, "ckrun")
	if err := os.WriteFile(filepath.Join(dir, "big.gguf"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "big.gguf"), 4<<30); err != nil { // a hole
		t.Fatal(err)
	}
	run := func(limit, args string) step {
		cmd := exec.Command("sh", "-c", limit+"; exec ./ckrun -v -n 8 --temp 0 "+args+` "Once upon a time"`)
		cmd.Dir = dir
		var out, err strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &err
		cmd.Run()
		return step{limit + " " + args, out.String(), err.String(), cmd.ProcessState.ExitCode()}
	}
	for _, c := range []struct {
		limit, args string
		code        int
		says        string
	}{
		{"ulimit -v 4000000", "", 0, "left of ulimit -v 4000000 KiB"},
		{"ulimit -d 2000000", "", 0, "left of ulimit -d 2000000 KiB"},
		{"ulimit -d 100000", "", 4, "ckrun: error: memory: "},
		{"ulimit -v 4000000", "-m big.gguf", 4, "ckrun: error: memory: "},
		{"ulimit -v 4000000", "-c 4000000", 4, "ckrun: error: -c 4000000: the KV cache needs "},
		{"ulimit -d 2000000", "-c 4000000", 4, "ckrun: error: -c 4000000: the KV cache needs "},
	} {
		s := run(c.limit, c.args)
		if s.code != c.code || c.code != 0 && s.out != "" || c.code == 0 && !strings.Contains(s.out, "there was a little girl") {
			t.Errorf("%s: exit status %d, %q", s.command, s.code, s.out)
		}
		s.says(t, c.says)
	}
	// In between: the text, or one line. What the Go runtime reserves at its start counts, about 1,250 MiB; with less nothing of ours runs.
	// Its heap starts at a random address since Go 1.26: three times in a hundred it lies across two arenas, which takes 64 MiB more.
	texts, lines := 0, 0
	for kib := 1_400_000; kib <= 1_700_000; kib += 30_000 {
		s := run(fmt.Sprintf("ulimit -v %d", kib), "")
		switch {
		case s.code == 0 && strings.Contains(s.out, "there was a little girl"):
			texts++
		case s.code == 4 && s.out == "" && strings.Count(s.err, "error: ") == 1 && strings.Contains(s.err, "ulimit -v"):
			lines++
		default:
			t.Errorf("%s: exit status %d\n%s%s", s.command, s.code, s.out, s.err)
		}
	}
	if texts == 0 || lines == 0 {
		t.Errorf("%d texts and %d lines that refuse", texts, lines)
	}
}
