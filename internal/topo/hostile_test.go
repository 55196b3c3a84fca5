package topo

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ck/internal/testkit"
)

// memoryLimit is what reading any tree may take, all told.
const memoryLimit = 100_000_000

// item is an entry of an archive to be made.
type item struct {
	name string
	data []byte
	link string
	dir  bool
}

// archive makes a .tgz file.
func archive(t testing.TB, items func(put func(item))) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x.tgz")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	z, _ := gzip.NewWriterLevel(f, gzip.BestSpeed)
	w := tar.NewWriter(z)
	items(func(i item) {
		h := &tar.Header{Name: i.name, Mode: 0o644, Size: int64(len(i.data)), Typeflag: tar.TypeReg}
		switch {
		case i.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, i.link
		case i.dir:
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(i.data); err != nil {
			t.Fatal(err)
		}
	})
	if err := errors.Join(w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

// hostileChild is the environment variable that makes the test binary read one tree and say what that took.
const hostileChild = "CK_TOPO_HOSTILE"

func TestMain(m *testing.M) {
	if name := os.Getenv(hostileChild); name != "" {
		os.Exit(readHostile(name))
	}
	os.Exit(m.Run())
}

func readHostile(name string) int {
	start := time.Now()
	fsys, err := Open(name)
	var s Survey
	if err == nil {
		s, err = Inspect(fsys, false)
	}
	took := time.Since(start).Milliseconds()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem) // Sys is all that was ever asked of the system
	fmt.Printf("%d\n%d\n%d\n%q\n%q\n", mem.Sys, took, len(s.CPUs), fmt.Sprint(err), strings.Join(s.Missing, "; "))
	return 0
}

// outcome is what reading a tree in a process of its own came to.
type outcome struct {
	sys, millis, cpus int
	err, missing      string
}

func hostile(t *testing.T, name string) outcome {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hostileChild+"="+name, "GOGC=100", "GOMEMLIMIT=off")
	out, err := cmd.CombinedOutput()
	lines := strings.Split(string(out), "\n")
	if err != nil || len(lines) < 5 {
		t.Fatalf("%v: %.2000s", err, out)
	}
	var o outcome
	o.sys, _ = strconv.Atoi(lines[0])
	o.millis, _ = strconv.Atoi(lines[1])
	o.cpus, _ = strconv.Atoi(lines[2])
	o.err, _ = strconv.Unquote(lines[3])
	o.missing, _ = strconv.Unquote(lines[4])
	t.Logf("%d MB, %d ms, %d CPUs; %.120s; %.160s", o.sys/1e6, o.millis, o.cpus, o.err, o.missing)
	if o.sys == 0 || o.sys > memoryLimit {
		t.Errorf("took %d bytes of memory, the limit is %d", o.sys, memoryLimit)
	}
	if o.err == "<nil>" && o.missing == "" {
		t.Error("neither an error nor a sentence on what is missing")
	}
	return o
}

// files is a saved tree as items.
func files(t testing.TB, archive string) []item {
	t.Helper()
	fsys, err := Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	var all []item
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case d.Type()&fs.ModeSymlink != 0:
			link, err := fs.ReadLink(fsys, name)
			all = append(all, item{name: name, link: link})
			return err
		}
		b, err := fs.ReadFile(fsys, name)
		all = append(all, item{name: name, data: b})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Trees from strangers: an error or a page that says what is missing, in bounded memory.
func TestHostileTrees(t *testing.T) {
	trees := testkit.Data(t, "topology/trees")
	small := files(t, filepath.Join(trees, "dev-power.tar.gz"))
	small = append(small, files(t, filepath.Join(trees, "dev-dsa.tar.gz"))...)
	small = append(small, files(t, filepath.Join(trees, "dev-cxl.tar.gz"))...)
	// filled is the tree with other contents, but for the list of CPUs, so that there is something to go on with.
	filled := func(content func(name string) []byte) string {
		return archive(t, func(put func(item)) {
			for _, i := range small {
				if i.link == "" && i.name != cpuDir+"/online" {
					i.data = content(i.name)
				}
				put(i)
			}
		})
	}
	constant := func(s string) func(string) []byte { return func(string) []byte { return []byte(s) } }
	random := rand.New(rand.NewPCG(1, 2))
	many := func(n int) func(put func(item)) {
		return func(put func(item)) {
			for i := range n {
				if put(item{name: fmt.Sprintf("proc/%d/x", i)}); i < 2000 {
					put(item{name: fmt.Sprintf("sys/devices/system/cpu/cpu%d/x", i)})
				}
			}
		}
	}
	list := item{name: cpuDir + "/online", data: []byte("0-3")}
	for _, c := range []struct{ what, tree, err, missing string }{
		{"binary in text files", filled(func(string) []byte {
			b := make([]byte, 64)
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			return b
		}), "<nil>", "is no number"},
		{"empty files", filled(constant("")), "<nil>", "MemTotal|proc/meminfo is missing"},
		{"zero bytes", filled(constant(strings.Repeat("\x00", 100))), "<nil>", "proc/meminfo is missing"},
		{"a number beyond 64 bits", filled(constant("99999999999999999999")), "<nil>", "is no number"},
		{"the largest number", filled(constant("9223372036854775807")), "<nil>", "makes no sense"},
		{"a negative number", filled(constant("-9223372036854775808")), "<nil>", "makes no sense"},
		{"ten lines of nonsense", filled(constant(strings.Repeat("a: b, c-d [e] => 0x10\n", 10))), "<nil>", "is no number"},
		{"a list of a billion everywhere", filled(constant("0-999999999")), "<nil>", "bad list of numbers"},
		{"the longest list everywhere", filled(constant("0-16383")), "<nil>", "is no number"},
		{"a list of a billion CPUs", archive(t, func(put func(item)) {
			put(item{name: cpuDir + "/online", data: []byte("0-999999999")})
		}), "names no CPUs", ""},
		{"as many CPUs as a list may have, each with all of them as siblings and in its cache", archive(t, func(put func(item)) {
			put(item{name: cpuDir + "/online", data: []byte("0-16383")})
			for i := range 1024 {
				dir := fmt.Sprintf("%s/cpu%d/", cpuDir, i)
				put(item{name: dir + "topology/core_siblings_list", data: []byte("0-16383")})
				put(item{name: dir + "cache/index0/level", data: []byte("1")})
				put(item{name: dir + "cache/index0/type", data: []byte("Data")})
				put(item{name: dir + "cache/index0/shared_cpu_list", data: fmt.Appendf(nil, "%d-16383", i)})
			}
		}), "<nil>", "more CPUs than any machine"},
		{"links in circles", archive(t, func(put func(item)) {
			put(list)
			put(item{name: "proc/cpuinfo", link: "../proc/meminfo"})
			put(item{name: "proc/meminfo", link: "/proc/cpuinfo"})
			put(item{name: "sys/devices/system/node", link: "../system/node"})
			put(item{name: "sys/bus", link: "bus/bus/bus/bus"})
			put(item{name: "sys/class", link: strings.Repeat("./", 2000) + "class"})
		}), "<nil>", "symbolic links"},
		{"links out of the tree", archive(t, func(put func(item)) {
			put(list)
			put(item{name: "proc/cpuinfo", link: "/etc/passwd"})
			put(item{name: "proc/meminfo", link: "../../../../../../../../etc/passwd"})
		}), "<nil>", "proc/cpuinfo is missing"},
		{"an entry that leads out", archive(t, func(put func(item)) { put(list); put(item{name: "sys/../../x"}) }), "leads out of it", ""},
		{"an entry from the root", archive(t, func(put func(item)) { put(list); put(item{name: "/etc/passwd"}) }), "leads out of it", ""},
		{"a file below a file", archive(t, func(put func(item)) { put(list); put(item{name: list.name + "/x"}) }), "is none", ""},
		{"deep nesting", archive(t, func(put func(item)) { put(list); put(item{name: strings.Repeat("a/", 1000) + "b"}) }), "too long or too deep", ""},
		{"wide and deep nesting", archive(t, func(put func(item)) {
			put(list)
			for i := range 10_000 {
				put(item{name: fmt.Sprintf("%d/", i) + strings.Repeat("a/", 40) + "b"})
			}
		}), "no saved tree has", ""},
		{"a huge file", archive(t, func(put func(item)) { put(list); put(item{name: "proc/cpuinfo", data: make([]byte, 60<<20)}) }), "<nil>", "larger than"},
		{"many large files", archive(t, func(put func(item)) {
			put(list)
			for i := range 20 {
				put(item{name: fmt.Sprintf("proc/%d", i), data: make([]byte, maxFile)})
			}
		}), "no saved tree has", ""},
		{"more unpacked than a tree can be", archive(t, func(put func(item)) {
			for i := range 5 {
				put(item{name: fmt.Sprintf("proc/%d", i), data: make([]byte, 60<<20)})
			}
		}), "MiB unpacked", ""},
		{"a large file for a small one", archive(t, func(put func(item)) {
			put(list)
			put(item{name: "proc/meminfo", data: bytes.Repeat([]byte("MemTotal: 1 kB\n"), maxFile/16)})
		}), "<nil>", "longer than 1024 KiB"},
		{"many entries", archive(t, many(maxEntries)), "no saved tree has", ""},
		{"nearly too many entries", archive(t, many(maxEntries*2/5)), "<nil>", "is missing"},
		{"names without sense", archive(t, func(put func(item)) {
			put(list)
			for _, n := range []string{"sys/devices/system/node/node99999999999", "sys/devices/system/node/node-1", "sys/bus/dsa/devices/dsa", "sys/bus/dsa/devices/iaxx",
				"sys/bus/dsa/devices/dsa99999999999999999999", "sys/bus/cxl/devices/region", "sys/fs/resctrl/info/x", "sys/fs/resctrl/mon_data/mon_L3_x",
				"sys/class/infiniband/a/ports/999999999", "sys/kernel/mm/hugepages/hugepages-99999999999999999999kB", "sys/class/powercap/intel-rapl:", "cpuid/pu0"} {
				put(item{name: n + "/y", data: []byte("1")})
			}
		}), "<nil>", "is missing"},
		{"no gzip file", write(t, "x.tgz", []byte("hello")), "not a gzip file", ""},
		{"an empty archive", archive(t, func(put func(item)) {}), "names no CPUs", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			o := hostile(t, c.tree)
			if !strings.Contains(o.err, c.err) || c.err == "<nil>" && o.err != c.err {
				t.Errorf("error %q, want %q", o.err, c.err)
			}
			if c.err == "<nil>" && !slices.ContainsFunc(strings.Split(c.missing, "|"), func(m string) bool { return strings.Contains(o.missing, m) }) {
				t.Errorf("missing is %q, want %q in it", o.missing, c.missing)
			}
		})
	}
}

func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// The largest real tree stays within the same memory.
func TestLargestTree(t *testing.T) {
	o := hostileLargest(t)
	if o.cpus != 1792 || o.err != "<nil>" {
		t.Errorf("%+v", o)
	}
}

func hostileLargest(t *testing.T) outcome {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hostileChild+"="+testkit.Data(t, "topology/trees/hm-16s-1792cpu.tar.gz"))
	out, err := cmd.Output()
	lines := strings.Split(string(out), "\n")
	if err != nil || len(lines) < 5 {
		t.Fatalf("%v: %.2000s", err, out)
	}
	var o outcome
	o.sys, _ = strconv.Atoi(lines[0])
	o.cpus, _ = strconv.Atoi(lines[2])
	o.err, _ = strconv.Unquote(lines[3])
	t.Logf("%d MB, %s ms", o.sys/1e6, lines[1])
	if o.sys > memoryLimit {
		t.Errorf("took %d bytes of memory, the limit is %d", o.sys, memoryLimit)
	}
	return o
}

// An archive that was cut off anywhere is an error, never a page.
func TestTruncatedArchives(t *testing.T) {
	b, err := os.ReadFile(testkit.Data(t, "topology/trees/vm-2s-cxl-hmat.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(b); n += 97 {
		if m, err := readTar(bytes.NewReader(b[:n])); err == nil {
			t.Errorf("%d of %d bytes gave a tree of %d entries", n, len(b), len(m.entries))
		}
	}
}

// A folder on disk may hold more than files: pipes, links out of it, folders that may not be read.
func TestHostileFolder(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"sys/devices/system/cpu/online": "0-1", "proc/self/status": "x", "secret": "model name: secret"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, "tree", filepath.Dir(name)), 0o777), os.WriteFile(filepath.Join(root, "tree", name), []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(root, "outside")
	if err := os.WriteFile(outside, []byte("model name: outside"), 0o666); err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(root, "tree")
	cpuinfo := filepath.Join(tree, "proc/cpuinfo")
	for _, c := range []struct{ link, model string }{
		{outside, ""}, {"../../outside", ""}, {"/secret", "secret"}, {"../secret", "secret"}, {"../../../secret", "secret"}, {"cpuinfo", ""}, {"/proc/cpuinfo", ""},
	} {
		os.Remove(cpuinfo)
		if err := os.Symlink(c.link, cpuinfo); err != nil {
			t.Fatal(err)
		}
		fsys, err := Open(tree)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Inspect(fsys, false)
		if err != nil || s.Model != c.model {
			t.Errorf("cpuinfo is a link to %s: model %q, want %q; %v", c.link, s.Model, c.model, err)
		}
	}
	os.Remove(cpuinfo)
	if err := syscall.Mkfifo(cpuinfo, 0o666); err != nil {
		t.Skip(err)
	}
	fsys, err := Open(tree)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Inspect(fsys, false)
	if err != nil || !strings.Contains(strings.Join(s.Missing, ";"), "proc/cpuinfo cannot be read: neither a file nor a folder") {
		t.Errorf("a pipe for cpuinfo: %v; %q", err, s.Missing)
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
	if _, err := Open(write(t, "x.zip", nil)); err == nil || !strings.Contains(err.Error(), "neither a folder") {
		t.Errorf("another file: %v", err)
	}
	fsys, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(fsys, false); !errors.Is(err, errNoCPUs) {
		t.Errorf("an empty folder: %v", err)
	}
}

func FuzzArchive(f *testing.F) {
	packed, err := os.Open(archive(f, func(put func(item)) {
		for name, text := range box() {
			put(item{name: "top/" + name, data: []byte(text)})
		}
		put(item{name: "top/sys/bus/dsa/devices/dsa0/state", data: []byte("enabled")})
		put(item{name: "top/sys/bus/dsa/devices/wq0.0/type", data: []byte("user")})
		put(item{name: "top/sys/class/infiniband/a", link: "../../bus/dsa/devices"})
	}))
	if err != nil {
		f.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		f.Fatal(err)
	}
	b, err := io.ReadAll(z) // a checksum would keep the fuzzer out
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readEntries(bytes.NewReader(b))
		if err != nil {
			return
		}
		if m.bytes > maxTree || len(m.entries) > maxEntries {
			t.Errorf("%d bytes, %d entries", m.bytes, len(m.entries))
		}
		if s, err := Inspect(linked{m}, false); err == nil && len(s.Memory) != len(s.Nodes) {
			t.Errorf("%d nodes, %d memories", len(s.Nodes), len(s.Memory))
		}
	})
}

// FuzzTree puts one content into every file that a tree may have.
func FuzzTree(f *testing.F) {
	names := []string{}
	for name := range box() {
		names = append(names, name)
	}
	names = append(names, "sys/bus/dsa/devices/dsa0/state", "sys/bus/dsa/devices/dsa0/version", "sys/bus/dsa/devices/wq0.0/size", "sys/bus/cxl/devices/region0/size",
		"sys/bus/cxl/devices/decoder0.0/target_list", "sys/bus/dax/devices/dax0.0/target_node", "sys/class/infiniband/a/ports/1/rate", "sys/class/powercap/intel-rapl:0/energy_uj",
		"sys/class/thermal/thermal_zone0/temp", "sys/fs/resctrl/info/L3_MON/mon_features", "sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy", "proc/cpuinfo", "proc/version", "proc/self/limits",
		"sys/devices/system/node/node0/distance", "sys/devices/system/node/node0/access0/initiators/read_latency", "sys/kernel/mm/transparent_hugepage/enabled", "cpuid/pu0")
	slices.Sort(names)
	for _, s := range []string{"0-3", "32K", "0x1000", "[a] b", "4: ACTIVE", "400 Gb/sec (4X NDR)", "0 0 7 756e6547 6c65746e 49656e69"} {
		f.Add(s, uint8(3))
	}
	f.Fuzz(func(t *testing.T, content string, which uint8) {
		files := maps.Clone(box())
		for i, n := range names {
			if uint8(i)%8 == which%8 || which > 200 {
				files[n] = content
			}
		}
		s, err := Inspect(fake(files).FS, false)
		if err != nil {
			return
		}
		if len(s.Memory) != len(s.Nodes) || s.Distance != nil && len(s.Distance) != len(s.Nodes) {
			t.Errorf("%d nodes, %d memories, %d rows of distances", len(s.Nodes), len(s.Memory), len(s.Distance))
		}
	})
}
