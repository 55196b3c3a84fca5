// Package clone tries whether the system grants threads, before the Go runtime asks for them: where it gets none it ends the process with a
// dump of its own, which no program can catch.
package clone

// Threads starts n threads at once that do nothing, ends them, and returns the error of the first one that could not be started: EAGAIN
// at the limit of the user (ulimit -u) or of the container (pids.max). A thread takes about 15 us. Where there is no assembly for it,
// nothing is tried.
func Threads(n int) error { return threads(n) }
