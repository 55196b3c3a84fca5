package builtin

import (
	"math/big"
	"strings"

	"ck/internal/template/value"
)

// attributer is an Object with attributes of its own.
type attributer interface {
	Attr(name string) (value.Value, bool)
}

// Attr is v.name: a method or an attribute first, else an item.
func (r *Env) Attr(v value.Value, name string) value.Value {
	if a, ok := r.attribute(v, name); ok {
		return a
	}
	if d, ok := v.(*value.Dict); ok {
		if x, ok := d.Get(name); ok {
			return x
		}
	}
	return r.noAttr(v, name)
}

func (r *Env) noAttr(v value.Value, name string) value.Value {
	what := value.TypeName(v)
	switch what {
	case "NoneType":
		what = "None"
	case "Namespace", "LoopContext", "Macro":
	default:
		what += " object"
	}
	return r.Undefined("'%s' has no attribute '%s'", what, name)
}

// attribute is a method or attribute in Python's sense. Those which would change a value are undefined, and an error
// when called.
func (r *Env) attribute(v value.Value, name string) (value.Value, bool) {
	switch v := v.(type) {
	case *value.Undefined:
		r.Missing(v)
	case *value.Namespace:
		return v.Attrs.Get(name)
	case attributer:
		if a, ok := v.Attr(name); ok {
			return a, true
		}
	case *value.List:
		if v.Group && name == "grouper" {
			return v.Items[0], true
		}
		if v.Group && name == "list" {
			return v.Items[1], true
		}
	}
	kind := methodKind(v)
	if f := methodTable[kind][name]; f != nil {
		return r.Bind(v, f), true
	}
	unsafe := changing[kind+"."+name]
	if strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
		d, ok := v.(*value.Dict)
		unsafe = !ok || d.Find(name) < 0
	}
	if unsafe {
		return r.Forbidden("SecurityError", "access to attribute '%s' of '%s' object is unsafe", name,
			value.TypeName(v)), true
	}
	return nil, false
}

// Item is v[key]: an item first, else an attribute.
func (r *Env) Item(v, key value.Value) value.Value {
	if x, ok := r.Element(v, key); ok {
		return x
	}
	r.Need(v)
	return r.itemAttr(v, key)
}

func (r *Env) itemAttr(v, key value.Value) value.Value {
	name, ok := value.PlainText(key)
	if !ok {
		return r.Undefined("%s object has no element %s", value.TypeName(v), r.short(key))
	}
	if a, ok := r.attribute(v, name); ok {
		return a
	}
	return r.noAttr(v, name)
}

// short is repr(v) for messages; long values give their type instead.
func (r *Env) short(v value.Value) string {
	switch v.(type) {
	case nil, bool, int, float64:
		return r.Repr(v)
	}
	return "of type " + value.TypeName(v)
}

// changing are the methods that would change a value; the sandbox refuses them.
var changing = map[string]bool{
	"list.append": true, "list.clear": true, "list.extend": true, "list.insert": true,
	"list.pop": true, "list.remove": true,
	"list.reverse": true, "list.sort": true,
	"dict.clear": true, "dict.pop": true, "dict.popitem": true, "dict.setdefault": true, "dict.update": true,
}

// methodKind is the row of methodTable for v.
func methodKind(v value.Value) string {
	switch v := v.(type) {
	case string, value.Markup, *value.Mixed:
		return "str"
	case *value.List:
		if v.Tuple {
			return "tuple"
		}
		return "list"
	case *value.Dict:
		return "dict"
	case bool, int, *big.Int:
		return "int"
	case float64:
		return "float"
	case *value.Range:
		return "range"
	case *cycler:
		return "cycler"
	}
	return ""
}
