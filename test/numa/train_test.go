package numa

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// placed is what -v says of the memory of a replica.
var placed = regexp.MustCompile(`(?m)^cktrain: replica ([0-9]+) at nodes ([0-9,-]+): (.*) [0-9.]+ [kMG]?B \((move_pages|numa_maps)\), ([0-9.]+) % at home$`)

// Replicas at the nodes of a machine write the checkpoint of one worker here, and what each has lies on its node. The model is small: the machine is emulated.
func TestReplicas(t *testing.T) {
	numavm(t)
	work := t.TempDir()
	model, text := filepath.Join(work, "m.gguf"), filepath.Join(work, "t.txt")
	args := []string{"synth", "BF16", "-o", model, "--layers", "1", "--hidden", "32", "--ffn", "64", "--heads", "2", "--kv-heads", "1", "--vocab", "520"}
	if out, err := exec.Command(program(t, "ckbench"), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "Story %d. A dog ran over hill %d and saw a cat. The cat ran too.\n<|endoftext|>\n", i, i*i)
	}
	if err := os.WriteFile(text, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	const run = "%s run -m %s -d %s -o %s --tokens 32 --batch 4 --steps 2 --walk 1 --val 0 --lr 1e-3 --cpu avx2 --no-cache --json %s >&2 && sha256sum <%[4]s/checkpoint-2.gguf"
	want, err := exec.Command("sh", "-c", fmt.Sprintf(run, program(t, "cktrain"), model, text, filepath.Join(work, "out"), "-q -t 1")).Output()
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		flags string
		nodes []string // by replica
	}{{"--replicas node --check-replicas 1", []string{"0", "1"}}, {"--replicas 4", []string{"0", "0", "1", "1"}}}
	var commands []string
	for i, c := range cases {
		commands = append(commands, fmt.Sprintf(run, "./cktrain", "./m.gguf", "./t.txt", fmt.Sprint("o", i), "-v "+c.flags))
	}
	v := vm{topology: "2s", carry: []string{program(t, "cktrain"), model, text}}
	for i, s := range v.run(t, commands...) {
		if s.ok(t).out != string(want) {
			t.Errorf("%s writes\n%s, here\n%s%s", s.command, s.out, want, s.err)
		}
		found := map[string]int{}
		for _, x := range placed.FindAllStringSubmatch(s.err, -1) {
			replica, err := strconv.Atoi(x[1])
			if err != nil || replica >= len(cases[i].nodes) || x[2] != cases[i].nodes[replica] {
				t.Errorf("%s: expected nodes %v", x[0], cases[i].nodes)
			}
			if share, err := strconv.ParseFloat(x[5], 64); err != nil || share < 99 {
				t.Errorf("%s", x[0])
			}
			found[x[3]]++
		}
		for _, kind := range []string{"panels", "buffers", "keys and values", "masters and moments"} {
			if found[kind] != len(cases[i].nodes) {
				t.Errorf("%s: it was verified %d times where %s lie, expected %d:\n%s", s.command, found[kind], kind, len(cases[i].nodes), s.err)
			}
		}
	}
}
