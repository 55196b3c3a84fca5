package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// output runs the program and returns what it writes to stdout.
func output(t *testing.T, args ...string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := newProgram()
	p.app.Out = f
	if code := p.app.Run(args); code != 0 && code != 1 { // 1: a check said no
		t.Fatalf("cktopo %s: exit code %d", strings.Join(args, " "), code)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// moving are the lines of the page whose values may change between two looks at a machine, with what of them does. All other lines must
// be the same, byte for byte.
var moving = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^  memory +\S+ \S+, (\S+ \S+) available`),                  // free memory
	regexp.MustCompile(`(?m)^  memory for models +(.*)$`),                              //
	regexp.MustCompile(`(?m)^  memory limit .*, (\S+ \S+) left`),                       // of a cgroup
	regexp.MustCompile(`(?m)^  (node  .*)$`),                                           // heads and rows of the table of nodes: the column of free memory may become wider
	regexp.MustCompile(`(?m)^  (node \d+ .*  (?:yes|no)\b.*)$`),                        //
	regexp.MustCompile(`(?m)^  page cache of node \d+ +(.*)$`),                         // files that others read
	regexp.MustCompile(`(?m)^  swap +.*, (.*) in use`),                                 //
	regexp.MustCompile(`(?m)^  \S+ pages(?:, node \d+)? .*?(\d+ +\d+ +\S+ \S+)$`),      // huge pages taken
	regexp.MustCompile(`energy (\S+) J`),                                               // RAPL counts on
	regexp.MustCompile(`\bis (-?[0-9.]+) °C`),                                          // temperatures
	regexp.MustCompile(`\b(?:total|local|occupancy) ([^,\n]+)`),                        // resctrl counts on
	regexp.MustCompile(`\b(?:clients|in use) (\d+)`),                                   // of DSA devices
	regexp.MustCompile(`\b(?:port_\w+|\w+_packets|\w+_errors?|\w+_discards) ([0-9]+)`), // RDMA counts on
	regexp.MustCompile(`(?m)^machine memory\t.*, (.*) available$`),                     // the same with --plain
	regexp.MustCompile(`(?m)^limits memory for models\t(.*)$`),                         //
	regexp.MustCompile(`(?m)^limits memory limit\t.*, (.*) left$`),                     //
	regexp.MustCompile(`(?m)^node \d+ free\t(.*)$`),                                    //
	regexp.MustCompile(`(?m)^settings page cache of node \d+\t(.*)$`),                  //
	regexp.MustCompile(`(?m)^settings swap\t.*, (.*) in use$`),                         //
	regexp.MustCompile(`(?m)^\S+ \S+ pages(?:, node \d+)? free\t(.*)$`),                //
	regexp.MustCompile(`(?m)^(?:power|temperatures|resctrl) \S.* (?:energy|is|total|local|occupancy)\t(.*)$`),
	regexp.MustCompile(`(?m)^(?:RDMA|accelerators) \S.* (?:clients|in use|\w+_\w+)\t(.*)$`),
}

// still blots out what may move.
func still(text string) string {
	for _, r := range moving {
		text = r.ReplaceAllStringFunc(text, func(line string) string {
			m := r.FindStringSubmatchIndex(line)
			return line[:m[2]] + "#" + line[m[3]:]
		})
	}
	return text
}

// movingKeys are those of the JSON document that may differ: what moves, and what names the source.
var movingKeys = []string{"root", "source", "mem_free", "left", "free", "memory_available", "page_cache_by_node", "swap_used", "energy", "celsius", "total",
	"local", "occupancy", "clients", "counters", "hw_counters"}

// stillJSON takes them out of a document.
func stillJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(k string, _ any) bool { return slices.Contains(movingKeys, k) })
		for k, x := range v {
			v[k] = stillJSON(x)
		}
	case []any:
		for i, x := range v {
			v[i] = stillJSON(x)
		}
	}
	return v
}

// A gathered tree shows on this machine what the machine shows: the page, the facts, the document, the drawings, the findings.
func TestGatheredShowsTheSame(t *testing.T) {
	file := filepath.Join(t.TempDir(), "live.tgz")
	output(t, "gather", "-q", file)
	for _, args := range [][]string{{"--width", "80"}, {"--width", "200"}, {"--plain"}, {"--draw"}, {"--svg", "-"}, {"check", "--no-measure"}} {
		live, saved := still(output(t, args...)), still(output(t, append([]string{"--root", file}, args...)...))
		if live != saved {
			t.Errorf("%v: %s", args, firstDifference(live, saved))
		}
	}
	var docs [2]string
	for i, text := range []string{output(t, "--json"), output(t, "--json", "--root", file)} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		b, err := json.MarshalIndent(stillJSON(v), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		docs[i] = string(b)
	}
	if docs[0] != docs[1] {
		t.Errorf("--json: %s", firstDifference(docs[0], docs[1]))
	}
}

// What moves is blotted out and nothing else.
func TestStill(t *testing.T) {
	for line, want := range map[string]string{
		"  memory         23.5 GiB, 21.1 GiB available":          "  memory         23.5 GiB, # available",
		"  memory for models  21 GiB of 24 GiB available":        "  memory for models  #",
		"  node 0  16.1 GiB  8.1 GiB  DRAM  0  2  0-1  yes  4":   "  #",
		"machine memory\t23.5 GiB, 21.1 GiB available":           "machine memory\t23.5 GiB, # available",
		"node 0 free\t8.1 GiB":                                   "node 0 free\t#",
		"node 0 memory\t16.1 GiB":                                "node 0 memory\t16.1 GiB",
		"  node 0     10  21":                                    "  node 0     10  21",
		"  swap  2 GiB, 1 GiB in use":                            "  swap  2 GiB, # in use",
		"  locked memory      at most 8 MiB":                     "  locked memory      at most 8 MiB",
		"power intel-rapl:0 energy\t12.0 J":                      "power intel-rapl:0 energy\t#",
		"  thermal_zone0  type acpitz, is 27.8 °C, mode enabled": "  thermal_zone0  type acpitz, is # °C, mode enabled",
	} {
		if got := still(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
