package template

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// builtin is a filter, test, method or global function. fn gets the value it is applied to (nil for functions) and one argument
// per parameter, absent where none was given; raw gets the arguments as they are.
type builtin struct {
	name     string
	params   []string
	required int
	posOnly  bool
	fn       func(r *state, v Value, a []Value) Value
	raw      func(r *state, v Value, a args) Value
}

type absentValue struct{}

var absent = absentValue{}

var (
	filterTable = map[string]*builtin{}
	testTable   = map[string]*builtin{}
	globalTable = map[string]*builtin{}
	methodTable = map[string]map[string]*builtin{} // by kind of value, see methodKind
)

// define adds builtins to a table. spec is a name (or several, separated by "|") and the parameters, optional ones with a "?"
// behind; "/" says that parameters have no names.
func define(table map[string]*builtin, spec string, fn func(r *state, v Value, a []Value) Value) {
	words := strings.Fields(spec)
	b := &builtin{fn: fn}
	for _, w := range words[1:] {
		name, optional := strings.CutSuffix(w, "?")
		if w == "/" {
			b.posOnly = true
			continue
		}
		if !optional {
			b.required++
		}
		b.params = append(b.params, name)
	}
	add(table, words[0], b)
}

// defineRaw adds a builtin that takes its arguments as they are.
func defineRaw(table map[string]*builtin, name string, raw func(r *state, v Value, a args) Value) {
	add(table, name, &builtin{raw: raw})
}

func add(table map[string]*builtin, names string, b *builtin) {
	for _, name := range strings.Split(names, "|") {
		c := *b
		c.name = name
		table[name] = &c
	}
}

func (b *builtin) call(r *state, v Value, a args) Value {
	if b.raw != nil {
		return b.raw(r, v, a)
	}
	if len(a.pos) > len(b.params) {
		r.typeError("%s() takes at most %d arguments (%d given)", b.name, len(b.params), len(a.pos))
	}
	vals := make([]Value, len(b.params))
	for i := range vals {
		vals[i] = absent
	}
	copy(vals, a.pos)
	for i, name := range a.names {
		k := slices.Index(b.params, name)
		if k < 0 || b.posOnly {
			r.typeError("%s() got an unexpected keyword argument '%s'", b.name, name)
		}
		if vals[k] != absent {
			r.typeError("%s() got multiple values for argument '%s'", b.name, name)
		}
		vals[k] = a.kw[i]
	}
	for i := range b.required {
		if vals[i] == absent {
			r.typeError("%s() missing required argument '%s'", b.name, b.params[i])
		}
	}
	return b.fn(r, v, vals)
}

// invoke calls b. What it makes of a text from outside is from outside, unless it says itself which of it is.
func (b *builtin) invoke(r *state, v Value, a args) Value {
	n := r.touched
	out := b.call(r, v, a)
	if r.touched != n {
		return r.foreign(out)
	}
	return out
}

// opt is v, or def where the argument was not given.
func opt(v, def Value) Value {
	if v == absent {
		return def
	}
	return v
}

// optNone is v, or def where the argument was not given or is None.
func optNone(v, def Value) Value {
	if v == absent || v == nil {
		return def
	}
	return v
}

// intArg is an argument that must be an integer; integers beyond int are cut to its range.
func (r *state) intArg(v Value) int {
	switch n, _ := number(v); n := n.(type) {
	case int:
		return n
	case *big.Int:
		const most = int(^uint(0) >> 1)
		return n.Sign() * most
	}
	r.use(v)
	r.typeError("'%s' object cannot be interpreted as an integer", typeName(v))
	return 0
}

// strArg is an argument that must be a string.
func (r *state) strArg(v Value) string {
	s, ok := r.text(v)
	if !ok {
		r.use(v)
		r.typeError("must be str, not %s", typeName(v))
	}
	return s
}

// use ends the rendering if v is undefined.
func (r *state) use(v Value) {
	if u, ok := v.(*Undefined); ok {
		r.missing(u)
	}
}

func init() {
	define(globalTable, "range / start stop? step?", func(r *state, _ Value, a []Value) Value {
		g := &pyRange{0, r.intArg(a[0]), 1}
		if a[1] != absent {
			g.start, g.stop = g.stop, r.intArg(a[1])
		}
		if a[2] != absent {
			g.step = r.intArg(a[2])
		}
		if g.step == 0 {
			r.fail("ValueError", "range() arg 3 must not be zero")
		}
		if n := g.len(); n > maxRange || n < 0 {
			r.fail("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
		}
		r.charge(costObject)
		return g
	})
	defineRaw(globalTable, "dict", (*state).makeDict)
	defineRaw(globalTable, "namespace", func(r *state, _ Value, a args) Value {
		return &namespace{r.makeDict(nil, a).(*Dict)}
	})
	defineRaw(globalTable, "cycler", func(r *state, _ Value, a args) Value {
		if len(a.pos) == 0 || len(a.names) > 0 {
			r.fail("RuntimeError", "at least one item has to be provided")
		}
		r.chargeN(len(a.pos)+2, costItem)
		return &cycler{items: a.pos}
	})
	define(globalTable, "joiner sep?", func(r *state, _ Value, a []Value) Value {
		r.charge(costObject)
		return &joiner{sep: r.textOf(opt(a[0], ", "))}
	})
	defineRaw(globalTable, "lipsum", func(r *state, _ Value, _ args) Value {
		r.fail("NotImplementedError", "lipsum makes random text; a chat template has no use for it")
		return nil
	})
	define(globalTable, "raise_exception message", func(r *state, _ Value, a []Value) Value {
		panic(&ErrRaised{Message: r.str(a[0])})
	})
	define(globalTable, "strftime_now format", func(r *state, _ Value, a []Value) Value {
		return r.strftime(r.now(), r.strArg(a[0]))
	})
}

// makeDict is dict(mapping or pairs, **entries).
func (r *state) makeDict(_ Value, a args) Value {
	if len(a.pos) > 1 {
		r.typeError("dict expected at most 1 argument, got %d", len(a.pos))
	}
	d := NewDict()
	r.charge(costObject)
	if len(a.pos) == 1 {
		if src, ok := a.pos[0].(*Dict); ok {
			for i, k := range src.keys {
				r.put(d, k, src.vals[i])
			}
		} else {
			for _, item := range r.items(a.pos[0]) {
				kv := r.items(item)
				if len(kv) != 2 {
					r.fail("ValueError", "dictionary update sequence element has length %d; 2 is required", len(kv))
				}
				r.put(d, kv[0], kv[1])
			}
		}
	}
	for i, name := range a.names {
		r.put(d, a.nameValue(name), a.kw[i])
	}
	return d
}

// strftime formats t as C's strftime does in the C locale, with glibc's flags "-", "_", "0" and "^".
func (r *state) strftime(t time.Time, format string) string {
	var b strings.Builder
	r.charge(2 * len(format))
	pad := func(n, width int, fill, flag byte) {
		switch flag {
		case '_':
			fill = ' '
		case '0':
			fill = '0'
		case '-':
			width = 0
		}
		s := strconv.Itoa(n)
		for i := len(s); i < width; i++ {
			b.WriteByte(fill)
		}
		b.WriteString(s)
	}
	hour12 := (t.Hour()+11)%12 + 1
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		start, written := i, b.Len()
		i++
		flag := byte(0)
		for i+1 < len(format) && strings.IndexByte("-_0^", format[i]) >= 0 {
			flag = format[i]
			i++
		}
		word := func(s string) {
			if flag == '^' {
				s = upper(s)
			}
			b.WriteString(s)
		}
		isoYear, isoWeek := t.ISOWeek()
		switch format[i] {
		case 'a':
			word(t.Format("Mon"))
		case 'A':
			word(t.Format("Monday"))
		case 'b', 'h':
			word(t.Format("Jan"))
		case 'B':
			word(t.Format("January"))
		case 'c':
			word(t.Format("Mon Jan _2 15:04:05 2006"))
		case 'C':
			pad(t.Year()/100, 2, '0', flag)
		case 'd':
			pad(t.Day(), 2, '0', flag)
		case 'D', 'x':
			b.WriteString(t.Format("01/02/06"))
		case 'e':
			pad(t.Day(), 2, ' ', flag)
		case 'f':
			pad(t.Nanosecond()/1000, 6, '0', 0)
		case 'F':
			b.WriteString(t.Format("2006-01-02"))
		case 'G':
			pad(isoYear, 4, '0', flag)
		case 'g':
			pad(isoYear%100, 2, '0', flag)
		case 'H':
			pad(t.Hour(), 2, '0', flag)
		case 'I':
			pad(hour12, 2, '0', flag)
		case 'j':
			pad(t.YearDay(), 3, '0', flag)
		case 'k':
			pad(t.Hour(), 2, ' ', flag)
		case 'l':
			pad(hour12, 2, ' ', flag)
		case 'm':
			pad(int(t.Month()), 2, '0', flag)
		case 'M':
			pad(t.Minute(), 2, '0', flag)
		case 'n':
			b.WriteByte('\n')
		case 'p':
			word(t.Format("PM"))
		case 'P':
			b.WriteString(t.Format("pm"))
		case 'r':
			b.WriteString(t.Format("03:04:05 PM"))
		case 'R':
			b.WriteString(t.Format("15:04"))
		case 's':
			pad(int(t.Unix()), 1, '0', flag)
		case 'S':
			pad(t.Second(), 2, '0', flag)
		case 't':
			b.WriteByte('\t')
		case 'T', 'X':
			b.WriteString(t.Format("15:04:05"))
		case 'u':
			pad((int(t.Weekday())+6)%7+1, 1, '0', flag)
		case 'U':
			pad((t.YearDay()+6-int(t.Weekday()))/7, 2, '0', flag)
		case 'V':
			pad(isoWeek, 2, '0', flag)
		case 'w':
			pad(int(t.Weekday()), 1, '0', flag)
		case 'W':
			pad((t.YearDay()+6-(int(t.Weekday())+6)%7)/7, 2, '0', flag)
		case 'y':
			pad(t.Year()%100, 2, '0', flag)
		case 'Y':
			pad(t.Year(), 1, '0', flag)
		case 'z', 'Z': // the time has no zone, as Python's datetime.now()
		case '%':
			b.WriteByte('%')
		default:
			b.WriteString(format[start : i+1])
		}
		r.step(4)
		r.charge(2 * (b.Len() - written))
	}
	return b.String()
}
