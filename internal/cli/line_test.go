package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Lines of errors and warnings have at most 400 bytes, end within no character, and keep what to do.
func TestLongLines(t *testing.T) {
	for _, c := range []struct {
		text, end string
	}{
		{"m.gguf: template: " + strings.Repeat("é", 5e6), "é …"},
		{"x m.gguf: template: " + strings.Repeat("é", 5e6) + "; get another one", "é …; get another one"},
		{"m.gguf: " + strings.Repeat("\x1b", 1000) + "; do " + strings.Repeat("y", 200), "y …"},
	} {
		ta := newTestApp(t)
		ta.Root.RunE = func(*cobra.Command, []string) error {
			ta.Warn("%s", c.text)
			return Input("%s", c.text)
		}
		_, _, errOut := ta.run()
		lines := strings.SplitAfter(strings.TrimSuffix(errOut, "\n"), "\n")
		if len(lines) != 2 {
			t.Fatalf("%d lines", len(lines))
		}
		for _, l := range lines {
			l = strings.TrimSuffix(l, "\n")
			if len(l) >= 400 || len(l) < 396 || !utf8.ValidString(l) || strings.Contains(l, "\ufffd") {
				t.Errorf("%d bytes: %q", len(l), l)
			}
		}
		if l := lines[1]; !strings.HasSuffix(l, c.end) && !strings.HasPrefix(c.text, "m.gguf: \x1b") {
			t.Errorf("%q does not end with %q", l, c.end)
		}
	}
}
