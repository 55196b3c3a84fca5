package lineedit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// kept is a history whose trouble fails the test.
func kept(t *testing.T, path string) *History {
	return &History{Path: path, Trouble: func(err error) { t.Error(err) }}
}

func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "ck", "history")
	want := []string{"one", "several\nlines\n", `back\slash \n \\`, "日本語", "\x1b[31m\x00", " ⏎ "}
	h := kept(t, path)
	if got := h.Load(); len(got) != 0 {
		t.Errorf("a new history has %q", got)
	}
	for _, s := range want {
		h.Append(s)
	}
	if got := kept(t, path).Load(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, mode %v", err, st.Mode())
	}
	if st, err := os.Stat(filepath.Dir(path)); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, mode %v of the folder", err, st.Mode())
	}
}

func TestHistoryOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(path, []byte("one\n\xff\xfe\r\ntorn"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := kept(t, path)
	h.Append("next")
	if got, want := h.Load(), []string{"one", "\ufffd\n", "torn", "next"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, mode %v", err, st.Mode())
	}
}

// The newest messages stay, whoever adds them, and none is lost or torn.
func TestHistoryOfSeveralChats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(path, []byte(strings.Repeat("old\n", HistoryMax-20)), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	const chats, each = 4, 15
	for c := range chats {
		wg.Go(func() {
			h := kept(t, path)
			for i := range each {
				h.Append(fmt.Sprintf("chat %d\nmessage %d", c, i))
			}
		})
	}
	wg.Wait()
	got := kept(t, path).Load()
	if len(got) != HistoryMax || got[0] != "old" {
		t.Fatalf("%d messages, the first one %q", len(got), got[0])
	}
	next := map[int]int{}
	for _, s := range got[HistoryMax-chats*each:] {
		var c, i int
		if _, err := fmt.Sscanf(s, "chat %d\nmessage %d", &c, &i); err != nil || i != next[c] {
			t.Errorf("%q, want message %d: %v", s, next[c], err)
		}
		next[c]++
	}
	b, err := os.ReadFile(path)
	if n := strings.Count(string(b), "\n"); err != nil || n != HistoryMax {
		t.Errorf("%v, %d lines in the file", err, n)
	}
}

func TestNewest(t *testing.T) {
	long := strings.Repeat("x", 60<<10) + "\n"
	if got := newest([]byte(strings.Repeat(long, 300)), "last\n"); len(got) > historyBytesMax/2+len(long) || !strings.HasSuffix(string(got), "\nlast\n") {
		t.Errorf("%d bytes are left", len(got))
	}
	if got := string(newest([]byte("a\nb\n"), "c\n")); got != "a\nb\nc\n" {
		t.Errorf("%q", got)
	}
}

// Trouble is said once, and nothing else happens.
func TestHistoryTrouble(t *testing.T) {
	dir := t.TempDir()
	fifo, folder, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "folder"), filepath.Join(dir, "file")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Mkdir(folder, 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(dir, "held")
	f, err := os.Create(held)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(dir, "huge")
	if err := errors.Join(os.WriteFile(huge, nil, 0o600), os.Truncate(huge, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, folder, filepath.Join(file, "history"), held, huge, "/proc/ck/history"} {
		said := 0
		h := &History{Path: path, Trouble: func(err error) {
			said++
			t.Log(err)
		}}
		h.Load()
		h.Append("text")
		h.Append("text")
		if said != 1 {
			t.Errorf("%s: said %d times", path, said)
		}
	}
}
