package lineedit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HistoryMax is how many messages are kept.
const HistoryMax = 1000

const (
	historyBytesMax   = 16 << 20 // of a file that is read
	historyMessageMax = 64 << 10 // bytes of a message that goes into the file
	lockTries         = 20
	lockWait          = 10 * time.Millisecond
)

// History is a file of messages, oldest first, one a line: \n is a line end within it, \\ a backslash. Several programs may add to it at once.
// No trouble with it is an error of theirs: Trouble hears of the first one.
type History struct {
	Path    string
	Trouble func(error)

	troubled bool
}

// Load reads the messages.
func (h *History) Load() []string {
	var list []string
	h.locked(func(f *os.File) error {
		b, err := h.read(f)
		for line := range bytes.Lines(b) {
			list = append(list, unescape(strings.ToValidUTF8(strings.TrimSuffix(string(line), "\n"), "\ufffd")))
		}
		return err
	})
	return list[max(len(list)-HistoryMax, 0):]
}

// Append adds a message and drops the oldest ones beyond HistoryMax.
func (h *History) Append(text string) {
	h.locked(func(f *os.File) error {
		line := escape(text) + "\n"
		if len(line) > historyMessageMax {
			return fmt.Errorf("a message of %d bytes is not kept; %d is the most", len(text), historyMessageMax)
		}
		b, err := h.read(f)
		if err != nil {
			return err
		}
		if n := len(b); n > 0 && b[n-1] != '\n' { // a program was killed, or the disk was full
			line = "\n" + line
		}
		lines := bytes.SplitAfter(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
		if len(lines) >= HistoryMax || len(b)+len(line) > historyBytesMax {
			return h.replace(newest(b, line))
		}
		if _, err := f.WriteString(line); err != nil {
			return errors.Join(err, f.Truncate(int64(len(b))))
		}
		return nil
	})
}

// newest is the end of b and line, with at most HistoryMax lines and half the bytes that a file may have.
func newest(b []byte, line string) []byte {
	b = append(b, line...)
	at, n := len(b)-1, 0
	for at > 0 && len(b)-at < historyBytesMax/2 {
		i := bytes.LastIndexByte(b[:at], '\n')
		if n++; n > HistoryMax {
			break
		}
		at = i
		if i < 0 {
			break
		}
	}
	return b[at+1:]
}

func (h *History) read(f *os.File) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, historyBytesMax+1))
	if err == nil && len(b) > historyBytesMax {
		err = fmt.Errorf("%s: has more than %d MiB; remove it", h.Path, historyBytesMax>>20)
	}
	return b, err
}

// locked opens the file for one program alone.
func (h *History) locked(do func(*os.File) error) {
	err := h.tryLocked(do)
	if err != nil && !h.troubled && h.Trouble != nil {
		h.troubled = true
		h.Trouble(err)
	}
}

func (h *History) tryLocked(do func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(h.Path), 0o700); err != nil {
		return err
	}
	for range lockTries {
		f, err := os.OpenFile(h.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return err
		}
		mine, err := h.lock(f)
		if err == nil && mine {
			err = do(f)
		}
		f.Close()
		if mine || err != nil {
			return err
		}
		time.Sleep(lockWait)
	}
	return fmt.Errorf("%s: another program holds it; end that program", h.Path)
}

// lock takes the file's lock. It is false where another program has it, or has just put another file in its place.
func (h *History) lock(f *os.File) (bool, error) {
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !st.Mode().IsRegular() {
		return false, fmt.Errorf("%s: is no regular file; remove it", h.Path)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			return false, nil
		}
		return false, &fs.PathError{Op: "lock", Path: h.Path, Err: err}
	}
	now, err := os.Stat(h.Path)
	if err != nil || !os.SameFile(st, now) {
		return false, nil
	}
	if st.Mode().Perm() != 0o600 {
		return true, f.Chmod(0o600)
	}
	return true, nil
}

// replace puts a new file in the place of the one that this program has locked.
func (h *History) replace(b []byte) error {
	path := h.Path
	if p, err := filepath.EvalSymlinks(path); err == nil {
		path = p // the file behind a link is replaced, not the link
	}
	next := path + ".new" // one name, since the lock is held: what a killed program left is written over
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return os.Rename(next, path)
}

var escaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

func escape(s string) string { return escaper.Replace(s) }

// unescape also takes lines that somebody wrote by hand. Carriage returns are line ends, as in everything that is typed.
func unescape(s string) string {
	s = strings.NewReplacer(`\\`, `\`, `\n`, "\n").Replace(s)
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
}
