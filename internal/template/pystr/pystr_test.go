package pystr

import (
	"slices"
	"testing"
)

// TestCases: code points that become several, and the sigma at the end of a word.
func TestCases(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Upper("straße ŉ"), "STRASSE ʼN"},
		{Lower("ΟΔΟΣ ΣΑΣ'"), "οδος σας'"},
		{Title("they're ǆx"), "They'Re ǅx"},
		{Capitalize("ßA"), "Ssa"},
		{Swapcase("aBß"), "AbSS"},
		{TitleWords("they're (a)"), "They're (A)"},
		{DecimalDigits("٣𝟙x"), "31x"},
		{ASCIIEscape("aé€😀"), `a\xe9\u20ac\U0001f600`},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestSplits: lines end at more than line feeds, white space is more than blanks.
func TestSplits(t *testing.T) {
	for _, c := range []struct{ got, want []string }{
		{SplitLines("a\r\nb\u2028c\x1cd\n", false), []string{"a", "b", "c", "d"}},
		{SplitLines("a\r\nb", true), []string{"a\r\n", "b"}},
		{SplitSpace(" a\u00a0b  c ", 1), []string{"a", "b  c "}},
		{RsplitSpace(" a b\x1fc ", 1), []string{" a b", "c"}},
		{Rsplit("a,b,c", ",", 1), []string{"a,b", "c"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
