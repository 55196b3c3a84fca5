package prompt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ck/internal/cli"
)

// stdin is a file with a text; at is how far somebody has read it.
func stdin(t *testing.T, text string, at int64) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err == nil {
		_, err = f.Seek(at, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestSourceText(t *testing.T) {
	named := filepath.Join(t.TempDir(), "named")
	if err := os.WriteFile(named, []byte("file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, f := func(s string) cli.Part { return cli.Part{Flag: TextFlag, Value: s} }, func(s string) cli.Part { return cli.Part{Flag: FileFlag, Value: s} }
	for _, c := range []struct {
		name  string
		s     Source
		in    string
		at    int64
		want  string
		wrong string // of the error
	}{
		{name: "words", s: Source{Words: []string{"a", "b"}}, want: "a b"},
		{name: "stdin", in: "in\n", want: "in"},
		{name: "words and stdin", s: Source{Words: []string{"a"}}, in: "in", want: "a\n\nin"},
		{name: "stdin that was read", s: Source{Words: []string{"a"}}, in: "in", at: 1, want: "a"},
		{name: "no stdin", s: Source{Words: []string{"a"}, NoStdin: true}, in: "in", want: "a"},
		{name: "parts in order", s: Source{Parts: []cli.Part{p("x"), f(named), p("y")}, NoStdin: true}, want: "x\n\nfile\n\ny"},
		{name: "stdin named", s: Source{Parts: []cli.Part{f("-"), p("y")}, NoStdin: true}, in: "in", want: "in\n\ny"},
		{name: "stdin twice", s: Source{Parts: []cli.Part{f("-"), f("-")}}, wrong: "-f/--file: - is named twice, and stdin can be read once; leave one out"},
		{name: "nothing", wrong: "no prompt"},
		{name: "the empty prompt", s: Source{Parts: []cli.Part{p("")}}, want: ""},
		{name: "empty stdin named", s: Source{Parts: []cli.Part{f("-")}}, wrong: "no prompt"},
		{name: "words and -p", s: Source{Words: []string{"a"}, Named: true}, wrong: `-p/--prompt: there are words too ("a"); give the prompt once`},
		{name: "no UTF-8", in: "a\xff", wrong: "stdin: byte 1 (0xff) is not UTF-8; convert the text, with iconv for example"},
	} {
		c.s.In = stdin(t, c.in, c.at)
		got, err := c.s.Text(context.Background())
		if err == nil && c.wrong != "" || err != nil && err.Error() != c.wrong || got != c.want && err == nil {
			t.Errorf("%s: %q, %v; want %q, %q", c.name, got, err, c.want, c.wrong)
		}
		if (c.wrong == "no prompt") != errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestSourceIDs(t *testing.T) {
	named := filepath.Join(t.TempDir(), "ids")
	if err := os.WriteFile(named, []byte("[4, 5]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Source{In: stdin(t, "6 7", 0)}
	for _, c := range []struct {
		list, wrong string
		want        []int32
	}{
		{"1,2 3", "", []int32{1, 2, 3}},
		{"@" + named, "", []int32{4, 5}},
		{"@-", "", []int32{6, 7}},
		{"@", "--ids: @ needs the name of a file, or - for stdin", nil},
		{"", "--ids: there are no ids; give at least one, such as that of BOS", nil},
		{"10", "--ids: id 10 at place 1 is beyond the vocabulary, which has 10 tokens; give ids below 10", nil},
		{"1,x", `--ids: "x" is no token id; give whole numbers such as 1,2,3`, nil},
	} {
		got, err := s.IDs(context.Background(), c.list, 10)
		if err == nil && c.wrong != "" || err != nil && err.Error() != c.wrong || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, %v", c.list, got, err)
		}
	}
}
