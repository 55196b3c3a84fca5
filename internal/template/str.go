package template

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// isSpace is str.isspace of one code point, the set that strip() and split() use.
func isSpace(c rune) bool {
	return c == ' ' || c >= '\t' && c <= '\r' || c >= 0x1c && c <= 0x1f || c > 0x7f && unicode.IsSpace(c)
}

func runeCount(s string) int { return utf8.RuneCountInString(s) }

// runeLen is the length in bytes of the first code point.
func runeLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// asciiRune is a code point as Python's escape \xHH, \uHHHH or \UHHHHHHHH without the backslash doubled.
func asciiRune(c rune) string {
	switch {
	case c < 0x100:
		return fmt.Sprintf("\\x%02x", c)
	case c < 0x10000:
		return fmt.Sprintf("\\u%04x", c)
	}
	return fmt.Sprintf("\\U%08x", c)
}

// asciiDigits replaces the decimal digits of other scripts by ASCII's.
func asciiDigits(s string) string {
	return strings.Map(func(c rune) rune {
		if c > 0x7f && unicode.Is(unicode.Nd, c) {
			return '0' + digitValue(c)
		}
		return c
	}, s)
}

// digitValue is the value of a decimal digit: each script has its ten in a row, 0 first.
func digitValue(c rune) rune {
	n := rune(0)
	for n < 9 && unicode.Is(unicode.Nd, c-n-1) {
		n++
	}
	if c >= 0x1d7ce && c <= 0x1d7ff { // mathematical digits: five rows without a gap
		n = (c - 0x1d7ce) % 10
	}
	return n
}

// str is str(v).
func (r *state) str(v Value) string {
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
func (r *state) repr(v Value) string {
	w := &reprWriter{r: r}
	w.value(v, 0)
	return w.b.String()
}

// reprWriter builds a text and charges it as it grows, because a small value with shared parts can have a long text.
type reprWriter struct {
	r *state
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
	case *Undefined:
		w.put("Undefined")
	case *macro:
		if v.caller {
			w.put("<Macro anonymous>")
		} else {
			w.put("<Macro " + w.r.quote(v.def.name) + ">")
		}
	case *loop:
		w.put(fmt.Sprintf("<LoopContext %d/%d>", v.index+1, v.length(w.r)))
	case *function:
		w.put("<function " + v.f.name + ">")
	case *boundMethod:
		w.put("<built-in method " + v.f.name + " of " + typeName(v.recv) + " object>")
	case *generator:
		w.put("<generator object " + v.name + ">")
	default:
		w.put("<" + typeName(v) + ">")
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
func (r *state) bigText(b *big.Int) string {
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
func (r *state) quote(s string) string {
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

// index is the code point at i, counted from the end if negative.
func (r *state) indexText(s string, i int) (string, bool) {
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

// offset is the position in bytes of the i-th code point, len(s) beyond the end.
func offset(s string, i int) int {
	at := 0
	for ; i > 0 && at < len(s); i-- {
		at += runeLen(s[at:])
	}
	return at
}

// sliceText is s[start:stop:step].
func (r *state) sliceText(s string, k sliceKey) string {
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
func (r *state) sliceMixed(m *mixed, k sliceKey) Value {
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
func (r *state) sliceRange(k sliceKey, n int) (start, step, count int) {
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
		if u, ok := v.(*Undefined); ok {
			r.missing(u)
		}
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

// specialUpper lists the code points whose upper case (and title case, after the slash) has more than one code point, from
// Unicode's SpecialCasing.txt.
const specialUpper = "" +
	" \u00df=SS/Ss \u0149=\u02bcN \u01f0=J\u030c \u0390=\u0399\u0308\u0301 \u03b0=\u03a5\u0308\u0301" +
	" \u0587=\u0535\u0552/\u0535\u0582 \u1e96=H\u0331 \u1e97=T\u0308 \u1e98=W\u030a \u1e99=Y\u030a \u1e9a=A\u02be" +
	" \u1f50=\u03a5\u0313 \u1f52=\u03a5\u0313\u0300 \u1f54=\u03a5\u0313\u0301 \u1f56=\u03a5\u0313\u0342" +
	" \u1f80=\u1f08\u0399/\u1f88 \u1f81=\u1f09\u0399/\u1f89 \u1f82=\u1f0a\u0399/\u1f8a \u1f83=\u1f0b\u0399/\u1f8b" +
	" \u1f84=\u1f0c\u0399/\u1f8c \u1f85=\u1f0d\u0399/\u1f8d \u1f86=\u1f0e\u0399/\u1f8e \u1f87=\u1f0f\u0399/\u1f8f" +
	" \u1f88=\u1f08\u0399/\u1f88 \u1f89=\u1f09\u0399/\u1f89 \u1f8a=\u1f0a\u0399/\u1f8a \u1f8b=\u1f0b\u0399/\u1f8b" +
	" \u1f8c=\u1f0c\u0399/\u1f8c \u1f8d=\u1f0d\u0399/\u1f8d \u1f8e=\u1f0e\u0399/\u1f8e \u1f8f=\u1f0f\u0399/\u1f8f" +
	" \u1f90=\u1f28\u0399/\u1f98 \u1f91=\u1f29\u0399/\u1f99 \u1f92=\u1f2a\u0399/\u1f9a \u1f93=\u1f2b\u0399/\u1f9b" +
	" \u1f94=\u1f2c\u0399/\u1f9c \u1f95=\u1f2d\u0399/\u1f9d \u1f96=\u1f2e\u0399/\u1f9e \u1f97=\u1f2f\u0399/\u1f9f" +
	" \u1f98=\u1f28\u0399/\u1f98 \u1f99=\u1f29\u0399/\u1f99 \u1f9a=\u1f2a\u0399/\u1f9a \u1f9b=\u1f2b\u0399/\u1f9b" +
	" \u1f9c=\u1f2c\u0399/\u1f9c \u1f9d=\u1f2d\u0399/\u1f9d \u1f9e=\u1f2e\u0399/\u1f9e \u1f9f=\u1f2f\u0399/\u1f9f" +
	" \u1fa0=\u1f68\u0399/\u1fa8 \u1fa1=\u1f69\u0399/\u1fa9 \u1fa2=\u1f6a\u0399/\u1faa \u1fa3=\u1f6b\u0399/\u1fab" +
	" \u1fa4=\u1f6c\u0399/\u1fac \u1fa5=\u1f6d\u0399/\u1fad \u1fa6=\u1f6e\u0399/\u1fae \u1fa7=\u1f6f\u0399/\u1faf" +
	" \u1fa8=\u1f68\u0399/\u1fa8 \u1fa9=\u1f69\u0399/\u1fa9 \u1faa=\u1f6a\u0399/\u1faa \u1fab=\u1f6b\u0399/\u1fab" +
	" \u1fac=\u1f6c\u0399/\u1fac \u1fad=\u1f6d\u0399/\u1fad \u1fae=\u1f6e\u0399/\u1fae \u1faf=\u1f6f\u0399/\u1faf" +
	" \u1fb2=\u1fba\u0399/\u1fba\u0345 \u1fb3=\u0391\u0399/\u1fbc \u1fb4=\u0386\u0399/\u0386\u0345 \u1fb6=\u0391\u0342" +
	" \u1fb7=\u0391\u0342\u0399/\u0391\u0342\u0345 \u1fbc=\u0391\u0399/\u1fbc \u1fc2=\u1fca\u0399/\u1fca\u0345" +
	" \u1fc3=\u0397\u0399/\u1fcc \u1fc4=\u0389\u0399/\u0389\u0345 \u1fc6=\u0397\u0342" +
	" \u1fc7=\u0397\u0342\u0399/\u0397\u0342\u0345 \u1fcc=\u0397\u0399/\u1fcc \u1fd2=\u0399\u0308\u0300" +
	" \u1fd3=\u0399\u0308\u0301 \u1fd6=\u0399\u0342 \u1fd7=\u0399\u0308\u0342 \u1fe2=\u03a5\u0308\u0300" +
	" \u1fe3=\u03a5\u0308\u0301 \u1fe4=\u03a1\u0313 \u1fe6=\u03a5\u0342 \u1fe7=\u03a5\u0308\u0342" +
	" \u1ff2=\u1ffa\u0399/\u1ffa\u0345 \u1ff3=\u03a9\u0399/\u1ffc \u1ff4=\u038f\u0399/\u038f\u0345 \u1ff6=\u03a9\u0342" +
	" \u1ff7=\u03a9\u0342\u0399/\u03a9\u0342\u0345 \u1ffc=\u03a9\u0399/\u1ffc \ufb00=FF/Ff \ufb01=FI/Fi \ufb02=FL/Fl" +
	" \ufb03=FFI/Ffi \ufb04=FFL/Ffl \ufb05=ST/St \ufb06=ST/St \ufb13=\u0544\u0546/\u0544\u0576" +
	" \ufb14=\u0544\u0535/\u0544\u0565 \ufb15=\u0544\u053b/\u0544\u056b \ufb16=\u054e\u0546/\u054e\u0576" +
	" \ufb17=\u0544\u053d/\u0544\u056d"

var upperOf, titleOf = func() (map[rune]string, map[rune]string) {
	up, title := map[rune]string{}, map[rune]string{}
	for _, entry := range strings.Fields(specialUpper) {
		from, to, _ := strings.Cut(entry, "=")
		u, t, ok := strings.Cut(to, "/")
		if !ok {
			t = u
		}
		c, _ := utf8.DecodeRuneInString(from)
		up[c], title[c] = u, t
	}
	return up, title
}()

func upper(s string) string {
	var b strings.Builder
	for _, c := range s {
		if u, ok := upperOf[c]; ok && c > 0x7f {
			b.WriteString(u)
		} else {
			b.WriteRune(unicode.ToUpper(c))
		}
	}
	return b.String()
}

func titleRune(c rune) string {
	if t, ok := titleOf[c]; ok {
		return t
	}
	return string(unicode.ToTitle(c))
}

func isCased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) || unicode.Is(unicode.Other_Lowercase, c) ||
		unicode.Is(unicode.Other_Uppercase, c)
}

// lower is str.lower: Σ at the end of a word becomes ς.
func lower(s string) string {
	var b strings.Builder
	for i, c := range s {
		switch c {
		case 'İ':
			b.WriteString("i̇")
		case 'Σ':
			if finalSigma(s, i) {
				b.WriteRune('ς')
			} else {
				b.WriteRune('σ')
			}
		default:
			b.WriteRune(unicode.ToLower(c))
		}
	}
	return b.String()
}

// finalSigma: a cased letter before i and none after it, marks and such apart (Unicode, 3.13). It looks at no more than 64 code
// points on either side.
func finalSigma(s string, i int) bool {
	ignorable := func(c rune) bool {
		switch c {
		case '\'', '.', ':', '^', '`', '·', '’':
			return true
		}
		return c > 0x7f && unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
	}
	cased := func(rest string, step func(string) (rune, int), cut func(string, int) string) bool {
		for range 64 {
			c, n := step(rest)
			if n == 0 || !ignorable(c) {
				return n > 0 && isCased(c)
			}
			rest = cut(rest, n)
		}
		return false
	}
	return cased(s[:i], utf8.DecodeLastRuneInString, func(s string, n int) string { return s[:len(s)-n] }) &&
		!cased(s[i+len("Σ"):], utf8.DecodeRuneInString, func(s string, n int) string { return s[n:] })
}

func capitalize(s string) string {
	if s == "" {
		return s
	}
	n := runeLen(s)
	c, _ := utf8.DecodeRuneInString(s)
	return titleRune(c) + lower(s)[len(lower(s[:n])):]
}

// title is str.title: the first cased letter of each run of cased letters in title case, the others lower.
func title(s string) string {
	var b strings.Builder
	low := lower(s)
	inWord := false
	for i, c := range s {
		n := len(lower(s[i : i+runeLen(s[i:])]))
		if inWord {
			b.WriteString(low[:n])
		} else {
			b.WriteString(titleRune(c))
		}
		low = low[n:]
		inWord = isCased(c)
	}
	return b.String()
}

func swapcase(s string) string {
	var b strings.Builder
	low := lower(s)
	for i, c := range s {
		n := len(lower(s[i : i+runeLen(s[i:])]))
		if unicode.IsUpper(c) {
			b.WriteString(low[:n])
		} else {
			b.WriteString(upper(s[i : i+runeLen(s[i:])]))
		}
		low = low[n:]
	}
	return b.String()
}

// all reports whether s is not empty and ok for each code point.
func all(s string, ok func(c rune) bool) bool {
	for _, c := range s {
		if !ok(c) {
			return false
		}
	}
	return s != ""
}

// isCase is islower (up false) or isupper: a cased letter, and none of the other case.
func isCase(s string, up bool) bool {
	found := false
	for _, c := range s {
		lo := unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c)
		hi := unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c)
		if unicode.IsTitle(c) || up && lo || !up && hi {
			return false
		}
		found = found || lo || hi
	}
	return found
}

func isTitle(s string) bool {
	found, inWord := false, false
	for _, c := range s {
		up := unicode.IsUpper(c) || unicode.IsTitle(c)
		if up && inWord || !up && isCased(c) && !inWord {
			return false
		}
		inWord = isCased(c)
		found = found || inWord
	}
	return found
}

func isIdentifier(s string) bool {
	for i, c := range s {
		if c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c) && !unicode.IsMark(c)) {
			return false
		}
	}
	return s != ""
}

func isLineEnd(c rune) bool {
	return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

// splitLines is str.splitlines.
func splitLines(s string, keepEnds bool) (lines []string) {
	for s != "" {
		i := strings.IndexFunc(s, isLineEnd)
		if i < 0 {
			return append(lines, s)
		}
		end := i + runeLen(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			end++
		}
		if keepEnds {
			i = end
		}
		lines = append(lines, s[:i])
		s = s[end:]
	}
	return lines
}

// splitSpace is str.split() without a separator; n < 0 for no limit.
func splitSpace(s string, n int) (parts []string) {
	for {
		s = strings.TrimLeftFunc(s, isSpace)
		if s == "" {
			return parts
		}
		i := strings.IndexFunc(s, isSpace)
		if i < 0 || n == 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:i])
		s = s[i:]
		n--
	}
}

// rsplitSpace is str.rsplit() without a separator.
func rsplitSpace(s string, n int) (parts []string) {
	for {
		s = strings.TrimRightFunc(s, isSpace)
		if s == "" {
			break
		}
		i := strings.LastIndexFunc(s, isSpace)
		if i < 0 || n == 0 {
			parts = append(parts, s)
			break
		}
		at := i + runeLen(s[i:])
		parts = append(parts, s[at:])
		s = s[:at]
		n--
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return parts
}

// rsplit is str.rsplit with a separator.
func rsplit(s, sep string, n int) (parts []string) {
	if n < 0 {
		return strings.Split(s, sep)
	}
	end := len(s)
	for ; n > 0; n-- {
		i := strings.LastIndex(s[:end], sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):end])
		end = i
	}
	parts = append(parts, s[:end])
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return parts
}

// replace is s.replace(old, new, n), charged before it is done.
func (r *state) replace(s, old, new string, n int) string {
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

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", "\"", "&#34;")

// escape is s with the five special characters of HTML escaped.
func (r *state) escape(s string) string {
	r.chargeN(len(s), 5)
	return htmlEscaper.Replace(s)
}
