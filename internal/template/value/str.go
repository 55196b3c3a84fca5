package value

import (
	"fmt"
	"html"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"ck/internal/template/pystr"
)

// Str is str(v).
func (r *Run) Str(v Value) string {
	switch v := v.(type) {
	case string:
		return v
	case Markup:
		return string(v)
	case *Mixed:
		r.Touched++
		return v.S
	case *Undefined:
		return ""
	}
	return r.Repr(v)
}

// Repr is repr(v).
func (r *Run) Repr(v Value) string {
	w := &reprWriter{r: r}
	w.value(v, 0)
	return w.b.String()
}

// reprWriter builds a text and charges it as it grows, because a small value with shared parts can have a long text.
type reprWriter struct {
	r *Run
	b strings.Builder
}

func (w *reprWriter) put(s string) {
	w.r.Charge(2 * len(s))
	w.b.WriteString(s)
}

func (w *reprWriter) value(v Value, depth int) {
	w.r.Step(1)
	w.r.nest(depth)
	if IsNumber(v) {
		w.r.ReadNumber()
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
		w.put(w.r.Quote(v))
	case Markup:
		w.put("Markup(" + w.r.Quote(string(v)) + ")")
	case *Mixed:
		w.r.Touched++
		w.value(v.plain(), depth)
	case *Undefined:
		w.put("Undefined")
	case *Generator:
		w.put("<generator object " + v.Name + ">")
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
		if v.Tuple {
			open, end = "(", ")"
			if len(v.Items) == 1 {
				end = ",)"
			}
		}
		w.items(open, end, len(v.Items), func(i int) { w.value(v.Items[i], depth+1) })
	case *Dict:
		w.items("{", "}", v.Len(), func(i int) {
			w.value(v.Keys[i], depth+1)
			w.put(": ")
			w.value(v.Vals[i], depth+1)
		})
	case *View:
		w.items("dict_"+v.Kind+"([", "])", v.D.Len(), func(i int) { w.value(v.at(w.r, i), depth+1) })
	case *Range:
		w.put(fmt.Sprintf("range(%d, %d", v.Start, v.Stop))
		if v.Step != 1 {
			w.put(", " + strconv.Itoa(v.Step))
		}
		w.put(")")
	case *Namespace:
		w.put("<Namespace ")
		w.value(v.Attrs, depth+1)
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
func (r *Run) bigText(b *big.Int) string {
	if b.BitLen() > maxIntDigits*3322/1000 && len(new(big.Int).Abs(b).Text(10)) > maxIntDigits {
		r.Fail("ValueError", "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
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

// Quote is repr of a string.
func (r *Run) Quote(s string) string {
	r.Charge(len(s))
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
			b = append(b, pystr.ASCIIRune(c)...)
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	return string(append(b, q))
}

// indexText is the code point at i, counted from the end if negative.
func (r *Run) indexText(s string, i int) (string, bool) {
	r.Scan(len(s))
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
		s = s[pystr.RuneLen(s):]
	}
	n := pystr.RuneLen(s)
	return s[:n], n > 0
}

// SliceText is s[start:stop:step].
func (r *Run) SliceText(s string, k SliceKey) string {
	r.Scan(len(s))
	n := pystr.RuneCount(s)
	start, step, count := r.SliceRange(k, n)
	if count == 0 {
		return ""
	}
	if step == 1 {
		from := pystr.Offset(s, start)
		return s[from : from+pystr.Offset(s[from:], count)]
	}
	r.ChargeN(n, 4)
	runes := []rune(s)
	out := make([]rune, count)
	for i := range out {
		out[i] = runes[start+i*step]
	}
	r.ChargeN(count, 8)
	return string(out)
}

// sliceMixed is sliceText of a text that knows whose it is.
func (r *Run) sliceMixed(m *Mixed, k SliceKey) Value {
	if step, ok := Number(k.Step); k.Step != nil && !(ok && step == 1) {
		return LikeText(m, r.SliceText(m.S, k))
	}
	r.Scan(len(m.S))
	start, _, count := r.SliceRange(k, pystr.RuneCount(m.S))
	if count == 0 {
		return ""
	}
	from := pystr.Offset(m.S, start)
	return CutText(m, from, from+pystr.Offset(m.S[from:], count))
}

// SliceRange resolves a slice of a sequence of n items: first position, step and number of items.
func (r *Run) SliceRange(k SliceKey, n int) (start, step, count int) {
	part := func(v Value, def int) int {
		switch x, _ := Number(v); x := x.(type) {
		case nil:
			if v == nil {
				return def
			}
		case int:
			return x
		case *big.Int:
			return x.Sign() * math.MaxInt
		}
		r.Need(v)
		r.TypeError("slice indices must be integers or None or have an __index__ method")
		return 0
	}
	step = part(k.Step, 1)
	if step == 0 {
		r.Fail("ValueError", "slice step cannot be zero")
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
	start = clamp(k.Start, defStart)
	count = (&Range{start, clamp(k.Stop, defStop), step}).Len()
	if count == 0 {
		start = 0 // -1 would be no position
	}
	return start, step, count
}

// replace is s.replace(old, new, n), charged before it is done.
func (r *Run) replace(s, old, new string, n int) string {
	r.Scan(len(s))
	count := strings.Count(s, old)
	if n >= 0 {
		count = min(count, n)
	}
	if count == 0 {
		return s
	}
	if grow := len(new) - len(old); grow > 0 {
		r.ChargeN(count, grow)
	}
	r.Charge(len(s))
	return strings.Replace(s, old, new, count)
}

// Escape is s with the five special characters of HTML escaped.
func (r *Run) Escape(s string) string {
	r.ChargeN(len(s), 5)
	return html.EscapeString(s)
}

// Join is a + b, charged.
func (r *Run) Join(a, b string) string {
	r.Charge(len(a) + len(b))
	return a + b
}
