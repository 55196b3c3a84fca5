package builtin

import (
	"strings"
	"unicode"

	"ck/internal/template/pystr"
	"ck/internal/template/value"
)

// strMethods defines the methods of strings. Those that give strings give Markup for Markup.
func strMethods(t map[string]*Func) {
	caseMethods(t)
	isMethods(t)
	cutMethods(t)
	splitMethods(t)
	findMethods(t)
	padMethods(t)
	define(t, "join / iterable", strJoin)
	define(t, "replace old new count?", func(r *Env, v value.Value, a []value.Value) value.Value {
		to := a[1]
		if t := r.StrArg(to); value.IsMarkup(v) && !value.IsMarkup(to) {
			to = value.LikeText(to, r.Escape(t))
		}
		return r.ReplaceText(v, r.StrArg(a[0]), to, r.IntArg(opt(a[2], -1)))
	})
	DefineRaw(t, "format", func(r *Env, v value.Value, a Args) value.Value {
		s, _ := value.PlainText(v)
		return r.format(v, s, a)
	})
	define(t, "format_map / mapping", func(r *Env, v value.Value, a []value.Value) value.Value {
		s, _ := r.Text(v)
		d, ok := a[0].(*value.Dict)
		if !ok {
			r.TypeError("format_map() needs a mapping, not %s", value.TypeName(a[0]))
		}
		all := Args{}
		for i, k := range d.Keys {
			if name, ok := value.PlainText(k); ok {
				r.Charge(2 * value.CostItem)
				all.Names, all.Kw = append(all.Names, name), append(all.Kw, d.Vals[i])
			}
		}
		return r.format(v, s, all)
	})
}

// caseMethods are those that change the case of letters.
func caseMethods(t map[string]*Func) {
	// mapped: a text from a text of at most grow times its length.
	mapped := func(name string, grow int, f func(string) string) {
		define(t, name+" /", func(r *Env, v value.Value, _ []value.Value) value.Value {
			s, _ := r.Text(v)
			r.ChargeN(len(s), grow)
			r.Step(len(s) >> 4)
			return value.LikeText(v, f(s))
		})
	}
	mapped("upper", 3, pystr.Upper)
	mapped("lower", 3, pystr.Lower)
	mapped("casefold", 3, func(s string) string { return pystr.Lower(pystr.Upper(s)) })
	mapped("title", 6, pystr.Title)
	mapped("capitalize", 3, pystr.Capitalize)
	mapped("swapcase", 6, pystr.Swapcase)
}

// isMethods are those that ask what a text consists of.
func isMethods(t map[string]*Func) {
	is := func(name string, f func(s string) bool) {
		define(t, name+" /", func(r *Env, v value.Value, _ []value.Value) value.Value {
			s, _ := r.Text(v)
			r.Scan(len(s))
			return f(s)
		})
	}
	each := func(f func(rune) bool) func(string) bool { return func(s string) bool { return pystr.All(s, f) } }
	isDecimal := func(c rune) bool { return unicode.Is(unicode.Nd, c) }
	isDigit := func(c rune) bool {
		return isDecimal(c) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", c)
	}
	is("isalpha", each(unicode.IsLetter))
	is("isalnum", each(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }))
	is("isdecimal", each(isDecimal))
	is("isdigit", each(isDigit))
	is("isnumeric", each(unicode.IsNumber))
	is("isspace", each(pystr.IsSpace))
	is("isascii", func(s string) bool { return s == "" || pystr.All(s, func(c rune) bool { return c < 0x80 }) })
	is("isprintable", func(s string) bool { return s == "" || pystr.All(s, unicode.IsPrint) })
	is("isidentifier", pystr.IsIdentifier)
	is("islower", func(s string) bool { return pystr.IsCase(s, false) })
	is("isupper", func(s string) bool { return pystr.IsCase(s, true) })
	is("istitle", pystr.IsTitle)
}

// cutMethods are those that take something off the ends.
func cutMethods(t map[string]*Func) {
	for name, side := range map[string][2]bool{"strip": {true, true}, "lstrip": {true, false}, "rstrip": {false, true}} {
		define(t, name+" / chars?", func(r *Env, v value.Value, a []value.Value) value.Value {
			return r.strip(v, opt(a[0], nil), side[0], side[1])
		})
	}
	define(t, "removeprefix / prefix", func(r *Env, v value.Value, a []value.Value) value.Value {
		s, _ := value.PlainText(v)
		return value.CutText(v, len(s)-len(strings.TrimPrefix(s, r.StrArg(a[0]))), len(s))
	})
	define(t, "removesuffix / suffix", func(r *Env, v value.Value, a []value.Value) value.Value {
		s, _ := value.PlainText(v)
		return value.CutText(v, 0, len(strings.TrimSuffix(s, r.StrArg(a[0]))))
	})
}

// splitMethods are those that cut a text into a list.
func splitMethods(t map[string]*Func) {
	for _, name := range []string{"split", "rsplit"} {
		define(t, name+" sep? maxsplit?", func(r *Env, v value.Value, a []value.Value) value.Value {
			sep := opt(a[0], nil)
			by, _ := value.PlainText(sep)
			s, _ := value.PlainText(v)
			return r.textList(v, r.split(s, sep, r.IntArg(opt(a[1], -1)), name == "rsplit"), len(by))
		})
	}
	define(t, "splitlines keepends?", func(r *Env, v value.Value, a []value.Value) value.Value {
		s, _ := r.Text(v)
		r.Scan(len(s))
		n := strings.IndexFunc(s, pystr.IsLineEnd)
		if n < 0 {
			n = 0
		} else {
			for _, c := range s {
				n += value.BoolInt(pystr.IsLineEnd(c))
			}
		}
		r.ChargeN(n, 16)
		return r.textList(v, pystr.SplitLines(s, r.Truth(opt(a[0], false))), 0)
	})
	for _, name := range []string{"partition", "rpartition"} {
		define(t, name+" / sep", func(r *Env, v value.Value, a []value.Value) value.Value {
			s, _ := r.Text(v)
			sep := r.StrArg(a[0])
			if sep == "" {
				r.Fail("ValueError", "empty separator")
			}
			r.Scan(len(s))
			i, parts := strings.Index(s, sep), []string{s, "", ""}
			if name == "rpartition" {
				i, parts = strings.LastIndex(s, sep), []string{"", "", s}
			}
			if i >= 0 {
				parts = []string{s[:i], sep, s[i+len(sep):]}
			}
			l := r.textList(v, parts, 0)
			l.Tuple = true
			return l
		})
	}
}

// findMethods are those that look for a text in another.
func findMethods(t map[string]*Func) {
	for _, name := range []string{"startswith", "endswith"} {
		define(t, name+" / prefix start? end?", func(r *Env, v value.Value, a []value.Value) value.Value {
			s, _ := r.Text(v)
			s, _, ok := r.textRange(s, a[1], a[2])
			has := strings.HasPrefix
			if name == "endswith" {
				has = strings.HasSuffix
			}
			tries := []value.Value{a[0]}
			if l, ok := a[0].(*value.List); ok && l.Tuple {
				tries = l.Items
			}
			for _, p := range tries {
				part, isText := r.Text(p)
				if !isText {
					r.Need(p)
					r.TypeError("%s first arg must be str or a tuple of str, not %s", name, value.TypeName(p))
				}
				r.Scan(len(part))
				if ok && has(s, part) {
					return true
				}
			}
			return false
		})
	}
	for _, name := range []string{"find", "rfind", "index", "rindex", "count"} {
		define(t, name+" / sub start? end?", func(r *Env, v value.Value, a []value.Value) value.Value {
			s, _ := r.Text(v)
			sub := r.StrArg(a[0])
			s, from, ok := r.textRange(s, a[1], a[2])
			r.Scan(len(s))
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
				return from + pystr.RuneCount(s[:i])
			}
			if strings.HasSuffix(name, "index") {
				r.Fail("ValueError", "substring not found")
			}
			return -1
		})
	}
}

// padMethods are those that fill a text up to a width.
func padMethods(t map[string]*Func) {
	for _, name := range []string{"ljust", "rjust", "center"} {
		define(t, name+" / width fillchar?", func(r *Env, v value.Value, a []value.Value) value.Value {
			s, _ := r.Text(v)
			width, fill := r.IntArg(a[0]), r.StrArg(opt(a[1], " "))
			if pystr.RuneCount(fill) != 1 {
				r.TypeError("The fill character must be exactly one character long")
			}
			r.Scan(len(s))
			n := width - pystr.RuneCount(s)
			switch name {
			case "ljust":
				s = r.Join(s, r.Repeat(fill, n))
			case "rjust":
				s = r.Join(r.Repeat(fill, n), s)
			default:
				s = r.center(s, width, fill)
			}
			return value.LikeText(v, s)
		})
	}
	define(t, "zfill / width", func(r *Env, v value.Value, a []value.Value) value.Value {
		s, _ := r.Text(v)
		r.Scan(len(s))
		sign := ""
		zeros := r.Repeat("0", r.IntArg(a[0])-pystr.RuneCount(s))
		if s != "" && (s[0] == '-' || s[0] == '+') {
			sign, s = s[:1], s[1:]
		}
		return value.LikeText(v, r.Join(sign+zeros, s))
	})
	define(t, "expandtabs tabsize?", func(r *Env, v value.Value, a []value.Value) value.Value {
		s, _ := r.Text(v)
		size := r.IntArg(opt(a[0], 8))
		r.Charge(2 * len(s))
		var b strings.Builder
		column := 0
		for i, c := range s {
			switch {
			case c == '\t' && size > 0:
				n := size - column%size
				b.WriteString(r.Repeat(" ", n))
				r.Charge(n)
				column += n
			case c == '\t':
			default:
				column++
				if c == '\n' || c == '\r' {
					column = 0
				}
				b.WriteString(s[i : i+pystr.RuneLen(s[i:])])
			}
		}
		return value.LikeText(v, b.String())
	})
}

// strJoin is v.join(items).
func strJoin(r *Env, v value.Value, a []value.Value) value.Value {
	sep, _ := value.PlainText(v)
	markup := value.IsMarkup(v)
	var b value.Blend
	it := r.Iterate(a[0])
	for i := 0; ; i++ {
		x, ok := r.Next(it)
		if !ok {
			return b.Value(markup)
		}
		s, isText := value.PlainText(x)
		if !isText {
			r.TypeError("sequence item %d: expected str instance, %s found", i, value.TypeName(x))
		}
		if markup && !value.IsMarkup(x) {
			s = r.Escape(s)
			x = value.LikeText(x, s)
		}
		if i > 0 {
			r.Charge(2 * len(sep))
			b.Add(v)
		}
		r.Step(1)
		r.Charge(2 * len(s))
		b.Add(x)
	}
}

// center puts s in the middle of width code points, with the odd one as CPython does.
func (r *Env) center(s string, width int, fill string) string {
	r.Scan(len(s))
	n := width - pystr.RuneCount(s)
	if n <= 0 {
		return s
	}
	left := n/2 + n&width&1
	return r.Join(r.Join(r.Repeat(fill, left), s), r.Repeat(fill, n-left))
}

// strip removes white space, or any of the code points of chars, from the ends of a text.
func (r *Env) strip(v value.Value, chars value.Value, left, right bool) value.Value {
	s, _ := value.PlainText(v)
	r.Scan(len(s))
	f := pystr.IsSpace
	if chars != nil {
		set := r.StrArg(chars)
		r.Step(len(s) >> 7 * len(set) >> 4)
		f = func(c rune) bool { return strings.ContainsRune(set, c) }
		if len(set) > 64 {
			known := map[rune]bool{}
			r.ChargeN(len(set), 16)
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
	return value.CutText(v, lo, hi)
}

// split is str.split and str.rsplit.
func (r *Env) split(s string, sep value.Value, n int, fromRight bool) []string {
	r.Scan(len(s))
	if sep == nil {
		r.ChargeN(min(len(s)/2, uint31(n)), 16)
		if fromRight {
			return pystr.RsplitSpace(s, n)
		}
		return pystr.SplitSpace(s, n)
	}
	by := r.StrArg(sep)
	if by == "" {
		r.Fail("ValueError", "empty separator")
	}
	r.ChargeN(min(strings.Count(s, by), uint31(n)), 16)
	if fromRight {
		return pystr.Rsplit(s, by, n)
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

// textList is a list of the parts of v, in their order, between which there are sep bytes, or white space where sep
// is 0.
func (r *Env) textList(v value.Value, parts []string, sep int) *value.List {
	r.ChargeN(len(parts), value.CostItem)
	items := make([]value.Value, len(parts))
	s, _ := value.PlainText(v)
	_, fromOutside := v.(*value.Mixed)
	at := 0
	for i, p := range parts {
		if !fromOutside {
			items[i] = value.LikeText(v, p)
			continue
		}
		if sep == 0 { // what lies between cannot begin a part
			at += strings.Index(s[at:], p)
		}
		items[i] = value.CutText(v, at, at+len(p))
		at += len(p) + sep
	}
	r.Charge(value.CostObject)
	return &value.List{Items: items}
}

// textRange is s[start:end], where it starts in code points, and whether start lies within s at all.
func (r *Env) textRange(s string, start, end value.Value) (string, int, bool) {
	from, to := optNone(start, nil), optNone(end, nil)
	if from == nil && to == nil {
		return s, 0, true
	}
	r.Scan(len(s))
	n := pystr.RuneCount(s)
	if i, ok := from.(int); ok && i > n {
		return "", n, false
	}
	at, _, count := r.SliceRange(value.SliceKey{Start: from, Stop: to, Step: nil}, n)
	if count == 0 && from != nil {
		at = min(max(r.IntArg(from), 0), n)
	}
	b := pystr.Offset(s, at)
	return s[b : b+pystr.Offset(s[b:], count)], at, true
}
