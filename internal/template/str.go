package template

import (
	"fmt"
	"html"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is str(v).
func (r *run) str(v Value) string {
	switch v := v.(type) {
	case string:
		return v
	case Markup:
		return string(v)
	case *mixed:
		r.touched++
		return v.s
	case *Undefined:
		return ""
	}
	return r.repr(v)
}

// repr is repr(v).
func (r *run) repr(v Value) string {
	w := &reprWriter{r: r}
	w.value(v, 0)
	return w.b.String()
}

// reprWriter builds a text and charges it as it grows, because a small value with shared parts can have a long text.
type reprWriter struct {
	r *run
	b strings.Builder
}

func (w *reprWriter) put(s string) {
	w.r.charge(2 * len(s))
	w.b.WriteString(s)
}

func (w *reprWriter) value(v Value, depth int) {
	w.r.step(1)
	w.r.nest(depth)
	if isNumber(v) {
		w.r.useNumber()
	}
	switch v := v.(type) {
	case nil:
		w.put("None")
	case bool:
		if v {
			w.put("True")
		} else {
			w.put("False")
		}
	case int:
		w.put(strconv.Itoa(v))
	case *big.Int:
		w.put(w.r.bigText(v))
	case float64:
		w.put(floatRepr(v))
	case string:
		w.put(w.r.quote(v))
	case Markup:
		w.put("Markup(" + w.r.quote(string(v)) + ")")
	case *mixed:
		w.r.touched++
		w.value(v.plain(), depth)
	case *Undefined:
		w.put("Undefined")
	case *generator:
		w.put("<generator object " + v.name + ">")
	case Object:
		w.put(v.Repr())
	default:
		w.container(v, depth)
	}
}

// container is value for what holds other values.
func (w *reprWriter) container(v Value, depth int) {
	switch v := v.(type) {
	case *List:
		open, end := "[", "]"
		if v.tuple {
			open, end = "(", ")"
			if len(v.items) == 1 {
				end = ",)"
			}
		}
		w.items(open, end, len(v.items), func(i int) { w.value(v.items[i], depth+1) })
	case *Dict:
		w.items("{", "}", v.Len(), func(i int) {
			w.value(v.keys[i], depth+1)
			w.put(": ")
			w.value(v.vals[i], depth+1)
		})
	case *view:
		w.items("dict_"+v.kind+"([", "])", v.d.Len(), func(i int) { w.value(v.at(w.r, i), depth+1) })
	case *pyRange:
		w.put(fmt.Sprintf("range(%d, %d", v.start, v.stop))
		if v.step != 1 {
			w.put(", " + strconv.Itoa(v.step))
		}
		w.put(")")
	case *namespace:
		w.put("<Namespace ")
		w.value(v.attrs, depth+1)
		w.put(">")
	}
}

func (w *reprWriter) items(open, end string, n int, item func(i int)) {
	w.put(open)
	for i := range n {
		if i > 0 {
			w.put(", ")
		}
		item(i)
	}
	w.put(end)
}

// bigText is the decimal text of an integer; Python refuses more than 4300 digits.
func (r *run) bigText(b *big.Int) string {
	if b.BitLen() > maxIntDigits*3322/1000 && len(new(big.Int).Abs(b).Text(10)) > maxIntDigits {
		r.fail("ValueError", "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	return b.Text(10)
}

// floatRepr is repr(f): the shortest text that reads back as f, with an exponent below 1e-4 and from 1e16.
func floatRepr(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quote is repr of a string.
func (r *run) quote(s string) string {
	r.charge(len(s))
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, "\"") {
		q = '"'
	}
	b := make([]byte, 0, len(s)+2)
	b = append(b, q)
	for _, c := range s {
		switch {
		case c == rune(q) || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, "\\n"...)
		case c == '\r':
			b = append(b, "\\r"...)
		case c == '\t':
			b = append(b, "\\t"...)
		case c < ' ' || c == 0x7f || c > 0x7f && !unicode.IsPrint(c):
			b = append(b, asciiRune(c)...)
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	return string(append(b, q))
}

// indexText is the code point at i, counted from the end if negative.
func (r *run) indexText(s string, i int) (string, bool) {
	r.scan(len(s))
	if i < 0 {
		for i < -1 && s != "" {
			_, n := utf8.DecodeLastRuneInString(s)
			s = s[:len(s)-n]
			i++
		}
		_, n := utf8.DecodeLastRuneInString(s)
		return s[len(s)-n:], n > 0
	}
	for ; i > 0 && s != ""; i-- {
		s = s[runeLen(s):]
	}
	n := runeLen(s)
	return s[:n], n > 0
}

// sliceText is s[start:stop:step].
func (r *run) sliceText(s string, k sliceKey) string {
	r.scan(len(s))
	n := runeCount(s)
	start, step, count := r.sliceRange(k, n)
	if count == 0 {
		return ""
	}
	if step == 1 {
		from := offset(s, start)
		return s[from : from+offset(s[from:], count)]
	}
	r.chargeN(n, 4)
	runes := []rune(s)
	out := make([]rune, count)
	for i := range out {
		out[i] = runes[start+i*step]
	}
	r.chargeN(count, 8)
	return string(out)
}

// sliceMixed is sliceText of a text that knows whose it is.
func (r *run) sliceMixed(m *mixed, k sliceKey) Value {
	if step, ok := number(k.step); k.step != nil && !(ok && step == 1) {
		return likeText(m, r.sliceText(m.s, k))
	}
	r.scan(len(m.s))
	start, _, count := r.sliceRange(k, runeCount(m.s))
	if count == 0 {
		return ""
	}
	from := offset(m.s, start)
	return cutText(m, from, from+offset(m.s[from:], count))
}

// sliceRange resolves a slice of a sequence of n items: first position, step and number of items.
func (r *run) sliceRange(k sliceKey, n int) (start, step, count int) {
	part := func(v Value, def int) int {
		switch x, _ := number(v); x := x.(type) {
		case nil:
			if v == nil {
				return def
			}
		case int:
			return x
		case *big.Int:
			return x.Sign() * math.MaxInt
		}
		r.use(v)
		r.typeError("slice indices must be integers or None or have an __index__ method")
		return 0
	}
	step = part(k.step, 1)
	if step == 0 {
		r.fail("ValueError", "slice step cannot be zero")
	}
	low, high := 0, n
	defStart, defStop := 0, n
	if step < 0 {
		low, high = -1, n-1
		defStart, defStop = n-1, -1
	}
	clamp := func(v Value, def int) int {
		if v == nil {
			return def
		}
		i := part(v, def)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	start = clamp(k.start, defStart)
	count = (&pyRange{start, clamp(k.stop, defStop), step}).len()
	if count == 0 {
		start = 0 // -1 would be no position
	}
	return start, step, count
}

// replace is s.replace(old, new, n), charged before it is done.
func (r *run) replace(s, old, new string, n int) string {
	r.scan(len(s))
	count := strings.Count(s, old)
	if n >= 0 {
		count = min(count, n)
	}
	if count == 0 {
		return s
	}
	if grow := len(new) - len(old); grow > 0 {
		r.chargeN(count, grow)
	}
	r.charge(len(s))
	return strings.Replace(s, old, new, count)
}

// escape is s with the five special characters of HTML escaped.
func (r *run) escape(s string) string {
	r.chargeN(len(s), 5)
	return html.EscapeString(s)
}

// join is a + b, charged.
func (r *run) join(a, b string) string {
	r.charge(len(a) + len(b))
	return a + b
}
