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

// memoryLimit is what reading any tree may take, all told, in bytes; slow, in milliseconds of CPU time, is several times what any takes, and
// near for a reader that compares all with all.
const (
	memoryLimit = 100_000_000
	slow        = 10_000
)

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
	fsys, err := Open(name)
	var s Survey
	if err == nil {
		s, err = Inspect(fsys, false)
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem) // Sys is all that was ever asked of the system
	fmt.Printf("%d\n%d\n%q\n%q\n", mem.Sys, len(s.CPUs), fmt.Sprint(err), strings.Join(s.Missing, "; "))
	return 0
}

// outcome is what reading a tree in a process of its own came to.
type outcome struct {
	sys, millis, cpus int
	err, missing      string
}

func hostile(t *testing.T, name string) outcome {
	t.Helper()
	o := readApart(t, name, "GOGC=100", "GOMEMLIMIT=off")
	if o.millis > slow {
		t.Errorf("took %d ms of CPU time, the limit is %d", o.millis, slow)
	}
	if o.err == "<nil>" && o.missing == "" {
		t.Error("neither an error nor a sentence on what is missing")
	}
	return o
}

// readApart reads a tree in a process of its own, within memoryLimit.
func readApart(t *testing.T, name string, env ...string) (o outcome) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), hostileChild+"="+name), env...)
	out, err := cmd.CombinedOutput()
	lines := strings.Split(string(out), "\n")
	if err != nil || len(lines) < 4 {
		t.Fatalf("%v: %.2000s", err, out)
	}
	o.sys, _ = strconv.Atoi(lines[0])
	o.millis = int((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Milliseconds())
	o.cpus, _ = strconv.Atoi(lines[1])
	o.err, _ = strconv.Unquote(lines[2])
	o.missing, _ = strconv.Unquote(lines[3])
	t.Logf("%d MB, %d ms of CPU time, %d CPUs; %.120s; %.160s", o.sys/1e6, o.millis, o.cpus, o.err, o.missing)
	if o.sys == 0 || o.sys > memoryLimit {
		t.Errorf("took %d bytes of memory, the limit is %d", o.sys, memoryLimit)
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
			for i := range 200 {
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
		}), "<nil>", "proc/cpuinfo is missing"},
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
		{"more nodes than Linux can have, each with all CPUs and a row of distances", archive(t, func(put func(item)) {
			put(item{name: cpuDir + "/online", data: []byte("0-3999")})
			row := []byte(strings.Repeat("9 ", 2000))
			for i := range 2000 {
				put(item{name: fmt.Sprintf("%s/node%d/distance", nodeDir, i), data: row})
				put(item{name: fmt.Sprintf("%s/node%d/cpulist", nodeDir, i), data: []byte("0-3999")})
			}
			for i := range 4000 {
				put(item{name: fmt.Sprintf("%s/cpu%d/topology/physical_package_id", cpuDir, i), data: fmt.Append(nil, i)})
			}
		}), "<nil>", "node1024 is beyond what Linux can have"},
		{"links that make a few files millions", archive(t, func(put func(item)) {
			put(list)
			for i := range 2000 {
				put(item{name: fmt.Sprintf("sys/class/infiniband/a%d", i), link: "/x"})
				put(item{name: fmt.Sprintf("x/ports/%d/state", i), data: []byte("1: DOWN")})
				put(item{name: fmt.Sprintf("x/ports/%d/counters", i), link: "/y"})
				put(item{name: fmt.Sprintf("y/counter%d", i), data: []byte("1")})
				put(item{name: fmt.Sprintf(cpuDir+"/cpu%d", i), link: "/z"})
				put(item{name: fmt.Sprintf("z/cache/index%d/level", i), data: []byte("1")})
			}
		}), "<nil>", "reading was given up half-way"},
		{"as many entries as may be, links to one", archive(t, func(put func(item)) {
			put(item{name: cpuDir + "/online", data: []byte("0-1999")})
			for i := range 2000 {
				put(item{name: fmt.Sprintf("%s/cpu%d", cpuDir, i), link: "cpu0x"})
			}
			for i := range 100_000 {
				put(item{name: fmt.Sprintf("%s/cpu0x/cache/index%d", cpuDir, i), link: strings.Repeat("./", 60) + "../x"})
			}
			put(item{name: cpuDir + "/cpu0x/x/level", data: []byte("1")})
			put(item{name: cpuDir + "/cpu0x/x/type", data: []byte("Data")})
		}), "<nil>", "reading was given up half-way"},
		{"regions and devices with paths as long as may be", archive(t, func(put func(item)) {
			put(list)
			for i := range 1000 {
				put(item{name: fmt.Sprintf("sys/bus/cxl/devices/region%d/size", i), data: []byte("1")})
				put(item{name: fmt.Sprintf("sys/bus/dax/devices/dax%d.0", i), link: "../" + strings.Repeat("a/", 1900) + "region1/dax_region1"})
			}
		}), "<nil>", "is missing"},
		{"the longest values that are believed", archive(t, func(put func(item)) {
			put(list)
			put(item{name: "w", data: bytes.Repeat([]byte("w"), maxWord)})
			for k := range 16 {
				put(item{name: fmt.Sprintf("x/trip_point_%d_type", k), link: "/w"})
				put(item{name: fmt.Sprintf("x/trip_point_%d_temp", k), data: []byte("1")})
			}
			for _, n := range []string{"type", "mode", "policy", "name", "constraint_0_name", "constraint_1_name", "fw_ver", "hca_type", "board_id", "ports/1/rate", "ports/1/lid"} {
				put(item{name: "x/" + n, link: "/w"})
			}
			for i := range 2100 {
				for _, n := range []string{"thermal/thermal_zone", "powercap/intel-rapl:", "infiniband/x", "infiniband_verbs/y"} {
					put(item{name: fmt.Sprintf("sys/class/%s%d", n, i), link: "/x"})
				}
			}
		}), "<nil>", "sys/class/powercap has 2100 entries; 2048 were read"},
		{"a cgroup half a million levels deep", archive(t, func(put func(item)) {
			put(list)
			put(item{name: "proc/self/cgroup", data: []byte("0::" + strings.Repeat("/a", 500_000))})
			put(item{name: "proc/self/mountinfo", data: []byte(v2mount)})
		}), "<nil>", "proc/self/cgroup speaks of a cgroup that Linux cannot have"},
		{"thousands of controllers", archive(t, func(put func(item)) {
			put(list)
			names := strings.Repeat("a,b,c,d,e,f,g,h,", 100) + "memory"
			put(item{name: "proc/self/cgroup", data: []byte("1:" + names + ":" + strings.Repeat("/a", 100))})
			put(item{name: "proc/self/mountinfo", data: []byte("33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup " + names)})
		}), "<nil>", "proc/self/cgroup speaks of a cgroup that Linux cannot have"},
		{"a mount point of a megabyte", archive(t, func(put func(item)) {
			put(list)
			put(item{name: "proc/self/cgroup", data: []byte("0::" + strings.Repeat("/a", 100))})
			put(item{name: "proc/self/mountinfo", data: []byte("33 31 0:30 / /" + strings.Repeat("x", 1<<20) + " rw - cgroup2 cgroup rw")})
		}), "<nil>", "proc/self/mountinfo speaks of a cgroup that Linux cannot have"},
		{"megabytes where a word is expected", archive(t, func(put func(item)) {
			put(list)
			put(item{name: "w", data: []byte("Mitigation: " + strings.Repeat("w", 1<<20-100))})
			for i := range 64 {
				put(item{name: fmt.Sprintf("%s/vulnerabilities/%d", cpuDir, i), link: "/w"})
				put(item{name: fmt.Sprintf("cpuid/%d", i), link: "/w"})
			}
		}), "<nil>", "vulnerabilities/0 is no text"},
		{"two million words in a line", archive(t, func(put func(item)) {
			put(list)
			put(item{name: "w", data: bytes.Repeat([]byte("1 "), maxFile/2)})
			put(item{name: "flags", data: append([]byte("flags: "), bytes.Repeat([]byte("a "), maxFile/2-4)...)})
			put(item{name: "proc/cpuinfo", link: "/flags"})
			for _, n := range []string{"proc/version", "proc/self/mountinfo", "proc/self/cgroup", "proc/self/limits", "proc/meminfo", "cpuid/pu0", nodeDir + "/node0/distance",
				nodeDir + "/node0/meminfo", cpuDir + "/cpu0/topology/core_cpus_list", cpuDir + "/cpu0/topology/core_cpus", "sys/fs/resctrl/info/L3_MON/mon_features"} {
				put(item{name: n, link: "/w"})
			}
		}), "<nil>", "speaks of a cgroup that Linux cannot have"},
		{"numbers with zeros before them", archive(t, func(put func(item)) {
			for _, n := range []string{"cpu0", "cpu00", "cpu1", "cpu01", "cpu000000000000000001", "cpu99999", "cpu18446744073709551617"} {
				put(item{name: "sys/devices/system/cpu/" + n + "/topology/core_id", data: []byte("0")})
			}
		}), "<nil>", "cpu00 is no number that a machine has"},
		{"names that a shell or a terminal obeys", archive(t, func(put func(item)) {
			put(list)
			for _, n := range []string{"sys/bus/dsa/devices/dsa0/state", "sys/bus/dsa/devices/wq0.0;reboot/size", "sys/class/infiniband/\x1b[31m/fw_ver", "sys/class/powercap/intel-rapl:`x`/name",
				"sys/bus/dax/devices/" + strings.Repeat("x", 3000) + "/size"} {
				put(item{name: n, data: []byte("1")})
			}
		}), "<nil>", "sys/class/infiniband/?[31m has a name that no driver gives"},
		{"files where folders are expected", archive(t, func(put func(item)) {
			put(list)
			for _, n := range []string{nodeDir, dsaDir, cxlDir, daxDir, rdmaDir, powerDir, "sys/class/thermal", "sys/fs/resctrl/info", cpuDir + "/vulnerabilities", "cpuid", cpuDir + "/cpu0/cache"} {
				put(item{name: n, data: []byte("0-3")})
			}
		}), "<nil>", nodeDir + " cannot be read: not a directory"},
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
	o := readApart(t, testkit.Data(t, "topology/trees/hm-16s-1792cpu.tar.gz"))
	if o.cpus != 1792 || o.err != "<nil>" {
		t.Errorf("%+v", o)
	}
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

// Damage within an archive of which all is there shows in its checksum.
func TestDamagedArchives(t *testing.T) {
	b, err := os.ReadFile(archive(t, func(put func(item)) {
		for name, text := range box() {
			put(item{name: name, data: []byte(text)})
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readTar(bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 4, 8} {
		if _, err := readTar(bytes.NewReader(b[:len(b)-n])); err == nil || !strings.Contains(err.Error(), "cut off or damaged") {
			t.Errorf("without its last %d bytes: %v", n, err)
		}
	}
	damaged := slices.Clone(b)
	damaged[len(b)-8] ^= 1
	if _, err := readTar(bytes.NewReader(damaged)); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("another checksum: %v", err)
	}
	if _, err := readTar(bytes.NewReader(append(slices.Clone(b), "what is no gzip"...))); err != nil {
		t.Errorf("something that is no gzip behind it: %v", err)
	}
}

// tarBlock is a header of a tar archive with a content, as no program writes it.
func tarBlock(kind byte, name, link, content string) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x0000000000000\x00", len(content)))
	h[156] = kind
	copy(h[157:], link)
	copy(h[257:], "ustar\x0000")
	copy(h[148:], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(append(h, content...), make([]byte, -len(content)&511)...)
}

// paxRecord is a line of an extended header: its length, a key and a value.
func paxRecord(key, value string) string {
	n := len(key) + len(value) + 3
	for n != len(fmt.Sprint(n))+len(key)+len(value)+3 {
		n = len(fmt.Sprint(n)) + len(key) + len(value) + 3
	}
	return fmt.Sprintf("%d %s=%s\n", n, key, value)
}

// Kinds of entries that archives of people have and ours do not.
func TestKindsOfEntries(t *testing.T) {
	b := slices.Concat(tarBlock('g', "pax_global_header", "", paxRecord("comment", "of git archive")), tarBlock('0', "top/sys/devices/system/cpu/online", "", "0-1"),
		tarBlock('0', "top/proc/cpuinfo", "", "model name: first"), tarBlock('1', "top/proc/linked", "top/proc/cpuinfo", ""), tarBlock('1', "top/proc/gone", "top/proc/none", ""),
		tarBlock('1', "top/proc/out", "../../etc/passwd", ""), tarBlock('6', "top/proc/pipe", "", ""), make([]byte, 1024))
	m, err := readEntries(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	r := tree{linked{m}, &notes{}, nil}
	if got := r.text("proc/linked"); got != "model name: first" {
		t.Errorf("a hard link: %q", got)
	}
	for _, name := range []string{"proc/gone", "proc/out", "proc/pipe"} {
		if got := r.text(name); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if !r.has("proc/pipe") || !r.has("proc/linked") || r.has("proc/none") {
		t.Error("a pipe is there without being read, as a file is; what is in no archive is not")
	}
	if got, want := strings.Join(r.notes.all(), "; "), "proc/gone cannot be read: a hard link to what is no file of the archive; "+
		"proc/out cannot be read: a hard link to what is no file of the archive; proc/pipe cannot be read: neither a file nor a folder"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Files that are nearly all holes are small in an archive and large in memory.
func TestHoles(t *testing.T) {
	holes := tarBlock('x', "x", "", paxRecord("GNU.sparse.major", "0")+paxRecord("GNU.sparse.minor", "1")+paxRecord("GNU.sparse.name", "proc/x")+
		paxRecord("GNU.sparse.size", fmt.Sprint(maxFile))+paxRecord("GNU.sparse.numblocks", "1")+paxRecord("GNU.sparse.map", fmt.Sprintf("%d,1", maxFile-1)))
	holes = append(holes, tarBlock('0', "proc/x", "", "y")...)
	m, err := readEntries(bytes.NewReader(append(slices.Clone(holes), make([]byte, 1024)...)))
	if err != nil || len(m.entries["proc/x"].data) != maxFile {
		t.Fatalf("%d bytes, %v", len(m.entries["proc/x"].data), err)
	}
	if _, err := readEntries(bytes.NewReader(bytes.Repeat(holes, 1000))); err == nil || !strings.Contains(err.Error(), "MiB unpacked") {
		t.Errorf("4 GB of holes: %v", err)
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
	if st, err := fs.Stat(fsys, "proc/cpuinfo"); err != nil || st.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("what a pipe is: %v, %v", st, err)
	}
	if m, err := Read(tree); err != nil || len(m.CPUs) != 2 {
		t.Errorf("the engine's reader: %d CPUs, %v", len(m.CPUs), err)
	}
	// In a folder files may have any size.
	if err := errors.Join(os.Remove(filepath.Join(tree, "proc/self/status")), os.WriteFile(filepath.Join(tree, "proc/meminfo"), make([]byte, maxText+1), 0o666)); err != nil {
		t.Fatal(err)
	}
	if s, err = Inspect(fsys, false); err != nil || !strings.Contains(strings.Join(s.Missing, ";"), "proc/meminfo is longer than 4096 KiB and was not read") {
		t.Errorf("a huge file: %v; %q", err, s.Missing)
	}
	// Listing a pipe would wait as opening it does.
	for _, name := range []string{nodeDir, dsaDir, "sys/class/thermal", "sys/kernel/mm/hugepages", cpuDir + "/cpu0"} {
		name = filepath.Join(tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), syscall.Mkfifo(name, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	go func() {
		s, err = Inspect(fsys, false)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil || !strings.Contains(strings.Join(s.Missing, ";"), nodeDir+" cannot be read: not a directory") {
			t.Errorf("pipes for folders: %v; %q", err, s.Missing)
		}
	case <-time.After(testkit.Hang):
		t.Fatal("waits for somebody to write into a pipe")
	}
}

// Links mean the same in a folder as in an archive of it.
func TestLinksAlike(t *testing.T) {
	links := map[string]string{"sys/rel": "a/b", "sys/abs": "/sys/a/b", "sys/up": "../sys/a", "sys/out": "../../../../../sys/a/b/file", "sys/a/here": ".", "sys/a/b/back": "..",
		"sys/loop": "loop", "sys/ring": "gnir", "sys/gnir": "ring", "sys/none": "nowhere", "sys/deep": "a/here/here/b/back/b", "sys/slash": "a/b/", "sys/via": "rel/../c/file",
		"sys/root": "/", "sys/file": "a/b/file", "sys/under": "a/b/file/x", "sys/etc": "/etc/hostname", "sys/long": strings.Repeat("a/../", 500) + "a/b/file", "sys/dots": "a/./b//file"}
	files := map[string]string{"sys/a/b/file": "1", "sys/a/c/file": "2", "sys/devices/system/cpu/online": "0"}
	root := t.TempDir()
	for name, text := range files {
		at := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o777), os.WriteFile(at, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := Open(archive(t, func(put func(item)) {
		for name, text := range files {
			put(item{name: name, data: []byte(text)})
		}
		for name, to := range links {
			put(item{name: name, link: to})
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	kind := func(err error) string {
		for _, e := range []error{fs.ErrNotExist, errLinks, syscall.ENOTDIR} {
			if errors.Is(err, e) {
				return e.Error()
			}
		}
		return fmt.Sprint(err)
	}
	seen := map[string]bool{}
	for name := range links {
		for _, below := range []string{"", "/file", "/b/file", "/b", "/../a/b/file", "/file/x"} {
			name := name + below
			look := func(f fs.FS) string {
				b, err := fs.ReadFile(f, name)
				if st, err2 := fs.Stat(f, name); err2 == nil && st.IsDir() {
					es, err := fs.ReadDir(f, name)
					return fmt.Sprint("folder of ", len(es), err)
				}
				to, _ := fs.ReadLink(f, name)
				return fmt.Sprintf("%q %v -> %s", b, kind(err), to)
			}
			got, want := look(packed), look(folder)
			if got != want {
				t.Errorf("%s: %s in an archive, %s in a folder", name, got, want)
			}
			seen[got] = true
		}
	}
	if len(seen) < 12 {
		t.Errorf("only %d kinds of answers: %v", len(seen), seen)
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

func FuzzArchive(tf *testing.F) {
	f := testkit.Fuzz(tf)
	fewSteps(f)
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
func FuzzTree(tf *testing.F) {
	f := testkit.Fuzz(tf)
	fewSteps(f)
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
