package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"ck/internal/gguf"
	"ck/internal/topo"
)

// FilePages says where the pages of a model's files lie, by a sample of them.
type FilePages struct {
	Files   []string      `json:"files"`
	Bytes   int64         `json:"bytes"`
	Pages   int           `json:"pages"`  // looked at
	Cached  int           `json:"cached"` // of these in memory
	Nodes   map[int]int   `json:"nodes"`  // of these: node, pages
	runs    map[int]place // by node: where its pages lie closest together
	Unknown string        `json:"unknown"` // what the system does not tell, ""
}

// place is a stretch of a file.
type place struct {
	file    string
	off, to int64
	pages   int // of the sample
}

// maxFilePages is how many pages are looked at: each takes two system calls, 16,384 take about 20 ms.
const maxFilePages = 1 << 14

// stretch is how much of a file is read to compare near and far cores.
const stretch = 64 << 20

// ModelFiles lists the files with a model's weights.
func ModelFiles(name string) ([]string, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		if filepath.Ext(name) != ".gguf" {
			return []string{name}, nil
		}
		m, err := gguf.Open(name) // knows the other parts
		if err != nil {
			return nil, err
		}
		defer m.Close()
		return m.Files(), nil
	}
	var files []string
	for _, pattern := range []string{"*.safetensors", "*.gguf"} {
		found, err := filepath.Glob(filepath.Join(name, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("no *.safetensors and no *.gguf in this folder")}
	}
	return files, nil
}

// LookAtFiles samples pages in equal steps. Pages that are not in memory stay on the disk.
func LookAtFiles(files []string) (*FilePages, error) {
	p := &FilePages{Files: files, Nodes: map[int]int{}, runs: map[int]place{}}
	sizes := make([]int64, len(files))
	for i, name := range files {
		st, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		sizes[i] = st.Size()
		p.Bytes += st.Size()
	}
	for i, name := range files {
		if sizes[i] == 0 {
			continue
		}
		if err := p.look(name, sizes[i], max(1, int(maxFilePages*float64(sizes[i])/float64(p.Bytes)))); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// look samples one file.
func (p *FilePages) look(name string, bytes int64, sample int) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, int(bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("%s: mmap: %w", name, err)
	}
	defer unix.Munmap(b)
	unix.Madvise(b, unix.MADV_RANDOM) // a page that is touched brings no others; refused, it is a hint only
	own := mayAsk(f)
	page := int64(os.Getpagesize())
	total := (bytes + page - 1) / page
	sample = int(min(int64(sample), total))
	var addrs []unsafe.Pointer
	var offs []int64
	touched := byte(0)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { // the file was cut short, or its disk fails
		if e := recover(); e != nil {
			err = fmt.Errorf("%s: a page cannot be read: %v", name, e)
		}
	}()
	for i := range sample {
		off := int64(float64(i)*float64(total)/float64(sample)) * page
		in, ok := inMemory(int(f.Fd()), b[off:min(off+page, bytes)], off, own)
		if !ok {
			p.Unknown = "which pages are in memory: the file belongs to somebody else"
			return nil
		}
		p.Pages++
		if !in {
			continue
		}
		touched |= b[off]
		p.Cached++
		addrs, offs = append(addrs, unsafe.Pointer(&b[off])), append(offs, off)
	}
	runtime.KeepAlive(touched)
	return p.query(name, bytes, addrs, offs)
}

// query asks for the nodes of pages that are mapped and there (move_pages(2) without nodes).
func (p *FilePages) query(name string, bytes int64, addrs []unsafe.Pointer, offs []int64) error {
	if len(addrs) == 0 {
		return nil
	}
	status := make([]int32, len(addrs))
	_, _, e := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(len(addrs)), uintptr(unsafe.Pointer(&addrs[0])), 0, uintptr(unsafe.Pointer(&status[0])), 0)
	if e != 0 {
		p.Unknown = "on which nodes the pages lie: move_pages: " + e.Error()
		return nil
	}
	from := map[int]int{} // by node: the first page of the window that ends here
	var mine = map[int][]int64{}
	for i, s := range status {
		node := int(s)
		if node < 0 {
			continue // gone again
		}
		p.Nodes[node]++
		mine[node] = append(mine[node], offs[i])
		list := mine[node]
		for list[len(list)-1]-list[from[node]] >= stretch {
			from[node]++
		}
		if n := len(list) - from[node]; n > p.runs[node].pages {
			p.runs[node] = place{name, list[from[node]], min(list[len(list)-1]+int64(os.Getpagesize()), bytes), n}
		}
	}
	return nil
}

// mayAsk reports whether mincore(2) tells the truth about a file: to its owner, to root, to who may write to it.
func mayAsk(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && (os.Geteuid() == 0 || int(st.Uid) == os.Geteuid()) || unix.Access(f.Name(), unix.W_OK) == nil
}

// inMemory reports whether a page of a file is in the page cache, by mincore(2) or cachestat(2), Linux 6.5.
func inMemory(fd int, b []byte, off int64, own bool) (in, ok bool) {
	if own {
		var v [1]byte
		_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&v)))
		return v[0]&1 != 0, e == 0
	}
	var st unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(off), Len: uint64(len(b))}, &st, 0)
	return st.Cache > 0, err == nil
}

// OnNode is about how many bytes of the files lie on a node.
func (p *FilePages) OnNode(node int) int64 {
	if p.Pages == 0 {
		return 0
	}
	return int64(math.Round(float64(p.Bytes) * float64(p.Nodes[node]) / float64(p.Pages)))
}

// rates measures how fast a core of the node that holds most of the pages reads them, and one of the node with CPUs that is farthest from
// it. Both are 0 where there is but one node or too little is in memory.
func (p *FilePages) rates(s *topo.Survey) (near, far float64, err error) {
	home, run := -1, place{}
	for node, n := range p.Nodes {
		if home < 0 || n > p.Nodes[home] || n == p.Nodes[home] && node < home {
			home, run = node, p.runs[node]
		}
	}
	a, b := farPair(s, home)
	if a < 0 || b < 0 || run.to-run.off < stretch/4 {
		return 0, 0, nil
	}
	f, err := os.Open(run.file)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), run.off, int(run.to-run.off), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, 0, fmt.Errorf("mmap: %w", err)
	}
	defer unix.Munmap(m)
	one := func(cpu int) (best float64, err error) {
		t, err := newTeam([]int{cpu}, 0)
		if err != nil {
			return 0, err
		}
		defer t.Close()
		err = t.Run(func(int) {
			readRate(m) // maps the pages
			for range 4 {
				best = max(best, readRate(m))
			}
		})
		return best, err
	}
	if near, err = one(a); err != nil {
		return 0, 0, err
	}
	far, err = one(b)
	return near, far, err
}

// farPair is an allowed CPU of a node, and one of the node that is farthest from it; -1 where there is none.
func farPair(s *topo.Survey, home int) (near, far int) {
	near, far = -1, -1
	i := slices.IndexFunc(s.Nodes, func(n topo.Node) bool { return n.ID == home })
	if i < 0 {
		return near, far
	}
	most := -1
	for j, n := range s.Nodes {
		k := slices.IndexFunc(n.CPUs, func(id int) bool { return slices.Contains(s.Affinity, id) })
		switch {
		case k < 0:
		case j == i:
			near = n.CPUs[k]
		default:
			d := 0
			if j < len(s.Distance) && i < len(s.Distance[j]) {
				d = s.Distance[j][i]
			}
			if d > most {
				most, far = d, n.CPUs[k]
			}
		}
	}
	return near, far
}
