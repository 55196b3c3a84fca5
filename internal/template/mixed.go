package template

import (
	"math/big"
	"slices"
	"strings"
)

// Texts of messages are not the template's: what looks like a control token in them is text, whatever the template does with it. So the
// values of a rendering know which of their bytes the template wrote. A plain string is the template's own. A text with anything from
// outside in it is a *mixed, which lists the stretches that are the template's.
//
// Operations that move text keep the list: joining, cutting, trimming, replacing, capturing, inserting. All others need not know of it.
// They get at the bytes by state.text, which counts; what comes of an operation that read such bytes is from outside as a whole
// (builtin.invoke, state.textOf). An operation that forgets costs a token, it does not forge one.
//
// What a template does by deciding is its own: a literal that is written because of what a message says stays a literal.

// Untrusted is a text in Vars that is not the template's own.
type Untrusted string

// Part is a stretch of a rendered text. Own: the template, or a variable that is not Untrusted, wrote it.
type Part struct {
	Text string
	Own  bool
}

// mixed is a text with something from outside in it.
type mixed struct {
	s      string
	own    []stretch // of s, what the template wrote: ascending, with something between each two
	markup bool
}

// stretch is s[lo:hi] of a text, in bytes.
type stretch struct{ lo, hi int }

// text is the text of a string, Markup or mixed value. Reading one from outside is counted.
func (r *run) text(v Value) (string, bool) {
	if m, ok := v.(*mixed); ok {
		r.touched++
		return m.s, true
	}
	return plainText(v)
}

// plainText is text for where nothing is made of it.
func plainText(v Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Markup:
		return string(v), true
	case *mixed:
		return v.s, true
	}
	return "", false
}

func isMarkup(v Value) bool {
	switch v := v.(type) {
	case Markup:
		return true
	case *mixed:
		return v.markup
	}
	return false
}

// likeText is s as a value of the type of like: Markup stays Markup, what was made of a text from outside is from outside.
func likeText(like Value, s string) Value {
	switch like := like.(type) {
	case Markup:
		return Markup(s)
	case *mixed:
		return &mixed{s: s, markup: like.markup}
	}
	return s
}

// foreign is v as something from outside. Numbers cannot carry it: once one was made of such a text, no number's text is the
// template's own.
func (r *run) foreign(v Value) Value {
	switch v := v.(type) {
	case string:
		return &mixed{s: v}
	case Markup:
		return &mixed{s: string(v), markup: true}
	case int, float64, *big.Int:
		r.digits = true
	}
	return v
}

// useNumber comes before a number becomes text.
func (r *run) useNumber() {
	if r.digits {
		r.touched++
	}
}

// foreignAll is foreign for all that v holds; v is fresh.
func (r *run) foreignAll(v Value) Value {
	switch v := v.(type) {
	case *List:
		for i, item := range v.items {
			v.items[i] = r.foreignAll(item)
		}
	case *Dict:
		for i := range v.keys {
			v.keys[i], v.vals[i] = r.foreign(v.keys[i]), r.foreignAll(v.vals[i])
		}
	}
	return r.foreign(v)
}

// textOf is str(v) as a value that knows where it is from.
func (r *run) textOf(v Value) Value {
	if _, ok := plainText(v); ok {
		return v
	}
	n := r.touched
	s := r.str(v)
	if r.touched != n {
		return &mixed{s: s}
	}
	return s
}

// cutText is v[lo:hi], in bytes.
func cutText(v Value, lo, hi int) Value {
	s, _ := plainText(v)
	m, ok := v.(*mixed)
	if !ok {
		return likeText(v, s[lo:hi])
	}
	out := &mixed{s: s[lo:hi], markup: m.markup}
	i, _ := slices.BinarySearchFunc(m.own, lo, func(o stretch, lo int) int {
		if o.hi <= lo {
			return -1
		}
		return 1
	})
	for ; i < len(m.own) && m.own[i].lo < hi; i++ {
		out.own = append(out.own, stretch{max(m.own[i].lo, lo) - lo, min(m.own[i].hi, hi) - lo})
	}
	return out.simple()
}

// plain is the text as if it were the template's own.
func (m *mixed) plain() Value {
	if m.markup {
		return Markup(m.s)
	}
	return m.s
}

// simple is a plain text if nothing of m is from outside.
func (m *mixed) simple() Value {
	if len(m.s) > 0 && !(len(m.own) == 1 && m.own[0] == stretch{0, len(m.s)}) {
		return m
	}
	return m.plain()
}

// blend joins texts, and knows which stretches of the result are whose.
type blend struct {
	b   strings.Builder
	own []stretch
}

// addOwn adds a text of the template's.
func (x *blend) addOwn(s string) {
	x.own = appendStretch(x.own, x.b.Len(), x.b.Len()+len(s))
	x.b.WriteString(s)
}

// add adds a text, whoever's it is.
func (x *blend) add(v Value) {
	s, _ := plainText(v)
	m, ok := v.(*mixed)
	if !ok {
		x.addOwn(s)
		return
	}
	for _, o := range m.own {
		x.own = appendStretch(x.own, x.b.Len()+o.lo, x.b.Len()+o.hi)
	}
	x.b.WriteString(s)
}

// len is the length of the text so far, in bytes.
func (x *blend) len() int { return x.b.Len() }

// value is the text so far.
func (x *blend) value(markup bool) Value {
	return (&mixed{s: x.b.String(), own: x.own, markup: markup}).simple()
}

func appendStretch(list []stretch, lo, hi int) []stretch {
	if n := len(list); n > 0 && list[n-1].hi == lo {
		list[n-1].hi = hi
		return list
	}
	if lo == hi {
		return list
	}
	return append(list, stretch{lo, hi})
}

// parts is the text so far, cut into the stretches of own and what lies between.
func (x *blend) parts() []Part {
	var out []Part
	s, at := x.b.String(), 0
	for _, o := range x.own {
		if o.lo > at {
			out = append(out, Part{s[at:o.lo], false})
		}
		out = append(out, Part{s[o.lo:o.hi], true})
		at = o.hi
	}
	if at < len(s) {
		out = append(out, Part{s[at:], false})
	}
	return out
}

// replaceText is v.replace(old, to, n): what stays and what is put in keep their owners.
func (r *run) replaceText(v Value, old string, to Value, n int) Value {
	s, _ := plainText(v)
	with, _ := plainText(to)
	out := r.replace(s, old, with, n)
	_, fromOutside := v.(*mixed)
	if _, ok := to.(*mixed); !ok && !fromOutside {
		return likeText(v, out)
	}
	if old == "" { // between all characters: nobody needs to know whose they are
		return &mixed{s: out, markup: isMarkup(v)}
	}
	r.charge(len(out))
	var x blend
	at := 0
	for ; n != 0; n-- {
		i := strings.Index(s[at:], old)
		if i < 0 {
			break
		}
		x.add(cutText(v, at, at+i))
		x.add(to)
		at += i + len(old)
	}
	x.add(cutText(v, at, len(s)))
	return x.value(isMarkup(v))
}
