package dataset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestEachText(t *testing.T) {
	text := write(t, "a.txt", "\n\nOne.\nTwo.\n<|endoftext|>\nThree.\n")
	lines := write(t, "b.jsonl", `{"text": "Four\n"}
{"prompt": "Fi", "completion": "ve"}
{"say": "nothing"}
{"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "Six?"}, {"role": "assistant", "thinking": "Hm.", "content": "Seven."}]}
`)
	var got []string
	last := int64(0)
	collect := func(s string, read int64) error {
		if got = append(got, s); read < last {
			t.Errorf("%q: %d bytes were read, before it %d", s, read, last)
		}
		last = read
		return nil
	}
	st, err := EachText(context.Background(), []string{text, lines}, 1, collect)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"One.\nTwo.", "Three.", "Four\n", "Five", "system", "user", "Six?", "assistant", "Hm.", "Seven."}; !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
	size := int64(0)
	for _, path := range []string{text, lines} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if st.Examples != 5 || st.Skipped != 1 || len(st.Bad) != 1 || st.Bad[0].Line != 3 || last != size {
		t.Errorf("%+v; %d bytes of %d were read", st, last, size)
	}

	nothing := func(string, int64) error { return nil }
	var line *LineError
	if _, err := EachText(context.Background(), []string{text, lines}, 0, nothing); !errors.As(err, &line) || line.Line != 3 || line.Path != lines {
		t.Errorf("a bad line: %v", err)
	}
	if _, err := EachText(context.Background(), []string{write(t, "c.csv", "a,b")}, 0, nothing); !errors.As(err, &line) {
		t.Errorf("another ending: %v", err)
	}
	if _, err := EachText(context.Background(), nil, 0, nothing); !errors.Is(err, ErrEmpty) {
		t.Errorf("no file: %v", err)
	}
	broken := errors.New("broken")
	if _, err := EachText(context.Background(), []string{text}, 0, func(string, int64) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("do's error: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "%d\n<|endoftext|>\n", i)
	}
	n := 0
	_, err = EachText(ctx, []string{write(t, "d.txt", many.String())}, 0, func(string, int64) error { n++; stop(); return nil })
	if !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("%d texts behind the end: %v", n, err)
	}
}
