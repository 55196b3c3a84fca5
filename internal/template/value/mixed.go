package value

import (
	"math/big"
	"slices"
	"strings"
)

// Texts of messages are not the template's: what looks like a control token in them is text, whatever the template
// does with it. So the values of a rendering know which of their bytes the template wrote. A plain string is the
// template's own. A text with anything from outside in it is a *Mixed, which lists the stretches that are the
// template's.
//
// Operations that move text keep the list: joining, cutting, trimming, replacing, capturing, inserting. All others
// need not know of it. They get at the bytes by Run.Text, which counts; what comes of an operation that read such
// bytes is from outside as a whole (builtin.Func.Invoke, Run.TextOf). An operation that forgets costs a token, it
// does not forge one.
//
// What a template does by deciding is its own: a literal that is written because of what a message says stays a
// literal.

// Untrusted is a text in Vars that is not the template's own.
type Untrusted string

// Part is a stretch of a rendered text. Own: the template, or a variable that is not Untrusted, wrote it.
type Part struct {
	Text string
	Own  bool
}

// Mixed is a text with something from outside in it.
type Mixed struct {
	S      string
	Own    []stretch // of s, what the template wrote: ascending, with something between each two
	Markup bool
}

// stretch is s[lo:hi] of a text, in bytes.
type stretch struct{ lo, hi int }

// Text is the text of a string, Markup or Mixed value. Reading one from outside is counted.
func (r *Run) Text(v Value) (string, bool) {
	if m, ok := v.(*Mixed); ok {
		r.Touched++
		return m.S, true
	}
	return PlainText(v)
}

// PlainText is text for where nothing is made of it.
func PlainText(v Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Markup:
		return string(v), true
	case *Mixed:
		return v.S, true
	}
	return "", false
}

// IsMarkup reports whether v is text marked as HTML.
func IsMarkup(v Value) bool {
	switch v := v.(type) {
	case Markup:
		return true
	case *Mixed:
		return v.Markup
	}
	return false
}

// LikeText is s as a value of the type of like: Markup stays Markup, what was made of a text from outside is from
// outside.
func LikeText(like Value, s string) Value {
	switch like := like.(type) {
	case Markup:
		return Markup(s)
	case *Mixed:
		return &Mixed{S: s, Markup: like.Markup}
	}
	return s
}

// Foreign is v as something from outside. Numbers cannot carry it: once one was made of such a text, no number's text
// is the template's own.
func (r *Run) Foreign(v Value) Value {
	switch v := v.(type) {
	case string:
		return &Mixed{S: v}
	case Markup:
		return &Mixed{S: string(v), Markup: true}
	case int, float64, *big.Int:
		r.digits = true
	}
	return v
}

// ReadNumber comes before a number becomes text.
func (r *Run) ReadNumber() {
	if r.digits {
		r.Touched++
	}
}

// ForeignAll is foreign for all that v holds; v is fresh.
func (r *Run) ForeignAll(v Value) Value {
	switch v := v.(type) {
	case *List:
		for i, item := range v.Items {
			v.Items[i] = r.ForeignAll(item)
		}
	case *Dict:
		for i := range v.Keys {
			v.Keys[i], v.Vals[i] = r.Foreign(v.Keys[i]), r.ForeignAll(v.Vals[i])
		}
	}
	return r.Foreign(v)
}

// TextOf is str(v) as a value that knows where it is from.
func (r *Run) TextOf(v Value) Value {
	if _, ok := PlainText(v); ok {
		return v
	}
	n := r.Touched
	s := r.Str(v)
	if r.Touched != n {
		return &Mixed{S: s}
	}
	return s
}

// CutText is v[lo:hi], in bytes.
func CutText(v Value, lo, hi int) Value {
	s, _ := PlainText(v)
	m, ok := v.(*Mixed)
	if !ok {
		return LikeText(v, s[lo:hi])
	}
	out := &Mixed{S: s[lo:hi], Markup: m.Markup}
	i, _ := slices.BinarySearchFunc(m.Own, lo, func(o stretch, lo int) int {
		if o.hi <= lo {
			return -1
		}
		return 1
	})
	for ; i < len(m.Own) && m.Own[i].lo < hi; i++ {
		out.Own = append(out.Own, stretch{max(m.Own[i].lo, lo) - lo, min(m.Own[i].hi, hi) - lo})
	}
	return out.simple()
}

// plain is the text as if it were the template's own.
func (m *Mixed) plain() Value {
	if m.Markup {
		return Markup(m.S)
	}
	return m.S
}

// simple is a plain text if nothing of m is from outside.
func (m *Mixed) simple() Value {
	if len(m.S) > 0 && !(len(m.Own) == 1 && m.Own[0] == stretch{0, len(m.S)}) {
		return m
	}
	return m.plain()
}

// Blend joins texts, and knows which stretches of the result are whose.
type Blend struct {
	B   strings.Builder
	own []stretch
}

// addOwn adds a text of the template's.
func (x *Blend) addOwn(s string) {
	x.own = appendStretch(x.own, x.B.Len(), x.B.Len()+len(s))
	x.B.WriteString(s)
}

// Add adds a text, whoever's it is.
func (x *Blend) Add(v Value) {
	s, _ := PlainText(v)
	m, ok := v.(*Mixed)
	if !ok {
		x.addOwn(s)
		return
	}
	for _, o := range m.Own {
		x.own = appendStretch(x.own, x.B.Len()+o.lo, x.B.Len()+o.hi)
	}
	x.B.WriteString(s)
}

// Len is the length of the text so far, in bytes.
func (x *Blend) Len() int { return x.B.Len() }

// Value is the text so far.
func (x *Blend) Value(markup bool) Value {
	return (&Mixed{S: x.B.String(), Own: x.own, Markup: markup}).simple()
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

// Parts is the text so far, cut into the stretches of own and what lies between.
func (x *Blend) Parts() []Part {
	var out []Part
	s, at := x.B.String(), 0
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

// ReplaceText is v.replace(old, to, n): what stays and what is put in keep their owners.
func (r *Run) ReplaceText(v Value, old string, to Value, n int) Value {
	s, _ := PlainText(v)
	with, _ := PlainText(to)
	out := r.replace(s, old, with, n)
	_, fromOutside := v.(*Mixed)
	if _, ok := to.(*Mixed); !ok && !fromOutside {
		return LikeText(v, out)
	}
	if old == "" { // between all characters: nobody needs to know whose they are
		return &Mixed{S: out, Markup: IsMarkup(v)}
	}
	r.Charge(len(out))
	var x Blend
	at := 0
	for ; n != 0; n-- {
		i := strings.Index(s[at:], old)
		if i < 0 {
			break
		}
		x.Add(CutText(v, at, at+i))
		x.Add(to)
		at += i + len(old)
	}
	x.Add(CutText(v, at, len(s)))
	return x.Value(IsMarkup(v))
}
