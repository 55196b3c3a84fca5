//go:build !noasm

package clone

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// start makes a thread that waits until gate is not 0 and ends. It uses no stack. errno is 0 or that of clone(2).
//
//go:noescape
func start(flags uintptr, stack unsafe.Pointer, tid, gate *uint32) (errno uintptr)

// flags are those of a thread, as the Go runtime starts its own; the kernel clears tid, and wakes who waits for it, when the thread is
// gone.
const flags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM |
	unix.CLONE_CHILD_CLEARTID

const futexWait, futexWake = 0, 1 // linux/futex.h; shared ones, as the kernel's own at the end of a thread

// state is where the threads look. It is never freed: the kernel writes to it.
var state struct {
	sync.Mutex
	gate  uint32
	tids  []uint32
	stack [64]byte
}

func threads(n int) error {
	s := &state
	s.Lock()
	defer s.Unlock()
	s.gate = 0
	if len(s.tids) < n {
		s.tids = make([]uint32, n)
	}
	// The threads inherit the mask: no signal may reach them, for they are not Go's. The runtime's own signals come a little later.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, was unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &was); err != nil {
		return nil // nothing can be tried
	}
	started, errno := 0, uintptr(0)
	for started < n && errno == 0 {
		s.tids[started] = 1
		if errno = start(flags, unsafe.Pointer(&s.stack[32]), &s.tids[started], &s.gate); errno == 0 {
			started++
		}
	}
	unix.PthreadSigmask(unix.SIG_SETMASK, &was, nil)
	atomic.StoreUint32(&s.gate, 1)
	futex(&s.gate, futexWake, uint32(started))
	for i := range started {
		for atomic.LoadUint32(&s.tids[i]) != 0 {
			futex(&s.tids[i], futexWait, 1)
		}
	}
	if errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}

func futex(p *uint32, op int, v uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p)), uintptr(op), uintptr(v), 0, 0, 0)
}
