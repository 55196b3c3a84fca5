package plaintext

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

// Tables fit where words allow it; numbers and the first column stay whole.
func TestFit(t *testing.T) {
	in := Table{Head: []string{"name of it", "in all", "what it is"}, Right: []bool{false, true, false}}
	fit := func(t Table, columns int) *Table {
		t.Columns = columns
		return t.fit()
	}
	in.Rows = [][]string{{"node 10", "12 GiB", "memory of a kind that is not told"}, {"x", "1 byte", "y"}}
	var b strings.Builder
	in.Columns = 36
	if err := in.Write(&b, false); err != nil {
		t.Fatal(err)
	}
	want := "name of it  in all  what it is\nnode 10     12 GiB  memory of a kind\n                    that is not told\nx           1 byte  y\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	if got := fit(in, 200); got.Rows[0][2] != in.Rows[0][2] {
		t.Errorf("%q", got.Rows[0])
	}
	if got := fit(in, 1); got.Rows[0][1] != "12 GiB" || got.Rows[0][0] != "node 10" { // less than there can be
		t.Errorf("%q", got.Rows[0])
	}
	if got := fit(Table{}, 10); len(got.Rows) != 0 {
		t.Errorf("%v", got)
	}
}

// A number stays with its unit.
func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"reads 20.0 GB/s, then 30 ns more", 12, "reads|20.0 GB/s,|then 30 ns|more"},
		{"a b", 1, "a|b"}, {"", 5, ""}, {"12", 1, "12"}, {"3 nodes", 5, "3|nodes"},
	} {
		if got := strings.Join(Wrap(c.text, c.columns), "|"); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

// What a terminal would obey, what reorders text and what cannot be seen is shown by its number; what people write stays.
func TestEscape(t *testing.T) {
	for _, c := range []struct{ in, line, text string }{
		{"Llama 3.2 1B", "Llama 3.2 1B", "Llama 3.2 1B"},
		{"a\x1b[2Jb\x07\r", `a\x1b[2Jb\x07\x0d`, `a\x1b[2Jb\x07\x0d`},
		{"\x7f\u0080\u009b31m\u009f\u00a0", `\x7f\u0080\u009b31m\u009f` + "\u00a0", `\x7f\u0080\u009b31m\u009f` + "\u00a0"},
		{"a\nb\tc", `a; b\x09c`, "a\nb\tc"},
		{"\u202a\u202b\u202c\u202d\u202e", `\u202a\u202b\u202c\u202d\u202e`, `\u202a\u202b\u202c\u202d\u202e`},
		{"\u2066\u2069\u200e\u200f\u061c", `\u2066\u2069\u200e\u200f\u061c`, `\u2066\u2069\u200e\u200f\u061c`},
		{"\ufeff\u00ad\u200b\u2060\u2028\u2029\ufff9\u034f\u3164", `\ufeff\u00ad\u200b\u2060\u2028\u2029\ufff9\u034f\u3164`, `\ufeff\u00ad\u200b\u2060\u2028\u2029\ufff9\u034f\u3164`},
		{"\U000e0041", `\U000e0041`, `\U000e0041`},
		{"a\xffb\xe6\x97", `a\xffb\xe6\x97`, `a\xffb\xe6\x97`},
		{"\xed\xa0\x80\xc0\x80", `\xed\xa0\x80\xc0\x80`, `\xed\xa0\x80\xc0\x80`},
		{"日本語 é ü \ufffd 👩\u200d💻 ❤\ufe0f می\u200cخواهم \u0600١", "日本語 é ü \ufffd 👩\u200d💻 ❤\ufe0f می\u200cخواهم \u0600١", "日本語 é ü \ufffd 👩\u200d💻 ❤\ufe0f می\u200cخواهم \u0600١"},
		{"", "", ""},
	} {
		if got := Escape(c.in); got != c.line {
			t.Errorf("Escape(%q) = %q, want %q", c.in, got, c.line)
		}
		if got := string(Printable([]byte(c.in))); got != c.text {
			t.Errorf("Printable(%q) = %q, want %q", c.in, got, c.text)
		}
	}
	text := []byte("as it is: 日本語\n")
	if got := Printable(text); &got[0] != &text[0] {
		t.Error("text without anything hidden was copied")
	}
}

// However a text is cut into writes, the result is the same.
func TestTextWriter(t *testing.T) {
	text := "日本\x1b語\u202e\xff é👩\n"
	for n := 1; n < 7; n++ {
		var b strings.Builder
		w := TextWriter(&b)
		for s := text; s != ""; {
			k := min(n, len(s))
			if got, err := w.Write([]byte(s[:k])); got != k || err != nil {
				t.Fatal(got, err)
			}
			s = s[k:]
		}
		if want := string(Printable([]byte(text))); b.String() != want {
			t.Errorf("in parts of %d: %q, want %q", n, b.String(), want)
		}
	}
}

// A document says the same as before, and has nothing in it that a terminal obeys.
func TestEncodeJSON(t *testing.T) {
	in := map[string]string{"a\u009b\u202e": "<\x1b\x7f\u2028\U000e0041\u00ad\n日\u200d>"}
	var b strings.Builder
	if err := EncodeJSON(&b, in); err != nil {
		t.Fatal(err)
	}
	want := `{"a\u009b\u202e":"<\u001b\u007f\u2028\udb40\udc41\u00ad\n日` + "\u200d" + `>"}` + "\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	var out map[string]string
	if err := json.Unmarshal([]byte(b.String()), &out); err != nil || !maps.Equal(in, out) {
		t.Errorf("%q, %v", out, err)
	}
}

// A cell cannot begin a line of its own or a fact of its own, and no cell reaches the terminal as it is.
func TestTableCells(t *testing.T) {
	table := Table{Head: []string{"key\x1b", "value"}, Rows: [][]string{{"a\nb", "c\td\u202e\xff"}, {"e", "f"}}}
	for _, c := range []struct {
		plain bool
		want  string
	}{{false, "key\\x1b  value\na; b     c\\x09d\\u202e\\xff\ne        f\n"}, {true, "a; b value\tc\\x09d\\u202e\\xff\ne value\tf\n"}} {
		var b strings.Builder
		if err := table.Write(&b, c.plain); err != nil || b.String() != c.want {
			t.Errorf("plain %v: %q, %v; want %q", c.plain, b.String(), err, c.want)
		}
	}
	if table.Rows[0][0] != "a\nb" {
		t.Error("Write changed the table")
	}
}
