package measure

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// randomFile writes n random bytes.
func randomFile(t *testing.T, n int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, n)
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range content {
		content[i] = byte(rng.Uint32())
	}
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path, content
}

// testRing is a ring with a buffer for depth pieces of 64 KiB, or the test is skipped where the system refuses.
func testRing(t *testing.T, depth int) (*Ring, []byte) {
	t.Helper()
	r, err := NewRing(depth)
	if err != nil {
		t.Skipf("no io_uring here: %v", err)
	}
	buf, err := unix.Mmap(-1, 0, depth<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		unix.Munmap(buf)
	})
	return r, buf
}

// What a ring reads are the bytes of the file, each once, for any size, piece and number in flight, through the cache and past it.
func TestRingReads(t *testing.T) {
	for _, size := range []int{1, 4095, 4096, 4097, 65536, 200003, 1 << 20, 1<<20 + 512} {
		path, content := randomFile(t, size)
		for _, flag := range []int{0, unix.O_DIRECT} {
			f, err := os.OpenFile(path, os.O_RDONLY|flag, 0)
			if errors.Is(err, unix.EINVAL) {
				t.Logf("O_DIRECT is not allowed here")
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for _, depth := range []int{1, 3, 16} {
				r, buf := testRing(t, depth)
				for _, piece := range []int{4096, 16384, 65536} {
					for _, limit := range []int{size, size/2 + 1} {
						got, calls := make([]byte, limit), 0
						n, err := r.ReadFile(int(f.Fd()), int64(limit), buf[:depth*piece], piece, func(off int64, b []byte) bool {
							calls++
							copy(got[off:], b)
							return true
						})
						if err != nil || n != int64(limit) || calls != (limit+piece-1)/piece || !bytes.Equal(got, content[:limit]) {
							t.Fatalf("%d of %d bytes, flag %x, %d × %d: %d bytes in %d calls, %v", limit, size, flag, depth, piece, n, calls, err)
						}
					}
				}
			}
		}
	}
}

// After an early end, a file that is too short or an error, the ring reads on as before.
func TestRingEnds(t *testing.T) {
	path, content := randomFile(t, 300000)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, buf := testRing(t, 4)
	all := func(int64, []byte) bool { return true }
	good := func() {
		t.Helper()
		sum := 0
		n, err := r.ReadFile(int(f.Fd()), 300000, buf, 1<<16, func(off int64, b []byte) bool {
			sum += bytes.Compare(b, content[off:][:len(b)])
			return true
		})
		if n != 300000 || err != nil || sum != 0 || r.inFlight != 0 {
			t.Fatalf("%d bytes, %v, %d in flight", n, err, r.inFlight)
		}
	}
	good()
	if n, err := r.ReadFile(int(f.Fd()), 300000, buf[:8192], 4096, func(int64, []byte) bool { return false }); n > 8192 || n == 0 || err != nil {
		t.Errorf("early end: %d bytes, %v", n, err)
	}
	good()
	if n, err := r.ReadFile(int(f.Fd()), 1<<20, buf, 1<<16, all); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("beyond the end: %d bytes, %v", n, err)
	}
	good()
	if n, err := r.ReadFile(1<<20, 300000, buf, 1<<16, all); n != 0 || !errors.Is(err, unix.EBADF) {
		t.Errorf("no file: %d bytes, %v", n, err)
	}
	good()
	if _, err := r.ReadFile(int(f.Fd()), 100, buf[:100], 4096, all); err == nil {
		t.Error("a piece does not fit and is read")
	}
	if _, err := NewRing(0); err == nil {
		t.Error("a ring for no reads")
	}
	if n, err := r.ReadFile(int(f.Fd()), 0, buf, 1<<16, all); n != 0 || err != nil {
		t.Errorf("nothing: %d bytes, %v", n, err)
	}
}

// A pipe gives what it has: every read is short, and is continued until the piece is complete.
func TestRingShortReads(t *testing.T) {
	r, buf := testRing(t, 1)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	want := bytes.Repeat([]byte("short reads "), 1000)[:8192]
	go func() {
		for i := 0; i < len(want); i += 512 {
			out.Write(want[i : i+512])
			runtime.Gosched()
		}
		out.Close()
	}()
	var got []byte
	n, err := r.ReadFile(int(in.Fd()), 8192, buf[:4096], 4096, func(off int64, b []byte) bool {
		got = append(got, b...)
		return true
	})
	if n != 8192 || err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestRingReasons(t *testing.T) {
	for _, c := range []struct {
		e              unix.Errno
		disabled, want string
	}{{unix.ENOSYS, "", "the kernel has no io_uring"}, {unix.EPERM, "2", "kernel.io_uring_disabled is 2"}, {unix.EPERM, "1", "kernel.io_uring_disabled is 1"},
		{unix.EPERM, "0", "a sandbox"}, {unix.EPERM, "", "a sandbox"}, {unix.ENOMEM, "0", "ulimit -l"}, {unix.EMFILE, "0", "too many open files"}} {
		if err := uringReason(c.e, c.disabled); !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %q: %v", c.e, c.disabled, err)
		}
	}
}

// A seccomp filter, as containers have it, is named as the reason. The filter stays with its process, so another one gets it.
func TestRingRefused(t *testing.T) {
	if os.Getenv("CK_TEST_SECCOMP") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRingRefused$", "-test.v")
		cmd.Env = append(os.Environ(), "CK_TEST_SECCOMP=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		} else if strings.Contains(string(out), "SKIP") {
			t.Skipf("%s", out)
		}
		return
	}
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_IO_URING_SETUP, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Skip(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		t.Skip(err)
	}
	disabled, _ := os.ReadFile("/proc/sys/kernel/io_uring_disabled")
	if _, err := NewRing(1); err == nil || strings.TrimSpace(string(disabled)) == "0" && !strings.Contains(err.Error(), "seccomp") {
		t.Errorf("under a filter: %v", err)
	}
}

// Both ways to ask the page cache agree: after a reading the file is in it, after dropping it is not, unless the file system is memory.
func TestPageCache(t *testing.T) {
	path, content := randomFile(t, 1<<20+5)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, size := int(f.Fd()), int64(len(content))
	const pages = 257
	if share, ok := CachedShare(fd, size); !ok || share != 1 {
		t.Errorf("after writing: %g, %v", share, ok)
	}
	if a, ok := mincore(fd, size, pages); !ok || a != int64(pages*4096/os.Getpagesize()) && os.Getpagesize() == 4096 {
		t.Errorf("mincore: %d pages, %v", a, ok)
	}
	if err := DropCache(fd); err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		t.Fatal(err)
	}
	want := 0.0
	if fs.Type == unix.TMPFS_MAGIC {
		want = 1
	}
	share, ok := CachedShare(fd, size)
	if !ok || share != want {
		t.Errorf("after dropping: %g, %v", share, ok)
	}
	if n, ok := mincore(fd, size, pages); !ok || float64(n) != want*pages {
		t.Errorf("after dropping, mincore: %d pages, %v", n, ok)
	}
	if _, ok := CachedShare(fd, 0); ok {
		t.Error("a share of nothing")
	}
}
