package prompt

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"ck/internal/cli"
	"ck/internal/testkit"
)

func FuzzParseIDs(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for _, s := range []string{"", "1,2,3", "[1, 2]", " 1\t2\n", "[", "[1,[2]]", "-1", "4294967297", "1e3", "[\"1\"]", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		const vocab = 100
		ids, err := ParseIDs("here", s, vocab, cli.Input)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "here: ") {
				t.Errorf("%q: the error does not say where: %v", s, err)
			}
			return
		}
		if len(ids) > len(s) {
			t.Errorf("%q gives %d ids", s, len(ids))
		}
		for _, id := range ids {
			if id < 0 || id >= vocab {
				t.Errorf("%q gives id %d", s, id)
			}
		}
	})
}

func TestInvalidUTF8(t *testing.T) {
	for s, want := range map[string]int{"": -1, "abc": -1, "\uFFFD": -1, "\xff": 0, "é\xc3": 2, "a\xed\xa0\x80": 1, "\xf4\x90\x80\x80": 0} {
		if got := InvalidUTF8(s); got != want || utf8.ValidString(s) != (want < 0) {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}

func TestDropLineEnd(t *testing.T) {
	for s, want := range map[string]string{"": "", "\n": "", "a\r\n": "a", "a\n\n": "a\n", "a\r": "a\r", "a": "a"} {
		if got := dropLineEnd(s); got != want {
			t.Errorf("%q: %q", s, got)
		}
	}
}

func TestReadAllLimit(t *testing.T) {
	f, err := os.Open("/dev/zero")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	if _, err := readAll(f, "zeros"); err == nil || !strings.HasPrefix(err.Error(), "zeros: has more than 64 MiB") {
		t.Errorf("endless input: %v", err)
	}
}
