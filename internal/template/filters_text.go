package template

import (
	"net/url"
	"strings"
	"unicode"
)

// textFilter adds a filter that maps a text to a text of at most grow times its length. Markup stays Markup.
func textFilter(name string, grow int, f func(string) string) {
	define(filterTable, name, func(r *env, v Value, _ []Value) Value {
		s := r.str(v)
		r.chargeN(len(s), grow)
		r.step(len(s) >> 4)
		return likeText(v, f(s))
	})
}

func textFilters() {
	textFilter("upper", 3, upper)
	textFilter("lower", 3, lower)
	textFilter("capitalize", 3, capitalize)
	define(filterTable, "title", filterTitle)
	define(filterTable, "trim chars?", func(r *env, v Value, a []Value) Value {
		return r.strip(r.textOf(v), optNone(a[0], nil), true, true)
	})
	define(filterTable, "string", func(r *env, v Value, _ []Value) Value { return r.textOf(v) })
	define(filterTable, "safe", filterSafe)
	define(filterTable, "escape|e", func(r *env, v Value, _ []Value) Value {
		if isMarkup(v) {
			return v
		}
		return Markup(r.escape(r.str(v)))
	})
	define(filterTable, "forceescape", func(r *env, v Value, _ []Value) Value { return Markup(r.escape(r.str(v))) })
	define(filterTable, "replace old new count?", filterReplace)
	define(filterTable, "indent width? first? blank?", filterIndent)
	define(filterTable, "center width?", func(r *env, v Value, a []Value) Value {
		return likeText(v, r.center(r.str(v), r.intArg(opt(a[0], 80)), " "))
	})
	define(filterTable, "truncate length? killwords? end? leeway?", filterTruncate)
	define(filterTable, "wordcount", filterWordCount)
	define(filterTable, "striptags", func(r *env, v Value, _ []Value) Value { return r.stripTags(r.str(v)) })
	define(filterTable, "urlencode", filterURLEncode)
	defineRaw(filterTable, "format", filterFormat)
	define(filterTable, "tojson ensure_ascii? indent? separators? sort_keys?", filterToJSON)
	define(filterTable, "from_json|fromjson", filterFromJSON)
}

// filterTitle is the filter title.
func filterTitle(r *env, v Value, _ []Value) Value {
	s := r.str(v)
	r.chargeN(len(s), 6)
	r.step(len(s) >> 4)
	return titleWords(s)
}

// filterReplace is the filter replace: the result is no Markup.
func filterReplace(r *env, v Value, a []Value) Value {
	n := r.intArg(optNone(a[2], -1))
	out := r.replaceText(r.textOf(v), r.str(a[0]), r.textOf(a[1]), n)
	if m, ok := out.(*mixed); ok {
		return &mixed{s: m.s, own: m.own}
	}
	return r.str(out)
}

// filterWordCount counts the runs of letters, digits and underscores.
func filterWordCount(r *env, v Value, _ []Value) Value {
	s := r.str(v)
	r.scan(len(s))
	words, inWord := 0, false
	for _, c := range s {
		was := inWord
		inWord = c == '_' || unicode.IsLetter(c) || unicode.IsNumber(c)
		if inWord && !was {
			words++
		}
	}
	return words
}

// filterFormat is value % arguments.
func filterFormat(r *env, v Value, a args) Value {
	s := r.str(v)
	if len(a.names) == 0 {
		return r.percent(v, s, r.tuple(a.pos))
	}
	if len(a.pos) > 0 {
		r.fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
	}
	return r.percent(v, s, r.makeDict(nil, a))
}

// filterFromJSON reads JSON.
func filterFromJSON(r *env, v Value, _ []Value) Value {
	s := r.strArg(v)
	r.chargeN(len(s), 48)
	x, err := FromJSON([]byte(s))
	if err != nil {
		r.fail("JSONDecodeError", "%v", err)
	}
	if _, ok := v.(*mixed); ok {
		return r.foreignAll(x)
	}
	return x
}

// filterSafe marks a text as HTML.
func filterSafe(r *env, v Value, _ []Value) Value {
	v = r.textOf(v)
	if m, ok := v.(*mixed); ok {
		return &mixed{s: m.s, own: m.own, markup: true}
	}
	return Markup(r.str(v))
}

// filterToJSON is json.dumps(v, ensure_ascii=False, indent=None, separators=None, sort_keys=False).
func filterToJSON(r *env, v Value, a []Value) Value {
	w := jsonStyle{item: ", ", key: ": "}
	w.ascii, w.sort = r.truth(opt(a[0], false)), r.truth(opt(a[3], false))
	if indent := optNone(a[1], nil); indent != nil {
		w.pretty, w.item = true, ","
		s, ok := r.text(indent)
		if !ok {
			s = r.repeat(" ", r.intArg(indent))
		}
		w.indent = s
	}
	if seps := optNone(a[2], nil); seps != nil {
		l := r.items(seps)
		if len(l) != 2 {
			r.fail("ValueError", "tojson: separators must be two strings")
		}
		w.item, w.key = r.strArg(l[0]), r.strArg(l[1])
	}
	return r.toJSON(v, w)
}

// filterIndent puts an indent before all lines but the first and empty ones.
func filterIndent(r *env, v Value, a []Value) Value {
	s := r.strArg(v)
	indent, ok := r.text(opt(a[0], 4))
	if !ok {
		indent = r.repeat(" ", r.intArg(opt(a[0], 4)))
	}
	if isMarkup(v) {
		indent = r.escape(indent)
	}
	blank := r.truth(opt(a[2], false))
	r.charge(len(s))
	lines := splitLines(s+"\n", false)
	r.chargeN(len(lines), len(indent)+costItem)
	r.charge(2 * len(s))
	var b strings.Builder
	if r.truth(opt(a[1], false)) {
		b.WriteString(indent)
	}
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\n")
			if blank || line != "" {
				b.WriteString(indent)
			}
		}
		b.WriteString(line)
	}
	return likeText(v, b.String())
}

// filterTruncate cuts a text to a length, at a space where it may.
func filterTruncate(r *env, v Value, a []Value) Value {
	end := r.strArg(opt(a[2], "..."))
	n, leeway := r.intArg(opt(a[0], 255)), r.intArg(optNone(a[3], 5))
	if n < runeCount(end) || leeway < 0 {
		r.fail("AssertionError", "truncate: length below that of the end, or negative leeway")
	}
	if count, ok := r.length(v); ok && (count <= n || count-n <= leeway) {
		return v
	}
	s := r.strArg(v)
	cut := s[:offset(s, n-runeCount(end))]
	if !r.truth(opt(a[1], false)) {
		if i := strings.LastIndexByte(cut, ' '); i >= 0 {
			cut = cut[:i]
		}
	}
	r.charge(len(cut) + len(end))
	return likeText(v, cut+end)
}

var htmlUnescaper = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", "\"", "&#34;", "\"", "&#39;", "'", "&nbsp;", "\u00a0", "&amp;", "&")

// stripTags removes comments and tags, makes white space single spaces and resolves the commonest entities.
func (r *env) stripTags(s string) string {
	r.chargeN(len(s), 4)
	cut := func(open, end string) {
		var b strings.Builder
		for {
			i := strings.Index(s, open)
			if i < 0 {
				break
			}
			j := strings.Index(s[i:], end)
			if j < 0 {
				break
			}
			b.WriteString(s[:i])
			s = s[i+j+len(end):]
		}
		s = b.String() + s
	}
	cut("<!--", "-->")
	cut("<", ">")
	return htmlUnescaper.Replace(strings.Join(strings.FieldsFunc(s, isSpace), " "))
}

// filterURLEncode quotes a text for the path of a URL, or pairs for its query.
func filterURLEncode(r *env, v Value, _ []Value) Value {
	quote := func(v Value) string {
		s := r.str(v)
		r.chargeN(len(s), 4)
		return url.QueryEscape(s)
	}
	it, ok := r.tryIterate(v)
	if _, isText := r.text(v); isText || !ok {
		return pathOfQuery.Replace(quote(v))
	}
	if d, ok := v.(*Dict); ok {
		it = r.iterate(&view{d, "items"})
	}
	var parts []string
	for {
		pair, ok := r.next(it)
		if !ok {
			return strings.Join(parts, "&")
		}
		kv := r.items(pair)
		if len(kv) != 2 {
			r.fail("ValueError", "urlencode needs pairs")
		}
		r.charge(costItem)
		parts = append(parts, quote(kv[0])+"="+quote(kv[1]))
	}
}

// pathOfQuery makes of a text quoted for a query one quoted for a path.
var pathOfQuery = strings.NewReplacer("+", "%20", "%2F", "/")
