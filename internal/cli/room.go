package cli

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"ck/asm/clone"
)

// What a program takes before it knows what it has to do. Where the Go runtime cannot get it, it ends the process with a dump of its own:
// so it is tried before.
const (
	roomBytes   = 128 << 20 // two pieces of the heap
	roomFiles   = 12        // the poller's three, a model in parts, an output
	roomThreads = 4         // beside one for each CPU, up to as many again: readers, signals, the garbage collector
)

// checkRoom tries memory, descriptors and threads.
func checkRoom() error {
	b, err := unix.Mmap(-1, 0, roomBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		hint := ""
		for _, l := range []struct {
			what int
			flag string
		}{{unix.RLIMIT_AS, "-v"}, {unix.RLIMIT_DATA, "-d"}} {
			var r unix.Rlimit
			if unix.Getrlimit(l.what, &r) == nil && r.Cur != unix.RLIM_INFINITY {
				hint += fmt.Sprintf("raise ulimit %s, which is %d KiB; ", l.flag, r.Cur>>10)
			}
		}
		if hint == "" {
			hint = "see vm.overcommit_memory; "
		}
		return Resource("memory: the system refuses %d MiB: %w; %s", roomBytes>>20, err, hint[:len(hint)-2])
	}
	unix.Munmap(b)
	if err := checkFiles(); err != nil {
		return Resource("file descriptors: fewer than %d are left: %w; raise ulimit -n", roomFiles, err)
	}
	n := roomThreads + min(runtime.GOMAXPROCS(0), roomThreads)
	if err := clone.Threads(n); err != nil {
		return Resource("threads: the system refuses %d: %w; raise ulimit -u, or the container's pids.max", n, err)
	}
	return nil
}

// checkFiles opens as many descriptors as are needed.
func checkFiles() error {
	for range roomFiles {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
				return err
			}
			return nil // the folder itself may not be opened here
		}
		defer unix.Close(fd)
	}
	return nil
}
