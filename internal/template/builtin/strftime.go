package builtin

import (
	"strconv"
	"strings"
	"time"

	"ck/internal/template/pystr"
)

// strftime formats t as C's strftime does in the C locale, with glibc's flags "-", "_", "0" and "^".
func (r *Env) strftime(t time.Time, format string) string {
	var b strings.Builder
	r.Charge(2 * len(format))
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		start, written := i, b.Len()
		i++
		flag := byte(0)
		for i+1 < len(format) && strings.IndexByte("-_0^", format[i]) >= 0 {
			flag = format[i]
			i++
		}
		c := format[i]
		if c == 'f' { // Python's own, without flags
			flag = 0
		}
		if n, ok := timeNumbers[c]; ok {
			b.WriteString(n.text(t, flag))
		} else if layout, ok := timeWords[c]; ok {
			s := t.Format(layout)
			if flag == '^' && !strings.ContainsRune(timeFixed, rune(c)) {
				s = pystr.Upper(s)
			}
			b.WriteString(s)
		} else if s, ok := timeOthers[c]; ok {
			b.WriteString(s)
		} else {
			b.WriteString(format[start : i+1])
		}
		r.Step(4)
		r.Charge(2 * (b.Len() - written))
	}
	return b.String()
}

// timeWords are the conversions that Go's layouts have; timeFixed lists those which the flag "^" does not change.
var timeWords = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006", 'p': "PM",
	'D': "01/02/06", 'x': "01/02/06", 'F': "2006-01-02", 'P': "pm", 'r': "03:04:05 PM",
	'R': "15:04", 'T': "15:04:05", 'X': "15:04:05",
}

const timeFixed = "DxFPrRTX"

// timeOthers are the conversions without a time. "z" and "Z" are empty: the time has no zone, as Python's
// datetime.now().
var timeOthers = map[byte]string{'n': "\n", 't': "\t", '%': "%", 'z': "", 'Z': ""}

// timeNumber is a conversion to a number of at least width digits.
type timeNumber struct {
	width int
	fill  byte
	of    func(t time.Time) int
}

// text is the number with the flags of glibc: "-" for no fill, "_" for blanks, "0" for zeros.
func (n timeNumber) text(t time.Time, flag byte) string {
	switch flag {
	case '_':
		n.fill = ' '
	case '0':
		n.fill = '0'
	case '-':
		n.width = 0
	}
	s := strconv.Itoa(n.of(t))
	return strings.Repeat(string(n.fill), max(n.width-len(s), 0)) + s
}

var timeNumbers = map[byte]timeNumber{
	'C': {2, '0', func(t time.Time) int { return t.Year() / 100 }},
	'd': {2, '0', time.Time.Day},
	'e': {2, ' ', time.Time.Day},
	'f': {6, '0', func(t time.Time) int { return t.Nanosecond() / 1000 }},
	'G': {4, '0', isoYear},
	'g': {2, '0', func(t time.Time) int { return isoYear(t) % 100 }},
	'H': {2, '0', time.Time.Hour},
	'I': {2, '0', hour12},
	'j': {3, '0', time.Time.YearDay},
	'k': {2, ' ', time.Time.Hour},
	'l': {2, ' ', hour12},
	'm': {2, '0', func(t time.Time) int { return int(t.Month()) }},
	'M': {2, '0', time.Time.Minute},
	's': {1, '0', func(t time.Time) int { return int(t.Unix()) }},
	'S': {2, '0', time.Time.Second},
	'u': {1, '0', func(t time.Time) int { return monday(t) + 1 }},
	'U': {2, '0', func(t time.Time) int { return (t.YearDay() + 6 - int(t.Weekday())) / 7 }},
	'V': {2, '0', isoWeek},
	'w': {1, '0', func(t time.Time) int { return int(t.Weekday()) }},
	'W': {2, '0', func(t time.Time) int { return (t.YearDay() + 6 - monday(t)) / 7 }},
	'y': {2, '0', func(t time.Time) int { return t.Year() % 100 }},
	'Y': {1, '0', time.Time.Year},
}

func hour12(t time.Time) int { return (t.Hour()+11)%12 + 1 }

// monday is the day of the week, from 0 for Monday.
func monday(t time.Time) int { return (int(t.Weekday()) + 6) % 7 }

func isoYear(t time.Time) int {
	year, _ := t.ISOWeek()
	return year
}

func isoWeek(t time.Time) int {
	_, week := t.ISOWeek()
	return week
}
