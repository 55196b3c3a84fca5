package template

import (
	"strings"
	"unicode"
)

// strMethods defines the methods of strings. Those that give strings give Markup for Markup.
func strMethods(t map[string]*builtin) {
	caseMethods(t)
	isMethods(t)
	cutMethods(t)
	splitMethods(t)
	findMethods(t)
	padMethods(t)
	define(t, "join / iterable", strJoin)
	define(t, "replace old new count?", func(r *env, v Value, a []Value) Value {
		to := a[1]
		if t := r.strArg(to); isMarkup(v) && !isMarkup(to) {
			to = likeText(to, r.escape(t))
		}
		return r.replaceText(v, r.strArg(a[0]), to, r.intArg(opt(a[2], -1)))
	})
	defineRaw(t, "format", func(r *env, v Value, a args) Value {
		s, _ := plainText(v)
		return r.format(v, s, a)
	})
	define(t, "format_map / mapping", func(r *env, v Value, a []Value) Value {
		s, _ := r.text(v)
		d, ok := a[0].(*Dict)
		if !ok {
			r.typeError("format_map() needs a mapping, not %s", typeName(a[0]))
		}
		all := args{}
		for i, k := range d.keys {
			if name, ok := plainText(k); ok {
				r.charge(2 * costItem)
				all.names, all.kw = append(all.names, name), append(all.kw, d.vals[i])
			}
		}
		return r.format(v, s, all)
	})
}

// caseMethods are those that change the case of letters.
func caseMethods(t map[string]*builtin) {
	// mapped: a text from a text of at most grow times its length.
	mapped := func(name string, grow int, f func(string) string) {
		define(t, name+" /", func(r *env, v Value, _ []Value) Value {
			s, _ := r.text(v)
			r.chargeN(len(s), grow)
			r.step(len(s) >> 4)
			return likeText(v, f(s))
		})
	}
	mapped("upper", 3, upper)
	mapped("lower", 3, lower)
	mapped("casefold", 3, func(s string) string { return lower(upper(s)) })
	mapped("title", 6, title)
	mapped("capitalize", 3, capitalize)
	mapped("swapcase", 6, swapcase)
}

// isMethods are those that ask what a text consists of.
func isMethods(t map[string]*builtin) {
	is := func(name string, f func(s string) bool) {
		define(t, name+" /", func(r *env, v Value, _ []Value) Value {
			s, _ := r.text(v)
			r.scan(len(s))
			return f(s)
		})
	}
	each := func(f func(rune) bool) func(string) bool { return func(s string) bool { return all(s, f) } }
	isDecimal := func(c rune) bool { return unicode.Is(unicode.Nd, c) }
	isDigit := func(c rune) bool {
		return isDecimal(c) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", c)
	}
	is("isalpha", each(unicode.IsLetter))
	is("isalnum", each(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }))
	is("isdecimal", each(isDecimal))
	is("isdigit", each(isDigit))
	is("isnumeric", each(unicode.IsNumber))
	is("isspace", each(isSpace))
	is("isascii", func(s string) bool { return s == "" || all(s, func(c rune) bool { return c < 0x80 }) })
	is("isprintable", func(s string) bool { return s == "" || all(s, unicode.IsPrint) })
	is("isidentifier", isIdentifier)
	is("islower", func(s string) bool { return isCase(s, false) })
	is("isupper", func(s string) bool { return isCase(s, true) })
	is("istitle", isTitle)
}

// cutMethods are those that take something off the ends.
func cutMethods(t map[string]*builtin) {
	for name, side := range map[string][2]bool{"strip": {true, true}, "lstrip": {true, false}, "rstrip": {false, true}} {
		define(t, name+" / chars?", func(r *env, v Value, a []Value) Value {
			return r.strip(v, opt(a[0], nil), side[0], side[1])
		})
	}
	define(t, "removeprefix / prefix", func(r *env, v Value, a []Value) Value {
		s, _ := plainText(v)
		return cutText(v, len(s)-len(strings.TrimPrefix(s, r.strArg(a[0]))), len(s))
	})
	define(t, "removesuffix / suffix", func(r *env, v Value, a []Value) Value {
		s, _ := plainText(v)
		return cutText(v, 0, len(strings.TrimSuffix(s, r.strArg(a[0]))))
	})
}

// splitMethods are those that cut a text into a list.
func splitMethods(t map[string]*builtin) {
	for _, name := range []string{"split", "rsplit"} {
		define(t, name+" sep? maxsplit?", func(r *env, v Value, a []Value) Value {
			sep := opt(a[0], nil)
			by, _ := plainText(sep)
			s, _ := plainText(v)
			return r.textList(v, r.split(s, sep, r.intArg(opt(a[1], -1)), name == "rsplit"), len(by))
		})
	}
	define(t, "splitlines keepends?", func(r *env, v Value, a []Value) Value {
		s, _ := r.text(v)
		r.scan(len(s))
		n := strings.IndexFunc(s, isLineEnd)
		if n < 0 {
			n = 0
		} else {
			for _, c := range s {
				n += boolInt(isLineEnd(c))
			}
		}
		r.chargeN(n, 16)
		return r.textList(v, splitLines(s, r.truth(opt(a[0], false))), 0)
	})
	for _, name := range []string{"partition", "rpartition"} {
		define(t, name+" / sep", func(r *env, v Value, a []Value) Value {
			s, _ := r.text(v)
			sep := r.strArg(a[0])
			if sep == "" {
				r.fail("ValueError", "empty separator")
			}
			r.scan(len(s))
			i, parts := strings.Index(s, sep), []string{s, "", ""}
			if name == "rpartition" {
				i, parts = strings.LastIndex(s, sep), []string{"", "", s}
			}
			if i >= 0 {
				parts = []string{s[:i], sep, s[i+len(sep):]}
			}
			l := r.textList(v, parts, 0)
			l.tuple = true
			return l
		})
	}
}

// findMethods are those that look for a text in another.
func findMethods(t map[string]*builtin) {
	for _, name := range []string{"startswith", "endswith"} {
		define(t, name+" / prefix start? end?", func(r *env, v Value, a []Value) Value {
			s, _ := r.text(v)
			s, _, ok := r.textRange(s, a[1], a[2])
			has := strings.HasPrefix
			if name == "endswith" {
				has = strings.HasSuffix
			}
			tries := []Value{a[0]}
			if l, ok := a[0].(*List); ok && l.tuple {
				tries = l.items
			}
			for _, p := range tries {
				part, isText := r.text(p)
				if !isText {
					r.use(p)
					r.typeError("%s first arg must be str or a tuple of str, not %s", name, typeName(p))
				}
				r.scan(len(part))
				if ok && has(s, part) {
					return true
				}
			}
			return false
		})
	}
	for _, name := range []string{"find", "rfind", "index", "rindex", "count"} {
		define(t, name+" / sub start? end?", func(r *env, v Value, a []Value) Value {
			s, _ := r.text(v)
			sub := r.strArg(a[0])
			s, from, ok := r.textRange(s, a[1], a[2])
			r.scan(len(s))
			if name == "count" {
				if !ok {
					return 0
				}
				return strings.Count(s, sub)
			}
			i := -1
			if ok && strings.HasPrefix(name, "r") {
				i = strings.LastIndex(s, sub)
			} else if ok {
				i = strings.Index(s, sub)
			}
			if i >= 0 {
				return from + runeCount(s[:i])
			}
			if strings.HasSuffix(name, "index") {
				r.fail("ValueError", "substring not found")
			}
			return -1
		})
	}
}

// padMethods are those that fill a text up to a width.
func padMethods(t map[string]*builtin) {
	for _, name := range []string{"ljust", "rjust", "center"} {
		define(t, name+" / width fillchar?", func(r *env, v Value, a []Value) Value {
			s, _ := r.text(v)
			width, fill := r.intArg(a[0]), r.strArg(opt(a[1], " "))
			if runeCount(fill) != 1 {
				r.typeError("The fill character must be exactly one character long")
			}
			r.scan(len(s))
			n := width - runeCount(s)
			switch name {
			case "ljust":
				s = r.join(s, r.repeat(fill, n))
			case "rjust":
				s = r.join(r.repeat(fill, n), s)
			default:
				s = r.center(s, width, fill)
			}
			return likeText(v, s)
		})
	}
	define(t, "zfill / width", func(r *env, v Value, a []Value) Value {
		s, _ := r.text(v)
		r.scan(len(s))
		sign := ""
		zeros := r.repeat("0", r.intArg(a[0])-runeCount(s))
		if s != "" && (s[0] == '-' || s[0] == '+') {
			sign, s = s[:1], s[1:]
		}
		return likeText(v, r.join(sign+zeros, s))
	})
	define(t, "expandtabs tabsize?", func(r *env, v Value, a []Value) Value {
		s, _ := r.text(v)
		size := r.intArg(opt(a[0], 8))
		r.charge(2 * len(s))
		var b strings.Builder
		column := 0
		for i, c := range s {
			switch {
			case c == '\t' && size > 0:
				n := size - column%size
				b.WriteString(r.repeat(" ", n))
				r.charge(n)
				column += n
			case c == '\t':
			default:
				column++
				if c == '\n' || c == '\r' {
					column = 0
				}
				b.WriteString(s[i : i+runeLen(s[i:])])
			}
		}
		return likeText(v, b.String())
	})
}

// strJoin is v.join(items).
func strJoin(r *env, v Value, a []Value) Value {
	sep, _ := plainText(v)
	markup := isMarkup(v)
	var b blend
	it := r.iterate(a[0])
	for i := 0; ; i++ {
		x, ok := r.next(it)
		if !ok {
			return b.value(markup)
		}
		s, isText := plainText(x)
		if !isText {
			r.typeError("sequence item %d: expected str instance, %s found", i, typeName(x))
		}
		if markup && !isMarkup(x) {
			s = r.escape(s)
			x = likeText(x, s)
		}
		if i > 0 {
			r.charge(2 * len(sep))
			b.add(v)
		}
		r.step(1)
		r.charge(2 * len(s))
		b.add(x)
	}
}

// center puts s in the middle of width code points, with the odd one as CPython does.
func (r *env) center(s string, width int, fill string) string {
	r.scan(len(s))
	n := width - runeCount(s)
	if n <= 0 {
		return s
	}
	left := n/2 + n&width&1
	return r.join(r.join(r.repeat(fill, left), s), r.repeat(fill, n-left))
}

// strip removes white space, or any of the code points of chars, from the ends of a text.
func (r *env) strip(v Value, chars Value, left, right bool) Value {
	s, _ := plainText(v)
	r.scan(len(s))
	f := isSpace
	if chars != nil {
		set := r.strArg(chars)
		r.step(len(s) >> 7 * len(set) >> 4)
		f = func(c rune) bool { return strings.ContainsRune(set, c) }
		if len(set) > 64 {
			known := map[rune]bool{}
			r.chargeN(len(set), 16)
			for _, c := range set {
				known[c] = true
			}
			f = func(c rune) bool { return known[c] }
		}
	}
	lo, hi := 0, len(s)
	if left {
		lo = hi - len(strings.TrimLeftFunc(s, f))
	}
	if right {
		hi = lo + len(strings.TrimRightFunc(s[lo:], f))
	}
	return cutText(v, lo, hi)
}

// split is str.split and str.rsplit.
func (r *env) split(s string, sep Value, n int, fromRight bool) []string {
	r.scan(len(s))
	if sep == nil {
		r.chargeN(min(len(s)/2, uint31(n)), 16)
		if fromRight {
			return rsplitSpace(s, n)
		}
		return splitSpace(s, n)
	}
	by := r.strArg(sep)
	if by == "" {
		r.fail("ValueError", "empty separator")
	}
	r.chargeN(min(strings.Count(s, by), uint31(n)), 16)
	if fromRight {
		return rsplit(s, by, n)
	}
	if n < 0 || n >= len(s) {
		n = -2
	}
	return strings.SplitN(s, by, n+1)
}

// uint31 is n, or a large number for a negative n, which stands for no limit.
func uint31(n int) int {
	if n < 0 {
		return 1<<31 - 1
	}
	return n
}

// textList is a list of the parts of v, in their order, between which there are sep bytes, or white space where sep is 0.
func (r *env) textList(v Value, parts []string, sep int) *List {
	r.chargeN(len(parts), costItem)
	items := make([]Value, len(parts))
	s, _ := plainText(v)
	_, fromOutside := v.(*mixed)
	at := 0
	for i, p := range parts {
		if !fromOutside {
			items[i] = likeText(v, p)
			continue
		}
		if sep == 0 { // what lies between cannot begin a part
			at += strings.Index(s[at:], p)
		}
		items[i] = cutText(v, at, at+len(p))
		at += len(p) + sep
	}
	r.charge(costObject)
	return &List{items: items}
}

// textRange is s[start:end], where it starts in code points, and whether start lies within s at all.
func (r *env) textRange(s string, start, end Value) (string, int, bool) {
	from, to := optNone(start, nil), optNone(end, nil)
	if from == nil && to == nil {
		return s, 0, true
	}
	r.scan(len(s))
	n := runeCount(s)
	if i, ok := from.(int); ok && i > n {
		return "", n, false
	}
	at, _, count := r.sliceRange(sliceKey{from, to, nil}, n)
	if count == 0 && from != nil {
		at = min(max(r.intArg(from), 0), n)
	}
	b := offset(s, at)
	return s[b : b+offset(s[b:], count)], at, true
}
