// Package humanize writes values as people read them: sizes, rates, times, counts, lists of CPUs, and a word where a value is missing.
//
// It knows no program and no machine. Nothing is rounded so that a value would be read back from its text: JSON has the values.
package humanize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ListColumns is how wide a list of numbers is at most, in a table and in a sentence.
const ListColumns = 44

// Ranges is ascending numbers in the kernel's list format, one range each.
func Ranges(ids []int) []string {
	var out []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if r := strconv.Itoa(ids[i]); j > i {
			out = append(out, r+"-"+strconv.Itoa(ids[j]))
		} else {
			out = append(out, r)
		}
		i = j + 1
	}
	return out
}

// ShortList is a list of numbers in at most so many columns: what does not fit is counted.
func ShortList(ids []int, columns int) string {
	parts := Ranges(ids)
	if len(parts) == 0 {
		return "none"
	}
	if all := strings.Join(parts, ","); len(all) <= columns {
		return all
	}
	tail := fmt.Sprintf(",… (%d in all)", len(ids))
	text := parts[0]
	for _, r := range parts[1:] {
		if len(text)+1+len(r)+utf8.RuneCountInString(tail) > columns {
			break
		}
		text += "," + r
	}
	return text + tail
}

// IBytes is a size in bytes, KiB, MiB, GiB or TiB: in the unit that leaves one to four digits before the point.
func IBytes(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for i+1 < len(units) && (v >= 10240 || v >= 1024 && (v == float64(int64(v/1024))*1024 || i > 0)) {
		v, i = v/1024, i+1
	}
	text := strconv.FormatFloat(v, 'f', 0, 64)
	if v < 100 && v != float64(int64(v)) {
		text = strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	return text + " " + units[i]
}

// IBytesTold is IBytes, or that the size is not told: 0 or less.
func IBytesTold(n int64) string {
	if n <= 0 {
		return "not told"
	}
	return IBytes(n)
}

// OrNot is a text, or that it is not told.
func OrNot(s string) string {
	if s == "" {
		return "not told"
	}
	return s
}

// OrNone is a text, or "none".
func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// YesNo is "yes" or "no".
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Plural is a number with its noun: "1 core", "2 cores".
func Plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Dash is a number; 0 and less are not told.
func Dash(n int) string {
	if n <= 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// DashNegative is a number; negative ones are not told.
func DashNegative(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// Percent is the share of part in all: "25 %".
func Percent(part, all int64) string {
	if all <= 0 {
		return "0 %"
	}
	return strconv.FormatFloat(100*float64(part)/float64(all), 'f', 0, 64) + " %"
}

// GBps is bytes a second in units of 1e9.
func GBps(v float64) string { return fmt.Sprintf("%.1f GB/s", v/1e9) }

// Hertz is a frequency in GHz.
func Hertz(v float64) string { return fmt.Sprintf("%.2f GHz", v/1e9) }

// Ops is operations a second: TOP/s, below that GOP/s.
func Ops(v float64) string {
	if v >= 1e12 {
		return fmt.Sprintf("%.2f TOP/s", v/1e12)
	}
	return fmt.Sprintf("%.0f GOP/s", v/1e9)
}

// Milliseconds is a time in seconds as ms.
func Milliseconds(v float64) string { return fmt.Sprintf("%.0f ms", v*1e3) }

// Nanoseconds is a time in seconds as ns, from 1 us on as us.
func Nanoseconds(v float64) string {
	if v >= 1e-6 {
		return fmt.Sprintf("%.1f us", v*1e6)
	}
	return fmt.Sprintf("%.0f ns", v*1e9)
}

// Seconds is a time in three digits, "never" if it is not finite.
func Seconds(s float64) string {
	switch {
	case math.IsInf(s, 0) || math.IsNaN(s):
		return "never"
	case s < 1e-3:
		return fmt.Sprintf("%.3g us", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	case s < 999.5:
		return fmt.Sprintf("%.3g s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}

// Bytes is a size in kB, MB, GB or TB, units of 1000, in three digits.
func Bytes(n int64) string {
	switch {
	case n >= 1e12:
		return fmt.Sprintf("%.3g TB", float64(n)/1e12)
	case n >= 1e11:
		return fmt.Sprintf("%.0f GB", float64(n)/1e9)
	case n >= 1e9:
		return fmt.Sprintf("%.3g GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.3g MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.3g kB", float64(n)/1e3)
}

// Scaled is an amount in three digits, its unit with a prefix: "5.12 POP/s".
func Scaled(x float64, unit string) string {
	for _, u := range []struct {
		at   float64
		name string
	}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}} {
		if x >= u.at {
			return fmt.Sprintf("%.3g %s%s", x/u.at, u.name, unit)
		}
	}
	return fmt.Sprintf("%.3g %s", x, unit)
}

// Count is a number of parameters: "250B".
func Count(n float64) string {
	switch {
	case n >= 999.5e9:
		return fmt.Sprintf("%.3gT", n/1e12)
	case n >= 999.5e6:
		return fmt.Sprintf("%.3gB", n/1e9)
	case n >= 999.5e3:
		return fmt.Sprintf("%.3gM", n/1e6)
	}
	return fmt.Sprintf("%.3gK", n/1e3)
}

// TokenRate is tokens a second, without the unit.
func TokenRate(x float64) string {
	switch {
	case x >= 1e5 || math.IsInf(x, 0):
		return fmt.Sprintf("%.3g", x)
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
