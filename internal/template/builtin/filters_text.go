package builtin

import (
	"net/url"
	"strings"
	"unicode"

	"ck/internal/template/pystr"
	"ck/internal/template/value"
)

// textFilter adds a filter that maps a text to a text of at most grow times its length. Markup stays Markup.
func textFilter(name string, grow int, f func(string) string) {
	define(filterTable, name, func(r *Env, v value.Value, _ []value.Value) value.Value {
		s := r.Str(v)
		r.ChargeN(len(s), grow)
		r.Step(len(s) >> 4)
		return value.LikeText(v, f(s))
	})
}

func textFilters() {
	textFilter("upper", 3, pystr.Upper)
	textFilter("lower", 3, pystr.Lower)
	textFilter("capitalize", 3, pystr.Capitalize)
	define(filterTable, "title", filterTitle)
	define(filterTable, "trim chars?", func(r *Env, v value.Value, a []value.Value) value.Value {
		return r.strip(r.TextOf(v), optNone(a[0], nil), true, true)
	})
	define(filterTable, "string", func(r *Env, v value.Value, _ []value.Value) value.Value { return r.TextOf(v) })
	define(filterTable, "safe", filterSafe)
	define(filterTable, "escape|e", func(r *Env, v value.Value, _ []value.Value) value.Value {
		if value.IsMarkup(v) {
			return v
		}
		return value.Markup(r.Escape(r.Str(v)))
	})
	define(filterTable, "forceescape", func(r *Env, v value.Value, _ []value.Value) value.Value {
		return value.Markup(r.Escape(r.Str(v)))
	})
	define(filterTable, "replace old new count?", filterReplace)
	define(filterTable, "indent width? first? blank?", filterIndent)
	define(filterTable, "center width?", func(r *Env, v value.Value, a []value.Value) value.Value {
		return value.LikeText(v, r.center(r.Str(v), r.IntArg(opt(a[0], 80)), " "))
	})
	define(filterTable, "truncate length? killwords? end? leeway?", filterTruncate)
	define(filterTable, "wordcount", filterWordCount)
	define(filterTable, "striptags", func(r *Env, v value.Value, _ []value.Value) value.Value {
		return r.stripTags(r.Str(v))
	})
	define(filterTable, "urlencode", filterURLEncode)
	DefineRaw(filterTable, "format", filterFormat)
	define(filterTable, "tojson ensure_ascii? indent? separators? sort_keys?", filterToJSON)
	define(filterTable, "from_json|fromjson", filterFromJSON)
}

// filterTitle is the filter title.
func filterTitle(r *Env, v value.Value, _ []value.Value) value.Value {
	s := r.Str(v)
	r.ChargeN(len(s), 6)
	r.Step(len(s) >> 4)
	return pystr.TitleWords(s)
}

// filterReplace is the filter replace: the result is no Markup.
func filterReplace(r *Env, v value.Value, a []value.Value) value.Value {
	n := r.IntArg(optNone(a[2], -1))
	out := r.ReplaceText(r.TextOf(v), r.Str(a[0]), r.TextOf(a[1]), n)
	if m, ok := out.(*value.Mixed); ok {
		return &value.Mixed{S: m.S, Own: m.Own}
	}
	return r.Str(out)
}

// filterWordCount counts the runs of letters, digits and underscores.
func filterWordCount(r *Env, v value.Value, _ []value.Value) value.Value {
	s := r.Str(v)
	r.Scan(len(s))
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
func filterFormat(r *Env, v value.Value, a Args) value.Value {
	s := r.Str(v)
	if len(a.Names) == 0 {
		return r.Percent(v, s, r.Tuple(a.Pos))
	}
	if len(a.Pos) > 0 {
		r.Fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
	}
	return r.Percent(v, s, r.makeDict(nil, a))
}

// filterFromJSON reads JSON.
func filterFromJSON(r *Env, v value.Value, _ []value.Value) value.Value {
	s := r.StrArg(v)
	r.ChargeN(len(s), 48)
	x, err := value.FromJSON([]byte(s))
	if err != nil {
		r.Fail("JSONDecodeError", "%v", err)
	}
	if _, ok := v.(*value.Mixed); ok {
		return r.ForeignAll(x)
	}
	return x
}

// filterSafe marks a text as HTML.
func filterSafe(r *Env, v value.Value, _ []value.Value) value.Value {
	v = r.TextOf(v)
	if m, ok := v.(*value.Mixed); ok {
		return &value.Mixed{S: m.S, Own: m.Own, Markup: true}
	}
	return value.Markup(r.Str(v))
}

// filterToJSON is json.dumps(v, ensure_ascii=False, indent=None, separators=None, sort_keys=False).
func filterToJSON(r *Env, v value.Value, a []value.Value) value.Value {
	w := value.JsonStyle{Item: ", ", Key: ": "}
	w.Ascii, w.Sort = r.Truth(opt(a[0], false)), r.Truth(opt(a[3], false))
	if indent := optNone(a[1], nil); indent != nil {
		w.Pretty, w.Item = true, ","
		s, ok := r.Text(indent)
		if !ok {
			s = r.Repeat(" ", r.IntArg(indent))
		}
		w.Indent = s
	}
	if seps := optNone(a[2], nil); seps != nil {
		l := r.Items(seps)
		if len(l) != 2 {
			r.Fail("ValueError", "tojson: separators must be two strings")
		}
		w.Item, w.Key = r.StrArg(l[0]), r.StrArg(l[1])
	}
	return r.ToJSON(v, w)
}

// filterIndent puts an indent before all lines but the first and empty ones.
func filterIndent(r *Env, v value.Value, a []value.Value) value.Value {
	s := r.StrArg(v)
	indent, ok := r.Text(opt(a[0], 4))
	if !ok {
		indent = r.Repeat(" ", r.IntArg(opt(a[0], 4)))
	}
	if value.IsMarkup(v) {
		indent = r.Escape(indent)
	}
	blank := r.Truth(opt(a[2], false))
	r.Charge(len(s))
	lines := pystr.SplitLines(s+"\n", false)
	r.ChargeN(len(lines), len(indent)+value.CostItem)
	r.Charge(2 * len(s))
	var b strings.Builder
	if r.Truth(opt(a[1], false)) {
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
	return value.LikeText(v, b.String())
}

// filterTruncate cuts a text to a length, at a space where it may.
func filterTruncate(r *Env, v value.Value, a []value.Value) value.Value {
	end := r.StrArg(opt(a[2], "..."))
	n, leeway := r.IntArg(opt(a[0], 255)), r.IntArg(optNone(a[3], 5))
	if n < pystr.RuneCount(end) || leeway < 0 {
		r.Fail("AssertionError", "truncate: length below that of the end, or negative leeway")
	}
	if count, ok := r.Length(v); ok && (count <= n || count-n <= leeway) {
		return v
	}
	s := r.StrArg(v)
	cut := s[:pystr.Offset(s, n-pystr.RuneCount(end))]
	if !r.Truth(opt(a[1], false)) {
		if i := strings.LastIndexByte(cut, ' '); i >= 0 {
			cut = cut[:i]
		}
	}
	r.Charge(len(cut) + len(end))
	return value.LikeText(v, cut+end)
}

var htmlUnescaper = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", "\"", "&#34;", "\"",
	"&#39;", "'", "&nbsp;", "\u00a0", "&amp;", "&")

// stripTags removes comments and tags, makes white space single spaces and resolves the commonest entities.
func (r *Env) stripTags(s string) string {
	r.ChargeN(len(s), 4)
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
	return htmlUnescaper.Replace(strings.Join(strings.FieldsFunc(s, pystr.IsSpace), " "))
}

// filterURLEncode quotes a text for the path of a URL, or pairs for its query.
func filterURLEncode(r *Env, v value.Value, _ []value.Value) value.Value {
	quote := func(v value.Value) string {
		s := r.Str(v)
		r.ChargeN(len(s), 4)
		return url.QueryEscape(s)
	}
	it, ok := r.TryIterate(v)
	if _, isText := r.Text(v); isText || !ok {
		return pathOfQuery.Replace(quote(v))
	}
	if d, ok := v.(*value.Dict); ok {
		it = r.Iterate(&value.View{D: d, Kind: "items"})
	}
	var parts []string
	for {
		pair, ok := r.Next(it)
		if !ok {
			return strings.Join(parts, "&")
		}
		kv := r.Items(pair)
		if len(kv) != 2 {
			r.Fail("ValueError", "urlencode needs pairs")
		}
		r.Charge(value.CostItem)
		parts = append(parts, quote(kv[0])+"="+quote(kv[1]))
	}
}

// pathOfQuery makes of a text quoted for a query one quoted for a path.
var pathOfQuery = strings.NewReplacer("+", "%20", "%2F", "/")
