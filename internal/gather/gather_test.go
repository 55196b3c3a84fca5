package gather

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"ck/internal/page"
	"ck/internal/testkit"
	"ck/internal/topo"
)

// small is the least tree that names two CPUs and holds everything that must not leave a machine.
func small() fstest.MapFS {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	return fstest.MapFS{
		"proc/sys/kernel/hostname":               file("secrethost.example.org\n"),
		"proc/cmdline":                           file("root=UUID=11112222-3333-4444-5555-666677778888 isolcpus=1 password=hunter2 nohz_full=1\n"),
		"proc/version":                           file("Linux version 6.1.0 (builder@secrethost) (gcc 12)\n"),
		"proc/self/status":                       file("Name:\tcktopo\nUid:\t1234\nCpus_allowed_list:\t0-1\n"),
		"proc/self/cgroup":                       file("0::/secrethost.slice\n"),
		"proc/self/mountinfo":                    file("30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 1 0:27 / /home rw - nfs4 fileserver:/export rw\n"),
		"proc/meminfo":                           file("MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n"),
		"proc/cpuinfo":                           file("model name\t: A CPU\nflags\t\t: avx2\n"),
		"sys/devices/system/cpu/online":          file("0-1\n"),
		"sys/devices/system/cpu/present":         file("0-1\n"),
		"sys/fs/cgroup/secrethost.slice/cpu.max": file("100000 100000\n"),
		"sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0/node_guid":      file("b8ce:f603:00aa:bbcc\n"),
		"sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0/node_desc":      file("secrethost mlx5_0\n"),
		"sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0/hca_type":       file("MT4129\n"),
		"sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0/ports/1/state":  file("4: ACTIVE\n"),
		"sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0/ports/1/gids/0": file("fe80:0000:0000:0000:b8ce:f603:00aa:bbcc\n"),
		"sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0/ports/1/gids/1": file("0000:0000:0000:0000:0000:0000:0000:0000\n"),
		"sys/class/infiniband/mlx5_0":                                          &fstest.MapFile{Data: []byte("../../devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0"), Mode: os.ModeSymlink},
	}
}

// readArchive is the entries of an archive: content, or "-> target".
func readArchive(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		entries[h.Name] = string(b)
		if h.Typeflag == tar.TypeSymlink {
			entries[h.Name] = "-> " + h.Linkname
			if path.IsAbs(h.Linkname) {
				t.Errorf("%s is an absolute link to %s", h.Name, h.Linkname)
			}
		}
	}
}

func TestGatherLeavesOut(t *testing.T) {
	fsys := small()
	r := NewRecorder(fsys)
	if err := r.Record(false); err != nil {
		t.Fatal(err)
	}
	for name := range fsys { // also what a survey does not ask for
		if b, err := r.Open(name); err == nil {
			b.Close()
		}
	}
	a, err := r.Archive(HostName(fsys, false))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := a.Write(&b); err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/x.tgz"
	if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	entries := readArchive(t, file)
	for name, text := range entries {
		for _, secret := range []string{"secrethost", "hunter2", "1111", "b8ce", "fileserver", "1234", "builder"} {
			if strings.Contains(name+text, secret) {
				t.Errorf("%s: %q has %s in it", name, text, secret)
			}
		}
	}
	for name, want := range map[string]string{
		"machine/proc/cmdline":                     "isolcpus=1 nohz_full=1\n",
		"machine/proc/version":                     "Linux version 6.1.0\n",
		"machine/proc/self/cgroup":                 "0::/host.slice\n",
		"machine/proc/self/status":                 "Cpus_allowed_list:\t0-1\n",
		"machine/sys/fs/cgroup/host.slice/cpu.max": "100000 100000\n",
		"machine/sys/class/infiniband/mlx5_0":      "-> ../../devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0",
		"machine/sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0/hca_type":       "MT4129\n",
		"machine/sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0/ports/1/gids/0": "0000:0000:0000:0000:0000:0000:0000:0001\n",
		"machine/sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0/ports/1/gids/1": "0000:0000:0000:0000:0000:0000:0000:0000\n",
	} {
		if entries[name] != want {
			t.Errorf("%s is %q, want %q", name, entries[name], want)
		}
	}
	s := inspect(t, file)
	if s.Quota.CPUs != 1 || s.Quota.Group != "/host.slice" {
		t.Errorf("the quota of the renamed cgroup is %+v", s.Quota)
	}
}

// On this machine the page of the gathered tree is that of the files when they were gathered. What only the process itself knows (its
// ulimits, its affinity) is compared as the kernel's files tell it.
func TestGatherLive(t *testing.T) {
	fsys, err := topo.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(fsys)
	if err := r.Record(true); err != nil {
		t.Fatal(err)
	}
	live, err := topo.Inspect(r, true)
	if err != nil {
		t.Fatal(err)
	}
	saved := inspect(t, writeArchive(t, r, ""))
	for _, plain := range []bool{false, true} {
		want, got := pageOf(t, &live, plain), pageOf(t, &saved, plain)
		if want != got {
			t.Errorf("pages differ: %s", firstDifference(want, got))
		}
	}
}

// A file that cannot be read is named; it does not stop the rest.
func TestGatherUnreadable(t *testing.T) {
	fsys := small()
	r := NewRecorder(fsys)
	if err := r.Record(false); err != nil {
		t.Fatal(err)
	}
	r.files["sys/class/powercap/intel-rapl:0/energy_uj"] = &kept{err: &os.PathError{Op: "open", Path: "x", Err: os.ErrPermission}}
	entries := readArchive(t, writeArchive(t, r, ""))
	if got, want := entries["machine/errors.txt"], "sys/class/powercap/intel-rapl:0/energy_uj: permission denied\n"; got != want {
		t.Errorf("errors.txt is %q, want %q", got, want)
	}
	if text, ok := entries["machine/sys/class/powercap/intel-rapl:0/energy_uj"]; !ok || text != "" {
		t.Errorf("the unreadable file is %q, %v", text, ok)
	}
}

func TestRelativeLink(t *testing.T) {
	for _, c := range []struct {
		at, to, want string
		ok           bool
	}{
		{"sys/class/a", "../devices/b", "../devices/b", true},
		{"sys/class/a", "/sys/devices/b", "../devices/b", true},
		{"sys/a", "../../etc/passwd", "../../etc/passwd", false},
		{"a", "..", "..", false},
	} {
		if got, ok := relativeLink(c.at, c.to); got != c.want || ok != c.ok {
			t.Errorf("%s -> %s: %q, %v, want %q, %v", c.at, c.to, got, ok, c.want, c.ok)
		}
	}
}

func pageOf(t *testing.T, s *topo.Survey, plain bool) string {
	t.Helper()
	var b bytes.Buffer
	if err := page.Write(&b, s, plain, page.Width); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// treeNames are the saved trees of the reference data.
func treeNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testkit.Data(t, "topology/trees"), "*.tar.gz"))
	if err != nil || len(files) < testkit.Least(t, 49, 10) {
		t.Fatalf("%d trees, %v", len(files), err)
	}
	return files
}

func inspect(t *testing.T, file string) topo.Survey {
	t.Helper()
	fsys, err := topo.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := fsys.(io.Closer); ok {
		defer c.Close()
	}
	s, err := topo.Inspect(fsys, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Gathering a tree gives one with the same page.
func TestTrees(t *testing.T) {
	for _, file := range treeNames(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".tar.gz"), func(t *testing.T) {
			t.Parallel()
			fsys, err := topo.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := fsys.(io.Closer); ok {
				defer c.Close()
			}
			r := NewRecorder(fsys)
			s, err := topo.Inspect(r, false)
			if err != nil {
				t.Fatal(err)
			}
			checkGather(t, r, pageOf(t, &s, false), pageOf(t, &s, true))
		})
	}
}

func checkGather(t *testing.T, r *Recorder, page, plain string) {
	t.Helper()
	s := inspect(t, writeArchive(t, r, ""))
	if got := pageOf(t, &s, false); got != page {
		t.Errorf("the gathered tree has another page: %s", firstDifference(page, got))
	}
	if got := pageOf(t, &s, true); got != plain {
		t.Errorf("the gathered tree has another plain page: %s", firstDifference(plain, got))
	}
}

func writeArchive(t *testing.T, r *Recorder, host string) string {
	t.Helper()
	a, err := r.Archive(host)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "tree.tgz")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := a.Write(f); err != nil {
		t.Fatal(err)
	}
	return name
}

// firstDifference shows the first line in which two texts differ.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range w {
		if i >= len(g) || w[i] != g[i] {
			return "\nwant " + w[i] + "\ngot  " + strings.Join(g[min(i, len(g)):min(i+1, len(g))], "")
		}
	}
	return "more lines: " + strings.Join(g[len(w):min(len(w)+1, len(g))], "")
}

// A machine that topo.Open would refuse is not gathered.
func TestTooLarge(t *testing.T) {
	r := NewRecorder(fstest.MapFS{})
	for i := range 8 {
		r.files[fmt.Sprintf("sys/%d", i)] = &kept{data: make([]byte, maxFile)}
	}
	var large *TooLargeError
	if _, err := r.Archive(""); !errors.As(err, &large) || large.Bytes != 8*maxFile || large.Entries != 8 {
		t.Errorf("%v", err)
	}
	delete(r.files, "sys/0")
	if _, err := r.Archive(""); err != nil {
		t.Error(err)
	}
}
