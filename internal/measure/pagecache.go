package measure

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DropCache asks the system to forget what the page cache holds of a file. Changed pages are written first, else they stay; pages
// that a process has mapped stay, and those of a file system in memory. CachedShare says what came of it.
func DropCache(fd int) error {
	if err := unix.Fsync(fd); err != nil && err != unix.EINVAL && err != unix.EROFS { // neither is needed where nothing can be written
		return err
	}
	return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
}

// CachedShare is the share of a file's first size bytes that lies in the page cache, 0 to 1. ok is false where the system does not
// tell.
func CachedShare(fd int, size int64) (share float64, ok bool) {
	if size <= 0 {
		return 0, false
	}
	page := int64(os.Getpagesize())
	pages := (size + page - 1) / page
	n, ok := cachestat(fd, size)
	if !ok {
		n, ok = mincore(fd, size, pages)
	}
	return min(float64(n)/float64(pages), 1), ok
}

// cachestat counts cached pages by cachestat(2), Linux 6.5.
func cachestat(fd int, size int64) (pages int64, ok bool) {
	var st unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Len: uint64(size)}, &st, 0)
	return int64(st.Cache), err == nil
}

// mincore counts them by mincore(2), which tells the truth about files of one's own only.
func mincore(fd int, size, pages int64) (cached int64, ok bool) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || os.Geteuid() != 0 && int(st.Uid) != os.Geteuid() {
		return 0, false
	}
	b, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, false
	}
	defer unix.Munmap(b)
	vec := make([]byte, pages)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(size), uintptr(unsafe.Pointer(&vec[0]))); e != 0 {
		return 0, false
	}
	for _, v := range vec {
		cached += int64(v & 1)
	}
	return cached, true
}
