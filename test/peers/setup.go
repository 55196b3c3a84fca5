package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	ckName    = "ck"
	llamaName = "llama.cpp"
	ikName    = "ik_llama.cpp"
)

// engine is ck or a peer with its builds.
type engine struct {
	name   string
	builds []build
}

// build is one way in which an engine was compiled.
type build struct {
	name string
	dir  string // of its programs; of ck: the program itself
	id   string // of what the program is: ck's commit, else the beginning of the sha256 of its llama-bench
}

// openEngines finds the programs that the flags name.
func openEngines() ([]engine, error) {
	out, err := exec.Command(*ck, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", *ck, err)
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	all := []engine{{ckName, []build{{"", *ck, version}}}}
	for _, e := range []struct{ name, list string }{{llamaName, *llama}, {ikName, *ik}} {
		if e.list == "" {
			continue
		}
		eng := engine{name: e.name}
		for _, word := range strings.Split(e.list, ",") {
			name, dir, ok := strings.Cut(word, "=")
			if !ok {
				return nil, fmt.Errorf("%s: %q is not NAME=DIR", e.name, word)
			}
			dir, err := filepath.Abs(dir)
			if err != nil {
				return nil, err
			}
			id, err := fileID(filepath.Join(dir, "llama-bench"))
			if err != nil {
				return nil, err
			}
			eng.builds = append(eng.builds, build{name, dir, id})
		}
		all = append(all, eng)
	}
	return all, nil
}

// fileID is the beginning of a file's sha256.
func fileID(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// setup is one way of running an engine.
type setup struct {
	Build string `json:"build"`
	Flags string `json:"flags"` // separated by spaces
	Huge  bool   `json:"huge"`  // malloc takes transparent huge pages
}

func (s setup) String() string {
	words := []string{}
	if s.Build != "" {
		words = append(words, s.Build)
	}
	if s.Flags != "" {
		words = append(words, "`"+s.Flags+"`")
	}
	if s.Huge {
		words = append(words, "huge pages")
	}
	return strings.Join(words, ", ")
}

// hugePages makes glibc's malloc ask for transparent huge pages, which weights get that are read, not mapped.
const hugePages = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"

// flags are the ways of running a peer that compete: how weights are loaded, and whether they are repacked. Merging the weights of
// queries, keys and values (-mqkv 1 of ik_llama.cpp) gained nothing beside -rtr 1.
var flags = map[string][]setup{
	llamaName: {
		{},
		{Flags: "--repack 0"},
		{Flags: "-lm none", Huge: true},
		{Flags: "--repack 0 -lm none", Huge: true},
	},
	ikName: {
		{},
		{Flags: "-mmp 0", Huge: true},
		{Flags: "-rtr 1", Huge: true},
	},
}

// deepFlags are tried behind those that won without a depth: flash attention on and off.
var deepFlags = []string{"-fa 1", "-fa 0"}

// setups are what the search for the fastest way tries; best is what won without a depth, for tests after one.
func (e engine) setups(best *setup) []setup {
	var out []setup
	if best != nil {
		for _, f := range deepFlags {
			s := *best
			s.Flags = strings.TrimSpace(s.Flags + " " + f)
			out = append(out, s)
		}
		return out
	}
	for _, b := range e.builds {
		for _, s := range flags[e.name] {
			s.Build = b.name
			out = append(out, s)
		}
	}
	return out
}

// has reports whether the engine has a build: an earlier search may have found one that is not there now.
func (e engine) has(name string) bool {
	return slices.ContainsFunc(e.builds, func(b build) bool { return b.name == name })
}

func (e engine) build(name string) build {
	return e.builds[slices.IndexFunc(e.builds, func(b build) bool { return b.name == name })]
}

// sweeps reports whether llama-sweep-bench measures a job: ik_llama.cpp's llama-bench has no depths.
func (e engine) sweeps(j job) bool { return e.name == ikName && j.depth() != "" }

// command is the process that measures a job twice, the first time to warm up.
func (e engine) command(s setup, j job) *exec.Cmd {
	b := e.build(s.Build)
	common := []string{"-m", j.Path, "-t", fmt.Sprint(j.Threads)}
	var cmd *exec.Cmd
	switch {
	case e.sweeps(j):
		cmd = exec.Command(filepath.Join(b.dir, "llama-sweep-bench"), append(common, sweepArgs(s, j)...)...)
		cmd.Dir = os.TempDir() // where it leaves its log
	default:
		args := append(common, "-r", "2", "-o", "json")
		if j.prompt() {
			args = append(args, "-p", j.tokens(), "-n", "0")
		} else {
			args = append(args, "-p", "0", "-n", j.tokens())
		}
		if j.depth() != "" {
			args = append(args, "-d", j.depth())
		}
		args = append(args, strings.Fields(s.Flags)...)
		if e.name == ckName {
			if args = append([]string{"run"}, args...); j.CPU != "" {
				args = append(args, "--cpu", j.CPU)
			}
			cmd = exec.Command(b.dir, args...)
		} else {
			cmd = exec.Command(filepath.Join(b.dir, "llama-bench"), args...)
		}
	}
	cmd.Env = os.Environ()
	if s.Huge {
		cmd.Env = append(cmd.Env, hugePages)
	}
	return cmd
}

// sweepArgs are those of ik_llama.cpp's llama-sweep-bench, whose flags have other forms: it evaluates a prompt in pieces and measures each
// stride-th of them, generation first. Here the first one, which warms up, and the one at the depth.
func sweepArgs(s setup, j job) []string {
	piece, gen := 512, "64"
	if j.prompt() {
		fmt.Sscan(j.tokens(), &piece)
		gen = "8"
	} else {
		gen = j.tokens()
	}
	var depth int
	fmt.Sscan(j.depth(), &depth)
	args := []string{"-c", fmt.Sprint(depth + piece), "-b", fmt.Sprint(piece), "-ub", fmt.Sprint(piece), "-n", gen,
		"--sweep-stride", fmt.Sprint(depth / piece), "--output-format", "jsonl"}
	f := strings.Fields(s.Flags)
	for i := 0; i+1 < len(f); i += 2 {
		switch f[i] + " " + f[i+1] {
		case "-mmp 0":
			args = append(args, "--no-mmap")
		case "-rtr 1":
			args = append(args, "-rtr")
		case "-fa 0":
			args = append(args, "-no-fa")
		}
	}
	return args
}
