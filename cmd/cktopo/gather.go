package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/humanize"
	"ck/internal/topo"
)

// Limits of what is gathered: those of topo.Open, which reads it back.
const (
	maxGatherFile    = 4 << 20  // bytes of one file
	maxGatherBytes   = 30 << 20 // of all files
	maxGatherEntries = 150_000
	gatherFolder     = "machine" // in the archive
)

func (p *program) gatherCommand() {
	c := p.app.NewCommand("gather FILE.tgz [flags]", "save what the page is made of, for a bug report",
		`Copies the files that tell of the machine into a tar file packed with gzip: those that the page is made of, and no others. "cktopo --root FILE.tgz" shows the same page from it, on any machine.

Host names, serial numbers, MAC addresses and GUIDs are left out. Look into it before you send it: tar tzf FILE.tgz.`,
		func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage("gather: wants the name of one file; see cktopo gather --help")
			}
			return p.gather(args[0])
		})
	cli.NewGroup(c.Flags(), "Output").Bool(&p.force, "force", "", "overwrite FILE.tgz")
}

// gathered is what gather reports.
type gathered struct {
	Schema     string   `json:"schema"`
	File       string   `json:"file"`
	Bytes      int64    `json:"bytes"` // of the files, unpacked
	Files      int      `json:"files"`
	Redacted   []string `json:"redacted"`
	Unreadable []string `json:"unreadable"`
}

func (p *program) gather(file string) error {
	if file != "-" && !strings.HasSuffix(file, ".tgz") && !strings.HasSuffix(file, ".tar.gz") {
		return cli.Usage("%s: --root reads .tgz and .tar.gz; name it so", file)
	}
	if file == "-" && p.app.Common.JSON {
		return cli.Usage("gather: both the archive and --json would go to stdout; name a file")
	}
	fsys, live, err := p.files()
	if err != nil {
		return err
	}
	defer closeFiles(fsys)
	r := newRecorder(fsys)
	if err := r.record(live); err != nil {
		return inputError(err)
	}
	t, err := r.archive(hostName(fsys, live))
	if err != nil {
		return err
	}
	out, err := p.app.Create(file, p.force)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := t.write(out); err != nil {
		return cli.OutError(err)
	}
	if err := out.Commit(); err != nil {
		return err
	}
	g := gathered{"ck.topo.gather/1", file, t.bytes, t.files, t.redacted, t.unreadable}
	if p.app.Common.JSON {
		return p.app.PrintJSON(g)
	}
	if !p.app.Common.Quiet {
		p.app.Note("%s: %s, %s; left out of %d, %d could not be read", file, humanize.Plural(g.Files, "file"), humanize.IBytes(g.Bytes),
			len(g.Redacted), len(g.Unreadable))
	}
	return nil
}

// hostName is the name that must not appear in the archive; "" if it is unknown or too general to look for.
func hostName(fsys fs.FS, live bool) string {
	b, _ := fs.ReadFile(fsys, "proc/sys/kernel/hostname")
	name := strings.TrimSpace(string(b))
	if name == "" && live {
		name, _ = os.Hostname()
	}
	name, _, _ = strings.Cut(name, ".")
	if len(name) < 4 || slices.Contains([]string{"localhost", "(none)", "cgroup", "memory", "cpuset"}, name) {
		return ""
	}
	return name
}

// A recorder is a file system that keeps what is read through it: the one list of the files that a survey needs. What was read once does
// not change any more.
type recorder struct {
	fsys  fs.FS
	files map[string]*kept
	dirs  map[string][]fs.DirEntry // that were listed
	links map[string]string        // that were read
	seen  map[string]fs.FileMode   // that were asked whether they are there
}

// kept is a file's content or the error of reading it.
type kept struct {
	data []byte
	err  error
}

func newRecorder(fsys fs.FS) *recorder {
	return &recorder{fsys, map[string]*kept{}, map[string][]fs.DirEntry{}, map[string]string{}, map[string]fs.FileMode{}}
}

// record surveys the machine through the recorder; a live one twice, since a saved tree answers from files what the kernel tells a process
// about itself.
func (r *recorder) record(live bool) error {
	if live {
		if _, err := topo.Inspect(r, true); err != nil {
			return err
		}
	}
	_, err := topo.Inspect(r, false)
	return err
}

// Open gives a kept file, or a folder.
func (r *recorder) Open(name string) (fs.File, error) {
	if k := r.files[name]; k != nil {
		return k.open(name)
	}
	f, err := r.fsys.Open(name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.files[name] = &kept{err: err}
		}
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		return &recordedDir{f, r, name}, nil
	}
	defer f.Close()
	k := &kept{err: err}
	if err == nil {
		var data []byte
		data, k.err = io.ReadAll(io.LimitReader(f, maxGatherFile+1))
		k.data = bytes.Clone(data) // most files are a few bytes, and there may be 100,000 of them
	}
	r.files[name] = k
	return k.open(name)
}

// open is an open file of what was kept. An error of reading comes at the first read, as it did before.
func (k *kept) open(name string) (fs.File, error) {
	var pe *fs.PathError
	if errors.As(k.err, &pe) && pe.Op != "read" {
		return nil, k.err
	}
	return &keptFile{*bytes.NewReader(k.data), name, k}, nil
}

type keptFile struct {
	bytes.Reader
	name string
	k    *kept
}

func (f *keptFile) Close() error { return nil }
func (f *keptFile) Read(b []byte) (int, error) {
	if f.k.err != nil {
		return 0, f.k.err
	}
	return f.Reader.Read(b)
}
func (f *keptFile) Stat() (fs.FileInfo, error) { return keptInfo{f}, nil }

type keptInfo struct{ f *keptFile }

func (i keptInfo) Name() string       { return path.Base(i.f.name) }
func (i keptInfo) Size() int64        { return int64(len(i.f.k.data)) }
func (i keptInfo) Mode() fs.FileMode  { return 0o444 }
func (i keptInfo) ModTime() time.Time { return time.Time{} }
func (i keptInfo) IsDir() bool        { return false }
func (i keptInfo) Sys() any           { return nil }

// recordedDir is an open folder that notices being listed.
type recordedDir struct {
	fs.File
	r    *recorder
	name string
}

func (d *recordedDir) ReadDir(n int) ([]fs.DirEntry, error) {
	l, ok := d.File.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: errors.ErrUnsupported}
	}
	es, err := l.ReadDir(n)
	d.r.dirs[d.name] = append(d.r.dirs[d.name], es...)
	return es, err
}

func (r *recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	es, err := fs.ReadDir(r.fsys, name)
	if err == nil {
		r.dirs[name] = es
	}
	return es, err
}

func (r *recorder) ReadLink(name string) (string, error) {
	to, err := fs.ReadLink(r.fsys, name)
	if err == nil {
		r.links[name] = to
	}
	return to, err
}

func (r *recorder) Stat(name string) (fs.FileInfo, error) {
	st, err := fs.Stat(r.fsys, name)
	if err == nil {
		r.seen[name] = st.Mode().Type()
	}
	return st, err
}

func (r *recorder) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(r.fsys, name) }

// A treeCopy is the archive in memory, by paths without links in them.
type treeCopy struct {
	r          *recorder
	host       string
	entries    map[string]tarEntry
	plain      map[string]bool // paths that are no links
	bytes      int64
	files      int
	redacted   []string
	unreadable []string
}

// tarEntry is a file, a folder (data and link absent) or a link.
type tarEntry struct {
	kind byte // of archive/tar
	data []byte
	link string
}

// archive lays out what was recorded.
func (r *recorder) archive(host string) (*treeCopy, error) {
	t := &treeCopy{r: r, host: host, entries: map[string]tarEntry{}, plain: map[string]bool{}, redacted: []string{}, unreadable: []string{}}
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		k := r.files[name]
		data := k.data
		switch {
		case k.err != nil:
			t.unreadable = append(t.unreadable, name+": "+reason(k.err))
			data = nil
		case len(data) > maxGatherFile:
			t.unreadable = append(t.unreadable, fmt.Sprintf("%s: longer than %s, cut", name, humanize.IBytes(maxGatherFile)))
			data = data[:maxGatherFile]
		}
		clean := redact(name, data, host)
		if !bytes.Equal(clean, data) {
			t.redacted = append(t.redacted, name)
		}
		if at, ok := t.place(name); ok {
			t.entries[at] = tarEntry{kind: tar.TypeReg, data: clean}
			t.bytes += int64(len(clean))
			t.files++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.links)) {
		t.link(name, r.links[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.dirs)) {
		for _, e := range r.dirs[name] {
			t.listed(path.Join(name, e.Name()), e.Type())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.seen)) {
		t.listed(name, r.seen[name])
	}
	if t.bytes > maxGatherBytes || len(t.entries) > maxGatherEntries {
		return nil, cli.Resource("the files that tell of this machine are %s in %d entries; at most %s in %d are gathered",
			humanize.IBytes(t.bytes), len(t.entries), humanize.IBytes(maxGatherBytes), maxGatherEntries)
	}
	if len(t.unreadable) > 0 {
		t.entries["errors.txt"] = tarEntry{kind: tar.TypeReg, data: []byte(strings.Join(t.unreadable, "\n") + "\n")}
	}
	return t, nil
}

// reason is an error without the path.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return err.Error()
}

// listed makes sure that something that was seen in a folder is there: numbers of CPUs are read from names of folders.
func (t *treeCopy) listed(name string, kind fs.FileMode) {
	if strings.HasPrefix(name, "proc/") {
		return
	}
	if kind&fs.ModeSymlink != 0 {
		if to, err := fs.ReadLink(t.r.fsys, name); err == nil {
			t.link(name, to)
			if st, err := fs.Stat(t.r.fsys, name); err == nil && st.IsDir() {
				t.folder(name)
			}
		}
		return
	}
	if kind.IsDir() {
		t.folder(name)
		return
	}
	if at, ok := t.place(name); ok {
		if _, there := t.entries[at]; !there {
			t.entries[at] = tarEntry{kind: tar.TypeReg}
		}
	}
}

func (t *treeCopy) folder(name string) {
	if at, ok := t.place(name); ok {
		if _, there := t.entries[at]; !there {
			t.entries[at] = tarEntry{kind: tar.TypeDir}
		}
	}
}

// link puts a symbolic link into the archive, relative and not out of the tree.
func (t *treeCopy) link(name, to string) {
	at, ok := t.place(path.Dir(name))
	if !ok {
		return
	}
	at = path.Join(at, path.Base(name))
	if to, ok = relativeLink(at, to); ok {
		t.entries[at] = tarEntry{kind: tar.TypeSymlink, link: to}
	}
}

// relativeLink is a link's target as seen from the link's folder. Not ok: it leads out of the tree.
func relativeLink(at, to string) (string, bool) {
	if strings.HasPrefix(to, "/") {
		rel, err := filepath.Rel(path.Dir("/"+at), path.Clean(to))
		if err != nil {
			return "", false
		}
		to = rel
	}
	whole := path.Join(path.Dir(at), to)
	return to, whole != ".." && !strings.HasPrefix(whole, "../")
}

// place is where a file belongs once the links on its path are followed; the links go into the archive. In /proc links name processes,
// so that there a file stands where it was asked for.
func (t *treeCopy) place(name string) (string, bool) {
	if strings.HasPrefix(name, "proc/") || name == "proc" {
		return name, true
	}
	at, todo := ".", strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		e, ok := t.entries[next]
		if !ok && !t.plain[next] {
			if to, err := fs.ReadLink(t.r.fsys, next); err == nil {
				if to, ok = relativeLink(next, to); !ok {
					return "", false
				}
				e = tarEntry{kind: tar.TypeSymlink, link: to}
				t.entries[next] = e
			} else {
				t.plain[next] = true
			}
		}
		if e.kind != tar.TypeSymlink {
			at = next
			continue
		}
		if links++; links > 40 {
			return "", false
		}
		todo = append(strings.Split(e.link, "/"), todo...)
	}
	return at, true
}

// write writes the archive. The same tree gives the same bytes.
func (t *treeCopy) write(w io.Writer) error {
	z := gzip.NewWriter(w)
	a := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		h := &tar.Header{Typeflag: e.kind, Name: path.Join(gatherFolder, t.hide(name)), Linkname: e.link, Mode: 0o444, Size: int64(len(e.data))}
		switch e.kind {
		case tar.TypeDir:
			h.Name, h.Mode = h.Name+"/", 0o755
		case tar.TypeReg:
			h.Mode = 0o644
		}
		if err := a.WriteHeader(h); err != nil {
			return err
		}
		if _, err := a.Write(e.data); err != nil {
			return err
		}
	}
	if err := a.Close(); err != nil {
		return err
	}
	return z.Close()
}

// hide takes the host's name out of the names of cgroups, which are the only ones that people choose.
func (t *treeCopy) hide(name string) string {
	if strings.HasPrefix(name, "sys/devices/") || strings.HasPrefix(name, "sys/class/") || strings.HasPrefix(name, "sys/bus/") || strings.HasPrefix(name, "proc/") {
		return name
	}
	return hideHost(name, t.host)
}

// secretFiles are names of files that tell who a machine is.
var secretFiles = map[string]bool{
	"hostname": true, "domainname": true, "node_desc": true, "node_guid": true, "sys_image_guid": true, "port_guid": true,
	"serial": true, "serial_number": true, "product_serial": true, "board_serial": true, "chassis_serial": true, "product_uuid": true,
	"uuid": true, "wwid": true, "unique_id": true, "board_asset_tag": true, "chassis_asset_tag": true, "address": true,
	"machine-id": true, "boot_id": true, "vpd": true,
}

// commandLine are the parameters of the kernel that concern CPUs and memory; others may hold names and secrets.
var commandLine = []string{"isolcpus", "nohz", "nohz_full", "rcu_nocbs", "maxcpus", "nr_cpus", "nosmt", "mitigations", "spectre_v2", "hugepages",
	"hugepagesz", "default_hugepagesz", "transparent_hugepage", "numa", "numa_balancing", "mem", "memmap", "intel_idle.max_cstate",
	"processor.max_cstate", "idle", "intel_pstate", "amd_pstate", "cpufreq.default_governor", "intel_iommu", "amd_iommu", "iommu",
	"cgroup_enable", "cgroup_disable", "systemd.unified_cgroup_hierarchy", "clocksource", "tsc", "nopti", "pti", "noxsave", "clearcpuid",
	"gather_data_sampling", "efi", "quiet"}

// shownMounts are the types of mounts that tell of limits; sources of others name servers and disks.
var shownMounts = []string{"cgroup", "cgroup2", "cpuset", "resctrl", "hugetlbfs", "proc", "sysfs"}

// shownStatus are the lines of /proc/self/status that tell what the process may use.
var shownStatus = []string{"Cpus_allowed", "Cpus_allowed_list", "Mems_allowed", "Mems_allowed_list", "Threads", "THP_enabled"}

var macAddress = regexp.MustCompile(`\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b`)

// redact is a file's content without what tells who the machine is.
func redact(name string, data []byte, host string) []byte {
	base := path.Base(name)
	switch {
	case len(data) == 0:
		return data
	case path.Base(path.Dir(name)) == "gids":
		// Unused entries are all zeros; used ones must not look unused.
		if strings.Trim(string(data), "0:\n ") == "" {
			return data
		}
		return []byte("0000:0000:0000:0000:0000:0000:0000:0001\n")
	case secretFiles[base]:
		return nil
	case name == "proc/cmdline":
		return []byte(strings.Join(slices.DeleteFunc(strings.Fields(string(data)), func(word string) bool {
			key, _, _ := strings.Cut(word, "=")
			return !slices.Contains(commandLine, key)
		}), " ") + "\n")
	case name == "proc/version":
		words := strings.Fields(string(data))
		return []byte(strings.Join(words[:min(3, len(words))], " ") + "\n")
	case name == "proc/self/status":
		data = lines(data, func(line string) bool {
			key, _, _ := strings.Cut(line, ":")
			return slices.Contains(shownStatus, key)
		})
	case name == "proc/self/mountinfo":
		data = lines(data, func(line string) bool {
			_, after, _ := strings.Cut(line, " - ")
			kind, _, _ := strings.Cut(after, " ")
			return slices.Contains(shownMounts, kind)
		})
	case name == "proc/mounts" || name == "proc/self/mounts":
		data = lines(data, func(line string) bool {
			f := strings.Fields(line)
			return len(f) > 2 && slices.Contains(shownMounts, f[2])
		})
	}
	data = macAddress.ReplaceAll(data, []byte("00:00:00:00:00:00"))
	if host != "" && (strings.HasPrefix(name, "proc/self/") || name == "proc/mounts") && bytes.Contains(data, []byte(host)) {
		data = []byte(hideHost(string(data), host))
	}
	return data
}

// lines keeps some lines of a text.
func lines(data []byte, keep func(string) bool) []byte {
	var out []byte
	for line := range strings.Lines(string(data)) {
		if keep(strings.TrimSuffix(line, "\n")) {
			out = append(out, line...)
		}
	}
	return out
}

// hideHost replaces a host's name where it stands as a word.
func hideHost(s, host string) string {
	if host == "" {
		return s
	}
	word := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	var b strings.Builder
	for {
		i := strings.Index(s, host)
		if i < 0 {
			return b.String() + s
		}
		end := i + len(host)
		inside := i > 0 && word(s[i-1]) || end < len(s) && word(s[end])
		b.WriteString(s[:i])
		if inside {
			b.WriteString(host)
		} else {
			b.WriteString("host")
		}
		s = s[end:]
	}
}
