package template

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode"
)

// textFilter adds a filter that maps a text to a text of at most grow times its length. Markup stays Markup.
func textFilter(name string, grow int, f func(string) string) {
	define(filterTable, name, func(r *state, v Value, _ []Value) Value {
		s := r.str(v)
		r.chargeN(len(s), grow)
		r.step(len(s) >> 4)
		return likeText(v, f(s))
	})
}

func init() {
	textFilter("upper", 3, upper)
	textFilter("lower", 3, lower)
	textFilter("capitalize", 3, capitalize)
	define(filterTable, "title", func(r *state, v Value, _ []Value) Value {
		s := r.str(v)
		r.chargeN(len(s), 6)
		r.step(len(s) >> 4)
		return titleWords(s)
	})
	define(filterTable, "trim chars?", func(r *state, v Value, a []Value) Value {
		return r.strip(r.textOf(v), optNone(a[0], nil), true, true)
	})
	define(filterTable, "string", func(r *state, v Value, _ []Value) Value { return r.textOf(v) })
	define(filterTable, "safe", func(r *state, v Value, _ []Value) Value {
		v = r.textOf(v)
		if m, ok := v.(*mixed); ok {
			return &mixed{s: m.s, own: m.own, markup: true}
		}
		return Markup(r.str(v))
	})
	define(filterTable, "escape|e", func(r *state, v Value, _ []Value) Value {
		if isMarkup(v) {
			return v
		}
		return Markup(r.escape(r.str(v)))
	})
	define(filterTable, "forceescape", func(r *state, v Value, _ []Value) Value { return Markup(r.escape(r.str(v))) })
	define(filterTable, "replace old new count?", func(r *state, v Value, a []Value) Value {
		n := r.intArg(optNone(a[2], -1))
		out := r.replaceText(r.textOf(v), r.str(a[0]), r.textOf(a[1]), n)
		if m, ok := out.(*mixed); ok {
			return &mixed{s: m.s, own: m.own}
		}
		return r.str(out)
	})
	define(filterTable, "indent width? first? blank?", filterIndent)
	define(filterTable, "center width?", func(r *state, v Value, a []Value) Value {
		return likeText(v, r.center(r.str(v), r.intArg(opt(a[0], 80)), " "))
	})
	define(filterTable, "truncate length? killwords? end? leeway?", filterTruncate)
	define(filterTable, "wordcount", func(r *state, v Value, _ []Value) Value {
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
	})
	define(filterTable, "striptags", func(r *state, v Value, _ []Value) Value { return r.stripTags(r.str(v)) })
	define(filterTable, "urlencode", filterURLEncode)
	defineRaw(filterTable, "format", func(r *state, v Value, a args) Value {
		s := r.str(v)
		if len(a.names) == 0 {
			return r.percent(v, s, r.tuple(a.pos))
		}
		if len(a.pos) > 0 {
			r.fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
		}
		return r.percent(v, s, r.makeDict(nil, a))
	})
	define(filterTable, "tojson ensure_ascii? indent? separators? sort_keys?", (*state).toJSON)
	define(filterTable, "from_json|fromjson", func(r *state, v Value, _ []Value) Value {
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
	})

	define(filterTable, "length|count", func(r *state, v Value, _ []Value) Value {
		n, ok := r.length(v)
		if !ok {
			r.typeError("object of type '%s' has no len()", typeName(v))
		}
		return n
	})
	define(filterTable, "default|d default_value? boolean?", func(r *state, v Value, a []Value) Value {
		if _, ok := v.(*Undefined); ok || r.truth(opt(a[1], false)) && !r.truth(v) {
			return opt(a[0], "")
		}
		return v
	})
	define(filterTable, "int default? base?", func(r *state, v Value, a []Value) Value {
		return r.toInt(v, opt(a[0], 0), r.intArg(opt(a[1], 10)))
	})
	define(filterTable, "float default?", func(r *state, v Value, a []Value) Value {
		r.use(v)
		if s, ok := r.text(v); ok {
			if f, ok := parseFloat(s); ok {
				return f
			}
		} else if isNumber(v) {
			return r.float(v)
		}
		return opt(a[0], 0.0)
	})
	define(filterTable, "abs", func(r *state, v Value, _ []Value) Value {
		n, ok := number(v)
		if !ok {
			r.typeError("bad operand type for abs(): '%s'", typeName(v))
		}
		if f, ok := n.(float64); ok {
			return math.Abs(f)
		}
		if compareNumbers(n, 0) < 0 {
			return r.arith("-", 0, n)
		}
		return n
	})
	define(filterTable, "round precision? method?", filterRound)
	define(filterTable, "filesizeformat binary?", filterFileSize)

	define(filterTable, "list", func(r *state, v Value, _ []Value) Value {
		if l, ok := v.(*List); ok {
			return &List{items: l.items}
		}
		items := r.items(v)
		r.charge(costObject)
		return &List{items: items}
	})
	define(filterTable, "items", func(r *state, v Value, _ []Value) Value {
		var src *iterator
		return r.generate("do_items", nil, func() (Value, bool) {
			if src == nil {
				d, ok := v.(*Dict)
				if _, undef := v.(*Undefined); undef {
					d = NewDict()
				} else if !ok {
					r.typeError("Can only get item pairs from a mapping.")
				}
				src = r.iterate(&view{d, "items"})
			}
			return src.next(r)
		})
	})
	define(filterTable, "first", func(r *state, v Value, _ []Value) Value {
		if x, ok := r.iterate(v).next(r); ok {
			return x
		}
		return r.undefined("No first item, sequence was empty.")
	})
	define(filterTable, "last", func(r *state, v Value, _ []Value) Value {
		l := r.reversed(v)
		if len(l) == 0 {
			return r.undefined("No last item, sequence was empty.")
		}
		return l[0]
	})
	define(filterTable, "reverse", func(r *state, v Value, _ []Value) Value {
		if s, ok := r.text(v); ok {
			return likeText(v, r.sliceText(s, sliceKey{step: -1}))
		}
		if g, ok := v.(*generator); ok {
			items := slices.Clone(r.items(g))
			slices.Reverse(items)
			return r.list(items)
		}
		if !isSequence(v) {
			r.fail("FilterArgumentError", "argument must be iterable")
		}
		r.charge(costObject)
		return &generator{"reversed", &iterator{items: r.reversed(v)}}
	})
	define(filterTable, "join d? attribute?", func(r *state, v Value, a []Value) Value {
		get := r.getter(optNone(a[1], nil), nil)
		sep := r.textOf(opt(a[0], ""))
		var b blend
		it := r.iterate(v)
		for i := 0; ; i++ {
			x, ok := it.next(r)
			if !ok {
				return b.value(false)
			}
			x = r.textOf(get(x))
			was := b.b.Len()
			if i > 0 {
				b.add(sep)
			}
			b.add(x)
			r.charge(2*(b.b.Len()-was) + 1)
		}
	})
	define(filterTable, "sum attribute? start?", func(r *state, v Value, a []Value) Value {
		get := r.getter(optNone(a[0], nil), nil)
		total := opt(a[1], 0)
		if _, ok := r.text(total); ok {
			r.typeError("sum() can't sum strings [use ''.join(seq) instead]")
		}
		for _, x := range r.items(v) {
			total = r.binary("+", total, get(x))
		}
		return total
	})
	define(filterTable, "min case_sensitive? attribute?", func(r *state, v Value, a []Value) Value { return r.extreme(v, a, "<") })
	define(filterTable, "max case_sensitive? attribute?", func(r *state, v Value, a []Value) Value { return r.extreme(v, a, ">") })
	define(filterTable, "sort reverse? case_sensitive? attribute?", func(r *state, v Value, a []Value) Value {
		items := slices.Clone(r.items(v))
		r.sort(items, r.sortKey(opt(a[2], nil), r.truth(opt(a[1], false))), r.truth(opt(a[0], false)))
		return r.list(items)
	})
	define(filterTable, "dictsort case_sensitive? by? reverse?", filterDictSort)
	define(filterTable, "unique case_sensitive? attribute?", filterUnique)
	define(filterTable, "groupby attribute default? case_sensitive?", filterGroupBy)
	define(filterTable, "batch linecount fill_with?", filterBatch)
	define(filterTable, "slice slices fill_with?", filterSlice)
	define(filterTable, "attr name", func(r *state, v Value, a []Value) Value {
		name := r.strArg(a[0])
		if x, ok := r.attribute(v, name); ok {
			return x
		}
		return r.noAttr(v, name)
	})
	defineRaw(filterTable, "map", filterMap)
	for _, name := range []string{"select", "reject", "selectattr", "rejectattr"} {
		defineRaw(filterTable, name, func(r *state, v Value, a args) Value {
			return r.choose(name, v, a, strings.HasPrefix(name, "select"), strings.HasSuffix(name, "attr"))
		})
	}
}

// titleWords is the filter title: the first code point of each word upper, the others lower; words end at white space and
// any of -({[<.
func titleWords(s string) string {
	var b strings.Builder
	isSep := func(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) }
	for s != "" {
		i := strings.IndexFunc(s, isSep)
		if i < 0 {
			i = len(s)
		}
		if i > 0 {
			n := runeLen(s)
			b.WriteString(upper(s[:n]))
			b.WriteString(lower(s[n:i]))
			s = s[i:]
		}
		j := strings.IndexFunc(s, func(c rune) bool { return !isSep(c) })
		if j < 0 {
			j = len(s)
		}
		b.WriteString(s[:j])
		s = s[j:]
	}
	return b.String()
}

func filterIndent(r *state, v Value, a []Value) Value {
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

func filterTruncate(r *state, v Value, a []Value) Value {
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
func (r *state) stripTags(s string) string {
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
	return htmlUnescaper.Replace(strings.Join(splitSpace(s, -1), " "))
}

func filterURLEncode(r *state, v Value, _ []Value) Value {
	quote := func(v Value, safe string) string {
		s := r.str(v)
		r.chargeN(len(s), 4)
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			switch c := s[i]; {
			case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', strings.IndexByte(safe, c) >= 0:
				b.WriteByte(c)
			case c == ' ' && safe == "_.-~":
				b.WriteByte('+')
			default:
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
		return b.String()
	}
	it, ok := r.tryIterate(v)
	if _, isText := r.text(v); isText || !ok {
		return quote(v, "_.-~/")
	}
	if d, ok := v.(*Dict); ok {
		it = r.iterate(&view{d, "items"})
	}
	var parts []string
	for {
		pair, ok := it.next(r)
		if !ok {
			return strings.Join(parts, "&")
		}
		kv := r.items(pair)
		if len(kv) != 2 {
			r.fail("ValueError", "urlencode needs pairs")
		}
		r.charge(costItem)
		parts = append(parts, quote(kv[0], "_.-~")+"="+quote(kv[1], "_.-~"))
	}
}

// toInt is the filter int.
func (r *state) toInt(v, def Value, base int) Value {
	r.use(v)
	if s, ok := r.text(v); ok {
		r.scan(len(s))
		if n, ok := parseInt(s, base); ok {
			return n
		}
		f, ok := parseFloat(s)
		if !ok {
			return def
		}
		v = f
	}
	switch n, _ := number(v); n := n.(type) {
	case int, *big.Int:
		return n
	case float64:
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return def
		}
		b, _ := big.NewFloat(n).Int(nil)
		return normBig(b)
	}
	return def
}

func filterRound(r *state, v Value, a []Value) Value {
	precision := r.intArg(opt(a[0], 0))
	method := r.str(opt(a[1], "common"))
	n, ok := number(v)
	r.use(v)
	if !ok {
		r.typeError("type %s doesn't define __round__ method", typeName(v))
	}
	switch method {
	case "ceil", "floor":
		scale := r.arith("**", 10, precision)
		f := r.float(r.arith("*", n, scale))
		if method == "ceil" {
			f = math.Ceil(f)
		} else {
			f = math.Floor(f)
		}
		if math.IsInf(f, 0) || math.IsNaN(f) {
			r.fail("OverflowError", "cannot convert float %s to integer", floatRepr(f))
		}
		return r.arith("/", r.toInt(f, 0, 10), scale)
	case "common":
		return r.round(n, precision)
	}
	r.fail("FilterArgumentError", "method must be common, ceil or floor")
	return nil
}

// round is round(n, precision) of Python: to even on a tie, exactly.
func (r *state) round(n Value, precision int) Value {
	f, isFloat := n.(float64)
	if isFloat && (math.IsNaN(f) || math.IsInf(f, 0) || precision > 330) || !isFloat && precision >= 0 {
		return n
	}
	if precision < -400 {
		if isFloat {
			return math.Copysign(0, f)
		}
		return 0
	}
	if isFloat && precision >= 0 {
		out, _ := parseFloat(formatFloat(f, 'f', precision))
		return out
	}
	// Units of 10**-precision: round the exact quotient.
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-precision)), nil)
	var x *big.Rat
	r.step(200)
	r.charge(maxIntBits / 8)
	if isFloat {
		x = new(big.Rat).SetFloat64(f)
	} else {
		x = new(big.Rat).SetInt(toBig(n))
	}
	x.Quo(x, new(big.Rat).SetInt(unit))
	twice := new(big.Int).Mul(x.Num(), big.NewInt(2))
	q := new(big.Int).Div(twice.Add(twice, x.Denom()), new(big.Int).Mul(x.Denom(), big.NewInt(2))) // floor(x + 1/2)
	half := new(big.Rat).Sub(new(big.Rat).SetInt(q), x)
	if half.Cmp(big.NewRat(1, 2)) == 0 && q.Bit(0) == 1 {
		q.Sub(q, big.NewInt(1))
	}
	q.Mul(q, unit)
	if isFloat {
		return math.Copysign(toFloat(normBig(q)), f)
	}
	return normBig(q)
}

func filterFileSize(r *state, v Value, a []Value) Value {
	r.useNumber()
	f, ok := 0.0, true
	if s, isText := r.text(v); isText {
		f, ok = parseFloat(s)
	} else {
		f = r.float(v)
	}
	if !ok {
		r.fail("ValueError", "could not convert string to float")
	}
	base, names := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if r.truth(opt(a[0], false)) {
		base, names = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	if f == 1 {
		return "1 Byte"
	}
	if f < base {
		return r.str(r.toInt(f, 0, 10)) + " Bytes"
	}
	for i, name := range names {
		unit := math.Pow(base, float64(i+2))
		if f < unit || i == len(names)-1 {
			return formatFloat(base*f/unit, 'f', 1) + " " + name
		}
	}
	return ""
}

// reversed is the items of v from the last to the first. Only sequences have them, not generators and sets.
func (r *state) reversed(v Value) []Value {
	if _, ok := v.(*generator); ok || !isSequence(v) {
		r.typeError("'%s' object is not reversible", typeName(v))
	}
	items := slices.Clone(r.items(v))
	r.chargeN(len(items), costItem)
	slices.Reverse(items)
	return items
}

func isSequence(v Value) bool {
	switch v.(type) {
	case string, Markup, *mixed, *List, *Dict, *view, *pyRange, *Undefined:
		return true
	}
	return false
}

// getter looks up a path of attributes ("a.b.0"), or is the identity for None. def replaces what is undefined, if it is not nil.
func (r *state) getter(attribute, def Value) func(Value) Value {
	if attribute == nil {
		return func(v Value) Value { return v }
	}
	parts := []Value{attribute}
	if s, ok := r.text(attribute); ok {
		parts = parts[:0]
		r.charge(len(s))
		r.chargeN(strings.Count(s, "."), 2*costItem)
		for _, p := range strings.Split(s, ".") {
			if n, ok := parseInt(p, 10); ok && all(p, unicode.IsDigit) {
				parts = append(parts, n)
			} else {
				parts = append(parts, p)
			}
		}
	}
	return func(v Value) Value {
		for _, p := range parts {
			r.step(1)
			v = r.item(v, p)
			if _, ok := v.(*Undefined); ok && def != nil {
				v = def
			}
		}
		return v
	}
}

// folded is v in lower case if it is a text and case does not matter.
func (r *state) folded(v Value, caseSensitive bool) Value {
	if s, ok := r.text(v); ok && !caseSensitive {
		r.charge(len(s))
		return lower(s)
	}
	return v
}

// sortKey is the key of the filter sort: one value, or a list of several for an attribute "a,b".
func (r *state) sortKey(attribute Value, caseSensitive bool) func(Value) Value {
	var gets []func(Value) Value
	if s, ok := r.text(attribute); ok {
		r.charge(len(s))
		r.chargeN(strings.Count(s, ","), 4*costItem)
		for _, p := range strings.Split(s, ",") {
			gets = append(gets, r.getter(p, nil))
		}
	} else {
		gets = append(gets, r.getter(attribute, nil))
	}
	return func(v Value) Value {
		keys := make([]Value, len(gets))
		for i, get := range gets {
			keys[i] = r.folded(get(v), caseSensitive)
		}
		return r.list(keys)
	}
}

// sort sorts in place, stably.
func (r *state) sort(items []Value, key func(Value) Value, reverse bool) {
	type entry struct{ key, v Value }
	r.chargeN(len(items), 2*costItem)
	entries := make([]entry, len(items))
	for i, v := range items {
		entries[i] = entry{key(v), v}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		c := r.compare(a.key, b.key, "<")
		if c == unordered {
			c = 0
		}
		if reverse {
			return -c
		}
		return c
	})
	for i, e := range entries {
		items[i] = e.v
	}
}

// extreme is the first item that comes before (op "<") or after all others.
func (r *state) extreme(v Value, a []Value, op string) Value {
	get := r.getter(optNone(a[1], nil), nil)
	key := func(v Value) Value { return r.folded(get(v), r.truth(opt(a[0], false))) }
	it := r.iterate(v)
	best, ok := it.next(r)
	if !ok {
		return r.undefined("No aggregated item, sequence was empty.")
	}
	bestKey := key(best)
	for {
		x, ok := it.next(r)
		if !ok {
			return best
		}
		if k := key(x); r.compareOp(op, k, bestKey) {
			best, bestKey = x, k
		}
	}
}

func filterDictSort(r *state, v Value, a []Value) Value {
	r.use(v)
	d, ok := v.(*Dict)
	if !ok {
		r.fail("AttributeError", "'%s' object has no attribute 'items'", typeName(v))
	}
	by := map[string]int{"key": 0, "value": 1}
	pos, ok := by[r.str(opt(a[1], "key"))]
	if !ok {
		r.fail("FilterArgumentError", "You can only sort by either \"key\" or \"value\"")
	}
	items := slices.Clone(r.items(&view{d, "items"}))
	r.sort(items, func(pair Value) Value {
		return r.folded(pair.(*List).items[pos], r.truth(opt(a[0], false)))
	}, r.truth(opt(a[2], false)))
	return r.list(items)
}

func filterUnique(r *state, v Value, a []Value) Value {
	get := r.getter(optNone(a[1], nil), nil)
	seen := NewDict()
	src := r.lazily(v)
	return r.generate("sync_do_unique", src, func() (Value, bool) {
		for {
			x, ok := src.next(r)
			if !ok {
				return nil, false
			}
			r.step(1)
			k := r.folded(get(x), r.truth(opt(a[0], false)))
			if h := r.hashable(k); seen.find(h) < 0 {
				r.put(seen, k, nil)
				return x, true
			}
		}
	})
}

func filterGroupBy(r *state, v Value, a []Value) Value {
	def := optNone(a[1], nil)
	get := r.getter(a[0], def)
	key := func(x Value) Value { return r.folded(get(x), r.truth(opt(a[2], false))) }
	items := slices.Clone(r.items(v))
	r.sort(items, key, false)
	var groups []Value
	for i := 0; i < len(items); {
		k := key(items[i])
		j := i + 1
		for j < len(items) && r.equal(key(items[j]), k) {
			j++
		}
		if !r.truth(opt(a[2], false)) {
			k = get(items[i])
		}
		g := r.pair(k, r.list(items[i:j:j]))
		g.group = true
		groups = append(groups, g)
		i = j
	}
	return r.list(groups)
}

func filterBatch(r *state, v Value, a []Value) Value {
	n, src := r.intArg(a[0]), r.lazily(v)
	var pending Value
	started, more := false, false
	return r.generate("do_batch", src, func() (Value, bool) {
		if !started {
			started = true
			pending, more = src.next(r)
		}
		if !more {
			return nil, false
		}
		var items []Value
		for more && (len(items) == 0 || len(items) != n) {
			items = append(items, pending)
			r.charge(costItem)
			pending, more = src.next(r)
		}
		if fill := optNone(a[1], nil); fill != nil && len(items) < n {
			r.chargeN(n-len(items), costItem)
			for len(items) < n {
				items = append(items, fill)
			}
		}
		return r.list(items), true
	})
}

func filterSlice(r *state, v Value, a []Value) Value {
	src, n := r.lazily(v), r.intArg(a[0])
	fill := optNone(a[1], nil)
	i, at := 0, 0
	var items []Value
	return r.generate("sync_do_slice", src, func() (Value, bool) {
		if i == 0 {
			items = r.items(&generator{"", src})
			if n == 0 {
				r.fail("ZeroDivisionError", "integer division or modulo by zero")
			}
		}
		if i >= n {
			return nil, false
		}
		size := len(items) / n
		if i < len(items)%n {
			size++
		}
		part := slices.Clone(items[at : at+size])
		if fill != nil && i >= len(items)%n {
			part = append(part, fill)
		}
		i, at = i+1, at+size
		return r.list(part), true
	})
}

// filterMap applies another filter to each item, or looks up an attribute of each.
func filterMap(r *state, v Value, a args) Value {
	if !r.truth(v) {
		return r.generate("sync_do_map", nil, func() (Value, bool) { return nil, false })
	}
	var f func(Value) Value
	if attribute, ok := a.take(r, "attribute"); ok && len(a.pos) == 0 {
		def, _ := a.take(r, "default")
		if len(a.names) > 0 {
			r.fail("FilterArgumentError", "Unexpected keyword argument '%s'", a.names[0])
		}
		f = r.getter(attribute, def)
	} else {
		if len(a.pos) == 0 {
			r.fail("FilterArgumentError", "map requires a filter argument")
		}
		name := r.strArg(a.pos[0])
		b := filterTable[name]
		if b == nil {
			r.fail("TemplateRuntimeError", "no filter named '%s'", name)
		}
		a.pos = a.pos[1:]
		f = func(x Value) Value { return b.invoke(r, x, a) }
	}
	src := r.lazily(v)
	return r.generate("sync_do_map", src, func() (Value, bool) {
		r.step(1)
		x, ok := src.next(r)
		if !ok {
			return nil, false
		}
		return f(x), true
	})
}

// choose is select, reject, selectattr and rejectattr.
func (r *state) choose(name string, v Value, a args, want, byAttr bool) Value {
	if !r.truth(v) {
		return r.generate("select_or_reject", nil, func() (Value, bool) { return nil, false })
	}
	get := func(x Value) Value { return x }
	if byAttr {
		if len(a.pos) == 0 {
			r.fail("FilterArgumentError", "Missing parameter for attribute name")
		}
		get = r.getter(a.pos[0], nil)
		a.pos = a.pos[1:]
	}
	test := r.truth
	if len(a.pos) > 0 {
		name := r.strArg(a.pos[0])
		b := testTable[name]
		if b == nil {
			r.fail("TemplateRuntimeError", "no test named '%s'", name)
		}
		a.pos = a.pos[1:]
		test = func(x Value) bool { return r.truth(b.invoke(r, x, a)) }
	}
	src := r.lazily(v)
	return r.generate("select_or_reject", src, func() (Value, bool) {
		for {
			r.step(1)
			x, ok := src.next(r)
			if !ok || test(get(x)) == want {
				return x, ok
			}
		}
	})
}
