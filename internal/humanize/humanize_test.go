package humanize

import (
	"math"
	"slices"
	"testing"
	"unicode/utf8"
)

func TestShortList(t *testing.T) {
	long := []int{}
	for i := range 100 {
		long = append(long, 2*i)
	}
	for _, c := range []struct {
		ids   []int
		width int
		want  string
	}{
		{nil, 10, "none"},
		{[]int{3}, 10, "3"},
		{[]int{0, 1, 2, 3, 8, 9, 11}, 20, "0-3,8-9,11"},
		{long, 30, "0,2,4,6,8,10,12,… (100 in all)"},
	} {
		if got := ShortList(c.ids, c.width); got != c.want || utf8.RuneCountInString(got) > max(c.width, 20) {
			t.Errorf("%v in %d columns: %q, want %q", c.ids, c.width, got, c.want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 64: "64 bytes", 1000: "1000 bytes", 32 << 10: "32 KiB", 1280 << 10: "1.2 MiB", 2 << 20: "2 MiB",
		105 << 20: "105 MiB", 96<<30 - 1<<20: "96 GiB", 512 << 30: "512 GiB", 2 << 40: "2 TiB", 3 << 39: "1.5 TiB"} {
		if got := IBytes(n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(4_000_000_000_000), "4 TB"}, {Bytes(266_000_000_000), "266 GB"}, {Bytes(1_310_000_000), "1.31 GB"}, {Bytes(32768), "32.8 kB"},
		{Scaled(5.12e15, "OP/s"), "5.12 POP/s"}, {Scaled(614.4e9, "B/s"), "614 GB/s"}, {TokenRate(0.1234), "0.123"}, {TokenRate(4823.4), "4823"},
		{Seconds(0.4), "400 ms"}, {Seconds(2e-6), "2 us"}, {Seconds(58.25), "58.2 s"}, {Seconds(1234), "1234 s"},
		{Count(250e9), "250B"}, {Count(1.71e9), "1.71B"}, {Count(2.94e6), "2.94M"}, {Count(1.5e12), "1.5T"}, {Count(999.9e9), "1T"}, {Count(67600), "67.6K"},
		{Seconds(math.Inf(1)), "never"}, {Seconds(math.NaN()), "never"}, {Seconds(0.9996), "1e+03 ms"},
		{Plural(0, "row"), "0 rows"}, {Plural(1, "row"), "1 row"}, {Plural(2, "row"), "2 rows"},
		{IBytesTold(0), "not told"}, {IBytesTold(-1), "not told"}, {IBytesTold(64 << 10), "64 KiB"},
		{OrNot(""), "not told"}, {OrNot("x"), "x"}, {OrNone(""), "none"}, {OrNone("x"), "x"}, {YesNo(true), "yes"}, {YesNo(false), "no"},
		{Dash(0), "-"}, {Dash(-1), "-"}, {Dash(7), "7"}, {DashNegative(-1), "-"}, {DashNegative(0), "0"},
		{Percent(1, 3), "33 %"}, {Percent(2, 3), "67 %"}, {Percent(1, 0), "0 %"},
		{GBps(102.44e9), "102.4 GB/s"}, {Hertz(2.994e9), "2.99 GHz"}, {Ops(999e9), "999 GOP/s"}, {Ops(1e12), "1.00 TOP/s"},
		{Milliseconds(0.0204), "20 ms"}, {Nanoseconds(999e-9), "999 ns"}, {Nanoseconds(1e-6), "1.0 us"},
		{TokenRate(99.96), "100"}, {TokenRate(2e5), "2e+05"}, {TokenRate(math.Inf(1)), "+Inf"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	if got := Nearest("Q4KM", []string{"Q8_0", "Q4_K_S", "Q4_K_M", "Q4_0"}, 2); !slices.Equal(got, []string{"Q4_K_M", "Q4_0"}) {
		t.Error(got)
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
