package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pane is a chat in tmux, a terminal that others wrote.
type pane struct {
	t      *testing.T
	socket string
}

// startPane starts ckrun chat in a terminal of tmux.
func startPane(t *testing.T, term string, args ...string) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: the chat's line editor is not tried in a terminal")
	}
	dir := buildPrograms(t)
	home, err := os.MkdirTemp("", "ck-chat") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	p := &pane{t, filepath.Join(home, "tmux")}
	t.Cleanup(func() {
		exec.Command("tmux", "-S", p.socket, "kill-server").Run()
		os.RemoveAll(home)
	})
	p.tmux(slices.Concat([]string{"-u", "-f", "/dev/null", "new-session", "-d", "-x", "50", "-y", "16", "env", "TERM=" + term, "HOME=" + home, "XDG_STATE_HOME=" + home,
		filepath.Join(dir, "ckrun"), "chat", "-q", "--temp", "0", "-n", "2"}, args)...)
	p.expect("> ", 2)
	return p
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", p.socket}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return strings.TrimRight(string(out), "\n")
}

// keys presses keys by their names in tmux.
func (p *pane) keys(names ...string) { p.tmux(append([]string{"send-keys"}, names...)...) }

// text types a text.
func (p *pane) text(s string) { p.tmux("send-keys", "-l", s) }

// expect waits until the screen's last lines are want, with the cursor in that column.
func (p *pane) expect(want string, column int) {
	p.t.Helper()
	var got, cursor string
	for range 600 {
		got = p.tmux("capture-pane", "-p")
		cursor = p.tmux("display-message", "-p", "#{cursor_x}")
		if strings.HasSuffix("\n"+got, "\n"+strings.TrimRight(want, " ")) && cursor == strconv.Itoa(column) {
			p.t.Logf("screen, cursor in column %s:\n%s", cursor, got)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.t.Fatalf("want, cursor in column %d:\n%s\nthe screen, column %s:\n%s", column, want, cursor, got)
}

func TestChatInTmux(t *testing.T) {
	for _, term := range []string{"tmux", "screen", "xterm"} {
		t.Run(term, func(t *testing.T) {
			p := startPane(t, term)
			saved := filepath.Join(t.TempDir(), "chat.json")
			p.text("日本語")
			p.keys("Left", "Left")
			p.text("X")
			p.expect("> 日X本語", 5)
			p.keys("Home")
			p.text("a ")
			p.keys("End", "BSpace")
			p.text("é 👍 end")
			p.expect("> a 日X本é 👍 end", 17)
			p.keys("M-b", "C-Left", "Delete", "C-Right")
			p.expect("> a X本é 👍 end", 8)
			p.keys("C-c")
			p.expect("> ", 2)
			p.send300Esc()
			p.paste("one\ntwo 日本\nthree\nfour\nfive")
			p.expect("> one\n… two 日本\n… three\n… four\n… five", 6)
			p.keys("Enter")
			p.expect("> ", 2)
			p.text("next")
			p.keys("Enter")
			p.expect("> ", 2)
			p.keys("C-r")
			p.text("two")
			p.expect("(search: two) one⏎two 日本⏎three⏎four⏎five", 18)
			p.keys("C-g")
			p.expect("> ", 2)
			p.tmux("send-keys", "-H", "ff", "c3", "28", "e6", "97")
			p.text("b")
			p.expect("> ��(��b", 8)
			p.keys("C-c")
			p.text("/save " + saved)
			p.keys("Enter")
			p.expect("> ", 2)
			b, err := os.ReadFile(saved)
			if err != nil || !strings.Contains(string(b), `"content": "one\ntwo 日本\nthree\nfour\nfive"`) {
				t.Errorf("%v, saved chat: %s", err, b)
			}
		})
	}
}

func (p *pane) send300Esc() {
	for range 10 {
		p.keys(slices.Repeat([]string{"Escape"}, 30)...)
	}
	time.Sleep(300 * time.Millisecond) // the last one is a key of its own
	p.text("hello")
	p.expect("> hello", 7)
	p.keys("C-u")
	p.expect("> ", 2)
}

func (p *pane) paste(s string) {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "paste")
	if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.tmux("load-buffer", file)
	p.tmux("paste-buffer", "-p")
}

// A long message follows the terminal's width, and what stands above it stays.
func TestChatInTmuxResize(t *testing.T) {
	p := startPane(t, "tmux")
	p.text("/nonsense")
	p.keys("Enter")
	p.expect("> ", 2)
	p.text(strings.Repeat("日本語", 9))
	p.expect("> "+strings.Repeat("日本語", 8)+"\n日本語", 6)
	p.tmux("resize-window", "-x", "30")
	p.expect("> "+strings.Repeat("日本語", 4)+"日本\n語"+strings.Repeat("日本語", 4), 26)
	p.tmux("resize-window", "-x", "50")
	p.expect("> "+strings.Repeat("日本語", 8)+"\n日本語", 6)
	p.keys("C-u")
	p.expect("sts them, // at the beginning sends the line as it\n is\n> ", 2)
}

// What was typed is there in the next chat.
func TestChatHistoryFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "history")
	x := startTerminal(t, "ckrun", "chat", "--temp", "0", "-n", "2", "-q", "--history", file)
	x.expect("> ")
	x.send("kept 日本\\\rsecond\r")
	x.expect("second")
	x.expect("\x1b[?2004h") // the next line is read: until then Ctrl-D is the system's
	x.send("\x04")
	if code := x.wait(); code != 0 {
		t.Errorf("code %d, %q", code, x.output())
	}
	st, err := os.Stat(file)
	if err != nil || st.Mode() != 0o600 {
		t.Fatalf("%v, mode %v", err, st)
	}
	x = startTerminal(t, "ckrun", "chat", "--temp", "0", "-n", "2", "-q", "--history", file)
	x.expect("> ")
	x.send("\x1b[A")
	x.expect("kept 日本⏎second")
	x.send("\x03\x03")
	if code := x.wait(); code != 130 {
		t.Errorf("code %d, %q", code, x.output())
	}
}

// A folder that nobody may write to is said with -v, once; the chat goes on.
func TestChatHistoryTrouble(t *testing.T) {
	for _, args := range [][]string{{"-v"}, {"-q"}} {
		x := startTerminal(t, append([]string{"ckrun", "chat", "--temp", "0", "-n", "2", "--history", "/proc/ck/history"}, args...)...)
		x.expect("> ")
		x.send("/stat\r/stat\r")
		x.expect("> ")
		x.send("/quit\r")
		code := x.wait()
		want := map[string]int{"-v": 1}[args[0]]
		if n := strings.Count(x.output(), "history is not kept"); code != 0 || n != want {
			t.Errorf("%s: code %d, said %d times: %q", args[0], code, n, x.output())
		}
	}
}

// SIGINT drops what is typed, and ends the chat in an empty line; SIGTERM and SIGHUP end it. The terminal is as it was.
func TestChatSignals(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		typed  string
		code   int
	}{{syscall.SIGINT, "", 130}, {syscall.SIGINT, "typed", -1}, {syscall.SIGTERM, "", 143}, {syscall.SIGTERM, "typed", 143}, {syscall.SIGHUP, "", 129}} {
		x := startTerminal(t, "ckrun", "chat", "-q", "--history", "none")
		x.expect("> ")
		if c.typed != "" {
			x.send(c.typed)
			x.expect(c.typed)
		}
		if err := x.cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		if c.code < 0 {
			x.expect("\x1b[J> ")
			x.send("\x04")
			c.code = 0
		}
		if code := x.wait(); code != c.code {
			t.Errorf("%v after %q: code %d, want %d, %q", c.signal, c.typed, code, c.code, x.output())
		}
		if !strings.Contains(x.output(), "\x1b[?2004l") {
			t.Errorf("%v: the terminal keeps bracketed paste", c.signal)
		}
	}
}
