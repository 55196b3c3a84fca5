package team

import (
	"math"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// maxCPUs is the largest number of CPUs that Linux is built for on any architecture.
const maxCPUs = 8192

// cpuMask is the kernel's bit map of CPUs. (The one of x/sys/unix ends at 1024.)
type cpuMask [maxCPUs / 64]uint64

// get reads the calling thread's mask and returns its length in bytes.
func (m *cpuMask) get() (n int, err error) {
	r, _, e := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(*m), uintptr(unsafe.Pointer(m)))
	if e != 0 {
		return 0, e
	}
	return int(r), nil
}

// set gives the calling thread the first n bytes of m as its mask.
func (m *cpuMask) set(n int) error {
	if _, _, e := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, uintptr(n), uintptr(unsafe.Pointer(m))); e != 0 {
		return e
	}
	return nil
}

// swap pins the calling thread to one CPU and keeps its old mask in m, of n bytes. n is 0 when there is nothing to restore: the
// thread had that mask already, or could not be pinned.
func (m *cpuMask) swap(cpu int) (n int) {
	n, err := m.get()
	if err != nil || m.isOnly(cpu) || setAffinity(cpu) != nil {
		return 0
	}
	return n
}

func (m *cpuMask) restore(n int) { m.set(n) }

// isOnly reports whether cpu is the only one in m.
func (m *cpuMask) isOnly(cpu int) bool {
	for i, x := range m {
		want := uint64(0)
		if i == cpu/64 {
			want = 1 << (cpu % 64)
		}
		if x != want {
			return false
		}
	}
	return true
}

// setAffinity pins the calling thread to one CPU.
func setAffinity(cpu int) error {
	var m cpuMask
	m[cpu/64] = 1 << (cpu % 64)
	return m.set(int(unsafe.Sizeof(m)))
}

// probe tells whether a thread can be pinned to cpu.
func probe(cpu int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old cpuMask
	n, err := old.get()
	if err != nil {
		return err
	}
	if err := setAffinity(cpu); err != nil {
		return err
	}
	return old.set(n)
}

const (
	futexWaitPrivate = 0 | 128 // FUTEX_WAIT | FUTEX_PRIVATE_FLAG, linux/futex.h
	futexWakePrivate = 1 | 128
)

// futexWait sleeps while *a is val. It returns early at will: callers look again. Syscall6, unlike RawSyscall6, gives up the
// scheduler's P, so that the garbage collector need not wait for a sleeper.
func futexWait(a *atomic.Uint32, val uint32) {
	syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(a)), futexWaitPrivate, uintptr(val), 0, 0, 0)
}

// futexWake wakes all who sleep on a.
func futexWake(a *atomic.Uint32) {
	syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(a)), futexWakePrivate, math.MaxInt32, 0, 0, 0)
}
