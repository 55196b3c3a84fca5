package value

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// FromJSON reads one JSON value. Objects become *Dict in the order of the text, arrays *List, numbers int, *big.Int
// or float64 as in Python, null nil.
func FromJSON(data []byte) (Value, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decodeJSON(dec, 0)
	if err != nil {
		return nil, fmt.Errorf("json: %w", err)
	}
	if _, err := dec.Token(); err == nil {
		return nil, errors.New("json: more text after the value")
	}
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, errors.New("json: more text after the value")
	}
	return v, nil
}

func decodeJSON(dec *json.Decoder, depth int) (Value, error) {
	if depth > maxValueNest {
		return nil, fmt.Errorf("nested deeper than %d", maxValueNest)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok := tok.(type) {
	case json.Number:
		return jsonNumber(string(tok))
	case json.Delim:
		if tok == '[' {
			l := &List{}
			for dec.More() {
				v, err := decodeJSON(dec, depth+1)
				if err != nil {
					return nil, err
				}
				l.Items = append(l.Items, v)
			}
			_, err = dec.Token()
			return l, err
		}
		d := NewDict()
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeJSON(dec, depth+1)
			if err != nil {
				return nil, err
			}
			d.Set(key.(string), v)
		}
		_, err = dec.Token()
		return d, err
	}
	return tok, nil // string, bool, nil
}

func jsonNumber(s string) (Value, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !math.IsInf(f, 0) {
			return nil, err
		}
		return f, nil
	}
	v, ok := ParseInt(s, 10)
	if !ok {
		return nil, fmt.Errorf("integer of more than %d digits", maxIntDigits)
	}
	return v, nil
}

// JsonStyle is how JSON is written: indent by depth if pretty, and the texts between items, and between key and
// value.
type JsonStyle struct {
	Ascii, Sort, Pretty bool
	Indent, Item, Key   string
}

// ToJSON is json.dumps(v) in a style.
func (r *Run) ToJSON(v Value, style JsonStyle) string {
	w := &jsonWriter{reprWriter: reprWriter{r: r}, JsonStyle: style}
	w.json(v, 0)
	return w.b.String()
}

type jsonWriter struct {
	reprWriter
	JsonStyle
}

func (w *jsonWriter) json(v Value, depth int) {
	w.r.Step(1)
	w.r.nest(depth)
	if IsNumber(v) {
		w.r.ReadNumber()
	}
	switch v := v.(type) {
	case nil:
		w.put("null")
	case bool:
		w.put(strconv.FormatBool(v))
	case int:
		w.put(strconv.Itoa(v))
	case *big.Int:
		w.put(w.r.bigText(v))
	case float64:
		w.put(jsonFloat(v))
	case string, Markup, *Mixed:
		s, _ := w.r.Text(v)
		w.str(s)
	case *List:
		w.block("[", "]", len(v.Items), depth, func(i int) { w.json(v.Items[i], depth+1) })
	case *Dict:
		pairs := w.r.Items(&View{v, "items"})
		if w.Sort {
			w.r.Sort(pairs, func(p Value) Value { return p.(*List).Items[0] }, false)
		}
		w.block("{", "}", len(pairs), depth, func(i int) {
			kv := pairs[i].(*List).Items
			w.str(w.keyText(kv[0]))
			w.put(w.Key)
			w.json(kv[1], depth+1)
		})
	default:
		w.r.TypeError("Object of type %s is not JSON serializable", TypeName(v))
	}
}

func (w *jsonWriter) block(open, end string, n, depth int, item func(i int)) {
	if n == 0 {
		w.put(open + end)
		return
	}
	line := ""
	if w.Pretty {
		line = "\n" + w.r.Repeat(w.Indent, depth)
	}
	w.put(open)
	for i := range n {
		if i > 0 {
			w.put(w.Item)
		}
		if w.Pretty {
			w.put(line)
			w.put(w.Indent)
		}
		item(i)
	}
	w.put(line)
	w.put(end)
}

// keyText is a dict's key as JSON text: strings, numbers, booleans and None only.
func (w *jsonWriter) keyText(k Value) string {
	switch k := k.(type) {
	case string, Markup, *Mixed:
		s, _ := w.r.Text(k)
		return s
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(k)
	case int:
		w.r.ReadNumber()
		return strconv.Itoa(k)
	case *big.Int:
		w.r.ReadNumber()
		return w.r.bigText(k)
	case float64:
		w.r.ReadNumber()
		return jsonFloat(k)
	}
	w.r.TypeError("keys must be str, int, float, bool or None, not %s", TypeName(k))
	return ""
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

// str writes a string; ascii escapes all beyond ASCII's printable characters.
func (w *jsonWriter) str(s string) {
	w.put("\"")
	start := 0
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		e := ""
		switch {
		case c == '"' || c == '\\':
			e = "\\" + string(c)
		case c == '\n':
			e = "\\n"
		case c == '\r':
			e = "\\r"
		case c == '\t':
			e = "\\t"
		case c == '\b':
			e = "\\b"
		case c == '\f':
			e = "\\f"
		case c < ' ' || w.Ascii && c > '~':
			e = jsonEscape(c)
		}
		if e != "" {
			w.put(s[start:i])
			w.put(e)
			start = i + n
		}
		i += n
	}
	w.put(s[start:])
	w.put("\"")
}

func jsonEscape(c rune) string {
	if c >= 0x10000 {
		c -= 0x10000
		return fmt.Sprintf("\\u%04x\\u%04x", 0xd800+c>>10, 0xdc00+c&0x3ff)
	}
	return fmt.Sprintf("\\u%04x", c)
}
